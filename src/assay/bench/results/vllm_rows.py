"""vLLM rows: the per-request lists of ``--save-detailed``.

Owns which entries are requests that completed, and what the lists say against the summary beside
them. Facts about the format are from vLLM 0.32, ``vllm/benchmarks/serve.py``: a failed row has
0 s and no gaps. Does not own the figures that follow (``rows``).
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from assay.bench.results.fields import Fields
from assay.bench.results.rows import Array, Rows, compute, numbers, sound
from assay.bench.results.table import Run

__all__ = ["read"]


def read(run: Run, fields: Fields) -> None:
    """Put what the per-request lists of a result give into a run.

    Parameters
    ----------
    run : Run
        With its facts and stated figures.
    fields : Fields
        The result as written.
    """
    lists = {
        n: fields.sequence(n) for n in ("ttfts", "output_lens", "input_lens", "itls", "errors")
    }
    lists["latencies"] = fields.sequence("latencies", "e2e_latencies")
    # Newer writers keep latencies in a summary; alone they are no per-request data.
    there = {n: v for n, v in lists.items() if v is not None}
    if "output_lens" not in there or not there.keys() & {"ttfts", "latencies"}:
        run.log.add("data.summary-only", "the summary has no per-request data")
        return
    size = len(there["output_lens"])
    if any(len(v) != size for v in there.values()):
        sizes = ", ".join(f"{n} {len(v):,}" for n, v in there.items())
        run.log.add("rows.lengths", f"per-request lists differ in length ({sizes}); not used")
        return
    outputs = sound(run, "output_lens", numbers(there["output_lens"], size))
    ttft = sound(run, "ttfts", numbers(there.get("ttfts"), size))
    inputs = sound(run, "input_lens", numbers(there.get("input_lens"), size))
    latency = sound(run, "latencies", numbers(there.get("latencies"), size))
    gaps = _gaps(run, there.get("itls"), size)
    if run.log.failed:
        return
    unsuccessful = _unsuccessful(run, there.get("errors"), outputs, ttft, gaps)
    keep = ~unsuccessful
    _agree(run, size, int(keep.sum()), outputs[keep], inputs[keep])
    if gaps is not None:
        gaps = [g for g, k in zip(gaps, keep, strict=True) if k]
    rows = Rows(ttft[keep], latency[keep], outputs[keep], inputs[keep], gaps)
    _seconds(run, rows)
    compute(run, rows)


def _gaps(run: Run, lists: list[Any] | array[float] | None, size: int) -> list[Array] | None:
    if lists is None:
        return None
    if not isinstance(lists, list) or not all(isinstance(g, list | array) for g in lists):
        run.log.add("number.type", "'itls' is not a list of lists; not used")
        return None
    if not any(len(g) for g in lists):
        return None if size == 0 else [np.empty(0) for _ in lists]
    found = [numbers(g, len(g)) for g in lists]
    pooled = sound(run, "itls", np.concatenate(found))
    ends = np.cumsum([len(g) for g in found])
    return np.split(pooled, ends[:-1])


def _unsuccessful(
    run: Run,
    errors: list[Any] | array[float] | None,
    outputs: Array,
    ttft: Array,
    gaps: list[Array] | None,
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Mark requests that failed: an error, or nothing received at all."""
    with np.errstate(all="ignore"):
        nothing = ~(outputs > 0) & ~(ttft > 0)
    if gaps is not None:
        nothing &= np.array([len(g) == 0 for g in gaps], dtype=bool)
    if errors is None:
        return nothing
    said = np.array([bool(e) for e in errors], dtype=bool)
    # A request may succeed and return nothing that the client reads; a failed one may give no
    # reason. The stated count tells which it is.
    if len(said) - int(said.sum()) == run.facts.get("completed"):
        return said
    return said | nothing


def _agree(run: Run, size: int, kept: int, outputs: Array, inputs: Array) -> None:
    facts = run.facts
    completed = facts.get("completed")
    if completed is not None and kept != completed:
        run.log.add(
            "rows.disagree",
            f"{completed:,} requests are said to have completed and {kept:,} of {size:,} rows did",
        )
    if kept != completed:
        facts["completed"] = kept
        facts["failed"] = size - kept
        facts["asked"] = max(size, facts.get("asked", 0))
    for name, values in (("output_tokens", outputs), ("input_tokens", inputs)):
        total = facts.get(name)
        if not np.isfinite(values).all() or not len(values):
            continue
        found = float(values.sum())
        if total is None:
            facts[name] = int(found)
        elif abs(found - total) > 0.005 * max(total, 1) and not run.log.has("tokens.client-server"):
            run.log.add(
                "rows.disagree",
                f"{name.replace('_', ' ')} are stated as {total:,} and the rows add up to "
                f"{found:,.0f}; the rows are used",
            )
            facts[name] = int(found)


def _seconds(run: Run, rows: Rows) -> None:
    """Take rows in milliseconds for what they are."""
    stated = run.get("ttft", "mean")
    seen = rows.ttft[np.isfinite(rows.ttft)]
    if not stated or not len(seen) or not 950 < float(seen.mean()) / stated < 1050:
        return
    run.log.add("units.mixed", "per-request times are in ms where s are due: converted")
    rows.ttft = rows.ttft / 1e3
    rows.latency = rows.latency / 1e3
    rows.gaps = None if rows.gaps is None else [g / 1e3 for g in rows.gaps]
