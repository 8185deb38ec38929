"""Dated: counts that public records give for a day, and which of them enclose another day.

Owns reading dated counts of a claim, the history of vLLM's nightly recipes
``data/published/nightly_recipes.csv``, and days as numbers for an axis. Does not own what a count
says about a claim.
"""

from __future__ import annotations

import calendar
import dataclasses
import datetime
import itertools
from collections.abc import Sequence

from assay.errors import InputError, RecordError
from assay.ledger import store

__all__ = ["Count", "Recipes", "counts", "day", "enclosing", "months", "recipes", "stairs"]

_RECIPES = "nightly_recipes"


@dataclasses.dataclass(frozen=True, slots=True)
class Count:
    """A count on a day.

    Parameters
    ----------
    date : date
        The day; the last one of a month or year where the source names no more.
    value : float
        What was counted [1].
    source : str
        Id of the source.
    note : str
        How it is printed.
    """

    date: datetime.date
    value: float
    source: str
    note: str


@dataclasses.dataclass(frozen=True, slots=True)
class Recipes:
    """The recipes of a pipeline after a day's last commit.

    Parameters
    ----------
    date : date
        The day.
    commit : str
        Its last commit.
    nightly, performance, accuracy : int
        Recipes that run every night, and those of them that measure either [1].
    cards : int
        Kinds of accelerator they run on [1].
    """

    date: datetime.date
    commit: str
    nightly: int
    performance: int
    accuracy: int
    cards: int


def day(text: str) -> datetime.date:
    """Return the last day that a date can mean.

    Parameters
    ----------
    text : str
        ``2026``, ``2026-03`` or ``2026-03-23``.

    Raises
    ------
    RecordError
        When it is none of these.

    Examples
    --------
    >>> [day(each).isoformat() for each in ("2026-02", "2026-03-23")]
    ['2026-02-28', '2026-03-23']
    """
    parts = text.split("-")
    try:
        year = int(parts[0])
        month = int(parts[1]) if len(parts) > 1 else 12
        last = calendar.monthrange(year, month)[1]
        return datetime.date(year, month, int(parts[2]) if len(parts) > 2 else last)
    except (ValueError, IndexError):
        raise RecordError(f"'{text}' is no date", fix="write year, month and day") from None


def counts(claim: str) -> list[Count]:
    """Return the dated counts that were published about a claim, oldest first."""
    found = [
        Count(day(row["date"]), float(row["value"]), row["source"], row["note"])
        for row in store.published("measurements")
        if row["claim"] == claim and row["metric"] == "count" and row["date"]
    ]
    return sorted(found, key=lambda one: one.date)


def enclosing(found: Sequence[Count], when: datetime.date) -> tuple[Count, Count]:
    """Return the last count on or before a day and the first one after it.

    Parameters
    ----------
    found : sequence of Count
        Oldest first.
    when : date
        The day.

    Raises
    ------
    InputError
        When one side has none.

    Examples
    --------
    >>> some = [Count(day("2026-01"), 1.0, "a", ""), Count(day("2026-03"), 2.0, "b", "")]
    >>> [one.value for one in enclosing(some, day("2026-02"))]
    [1.0, 2.0]
    """
    before = [one for one in found if one.date <= when]
    after = [one for one in found if one.date > when]
    if not before or not after:
        raise InputError(f"no counts on both sides of {when}", fix="add a dated count")
    return before[-1], after[0]


def recipes() -> list[Recipes]:
    """Return the committed history of vLLM's nightly recipes, oldest first."""
    return [
        Recipes(
            day(row["date"]),
            row["commit"],
            *(int(row[name]) for name in ("nightly", "performance", "accuracy", "cards")),
        )
        for row in store.published(_RECIPES)
    ]


def months(when: datetime.date, since: datetime.date) -> float:
    """Return the time between two days in mean months of the Gregorian calendar.

    Parameters
    ----------
    when, since : date
        The later and the earlier day.

    Examples
    --------
    >>> round(months(day("2026-03-31"), day("2025-03-31")), 2)
    11.99
    """
    return (when - since).days / (365.2425 / 12)


def stairs(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return points of a count that changes all at once, so that a line through them is level.

    Parameters
    ----------
    points : sequence of (x, y)
        Where it changes, and to what.

    Examples
    --------
    >>> stairs([(0.0, 5.0), (2.0, 6.0)])
    [(0.0, 5.0), (2.0, 5.0), (2.0, 6.0)]
    """
    found = list(points[:1])
    for (_, before), (x, y) in itertools.pairwise(points):
        found += [(x, before), (x, y)]
    return found
