"""Source lines: how many lines of Python a package has, by a rule that is written down.

Owns the rule, counting a folder file by file, and reading back the committed table of nano-vLLM.
Does not own what a count says about a claim.

The rule. A line is *blank* when it holds white space only, *code* when at least one token stands on
it that is neither a comment nor layout, and *comment* otherwise. Every line of a string that spans
lines is code, docstrings among them. The three kinds add up to the lines of the file.

``python -m assay.bench.source_lines FOLDER`` prints the table of a package as CSV.
"""

from __future__ import annotations

import ast
import csv
import dataclasses
import io
import sys
import tokenize
from collections.abc import Iterable
from pathlib import Path

from assay.errors import InputError
from assay.ledger import store

__all__ = ["Counted", "committed", "count", "package", "text", "total"]

_TABLE = "nano_vllm_lines"
_LAYOUT = frozenset(
    {
        tokenize.COMMENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
        tokenize.INDENT,
        tokenize.NEWLINE,
        tokenize.NL,
    }
)


@dataclasses.dataclass(frozen=True, slots=True)
class Counted:
    """The lines of one file.

    Parameters
    ----------
    file : str
        Its place in the package.
    code, blank, comment : int
        Lines of each kind [1].
    classes : tuple of str
        Classes it defines at its top level.
    """

    file: str
    code: int
    blank: int
    comment: int
    classes: tuple[str, ...]

    @property
    def lines(self) -> int:
        """All lines [1]."""
        return self.code + self.blank + self.comment


def count(source: str, file: str = "") -> Counted:
    r"""Count the lines of one file.

    Parameters
    ----------
    source : str
        Its text.
    file : str
        Its name.

    Returns
    -------
    Counted
        By the rule of this module.

    Raises
    ------
    InputError
        When it is not Python.

    Examples
    --------
    >>> found = count("import os\n\n# why\nx = [\n    1,\n]\n")
    >>> found.code, found.blank, found.comment
    (4, 1, 1)
    """
    lines = source.splitlines()
    code: set[int] = set()
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type not in _LAYOUT:
                code |= set(range(token.start[0], token.end[0] + 1))
        tree = ast.parse(source)
    except (tokenize.TokenError, SyntaxError) as error:
        raise InputError(f"is not Python: {error}", where=file, fix="count Python files") from None
    # A blank line inside a string belongs to it.
    blank = sum(not line.strip() for i, line in enumerate(lines, 1) if i not in code)
    classes = tuple(node.name for node in tree.body if isinstance(node, ast.ClassDef))
    return Counted(file, len(code), blank, len(lines) - len(code) - blank, classes)


def package(folder: Path) -> list[Counted]:
    """Count every Python file of a folder.

    Parameters
    ----------
    folder : Path
        A package, for example ``nanovllm`` in a checkout.

    Returns
    -------
    list of Counted
        Sorted by name.

    Raises
    ------
    InputError
        When it holds no Python.
    """
    files = sorted(folder.rglob("*.py"))
    if not files:
        raise InputError("holds no Python files", where=str(folder), fix="name a package's folder")
    return [count(store.read_text(file), file.relative_to(folder).as_posix()) for file in files]


def total(rows: Iterable[Counted]) -> Counted:
    r"""Return the sum over files.

    Examples
    --------
    >>> total([count("a = 1\n"), count("b = 2\n\n")]).lines
    3
    """
    found = list(rows)
    return Counted(
        f"{len(found)} files",
        sum(row.code for row in found),
        sum(row.blank for row in found),
        sum(row.comment for row in found),
        tuple(name for row in found for name in row.classes),
    )


def committed() -> list[Counted]:
    """Return the committed table of nano-vLLM, ``data/published/nano_vllm_lines.csv``."""
    return [
        Counted(
            row["file"],
            int(row["code"]),
            int(row["blank"]),
            int(row["comment"]),
            tuple(row["classes"].split()),
        )
        for row in store.published(_TABLE)
    ]


def text(rows: Iterable[Counted]) -> str:
    """Return counts as CSV, as they are kept in ``data/published``."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["file", "code", "blank", "comment", "classes"])
    for row in rows:
        writer.writerow([row.file, row.code, row.blank, row.comment, " ".join(row.classes)])
    return out.getvalue()


def main(arguments: list[str]) -> None:
    """Print the table of the package whose folder is named."""
    if len(arguments) != 1:
        raise SystemExit("usage: python -m assay.bench.source_lines FOLDER")
    print(text(package(Path(arguments[0]))), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
