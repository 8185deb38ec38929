"""Rules: the submission checker.

Owns walking files and folders, and the rules of claims, sources, hardware, models, tables, evidence
and verdicts. Does not own the rule ids (``rulebook``), notebooks (``notebook_rules``) or leaks
(``leaks``). It collects every problem instead of stopping at the first, and changes nothing.

A *shelf* is a folder laid out like ``data/``. A submission may be a shelf outside the project: what
it does not hold itself (sources, devices, claims) is looked up in the project.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pydantic

from assay.errors import AssayError
from assay.ledger import judge, notebook_rules, records, store
from assay.ledger.leaks import leaks
from assay.ledger.rulebook import OPEN_PLACE, RULES, Problem, problem

__all__ = ["RULES", "Problem", "check", "exit_code", "report"]

_FIX = "see the record's fields in CONTRIBUTING"
# Built, installed or kept by tools; never part of a submission.
_SKIPPED = frozenset({"_build", "__pycache__", "node_modules"})
_SUFFIX = {"claims": ".yml", "hardware": ".yml", "models": ".json", "published": ".csv"}
_LETTER = {"claims": "C", "hardware": "H", "models": "M"}
_NUMBER: dict[records.FlawKind, str] = {
    "unknown-field": "001",
    "missing-field": "002",
    "type": "003",
    "value": "004",
    "duplicate": "004",
    "unit": "005",
    "band": "006",
}


def check(paths: Sequence[Path]) -> list[Problem]:
    """Return every broken rule of some files and folders.

    Parameters
    ----------
    paths : sequence of Path
        A file is checked by its kind; a folder with everything below it. The project's root stands
        for ``data/`` and ``notebooks/``.

    Returns
    -------
    list of Problem
        In the order of the paths; empty when all is well.
    """
    found: dict[Problem, None] = {}
    for given in paths:
        for broken in _folder(given) if given.is_dir() else _named_file(given):
            found[broken] = None
    return list(found)


def exit_code(problems: Sequence[Problem]) -> int:
    """Return 2 when a problem is an error, else 0."""
    return 2 if any(p.severity == "error" for p in problems) else 0


def report(problems: Sequence[Problem]) -> str:
    """Return the problems as text, one a line, and a last line that agrees with `exit_code`."""
    counts = [p.severity for p in problems]
    word = "failed" if exit_code(problems) else "passed"
    numbers = ", ".join(f"{counts.count(s)} {s}s" for s in ("error", "warning", "note"))
    return "\n".join([*map(str, problems), f"{word}: {numbers}"])


# -- places ---------------------------------------------------------------------------------------


class _Shelf:
    """What records may refer to: a folder laid out like ``data/``, then the project's own."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.bases = [base]
        try:
            project = store.path("data")
        except AssayError:
            return
        if project.resolve() != base.resolve():
            self.bases.append(project)

    def ids(self, kind: str) -> dict[str, Path]:
        """Return the files of a kind by id; the shelf's own win over the project's."""
        return {
            file.stem: file
            for base in reversed(self.bases)
            for file in _listed(base / kind)
            if file.suffix == _SUFFIX[kind]
        }

    @functools.cached_property
    def claims(self) -> dict[str, records.Claim]:
        """The claims that keep their contract."""
        found = {}
        for claim_id, file in self.ids("claims").items():
            claim, _ = _record(records.Claim, file, "C", record_id=claim_id)
            if claim:
                found[claim_id] = claim
        return found

    @functools.cached_property
    def sources(self) -> set[str]:
        """Ids of all sources, sound or not."""
        found: set[str] = set()
        for base in self.bases:
            if (base / "sources.yml").is_file():
                content, _, _ = store.examine_yaml(base / "sources.yml")
                found |= set(content) if isinstance(content, dict) else set()
        return found

    def file(self, name: str) -> Path | None:
        """Return the file that a record names relative to the project's root."""
        inside = name.removeprefix("data/")
        places = [place for b in self.bases for place in (b.parent / name, b / name, b / inside)]
        return next((place for place in places if place.is_file()), None)


def _listed(folder: Path) -> list[Path]:
    """Return the visible entries of a folder, sorted."""
    if not folder.is_dir():
        return []
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))


def _kind(file: Path) -> str:
    """Return what a file is by where it lies, or nothing."""
    if file.name in ("sources.yml", "verdicts.csv", "history.csv"):
        return file.name
    if file.suffix == ".ipynb":
        return "notebook"
    if file.parent.name in _SUFFIX:
        return file.parent.name
    if file.parent.parent.name == "evidence":
        return "withdrawal" if file.name.endswith(".withdrawn.yml") else "evidence"
    if file.parent.name == "evidence":
        return "stray"
    return "table" if file.suffix == ".csv" else ""


def _guess(file: Path) -> str:
    """Return what a file that lies elsewhere is, by what it says."""
    if file.suffix not in (".yml", ".yaml", ".json"):
        return ""
    try:
        content = store.read_json(file) if file.suffix == ".json" else store.examine_yaml(file)[0]
    except AssayError:
        return "unreadable"
    if not isinstance(content, dict):
        return "unreadable" if file.suffix != ".json" else ""
    signs = (
        ("claims", {"assertions", "quote"}),
        ("evidence", {"estimate", "basis"}),
        ("hardware", {"facts"}),
        ("models", {"config", "parameters_locator"}),
        ("notebook", {"cells"}),
    )
    return next((kind for kind, fields in signs if fields & content.keys()), "")


def _base(file: Path, kind: str) -> Path:
    """Return the shelf a file stands on."""
    if kind in ("evidence", "withdrawal"):
        return file.parent.parent.parent
    if kind in _SUFFIX or kind == "stray":
        return file.parent.parent
    return file.parent / "data" if (file.parent / "data").is_dir() else file.parent


# -- walking --------------------------------------------------------------------------------------


def _named_file(file: Path) -> list[Problem]:
    where = store.shown(file)
    try:
        store.read_text(file)
    except AssayError as error:
        return [problem("A001", error.where, error.what, error.fix)]
    kind = _kind(file) or _guess(file)
    if not kind:
        fix = "name a record, evidence, a table, a notebook or a folder of them"
        return [problem("A006", where, "is not a kind of file that is checked", fix)]
    return _file(file, kind, _Shelf(_base(file, kind)))


def _folder(folder: Path) -> list[Problem]:
    tops = [folder]
    if (folder / "data" / "claims").is_dir():  # a project: only these two are its submission
        tops = [folder / "data", folder / "notebooks"]
    shelves: dict[Path, _Shelf] = {}
    found: list[Problem] = []
    checked = 0
    for file in [file for top in tops for file in _walk(top)]:
        kind = _kind(file)
        if not kind:
            continue
        checked += 1
        base = _base(file, kind)
        shelf = shelves.setdefault(base, _Shelf(base))
        try:
            store.read_text(file)
        except AssayError as error:
            if kind == "evidence" and file.suffix != ".json":
                continue  # raw samples need not be text
            found.append(problem("A001", error.where, error.what, error.fix))
            continue
        found += _file(file, kind, shelf)
    if not checked:
        fix = "name a folder with claims/, evidence/, hardware/, models/ or notebooks"
        return [problem("A006", store.shown(folder), "holds nothing that is checked", fix)]
    for base, shelf in shelves.items():
        whole = any(top.resolve() in (base.resolve(), *base.resolve().parents) for top in tops)
        for kind in _LETTER:
            found += _duplicates(base / kind, kind)
        found += _device_names(base / "hardware") + _strays(shelf)
        if whole:
            found += _unused(shelf)
            found += _verdicts(shelf, any(p.severity == "error" for p in found))
    return _gathered(found)


def _gathered(found: list[Problem]) -> list[Problem]:
    """Say once for a claim that its evidence is of an older notebook: one run mends it all."""
    pieces = Counter((p.where.rpartition("/")[0], p.what) for p in found if p.rule == "E009")
    result: dict[Problem, None] = {}
    for p in found:
        place = p.where.rpartition("/")[0]
        if p.rule == "E009" and pieces[place, p.what] > 1:
            what = f"{p.what} {pieces[place, p.what]} pieces were made"
            p = dataclasses.replace(p, where=place, what=what)
        result[p] = None
    return list(result)


def _walk(top: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(top):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in _SKIPPED)
        yield from (Path(folder) / name for name in sorted(files) if not name.startswith("."))


def _file(file: Path, kind: str, shelf: _Shelf) -> list[Problem]:
    if kind == "notebook":
        own = any(file.resolve().parent == (b.parent / "notebooks").resolve() for b in shelf.bases)
        return notebook_rules.check(file, source=own, claims=shelf.ids("claims"))
    checks: dict[str, Callable[[Path, _Shelf], list[Problem]]] = {
        "claims": _claim,
        "hardware": _hardware,
        "models": _model,
        "sources.yml": _sources,
        "evidence": _evidence,
        "withdrawal": _withdrawal,
        "published": _table,
        "table": _table,
        "history.csv": _history,
        "verdicts.csv": _verdict_file,
        "stray": _stray,
        "unreadable": _unreadable,
    }
    if kind == "published" and file.suffix != ".csv":  # what explains the tables lies beside them
        return _beside(file)
    if kind in _SUFFIX and file.suffix != _SUFFIX[kind]:
        fix = f"name it {file.stem}{_SUFFIX[kind]}"
        wrong = problem("A006", store.shown(file), f"{kind} do not end in '{file.suffix}'", fix)
        # A claim under another suffix is still a claim; a picture is not.
        readable = file.suffix in (".yml", ".yaml") and _SUFFIX[kind] == ".yml"
        return [wrong, *(checks[kind](file, shelf) if readable else [])]
    return checks[kind](file, shelf)


# -- records --------------------------------------------------------------------------------------


def _content(file: Path) -> tuple[Any, dict[str, int], list[Problem]]:
    """Return a YAML or JSON file with its lines and what is wrong with it as such."""
    try:
        if file.suffix == ".json":
            return store.read_json(file), {}, []
        content, lines, errors = store.examine_yaml(file)
    except AssayError as error:
        return None, {}, [_unparsed(error)]
    return content, lines, [_unparsed(error) for error in errors]


def _unparsed(error: AssayError) -> Problem:
    rule = "A003" if error.what.startswith("duplicate key") else "A002"
    return problem(rule, error.where, error.what, error.fix)


def _record(
    kind: type[records.Record], file: Path, letter: str, *, record_id: str = ""
) -> tuple[Any, list[Problem]]:
    """Return a file's record, if it keeps its contract, and every problem."""
    content, lines, found = _content(file)
    if content is None:
        return None, found
    if not isinstance(content, dict):
        what = "is not a mapping of fields"
        return None, [*found, problem(f"{letter}003", store.shown(file), what, _FIX)]
    found += leaks(content, store.shown(file))
    if record_id:
        if "id" in content:
            fix = "the file's name is the id; remove the field"
            spot = store.place(file, lines, "id")
            found.append(problem(f"{letter}001", spot, "unknown field 'id'", fix))
        content = {**content, "id": record_id}
    record, flawed = _validated(kind, content, letter, file, lines)
    return (None if found else record), [*found, *_new(flawed, found)]


def _validated(
    kind: type[records.Record],
    content: object,
    letter: str,
    file: Path,
    lines: Mapping[str, int],
    prefix: str = "",
) -> tuple[Any, list[Problem]]:
    try:
        return kind.model_validate(content), []
    except pydantic.ValidationError as error:
        found = []
        for flaw in records.flaws(error):
            field = ".".join(part for part in (prefix, flaw.field) if part)
            number = _NUMBER[flaw.kind]
            if letter == "C" and flaw.kind == "duplicate" and field == "assertions":
                number = "007"
            rule = f"{letter}{number}" if f"{letter}{number}" in RULES else f"{letter}004"
            found.append(problem(rule, store.place(file, lines, field), flaw.sentence, _FIX))
        return None, found


def _new(flawed: list[Problem], known: list[Problem]) -> list[Problem]:
    """Leave out fields that could not be read in the first place."""
    places = {p.where for p in known}
    return [p for p in flawed if p.where not in places]


def _open_places(file: Path, content: Any, lines: Mapping[str, int]) -> list[Problem]:
    """Return one problem a field that a draft left open."""
    found: list[tuple[int, Problem]] = []
    left: list[tuple[str, Any]] = [("", content)]
    while left:
        field, value = left.pop()
        if isinstance(value, dict):
            left += [(f"{field}.{key}" if field else str(key), v) for key, v in value.items()]
        elif isinstance(value, list):
            left += [(f"{field}[{index}]", v) for index, v in enumerate(value)]
        elif isinstance(value, str) and OPEN_PLACE in value:
            asked = value.partition(f"{OPEN_PLACE}: ")[2]
            spot, fix = store.place(file, lines, field), f"write {asked or 'it'}"
            what = f"'{OPEN_PLACE}' is still there"
            found.append((lines.get(field, 0), problem("C011", spot, what, fix)))
    return [one for _, one in sorted(found, key=lambda pair: pair[0])]


def _claim(file: Path, shelf: _Shelf) -> list[Problem]:
    content, lines, _ = _content(file)
    opened = _open_places(file, content, lines)
    claim, found = _record(records.Claim, file, "C", record_id=file.stem)
    found = [*opened, *_new(found, opened)]
    if not claim:
        return found
    if claim.source not in shelf.sources:
        spot, fix = store.place(file, lines, "source"), "add it to sources.yml"
        found.append(problem("C009", spot, f"unknown source '{claim.source}'", fix))
    written = shelf.file(f"notebooks/{claim.notebook}.ipynb")
    if written is None:
        spot = store.place(file, lines, "notebook")
        what = f"notebook '{claim.notebook}' is not written yet"
        return [*found, problem("C010", spot, what, "the claim stays open until it is")]
    try:
        declared = notebook_rules.parameters(written)
    except AssayError:
        return found  # the notebook's own problem, N-13
    for name, value in claim.parameters.items():
        spot = store.place(file, lines, f"parameters.{name}")
        if name == "claim_id":
            what, fix = "claim_id is set by the runner", "remove it"
        elif name not in declared:
            what = f"{store.shown(written)} declares no parameter '{name}'"
            fix = f"use one of {', '.join(n for n in declared if n != 'claim_id') or 'none'}"
        else:
            what, fix = declared[name].problem(value), f"see the cell in {store.shown(written)}"
        if what:
            found.append(problem("N-14", spot, what, fix))
    return found


def _hardware(file: Path, shelf: _Shelf) -> list[Problem]:
    device, found = _record(records.Hardware, file, "H", record_id=file.stem)
    _, lines, _ = _content(file)
    for index, fact in enumerate(device.facts if device else ()):
        if fact.source not in shelf.sources:
            spot = store.place(file, lines, f"facts[{index}].source")
            what = f"unknown source '{fact.source}'"
            found.append(problem("H008", spot, what, "add it to sources.yml"))
    return found


def _model(file: Path, shelf: _Shelf) -> list[Problem]:
    model, found = _record(records.Model, file, "M", record_id=file.stem)
    if model and model.source not in shelf.sources:
        spot, fix = f"{store.shown(file)}, source", "add it to sources.yml"
        found.append(problem("M008", spot, f"unknown source '{model.source}'", fix))
    return found


def _sources(file: Path, shelf: _Shelf) -> list[Problem]:
    content, lines, found = _content(file)
    if content is None:
        return found
    if not isinstance(content, dict):
        fix = "write one source id a line, its fields below"
        return [*found, problem("S003", store.shown(file), "is not a mapping of sources", fix)]
    found += leaks(content, store.shown(file))
    for key, value in content.items():
        if not re.fullmatch(r"[a-z0-9]+([-.][a-z0-9]+)*", key):
            spot, fix = store.place(file, lines, key), "use lower case, digits, hyphens and points"
            found.append(problem("S005", spot, f"source id '{key}'", fix))
        _, flawed = _validated(records.Source, value, "S", file, lines, key)
        found += _new(flawed, found)
    return found


def _unreadable(file: Path, shelf: _Shelf) -> list[Problem]:
    """Report a YAML or JSON file whose kind cannot be told because it cannot be read."""
    _, _, found = _content(file)
    what, fix = "is not a mapping of fields", "name a record, evidence, a table or a notebook"
    return found or [problem("A006", store.shown(file), what, fix)]


# -- tables ---------------------------------------------------------------------------------------


def _beside(file: Path) -> list[Problem]:
    """Check a file that explains tables: readable, and without leaks."""
    if file.suffix in (".yml", ".yaml", ".json"):
        content, _, found = _content(file)
        return [*found, *leaks(content, store.shown(file))]
    return leaks(store.read_text(file), store.shown(file))


# What people write for a missing value; an empty cell says it without being mistaken for a word.
_MISSING = frozenset({"nan", "none", "null", "-", "--", "?", "#n/a"})


def _table(file: Path, shelf: _Shelf) -> list[Problem]:
    where = store.shown(file)
    try:
        rows = store.read_csv(file)
    except AssayError as error:
        rule = "A002" if "merge" in error.what or "not CSV" in error.what else "D-10"
        return [problem(rule, error.where, error.what, error.fix)]
    found = leaks(rows, where)
    for name in rows[0] if rows else ():
        if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
            fix = "write lower case with underscores, the unit last"
            found.append(problem("D-10", f"{where}, line 1", f"column '{name}'", fix))
    for number, row in enumerate(rows, 1):
        for name, value in row.items():
            if value.strip().lower() in _MISSING or (value and not value.strip()):
                spot, fix = f"{where}, row {number}, {name}", "leave a missing cell empty"
                found.append(problem("D-10", spot, f"'{value}' for a missing value", fix))
    raw = store.read_bytes(file)
    if b"\r" in raw or not raw.endswith(b"\n"):
        found.append(problem("D-11", where, "line ends", "end every line in LF"))
    return found


def _history(file: Path, shelf: _Shelf) -> list[Problem]:
    wanted = ["date", "claim", "assertion", "from", "to", "cause"]
    try:
        rows = store.read_csv(file)
    except AssayError as error:
        return [problem("V002", error.where, error.what, error.fix)]
    if rows and list(rows[0]) != wanted:
        spot, fix = f"{store.shown(file)}, line 1", "restore the file; history is append-only"
        return [problem("V002", spot, f"the header is not {','.join(wanted)}", fix)]
    return []


def _verdict_file(file: Path, shelf: _Shelf) -> list[Problem]:
    return _verdicts(shelf, broken=False)


# -- evidence -------------------------------------------------------------------------------------


def _evidence(file: Path, shelf: _Shelf) -> list[Problem]:
    if file.suffix != ".json":
        return []
    item, found = _evidence_record(file)
    if not item:
        return found
    where = store.shown(file)
    if file.parent.name != item.claim:
        fix = f"move it to evidence/{item.claim}/"
        found.append(problem("E006", where, f"evidence for claim '{item.claim}'", fix))
    elif item.claim not in shelf.ids("claims"):
        fix = "commit the claim before its evidence"
        found.append(problem("E006", where, f"evidence for unknown claim '{item.claim}'", fix))
    elif item.claim in shelf.claims:
        flaw = records.misfit(shelf.claims[item.claim], item)
        if flaw:
            rule = "E005" if flaw.kind == "unit" else "E007"
            spot = f"{where}, {flaw.field}"
            found.append(problem(rule, spot, flaw.sentence, "mend the notebook and run it again"))
    return found + _digests(item, where, shelf)


def _evidence_record(file: Path) -> tuple[records.Evidence | None, list[Problem]]:
    where = store.shown(file)
    content, _, found = _content(file)
    if content is None:
        return None, found
    found += leaks(content, where)
    text = store.read_text(file)
    try:
        item = records.Evidence.model_validate_json(text)
    except pydantic.ValidationError as error:
        for flaw in records.flaws(error):
            number = _NUMBER[flaw.kind]
            rule = f"E{number}" if flaw.kind != "band" else "E004"
            spot = f"{where}, {flaw.field}" if flaw.field else where
            found.append(problem(rule, spot, flaw.sentence, "run the notebook again"))
        return None, found
    name = f"{item.assertion}.{item.basis}.{store.digest(text)[:12]}.json"
    if file.name != name:
        fix = "restore the file; evidence is never edited, a wrong one is withdrawn"
        what = f"the content does not match the name (its hash gives {name})"
        found.append(problem("E008", where, what, fix))
    return item, found


def _digests(item: records.Evidence, where: str, shelf: _Shelf) -> list[Problem]:
    found = []
    wanted = [*item.inputs, *([item.samples] if item.samples else [])]
    for entry in wanted:
        place = shelf.file(entry.path)
        if place is None:
            found.append(problem("E010", where, f"no input '{entry.path}'", "commit the file"))
        elif store.digest(place) != entry.sha256:
            what, fix = f"input '{entry.path}' has changed", "run the notebook again"
            found.append(problem("E011", where, what, fix))
    place = shelf.file(item.notebook.path)
    if place is None or store.digest(place) != item.notebook.sha256:
        state = "is gone" if place is None else "has changed since"
        what = f"notebook '{item.notebook.path}' {state}"
        found.append(problem("E009", where, what, "run it again"))
    return found


def _withdrawal(file: Path, shelf: _Shelf) -> list[Problem]:
    record, found = _record(records.Withdrawal, file, "W")
    if record:
        named = file.parent / record.evidence
        if named.parent != file.parent or not named.is_file():
            _, lines, _ = _content(file)
            spot = store.place(file, lines, "evidence")
            what = f"withdraws unknown evidence '{record.evidence}'"
            found.append(problem("W005", spot, what, "name a file beside it"))
    return found


def _stray(file: Path, shelf: _Shelf) -> list[Problem]:
    fix = "move it into the folder of its claim"
    return [problem("E006", store.shown(file), "evidence of no claim", fix)]


def _strays(shelf: _Shelf) -> list[Problem]:
    """Report files among the evidence that no evidence names."""
    found = []
    for folder in _listed(shelf.base / "evidence"):
        files = list(_walk(folder))
        named: set[Path] = set()
        for file in files:
            item = _evidence_record(file)[0] if file.suffix == ".json" else None
            for entry in (*item.inputs, item.samples) if item else ():
                place = shelf.file(entry.path) if entry else None
                named |= {place.resolve()} if place else set()
        for file in files:
            known = file.suffix == ".json" or file.name.endswith(".withdrawn.yml")
            if not known and file.resolve() not in named:
                fix = "remove it, or name it as samples"
                found.append(problem("E012", store.shown(file), "no evidence names this file", fix))
    return found


# -- whole shelves --------------------------------------------------------------------------------


def _duplicates(folder: Path, kind: str) -> list[Problem]:
    rule = {"claims": "C008", "hardware": "H006", "models": "M006"}[kind]
    first: dict[str, Path] = {}
    found = []
    for file in _listed(folder):
        other = first.setdefault(file.stem.lower(), file)
        if other != file:
            what = f"the id of {other.name} again"
            found.append(problem(rule, store.shown(file), what, "keep one of the two"))
    return found


def _device_names(folder: Path) -> list[Problem]:
    first: dict[str, Path] = {}
    found = []
    for file in _listed(folder):
        device = None
        if file.suffix in (".yml", ".yaml"):
            device, _ = _record(records.Hardware, file, "H", record_id=file.stem)
        for name in device.names if device else ():
            other = first.setdefault(name.casefold(), file)
            if other != file:
                what, fix = f"'{name}' is a name of {other.stem} too", "a name means one device"
                found.append(problem("H007", f"{store.shown(file)}, names", what, fix))
    return found


def _unused(shelf: _Shelf) -> list[Problem]:
    """Report sources that no record, table, notebook or page names."""
    file = shelf.base / "sources.yml"
    if not file.is_file():
        return []
    content, lines, _ = store.examine_yaml(file)
    if not isinstance(content, dict):
        return []
    texts = [*_walk(shelf.base)]
    for room in ("notebooks", "book"):
        texts += _walk(shelf.base.parent / room)
    said = set()
    for text in texts:
        if text != file and text.suffix in (".yml", ".json", ".csv", ".ipynb", ".md", ".yaml"):
            try:
                said |= set(re.findall(r"[a-z0-9]+(?:[-.][a-z0-9]+)*", store.read_text(text)))
            except AssayError:
                continue
    return [
        problem("S006", store.place(file, lines, key), f"source '{key}' is not used", "remove it")
        for key in content
        if key not in said
    ]


def _verdicts(shelf: _Shelf, broken: bool) -> list[Problem]:
    """Compare verdicts.csv with what the shelf implies; a broken shelf implies nothing."""
    file = shelf.base / "verdicts.csv"
    project = shelf.base.parent / "notebooks"
    if broken or not (file.is_file() or project.is_dir()) or not (shelf.base / "claims").is_dir():
        return []
    verdicts = []
    for claim_id in sorted(p.stem for p in _listed(shelf.base / "claims") if p.suffix == ".yml"):
        if claim_id not in shelf.claims:
            return []
        evidence = []
        folder = shelf.base / "evidence" / claim_id
        withdrawn = set()
        for entry in folder.glob("*.withdrawn.yml"):
            record, _ = _record(records.Withdrawal, entry, "W")
            withdrawn |= {record.evidence} if record else set()
        for entry in _listed(folder):
            if entry.suffix == ".json" and entry.name not in withdrawn:
                item, _ = _evidence_record(entry)
                if item is None or records.misfit(shelf.claims[claim_id], item):
                    return []
                evidence.append(item)
        verdicts.append(judge.judge(shelf.claims[claim_id], evidence))
    if file.is_file() and store.read_text(file) == store.verdicts_text(verdicts):
        return []
    what = "is stale" if file.is_file() else "is missing"
    return [problem("V001", store.shown(file), what, "run assay judge")]
