"""Tables: CSV, Markdown and SQL text as rows of cells.

Owns the text of a table of any benchmark: its header, its rows and their number, in bounded
memory, and where it stops being a table. A cell is text; what it means is the format's. Does not
own JSON (``documents``) or which benchmark wrote a table (``formats``).
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from assay.bench.results.packing import Buffer
from assay.errors import InputError

__all__ = ["Table", "is_table", "read", "refuse_misfit", "value"]

#: Text tables are read whole; beyond this they are no benchmark's [B].
_MOST = 64 << 20
#: And no more cells than this are kept [1].
_CELLS = 4_000_000
_INSERT = re.compile(
    r"insert\s+into\s+[`\"]?\w{1,60}[`\"]?\s*\(([^()]{1,20000})\)\s*values\s*", re.I
)
_SQL = re.compile(rb"\s*(?:create\s+table|insert\s+into)\b", re.I)
#: A value of an SQL row: quoted, with quotes doubled inside, or bare.
_VALUE = re.compile(r"\s*(?:'((?:[^']|'')*+)'|([^,()']{1,400}))\s*([,)])")
#: A number as tables write it; thousands may be set apart by commas.
_NUMBER = re.compile(
    r"[-+]?(?:\d{1,3}(?:,\d{3}){1,12}|\d{1,40})?(?:\.\d{0,40})?(?:[eE][-+]?\d{1,4})?"
)
#: Headers of tables of two columns.
_SHORT = (b"metric,value", b"metric;value", b"metric\tvalue")
_WORDS = {"nan": float("nan"), "inf": float("inf"), "infinity": float("inf")}


@dataclass(frozen=True, slots=True)
class Table:
    """The cells of a table.

    Parameters
    ----------
    kind : str
        ``csv``, ``markdown`` or ``sql``.
    lines : list of list of str
        All rows, the header first, without empty ones.
    """

    kind: str
    lines: list[list[str]]

    @property
    def names(self) -> list[str]:
        """The header."""
        return self.lines[0] if self.lines else []

    def rows(self, shown: str) -> list[dict[str, str]]:
        """Return the rows by column.

        Raises
        ------
        InputError
            When a row has more or fewer cells than the header, or the header names one twice.
        """
        names = self.names
        twice = next((n for n in names if n and names.count(n) > 1), None)
        if twice is not None:
            raise InputError(
                f"the header names column '{_short(twice)}' twice", where=shown, fix="keep one"
            )
        for number, row in enumerate(self.lines[1:], start=2):
            refuse_misfit(row, names, number, shown)
        return [dict(zip(names, row, strict=True)) for row in self.lines[1:]]


def refuse_misfit(row: Sequence[str], header: Sequence[str], number: int, shown: str) -> None:
    """Refuse a row that has more or fewer cells than its header.

    Parameters
    ----------
    row, header : sequence of str
        Cells.
    number : int
        The row's, from 1; empty rows do not count.
    shown : str
        The file's name, for messages.

    Raises
    ------
    InputError
        With the row's number.
    """
    if len(row) != len(header):
        raise InputError(
            f"row {number} has {len(row)} cells and the header {len(header)}",
            where=shown,
            fix="mend the row, or run the benchmark again",
        )


def value(cell: str) -> Any:
    """Return a cell as a number, a truth value or JSON where it is one, else as text.

    Examples
    --------
    >>> value("1,234.50"), value("7"), value("NaN"), value("[1, 2]"), value(""), value("v0.1")
    (1234.5, 7, nan, [1, 2], None, 'v0.1')
    """
    text = cell.strip()
    if not text or text.lower() in ("none", "null", "n/a"):
        return None
    if text.lower().lstrip("+-") in _WORDS:
        return -_WORDS["inf"] if text[0] == "-" else _WORDS[text.lower().lstrip("+-")]
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _NUMBER.fullmatch(text) and any(c.isdigit() for c in text):
        plain = text.replace(",", "")
        return int(plain) if plain.lstrip("+-").isdigit() else float(plain)
    if text[:1] in "[{":
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text


def is_table(start: bytes) -> bool:
    """Say whether a text that starts so is a table.

    Examples
    --------
    >>> is_table(b"a,b,c"), is_table(b"| a |"), is_table(b"hello")
    (True, True, False)
    """
    head = start.split(b"\n", 1)[0].strip()
    if head.startswith(b"|") or _SQL.match(start):
        return True
    several = max(head.count(mark) for mark in (b",", b";", b"\t")) >= 2
    return b"{" not in head and (several or head.lower() in _SHORT)


def read(data: Buffer, shown: str) -> Table:
    """Return the cells of a table.

    Parameters
    ----------
    data : bytes or mmap
        UTF-8 text.
    shown : str
        The file's name, for messages.

    Raises
    ------
    InputError
        When it is too long, not UTF-8, or not a table after all.
    """
    if len(data) > _MOST:
        raise InputError(
            f"is a table of more than {_MOST >> 20} MiB", where=shown, fix="give a part of it"
        )
    try:
        text = bytes(data[:]).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"is not UTF-8 text (byte {error.start})", where=shown, fix="save it as UTF-8"
        ) from None
    if text.lstrip().startswith("|"):
        return _markdown(text, shown)
    return _sql(text, shown) if _SQL.match(data[:200]) else _csv(text, shown)


def _csv(text: str, shown: str) -> Table:
    lines: list[list[str]] = []
    cells = 0
    head = text.lstrip().split("\n", 1)[0]
    # Ties go to the comma, which is what benchmarks write; spreadsheets may write others.
    mark = max(",;\t", key=head.count)
    longest = csv.field_size_limit(_MOST)
    try:
        for row in csv.reader(io.StringIO(text), delimiter=mark):
            if not any(cell.strip() for cell in row):
                continue
            cells = _counted(cells, row, shown)
            lines.append([cell.strip() for cell in row])
    except csv.Error as error:
        raise InputError(f"is not CSV: {error}", where=shown, fix="mend it") from None
    finally:
        csv.field_size_limit(longest)
    return Table("csv", lines)


def _markdown(text: str, shown: str) -> Table:
    lines: list[list[str]] = []
    cells = 0
    for line in text.splitlines():
        if not line.strip().startswith("|"):
            continue
        row = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if lines and all(set(cell) <= set("-: ") for cell in row):
            continue
        cells = _counted(cells, row, shown)
        width = len(lines[0]) if lines else len(row)
        lines.append((row + [""] * width)[:width])
    return Table("markdown", lines)


def _sql(text: str, shown: str) -> Table:
    """Read ``INSERT INTO table (names) VALUES (row), (row);`` of one table."""
    lines: list[list[str]] = []
    cells = 0
    for found in _INSERT.finditer(text):
        names = [name.strip().strip('`"') for name in found[1].split(",")]
        if lines and names != lines[0]:
            raise InputError(
                "holds rows of several tables", where=shown, fix="give those of one table"
            )
        if not lines:
            lines.append(names)
        at = found.end()
        while text[at : at + 1] == "(":
            row, at = _values(text, at + 1, shown)
            cells = _counted(cells, row, shown)
            lines.append(row)
            at += len(text[at : at + 40]) - len(text[at : at + 40].lstrip(" \t\r\n,"))
    if len(lines) < 2:
        raise InputError("is SQL without an INSERT of rows", where=shown, fix="give the rows")
    return Table("sql", lines)


def _values(text: str, at: int, shown: str) -> tuple[list[str], int]:
    row: list[str] = []
    while found := _VALUE.match(text, at):
        quoted, bare, end = found.groups()
        row.append(bare.strip() if quoted is None else quoted.replace("''", "'"))
        at = found.end()
        if end == ")":
            return row, at
    line = text.count("\n", 0, at) + 1
    raise InputError("is cut off inside a row", where=f"{shown}, line {line}", fix="mend it")


def _counted(cells: int, row: Sequence[str], shown: str) -> int:
    cells += len(row)
    if cells > _CELLS:
        raise InputError(
            f"is a table of more than {_CELLS:,} cells", where=shown, fix="give a part of it"
        )
    return cells


def _short(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)[:40]
