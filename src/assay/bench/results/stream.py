"""Stream: the bytes of a result file, of any size, without reading them into memory.

Owns opening a file, through the unpacking of ``packing`` when it is compressed, and saying in one
sentence why it cannot be read. Does not own what the bytes mean (``documents``, ``tables``).
"""

from __future__ import annotations

import io
import mmap
import re
from pathlib import Path
from typing import IO

from assay.bench.results import packing
from assay.bench.results.packing import Buffer
from assay.errors import InputError

__all__ = ["opened"]

_SPACE = re.compile(rb"[ \t\r\n]*")
#: Read from what cannot be mapped [B].
_PIPE = 256 << 20
_BOM = b"\xef\xbb\xbf"


def opened(file: Path, shown: str) -> Buffer:
    """Return a file's bytes, unpacked, without reading them into memory.

    Raises
    ------
    InputError
        When it is missing, a folder, empty, damaged or not text.
    """
    try:
        if file.is_dir():
            raise InputError("is a folder", where=shown, fix="name a result file")
        with file.open("rb") as stream:
            data = _mapped(stream, shown)
            name = packing.inside(data[:8])
            if name is not None:
                packed = stream if isinstance(data, mmap.mmap) else io.BytesIO(data)
                data = packing.unpacked(packed, name, shown)
    except FileNotFoundError:
        raise InputError("no such file", where=shown, fix="check the name") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot be read ({reason})", where=shown, fix="check it") from None
    packing.refuse(data, shown, unpacked=name is not None)
    if _blank(data):
        raise InputError("is empty", where=shown, fix="run the benchmark to its end")
    return data


def _mapped(stream: IO[bytes], shown: str) -> Buffer:
    try:
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:  # an empty file cannot be mapped
        return b""
    except OSError:  # a pipe cannot be mapped either
        data = stream.read(_PIPE + 1)
    if len(data) > _PIPE:
        what = f"is a pipe or device with more than {_PIPE >> 20} MiB"
        raise InputError(what, where=shown, fix="write it to a file first")
    return data


def _blank(data: Buffer) -> bool:
    match = _SPACE.match(data, 3 if data[:3] == _BOM else 0)
    return match is None or match.end() == len(data)
