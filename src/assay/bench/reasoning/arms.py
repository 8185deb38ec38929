"""Arms: whether the two arms of a reasoning experiment are what they are called.

Owns the checks before any comparison: whether either arm reasons as it should, its bookkeeping, and
whether both arms differ in reasoning only. Does not own the rules (``faults``), censored answers
(``censoring``), totals (``totals``) or the verdict (``reasoning``).

A check that fails as an *error* takes the verdict away. How the model would have answered where it
was kept from answering is not known: such answers are **censored**.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from assay.bench.reasoning import censoring, faults
from assay.bench.reasoning.answers import Answer
from assay.bench.reasoning.faults import MOSTLY, OUTCOMES, TOLERATED, Problem, Severity

__all__ = ["OUTCOMES", "TOLERATED", "Problem", "problems", "valid"]

# An off arm is uneven when answers this many times longer than bare ones hide their tokens. The
# reported case had 96 tokens against 4.
_UNEVEN = 8


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
            found += censoring.problems(arm, answers)
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


def _reasoned_off(answers: Sequence[Answer]) -> Iterable[Problem]:
    plain = [a.reasoned is True for a in answers]
    uneven = _uneven(answers)
    count = sum(p or u for p, u in zip(plain, uneven, strict=True))
    if all(a.reasoned is None for a in answers) and not count:
        yield Problem(
            "reasoning-unseen",
            "warning",
            "off",
            "neither texts nor token counts show that the off arm did not reason",
        )
    if not count:
        return
    tokens = [a.output_tokens for a in answers if a.output_tokens is not None]
    span = f"; its answers take {min(tokens):,} to {max(tokens):,} tokens" if tokens else ""
    yield Problem(
        "off-arm-reasons",
        faults.graded(count / len(answers)),
        "off",
        f"{faults.of(count, len(answers))} answers of the off arm still reason{span}",
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
    if without / len(own) > MOSTLY:
        yield Problem(
            "flag-ignored",
            "error",
            "on",
            f"{faults.of(without, len(own))} answers of the on arm do not reason: the switch had "
            "no effect",
        )
    elif without / len(own) > TOLERATED:
        yield Problem(
            "mixed-modes",
            "warning",
            "on",
            f"{faults.of(without, len(own))} answers of the on arm do not reason",
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
        "report more reasoning tokens than output tokens: all three counts are unknown",
    ),
    "usage-splits-output": (
        "note",
        "count reasoning beside the output, as their totals show: both are added",
    ),
    "hidden-reasoning": (
        "note",
        "reasoned in a part whose text is withheld: how long it is, only a count can say",
    ),
    "budget-used": (
        "warning",
        "used all of their thinking budget: what is measured is reasoning under that budget",
    ),
    "tool-call": (
        "warning",
        "call a tool: what the answer would have been is not known",
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
    wrong = sum("mislabelled" in a.marks for a in answers)
    if wrong:
        yield Problem(
            "mislabelled",
            faults.graded(wrong / n),
            arm,
            f"{faults.of(wrong, n)} requests of the {arm} arm asked for the other mode",
        )
    for mark, (severity, words) in _MARKS.items():
        count = sum(mark in a.marks for a in answers)
        if count:
            yield Problem(
                mark, severity, arm, f"{faults.of(count, n)} records of the {arm} arm {words}"
            )
    keys = Counter((a.question, a.repeat) for a in answers)
    twice = [question for (question, _), count in keys.items() if count > 1]
    if twice:
        filters = sorted({str(a.setup["filter"]) for a in answers if "filter" in a.setup})
        fix = (
            f"it is graded under the filters {' and '.join(filters)}; keep one"
            if len(filters) > 1
            else "tell repeats apart by a field 'repeat'"
        )
        yield Problem(
            "duplicate-records",
            "error",
            arm,
            f"question '{twice[0][:40]}' and {len(twice) - 1} others come more than once in the "
            f"{arm} arm; {fix}",
        )
    graded = sum(a.correct is not None for a in answers)
    if graded == 0:
        yield Problem("no-grades", "warning", arm, f"no answer of the {arm} arm is graded")
    elif graded < n:
        yield Problem(
            "some-grades",
            "warning",
            arm,
            f"{faults.of(n - graded, n)} answers of the {arm} arm are not graded",
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
            f"up to {censoring.listed(sorted(budgets[0]))} tokens are allowed in the on arm and "
            f"{censoring.listed(sorted(budgets[1]))} in the off arm"
            + ("" if binding else "; no answer reached either"),
        )
