"""Contrast: two arms on the same questions, ready to be compared.

Owns pairing by question, how a comparison is made (level, margin, seed, prices), and what one
record contributes: its time and its grade. Does not own accuracy (``gain``), ratios and rates
(``expense``), whether the arms are what they are called (``arms``) or the verdict (``reasoning``).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from assay.bench.reasoning.answers import Answer
from assay.ledger.stats import Interval

__all__ = ["Pairs", "Prices", "Settings", "grade", "seconds", "shown"]


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


def seconds(answer: Answer) -> float | None:
    """Return how long an answer took [s]; None when the record does not say."""
    if answer.latency is None and answer.start is not None and answer.end is not None:
        return answer.end - answer.start
    return answer.latency


def grade(answer: Answer) -> float | None:
    """Return 1 for a right answer, 0 for a wrong or censored one, None for an ungraded one."""
    if answer.correct is None:
        return 0.0 if answer.censored else None
    return float(answer.correct)


def shown(interval: Interval) -> dict[str, Any]:
    """Return an interval for JSON: an end that does not exist is null."""
    found = dataclasses.asdict(interval)
    for key in ("low", "high"):
        if not math.isfinite(found[key]):
            found[key] = None
    return found
