"""Notebook rules: the house style of notebooks as code, rules N and F.

Owns the checks of one notebook that need no kernel. Does not own the typing of parameters
(``parameter``), leaks (``leaks``), or running. Cells are parsed with ``ast``, never executed.

An executed copy, which carries outputs by right, is held only to the rules that make it fit to
publish: leaks, loosened execution, size.
"""

from __future__ import annotations

import ast
import io
import re
import statistics
import tokenize
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import AssayError
from assay.ledger import parameter, store
from assay.ledger.leaks import leaks
from assay.ledger.rulebook import OPEN_PLACE, Problem, problem

__all__ = ["LOOSENING", "SECTIONS", "TAGS", "check", "parameters"]

SECTIONS = ("Claim", "Method", "Evidence", "Verdict", "What would change this", "References")
TAGS = frozenset({"parameters", "remove-cell", "hide-input", "remove-input", "record"})
# Keys with which a notebook's own metadata loosens nbclient, nbmake or a book build.
LOOSENING = frozenset(
    {
        "allow_error_names",
        "allow_errors",
        "force_raise_errors",
        "raise_on_error",
        "raise_on_iopub_timeout",
        "skip_cells_with_tag",
        "timeout",
    }
)

_MAX_LINES, _MAX_MEDIAN, _MAX_CODE, _MAX_CELLS = 25, 10, 120, 30
_MIN_WORDS = 3  # of prose per line of code
_MAX_OUTPUT = 5 * 10**6  # B; a table rendered to HTML once grew two notebooks to 10 MB each
_CHARTS = (
    "strip",
    "roofline",
    "sweep",
    "compare",
    "sensitivity",
    "readings",
    "agreement",
    "scatter",
)
_FENCE = re.compile(r"^(`{3,}|~{3,}|:{3,}).*?^\1[ \t]*$", re.M | re.S)
_COLOUR = re.compile(r"#(?:[0-9a-f]{3}|[0-9a-f]{6})", re.I)


@dataclass(frozen=True)
class _Cell:
    """One cell: its place for messages, kind, text, tags, metadata and parsed code."""

    where: str
    kind: str
    text: str
    tags: tuple[str, ...]
    raw: dict[str, Any]
    tree: ast.Module | None

    @property
    def lines(self) -> int:
        return sum(1 for line in self.text.splitlines() if line.strip())


def parameters(file: Path) -> dict[str, parameter.Parameter]:
    """Return what a notebook's parameters cell declares.

    Raises
    ------
    InputError
        When the file is no notebook or the cell is malformed; without the cell nothing is declared.
    """
    content = store.read_json(file)
    for number, raw in enumerate(_raw_cells(content), 1):
        if "parameters" in _tags(raw):
            return parameter.declared(_source(raw), f"{store.shown(file)}, cell {number}")
    return {}


def check(file: Path, *, source: bool, claims: Collection[str]) -> list[Problem]:
    """Return every rule a notebook breaks.

    Parameters
    ----------
    file : Path
        The notebook.
    source : bool
        Whether it must be a source; otherwise one that papermill has executed is let off style.
    claims : collection of str
        Ids of the claims that exist.

    Returns
    -------
    list of Problem
        In the order of the rules.
    """
    where = store.shown(file)
    try:
        content = store.read_json(file)
    except AssayError as error:
        return [problem("A002", error.where, error.what, error.fix)]
    raws = _raw_cells(content)
    if not raws:
        return [problem("A002", where, "not a notebook: it has no cells", "save it with Jupyter")]
    found = leaks({k: v for k, v in content.items() if k != "cells"}, where)
    cells = []
    for number, raw in enumerate(raws, 1):
        spot = f"{where}, cell {number}"
        found += leaks(raw, spot)
        tree, broken = _parse(raw, spot)
        found += broken
        kind = str(raw.get("cell_type", ""))
        cells.append(_Cell(spot, kind, _source(raw), _tags(raw), raw, tree))
    found += _loosening(content, cells, where) + _size(cells, where)
    executed = "papermill" in _dict(content.get("metadata")) or any(
        "injected-parameters" in cell.tags for cell in cells
    )
    if source or not executed:
        for rule in (_sections, _prose, _length, _code, _names, _numbers, _words):
            found += rule(cells, where)
        found += _clean(content, cells, where) + _marked(cells, where, claims) + _figures(cells)
        found += _open_places(cells)
    return sorted(found, key=lambda p: p.rule)


def _open_places(cells: list[_Cell]) -> list[Problem]:
    return [
        problem("N-21", cell.where, f"'{OPEN_PLACE}' is still there", "write what it asks for")
        for cell in cells
        if OPEN_PLACE in cell.text
    ]


# -- reading --------------------------------------------------------------------------------------


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _raw_cells(content: object) -> list[dict[str, Any]]:
    cells = _dict(content).get("cells")
    return [cell for cell in cells if isinstance(cell, dict)] if isinstance(cells, list) else []


def _source(raw: dict[str, Any]) -> str:
    source = raw.get("source", "")
    return "".join(map(str, source)) if isinstance(source, list) else str(source)


def _tags(raw: dict[str, Any]) -> tuple[str, ...]:
    tags = _dict(raw.get("metadata")).get("tags", [])
    return tuple(map(str, tags)) if isinstance(tags, list) else ()


def _parse(raw: dict[str, Any], where: str) -> tuple[ast.Module | None, list[Problem]]:
    """Parse a code cell; lines of IPython's own are reported and left out."""
    if raw.get("cell_type") != "code":
        return None, []
    text = _source(raw)
    try:
        return ast.parse(text), []
    except (SyntaxError, ValueError, RecursionError):
        pass
    found, kept = [], []
    for number, line in enumerate(text.splitlines(), 1):
        magic = line.lstrip().startswith(("%", "!", "?")) or line.rstrip().endswith("?")
        kept.append("" if magic else line)
        if magic:
            spot = f"{where}, line {number}"
            found.append(problem("N-05", spot, f"magic '{line.strip()[:20]}'", "write Python"))
    try:
        return ast.parse("\n".join(kept)), found
    except (SyntaxError, ValueError, RecursionError) as error:
        at = getattr(error, "lineno", None)
        spot = f"{where}, line {at}" if at else where
        return None, [*found, problem("A002", spot, "the cell is not Python", "mend the cell")]


def _code_cells(cells: list[_Cell]) -> list[_Cell]:
    return [cell for cell in cells if cell.kind == "code"]


def _headings(cell: _Cell) -> Iterator[tuple[int, str]]:
    """Yield level and text of a Markdown cell's headings, fenced blocks left out."""
    if cell.kind == "markdown":
        for marks, words in re.findall(r"^(#{1,6})[ \t]+(.*?)[ \t#]*$", _unfenced(cell), re.M):
            yield len(marks), words


def _unfenced(cell: _Cell) -> str:
    return _FENCE.sub("", cell.text)


def _walk(cells: list[_Cell]) -> Iterator[tuple[str, ast.AST]]:
    """Yield every syntax node with its place."""
    for cell in cells:
        for node in ast.walk(cell.tree) if cell.tree else ():
            line = getattr(node, "lineno", None)
            yield f"{cell.where}, line {line}" if line else cell.where, node


# -- shape ----------------------------------------------------------------------------------------


def _sections(cells: list[_Cell], where: str) -> list[Problem]:
    found = []
    titles = [c.where for c in cells for level, _ in _headings(c) if level == 1]
    first = next((level for level, _ in _headings(cells[0])), 0)
    if first != 1:
        found.append(
            problem(
                "N-01", cells[0].where, "the first cell has no title", "open with # and a title"
            )
        )
    for spot in titles[1:]:
        found.append(problem("N-01", spot, "a second title", "use ### inside a section"))
    words = [text for cell in cells for level, text in _headings(cell) if level == 2]
    if words != list(SECTIONS):
        listed = ", ".join(words) or "none"
        wanted = f"write {', '.join(f'## {name}' for name in SECTIONS)}, in this order"
        found.append(problem("N-01", where, f"the sections are {listed}", wanted))
    return found


def _prose(cells: list[_Cell], where: str) -> list[Problem]:
    shown = [cell for cell in cells if "remove-cell" not in cell.tags]
    return [
        problem("N-02", cell.where, "no prose before the code", "say what to look for")
        for before, cell in zip([None, *shown], shown, strict=False)
        if cell.kind == "code"
        and "remove-input" not in cell.tags
        and (before is None or before.kind != "markdown")
    ]


def _length(cells: list[_Cell], where: str) -> list[Problem]:
    code = [cell for cell in _code_cells(cells) if cell.lines]
    found = [
        problem(
            "N-03", cell.where, f"{cell.lines} lines of code", f"at most {_MAX_LINES}; split it"
        )
        for cell in code
        if cell.lines > _MAX_LINES
    ]
    lines = [cell.lines for cell in code]
    median, total = statistics.median(lines) if lines else 0, sum(lines)
    for count, limit, what in (
        (median, _MAX_MEDIAN, "lines in the median code cell"),
        (total, _MAX_CODE, "lines of code"),
        (len(cells), _MAX_CELLS, "cells"),
    ):
        if count > limit:
            fix = f"at most {limit}; move code into the package"
            found.append(problem("N-03", where, f"{count:g} {what}", fix))
    words = sum(
        len(re.findall(r"[^\W\d_][\w'’-]*", _unfenced(c))) for c in cells if c.kind == "markdown"
    )
    if words < _MIN_WORDS * total:
        found.append(
            problem(
                "N-04",
                where,
                f"{words} words of prose for {total} lines of code",
                f"write {_MIN_WORDS} words a line, or move code into the package",
            )
        )
    return found


# -- code -----------------------------------------------------------------------------------------

_FORBIDDEN: dict[type[ast.AST], str] = {
    ast.FunctionDef: "def",
    ast.AsyncFunctionDef: "def",
    ast.ClassDef: "class",
    ast.Try: "try",
    ast.TryStar: "try",
    ast.Global: "global",
    ast.Nonlocal: "nonlocal",
}
_READERS = re.compile(r"open|Path|read_(csv|json|parquet|text|excel|pickle)")


def _code(cells: list[_Cell], where: str) -> list[Problem]:
    found = []
    move = "move it into the package, with a test"
    for spot, node in _walk(cells):
        if word := _FORBIDDEN.get(type(node)):
            found.append(problem("N-05", spot, f"'{word}' in a notebook", move))
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Lambda):
            found.append(problem("N-05", spot, "a named lambda", move))
        if isinstance(node, ast.Call):
            found += _call(spot, node)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += _text(spot, node.value)
        if isinstance(node, ast.ImportFrom):
            found += _import(spot, node)
    importing = [
        cell
        for cell in cells
        if cell.tree
        and any(isinstance(n, ast.Import | ast.ImportFrom) for n in ast.walk(cell.tree))
    ]
    for cell in importing[1:]:
        found.append(
            problem("N-05", cell.where, "import outside the set-up cell", "import in one cell")
        )
    for cell in _code_cells(cells):
        comments = _comment_lines(cell.text)
        if comments > 2 and comments * 4 > cell.lines:
            found.append(
                problem("N-10", cell.where, f"{comments} lines of comment", "write it as prose")
            )
    return found


def _call(spot: str, node: ast.Call) -> list[Problem]:
    name, owner = "", ""
    if isinstance(node.func, ast.Name):
        name = node.func.id
    elif isinstance(node.func, ast.Attribute):
        name = node.func.attr
        owner = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
    if _READERS.fullmatch(name) and owner != "store":
        return [problem("N-09", spot, f"{name}() reads a path", "read through store")]
    return []


def _text(spot: str, text: str) -> list[Problem]:
    if re.match(r"\s*#{1,6} |\s*<h[1-6]", text):
        return [problem("N-11", spot, "a heading from code", "write it in a Markdown cell")]
    if re.match(r"(?:/|~/|\.{1,2}/|[A-Za-z]:\\)\w", text):
        return [problem("N-09", spot, f"the path '{text[:40]}'", "take paths from store")]
    return []


def _import(spot: str, node: ast.ImportFrom) -> list[Problem]:
    module = node.module or ""
    names = ", ".join(alias.name for alias in node.names)
    here = Path(__file__).parents[2].joinpath(*module.split("."))
    from_file = module.startswith("assay.") and here.with_suffix(".py").is_file()
    if names == "*" or from_file:
        room, _, stem = module.rpartition(".")
        fix = f"write from {room} import {stem}" if room else f"write import {module}"
        return [problem("N-12", spot, f"imports names ({names}) from {module}", fix)]
    return []


def _comment_lines(text: str) -> int:
    count = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            count += token.type == tokenize.COMMENT and token.line.lstrip().startswith("#")
    except (tokenize.TokenError, SyntaxError):
        return 0
    return count


def _names(cells: list[_Cell], where: str) -> list[Problem]:
    bound: dict[str, str] = {}
    found = []
    for cell in cells:
        for name, line in _bindings(cell.tree.body if cell.tree else []):
            spot = f"{cell.where}, line {line}"
            if name in bound:
                found.append(
                    problem(
                        "N-06", spot, f"'{name}' is bound again (first {bound[name]})", "rename"
                    )
                )
            bound.setdefault(name, spot.removeprefix(f"{where}, "))
    return found


def _bindings(body: list[ast.stmt]) -> Iterator[tuple[str, int]]:
    """Yield names bound by statements; loop variables and ``_`` are excepted."""
    for node in body:
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign) or (isinstance(node, ast.AnnAssign) and node.value):
            targets = [node.target]
        elif isinstance(node, ast.With):
            targets = [item.optional_vars for item in node.items if item.optional_vars]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0], node.lineno
        for target in targets:
            for part in ast.walk(target):
                stored = isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
                if isinstance(part, ast.Name) and stored and part.id != "_":
                    yield part.id, part.lineno
        for inner in ("body", "orelse"):
            nested = getattr(node, inner, [])
            if isinstance(nested, list) and not isinstance(node, ast.FunctionDef | ast.ClassDef):
                yield from _bindings(nested)


def _numbers(cells: list[_Cell], where: str) -> list[Problem]:
    found = []
    inside = False
    for cell in cells:
        for level, words in _headings(cell):
            if level == 2:
                inside = words == "Evidence"
        if not inside or not cell.tree or "parameters" in cell.tags:
            continue
        seeds = {
            id(k.value)
            for n in ast.walk(cell.tree)
            if isinstance(n, ast.Call)
            for k in n.keywords
            if k.arg == "seed"
        }
        for node in ast.walk(cell.tree):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, int | float)
                and not isinstance(node.value, bool)
                and id(node) not in seeds
                and not _is_plain(node.value)
            ):
                spot = f"{cell.where}, line {node.lineno}"
                fix = "take facts from store and knobs from parameters"
                found.append(problem("N-07", spot, f"the literal number {node.value}", fix))
    return found


def _is_plain(value: float) -> bool:
    """Whether a number is 0, 1, 2 or a power of ten."""
    return value in (0, 1, 2) or f"{value:.15e}".startswith("1.000000000000000e")


# -- prose ----------------------------------------------------------------------------------------

_QUOTED = re.compile(r'^>.*$|`[^`]*`|\$[^$]*\$|"[^"]*"|“[^”]*”', re.M)
_TYPED = re.compile(r"\d[\d,.]*[\s\u00a0]?(?:[KMGT]i?B|ms|tok/s|req/s|%|×|x)(?!\w)")


def _words(cells: list[_Cell], where: str) -> list[Problem]:
    found = []
    for cell in cells:
        if cell.kind != "markdown":
            continue
        prose = _QUOTED.sub(" ", _unfenced(cell))
        if verdict := re.search(r"\b(verified|disputed|refuted|debunked)\b", prose, re.I):
            fix = "the card says it; prose must hold for every claim"
            found.append(problem("N-16", cell.where, f"the verdict word '{verdict[0]}'", fix))
        if typed := _TYPED.search(prose):
            fix = "glue the computed number"
            found.append(problem("N-17", cell.where, f"the typed number '{typed[0]}'", fix))
    return found


# -- tags, metadata and outputs -------------------------------------------------------------------


def _clean(content: dict[str, Any], cells: list[_Cell], where: str) -> list[Problem]:
    found = []
    version = (content.get("nbformat"), content.get("nbformat_minor"))
    if version[0] != 4 or not isinstance(version[1], int) or version[1] < 5:
        fix = "save it as format 4.5"
        found.append(problem("N-08", where, f"format {version[0]}.{version[1]} has no ids", fix))
    kernel = _dict(_dict(content.get("metadata")).get("kernelspec")).get("name")
    if kernel != "python3":
        found.append(problem("N-08", where, f"kernel '{kernel}'", "save it with kernel python3"))
    ids = Counter(str(cell.raw.get("id", "")) for cell in cells)
    for cell in cells:
        name = str(cell.raw.get("id", ""))
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) or ids[name] > 1:
            what = f"cell id '{name}' occurs twice" if name and ids[name] > 1 else "no cell id"
            found.append(problem("N-08", cell.where, what, "save it with Jupyter"))
        if cell.raw.get("outputs") or cell.raw.get("execution_count") is not None:
            fix = "clear it (nbstripout --keep-id)"
            found.append(problem("N-08", cell.where, "has outputs or an execution count", fix))
    return found


def _marked(cells: list[_Cell], where: str, claims: Collection[str]) -> list[Problem]:
    found = []
    code = _code_cells(cells)
    tagged = [cell for cell in cells if "parameters" in cell.tags]
    if len(tagged) != 1:
        fix = "tag the first code cell, and no other"
        found.append(problem("N-13", where, f"{len(tagged)} cells are tagged parameters", fix))
    for cell in tagged:
        found += _parameters_cell(cell, cell is code[0] if code else False, claims)
    recorded = [cell for cell in cells if "record" in cell.tags]
    if len(recorded) != 1 or recorded[0] is not code[-1]:
        what = (
            f"{len(recorded)} cells are tagged record"
            if len(recorded) != 1
            else ("the record cell is not the last code cell")
        )
        found.append(problem("N-15", where, what, "tag the last code cell, and no other"))
    for cell in cells:
        for tag in cell.tags:
            if tag not in TAGS:
                fix = f"use {', '.join(sorted(TAGS))}"
                found.append(problem("N-18", cell.where, f"tag '{tag}'", fix))
    return found


def _parameters_cell(cell: _Cell, first: bool, claims: Collection[str]) -> list[Problem]:
    found = []
    if not first:
        found.append(
            problem("N-13", cell.where, "the parameters cell is not first", "move it to the front")
        )
    if "remove-cell" not in cell.tags:
        fix = "tag it remove-cell: the card shows the values"
        found.append(problem("N-13", cell.where, "the parameters cell is shown", fix))
    try:
        declared = parameter.declared(cell.text, cell.where)
    except AssayError as error:
        return [*found, problem("N-13", error.where, error.what, error.fix)]
    names = list(declared)
    if names[0] != "claim_id" or ("seed" in names and names[-1] != "seed"):
        fix = "put claim_id first and seed last"
        found.append(problem("N-13", cell.where, f"the order is {', '.join(names)}", fix))
    for name, item in declared.items():
        if not item.help:
            fix = "add # unit and meaning at the end of its line"
            found.append(problem("N-13", cell.where, f"'{name}' has no comment", fix))
    default = declared["claim_id"].default
    if default not in claims:
        fix = "name a claim in data/claims"
        found.append(problem("N-13", cell.where, f"the default claim '{default}' is unknown", fix))
    return found


def _loosening(content: dict[str, Any], cells: list[_Cell], where: str) -> list[Problem]:
    fix = "remove it; limits are options of assay run"
    return [
        problem("N-19", spot, f"metadata '{key}' changes how strictly the notebook runs", fix)
        for spot, metadata in [
            (where, content.get("metadata")),
            *((cell.where, cell.raw.get("metadata")) for cell in cells),
        ]
        for key in _keys(metadata)
        if key in LOOSENING
    ]


def _keys(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            if key != "parameters":  # papermill's record of values may name anything
                yield from _keys(item)
    elif isinstance(value, list):
        for item in value:
            yield from _keys(item)


def _size(cells: list[_Cell], where: str) -> list[Problem]:
    size = sum(len(store.json_text(c.raw["outputs"])) for c in cells if c.raw.get("outputs"))
    if size <= _MAX_OUTPUT:
        return []
    what = f"outputs of {size / 1e6:.1f} MB"
    return [problem("N-20", where, what, f"show less; at most {_MAX_OUTPUT / 1e6:.0f} MB")]


# -- figures --------------------------------------------------------------------------------------


def _figures(cells: list[_Cell]) -> list[Problem]:
    found = []
    for cell in _code_cells(cells):
        nodes = list(ast.walk(cell.tree)) if cell.tree else []
        drawn = any(
            isinstance(n, ast.Call)
            and isinstance(n.func, ast.Attribute)
            and n.func.attr in _CHARTS
            and isinstance(n.func.value, ast.Name)
            and n.func.value.id == "plot"
            for n in nodes
        )
        if drawn:
            found += _figure(cell)
    for spot, node in _walk(cells):
        word = ""
        if isinstance(node, ast.Attribute) and node.attr in ("set_title", "suptitle", "rcParams"):
            word = node.attr
        elif isinstance(node, ast.Name) and node.id == "plt":
            word = "plt"
        elif isinstance(node, ast.keyword) and node.arg == "figsize":
            word = "figsize"
        elif isinstance(node, ast.keyword) and node.arg in ("color", "colour", "palette", "cmap"):
            word = node.arg
        elif isinstance(node, ast.Constant) and _COLOUR.fullmatch(str(node.value)):
            word = str(node.value)
        if word:
            found.append(problem("F-03", spot, f"'{word}' in a notebook", "leave it to plot"))
    return found


def _figure(cell: _Cell) -> list[Problem]:
    own = _dict(_dict(cell.raw.get("metadata")).get("mystnb"))
    figure, image = _dict(own.get("figure")), _dict(own.get("image"))
    missing = [
        name
        for name, value in (
            ("figure.caption", figure.get("caption")),
            ("figure.name fig-…", str(figure.get("name", "")).startswith("fig-")),
            ("image.alt", image.get("alt")),
        )
        if not value
    ]
    if not missing:
        return []
    fix = "write it in the cell's metadata under mystnb"
    return [problem("F-02", cell.where, f"the figure has no {', '.join(missing)}", fix)]
