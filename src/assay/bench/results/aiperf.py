"""AIPerf and GenAI-Perf: the summary, and the per-request lines.

Owns their field names and units. ``inter_token_latency`` is vLLM's TPOT: one value a request,
(latency - TTFT) / (tokens - 1); the gaps a request saw are ``inter_chunk_latency``. A metric's
``count``, where it is there, counts records. Facts about the format: AIPerf's documentation, "JSON
export schema" and "Working with profile export files", read 2026-11; one example there names
``time_to_first_token`` twice in an object.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from assay.bench.results.documents import Document
from assay.bench.results.fields import Fields
from assay.bench.results.rows import Rows, compute, numbers, sound
from assay.bench.results.table import Run

__all__ = ["is_record", "is_summary", "records", "summary"]

_TIMES = {
    "time_to_first_token": "ttft",
    "inter_token_latency": "tpot",
    "inter_chunk_latency": "chunk_gap",
    "request_latency": "e2el",
    "time_to_second_token": "second_token",
}
_RATES = {
    "output_token_throughput": "output_rate",
    "total_token_throughput": "total_rate",
    "request_throughput": "request_rate",
    "goodput": "goodput",
}
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0}
_PER_SECOND = re.compile(r".{0,20}(/|\bper )s(ec(onds?)?)?(/user)?", re.I)
_STATISTICS = {"avg": "mean", "std": "std", "min": "min", "max": "max"}
_PERCENTILES = ("p50", "p75", "p90", "p95", "p99")


def is_summary(content: Mapping[str, Any]) -> bool:
    """Say whether an object is a summary of AIPerf or GenAI-Perf."""
    return any(
        isinstance(content.get(name), dict) and "unit" in content[name]
        for name in (*_TIMES, *_RATES, "request_count")
    )


def is_record(content: Mapping[str, Any]) -> bool:
    """Say whether an object is one line of ``profile_export.jsonl``."""
    return isinstance(content.get("metrics"), dict) and isinstance(content.get("metadata"), dict)


def summary(content: Mapping[str, Any], *, rounded: bool = False) -> Run:
    """Read a summary.

    Parameters
    ----------
    content : mapping
        As the JSON holds it.
    rounded : bool
        Whether it was written as CSV, with two decimals.
    """
    run = Run("AIPerf")
    fields = Fields(dict(content), run.log)
    count = fields.part("request_count").number("avg")
    completed = None if count is None else int(count)
    errors = fields.part("error_request_count").number("avg")
    if errors is None:
        errors = _errors(run, fields.sequence("error_summary"))
    run.know(
        completed=completed,
        failed=None if errors is None else int(errors),
        duration=_time(run, fields.part("benchmark_duration"), "avg"),
        input_per_request=fields.part("input_sequence_length").number("avg"),
        output_per_request=fields.part("output_sequence_length").number("avg"),
    )
    for total, name in (("total_isl", "input_tokens"), ("total_osl", "output_tokens")):
        value = fields.part(total).number("avg")
        run.know(**{name: None if value is None else int(value)})
    _config(run, fields.part("input_config"))
    _devices(run, fields.part("telemetry_data"))
    if fields.raw("was_cancelled") is True:
        run.log.add("run.cancelled", "the run was cancelled: fewer requests than asked")
    for name, metric in _TIMES.items():
        part = fields.part(name)
        # Chunk gaps are counted one by one; the sample is still the request.
        n = completed if metric == "chunk_gap" else part.count("count") or completed
        for statistic, as_named in (*_STATISTICS.items(), *((p, p) for p in _PERCENTILES)):
            run.put(metric, as_named, _time(run, part, statistic), samples=n)
    for name, metric in _RATES.items():
        run.put(metric, "rate", _rate(run, fields.part(name)))
    user = _rate(run, fields.part("output_token_throughput_per_user"))
    run.put("request_decode_rate", "mean", user, samples=completed)
    whole = _rate(run, fields.part("output_token_throughput_per_request"))
    run.put("request_output_rate", "mean", whole, samples=completed)
    if rounded:
        run.note("format", "read from CSV, which keeps two decimals; the JSON keeps all")
    run.log.add("data.summary-only", "the summary has no per-request data")
    return run


def _errors(run: Run, listed: Sequence[Any] | None) -> float | None:
    """Count failed requests by the summary of their errors."""
    if not listed:
        return None
    counts = [Fields(item, run.log, "error_summary").number("count") for item in listed]
    return sum(count for count in counts if count is not None)


def _config(run: Run, config: Fields) -> None:
    """Read what was asked for, where AIPerf and older and newer GenAI-Perf keep it."""
    load = config.part("loadgen")
    stimulus = config.part("perf_analyzer").part("stimulus")
    run.know(
        model=_first(config.part("endpoint").raw("model_names")) or _first(config.raw("model")),
        tokenizer=config.part("tokenizer").text("name") or config.text("tokenizer"),
        concurrency=load.count("concurrency")
        or stimulus.count("concurrency")
        or config.count("concurrency"),
        asked_rate=load.number("request_rate")
        or stimulus.number("request_rate")
        or config.number("request_rate"),
        asked=load.count("request_count"),
        seed=_seed(config.part("input").raw("random_seed")),
    )


def _seed(value: object) -> str | None:
    return str(value) if type(value) is int else None


def _devices(run: Run, telemetry: Fields) -> None:
    """Count the devices whose telemetry was taken."""
    names = []
    for endpoint in telemetry.part("endpoints").content.values():
        gpus = endpoint.get("gpus") if isinstance(endpoint, dict) else None
        for gpu in gpus.values() if isinstance(gpus, dict) else ():
            if isinstance(gpu, dict):
                names.append(str(gpu.get("gpu_name") or ""))
    if names:
        run.know(gpus=len(names), hardware=", ".join(sorted(set(names) - {""})) or None)


def _rate(run: Run, part: Fields) -> float | None:
    value = part.number("avg")
    unit = part.text("unit")
    if value is None or unit is None or _PER_SECOND.fullmatch(unit):
        return value
    run.log.add("number.type", f"'{part.path('unit')}' is no rate per second; not used")
    return None


def _first(value: object) -> str | None:
    if isinstance(value, list) and value:
        value = value[0]
    return value if isinstance(value, str) else None


def _time(run: Run, part: Fields, name: str) -> float | None:
    value = part.number(name)
    if value is None:
        return None
    unit = part.text("unit")
    if unit not in _SECONDS:
        run.log.add("number.type", f"'{part.path('unit')}' is no unit of time; not used")
        return None
    return value * _SECONDS[unit]


def records(documents: Iterable[Document]) -> Run:
    """Read per-request lines, one at a time."""
    run = Run("AIPerf per-request")
    columns: dict[str, list[float]] = {
        name: [] for name in ("ttft", "latency", "outputs", "inputs", "second")
    }
    gaps: list[Any] = []
    starts, ends = [], []
    total = failed = cancelled = 0
    for document in documents:
        if not isinstance(document.value, dict) or not is_record(document.value):
            run.log.add("data.none", f"line {document.line} is no per-request record of AIPerf")
            return run
        record = Fields(document.value, run.log)
        metadata = record.part("metadata")
        if metadata.raw("benchmark_phase") == "warmup":
            continue
        total += 1
        cancelled += metadata.raw("was_cancelled") is True
        if record.raw("error") is not None or metadata.raw("was_cancelled") is True:
            failed += 1
            continue
        metrics = record.part("metrics")
        for name, field, timed in (
            ("ttft", "time_to_first_token", True),
            ("latency", "request_latency", True),
            ("second", "time_to_second_token", True),
            ("outputs", "output_sequence_length", False),
            ("inputs", "input_sequence_length", False),
        ):
            part = metrics.part(field)
            value = _time(run, part, "value") if timed else part.number("value")
            columns[name].append(np.nan if value is None else value)
        gaps.append(_gap(run, metrics.part("inter_chunk_latency")))
        start, end = metadata.raw("request_start_ns"), metadata.raw("request_end_ns")
        if type(start) is int and type(end) is int and 0 <= start <= end:
            starts.append(start)
            ends.append(end)
    completed = total - failed
    run.know(asked=total, completed=completed, failed=failed)
    if not completed:
        return run
    arrays = {n: sound(run, n, numbers(v, completed)) for n, v in columns.items()}
    for name, mean, column in (
        ("input_tokens", "input_per_request", arrays["inputs"]),
        ("output_tokens", "output_per_request", arrays["outputs"]),
    ):
        if np.isfinite(column).all():
            run.know(**{name: int(column.sum()), mean: float(column.mean())})
    if len(starts) == completed and max(ends) > min(starts):
        run.know(duration=(max(ends) - min(starts)) * 1e-9)
    if run.log.failed:
        return run
    known = None if any(g is None for g in gaps) else gaps
    rows = Rows(arrays["ttft"], arrays["latency"], arrays["outputs"], arrays["inputs"], known)
    compute(run, rows)
    second = arrays["second"][np.isfinite(arrays["second"])]
    if len(second):
        run.put("second_token", "mean", float(second.mean()), samples=len(second))
        run.put("second_token", "p50", float(np.median(second)), samples=len(second))
    if cancelled:
        run.log.add("run.cancelled", f"{cancelled:,} requests were cancelled")
    return run


def _gap(run: Run, part: Fields) -> Any:
    values = part.raw("value")
    factor = _SECONDS.get(str(part.raw("unit")))
    if not part.content:
        return None
    if factor is None or (not isinstance(values, list) and not hasattr(values, "typecode")):
        return None
    return sound(run, "inter_chunk_latency", numbers(values, len(values)) * factor)
