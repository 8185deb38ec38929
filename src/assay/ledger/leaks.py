"""Leaks: secrets and home folders in text that will be published.

Owns the patterns. Does not own removing them (the press scrubs executed notebooks).

Papermill leaves them in four places (its own metadata, the injected cell, recorded parameters,
tracebacks, there also between colour codes), so values are walked whole and colour codes dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from assay.ledger.rulebook import Problem, problem

__all__ = ["leaks"]

# ECMA-48 control sequences: colours and cursor movement.
_ANSI = re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]")
_HOME = re.compile(
    r"(?<![\w.~-])(?:/home/|/Users/|/root/|/mnt/[a-z]/Users/|[A-Za-z]:[\\/]+Users[\\/]+)[\w.-]*"
)
# Prefixes that the issuers of keys publish so that scanners can find them.
_KEY = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|"
    r"github_pat_\w{30,}|glpat-[\w-]{20,}|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}|"
    r"nvapi-[\w-]{20,}|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,})"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
_NAME = r"(?:api_?key|access_?key|(?:^|[_-])token|hf_?token|secret|passwd|password|credentials?)"
_NAMED = re.compile(rf"{_NAME}$", re.IGNORECASE)
_SHORTEST = 8  # what is shorter ("none", "true") is not worth stealing
_ASSIGNED = re.compile(
    rf"\b(\w*{_NAME})\b[\"']?\s*[:=]\s*[\"']([^\"'\s]{{{_SHORTEST},}})[\"']", re.IGNORECASE
)


def leaks(value: object, where: str) -> list[Problem]:
    """Return the secrets and home folders anywhere in a value read from JSON, YAML or text.

    Parameters
    ----------
    value : object
        Text, or lists and dicts of it.
    where : str
        How messages name the place.

    Returns
    -------
    list of Problem
        Rules A004 and A005, one problem for each different leak; a secret itself is not repeated.

    Examples
    --------
    >>> leaks({"path": "/home/ada/run.log"}, "a.json")[0].rule
    'A005'
    """
    found: dict[Problem, None] = {}
    for name, text in _texts("", value):
        plain = _ANSI.sub("", text)
        named = _ASSIGNED.search(plain)
        if _NAMED.search(name) and len(plain) >= _SHORTEST and " " not in plain:
            found[_secret(where, f"'{name}' holds a secret")] = None
        elif named:
            found[_secret(where, f"'{named[1]}' is given a secret")] = None
        elif key := _KEY.search(plain):
            found[_secret(where, f"a key that begins '{key[0][:5]}'")] = None
        for home in _HOME.findall(plain):
            found[
                problem("A005", where, f"the home folder '{home}'", "write a path of the project")
            ] = None
    return list(found)


def _secret(where: str, what: str) -> Problem:
    return problem("A004", where, what, "remove it, and revoke it where it was issued")


def _texts(name: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield every text with the name of the field that holds it."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield "", str(key)
            yield from _texts(str(key), item)
    elif isinstance(value, list | tuple):
        if value and all(isinstance(item, str) for item in value):
            yield name, "".join(value)  # nbformat keeps a text as lines
        else:
            for item in value:
                yield from _texts(name, item)
