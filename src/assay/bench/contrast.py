"""Contrast: the numbers that two arms give on the same questions.

Owns pairing, accuracy with its interval, the ratios on over off, the identity between three of
them, and what censored arms bound. Does not own whether the arms are what they are called
(``arms``) or the verdict (``reasoning``).

Intervals over questions speak for other questions like these. Rates also vary from one server
start to the next; where records name their starts, those give intervals of their own.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.bench.answers import Answer
from assay.ledger import paired, stats
from assay.ledger.stats import Interval

__all__ = ["Pairs", "Prices", "Settings", "accuracy", "bounds", "identity", "rates", "ratios"]

RATES = ("tok_per_s", "requests_per_s", "correct_per_s")
RATIOS = ("output_tokens_per_answer", "latency", *RATES, "usd_per_correct", "j_per_correct")


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
    """How a comparison is made.

    Parameters
    ----------
    level : float
        Nominal coverage of every interval [1].
    margin : float
        A difference in accuracy within this is none [1].
    seed : int
        Seed of the bootstraps.
    prices : Prices or None
        For what records do not state.
    """

    level: float
    margin: float
    seed: int
    prices: Prices | None = None


# -- pairs ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pairs:
    """The questions both arms answered.

    Parameters
    ----------
    questions : list of str
        In the on arm's order.
    on, off : mapping of str to list of Answer
        Every answer of either arm by question.
    """

    questions: list[str]
    on: Mapping[str, list[Answer]]
    off: Mapping[str, list[Answer]]

    @classmethod
    def of(cls, on: Iterable[Answer], off: Iterable[Answer]) -> Pairs:
        """Pair the records of two arms by question."""
        by_arm: list[dict[str, list[Answer]]] = [{}, {}]
        for found, rows in zip(by_arm, (on, off), strict=True):
            for answer in rows:
                found.setdefault(answer.question, []).append(answer)
        return cls([question for question in by_arm[0] if question in by_arm[1]], *by_arm)

    def answers(self, question: str) -> list[Answer]:
        """Return both arms' answers to one question."""
        return [*self.on[question], *self.off[question]]

    def columns(self, part: Callable[[Answer], float | None]) -> list[list[float]] | None:
        """Return both arms' means per question, without questions whose request failed.

        None unless every answer has the part: one that only easy questions have would compare
        something else.
        """
        found: list[list[float]] = [[], []]
        for question in self.questions:
            if any(a.failed for a in self.answers(question)):
                continue
            for column, rows in zip(found, (self.on[question], self.off[question]), strict=True):
                values = [v for a in rows if (v := part(a)) is not None]
                if len(values) < len(rows):
                    return None
                column.append(math.fsum(values) / len(values))
        return found if found[0] else None


def _seconds(answer: Answer) -> float | None:
    if answer.latency is None and answer.start is not None and answer.end is not None:
        return answer.end - answer.start
    return answer.latency


def _grade(answer: Answer) -> float | None:
    if answer.correct is None:
        return 0.0 if answer.censored else None
    return float(answer.correct)


def _shown(interval: Interval) -> dict[str, Any]:
    """Return an interval for JSON: an end that does not exist is null."""
    found = dataclasses.asdict(interval)
    for key in ("low", "high"):
        if not math.isfinite(found[key]):
            found[key] = None
    return found


# -- accuracy -------------------------------------------------------------------------------------


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
        found["check"] = _shown(
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


# -- ratios ---------------------------------------------------------------------------------------


def ratios(
    pairs: Pairs, on: Sequence[Answer], off: Sequence[Answer], settings: Settings
) -> dict[str, Any]:
    """Return every ratio on over off that the records allow.

    Parameters
    ----------
    pairs : Pairs
        The common questions.
    on, off : sequence of Answer
        All records, for the clock.
    settings : Settings
        Level, seed and prices.

    Returns
    -------
    dict
        By the names of ``RATIOS``: value with its paired bootstrap interval over questions [1],
        or None where not every common question has what it takes.

    Notes
    -----
    A rate is a total over the time the arm took. Without a clock both arms are taken to have had
    equally many requests in flight; then the ratio of times is that of times in flight (Little).
    """

    def ratio(above: Sequence[Sequence[float]], below: Sequence[Sequence[float]]) -> Any:
        if any(not sum(column) for column in (*above, *below)):
            return None
        return _shown(paired.ratio_of_means(above, below, level=settings.level, seed=settings.seed))

    found: dict[str, Any] = dict.fromkeys(RATIOS)
    tokens = pairs.columns(lambda a: a.output_tokens)
    times = pairs.columns(_seconds)
    grades = pairs.columns(_grade)
    if tokens:
        found["output_tokens_per_answer"] = ratio([tokens[0]], [tokens[1]])
    if times:
        found["latency"] = ratio([times[0]], [times[1]])
        scale = _scale(on, off)
        found["requests_per_s"] = _scaled(ratio([times[1]], [times[0]]), scale)
        for name, columns in (("tok_per_s", tokens), ("correct_per_s", grades)):
            if columns:
                rate = ratio([columns[0], times[1]], [columns[1], times[0]])
                found[name] = _scaled(rate, scale)
    for name, costs in (
        ("usd_per_correct", pairs.columns(lambda a: _cost(a, settings.prices))),
        ("j_per_correct", pairs.columns(lambda a: a.energy)),
    ):
        if costs and grades and (rate := ratio([costs[0], grades[1]], [costs[1], grades[0]])):
            each = {arm: sum(costs[i]) / sum(grades[i]) for i, arm in enumerate(("on", "off"))}
            found[name] = rate | each
    return found


def _cost(answer: Answer, prices: Prices | None) -> float | None:
    if answer.cost is not None or prices is None or answer.output_tokens is None:
        return answer.cost
    if answer.prompt_tokens is None and prices.prompt:
        return None
    return (
        answer.output_tokens * prices.output + (answer.prompt_tokens or 0) * prices.prompt
    ) / 1e6


def _scaled(ratio: dict[str, Any] | None, factor: float) -> dict[str, Any] | None:
    if ratio is None:
        return None
    ends = {k: None if ratio[k] is None else ratio[k] * factor for k in ("value", "low", "high")}
    return ratio | ends


def _wall(arm: Iterable[Answer]) -> float | None:
    """Return what an arm took by the clock: first start to last end, summed over server starts."""
    spans: dict[str, tuple[float, float]] = {}
    for a in arm:
        if a.start is None or a.end is None:
            return None
        low, high = spans.get(a.block, (a.start, a.end))
        spans[a.block] = min(low, a.start), max(high, a.end)
    return sum(high - low for low, high in spans.values()) or None


def _scale(on: Sequence[Answer], off: Sequence[Answer]) -> float:
    """Return what turns the ratio of times in flight into that of the clock."""
    walls = _wall(on), _wall(off)
    flights = [sum(_seconds(a) or 0.0 for a in arm) for arm in (on, off)]
    if walls[0] is None or walls[1] is None or not all(flights):
        return 1.0
    return (walls[1] / flights[1]) / (walls[0] / flights[0])


def rates(on: Sequence[Answer], off: Sequence[Answer], settings: Settings) -> dict[str, Any]:
    """Return what the rates were made from, and their ratios over server starts.

    Parameters
    ----------
    on, off : sequence of Answer
        All records of the arms.
    settings : Settings
        Its level is used.

    Returns
    -------
    dict
        ``from`` (which time); ``server_starts``; and by the names of ``RATES`` the ratio on over
        off with its *t* interval over the starts that both arms share, or None.
    """
    clock = _wall(on) is not None and _wall(off) is not None
    blocks = [{a.block for a in arm if a.block} for arm in (on, off)]
    common = sorted(blocks[0] & blocks[1])
    found: dict[str, Any] = {
        "from": "the clock: first start to last end"
        if clock
        else "time in flight, with equally many requests in flight in both arms",
        "server_starts": len(common) or "unknown",
        **dict.fromkeys(RATES),
    }
    if len(common) < 2:
        return found
    parts: dict[str, Callable[[Answer], float | None]] = {
        "tok_per_s": lambda a: a.output_tokens,
        "requests_per_s": lambda a: 1.0,
        "correct_per_s": _grade,
    }
    for name, part in parts.items():
        arms = []
        for arm in (on, off):
            by_block = [[a for a in arm if a.block == block and not a.failed] for block in common]
            arms.append([_rate(rows, part, clock) for rows in by_block])
        values = [[v for v in arm if v] for arm in arms]
        if all(len(v) == len(common) for v in values):
            found[name] = _shown(stats.log_ratio(*values, level=settings.level))
    return found


def _rate(
    rows: Sequence[Answer], part: Callable[[Answer], float | None], clock: bool
) -> float | None:
    amounts = [v for a in rows if (v := part(a)) is not None]
    times = [t for a in rows if (t := _seconds(a)) is not None]
    if not rows or min(len(amounts), len(times)) < len(rows):
        return None
    time = _wall(rows) if clock else sum(times)
    return math.fsum(amounts) / time if time else None


def identity(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return both sides of: requests/s ratio = tok/s ratio ÷ output-tokens-per-answer ratio.

    Parameters
    ----------
    found : mapping
        What `ratios` returned.

    Returns
    -------
    dict or None
        The three ratios, the right side, and the relative residual [1]; None when one is missing.
    """
    names = ("requests_per_s", "tok_per_s", "output_tokens_per_answer")
    if any(found[name] is None for name in names):
        return None
    requests, rate, tokens = (found[name]["value"] for name in names)
    return {
        **dict(zip(names, (requests, rate, tokens), strict=True)),
        "tok_per_s_over_output_tokens_per_answer": rate / tokens,
        "residual": requests * tokens / rate - 1,
    }


# -- bounds ---------------------------------------------------------------------------------------


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
        output tokens as a bound: a cut answer would have been longer.
    """
    ends: dict[str, list[float]] = {}
    cut: dict[str, bool] = {}
    for name, arm in (("on", pairs.on), ("off", pairs.off)):
        rows = [a for q in pairs.questions for a in arm[q]]
        known = all(a.correct is not None or a.censored for a in rows)
        ends[name] = [_share(arm, pairs.questions, t) if known else float(t) for t in (False, True)]
        cut[name] = any(a.censored or a.truncated for a in rows)
    found: dict[str, Any] = {
        "accuracy_on": ends["on"],
        "accuracy_off": ends["off"],
        "accuracy_difference": [ends["on"][0] - ends["off"][1], ends["on"][1] - ends["off"][0]],
        "output_tokens_per_answer": None,
    }
    tokens = pairs.columns(lambda a: a.output_tokens)
    if tokens and sum(tokens[1]) and not (cut["on"] and cut["off"]):
        word = "at_least" if cut["on"] else "at_most"
        found["output_tokens_per_answer"] = {word: sum(tokens[0]) / sum(tokens[1])}
    return found
