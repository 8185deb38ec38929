"""Expense: what reasoning costs on the same questions, as ratios on over off.

Owns tokens, times, money and energy per answer and per correct answer, the three rates, and the
identity between three of the ratios. Does not own pairing (``contrast``) or accuracy (``gain``).

Intervals over questions speak for other questions like these. Rates also vary from one server
start to the next; where records name their starts, those give intervals of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from assay.bench.reasoning import contrast
from assay.bench.reasoning.answers import Answer
from assay.bench.reasoning.contrast import Pairs, Prices, Settings
from assay.ledger import paired, stats

__all__ = ["RATES", "RATIOS", "identity", "rates", "ratios"]

RATES = ("tok_per_s", "requests_per_s", "correct_per_s")
RATIOS = ("output_tokens_per_answer", "latency", *RATES, "usd_per_correct", "j_per_correct")


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
        return contrast.shown(
            paired.ratio_of_means(above, below, level=settings.level, seed=settings.seed)
        )

    found: dict[str, Any] = dict.fromkeys(RATIOS)
    tokens = pairs.columns(lambda a: a.output_tokens)
    times = pairs.columns(contrast.seconds)
    grades = pairs.columns(contrast.grade)
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
    flights = [sum(contrast.seconds(a) or 0.0 for a in arm) for arm in (on, off)]
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
        "correct_per_s": contrast.grade,
    }
    for name, part in parts.items():
        arms = []
        for arm in (on, off):
            by_block = [[a for a in arm if a.block == block and not a.failed] for block in common]
            arms.append([_rate(rows, part, clock) for rows in by_block])
        values = [[v for v in arm if v] for arm in arms]
        if all(len(v) == len(common) for v in values):
            found[name] = contrast.shown(stats.log_ratio(*values, level=settings.level))
    return found


def _rate(
    rows: Sequence[Answer], part: Callable[[Answer], float | None], clock: bool
) -> float | None:
    amounts = [v for a in rows if (v := part(a)) is not None]
    times = [t for a in rows if (t := contrast.seconds(a)) is not None]
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
