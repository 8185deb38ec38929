"""Fields: values of an expected kind out of an object somebody else wrote.

Owns the border between a file and the rest: a number that is text, missing, named twice, not
finite, negative or absurd becomes None, and the reason a problem. Does not own what a field means.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from typing import Any

from assay.bench.results.documents import Twice
from assay.bench.results.problems import Log

__all__ = ["DUST", "LARGEST", "Fields", "magnitude"]

#: No benchmark counts or times beyond this: 10**15 tokens take 100,000 years at 300 tok/s.
LARGEST = 1e15
#: Clock arithmetic leaves dust around zero [in the field's unit]; it is not a negative time.
DUST = 1e-6


def magnitude(value: float) -> float:
    """Return a number, with dust below zero taken as zero.

    Examples
    --------
    >>> magnitude(-1e-9)
    0.0
    """
    return 0.0 if -DUST <= value < 0 else value


class Fields:
    """An object of a file, read by kind.

    Parameters
    ----------
    content : mapping
        As the file has it.
    log : Log
        Where problems go.
    where : str
        Path of this object in the file, for messages.
    """

    __slots__ = ("content", "log", "where")

    def __init__(self, content: object, log: Log, where: str = "") -> None:
        self.content: Mapping[str, Any] = content if isinstance(content, dict) else {}
        self.log, self.where = log, where
        for name, value in self.content.items():
            if isinstance(value, Twice):
                same = (
                    "with the same value" if value.agree else "with different values: none is used"
                )
                log.add("file.duplicate-key", f"'{self.path(name)}' is named twice, {same}")

    def path(self, name: object) -> str:
        """Return a field's name as a message gives it."""
        return f"{self.where}.{str(name)[:60]}" if self.where else str(name)[:60]

    def raw(self, *names: str) -> Any:
        """Return the first of some fields that is there and is said once."""
        for name in names:
            value = self.content.get(name)
            if isinstance(value, Twice):
                value = value.values[0] if value.agree else None
            if value is not None:
                return value
        return None

    def has(self, *names: str) -> bool:
        """Say whether one of some fields is there with a value."""
        return self.raw(*names) is not None

    def number(self, *names: str, quiet: bool = False) -> float | None:
        """Return a finite, not negative number, or None.

        Parameters
        ----------
        *names : str
            Names of the field, the newest first.
        quiet : bool
            Say nothing about a value that is no such number: the caller does.
        """
        for name in names:
            value = self.raw(name)
            if value is None:
                continue
            rule, message = _fault(value)
            if not rule:
                return magnitude(float(value))
            if not quiet:
                self.log.add(rule, f"'{self.path(name)}' {message}")
            return None
        return None

    def told(self, *names: str) -> float | None:
        """Return a number that may be written as text, as ``--metadata`` writes every value."""
        for name in names:
            value = self.raw(name)
            if isinstance(value, str):
                try:
                    number = float(value)
                except ValueError:
                    return self.number(name)
                return Fields({name: number}, self.log, self.where).number(name)
            if value is not None:
                return self.number(name)
        return None

    def count(self, *names: str) -> int | None:
        """Return a whole number, or None."""
        value = self.number(*names)
        if value is None:
            return None
        if value != int(value):
            self.log.add("number.type", f"'{self.path(names[0])}' is not a whole number; not used")
            return None
        return int(value)

    def text(self, *names: str) -> str | None:
        """Return a text, or None."""
        value = self.raw(*names)
        return value if isinstance(value, str) and value else None

    def part(self, *names: str) -> Fields:
        """Return an inner object; an empty one when it is not there."""
        for name in names:
            value = self.raw(name)
            if isinstance(value, dict):
                return Fields(value, self.log, self.path(name))
        return Fields({}, self.log, self.path(names[0]))

    def sequence(self, *names: str) -> list[Any] | array[float] | None:
        """Return a list, or None."""
        value = self.raw(*names)
        if value is not None and not isinstance(value, list | array):
            self.log.add("number.type", f"'{self.path(names[0])}' is not a list; not used")
            return None
        return value


def _fault(value: object) -> tuple[str, str]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "number.type", f"is {_kind(value)}, not a number; not used"
    if isinstance(value, float) and not math.isfinite(value):
        return "number.not-finite", f"is {value}, which is not a measurement; not used"
    if abs(value) > LARGEST:
        return "number.huge", f"is beyond {LARGEST:.0e}, more than can be measured; not used"
    if value < -DUST:
        return "number.negative", "is below zero, which no time, count or rate can be"
    return "", ""


def _kind(value: object) -> str:
    kinds = {str: "text", bool: "a truth value", dict: "an object", list: "a list"}
    return kinds.get(type(value), "a list")
