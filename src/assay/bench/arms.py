"""Arms: whether the two arms of a reasoning experiment are what they are called.

Owns the checks before any comparison and their permanent rule names, and the totals of one arm.
Does not own reading records (``answers``) or intervals and the verdict (``reasoning``).

A check that fails as an *error* takes the verdict away. Answers that were cut, came back empty,
failed or fell back to another mode are **censored**: how the model would have done is not known.
Up to ``TOLERATED`` of an arm they widen the interval; beyond it the arm only bounds the truth.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from assay.bench.answers import Answer

__all__ = ["OUTCOMES", "TOLERATED", "Problem", "problems", "summary", "valid"]

# Share of an arm that may be censored, or of the other mode, before it is no longer that arm.
TOLERATED = 0.05
# Share from which an arm was not tested at all.
_MOSTLY = 0.5
# An off arm is uneven when answers this many times longer than bare ones hide their tokens. The
# reported case had 96 tokens against 4.
_UNEVEN = 8

Severity = Literal["error", "warning", "note"]

# What an error of each rule makes of the comparison, the gravest first.
OUTCOMES = {
    "flag-ignored": "not-exercised",
    "silent-fallback": "not-exercised",
    "off-arm-reasons": "not-comparable",
    "different-setup": "not-comparable",
    "different-questions": "not-comparable",
    "duplicate-records": "not-comparable",
    "truncation": "censored",
    "unequal-budgets": "censored",
    "empty-answers": "censored",
    "partial-fallback": "censored",
    "failed-requests": "censored",
    "one-arm": "insufficient",
}


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with an arm, or with the pair.

    Parameters
    ----------
    rule : str
        Permanent name.
    severity : "error", "warning" or "note"
        An error takes the verdict away; a note is mended on reading.
    arm : str
        ``on``, ``off`` or ``both``.
    message : str
        One sentence with its numbers.
    """

    rule: str
    severity: Severity
    arm: str
    message: str


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.1%})"


def problems(on: Sequence[Answer], off: Sequence[Answer]) -> list[Problem]:
    """Check both arms, and whether they differ in reasoning only.

    Parameters
    ----------
    on, off : sequence of Answer
        Records of the arms; one of them may be empty.

    Returns
    -------
    list of Problem
        Errors first.
    """
    found: list[Problem] = []
    for arm, answers in (("on", on), ("off", off)):
        if answers:
            found += _censoring(arm, answers)
            found += _reasoned_off(answers) if arm == "off" else _reasoned_on(answers)
            found += _bookkeeping(arm, answers)
        else:
            found.append(Problem("one-arm", "error", arm, f"there is no {arm} arm to compare with"))
    if on and off:
        found += _between(on, off)
    severities = ("error", "warning", "note")
    outcomes = list(OUTCOMES)  # the rule that decides comes first
    return sorted(
        found,
        key=lambda p: (
            severities.index(p.severity),
            outcomes.index(p.rule) if p.rule in outcomes else len(outcomes),
        ),
    )


def valid(arm: str, found: Iterable[Problem]) -> bool:
    """Say whether an arm has no error of its own."""
    return not any(p.arm == arm and p.severity == "error" for p in found)


def _graded(share: float) -> Severity:
    return "error" if share > TOLERATED else "warning"


def _censoring(arm: str, answers: Sequence[Answer]) -> Iterable[Problem]:
    n = len(answers)
    cut = [a for a in answers if a.truncated]
    if cut:
        budgets = sorted({a.budget for a in cut if a.budget is not None})
        at = f" at {_listed(budgets)} tokens" if budgets else ""
        yield Problem(
            "truncation",
            _graded(len(cut) / n),
            arm,
            f"{_of(len(cut), n)} answers of the {arm} arm are cut{at}: their grades are not the "
            "model's, and their token counts are lower bounds",
        )
    empty = [a for a in answers if a.empty]
    if empty:
        limits = sorted({a.thinking_budget for a in empty if a.thinking_budget is not None})
        why = f" under a thinking budget of {_listed(limits)} tokens" if limits else ""
        yield Problem(
            "empty-answers",
            _graded(len(empty) / n),
            arm,
            f"{_of(len(empty), n)} answers of the {arm} arm are empty{why} "
            f"({sum(a.truncated for a in empty)} of them cut): no answer is not a wrong answer",
        )
    failed = sum(a.failed for a in answers)
    if failed:
        yield Problem(
            "failed-requests",
            _graded(failed / n),
            arm,
            f"{_of(failed, n)} requests of the {arm} arm failed",
        )
    fallen = sum(a.fallback for a in answers)
    if fallen and arm == "on" and fallen / n >= _MOSTLY:
        yield Problem(
            "silent-fallback",
            "error",
            arm,
            f"{_of(fallen, n)} requests fell back: the on arm was not tested",
        )
    elif fallen:
        yield Problem(
            "partial-fallback",
            _graded(fallen / n),
            arm,
            f"{_of(fallen, n)} requests of the {arm} arm fell back to another mode",
        )


def _listed(values: Sequence[int]) -> str:
    return " or ".join(f"{value:,}" for value in values)


def _reasoned_off(answers: Sequence[Answer]) -> Iterable[Problem]:
    plain = [a.reasoned is True for a in answers]
    uneven = _uneven(answers)
    count = sum(p or u for p, u in zip(plain, uneven, strict=True))
    if not count:
        return
    tokens = [a.output_tokens for a in answers if a.output_tokens is not None]
    span = f"; its answers take {min(tokens):,} to {max(tokens):,} tokens" if tokens else ""
    yield Problem(
        "off-arm-reasons",
        _graded(count / len(answers)),
        "off",
        f"{_of(count, len(answers))} answers of the off arm still reason{span}",
    )


def _uneven(answers: Sequence[Answer]) -> list[bool]:
    """Mark answers far longer than bare ones whose text does not show their tokens."""
    bare = [
        a.output_tokens
        for a in answers
        if a.answer and a.output_tokens and a.output_tokens <= len(a.answer.encode()) + 8
    ]
    if not bare:
        return [False] * len(answers)
    least = _UNEVEN * max(statistics.median(bare), 8)
    return [a.unaccounted and (a.output_tokens or 0) >= least for a in answers]


def _reasoned_on(answers: Sequence[Answer]) -> Iterable[Problem]:
    own = [a for a in answers if not (a.fallback or a.failed)]
    if not own:
        return
    without = sum(a.reasoned is False for a in own)
    if without / len(own) > _MOSTLY:
        yield Problem(
            "flag-ignored",
            "error",
            "on",
            f"{_of(without, len(own))} answers of the on arm do not reason: the switch had no "
            "effect",
        )
    elif without / len(own) > TOLERATED:
        yield Problem(
            "mixed-modes",
            "warning",
            "on",
            f"{_of(without, len(own))} answers of the on arm do not reason",
        )
    if all(a.reasoned is None for a in own):
        yield Problem(
            "reasoning-unseen",
            "warning",
            "on",
            "neither texts nor token counts show that the on arm reasoned",
        )


_MARKS: dict[str, tuple[Severity, str]] = {
    "usage-contradicts-text": (
        "warning",
        "report 0 tokens although the text is there: the count is unknown, not 0",
    ),
    "impossible-usage": (
        "warning",
        "report more reasoning tokens than output tokens: both parts are unknown",
    ),
    "fields-differ": (
        "warning",
        "have different texts under two names for reasoning: both are kept",
    ),
    "unclosed-tag": ("warning", "open a reasoning tag and never close it"),
    "answer-misplaced": (
        "note",
        "have their answer in the reasoning field: it is read as the answer",
    ),
    "doubled-fields": ("note", "have the same text under two names: it is counted once"),
    "inline-tags": ("note", "have their reasoning between tags in the answer: it is taken out"),
    "empty-tags": ("note", "have reasoning tags with nothing inside: that is no reasoning"),
}


def _bookkeeping(arm: str, answers: Sequence[Answer]) -> Iterable[Problem]:
    n = len(answers)
    for mark, (severity, words) in _MARKS.items():
        count = sum(mark in a.marks for a in answers)
        if count:
            yield Problem(mark, severity, arm, f"{_of(count, n)} records of the {arm} arm {words}")
    keys = Counter((a.question, a.repeat) for a in answers)
    twice = [question for (question, _), count in keys.items() if count > 1]
    if twice:
        yield Problem(
            "duplicate-records",
            "error",
            arm,
            f"question '{twice[0][:40]}' and {len(twice) - 1} others come more than once in the "
            f"{arm} arm; tell repeats apart by a field 'repeat'",
        )
    graded = sum(a.correct is not None for a in answers)
    if graded == 0:
        yield Problem("no-grades", "warning", arm, f"no answer of the {arm} arm is graded")
    elif graded < n:
        yield Problem(
            "some-grades",
            "warning",
            arm,
            f"{_of(n - graded, n)} answers of the {arm} arm are not graded",
        )


def _between(on: Sequence[Answer], off: Sequence[Answer]) -> Iterable[Problem]:
    asked_on, asked_off = {a.question for a in on}, {a.question for a in off}
    common = asked_on & asked_off
    if not common:
        yield Problem("different-questions", "error", "both", "the arms have no question in common")
    elif asked_on != asked_off:
        yield Problem(
            "unpaired-questions",
            "warning",
            "both",
            f"{len(common)} questions are in both arms, {len(asked_on - common)} only in the on "
            f"arm and {len(asked_off - common)} only in the off arm; the common ones are compared",
        )
    right = {a.question: a.reference for a in off if a.reference is not None}
    changed = sum(a.reference not in (None, right.get(a.question, a.reference)) for a in on)
    if changed:
        yield Problem(
            "different-questions",
            "error",
            "both",
            f"{changed} questions have another right answer in either arm",
        )
    for name in sorted({key for a in (*on, *off) for key in a.setup}):
        values = [{str(a.setup[name]) for a in arm if name in a.setup} for arm in (on, off)]
        if all(values) and values[0] != values[1]:
            words = [", ".join(sorted(v))[:60] for v in values]
            yield Problem(
                "different-setup",
                "error",
                "both",
                f"{name} is {words[0]} in the on arm and {words[1]} in the off arm",
            )
    budgets = [{a.budget for a in arm if a.budget is not None} for arm in (on, off)]
    if all(budgets) and budgets[0] != budgets[1]:
        binding = any(a.truncated for a in (*on, *off))
        yield Problem(
            "unequal-budgets",
            "error" if binding else "warning",
            "both",
            f"up to {_listed(sorted(budgets[0]))} tokens are allowed in the on arm and "
            f"{_listed(sorted(budgets[1]))} in the off arm"
            + ("" if binding else "; no answer reached either"),
        )


# -- totals ---------------------------------------------------------------------------------------


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
