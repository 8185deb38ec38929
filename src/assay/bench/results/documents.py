"""Documents: JSON text of any size as values, in bounded memory.

Owns the text: one document, several one after another (JSON lines, appended runs), bare ``NaN``
and ``Infinity``, keys given twice, and where the text stops being JSON. A document that is longer
than `WHOLE` bytes is taken apart piece by piece: lists of numbers become packed arrays and long
strings are cut, so that a file needs little more memory than its numbers do; and one that would
need more than `MEMORY` is refused. Does not own the bytes (``stream``) or what the values mean.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Iterator
from typing import Any

from assay.bench.results.packing import Buffer
from assay.errors import InputError

__all__ = ["CUT", "DEPTH", "MEMORY", "WHOLE", "Document", "Twice", "documents"]

#: Text pieces up to this size are parsed in one call [B].
WHOLE = 1 << 20
#: What the values of one document may take [B]; a detailed file of 1 GB stays below.
MEMORY = 448 << 20
#: Longest string kept of a large document; only whether a text is empty matters [characters].
CUT = 240
#: Nesting that no benchmark reaches; a deeper text is refused, not followed.
DEPTH = 24

_SPACE = re.compile(rb"[ \t\r\n]*")
# A string may lack its closing quote: then the text was cut off, and the match says so.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+', re.DOTALL)
_MARKS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+|[\[\]{}]', re.DOTALL)
_FLAT = re.compile(rb'\[[^\[\]{}"]*+\]')
_SCALAR = re.compile(rb"[-+.\w]+")


class Twice:
    """The values of a key that one object names more than once."""

    __slots__ = ("values",)

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    @property
    def agree(self) -> bool:
        """Whether all values are the same."""
        # As text: NaN is not equal to itself.
        return len({repr(value) for value in self.values}) == 1


class Document:
    """One JSON value of a file.

    Parameters
    ----------
    value : object
        The value; keys given twice hold a `Twice`.
    line : int
        Line of the file it starts on, from 1.
    """

    __slots__ = ("line", "value")

    def __init__(self, value: Any, line: int) -> None:
        self.value, self.line = value, line


#: Makes less of an item of a long list: the list's key and the item in, what is kept out.
Lean = Callable[[str, Any], Any]


def documents(data: Buffer, shown: str, lean: Lean | None = None) -> Iterator[Document]:
    """Yield the JSON values of a text, one after another.

    Parameters
    ----------
    data : bytes or mmap
        UTF-8 text.
    shown : str
        The file's name, for messages.
    lean : callable, optional
        Called with the key of a long list and each of its items; what it returns is kept.

    Raises
    ------
    InputError
        Where the text stops being JSON, with line and column, or a document needs too much memory.

    Examples
    --------
    >>> [d.value for d in documents(b'{"a": 1} {"a": Infinity}', "x")]
    [{'a': 1}, {'a': inf}]
    """
    reader = _Reader(data, shown, lean)
    at = reader.skip(3 if data[:3] == b"\xef\xbb\xbf" else 0)
    line, seen = 1, 0
    while at < len(data):
        line += data[seen:at].count(b"\n")
        seen = at
        reader.held = 0
        value, at = reader.line(at) or reader.value(at, 0)
        yield Document(value, line)
        at = reader.skip(at)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: dict[str, list[Any]] = {}
        for key, value in pairs:
            seen.setdefault(key, []).append(value)
        result = {k: v[0] if len(v) == 1 else Twice(v) for k, v in seen.items()}
    for key, value in result.items():
        if isinstance(value, str) and len(value) > CUT:
            result[key] = value[:CUT]
    return result


_decode = json.JSONDecoder(object_pairs_hook=_pairs).decode


class _Reader:
    def __init__(self, data: Buffer, shown: str, lean: Lean | None = None) -> None:
        self.data, self.shown, self.size, self.lean = data, shown, len(data), lean
        self.held = 0

    def hold(self, value: Any) -> None:
        """Count what a value of a long document takes."""
        self.held += _weight(value)
        if self.held > MEMORY:
            raise InputError(
                f"needs more than {MEMORY >> 20} MiB of memory when it is read",
                where=self.shown,
                fix="give a part of it, or a result without per-request data",
            )

    def skip(self, at: int) -> int:
        match = _SPACE.match(self.data, at)
        return match.end() if match else at

    def fail(
        self, at: int, what: str, fix: str = "mend it or run the benchmark again"
    ) -> InputError:
        at = min(at, self.size)
        start = self.data.rfind(b"\n", 0, at) + 1
        line = 1 + self._lines(start)
        head = self.data[start : start + 7]
        if head in (b"<<<<<<<", b"=======", b">>>>>>>"):
            what, fix = f"unresolved merge marker {head[:7].decode()}", "resolve the merge"
        place = f"{self.shown}, line {line}, column {at - start + 1}"
        return InputError(f"not JSON: {what}", where=place, fix=fix)

    def _lines(self, end: int) -> int:
        step = 1 << 22
        return sum(self.data[a : min(a + step, end)].count(b"\n") for a in range(0, end, step))

    def value(self, at: int, depth: int, key: str = "") -> tuple[Any, int]:
        """Return the value that starts at a byte, and where it ends."""
        if depth > DEPTH:
            raise self.fail(at, f"nested deeper than {DEPTH} levels", "give a benchmark's result")
        mark = self.data[at : at + 1]
        if mark == b'"':
            return self.text(at)
        if mark == b"[" and (flat := _FLAT.match(self.data, at)):
            return self.flat(at, flat.end()), flat.end()
        if mark in (b"{", b"["):
            end = self.end(at)
            if end is not None:
                return self.whole(at, end), end
            return self.members(at, depth) if mark == b"{" else self.items(at, depth, key)
        match = _SCALAR.match(self.data, at)
        if match is None:
            found = "the text ends too early" if at >= self.size else f"unexpected {_shown(mark)}"
            raise self.fail(at, found)
        if match.end() - at > 400:
            raise self.fail(at, "a number of more than 400 digits")
        return self.whole(at, match.end()), match.end()

    def line(self, at: int) -> tuple[Any, int] | None:
        """Return a value that fills the rest of one short line, as in JSON lines."""
        end = self.data.find(b"\n", at, min(at + WHOLE, self.size))
        if end < 0 or self.data[end - 1 : end] not in (b"}", b"\r"):
            return None
        try:
            return _decode(self.data[at:end].decode("utf-8")), end
        except (ValueError, RecursionError):
            return None  # the slow way says what is wrong, or finds a value of several lines

    def end(self, at: int) -> int | None:
        """Return where a short object or list ends; None when it is long or never does."""
        depth, limit = 0, at + WHOLE
        for match in _MARKS.finditer(self.data, at, min(limit, self.size)):
            mark = self.data[match.start()]
            if mark in b"[{":
                depth += 1
            elif mark in b"]}":
                depth -= 1
                if depth == 0:
                    return match.end()
        return None

    def whole(self, at: int, end: int) -> Any:
        try:
            return _decode(self.data[at:end].decode("utf-8"))
        except json.JSONDecodeError as error:
            # Counted in characters; in bytes it may lie further on, never before.
            raise self.fail(at + error.pos, error.msg.lower()) from None
        except UnicodeDecodeError as error:
            raise self.fail(at + error.start, "not UTF-8 text", "save it as UTF-8") from None
        except RecursionError:
            raise self.fail(at, "nested too deeply", "give a benchmark's result") from None
        except ValueError:  # an integer beyond Python's limit of digits
            raise self.fail(at, "a number has too many digits") from None

    def text(self, at: int) -> tuple[str, int]:
        match = _STRING.match(self.data, at)
        if match is None or match.end() - at < 2 or self.data[match.end() - 1] != ord('"'):
            raise self.fail(self.size, "the text ends inside a string")
        return str(self.whole(at, match.end()))[:CUT], match.end()

    def flat(self, at: int, end: int) -> list[Any] | array[float]:
        """Return a list without strings or inner lists, packed when all of it is numbers."""
        if end - at <= WHOLE:
            return _packed(self.whole(at, end))
        result: list[Any] | array[float] = array("d")
        start = at + 1
        while start < end:
            stop = self.data.find(b",", min(start + WHOLE, end), end)
            stop = end - 1 if stop < 0 else stop
            if not self.data[start:stop].strip():
                raise self.fail(start, "a value is missing between commas")
            try:
                text = self.data[start:stop].decode("utf-8")
                piece = _packed(_decode(f"[{text}]"))
            except json.JSONDecodeError as error:
                raise self.fail(start + max(error.pos - 1, 0), error.msg.lower()) from None
            except ValueError:
                raise self.fail(start, "not a list of numbers") from None
            if isinstance(result, array) and not isinstance(piece, array):
                result = list(result)
            result.extend(piece)
            self.hold(piece)
            start = stop + 1
        return result

    def items(self, at: int, depth: int, key: str) -> tuple[list[Any], int]:
        result: list[Any] = []
        if self.data.find(b"]", at) < 0:  # told at once, and not after millions of items
            raise self.fail(self.size, "the text ends inside a list")
        place = self.skip(at + 1)
        if self.data[place : place + 1] == b"]":
            return result, place + 1
        while True:
            value, place = self.value(place, depth + 1)
            value = value if self.lean is None else self.lean(key, value)
            self.hold(value)
            result.append(value)
            place, closed = self.after(place, b"]", "a list")
            if closed:
                return result, place

    def members(self, at: int, depth: int) -> tuple[dict[str, Any], int]:
        pairs: list[tuple[str, Any]] = []
        place = self.skip(at + 1)
        if self.data[place : place + 1] == b"}":
            return {}, place + 1
        while True:
            if self.data[place : place + 1] != b'"':
                found = "ends inside an object" if place >= self.size else "a key is missing"
                raise self.fail(place, f"the text {found}" if place >= self.size else found)
            key, place = self.text(place)
            place = self.skip(place)
            if self.data[place : place + 1] != b":":
                raise self.fail(place, f"no ':' after the key '{key[:40]}'")
            value, place = self.value(self.skip(place + 1), depth + 1, key)
            self.hold(key)
            pairs.append((key, value))
            place, closed = self.after(place, b"}", "an object")
            if closed:
                return _pairs(pairs), place

    def after(self, at: int, close: bytes, inside: str) -> tuple[int, bool]:
        """Step over a comma or a closing mark."""
        at = self.skip(at)
        mark = self.data[at : at + 1]
        if mark == close:
            return at + 1, True
        if mark == b",":
            return self.skip(at + 1), False
        found = (
            f"the text ends inside {inside}" if at >= self.size else f"unexpected {_shown(mark)}"
        )
        raise self.fail(at, found)


def _shown(mark: bytes) -> str:
    return f"'{mark.decode('ascii')}'" if mark.isascii() and mark.isalnum() else repr(mark)[1:]


def _packed(values: list[Any]) -> list[Any] | array[float]:
    if not values or not set(map(type, values)) <= {int, float}:
        return values
    try:
        return array("d", values)
    except (TypeError, OverflowError):
        return values


def _weight(value: Any) -> int:
    """Return about what a value takes in memory [B]."""
    if isinstance(value, array):
        return 64 + value.itemsize * len(value)
    if isinstance(value, str):
        return 56 + len(value)
    if isinstance(value, list):
        return 64 + sum(8 + _weight(v) for v in value)
    if isinstance(value, dict):
        return 232 + sum(112 + _weight(v) for v in value.values())
    return 32
