"""Scrub: take out of an executed notebook what says whose machine ran it.

Owns the removal of home folders, the project's own path, the hostname, secrets of the environment
and papermill's bookkeeping. Does not own what a page shows.

papermill leaves such things in four places: ``metadata.papermill``, the injected cell, the
parameters kept in metadata, and tracebacks, there also between colour codes. So the whole notebook
is walked, and colour codes go first.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["notebook", "plain", "scrubber"]

# ECMA-48 control sequences (colours, cursor) and operating-system commands (links, titles).
_ANSI = re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\x1b[@-_]")
_HOMES = re.compile(
    r"""(?<![\w.])(?:/mnt/[a-z]/Users|/home|/Users|[A-Za-z]:\\+Users)[/\\]+[^/\\\s"'<>:,;)\]]+"""
)
_CELL_FILE = re.compile(r"(?<![\w.~/-])(?:/[\w.~-]+)*/ipykernel_\d+/\d+\.py")
_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_?KEY", re.I)
_SECRET_LENGTH = 8  # shorter values ("1", "true") are not secrets and would mangle text
_OPAQUE = ("image/png", "image/jpeg", "image/gif", "application/pdf")  # base64


def plain(text: str) -> str:
    r"""Return text without terminal control codes.

    Examples
    --------
    >>> plain("\x1b[0;31mValueError\x1b[0m: no")
    'ValueError: no'
    """
    return _ANSI.sub("", text)


def scrubber(root: Path, staging: Path) -> Callable[[str], str]:
    """Return the function that scrubs one text.

    Parameters
    ----------
    root : Path
        The project; paths below it become relative.
    staging : Path
        Where the run's evidence lies until it is promoted; shown as ``data/evidence``.
    """
    places = [(str(staging), "data/evidence")]
    for folder, shown in (
        (root, "."),
        (Path(sys.prefix), "<python>"),
        (Path(sys.base_prefix), "<python>"),
        (Path.home(), "~"),
    ):
        if len(folder.parts) > 1:  # never the file system's root
            places += [(str(folder), shown), (str(folder.resolve()), shown)]
    # A deeper folder is replaced before the one it lies in; a system prefix stays as it is.
    places = [item for item in dict(places).items() if item[0] not in {"/usr", "/usr/local"}]
    places.sort(key=lambda item: -len(item[0]))
    rules: list[tuple[re.Pattern[str], str]] = []
    for path, shown in places:
        if shown == ".":
            rules.append((re.compile(rf"(?<![\w.]){re.escape(path)}/"), ""))
        rules.append((re.compile(rf"(?<![\w.]){re.escape(path)}(?![\w-])"), shown))
    rules += [(_CELL_FILE, "<cell>"), (_HOMES, "~")]
    host = socket.gethostname()
    if re.search(r"[\d.-]", host) and len(host) > 3 and not host.startswith("localhost"):
        rules.append((re.compile(rf"(?<![\w-]){re.escape(host)}(?![\w-])"), "<host>"))
    secrets = sorted(
        {
            value
            for name, value in os.environ.items()
            if _SECRET_NAME.search(name) and len(value) >= _SECRET_LENGTH and "/" not in value[:1]
        },
        key=len,
        reverse=True,
    )

    def scrub(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, "<hidden>")
        for pattern, shown in rules:
            text = pattern.sub(shown, text)
        return text

    return scrub


def notebook(content: dict[str, Any], scrub: Callable[[str], str]) -> dict[str, Any]:
    """Return an executed notebook without traces of the machine and of papermill's bookkeeping.

    Parameters
    ----------
    content : dict
        The notebook as JSON values.
    scrub : callable
        From `scrubber`.
    """
    cleaned: dict[str, Any] = _walk(content, scrub)
    cleaned["metadata"].pop("papermill", None)
    for cell in cleaned["cells"]:
        cell["metadata"].pop("papermill", None)
        if cell["metadata"].get("tags") == []:
            del cell["metadata"]["tags"]
        for output in cell.get("outputs", []):
            output.get("metadata", {}).pop("papermill", None)
    return cleaned


def _walk(value: Any, scrub: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return scrub(plain(value))
    if isinstance(value, list):
        # A text may be kept as lines, and a colour code or a path may cross none of them.
        return [_walk(item, scrub) for item in value]
    if isinstance(value, dict):
        return {
            scrub(str(key)): item if key in _OPAQUE else _walk(item, scrub)
            for key, item in value.items()
        }
    return value
