"""LMBenchmark: the per-request CSV of its multi-round client.

Owns its columns. A request of one token has no generation time, so a client that divides by it
prints an infinite speed; a TTFT of 0 s was never measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from assay.bench.results.rows import Array, Rows, compute, sound
from assay.bench.results.table import Run

__all__ = ["is_header", "run"]


def is_header(names: Sequence[str]) -> bool:
    """Say whether a table's columns are those of LMBenchmark."""
    return {"prompt_tokens", "generation_tokens", "ttft"} <= set(names)


def run(table: Sequence[Mapping[str, str]]) -> Run:
    """Read a table of requests."""
    found = Run("LMBenchmark")
    columns: dict[str, Array] = {
        name: sound(found, name, _column(found, table, name))
        for name in ("prompt_tokens", "generation_tokens", "ttft", "generation_time")
    }
    n = len(table)
    found.know(completed=n)
    if not n:
        found.log.add("data.none", "the table has no rows")
        return found
    ttft, spent, outputs = columns["ttft"], columns["generation_time"], columns["generation_tokens"]
    if (outputs == 1).all():
        found.log.add(
            "tpot.one-token",
            "every request returned one token: a generation speed over 0 s is not infinite, it is "
            "undefined",
        )
    if not (ttft > 0).any():
        found.log.add(
            "data.none", "every TTFT is 0 s: none was measured, and no speed follows from it"
        )
        return found
    for name, column in (("input_tokens", columns["prompt_tokens"]), ("output_tokens", outputs)):
        if np.isfinite(column).all():
            found.know(**{name: int(column.sum())})
    duration = _duration(table)
    found.know(duration=duration)
    with np.errstate(all="ignore"):
        latency = np.where(ttft > 0, ttft + spent, np.nan)
    compute(found, Rows(ttft, latency, outputs, columns["prompt_tokens"]))
    return found


def _column(found: Run, table: Sequence[Mapping[str, str]], name: str) -> Array:
    values = [_number(row.get(name)) for row in table]
    if any(v is None for v in values):
        bad = sum(v is None for v in values)
        found.log.add("number.type", f"column '{name}' has {bad:,} cells that are not numbers")
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)


def _number(cell: Any) -> float | None:
    try:
        return float(cell)
    except (TypeError, ValueError):
        return None


def _duration(table: Sequence[Mapping[str, str]]) -> float | None:
    starts = [_number(row.get("launch_time")) for row in table]
    ends = [_number(row.get("finish_time")) for row in table]
    known = [v for v in (*starts, *ends) if v is not None and np.isfinite(v)]
    if len(known) != 2 * len(table) or not known:
        return None
    return max(known) - min(known)
