"""Faults: what can be wrong with an arm of a reasoning experiment, or with the pair.

Owns the permanent names of the rules, how grave they are, what an error makes of the comparison,
and the share of an arm that may be faulty. Does not own finding faults (``arms``, ``censoring``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["MOSTLY", "OUTCOMES", "TOLERATED", "Problem", "Severity", "graded", "of"]

# Share of an arm that may be censored, or of the other mode, before it is no longer that arm.
TOLERATED = 0.05

# Share from which an arm was not tested at all.
MOSTLY = 0.5

Severity = Literal["error", "warning", "note"]

# What an error of each rule makes of the comparison, the gravest first.
OUTCOMES = {
    "flag-ignored": "not-exercised",
    "silent-fallback": "not-exercised",
    "off-arm-reasons": "not-comparable",
    "mislabelled": "not-comparable",
    "different-setup": "not-comparable",
    "different-questions": "not-comparable",
    "duplicate-records": "not-comparable",
    "truncation": "censored",
    "unequal-budgets": "censored",
    "empty-answers": "censored",
    "partial-fallback": "censored",
    "unparsed-answers": "censored",
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


def of(part: int, whole: int) -> str:
    """Return a part of a whole in words.

    Examples
    --------
    >>> of(3, 6)
    '3 of 6 (50.0%)'
    """
    return f"{part} of {whole} ({part / whole:.1%})"


def graded(share: float) -> Severity:
    """Return how grave it is that a share of an arm is faulty."""
    return "error" if share > TOLERATED else "warning"
