"""Censoring: answers whose grade is not the model's.

Owns counting those that were cut, came back empty or unreadable, failed, or fell back to another
mode. Up to ``faults.TOLERATED`` of an arm they widen the interval; beyond it the arm only bounds
the truth. Does not own the bounds (``gain``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from assay.bench.reasoning import faults
from assay.bench.reasoning.answers import Answer
from assay.bench.reasoning.faults import MOSTLY, Problem

__all__ = ["listed", "problems"]


def problems(arm: str, answers: Sequence[Answer]) -> Iterable[Problem]:
    """Yield what keeps answers of an arm from being the model's.

    Parameters
    ----------
    arm : str
        ``on`` or ``off``.
    answers : sequence of Answer
        Its records, at least one.
    """
    n = len(answers)
    cut = [a for a in answers if a.truncated]
    if cut:
        budgets = sorted({a.budget for a in cut if a.budget is not None})
        at = f" at {listed(budgets)} tokens" if budgets else ""
        yield Problem(
            "truncation",
            faults.graded(len(cut) / n),
            arm,
            f"{faults.of(len(cut), n)} answers of the {arm} arm are cut{at}: their grades are not "
            "the model's, and their token counts are lower bounds",
        )
    empty = [a for a in answers if a.empty]
    if empty:
        limits = sorted({a.thinking_budget for a in empty if a.thinking_budget is not None})
        why = f" under a thinking budget of {listed(limits)} tokens" if limits else ""
        yield Problem(
            "empty-answers",
            faults.graded(len(empty) / n),
            arm,
            f"{faults.of(len(empty), n)} answers of the {arm} arm are empty{why} "
            f"({sum(a.truncated for a in empty)} of them cut): no answer is not a wrong answer",
        )
    unparsed = sum(a.unparsed for a in answers)
    if unparsed:
        yield Problem(
            "unparsed-answers",
            faults.graded(unparsed / n),
            arm,
            f"{faults.of(unparsed, n)} answers of the {arm} arm have a text in which the grader "
            "found no answer: that may be the model or the grader",
        )
    failed = sum(a.failed for a in answers)
    if failed:
        yield Problem(
            "failed-requests",
            faults.graded(failed / n),
            arm,
            f"{faults.of(failed, n)} requests of the {arm} arm failed",
        )
    fallen = sum(a.fallback for a in answers)
    if fallen and arm == "on" and fallen / n >= MOSTLY:
        yield Problem(
            "silent-fallback",
            "error",
            arm,
            f"{faults.of(fallen, n)} requests fell back: the on arm was not tested",
        )
    elif fallen:
        yield Problem(
            "partial-fallback",
            faults.graded(fallen / n),
            arm,
            f"{faults.of(fallen, n)} requests of the {arm} arm fell back to another mode",
        )


def listed(values: Sequence[int]) -> str:
    """Return numbers of tokens in words."""
    return " or ".join(f"{value:,}" for value in values)
