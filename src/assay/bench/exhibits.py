"""Exhibits: what a page shows of an exam with reasoning on and off.

Owns the comparison by level, its tables (gain, rates, times) and the points of cost against gain.
Does not own the comparison (``reasoning``), the times (``delays``), or drawing. A table of arms
that cannot be compared has dashes, and the verdict says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.bench import reasoning as comparison
from assay.bench.exam import Held, arithmetic
from assay.bench.exam import delays as delaying
from assay.ledger import stats
from assay.ledger.stats import Interval
from assay.physics import units

__all__ = ["by_level", "gains", "plane", "rates", "said", "times"]

Results = Mapping[str, Mapping[str, Any]]

_RATES = {
    "tok_per_s": "output tokens per second",
    "requests_per_s": "requests per second",
    "correct_per_s": "correct answers per second",
}


def by_level(held: Held, *, seed: int) -> dict[str, dict[str, Any]]:
    """Return the comparison of both arms for every level of the questions, and for all.

    Parameters
    ----------
    held : Held
        The exam.
    seed : int
        Of the bootstraps.

    Returns
    -------
    dict
        By ``level 1`` and so on where questions have levels, and ``all``: what
        ``bench.reasoning.compare`` says at 90 %.
    """
    on, off = comparison.load(held.file)
    found = {}
    for level in arithmetic.LEVELS:
        own = [[a for a in arm if a.question.startswith(f"{level}-")] for arm in (on, off)]
        if all(own):
            found[f"level {level}"] = comparison.compare(*own, level=stats.LEVEL, seed=seed)
    return found | {"all": comparison.compare(on, off, level=stats.LEVEL, seed=seed)}


def gains(results: Results) -> list[dict[str, Any]]:
    """Return the table of accuracy and of tokens per answer.

    Parameters
    ----------
    results : mapping
        From :func:`by_level`.
    """
    rows = []
    for name, result in results.items():
        gain, cost = result["accuracy"], (result["ratios"] or {}).get("output_tokens_per_answer")
        rows.append(
            {
                "questions": name,
                "asked": result["pairs"]["questions"],
                "right without, %": None if gain is None else 100 * gain["off"],
                "right with, %": None if gain is None else 100 * gain["on"],
                "change, pp": None if gain is None else round(100 * gain["difference"], 1),
                "interval, pp": None if gain is None else _range(gain, 100),
                "tokens per answer, ×": None if cost is None else cost["value"],
                "verdict": result["verdict"],
            }
        )
    return rows


def rates(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the table of rates on over off, over server starts.

    Parameters
    ----------
    result : mapping
        One comparison.
    """
    found = result["rates"] or {}
    return [
        {
            "rate, on over off": words,
            "ratio, %": 100 * rate["value"],
            "interval, %": _range(rate, 100),
            "server starts": rate["n"],
        }
        for name, words in _RATES.items()
        if (rate := found.get(name)) is not None
    ]


def _range(interval: Mapping[str, Any], factor: float) -> str | None:
    if interval["low"] is None or interval["high"] is None:
        return None
    return f"{factor * interval['low']:.1f} to {factor * interval['high']:.1f}"


def times(held: Held) -> list[dict[str, Any]]:
    """Return the table of the times to the first token, to the answer's first, and to the last.

    Parameters
    ----------
    held : Held
        The exam.
    """
    return [
        {
            "time to the": delay.name,
            "without, ms": _milliseconds(delay.off),
            "with, ms": _milliseconds(delay.on),
            "on ÷ off": _ratio(delay.ratio),
            "answers timed, without": f"{delay.timed[1]} of {delay.asked[1]}",
            "answers timed, with": f"{delay.timed[0]} of {delay.asked[0]}",
        }
        for delay in delaying.delays(held)
    ]


def _milliseconds(time: Interval | None) -> str | None:
    if time is None:
        return None
    value = units.number(1000 * time.value, digits=3)
    if time.n < 2:
        return value
    low, high = (units.number(1000 * end, digits=3) for end in (time.low, time.high))
    return f"{value} ({low} to {high})"


def _ratio(ratio: Interval | None) -> str | None:
    if ratio is None:
        return None
    return f"{ratio.value:.3g}× ({ratio.low:.3g} to {ratio.high:.3g})"


def plane(results: Results) -> list[dict[str, Any]]:
    """Return the points of a chart of cost against gain.

    Parameters
    ----------
    results : mapping
        From :func:`by_level`; what could not be compared has no point.

    Returns
    -------
    list of dict
        For ``plot.scatter``: tokens per answer, on over off [1], and change of accuracy [pp].
    """
    found = []
    for name, result in results.items():
        cost = (result["ratios"] or {}).get("output_tokens_per_answer")
        gain = result["accuracy"]
        if cost is None or gain is None:
            continue
        found.append(
            {
                "label": name,
                "kind": "evidence",
                "x": cost["value"],
                "x_low": cost["low"],
                "x_high": cost["high"],
                "y": 100 * gain["difference"],
                "y_low": 100 * gain["low"],
                "y_high": 100 * gain["high"],
            }
        )
    return found


def said(result: Mapping[str, Any]) -> str:
    """Return a comparison's verdict with its reasons, in one line.

    Parameters
    ----------
    result : mapping
        One comparison.

    Examples
    --------
    >>> said({"verdict": "mixed", "reasons": ["cost: 3x", "accuracy: higher"]})
    'mixed (cost: 3x; accuracy: higher)'
    """
    reasons = "; ".join(result["reasons"])
    return f"{result['verdict']} ({reasons})" if reasons else f"{result['verdict']}"
