"""Sheets: files of answers, taken apart into rows.

Owns the forms such a file comes in: JSON lines, one JSON array, one object that holds a list, or a
single record. Does not own what a row means (``shapes``, ``answers``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from assay.bench.results import stream
from assay.errors import InputError
from assay.ledger import store

__all__ = ["rows"]

# Under what a file that is one object keeps its records.
_LISTS = ("records", "rows", "answers", "samples", "results", "responses", "items", "data")


def rows(file: Path) -> list[tuple[str, Any]]:
    """Return the rows of a file, each with its place.

    Parameters
    ----------
    file : Path
        UTF-8 text, packed or not; a byte order mark and any line ends are accepted.

    Returns
    -------
    list of (str, object)
        File and line or record, for messages; and the parsed value.

    Raises
    ------
    InputError
        When the file cannot be read, is a raw event stream, or is not JSON.
    """
    where = store.shown(file)
    text = _text(file, where)
    start = text.lstrip()
    if start.startswith(("data:", "event:")):
        raise InputError(
            "is a raw event stream, not records",
            where=where,
            fix="write one object a question, with its events as the list 'chunks'",
        )
    if start.startswith("["):
        content = store.parse_json(text, where=where)
        return [(f"{where}, record {i}", row) for i, row in enumerate(content, 1)]
    # Only "\n" ends a record: U+2028 and its like are legal inside JSON strings.
    lines = [(i, line) for i, line in enumerate(text.split("\n"), 1) if line.strip()]
    if lines and lines[0][1].strip() == "{":
        return _listed(store.parse_json(text, where=where), where)
    found = [(f"{where}, line {i}", _line(line, i, where, i == lines[-1][0])) for i, line in lines]
    return _listed(found[0][1], where) if len(found) == 1 else found


def _text(file: Path, where: str) -> str:
    data = stream.opened(file, where)
    try:
        text = bytes(data).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"is not UTF-8 text (byte {error.start})", where=where, fix="save it as UTF-8"
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _line(line: str, number: int, where: str, last: bool) -> Any:
    at = f"{where}, line {number}"
    try:
        return store.parse_json(line, where=at)
    except InputError as error:
        cut = last and number > 1 and not line.rstrip().endswith("}")
        fix = "the file was cut off: remove its last line" if cut else error.fix
        raise InputError(error.what, where=at, fix=fix) from None


def _listed(content: object, where: str) -> list[tuple[str, Any]]:
    """Return the records of one object: those in its list, or itself."""
    # What names an arm or a question is a record, whatever lists it has.
    holder = isinstance(content, dict) and not content.keys() & {"arm", "question_id"}
    for name in _LISTS:
        inside = content.get(name) if holder and isinstance(content, dict) else None
        if isinstance(inside, list) and all(isinstance(row, dict) for row in inside):
            return [(f"{where}, {name} {i}", row) for i, row in enumerate(inside, 1)]
    return [(f"{where}, line 1", content)]
