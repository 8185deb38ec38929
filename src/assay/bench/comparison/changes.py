"""Changes: what became of each figure, with its interval.

Owns which figures of two sides may be set beside each other, their ratio, and whether it is a
change. Does not own whether the sides are comparable (``comparison_conditions``) or what all
changes together show (``comparison_verdict``).

A run is one server start. With at least five on either side an interval decides; with fewer only
a direction is said, and only beyond what runs vary by anyway. A percentile that the sample does
not certify never makes a side better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from assay.bench.results.metrics import METRICS
from assay.bench.results.table import Figure, Run
from assay.ledger import stats

__all__ = ["BAND", "NOISE", "Change", "changes", "one_sided"]

#: Two sides are the same when the interval of their ratio lies within 5 % either way [1]: half of
#: what this project allows an interval of its own to span.
BAND = 1.05
#: What a single run may differ by for no reason [1]: two sides, each known to 5 %.
NOISE = 0.10
#: Figures this small or large have no ratio worth a number, in any base unit.
_LEAST = 1e-12
#: Metrics with a say; a later one of a group is left out when an earlier one is there.
_VOTERS = (
    ("ttft",),
    ("tpot", "itl", "latency_per_token", "generation_time"),
    ("e2el",),
    ("output_rate", "total_rate", "request_rate"),
    ("decode_rate",),
    ("prefill_rate", "input_rate"),
    ("request_output_rate", "request_decode_rate"),
    ("goodput",),
)


@dataclass(frozen=True, slots=True)
class Change:
    """One figure, before and after.

    Parameters
    ----------
    metric, statistic : str
        As in ``results.table``.
    ratio : float
        After over before [1].
    low, high : float, optional
        Its 90 % interval, when both sides have repeats [1].
    before, after : float, optional
        In base units; None when the sample does not certify the statistic.
    says : str
        ``better``, ``worse``, ``same`` or ``unclear``.
    votes : bool
        Whether the verdict hears it.
    """

    metric: str
    statistic: str
    ratio: float
    low: float | None
    high: float | None
    before: float | None
    after: float | None
    says: str
    votes: bool

    @property
    def certified(self) -> bool:
        """Whether both samples certify the statistic."""
        return self.before is not None

    @property
    def name(self) -> str:
        """The figure in words."""
        word = self.metric.upper() if len(self.metric) <= 4 else self.metric.replace("_", " ")
        return word if self.statistic == "rate" else f"{self.statistic} {word}"

    @property
    def percent(self) -> str:
        """The change in words."""
        if self.ratio >= 2:
            return f"{self.ratio:.2f} times"
        return f"{(self.ratio - 1) * 100:+.1f} %"

    def as_dict(self) -> dict[str, Any]:
        """Return the change as JSON has it."""
        metric = METRICS[self.metric]
        return {
            "metric": self.metric,
            "statistic": self.statistic,
            "unit": metric.unit,
            "counting": metric.counting or None,
            "better": metric.better or None,
            "before": self.before,
            "after": self.after,
            "ratio": self.ratio,
            "change": self.ratio - 1,
            "low": self.low,
            "high": self.high,
            "certified": self.certified,
            "says": self.says,
            "votes": self.votes,
        }


def changes(before: Sequence[Run], after: Sequence[Run]) -> list[Change]:
    """Return the changes of every figure that all runs of both sides have.

    Parameters
    ----------
    before, after : sequence of Run
        Usable runs; each is one server start.
    """
    voting = _voting(before, after)
    found: list[Change] = []
    level = 1 - (1 - stats.LEVEL) / max(1, len(voting))
    for key in before[0].figures:
        metric, statistic, per = key
        if per or statistic in ("std", "min", "max") or not METRICS[metric].better:
            continue
        pairs = [[run.figures.get(key) for run in runs] for runs in (before, after)]
        if any(f is None or not _LEAST < f.value < 1 / _LEAST for side in pairs for f in side):
            continue
        sides = [[f for f in side if f is not None] for side in pairs]
        found.append(_change(metric, statistic, sides, voting, level))
    return found


def _voting(before: Sequence[Run], after: Sequence[Run]) -> set[str]:
    """Return the metrics that count, one of each group, which all runs have."""
    runs = (*before, *after)
    chosen = set()
    for group in _VOTERS:
        for metric in group:
            if all(r.get(metric, "mean") or r.get(metric) for r in runs):
                chosen.add(metric)
                break
    return chosen


def _change(
    metric: str, statistic: str, sides: list[list[Figure]], voting: set[str], level: float
) -> Change:
    one, two = ([f.value for f in side] for side in sides)
    centres = [math.exp(sum(map(math.log, v)) / len(v)) for v in (one, two)]
    ratio = centres[1] / centres[0]
    low = high = None
    sure = all(f.certified for side in sides for f in side)
    says = "unclear"
    upward = METRICS[metric].better == "higher"
    if min(len(one), len(two)) >= 2:
        shown = stats.log_ratio(two, one, paired=False)
        low, high = shown.low, shown.high
    if min(len(one), len(two)) >= stats.BLOCKS and low is not None and high is not None:
        strict = stats.log_ratio(two, one, paired=False, level=level)
        if low >= 1 / BAND and high <= BAND:
            says = "same"
        elif strict.low > 1 or strict.high < 1:
            says = "better" if (strict.low > 1) == upward else "worse"
    elif abs(math.log(ratio)) > math.log1p(NOISE) or abs(ratio - 1) > NOISE:
        apart = min(two) > max(one) or max(two) < min(one)
        says = ("better" if (ratio > 1) == upward else "worse") if apart else "unclear"
    before, after = (centres[0], centres[1]) if sure else (None, None)
    votes = sure and metric in voting and statistic in ("mean", "rate", "p50", "p90", "p95", "p99")
    return Change(metric, statistic, ratio, low, high, before, after, says, votes)


def one_sided(before: Sequence[Run], after: Sequence[Run]) -> list[str]:
    """Name the metrics that have a say and are on one side only.

    Parameters
    ----------
    before, after : sequence of Run
        Usable runs.
    """
    heard = [metric for group in _VOTERS for metric in group]
    sides = [
        {m for m in heard if all(r.get(m, "mean") or r.get(m) for r in runs)}
        for runs in (before, after)
    ]
    one, two = sides
    found = []
    for word, own, other in (("before", one, two), ("after", two, one)):
        alone = [
            m.upper() if len(m) <= 4 else m.replace("_", " ") for m in heard if m in own - other
        ]
        if alone:
            found.append(f"only {word} has {', '.join(alone)}: not compared")
    return found
