"""GuideLLM: reports of version 1 and 2, one run for every benchmark in them.

Owns their field names and two of their habits: a missing TTFT is written as 0.0 and enters the
mean, and ``time_per_output_token_ms`` is latency over all output tokens, the first included, so
it is not TPOT. Only what lies under ``successful`` is used; ``total`` mixes in failed requests.
Facts about the format: GuideLLM's ``benchmark/schemas``, read 2026-11.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from assay.bench.results.fields import Fields
from assay.bench.results.problems import Log
from assay.bench.results.rows import BUNDLE, Array, Rows, compute, numbers, sound
from assay.bench.results.table import Run

__all__ = ["is_report", "lean", "runs"]

#: field -> (metric, factor to base units)
_TIMES = {
    "time_to_first_token_ms": ("ttft", 1e-3),
    "inter_token_latency_ms": ("itl", 1e-3),
    "time_per_output_token_ms": ("latency_per_token", 1e-3),
    "request_latency": ("e2el", 1.0),
}
_RATES = {
    "output_tokens_per_second": "output_rate",
    "tokens_per_second": "total_rate",
    "prompt_tokens_per_second": "input_rate",
    "requests_per_second": "request_rate",
}
_STATES = ("successful", "incomplete", "errored")
#: What is used of a request, by either version's names.
_KEPT = {"time_to_first_token_ms", "request_latency", "output_tokens", "prompt_tokens"}
_STATISTICS = {"mean": "mean", "median": "p50", "std_dev": "std", "min": "min", "max": "max"}
_PERCENTILES = {"p75": "p75", "p90": "p90", "p95": "p95", "p99": "p99", "p999": "p99.9"}


def is_report(content: Mapping[str, Any]) -> bool:
    """Say whether an object is a GuideLLM report."""
    found = content.get("benchmarks")
    return isinstance(found, list) and any(isinstance(b, dict) and "metrics" in b for b in found)


def runs(content: Mapping[str, Any]) -> list[Run]:
    """Read a report: one run for each benchmark."""
    report = Fields(dict(content), Log())
    version = report.part("metadata").number("version", quiet=True)
    named = f"GuideLLM v{version:.0f}" if version and version < 100 else "GuideLLM v1"
    tool = report.part("metadata").text("guidellm_version")
    found = []
    for benchmark in content["benchmarks"]:
        run = Run(named)
        _benchmark(run, Fields(benchmark, run.log))
        if tool:
            run.note("format", f"written by GuideLLM {tool}")
        found.append(run)
    return found


def lean(key: str, item: Any) -> Any:
    """Keep of a request what is used of it; a report holds its prompt and its text as well.

    Parameters
    ----------
    key : str
        The key of the list the item is in.
    item : object
        One item.
    """
    if key in _STATES and isinstance(item, dict) and _KEPT & item.keys():
        return {name: item[name] for name in _KEPT & item.keys()}
    return item


def _benchmark(run: Run, fields: Fields) -> None:
    metrics = fields.part("metrics")
    totals = next(
        (
            part
            for part in (
                metrics.part("request_totals"),
                fields.part("request_totals"),
                fields.part("run_stats").part("requests_made"),
                fields.part("scheduler_metrics").part("requests_made"),
            )
            if part.content
        ),
        Fields({}, run.log),
    )
    completed = totals.count("successful")
    errored, incomplete = totals.count("errored") or 0, totals.count("incomplete") or 0
    run.know(completed=completed, duration=fields.number("duration"), model=_model(fields))
    _strategy(run, fields)
    if completed is not None:
        run.know(failed=errored + incomplete)
    if incomplete:
        run.note("failed", f"{incomplete:,} of them were still running when the time was over")
    for name, (metric, factor) in _TIMES.items():
        _times(run, metrics.part(name).part("successful"), metric, factor, completed)
    for name, metric in _RATES.items():
        value = metrics.part(name).part("successful").number("mean")
        run.put(metric, "rate", value)
        if value is not None:
            run.note(metric, "GuideLLM averages the rate over time; vLLM divides total by duration")
    _lengths(run, metrics)
    _bundles(run, metrics)
    if run.statistics("latency_per_token"):
        run.note("latency_per_token_mean", "includes the first token; vLLM's TPOT does not")
    if run.statistics("itl"):
        run.note("itl_mean", "last token minus first, over the tokens between")
    listed = fields.part("requests").raw("successful")
    if not isinstance(listed, list):
        run.log.add("data.summary-only", "the report has no per-request data")
    elif completed is not None and len(listed) == completed:
        _requests(run, listed)


def _strategy(run: Run, fields: Fields) -> None:
    """Read what load was asked for: a report holds one benchmark for each step of a sweep."""
    for place in (fields.part("config"), fields.part("scheduler"), fields.part("args")):
        strategy = place.part("strategy")
        kind = strategy.text("type_") or place.text("strategy")
        if kind is None:
            continue
        streams = 1 if kind == "synchronous" else strategy.count("streams", "max_concurrency")
        run.know(test=kind, concurrency=streams, asked_rate=strategy.number("rate"))
        return


def _bundles(run: Run, metrics: Fields) -> None:
    """Say that tokens come in bundles, which the report counts."""
    size = metrics.part("output_tokens_per_iteration").part("successful").number("mean")
    if size is not None and size >= BUNDLE:
        run.log.add(
            "itl.chunks",
            f"{size:.3g} tokens arrive in one chunk: what is called inter-token latency here is "
            "already per token, and no gap of the stream",
        )


def _requests(run: Run, listed: list[Any]) -> None:
    """Take the first token's time from the requests: there a missing one is missing."""
    requests = [Fields(item, Log()) for item in listed if isinstance(item, dict)]
    if len(requests) != len(listed):
        return
    n = len(requests)

    def column(name: str, factor: float) -> Array:
        return sound(run, name, numbers([r.raw(name) for r in requests], n) * factor)

    ttft = column("time_to_first_token_ms", 1e-3)
    latency, outputs = column("request_latency", 1.0), column("output_tokens", 1.0)
    if run.log.failed or not np.isfinite(outputs).any():
        return
    # The report's own figures of these are replaced; the ones of its ITL and rates stay.
    compute(run, Rows(ttft, latency, outputs, column("prompt_tokens", 1.0)))


def _times(run: Run, part: Fields, metric: str, factor: float, completed: int | None) -> None:
    count = part.count("count")
    # ITL and time per token are weighted by tokens: their count is not one of requests.
    n = count if metric in ("ttft", "e2el") and count is not None else completed
    for name, statistic in _STATISTICS.items():
        value = part.number(name)
        run.put(metric, statistic, None if value is None else value * factor, samples=n)
    inner = part.part("percentiles")
    for name, statistic in _PERCENTILES.items():
        value = inner.number(name) if inner.has(name) else part.number(name)
        run.put(metric, statistic, None if value is None else value * factor, samples=n)


def _lengths(run: Run, metrics: Fields) -> None:
    for name, mean, total in (
        ("prompt_token_count", "input_per_request", "input_tokens"),
        ("output_token_count", "output_per_request", "output_tokens"),
    ):
        part = metrics.part(name).part("successful")
        run.know(**{mean: part.number("mean")})
        value = part.number("total_sum")
        if value is not None:
            run.know(**{total: int(value)})
    concurrency = metrics.part("request_concurrency").part("successful").number("mean")
    if concurrency is not None:
        run.note("concurrency", f"{concurrency:.3g} requests were in flight on average")


def _model(fields: Fields) -> str | None:
    for place in (fields.part("config").part("backend"), fields.part("worker")):
        found = place.text("model", "backend_model")
        if found:
            return found
    return None
