"""Contrast: the numbers that two arms give on the same questions.

Owns pairing, accuracy with its interval, the ratios on over off, the identity between three of
them, and what censored arms bound. Does not own whether the arms are what they are called
(``arms``) or the verdict (``reasoning``).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.bench.answers import Answer
from assay.ledger import paired, stats
from assay.ledger.stats import Interval

__all__ = ["Pairs", "Prices", "Settings", "accuracy", "bounds", "identity", "rates", "ratios"]


@dataclass(frozen=True)
class Prices:
    """What tokens cost.

    Parameters
    ----------
    output, prompt : float
        USD per million tokens [USD/Mtok].
    """

    output: float
    prompt: float = 0.0


@dataclass(frozen=True)
class Settings:
    level: float
    margin: float
    seed: int


# -- pairs ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pairs:
    """The questions both arms answered, with the answers of either."""

    questions: list[str]
    on: Mapping[str, list[Answer]]
    off: Mapping[str, list[Answer]]
    prices: Prices | None

    @classmethod
    def of(cls, on: Sequence[Answer], off: Sequence[Answer], prices: Prices | None) -> Pairs:
        by_arm: list[dict[str, list[Answer]]] = [{}, {}]
        for found, rows in zip(by_arm, (on, off), strict=True):
            for answer in rows:
                found.setdefault(answer.question, []).append(answer)
        common = [question for question in by_arm[0] if question in by_arm[1]]
        return cls(common, by_arm[0], by_arm[1], prices)

    def columns(self, *parts: Callable[[Answer], float | None]) -> list[list[list[float]]] | None:
        """Return, for each part, both arms' means per question over those that know all parts.

        None when that is less than every question: a part that only easy questions have would
        compare something else.
        """
        found: list[list[list[float]]] = [[[], []] for _ in parts]
        for question in self.questions:
            for arm, rows in enumerate((self.on[question], self.off[question])):
                for column, part in zip(found, parts, strict=True):
                    values = [v for a in rows if (v := part(a)) is not None]
                    if len(values) < len(rows):
                        return None
                    column[arm].append(math.fsum(values) / len(values))
        return found if self.questions else None

    def cost(self, answer: Answer) -> float | None:
        if answer.cost is not None or self.prices is None or answer.output_tokens is None:
            return answer.cost
        if answer.prompt_tokens is None and self.prices.prompt:
            return None
        prompt = (answer.prompt_tokens or 0) * self.prices.prompt
        return (answer.output_tokens * self.prices.output + prompt) / 1e6


def _seconds(answer: Answer) -> float | None:
    if answer.latency is not None:
        return answer.latency
    if answer.start is not None and answer.end is not None:
        return answer.end - answer.start
    return None


def _tokens(answer: Answer) -> float | None:
    return answer.output_tokens


def _grade(answer: Answer) -> float | None:
    return None if answer.correct is None else float(answer.correct)


def _shown(interval: Interval) -> dict[str, Any]:
    """Return an interval for JSON: an end that does not exist is null."""
    found = dataclasses.asdict(interval)
    return {k: None if v != v or v in (math.inf, -math.inf) else v for k, v in found.items()}


# -- accuracy -------------------------------------------------------------------------------------


def accuracy(pairs: Pairs, settings: Settings) -> dict[str, Any] | None:
    """Return the paired difference; censored answers are taken as right and as wrong."""
    graded = [
        q
        for q in pairs.questions
        if all(a.correct is not None or a.censored for a in (*pairs.on[q], *pairs.off[q]))
    ]
    if not graded:
        return None
    single = all(len(pairs.on[q]) == len(pairs.off[q]) == 1 for q in graded)
    found: dict[str, Any] = {
        "questions": len(graded),
        "on": _share(pairs.on, graded),
        "off": _share(pairs.off, graded),
    }
    censored = sum(a.censored for q in graded for a in (*pairs.on[q], *pairs.off[q]))
    ends = [
        _difference(pairs, graded, single, settings, on=on, off=off)
        for on, off in (
            ((None, None), (False, True), (True, False)) if censored else ((None, None),)
        )
    ]
    interval = dataclasses.replace(
        ends[0], low=min(e.low for e in ends), high=max(e.high for e in ends)
    )
    found |= {"difference": interval.value, "censored": censored} | {
        k: v for k, v in _shown(interval).items() if k != "value"
    }
    if single:
        table = _table(pairs, graded)
        found |= table
        found["mcnemar_p"] = paired.mcnemar(table["only_on"], table["only_off"])
        check = paired.newcombe(
            table["both"],
            table["only_on"],
            table["only_off"],
            table["neither"],
            level=settings.level,
        )
        found["check"] = _shown(check)
    return found


def _right(answer: Answer, censored: bool | None) -> bool:
    return censored if answer.censored and censored is not None else bool(answer.correct)


def _share(arm: Mapping[str, list[Answer]], questions: Sequence[str]) -> float:
    return sum(sum(bool(a.correct) for a in arm[q]) / len(arm[q]) for q in questions) / len(
        questions
    )


def _table(
    pairs: Pairs, questions: Sequence[str], on: bool | None = None, off: bool | None = None
) -> dict[str, int]:
    found = dict.fromkeys(("both", "only_on", "only_off", "neither"), 0)
    for q in questions:
        one, other = _right(pairs.on[q][0], on), _right(pairs.off[q][0], off)
        found[
            ("both" if other else "only_on") if one else ("only_off" if other else "neither")
        ] += 1
    return found


def _difference(
    pairs: Pairs,
    questions: Sequence[str],
    single: bool,
    settings: Settings,
    *,
    on: bool | None,
    off: bool | None,
) -> Interval:
    """Return on minus off when the censored answers of either arm are right, wrong or as graded."""
    if single:
        table = _table(pairs, questions, on, off)
        return paired.proportion_difference(
            table["only_on"], table["only_off"], len(questions), level=settings.level
        )
    gaps = []
    for q in questions:
        shares = [
            sum(_right(a, censored) for a in arm[q]) / len(arm[q])
            for arm, censored in ((pairs.on, on), (pairs.off, off))
        ]
        gaps.append(shares[0] - shares[1])
    if len(gaps) < 2:
        return Interval(gaps[0], -1.0, 1.0, settings.level, 1, "none: one question")
    return stats.block_mean(gaps, level=settings.level, scale="plain")


# -- ratios ---------------------------------------------------------------------------------------


def _ratio(
    above: Sequence[Sequence[float]], below: Sequence[Sequence[float]], settings: Settings
) -> dict[str, Any] | None:
    if any(not sum(column) for column in (*above, *below)):
        return None
    return _shown(paired.ratio_of_means(above, below, level=settings.level, seed=settings.seed))


def ratios(
    pairs: Pairs, on: Sequence[Answer], off: Sequence[Answer], settings: Settings
) -> dict[str, Any]:
    """Return every ratio on over off that the records allow; None where they do not."""
    found: dict[str, Any] = dict.fromkeys(
        (
            *("output_tokens_per_answer", "tok_per_s", "requests_per_s", "correct_per_s"),
            *("usd_per_correct", "j_per_correct", "latency"),
        )
    )
    tokens = pairs.columns(_tokens)
    times = pairs.columns(_seconds)
    grades = pairs.columns(_grade)
    if tokens:
        found["output_tokens_per_answer"] = _ratio([tokens[0][0]], [tokens[0][1]], settings)
    if times:
        (t_on, t_off), scale = times[0], _scale(on, off, times[0])
        found["latency"] = _ratio([t_on], [t_off], settings)
        found["requests_per_s"] = _scaled(_ratio([t_off], [t_on], settings), scale)
        if tokens:
            rate = _ratio([tokens[0][0], t_off], [tokens[0][1], t_on], settings)
            found["tok_per_s"] = _scaled(rate, scale)
        if grades:
            rate = _ratio([grades[0][0], t_off], [grades[0][1], t_on], settings)
            found["correct_per_s"] = _scaled(rate, scale)
        found["rates_from"] = _basis(on, off)
        starts = min(len({a.block for a in arm if a.block}) for arm in (on, off))
        found["server_starts"] = starts or "unknown"
    for name, spent in (("usd_per_correct", pairs.cost), ("j_per_correct", lambda a: a.energy)):
        costs = pairs.columns(spent)
        if costs and grades:
            above, below = [costs[0][0], grades[0][1]], [costs[0][1], grades[0][0]]
            if (ratio := _ratio(above, below, settings)) is not None:
                found[name] = ratio | {
                    arm: sum(costs[0][i]) / sum(grades[0][i]) for i, arm in enumerate(("on", "off"))
                }
    return found


def _scaled(ratio: dict[str, Any] | None, factor: float) -> dict[str, Any] | None:
    if ratio is None:
        return None
    return ratio | {k: ratio[k] and ratio[k] * factor for k in ("value", "low", "high")}


def _walls(arm: Sequence[Answer]) -> float | None:
    """Return the time an arm took by its clock: first start to last end of each server start."""
    spans: dict[str, tuple[float, float]] = {}
    for a in arm:
        if a.start is None or a.end is None:
            return None
        low, high = spans.get(a.block, (a.start, a.end))
        spans[a.block] = min(low, a.start), max(high, a.end)
    return sum(high - low for low, high in spans.values()) or None


def _scale(on: Sequence[Answer], off: Sequence[Answer], times: Sequence[Sequence[float]]) -> float:
    """Return what turns the ratio of time in flight into that of the clock.

    Without a clock both arms are taken to have had as many requests in flight: then the ratio of
    rates is that of time in flight (Little's law).
    """
    walls = [_walls(arm) for arm in (on, off)]
    sums = [sum(_seconds(a) or 0.0 for a in arm) for arm in (on, off)]
    if walls[0] is None or walls[1] is None or not all(sums):
        return 1.0
    return (walls[1] / sums[1]) / (walls[0] / sums[0])


def _basis(on: Sequence[Answer], off: Sequence[Answer]) -> str:
    if _walls(on) is not None and _walls(off) is not None:
        return "the clock: first start to last end"
    return "time in flight, with equally many requests in flight in both arms"


def identity(ratios: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return both sides of requests/s = tok/s ÷ tokens per answer; a third is derived from two."""
    requests, rate, tokens = (
        ratios[key] and ratios[key]["value"]
        for key in ("requests_per_s", "tok_per_s", "output_tokens_per_answer")
    )
    if requests is None or rate is None or tokens is None:
        return None
    return {
        "requests_per_s": requests,
        "tok_per_s": rate,
        "output_tokens_per_answer": tokens,
        "tok_per_s_over_tokens_per_answer": rate / tokens,
        "residual": requests / (rate / tokens) - 1,
    }


# -- bounds ---------------------------------------------------------------------------------------


def bounds(pairs: Pairs) -> dict[str, Any]:
    """Return what censored arms still say: every censored answer right, and every one wrong."""
    n = len(pairs.questions)
    ends: dict[str, tuple[float, float]] = {}
    cut: dict[str, bool] = {}
    for name, arm in (("on", pairs.on), ("off", pairs.off)):
        known = all(a.correct is not None or a.censored for q in pairs.questions for a in arm[q])
        shares = [
            sum(sum(_right(a, worst) for a in arm[q]) / len(arm[q]) for q in pairs.questions) / n
            for worst in (False, True)
        ]
        ends[name] = (shares[0], shares[1]) if known else (0.0, 1.0)
        cut[name] = any(
            a.truncated or a.empty or a.fallback for q in pairs.questions for a in arm[q]
        )
    found: dict[str, Any] = {
        "accuracy_on": list(ends["on"]),
        "accuracy_off": list(ends["off"]),
        "accuracy_difference": [
            ends["on"][0] - ends["off"][1],
            ends["on"][1] - ends["off"][0],
        ],
        "output_tokens_per_answer": None,
    }
    tokens = pairs.columns(_tokens)
    if tokens and sum(tokens[0][1]) and not (cut["on"] and cut["off"]):
        ratio = sum(tokens[0][0]) / sum(tokens[0][1])
        found["output_tokens_per_answer"] = {"at_least" if cut["on"] else "at_most": ratio}
    return found
