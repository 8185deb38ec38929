"""Exports: reports that other tools also write as CSV.

Owns turning the tables of AIPerf and GenAI-Perf, of GuideLLM, and of vLLM's sweeps back into the
objects their JSON holds, so that one reader knows what they mean. Facts about the tables: AIPerf
``exporters/metrics_csv_exporter.py``, GenAI-Perf ``export_data/csv_exporter.py``, GuideLLM
``benchmark/outputs/csv.py`` (three header rows since 0.4, one before) and vLLM 0.32
``benchmarks/sweep/serve.py``, read 2026-11. All of them round or leave out what JSON keeps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from assay.bench.results import aiperf, guidellm, vllm
from assay.bench.results.table import Run
from assay.bench.results.tables import Table, refuse_misfit, value

__all__ = [
    "aiperf_summary",
    "guidellm_report",
    "is_aiperf",
    "is_guidellm",
    "is_vllm",
    "vllm_sweep",
]

_NAMED = re.compile(r"(.{1,80}?)\s*(?:\(([^()]{1,30})\))?")
#: Headers that are not the field's name with blanks for underlines.
_FIELDS = {
    "total_input_sequence_length": "total_isl",
    "total_output_sequence_length": "total_osl",
    "goodrequestcount": "good_request_count",
    "request_goodput": "goodput",
}
_STATES = ("successful", "incomplete", "errored", "total")
#: GuideLLM's list of order statistics, in the order of its columns; the first and last are ends.
_RANKS = ("min", "p001", "p01", "p05", "p10", "p25", "p75", "p90", "p95", "p99", "max")
#: (group, what is measured and its unit) of three header rows -> field of the JSON.
_GROUPS = {
    ("request latency", "sec"): "request_latency",
    ("time to first token", "ms"): "time_to_first_token_ms",
    ("time per output token", "ms"): "time_per_output_token_ms",
    ("inter token latency", "ms"): "inter_token_latency_ms",
    ("server throughput", "requests/sec"): "requests_per_second",
    ("server throughput", "concurrency"): "request_concurrency",
    ("token metrics", "input tokens"): "prompt_token_count",
    ("token metrics", "output tokens"): "output_token_count",
    ("token throughput", "input tokens/sec"): "prompt_tokens_per_second",
    ("token throughput", "output tokens/sec"): "output_tokens_per_second",
    ("token throughput", "total tokens/sec"): "tokens_per_second",
    ("token streaming", "output tokens/iter"): "output_tokens_per_iteration",
}
_WORDS = {"mean": "mean", "median": "median", "std dev": "std_dev"}


def is_aiperf(table: Table) -> bool:
    """Say whether a table is the summary of AIPerf or GenAI-Perf."""
    names = [name.lower() for name in table.names]
    return names[:1] == ["metric"] and (names[1:2] == ["value"] or "avg" in names)


def aiperf_summary(table: Table, shown: str) -> Run:
    """Read the summary of AIPerf or GenAI-Perf: several tables one below the other.

    Parameters
    ----------
    table : Table
        The whole file.
    shown : str
        The file's name, for messages.

    Raises
    ------
    InputError
        When a row does not fit the header above it.
    """
    content: dict[str, Any] = {}
    devices: dict[str, str] = {}
    twice: list[str] = []
    header: list[str] = []
    for number, row in enumerate(table.lines, start=1):
        lowered = [cell.lower() for cell in row]
        if "metric" in lowered[:5] and ({"avg", "value"} & set(lowered)):
            header = lowered
            continue
        refuse_misfit(row, header, number, shown)
        cells = dict(zip(header, row, strict=True))
        if "gpu_uuid" in header or "gpu" in header:
            key = cells.get("gpu_uuid") or cells.get("gpu") or ""
            devices[key] = cells.get("gpu_name", "")
            continue
        found = _NAMED.fullmatch(cells.get("metric", ""))
        if not found:
            continue
        field = found[1].strip().lower().replace(" ", "_")
        field = _FIELDS.get(field, field)
        if field in content:
            twice.append(field)
        entry = {"unit": found[2] or "count"}
        for name, cell in cells.items():
            if name != "metric":
                entry["avg" if name == "value" else name] = value(cell)
        content[field] = entry
    for field in twice:
        del content[field]
    run = aiperf.summary(content, rounded=True)
    for field in dict.fromkeys(twice):
        run.log.add(
            "file.duplicate-key", f"the table has '{field[:60]}' twice: neither row is used"
        )
    if devices:
        names = sorted(set(devices.values()) - {""})
        run.know(gpus=len(devices), hardware=", ".join(names) or None)
    return run


def is_guidellm(table: Table) -> bool:
    """Say whether a table is a report of GuideLLM, old or new."""
    names = {name.lower() for name in table.names}
    return "request latency" in names or any(
        name.startswith("successful ") and name.endswith(" mean") for name in names
    )


def guidellm_report(table: Table, shown: str) -> Iterator[Run]:
    """Read a report of GuideLLM: one run for each row below the header.

    Parameters
    ----------
    table : Table
        The whole file.
    shown : str
        The file's name, for messages.

    Raises
    ------
    InputError
        When a row does not fit the header.
    """
    lines = table.lines
    new = "request latency" in {name.lower() for name in table.names}
    rows = lines[3:] if new else lines[1:]
    for number, row in enumerate(rows, start=len(lines) - len(rows) + 1):
        refuse_misfit(row, lines[0], number, shown)
    if new:
        keys = list(zip(*(_padded(line, len(lines[0])) for line in lines[:3]), strict=True))
        yield from guidellm.runs({"benchmarks": [_three(keys, row) for row in rows]})
    else:
        yield from guidellm.runs({"benchmarks": [_single(lines[0], row) for row in rows]})


def _padded(line: Sequence[str], size: int) -> list[str]:
    return [*line, *[""] * size][:size]


def _three(keys: Sequence[tuple[str, ...]], row: Sequence[str]) -> dict[str, Any]:
    """Return a row below three header rows as the benchmark it was written from."""
    metrics: dict[str, Any] = {}
    totals: dict[str, Any] = {}
    benchmark: dict[str, Any] = {"metrics": metrics, "config": {}}
    for (group, name, word), cell in zip(keys, row, strict=True):
        group, name, word = group.lower(), name.lower(), word.lower()
        if cell == "":
            continue
        if group == "request counts" and name in _STATES:
            totals[name] = value(cell)
        elif (group, name) == ("timings", "duration"):
            benchmark["duration"] = value(cell)
        elif (group, name) == ("benchmark", "strategy"):
            benchmark["config"]["strategy"] = {"type_": cell}
        elif (group, name) in (("run info", "backend"), ("run info", "profile")):
            benchmark["config"][name] = value(cell)
        else:
            state, _, measured = name.partition(" ")
            field = _GROUPS.get((group, measured))
            if field is not None and state in _STATES:
                _statistic(metrics.setdefault(field, {}).setdefault(state, {}), word, cell)
    metrics["request_totals"] = totals
    _streams(benchmark["config"])
    return benchmark


def _streams(config: dict[str, Any]) -> None:
    """Take what the strategy's name does not say out of a profile of a single step."""
    profile, strategy = config.get("profile"), config.get("strategy")
    if not isinstance(profile, dict) or not isinstance(strategy, dict):
        return
    for name in ("streams", "rate", "max_concurrency"):
        found = profile.get(name)
        found = found[0] if isinstance(found, list) and len(found) == 1 else found
        if isinstance(found, int | float):
            strategy[name] = found


def _single(names: Sequence[str], row: Sequence[str]) -> dict[str, Any]:
    """Return a row below one header row as the benchmark it was written from."""
    metrics: dict[str, Any] = {}
    totals: dict[str, Any] = {}
    benchmark: dict[str, Any] = {"metrics": metrics, "config": {}}
    for name, cell in zip(names, row, strict=True):
        lowered = name.lower()
        state, _, rest = lowered.partition(" ")
        if lowered == "duration":
            benchmark["duration"] = value(cell)
        elif lowered == "name":
            benchmark["config"]["strategy"] = {"type_": cell}
        elif lowered == "backend":
            benchmark["config"]["backend"] = value(cell)
        elif state in _STATES and rest == "requests":
            totals[state] = value(cell)
        elif state in _STATES and cell != "":
            for word in (*_WORDS, "[min, 0.1, 1, 5, 10, 25, 75, 90, 95, 99, max]"):
                if rest.endswith(f" {word}"):
                    field = rest.removesuffix(f" {word}").replace(" ", "_")
                    part = metrics.setdefault(field, {}).setdefault(state, {})
                    _statistic(part, word, cell)
    metrics["request_totals"] = totals
    return benchmark


def _statistic(part: dict[str, Any], word: str, cell: str) -> None:
    found = value(cell)
    if word in _WORDS:
        part[_WORDS[word]] = found
        return
    if not isinstance(found, list) or len(found) != len(_RANKS):
        part["percentiles"] = found
        return
    part["min"], part["max"] = found[0], found[-1]
    part["percentiles"] = dict(zip(_RANKS[1:-1], found[1:-1], strict=True))


def is_vllm(names: Sequence[str]) -> bool:
    """Say whether a table's columns are those of a sweep of ``vllm bench serve``."""
    return "completed" in names and bool(
        {"duration", "request_throughput", "output_throughput", "mean_ttft_ms"} & set(names)
    )


def vllm_sweep(table: Table, shown: str) -> Iterator[Run]:
    """Read the summary of a sweep: one run for each row.

    Parameters
    ----------
    table : Table
        The whole file.
    shown : str
        The file's name, for messages.

    Raises
    ------
    InputError
        When a row does not fit the header.
    """
    for row in table.rows(shown):
        content = {name: value(cell) for name, cell in row.items() if name}
        yield vllm.serving({name: v for name, v in content.items() if v is not None})
