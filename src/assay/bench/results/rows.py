"""Rows: per-request data of one run, and the figures that follow from it.

Owns the definitions of `vllm bench serve` applied to rows: only completed requests count, one
output token has no TPOT, and a gap is a token's only where chunks are tokens. Does not own how a
format spells its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.bench.results.fields import DUST, LARGEST
from assay.bench.results.table import Run

__all__ = ["BUNDLE", "Array", "Rows", "compute", "numbers", "sound"]

Array = npt.NDArray[np.float64]
#: Statistics computed from rows, as percentiles.
_PERCENTILES = (50, 90, 95, 99)
#: Tokens a chunk from which gaps are not token gaps [tok]. A detokeniser that holds back half a
#: character now and then stays below it.
BUNDLE = 1.1
#: Share of requests whose first gap must be their TTFT [1].
_MOST = 0.5
#: A request of so many tokens [tok] that shows most of its time before the first chunk, and then
#: tokens faster than so many seconds each, was not streamed token by token from the start.
_MANY, _FAST, _EARLY = 32, 2.5e-3, 0.8


@dataclass(slots=True)
class Rows:
    """Completed requests; NaN where a value is missing.

    Parameters
    ----------
    ttft : array
        Time to the first token [s].
    latency : array
        Whole latency [s].
    outputs : array
        Output tokens [tok].
    inputs : array
        Input tokens [tok].
    gaps : list of array, optional
        Gaps between chunks, request by request [s].
    """

    ttft: Array
    latency: Array
    outputs: Array
    inputs: Array
    gaps: list[Array] | None = None

    def __len__(self) -> int:
        return len(self.outputs)


def numbers(values: Sequence[Any] | None, size: int) -> Array:
    """Return a list as numbers; what is none, or a missing list, is NaN.

    Examples
    --------
    >>> numbers([1, None, "2", True], 4)
    array([ 1., nan, nan, nan])
    """
    if values is None:
        return np.full(size, np.nan)
    try:
        # A packed array has no other kinds in it, and copies at once.
        if not isinstance(values, list):
            return np.array(values, dtype=np.float64)
        return np.array(
            [float(v) if type(v) in (int, float) else np.nan for v in values], dtype=np.float64
        )
    except OverflowError:
        return np.full(len(values), np.nan)


def sound(run: Run, name: str, values: Array) -> Array:
    """Return a list's numbers; a negative or absurd one makes the run unusable.

    Parameters
    ----------
    run : Run
        Where the problem goes.
    name : str
        The list's name in the file.
    values : array
        As `numbers` returns them.
    """
    with np.errstate(all="ignore"):
        if (values < -DUST).any():
            run.log.add("number.negative", f"'{name}' has a value below zero")
        if (np.abs(values) > LARGEST).any():
            run.log.add("number.huge", f"'{name}' has a value beyond {LARGEST:.0e}; not used")
            values = np.where(np.abs(values) > LARGEST, np.nan, values)
    if np.isinf(values).any():
        run.log.add("number.not-finite", f"'{name}' has an infinite value; not used")
        values = np.where(np.isinf(values), np.nan, values)
    return np.where(values < 0, 0.0, values)


def compute(run: Run, rows: Rows) -> None:
    """Put the figures that rows give into a run, over those it states.

    Parameters
    ----------
    run : Run
        Its stated figures are replaced; contradictions become problems.
    rows : Rows
        Completed requests.
    """
    n = len(rows)
    if n == 0:
        return
    ttft = _ttft(run, rows)
    itl_ok = _gaps(run, rows)
    if rows.gaps is not None:
        spans = np.array([float(g.sum()) for g in rows.gaps])
        rows.latency = np.where(np.isnan(rows.latency), ttft + spans, rows.latency)
    many = rows.outputs > 1
    decode = rows.latency - ttft
    with np.errstate(all="ignore"):
        tpot = np.where(many & (decode > 0), decode / (rows.outputs - 1), np.nan)
    if _hidden(rows, ttft, tpot):
        run.log.add(
            "ttft.hidden-tokens",
            "most of the time passes before the first chunk, and then tokens come faster than they "
            "are made: the client did not see the tokens before (reasoning?); TTFT and TPOT are "
            "not used",
        )
        for metric in ("ttft", "tpot", "itl", "chunk_gap"):
            run.drop(metric)
    else:
        _put(run, "ttft", ttft)
        _put(run, "tpot", tpot)
    _put(run, "e2el", rows.latency)
    if rows.gaps is not None and not run.log.has("ttft.hidden-tokens"):
        pooled = np.concatenate(rows.gaps) if rows.gaps else np.empty(0)
        run.drop("itl")
        _put(run, "itl" if itl_ok else "chunk_gap", pooled, samples=n)
    if not many.any() and np.isfinite(rows.outputs).all():
        run.drop("tpot")
        run.drop("itl")


def _ttft(run: Run, rows: Rows) -> Array:
    zero = rows.ttft == 0
    if zero.any():
        run.log.add(
            "ttft.zero",
            f"{int(zero.sum()):,} of {len(rows):,} completed requests have a first token at 0 s, "
            "which is a missing value: left out",
        )
    return np.where(zero, np.nan, rows.ttft)


def _gaps(run: Run, rows: Rows) -> bool:
    """Mend the gaps between chunks; say whether they are gaps between tokens."""
    if rows.gaps is None:
        return True
    sizes = np.array([len(g) for g in rows.gaps], dtype=np.float64)
    first = np.array([g[0] if len(g) else np.nan for g in rows.gaps])
    with np.errstate(all="ignore"):
        same = np.isclose(first, rows.ttft, rtol=1e-6, atol=0) & (sizes >= rows.outputs)
    had = sizes > 0
    if had.any() and same.sum() > _MOST * had.sum():
        run.log.add(
            "itl.contains-ttft",
            f"in {int(same.sum()):,} of {len(rows):,} requests there are as many gaps as tokens "
            "and the first is the TTFT; it is left out of ITL",
        )
        rows.gaps = [g[1:] if hit else g for g, hit in zip(rows.gaps, same, strict=True)]
        sizes = sizes - same
    tokens = float(np.nansum(rows.outputs[had])) if had.any() else 0.0
    chunks = float((sizes + 1)[had].sum()) if had.any() else 0.0
    if chunks and tokens / chunks >= BUNDLE:
        run.log.add(
            "itl.chunks",
            f"{tokens / chunks:.3g} tokens arrive in one chunk: gaps are per chunk, not per token, "
            "and TPOT is the figure per token",
        )
        return False
    return True


def _hidden(rows: Rows, ttft: Array, tpot: Array) -> bool:
    with np.errstate(all="ignore"):
        hit = (rows.outputs >= _MANY) & (ttft / rows.latency >= _EARLY) & (tpot < _FAST)
    if rows.gaps is not None:
        # As many chunks as tokens: they really came one by one.
        hit &= np.array([len(g) for g in rows.gaps]) < 0.9 * (rows.outputs - 1)
    return bool(hit.sum() > _MOST * len(rows))


def _put(run: Run, metric: str, values: Array, samples: int | None = None) -> None:
    values = values[np.isfinite(values)]
    if not len(values):
        return
    n = len(values) if samples is None else samples
    stated = run.get(metric, "mean")
    found: dict[str, float] = {
        "mean": float(values.mean()),
        "std": float(values.std()),
        "min": float(values.min()),
        "max": float(values.max()),
    }
    for percent, value in zip(_PERCENTILES, np.percentile(values, _PERCENTILES), strict=True):
        found[f"p{percent}"] = float(value)
    if stated and abs(found["mean"] / stated - 1) > 0.01:
        run.log.add(
            "rows.disagree",
            f"the stated mean of {metric.upper()} differs from that of the completed requests; "
            "the requests are used",
        )
    run.drop(metric)
    for statistic, value in found.items():
        run.put(metric, statistic, value, samples=n, recomputed=True)
