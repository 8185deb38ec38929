"""Clock: the twin's simulated clock beside that of the real engine, load by load.

Owns what a page says and draws of the committed tables: median errors, every predicted latency, and
what the step logs add up to. Does not own making the tables (`twin.validate`, `twin.tables`).
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from assay.bench.twin import comparison, tables

__all__ = ["errors", "latencies", "words"]

#: What both clocks are compared on, throughput and two means: column and the end of its name.
_COMPARED = {"rate": "", "ttft": "_s", "tpot": "_s"}


def latencies() -> list[dict[str, Any]]:
    """Return every TTFT and TPOT that the twin predicted beside what was measured [ms].

    Returns
    -------
    list of dict
        ``x`` measured and ``y`` predicted; ``kind`` is ``evidence`` for the real engine here and
        ``published`` for third parties' GPUs, mixtures of experts left out.
    """
    here = [
        {"x": 1e3 * float(row[f"{k}_measured_s"]), "y": 1e3 * float(row[f"{k}_predicted_s"])}
        for row in tables.read("clock")
        for k in ("ttft", "tpot")
        if row["role"] == "predicted"
    ]
    there = [
        {"x": 1e3 * point["measured"], "y": 1e3 * point["predicted"]}
        for point in comparison.scatter()
        if point["unit"] == "s" and not point["experts"]
    ]
    return [
        *({**point, "kind": "evidence"} for point in here),
        *({**point, "kind": "published"} for point in there),
    ]


def errors() -> dict[str, float]:
    """Return the median absolute relative error over the predicted loads, by column [1]."""
    rows = [row for row in tables.read("clock") if row["role"] == "predicted"]
    return {
        key: statistics.median(abs(_over(row, key, end) - 1) for row in rows)
        for key, end in _COMPARED.items()
    }


def words() -> dict[str, str]:
    """Return what the text says of both comparisons with the real engine.

    Returns
    -------
    dict
        ``rate_error``, ``ttft_error``, ``tpot_error``; and of the step logs how many ``workloads``
        there are, how many are ``identical``, and their ``steps`` and ``preemptions``.
    """
    logs = tables.read("steps")
    return {
        **{f"{name}_error": f"{error:.1%}" for name, error in errors().items()},
        "workloads": str(len(logs)),
        "identical": str(sum(row["identical"] == "yes" for row in logs)),
        "steps": f"{sum(int(row['steps']) for row in logs):,}",
        "preemptions": f"{sum(int(row['preemptions']) for row in logs):,}",
    }


def _over(row: Mapping[str, str], key: str, end: str) -> float:
    return float(row[f"{key}_predicted{end}"]) / float(row[f"{key}_measured{end}"])
