"""Reasoning: what turning reasoning on costs and what it buys, on the same questions.

Owns loading two arms, their comparison and its verdict. Does not own reading records
(``transcripts``), the checks that come first (``arms``) or the numbers (``gain``, ``expense``).

Every ratio is *on over off*, over the questions both arms answered. "Throughput" is three rates:
output tokens per second, requests per second, correct answers per second. They are tied by

    requests/s ratio = tok/s ratio ÷ output-tokens-per-answer ratio,

so that a request rate of 32 % at an unchanged token rate means 3.1 times the tokens per answer.

Verdicts: ``better``, ``worse``, ``mixed``, ``no-difference`` weigh accuracy against tokens per
answer. ``insufficient``, ``censored``, ``not-comparable`` and ``not-exercised`` say why there is
none; a censored arm still gives bounds.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.bench.reasoning import arms, expense, gain, totals, transcripts
from assay.bench.reasoning.answers import Answer
from assay.bench.reasoning.contrast import Pairs, Prices, Settings
from assay.errors import InputError
from assay.ledger import paired, stats, store

__all__ = ["MARGIN", "compare", "load"]

# A difference in accuracy within this is called none [1].
MARGIN = 0.02
# Tokens per answer within this factor either way are called the same [1].
_SAME_COST = 1.05
# Errors in the order in which they take the verdict.
_ORDER = ("not-exercised", "not-comparable", "censored", "insufficient")


def load(on: Path, off: Path | None = None) -> tuple[list[Answer], list[Answer]]:
    """Read the two arms from two files, or both from one.

    Parameters
    ----------
    on, off : Path
        Files of records. A record that names its arm belongs to that arm, any other to the arm of
        its file. Without ``off``, or with the same file twice, every record must name its arm.

    Returns
    -------
    tuple of list of Answer
        The on arm and the off arm; one may be empty.

    Raises
    ------
    InputError
        When a file cannot be read, an unnamed record could be of either arm, or two files hold one
        arm.
    """
    if off is None or (on.exists() and off.exists() and off.samefile(on)):
        found = transcripts.read(on)
        if any(a.arm is None for a in found):
            raise InputError(
                "a record does not say of which arm it is",
                where=str(on),
                fix="add the field 'arm' (on or off), or give the other arm as a second file",
            )
        return [a for a in found if a.arm == "on"], [a for a in found if a.arm == "off"]
    # Labels decide: files given the other way round are no harm, and no record is left out.
    found = [*transcripts.read(on, arm="on"), *transcripts.read(off, arm="off")]
    named = {a.arm for a in found}
    if len(named) == 1:
        raise InputError(
            f"both files hold records of the {named.pop()} arm only",
            where=f"{store.shown(on)} and {store.shown(off)}",
            fix="give the other arm, or correct the field that names the arm or its request",
        )
    return [a for a in found if a.arm == "on"], [a for a in found if a.arm == "off"]


def compare(
    on: Sequence[Answer],
    off: Sequence[Answer],
    *,
    level: float = paired.LEVEL,
    margin: float = MARGIN,
    prices: Prices | None = None,
    seed: int = stats.SEED,
) -> dict[str, Any]:
    """Hold both arms against each other.

    Parameters
    ----------
    on, off : sequence of Answer
        Records of the arms; one may be empty, and then only the other's checks are reported.
    level : float
        Nominal coverage of every interval [1].
    margin : float
        A difference in accuracy within this is none [1].
    prices : Prices, optional
        For the cost of a correct answer where records do not state it.
    seed : int
        Seed of the bootstraps.

    Returns
    -------
    dict
        ``verdict``, ``reasons`` (sentences that begin with a rule), ``problems``, ``arms``,
        ``pairs``, ``accuracy``, ``ratios``, ``rates``, ``identity`` and ``bounds``. What a failed
        check makes worthless is None.

    Raises
    ------
    InputError
        When level or margin make no sense.

    Examples
    --------
    >>> rows = [Answer(question=str(i), output_tokens=400, correct=True) for i in range(3)]
    >>> compare(rows, [])["verdict"]
    'insufficient'
    """
    if not 0 < level < 1 or not 0 < margin < 1:
        raise InputError(
            f"a level of {level} and a margin of {margin} are not shares",
            fix="write for example 0.95 and 0.02",
        )
    settings = Settings(level, margin, seed, prices)
    problems = arms.problems(on, off)
    failed = {arms.OUTCOMES[p.rule] for p in problems if p.severity == "error"}
    verdict = next((word for word in _ORDER if word in failed), None)
    reasons = [f"{p.rule}: {p.message}" for p in problems if p.severity != "note"]
    pairs = Pairs.of(on, off)
    found: dict[str, Any] = dict.fromkeys(("accuracy", "ratios", "rates", "identity", "bounds"))
    if verdict == "censored" and pairs.questions:
        found["bounds"] = gain.bounds(pairs)
        reasons += _bounded(found["bounds"])
    elif verdict is None:
        found["accuracy"] = gain.accuracy(pairs, settings)
        found["ratios"] = expense.ratios(pairs, on, off, settings)
        found["rates"] = expense.rates(on, off, settings)
        found["identity"] = expense.identity(found["ratios"])
        verdict, because = _verdict(found["accuracy"], found["ratios"], pairs, settings)
        reasons += because
    return {
        "schema": 1,
        "verdict": verdict,
        "reasons": reasons,
        "problems": [dataclasses.asdict(p) for p in problems],
        "arms": {
            name: {**totals.summary(rows), "valid": arms.valid(name, problems)} if rows else None
            for name, rows in (("on", on), ("off", off))
        },
        "pairs": {
            "questions": len(pairs.questions),
            "only_on": len(pairs.on.keys() - pairs.off.keys()),
            "only_off": len(pairs.off.keys() - pairs.on.keys()),
        },
        **found,
        "level": level,
        "margin": margin,
    }


def _bounded(bounds: Mapping[str, Any]) -> list[str]:
    low, high = bounds["accuracy_difference"]
    found = [f"bound: accuracy changes by {_points(low)} to {_points(high)}, and no more is known"]
    for word, ratio in (bounds["output_tokens_per_answer"] or {}).items():
        found.append(f"bound: {word.replace('_', ' ')} {ratio:.3g}x the output tokens per answer")
    return found


def _points(share: float) -> str:
    return f"{100 * share:+.1f} pp"


# -- verdict --------------------------------------------------------------------------------------


def _verdict(
    accuracy: Mapping[str, Any] | None,
    ratios: Mapping[str, Any],
    pairs: Pairs,
    settings: Settings,
) -> tuple[str, list[str]]:
    """Weigh accuracy against tokens per answer."""
    n = len(pairs.questions)
    if n < paired.PAIRS:
        return "insufficient", [
            f"few-questions: {n} questions are in both arms, and {paired.PAIRS} are needed"
        ]
    cost = ratios["output_tokens_per_answer"]
    reasons = []
    if cost is None or cost["low"] is None:
        reasons.append("unknown: not every common question has its output tokens")
    else:
        reasons.append(f"cost: {_times(cost)} the output tokens per answer")
    if accuracy is None:
        reasons.append("unknown: no common question is graded in both arms")
        return "insufficient", reasons
    change, spoken = _position(accuracy, settings)
    reasons.append(spoken)
    if accuracy["on"] == accuracy["off"] == 0:
        reasons.append(
            "floor: no answer of either arm is right, so these questions, or their grader, cannot "
            "show what reasoning buys"
        )
        return "insufficient", reasons
    if accuracy["on"] == accuracy["off"] == 1:
        reasons.append(
            "ceiling: every answer of both arms is right, so harder questions might show a gain "
            "that these cannot"
        )
    rate = ratios["correct_per_s"]
    if rate is not None and rate["low"] is not None:
        reasons.append(f"rate: {_times(rate)} the correct answers per second")
    if accuracy["censored"]:
        reasons.append(
            f"censored: {accuracy['censored']} answers are taken as right and as wrong, and the "
            "interval of accuracy covers both"
        )
    dearer = None if cost is None or cost["low"] is None else _dearer(cost)
    if change is None or dearer is None:
        return "insufficient", reasons
    better, worse = change > 0 or dearer < 0, change < 0 or dearer > 0
    if better and worse:
        return "mixed", reasons
    return "better" if better else "worse" if worse else "no-difference", reasons


def _times(ratio: Mapping[str, Any]) -> str:
    return f"{ratio['value']:.3g}x ({ratio['low']:.3g} to {ratio['high']:.3g})"


def _position(accuracy: Mapping[str, Any], settings: Settings) -> tuple[int | None, str]:
    """Say whether accuracy rises, falls, stays within the margin, or is not resolved."""
    low, high, margin = accuracy["low"], accuracy["high"], settings.margin
    words = f"{_points(accuracy['difference'])} ({_points(low)} to {_points(high)})"
    if -margin <= low and high <= margin:
        return 0, f"accuracy: the same within {100 * margin:g} pp: {words}"
    if low > 0:
        return 1, f"accuracy: higher with reasoning: {words}"
    if high < 0:
        return -1, f"accuracy: lower with reasoning: {words}"
    # The width falls with the root of the number of questions.
    needed = math.ceil(accuracy["questions"] * ((high - low) / 2 / margin) ** 2)
    return None, (
        f"unresolved: accuracy changes by {words}, which includes no change; about {needed:,} "
        f"questions would narrow it to ±{100 * margin:g} pp"
    )


def _dearer(cost: Mapping[str, Any]) -> int | None:
    """Say whether an answer takes more tokens, fewer, as many, or that is not resolved."""
    if cost["low"] >= 1 / _SAME_COST and cost["high"] <= _SAME_COST:
        return 0
    if cost["low"] > 1:
        return 1
    return -1 if cost["high"] < 1 else None
