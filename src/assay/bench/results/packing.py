"""Packing: compressed result files, and what is no text at all, by their first bytes.

Owns telling them apart and unpacking what the standard library can unpack: gzip, bzip2, xz and,
where this Python has it, zstd. What comes out is written to a temporary file in small pieces and
never to memory, and stops at `MOST` bytes, so that a small file that unpacks to an endless one
costs a sentence and not the machine. Does not own opening files or reading what is in them.
"""

from __future__ import annotations

import importlib
import mmap
import tempfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

from assay.errors import InputError

__all__ = ["MOST", "Buffer", "inside", "refuse", "unpacked"]

Buffer = bytes | mmap.mmap

#: A file that unpacks to more is no benchmark's [B]: 5 times the largest that is looked after.
MOST = 1 << 30
#: Unpacked at a time [B], and kept in memory when there is no more [B].
_PIECE, _SMALL = 1 << 20, 4 << 20
#: First bytes of what can be unpacked -> (what it is called, module, class that reads it).
_PACKED = {
    b"\x1f\x8b": ("gzip", "gzip", "GzipFile"),
    b"BZh": ("bzip2", "bz2", "BZ2File"),
    b"\xfd7zXZ\x00": ("xz", "lzma", "LZMAFile"),
    b"\x28\xb5\x2f\xfd": ("zstd", "compression.zstd", "ZstdFile"),
}
#: First bytes of what is refused -> (what it is, what to do).
_REFUSED = {
    b"PK\x03\x04": ("is a zip archive", "unpack it first and give the file inside"),
    b"PK\x05\x06": ("is an empty zip archive", "give the file the benchmark wrote"),
    b"7z\xbc\xaf\x27\x1c": ("is a 7z archive", "unpack it first and give the file inside"),
    b"Rar!": ("is a rar archive", "unpack it first and give the file inside"),
    b"\x04\x22\x4d\x18": ("is compressed with lz4", "run unlz4 first"),
    b"PAR1": ("is a Parquet file", "give the JSON the benchmark wrote"),
    b"SQLite format 3\x00": ("is an SQLite database", "give the JSON the benchmark wrote"),
    b"\x89HDF": ("is an HDF5 file", "give the JSON the benchmark wrote"),
    b"%PDF": ("is a PDF", "give the JSON the benchmark wrote"),
    b"\xff\xfe": ("is UTF-16 text", "save it as UTF-8"),
    b"\xfe\xff": ("is UTF-16 text", "save it as UTF-8"),
}
#: Where a tar archive says that it is one [B].
_TAR = slice(257, 262)
#: Looked at to tell text from other bytes [B].
_HEAD = 4096


def inside(head: bytes) -> str | None:
    """Return by what a file is compressed, from its first bytes; None when by nothing.

    Examples
    --------
    >>> inside(bytes([0x1F, 0x8B, 8])), inside(b"{}")
    ('gzip', None)
    """
    return next((name for magic, (name, *_) in _PACKED.items() if head.startswith(magic)), None)


def refuse(data: Buffer, shown: str, *, unpacked: bool = False) -> None:
    """Refuse what is no text.

    Parameters
    ----------
    data : bytes or mmap
        The file's bytes, unpacked.
    shown : str
        The file's name, for messages.
    unpacked : bool
        Whether these bytes came out of a compressed file.

    Raises
    ------
    InputError
        When it is an archive, a database, a page, UTF-16 or other bytes that are no UTF-8 text.
    """
    head = data[:_HEAD]
    where = f"{shown}, unpacked" if unpacked else shown
    for magic, (what, fix) in _REFUSED.items():
        if head.startswith(magic):
            raise InputError(what, where=where, fix=fix)
    if head[_TAR] == b"ustar":
        raise InputError(
            "is a tar archive", where=where, fix="unpack it first and give the file inside"
        )
    if unpacked and inside(head):
        raise InputError("is compressed a second time", where=where, fix="unpack it first")
    start = head.lstrip()[:14].lower()
    if start.startswith((b"<!doctype html", b"<html")):
        raise InputError(
            "is an HTML page", where=where, fix="give the JSON, YAML or CSV the benchmark wrote"
        )
    if head[1:2] == b"\x00" or head[:1] == b"\x00":
        half = head[1:64:2].count(0) + head[0:64:2].count(0)
        utf_16 = head[:1] in (b"\x00", b"{", b"[") and half in range(16, 34)
        what, fix = (
            ("is UTF-16 text", "save it as UTF-8") if utf_16 else ("is binary, not text", _TEXT)
        )
        raise InputError(what, where=where, fix=fix)
    if b"\x00" in head:
        raise InputError("is binary, not text", where=where, fix=_TEXT)


_TEXT = "give the JSON, YAML, CSV or Markdown the benchmark wrote"


def unpacked(stream: IO[bytes], name: str, shown: str) -> Buffer:
    """Return what a compressed file holds.

    Parameters
    ----------
    stream : binary file
        Open at its start.
    name : str
        As `inside` names it.
    shown : str
        The file's name, for messages.

    Raises
    ------
    InputError
        When it is damaged, ends too early, unpacks to more than `MOST` bytes, or this Python
        cannot unpack it.
    """
    make = _maker(name, shown)
    failed: tuple[type[Exception], ...] = (OSError, EOFError, ValueError, zlib.error)
    module = importlib.import_module(next(m for n, m, _ in _PACKED.values() if n == name))
    for word in ("LZMAError", "ZstdError"):
        failed += (getattr(module, word),) if hasattr(module, word) else ()
    try:
        return _spilled(_pieces(make(stream)), shown)
    except EOFError:
        raise InputError(
            f"is cut off: the {name} data end too early", where=shown, fix="copy the file again"
        ) from None
    except failed as error:
        reason = " ".join(str(error).split())[:80]
        raise InputError(
            f"is no sound {name} file ({reason})", where=shown, fix="copy the file again"
        ) from None


def _maker(name: str, shown: str) -> Callable[[IO[bytes]], Any]:
    _, module, kind = next(entry for entry in _PACKED.values() if entry[0] == name)
    try:
        found = getattr(importlib.import_module(module), kind)
    except ImportError:
        raise InputError(
            f"is compressed with {name}, which this Python cannot unpack",
            where=shown,
            fix=f"run un{name} first" if name == "zstd" else "unpack it first",
        ) from None
    if name == "gzip":
        return lambda stream: found(fileobj=stream, mode="rb")
    return lambda stream: found(stream, "rb")


def _pieces(packed: Any) -> Iterator[bytes]:
    while piece := packed.read(_PIECE):
        yield piece


def _spilled(pieces: Iterator[bytes], shown: str) -> Buffer:
    """Return all pieces as one buffer, in memory only when they are few."""
    kept: list[bytes] = []
    total = 0
    with tempfile.TemporaryFile() as spill:
        for piece in pieces:
            total += len(piece)
            if total > MOST:
                raise InputError(
                    f"unpacks to more than {MOST >> 20:,} MiB, which no benchmark writes",
                    where=shown,
                    fix="give a part of it",
                )
            kept.append(piece)
            if total > _SMALL:
                spill.writelines(kept)
                kept.clear()
        if total <= _SMALL:
            return b"".join(kept)
        spill.flush()
        # The mapping keeps the nameless file alive until it is let go.
        return mmap.mmap(spill.fileno(), 0, access=mmap.ACCESS_READ)
