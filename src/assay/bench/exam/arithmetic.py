"""Arithmetic: questions drawn from a seed, with worked solutions and a grader.

Owns drawing sums of three levels, writing the scratchpad that solves one step by step, the text in
which a model is asked, and reading and grading what it answered. Does not own asking (``exam``) or
training (``trainer``).

A level is a number of terms: 2, 4 or 6 numbers from 1 to 29, added and subtracted so that no
running total is negative. Every step of every level is the same small sum, so a model that works in
steps needs one skill for all levels, and a model that answers at once needs another for each.
Nobody holds a licence on such questions, and a fresh seed gives fresh ones.

One expression in five belongs to the *exam* part, by a checksum of its text, the others to the
*course*: what a model is trained on and what it is asked never meet, whatever the seeds.
"""

from __future__ import annotations

import dataclasses
import random
import re
import zlib
from collections.abc import Sequence
from typing import Literal

from assay.errors import InputError

__all__ = ["LEVELS", "PLAIN", "Question", "ask", "grade", "questions", "read", "scratchpad"]

# Terms of a question by level.
LEVELS = {1: 2, 2: 4, 3: 6}
# How an instruct model is asked; the small model of ``trainer`` is given the bare expression.
PLAIN = "What is {expression}? Give the result as one number, alone on the last line."
_LARGEST = 29
_PARTS = 5
_NUMBER = re.compile(r"(?<![\d.])-?\d[\d,]*(?:\.\d+)?")


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """One sum.

    Parameters
    ----------
    id : str
        Level and number, for example ``2-0017``.
    level : int
        1, 2 or 3.
    terms : tuple of int
        The numbers with their signs; the first is positive.
    """

    id: str
    level: int
    terms: tuple[int, ...]

    @property
    def expression(self) -> str:
        """The sum as it is written, for example ``37+45-12+8``."""
        return f"{self.terms[0]}" + "".join(f"{term:+d}" for term in self.terms[1:])

    @property
    def result(self) -> int:
        """The right answer."""
        return sum(self.terms)

    @property
    def reference(self) -> str:
        """The right answer as a text."""
        return f"{self.result}"

    def asked(self, template: str) -> str:
        """Return the text in which a model is asked; see :func:`ask`."""
        return ask(self, template)

    def marked(self, text: str) -> tuple[str | None, bool]:
        """Return what an answer's text says and whether it is right; see :func:`grade`."""
        answer = read(text)
        return answer, grade(self, answer)


def questions(
    count: int,
    *,
    seed: int,
    levels: Sequence[int] = (1, 2, 3),
    part: Literal["exam", "course"] = "exam",
    repeat: bool = False,
) -> list[Question]:
    """Draw questions, the levels in turn.

    Parameters
    ----------
    count : int
        How many [1].
    seed : int
        The same seed gives the same questions.
    levels : sequence of int
        Levels to draw from.
    part : "exam" or "course"
        What a model is asked, or what it is trained on.
    repeat : bool
        Whether an expression may come twice.

    Returns
    -------
    list of Question
        In the order drawn.

    Raises
    ------
    InputError
        When a level does not exist, or there are not that many questions of a level.

    Examples
    --------
    >>> [q.expression for q in questions(3, seed=7)] == [q.expression for q in questions(3, seed=7)]
    True
    >>> [q.level for q in questions(4, seed=7)]
    [1, 2, 3, 1]
    """
    unknown = [level for level in levels if level not in LEVELS]
    if unknown or not levels:
        raise InputError(
            f"no level {unknown[0] if unknown else '(none given)'}", fix="use 1, 2 or 3"
        )
    drawn = random.Random(seed)
    seen: set[str] = set()
    found: list[Question] = []
    for number in range(count):
        level = levels[number % len(levels)]
        for _ in range(1000):
            terms = _terms(drawn, LEVELS[level])
            question = Question(f"{level}-{number:04d}", level, terms)
            fresh = repeat or question.expression not in seen
            if fresh and _part(question.expression) == part:
                break
        else:
            raise InputError(
                f"no further question of level {level} after {number} questions",
                fix="ask for fewer, or add a higher level",
            )
        seen.add(question.expression)
        found.append(question)
    return found


def _part(expression: str) -> str:
    return "course" if zlib.crc32(expression.encode()) % _PARTS else "exam"


def _terms(drawn: random.Random, count: int) -> tuple[int, ...]:
    """Draw terms; a subtraction never goes below 0."""
    terms = [drawn.randint(1, _LARGEST)]
    total = terms[0]
    for _ in range(count - 1):
        term = drawn.randint(1, _LARGEST)
        if drawn.random() < 0.5 and term <= total:
            term = -term
        terms.append(term)
        total += term
    return tuple(terms)


def scratchpad(question: Question) -> str:
    """Return the worked solution: one small sum a step.

    Examples
    --------
    >>> scratchpad(Question("2-0000", 2, (37, 45, -12, 8)))
    '37+45=82;82-12=70;70+8=78'
    """
    total = question.terms[0]
    steps = []
    for term in question.terms[1:]:
        steps.append(f"{total}{term:+d}={total + term}")
        total += term
    return ";".join(steps)


def ask(question: Question, template: str = PLAIN) -> str:
    """Return the text in which a model is asked.

    Examples
    --------
    >>> ask(Question("1-0000", 1, (3, 4)), "{expression}")
    '3+4'
    """
    return template.format(expression=question.expression)


def read(text: str) -> str | None:
    """Return the number an answer ends with, without separators; None when it has none.

    A model that repeats the question, shows steps, or writes *the result is 1,234.* is read as it
    means it: the last number stands.

    Examples
    --------
    >>> read("37 + 45 = 82, so the result is **1,082**."), read("I cannot tell")
    ('1082', None)
    """
    numbers = _NUMBER.findall(text.replace("\N{MINUS SIGN}", "-"))
    return numbers[-1].replace(",", "") if numbers else None


def grade(question: Question, answer: str | None) -> bool:
    """Say whether an answer, as :func:`read` gives it, is right.

    Examples
    --------
    >>> seven = Question("1-0000", 1, (3, 4))
    >>> grade(seven, "7"), grade(seven, "7.0"), grade(seven, "8"), grade(seven, None)
    (True, True, False, False)
    """
    return answer is not None and float(answer) == question.result
