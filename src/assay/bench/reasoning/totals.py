"""Totals: what one arm of a reasoning experiment adds up to.

Owns counts of records, tokens by channel and by body, accuracy as recorded and medians of times.
Does not own whether the arm is what it is called (``arms``) or intervals (``contrast``).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from assay.bench.reasoning.answers import Answer

__all__ = ["summary"]


def summary(answers: Sequence[Answer]) -> dict[str, Any]:
    """Return the totals of one arm.

    Parameters
    ----------
    answers : sequence of Answer
        Its records.

    Returns
    -------
    dict
        Counts of records; tokens by channel and by body [tok], ``"unknown"`` unless every record
        has them; accuracy as recorded [1]; medians of times [s].
    """
    graded = [a.correct for a in answers if a.correct is not None]
    return {
        "records": len(answers),
        "questions": len({a.question for a in answers}),
        "server_starts": len({a.block for a in answers if a.block}) or "unknown",
        "truncated": sum(a.truncated for a in answers),
        "empty": sum(a.empty for a in answers),
        "fallback": sum(a.fallback for a in answers),
        "failed": sum(a.failed for a in answers),
        "reasoned": sum(a.reasoned is True for a in answers),
        "graded": len(graded),
        "correct": sum(graded) if graded else "unknown",
        "accuracy_as_recorded": sum(graded) / len(graded) if graded else "unknown",
        "budget": sorted({a.budget for a in answers if a.budget is not None}),
        "prompt_tokens": _total(answers, lambda a: a.prompt_tokens),
        "output_tokens": _total(answers, lambda a: a.output_tokens),
        "reasoning_tokens": _total(answers, lambda a: a.reasoning_tokens),
        "answer_tokens": _total(answers, lambda a: a.answer_tokens),
        "reasoning_body_tokens": _total(answers, lambda a: a.reasoning_body_tokens),
        "answer_body_tokens": _total(answers, lambda a: a.answer_body_tokens),
        "reasoning_characters": _total(answers, lambda a: _length(a.reasoning)),
        "answer_characters": _total(answers, lambda a: _length(a.text)),
        "median_ttft_s": _median(answers, lambda a: a.ttft),
        "median_ttfa_s": _median(answers, lambda a: a.ttfa),
        "median_latency_s": _median(answers, lambda a: a.latency),
    }


def _length(text: str | None) -> int | None:
    return None if text is None else len(text)


def _total(answers: Sequence[Answer], part: Callable[[Answer], int | None]) -> int | str:
    values = [part(a) for a in answers]
    known = [v for v in values if v is not None]
    return sum(known) if known and len(known) == len(values) else "unknown"


def _median(answers: Sequence[Answer], part: Callable[[Answer], float | None]) -> float | str:
    values = [v for a in answers if (v := part(a)) is not None]
    return statistics.median(values) if values else "unknown"
