"""Delays: when the first token, the first token of the answer, and the last one came.

Owns the means of these times by arm, over server starts, and their ratios. Does not own the clock
(``asking``) or rates (``contrast``).

With reasoning on, the first token that comes is one of the reasoning. A reader who waits for the
answer waits for its own first token, and these two times are the same only with reasoning off.
All are what one client sees that keeps a fixed number of questions in flight: they hold for that
load, and are no limit of the server.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay.bench import reasoning
from assay.bench.exam import Held
from assay.bench.reasoning.answers import Answer
from assay.ledger import stats
from assay.ledger.stats import Interval

__all__ = ["Delay", "delays"]

_TIMES: dict[str, Callable[[Answer], float | None]] = {
    "first token": lambda answer: answer.ttft,
    "first token of the answer": lambda answer: answer.ttfa,
    "last token": lambda answer: answer.latency,
}


@dataclass(frozen=True, slots=True)
class Delay:
    """How long one kind of token takes to come.

    Parameters
    ----------
    name : str
        Which token.
    on, off : Interval or None
        Mean over an arm's requests with its interval over server starts [s]; None where no start
        has any, and without ends where there is one start.
    ratio : Interval or None
        On over off, over the starts both share [1].
    timed : tuple of int
        Answers that have the time, on and off [1].
    asked : tuple of int
        All answers, on and off [1].
    """

    name: str
    on: Interval | None
    off: Interval | None
    ratio: Interval | None
    timed: tuple[int, int]
    asked: tuple[int, int]


def delays(held: Held) -> list[Delay]:
    """Return the three times of an exam, in the order in which they come.

    Parameters
    ----------
    held : Held
        The exam.

    Returns
    -------
    list of Delay
        Intervals hold at 90 %. An answer that never began has no time of its first token; how many
        have one says whether two means speak of the same answers.
    """
    arms = reasoning.load(held.file)
    return [_delay(name, part, *arms) for name, part in _TIMES.items()]


def _delay(
    name: str,
    part: Callable[[Answer], float | None],
    on: Sequence[Answer],
    off: Sequence[Answer],
) -> Delay:
    known = [[(a.block, t) for a in arm if (t := part(a)) is not None] for arm in (on, off)]
    means = [_means(pairs) for pairs in known]
    shared = sorted(means[0].keys() & means[1].keys())
    columns = [[mean[block] for block in shared] for mean in means]
    return Delay(
        name=name,
        on=_over_starts(list(means[0].values())),
        off=_over_starts(list(means[1].values())),
        ratio=stats.log_ratio(*columns, level=stats.LEVEL) if len(shared) > 1 else None,
        timed=(len(known[0]), len(known[1])),
        asked=(len(on), len(off)),
    )


def _means(pairs: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Return the mean time of every server start; a time of 0 has no logarithm and is left out."""
    times: dict[str, list[float]] = {}
    for block, time in pairs:
        times.setdefault(block, []).append(time)
    return {
        block: mean for block, each in times.items() if (mean := math.fsum(each) / len(each)) > 0
    }


def _over_starts(means: Sequence[float]) -> Interval | None:
    if len(means) > 1:
        return stats.block_mean(means, level=stats.LEVEL)
    if not means:
        return None
    return Interval(means[0], 0.0, math.inf, stats.LEVEL, 1, "none: one server start")
