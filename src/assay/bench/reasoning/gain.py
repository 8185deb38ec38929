"""Gain: how much more often one arm is right, on the same questions.

Owns the paired difference in accuracy with its interval, McNemar's test, and what censored arms
still bound. Does not own pairing (``contrast``) or what the gain costs (``expense``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from assay.bench.reasoning import contrast
from assay.bench.reasoning.answers import Answer
from assay.bench.reasoning.contrast import Pairs, Settings
from assay.ledger import paired, stats
from assay.ledger.stats import Interval

__all__ = ["accuracy", "bounds"]


def accuracy(pairs: Pairs, settings: Settings) -> dict[str, Any] | None:
    """Return the paired difference in accuracy, on minus off.

    Parameters
    ----------
    pairs : Pairs
        Ungraded questions are left out.
    settings : Settings
        Its level is used.

    Returns
    -------
    dict or None
        Accuracies and difference as recorded [1]; the interval covers the censored answers being
        right as well as wrong; McNemar's exact p and Newcombe's interval as a check when every
        question was answered once. None when nothing is graded.
    """
    graded = [
        q
        for q in pairs.questions
        if all(a.correct is not None or a.censored for a in pairs.answers(q))
    ]
    if not graded:
        return None
    single = all(len(pairs.answers(q)) == 2 for q in graded)
    censored = sum(a.censored for q in graded for a in pairs.answers(q))
    # On and off taken as right: as recorded, and at both extremes.
    extremes = ((None, None), (False, True), (True, False)) if censored else ((None, None),)
    ends = [_difference(pairs, graded, single, settings, *extreme) for extreme in extremes]
    found: dict[str, Any] = {
        "questions": len(graded),
        "censored": censored,
        "on": _share(pairs.on, graded, None),
        "off": _share(pairs.off, graded, None),
        "difference": ends[0].value,
        "low": min(e.low for e in ends),
        "high": max(e.high for e in ends),
        "level": settings.level,
        "method": ends[0].method,
    }
    if single:
        table = _table(pairs, graded, None, None)
        found |= table | {"mcnemar_p": paired.mcnemar(table["only_on"], table["only_off"])}
        found["check"] = contrast.shown(
            paired.newcombe(
                table["both"],
                table["only_on"],
                table["only_off"],
                table["neither"],
                level=settings.level,
            )
        )
    return found


def _right(answer: Answer, taken: bool | None) -> bool:
    """Return the grade; a censored answer's is taken as given, unless that is None."""
    return taken if answer.censored and taken is not None else bool(answer.correct)


def _share(arm: Mapping[str, list[Answer]], questions: Sequence[str], taken: bool | None) -> float:
    shares = [sum(_right(a, taken) for a in arm[q]) / len(arm[q]) for q in questions]
    return math.fsum(shares) / len(shares)


def _table(
    pairs: Pairs, questions: Sequence[str], on: bool | None, off: bool | None
) -> dict[str, int]:
    """Count questions by which arms were right."""
    cells = [(_right(pairs.on[q][0], on), _right(pairs.off[q][0], off)) for q in questions]
    return {
        "both": cells.count((True, True)),
        "only_on": cells.count((True, False)),
        "only_off": cells.count((False, True)),
        "neither": cells.count((False, False)),
    }


def _difference(
    pairs: Pairs,
    questions: Sequence[str],
    single: bool,
    settings: Settings,
    on: bool | None,
    off: bool | None,
) -> Interval:
    """Return on minus off, with either arm's censored answers taken as right, wrong or graded."""
    if single:
        table = _table(pairs, questions, on, off)
        return paired.proportion_difference(
            table["only_on"], table["only_off"], len(questions), level=settings.level
        )
    gaps = [_share(pairs.on, [q], on) - _share(pairs.off, [q], off) for q in questions]
    if len(gaps) < 2:
        return Interval(gaps[0], -1.0, 1.0, settings.level, 1, "none: one question")
    return stats.block_mean(gaps, level=settings.level, scale="plain")


def bounds(pairs: Pairs) -> dict[str, Any]:
    """Return what censored arms still say: every censored answer right, and every one wrong.

    Parameters
    ----------
    pairs : Pairs
        The common questions, at least one.

    Returns
    -------
    dict
        Lowest and highest accuracy of either arm and of their difference [1], and the ratio of
        output tokens as a bound where answers of one arm were cut: they would have been longer.
    """
    ends: dict[str, list[float]] = {}
    cut: dict[str, bool] = {}
    for name, arm in (("on", pairs.on), ("off", pairs.off)):
        rows = [a for q in pairs.questions for a in arm[q]]
        known = all(a.correct is not None or a.censored for a in rows)
        ends[name] = [_share(arm, pairs.questions, t) if known else float(t) for t in (False, True)]
        # A text that only the grader could not read is whole.
        cut[name] = any(a.truncated or (a.censored and not a.unparsed) for a in rows)
    found: dict[str, Any] = {
        "accuracy_on": ends["on"],
        "accuracy_off": ends["off"],
        "accuracy_difference": [ends["on"][0] - ends["off"][1], ends["on"][1] - ends["off"][0]],
        "output_tokens_per_answer": None,
    }
    tokens = pairs.columns(lambda a: a.output_tokens)
    if tokens and sum(tokens[1]) and cut["on"] != cut["off"]:
        word = "at_least" if cut["on"] else "at_most"
        found["output_tokens_per_answer"] = {word: sum(tokens[0]) / sum(tokens[1])}
    return found
