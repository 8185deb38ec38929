"""Verdict: what all changes together show, and no more.

Owns the word and its reasons. Does not own the changes (``comparison_changes``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from assay.bench.comparison.changes import BAND, NOISE, Change
from assay.bench.results.metrics import METRICS
from assay.ledger import stats

__all__ = ["Verdict", "decide"]

Verdict = Literal[
    "better",
    "worse",
    "mixed",
    "no-difference",
    "insufficient",
    "not-comparable",
    "not-exercised",
]


def decide(changes: Sequence[Change], runs: tuple[int, int]) -> tuple[Verdict, list[str]]:
    """Return the verdict on comparable sides, and why.

    Parameters
    ----------
    changes : sequence of Change
        Of both sides.
    runs : tuple of int
        How many runs either side has.
    """
    heard = [c for c in changes if c.votes]
    if not heard:
        return "insufficient", ["no figure is on both sides and certified"]
    better = [c for c in heard if c.says == "better"]
    worse = [c for c in heard if c.says == "worse"]
    blocks = min(runs) >= stats.BLOCKS
    reasons = _average_only(changes)
    # What is not certified has no say, but a tail that goes the other way is not passed over.
    tails = {c.says for c in changes if not c.certified} if not blocks else set()
    reasons += [f"worse: {_listed(worse)}"] if worse else []
    reasons += [f"better: {_listed(better)}"] if better else []
    verdict: Verdict
    if (better and (worse or "worse" in tails)) or (worse and "better" in tails):
        verdict = "mixed"
    elif better or worse:
        verdict = "better" if better else "worse"
    elif blocks and all(c.says == "same" for c in heard):
        verdict = "no-difference"
        reasons.append(f"every interval lies within {(BAND - 1) * 100:.0f} % of no change")
    else:
        verdict = "insufficient"
        beyond = "the intervals" if blocks else f"{NOISE * 100:.0f} %, what single runs vary by"
        reasons.append(f"no certified figure changes beyond {beyond}")
    if not blocks:
        each = "one run" if min(runs) == 1 else f"{min(runs)} runs"
        reasons.append(
            f"{each} on a side: a direction only, with no interval that decides; "
            f"{stats.BLOCKS} server starts a side are needed"
        )
    short = [c for c in changes if not c.certified]
    if short:
        reasons.append(f"not certified, too few requests: {_listed(short)}")
    return verdict, reasons


def _average_only(changes: Sequence[Change]) -> list[str]:
    """Name metrics whose mean gets better while a tail does not."""
    found = []
    for metric in dict.fromkeys(c.metric for c in changes):
        own = {c.statistic: c for c in changes if c.metric == metric}
        mean, tail = own.get("mean"), own.get("p99") or own.get("p95") or own.get("p90")
        if mean is None or tail is None or mean.says != "better":
            continue
        upward = METRICS[metric].better == "higher"
        if (tail.ratio > 1) != upward:
            certain = "" if tail.certified else ", too few requests to certify it"
            found.append(
                f"{mean.name.removeprefix('mean ')} better on average only: {mean.name} "
                f"{mean.percent}, {tail.name} {tail.percent}{certain}"
            )
    return found


def _listed(changes: Sequence[Change]) -> str:
    return ", ".join(f"{c.name} {c.percent}" for c in changes)
