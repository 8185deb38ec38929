"""Reasoning: what turning reasoning on costs and what it buys, on the same questions.

Owns the comparison of two arms and its verdict. Does not own reading records (``answers``) or the
checks that come first (``arms``).

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.bench import answers as records
from assay.bench import arms
from assay.bench.answers import Answer
from assay.bench.arms import Problem
from assay.errors import InputError
from assay.ledger import paired, stats
from assay.ledger.stats import Interval

__all__ = ["MARGIN", "Prices", "compare", "load"]

# A difference in accuracy within this is called none: 2 percentage points, about what two runs of
# one model differ by on a benchmark of a few hundred questions.
MARGIN = 0.02
# The same for tokens per answer.
_SAME_COST = 1.05
# Errors in the order in which they take the verdict.
_ORDER = ("not-exercised", "not-comparable", "censored", "insufficient")


def load(on: Path, off: Path | None = None) -> tuple[list[Answer], list[Answer]]:
    """Read the two arms from two files, or both from one.

    Parameters
    ----------
    on, off : Path
        Files of records. A record that names its arm is sorted by that, others by their file.
        Without ``off``, or with the same file twice, every record must name its arm.

    Returns
    -------
    tuple of list of Answer
        The on arm and the off arm; one may be empty.

    Raises
    ------
    InputError
        When a file cannot be read, or an unnamed record could be of either arm.
    """
    if off is None or off == on or (off.exists() and on.exists() and off.samefile(on)):
        found = records.read(on)
        if any(a.arm is None for a in found):
            raise InputError(
                "a record does not say of which arm it is",
                where=str(on),
                fix="add the field 'arm' (on or off), or give the other arm as a second file",
            )
        return [a for a in found if a.arm == "on"], [a for a in found if a.arm == "off"]
    first, second = records.read(on, arm="on"), records.read(off, arm="off")
    own = [a for a in first if a.arm == "on"], [a for a in second if a.arm == "off"]
    other = [a for a in second if a.arm == "on"], [a for a in first if a.arm == "off"]
    # Labels decide: files given the other way round are no harm.
    return own[0] or other[0], own[1] or other[1]


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
        Records of the arms; one may be empty, and then only its checks are reported.
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
        ``verdict``, ``reasons`` (sentences), ``problems``, ``arms``, ``pairs``, ``accuracy``,
        ``ratios``, ``identity`` and ``bounds``. Numbers that a failed check makes worthless are
        left out: None.

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
    if not 0 < level < 1 or not 0 <= margin < 1:
        raise InputError(
            f"a level of {level} and a margin of {margin} are not shares",
            fix="write for example 0.95 and 0.02",
        )
    problems = arms.problems(on, off)
    failed = [arms.OUTCOMES[p.rule] for p in problems if p.severity == "error"]
    blocked = next((word for word in _ORDER if word in failed), None)
    pairs = Pairs.of(on, off, prices)
    settings = Settings(level, margin, seed)
    accuracy = ratios = identity = bounds = None
    reasons = [f"{p.rule}: {p.message}" for p in problems if p.severity != "note"]
    if pairs.questions and blocked not in ("not-exercised", "not-comparable"):
        if blocked != "censored":
            accuracy = _accuracy(pairs, settings)
            ratios = _ratios(pairs, on, off, settings)
            identity = _identity(ratios)
        if blocked == "censored" or any(a.censored for a in (*on, *off)):
            bounds = _bounds(pairs)
            reasons += _bounded(bounds) if blocked == "censored" else []
    verdict = blocked
    if verdict is None and ratios is not None:
        verdict, because = _verdict(accuracy, ratios, pairs, settings)
        reasons += because
    return {
        "schema": 1,
        "verdict": verdict or "insufficient",
        "reasons": reasons,
        "problems": [dataclasses.asdict(p) for p in problems],
        "arms": {
            name: {**arms.summary(rows), "valid": _valid(name, problems)} if rows else None
            for name, rows in (("on", on), ("off", off))
        },
        "pairs": {
            "questions": len(pairs.questions),
            "only_on": len({a.question for a in on} - set(pairs.questions)),
            "only_off": len({a.question for a in off} - set(pairs.questions)),
        },
        "accuracy": accuracy,
        "ratios": ratios,
        "identity": identity,
        "bounds": bounds,
        "level": level,
        "margin": margin,
    }


def _valid(arm: str, problems: Iterable[Problem]) -> bool:
    return not any(p.arm == arm and p.severity == "error" for p in problems)


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
    if accuracy is None or cost is None or cost["low"] is None:
        missing = "grades" if accuracy is None else "output tokens"
        return "insufficient", [f"unknown: not every common question has {missing}"]
    gain, spoken = _position(accuracy, settings)
    dearer = _dearer(cost)
    reasons = [
        spoken,
        f"cost: {cost['value']:.3g}x the output tokens per answer "
        f"({cost['low']:.3g} to {cost['high']:.3g})",
    ]
    if (rate := ratios["correct_per_s"]) is not None:
        reasons.append(
            f"rate: {rate['value']:.3g}x the correct answers per second "
            f"({rate['low']:.3g} to {rate['high']:.3g})"
        )
    if accuracy["censored"]:
        reasons.append(
            f"censored: {accuracy['censored']} answers are taken as right and as wrong, and the "
            "interval covers both"
        )
    if gain is None or dearer is None:
        return "insufficient", reasons
    votes = {gain, -dearer} - {0}
    if votes == {1, -1}:
        return "mixed", reasons
    return {frozenset(): "no-difference", frozenset({1}): "better"}.get(
        frozenset(votes), "worse"
    ), reasons


def _position(accuracy: Mapping[str, Any], settings: Settings) -> tuple[int | None, str]:
    """Say whether accuracy rises, falls, stays within the margin, or is not resolved."""
    low, high = accuracy["low"], accuracy["high"]
    words = f"{_points(accuracy['difference'])} ({_points(low)} to {_points(high)})"
    if -settings.margin <= low and high <= settings.margin:
        return 0, f"accuracy: the same within {_points(settings.margin)[1:]}: {words}"
    if low > 0:
        return 1, f"accuracy: higher with reasoning: {words}"
    if high < 0:
        return -1, f"accuracy: lower with reasoning: {words}"
    half = (high - low) / 2
    needed = math.ceil(accuracy["questions"] * (half / max(settings.margin, 1e-3)) ** 2)
    return None, (
        f"unresolved: accuracy changes by {words}, which includes none; about {needed:,} "
        f"questions would narrow it to ±{100 * max(settings.margin, 1e-3):.3g} pp"
    )


def _dearer(cost: Mapping[str, Any]) -> int | None:
    if 1 / _SAME_COST <= cost["low"] and cost["high"] <= _SAME_COST:
        return 0
    if cost["low"] > 1:
        return 1
    return -1 if cost["high"] < 1 else None


def _bounded(bounds: Mapping[str, Any]) -> list[str]:
    low, high = bounds["accuracy_difference"]
    found = [f"bound: accuracy changes by {_points(low)} to {_points(high)}, and no more is known"]
    for word, ratio in (bounds["output_tokens_per_answer"] or {}).items():
        found.append(f"bound: {word.replace('_', ' ')} {ratio:.3g}x the output tokens per answer")
    return found


def _points(share: float) -> str:
    return f"{100 * share:+.1f} pp"
