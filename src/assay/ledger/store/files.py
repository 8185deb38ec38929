"""Files: where things live, and reading and writing them whole.

Owns the project's root, text, JSON and CSV, atomic writing and content digests. Does not own YAML
(``documents``) or records.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.errors import InputError

_ROOT = "ASSAY_ROOT"


def root() -> Path:
    """Return the project's root: ``ASSAY_ROOT``, the checkout, or the nearest parent with ``data``.

    Raises
    ------
    InputError
        When no such folder exists.
    """
    named = os.environ.get(_ROOT)
    if named:
        if not Path(named).is_dir():
            raise InputError(f"no folder '{named}'", where=_ROOT, fix="name the project's folder")
        return Path(named).resolve()
    here = Path(__file__).resolve().parents[4]
    for folder in (here, Path.cwd(), *Path.cwd().parents):
        if (folder / "data" / "claims").is_dir():
            return folder
    raise InputError(
        "no Assay project found", where=str(Path.cwd()), fix=f"run inside a checkout or set {_ROOT}"
    )


def path(*parts: str) -> Path:
    """Return a path below the project's root."""
    return root().joinpath(*parts)


def shown(file: Path) -> str:
    """Return a path as messages show it: relative to the project's root where possible."""
    with contextlib.suppress(ValueError, InputError):
        return file.resolve().relative_to(root()).as_posix()
    return str(file)


def listed(folder: Path, pattern: str) -> list[Path]:
    """Return the matching files of a folder, sorted, without what a killed writer left behind."""
    return sorted(file for file in folder.glob(pattern) if not file.name.startswith("."))


def read_text(file: Path) -> str:
    """Return a UTF-8 text file.

    Raises
    ------
    InputError
        When it is missing, a folder, unreadable, or not UTF-8.
    """
    try:
        return file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError("no such file", where=shown(file), fix="check the name") from None
    except IsADirectoryError:
        raise InputError("is a folder", where=shown(file), fix="name a file") from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"is not UTF-8 text (byte {error.start})", where=shown(file), fix="save it as UTF-8"
        ) from None
    except OSError as error:
        raise InputError(
            f"cannot be read ({error.strerror})", where=shown(file), fix="check its permissions"
        ) from None


def read_json(file: Path) -> Any:
    """Return a parsed JSON file; bare ``NaN`` and ``Infinity`` are refused.

    Raises
    ------
    InputError
        When it is not JSON, with the line; unresolved merge markers are named.
    """
    return parse_json(read_text(file), where=shown(file))


def parse_json(text: str, *, where: str) -> Any:
    """Parse JSON text; see `read_json`."""
    refuse_merge_markers(text, where)

    def refuse(constant: str) -> Any:
        raise InputError(f"not JSON: bare {constant}", where=where, fix="write null or a number")

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise InputError(f"duplicate key '{twice}'", where=where, fix="keep one of the two")
        return result

    try:
        return json.loads(text, parse_constant=refuse, object_pairs_hook=distinct)
    except json.JSONDecodeError as error:
        raise InputError(
            f"not JSON: {error.msg}", where=f"{where}, line {error.lineno}", fix="mend the file"
        ) from None
    except RecursionError:
        raise InputError("not JSON: nested too deeply", where=where, fix="mend the file") from None
    except ValueError as error:  # an integer of thousands of digits
        raise InputError(f"not JSON: {error}", where=where, fix="mend the number") from None


def refuse_merge_markers(text: str, where: str) -> None:
    """Refuse a text in which a merge was not resolved, with the line."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(("<<<<<<< ", ">>>>>>> ")):
            raise InputError(
                f"unresolved merge marker '{line[:20]}'",
                where=f"{where}, line {number}",
                fix="resolve the merge",
            )


def read_csv(file: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file as text; numbers are the caller's business.

    Raises
    ------
    InputError
        When it is empty, a column appears twice, or a row does not fit the header.
    """
    text = read_text(file)
    refuse_merge_markers(text, shown(file))
    reader = csv.DictReader(io.StringIO(text), strict=True)
    rows = []
    try:
        header = list(reader.fieldnames or ())
        twice = sorted({name for name in header if header.count(name) > 1})
        if not header or twice:
            problem = f"column '{twice[0]}' appears twice" if twice else "is empty"
            raise InputError(problem, where=f"{shown(file)}, line 1", fix="mend the header")
        for row in reader:
            if None in row or None in row.values():
                raise InputError(
                    "row does not fit the header",
                    where=f"{shown(file)}, line {reader.line_num}",
                    fix="quote commas and fill every cell",
                )
            rows.append(row)
    except csv.Error as error:
        raise InputError(
            f"not CSV: {error}", where=f"{shown(file)}, line {reader.line_num}", fix="mend the row"
        ) from None
    return rows


def read_bytes(file: Path) -> bytes:
    """Return a file's bytes.

    Raises
    ------
    InputError
        When it cannot be read.
    """
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(
            f"cannot be read ({error.strerror})", where=shown(file), fix="check the name"
        ) from None


def write(file: Path, text: str) -> bool:
    """Write a text file atomically; return whether its content changed.

    Parameters
    ----------
    file : Path
        Target; missing parent folders are made.
    text : str
        New content, written as UTF-8.

    Raises
    ------
    InputError
        When the file cannot be written.
    """
    return write_bytes(file, text.encode())


def write_bytes(file: Path, content: bytes) -> bool:
    """Write a file atomically; return whether its content changed.

    Parameters
    ----------
    file : Path
        Target; missing parent folders are made.
    content : bytes
        New content.

    Raises
    ------
    InputError
        When the place cannot be written.
    """
    with contextlib.suppress(OSError):
        if file.read_bytes() == content:
            return False
    name = ""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # The name matches no pattern that readers look for, should the process die here.
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=".writing-")
        with os.fdopen(handle, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        os.chmod(name, 0o644)
        os.replace(name, file)
    except BaseException as error:
        if name:
            with contextlib.suppress(OSError):
                os.unlink(name)
        if isinstance(error, OSError):
            raise InputError(
                f"cannot be written ({error.strerror})", where=shown(file), fix="check the folder"
            ) from None
        raise
    return True


def canonical(value: Any) -> Any:
    """Return a JSON value with whole numbers in full and others to 12 significant digits."""
    if isinstance(value, Mapping):
        return {str(key): canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value]
    if isinstance(value, float):
        # A whole number is a count, of bytes for example, and is never rounded. Above 2**53 a
        # float no longer holds every whole number.
        rounded = value if value.is_integer() else float(f"{value:.12g}")
        return int(rounded) if rounded.is_integer() and abs(rounded) < 2**53 else rounded
    return value


def json_text(value: Any) -> str:
    """Return the canonical JSON text of a value."""
    return (
        json.dumps(canonical(value), indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
        + "\n"
    )


def digest(content: Path | str | bytes) -> str:
    """Return the SHA-256 of a file (a path), a text or bytes, as hex.

    Raises
    ------
    InputError
        When the file cannot be read.
    """
    if isinstance(content, Path):
        try:
            with content.open("rb") as handle:
                return hashlib.file_digest(handle, "sha256").hexdigest()
        except OSError as error:
            raise InputError(
                f"cannot be read ({error.strerror})", where=shown(content), fix="check the name"
            ) from None
    data = content.encode() if isinstance(content, str) else content
    return hashlib.sha256(data).hexdigest()
