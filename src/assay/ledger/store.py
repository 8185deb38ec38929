"""Store: the only module that reads and writes files.

Owns where things live, atomic writing, content-hashed evidence names, and turning files into
records with errors that name file, line and field. Does not own what the records mean.

Writing is atomic (a temporary file beside the target, then a rename), so a process killed at any
moment leaves either the old file or the new one. Output is deterministic: sorted keys, two spaces,
whole numbers in full and others to 12 significant digits, newline at the end.
"""

from __future__ import annotations

import contextlib
import copy
import csv
import functools
import hashlib
import io
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from assay.errors import InputError, RecordError

if TYPE_CHECKING:
    import yaml

    from assay.ledger import judge as judges
    from assay.ledger import records

__all__ = [
    "STAGING",
    "canonical",
    "claim",
    "claim_ids",
    "claims",
    "digest",
    "evidence",
    "evidence_name",
    "examine_yaml",
    "found",
    "hardware",
    "hardware_ids",
    "history",
    "json_text",
    "live",
    "model",
    "model_ids",
    "parse_json",
    "path",
    "place",
    "promote",
    "published",
    "published_names",
    "read_csv",
    "read_json",
    "read_text",
    "read_yaml",
    "root",
    "save",
    "shown",
    "sources",
    "stray_evidence",
    "verdict_rows",
    "verdicts_stale",
    "verdicts_text",
    "withdrawals",
    "write",
    "write_verdicts",
]

# A notebook run by the press writes here instead of the ledger, and is promoted when it succeeds.
STAGING = "ASSAY_STAGING"
_ROOT = "ASSAY_ROOT"

# Re-deriving one of these replaces its earlier file; a measurement is never replaced.
_DETERMINISTIC = frozenset(
    {"derived", "recomputed", "documented", "bound", "published", "simulated"}
)


# -- places ---------------------------------------------------------------------------------------


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
    here = Path(__file__).resolve().parents[3]
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


def _files(folder: Path, pattern: str) -> list[Path]:
    """Return the matching files of a folder, sorted, without what a killed writer left behind."""
    return sorted(file for file in folder.glob(pattern) if not file.name.startswith("."))


# -- reading --------------------------------------------------------------------------------------


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
    _refuse_merge_markers(text, where)

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


def _refuse_merge_markers(text: str, where: str) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(("<<<<<<< ", ">>>>>>> ")):
            raise InputError(
                f"unresolved merge marker '{line[:20]}'",
                where=f"{where}, line {number}",
                fix="resolve the merge",
            )


def read_yaml(file: Path) -> tuple[Any, dict[str, int]]:
    """Return a parsed YAML file and the line of every field path.

    Duplicate keys, anchors and tags are refused, and so is what YAML 1.1 reads as something else
    than is written: ``off`` and ``yes``, base-60 and octal numbers, a value left empty. Dates stay
    text.

    Raises
    ------
    InputError
        When it is not such YAML, with the line.
    """
    content, lines, errors = examine_yaml(file)
    if errors:
        raise errors[0]
    return content, lines


def examine_yaml(file: Path) -> tuple[Any, dict[str, int], list[InputError]]:
    """Return a YAML file as `read_yaml` does, with all its errors instead of raising the first.

    Raises
    ------
    InputError
        When the file cannot be read at all.
    """
    text = read_text(file)
    content, lines, errors = _parse_yaml(text, shown(file))
    return copy.deepcopy(content), lines, errors


# Parsing dominates a command's time, and one command reads the same record many times.
@functools.lru_cache(maxsize=512)
def _parse_yaml(text: str, where: str) -> tuple[Any, dict[str, int], list[InputError]]:
    import yaml

    loader = yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader
    builder = _Builder(where)
    content = None
    try:
        _refuse_merge_markers(text, where)
        node = yaml.compose(text, Loader=loader)
        if node is None:
            raise InputError("is empty", where=where, fix="write the record")
        content = builder.build(node, "")
    except InputError as error:
        builder.errors.append(error)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        line = f", line {mark.line + 1}" if mark else ""
        builder.errors.append(
            InputError(f"not YAML: {problem}", where=f"{where}{line}", fix="mend the file")
        )
    except RecursionError:
        builder.errors.append(
            InputError("not YAML: nested too deeply", where=where, fix="mend the file")
        )
    return content, builder.lines, builder.errors


_YAML = "tag:yaml.org,2002:"
_SCALARS = frozenset(_YAML + kind for kind in ("str", "int", "float", "bool", "null", "timestamp"))


class _Builder:
    """Turns YAML nodes into plain values; notes each field's line and all that is wrong."""

    def __init__(self, where: str) -> None:
        import yaml

        self.where = where
        self.lines: dict[str, int] = {}
        self.errors: list[InputError] = []
        self._constructor = yaml.SafeLoader("")
        self._seen: set[int] = set()

    def build(self, node: yaml.Node, at: str) -> Any:
        """Return a node's value; its parts, their lines and errors are noted on the way."""
        import yaml

        self.lines[at] = node.start_mark.line + 1
        if id(node) in self._seen:
            return self._refuse(node, at, "anchors are not allowed", "write the value again")
        self._seen.add(id(node))
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_YAML}map":
            return self._mapping(node, at)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_YAML}seq":
            return [self.build(child, f"{at}[{i}]") for i, child in enumerate(node.value)]
        if not isinstance(node, yaml.ScalarNode) or node.tag not in _SCALARS:
            tag = node.tag.removeprefix(_YAML)
            return self._refuse(node, at, f"tag '{tag}' is not allowed", "write plain values")
        return self._scalar(node, at)

    def _mapping(self, node: yaml.MappingNode, at: str) -> dict[str, Any]:
        import yaml

        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value)
            if key_node.tag == f"{_YAML}merge":
                self._refuse(key_node, at, "merge keys are not allowed", "write the fields again")
            elif not isinstance(key_node, yaml.ScalarNode):
                key = "?"
                self._refuse(key_node, at, "a key is a list or a mapping", "write one word")
            elif key_node.tag != f"{_YAML}str":
                self._refuse(key_node, at, f"key '{key}' is not read as text", "quote it")
            if key in result:
                self._refuse(key_node, at, f"duplicate key '{key}'", "keep one of the two")
            result[key] = self.build(value_node, f"{at}.{key}" if at else key)
        return result

    def _scalar(self, node: yaml.ScalarNode, at: str) -> Any:
        if node.tag == f"{_YAML}timestamp":
            return node.value
        try:
            value = self._constructor.construct_object(node, deep=True)
        except ValueError as error:  # !!int abc, or thousands of digits
            return self._refuse(node, at, f"'{node.value[:20]}': {error}", "write it plainly")
        advice = "" if node.style else _trap(node.value, value)
        if advice:
            read_as = str(value).lower() if isinstance(value, bool) else value
            what = f"'{node.value}' is read as {read_as}" if node.value else "has no value"
            return self._refuse(node, at, what, advice)
        return value

    def _refuse(self, node: yaml.Node, at: str, what: str, fix: str) -> None:
        line, field = node.start_mark.line + 1, f", {at}" if at else ""
        self.errors.append(InputError(what, where=f"{self.where}, line {line}{field}", fix=fix))


def _trap(text: str, value: object) -> str:
    """Return what to write instead of a plain scalar that YAML 1.1 reads as something else."""
    if isinstance(value, bool) and text.lower() not in ("true", "false"):
        return f"write {str(value).lower()}, or quote it if the word is meant"
    if value is None and not text:
        return "write null, or the value"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    digits = text.lstrip("+-")
    if number and (":" in text or (digits[:1] == "0" and digits.isdigit() and digits != "0")):
        return "quote it, or write the number in decimals"
    return ""


def read_csv(file: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file as text; numbers are the caller's business.

    Raises
    ------
    InputError
        When it is empty, a column appears twice, or a row does not fit the header.
    """
    text = read_text(file)
    _refuse_merge_markers(text, shown(file))
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


# -- writing --------------------------------------------------------------------------------------


def write(file: Path, text: str) -> bool:
    """Write a text file atomically; return whether its content changed.

    Parameters
    ----------
    file : Path
        Target; missing parent folders are made.
    text : str
        New content.

    Raises
    ------
    InputError
        When the place cannot be written.
    """
    content = text.encode()
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


# -- records people write -------------------------------------------------------------------------


def _stems(folder: str, suffix: str) -> list[str]:
    base = path("data", folder)
    if not base.is_dir():
        return []
    stems = []
    for file in sorted(base.iterdir()):
        if file.name.startswith("."):
            continue
        if file.suffix != suffix:
            raise RecordError(
                f"'{file.suffix or file.name}' files do not belong here",
                where=shown(file),
                fix=f"name it {file.stem}{suffix}",
            )
        stems.append(file.stem)
    return stems


def claim_ids() -> list[str]:
    """Return the ids of all claims, sorted."""
    return _stems("claims", ".yml")


def hardware_ids() -> list[str]:
    """Return the ids of all devices, sorted."""
    return _stems("hardware", ".yml")


def model_ids() -> list[str]:
    """Return the ids of all models, sorted."""
    return _stems("models", ".json")


def _known(wanted: str, known: Sequence[str], kind: str, folder: str) -> None:
    if wanted not in known:
        import difflib

        close = difflib.get_close_matches(wanted, known, n=3)
        advice = f"did you mean {' or '.join(close)}?" if close else f"see data/{folder}/"
        raise InputError(f"unknown {kind} '{wanted}'", fix=advice)


def claim(claim_id: str) -> records.Claim:
    """Return one claim by id."""
    _known(claim_id, claim_ids(), "claim", "claims")
    return _claim(claim_id)


def claims() -> list[records.Claim]:
    """Return all claims, sorted by id."""
    return [_claim(claim_id) for claim_id in claim_ids()]


def _claim(claim_id: str) -> records.Claim:
    from assay.ledger import records

    record: records.Claim = _validated(
        records.Claim, path("data", "claims", f"{claim_id}.yml"), claim_id
    )
    return record


def hardware(hardware_id: str) -> records.Hardware:
    """Return one device by id."""
    from assay.ledger import records

    _known(hardware_id, hardware_ids(), "device", "hardware")
    record: records.Hardware = _validated(
        records.Hardware, path("data", "hardware", f"{hardware_id}.yml"), hardware_id
    )
    return record


def model(model_id: str) -> records.Model:
    """Return one model by id."""
    from assay.ledger import records

    _known(model_id, model_ids(), "model", "models")
    record: records.Model = _validated(
        records.Model, path("data", "models", f"{model_id}.json"), model_id
    )
    return record


def sources() -> dict[str, records.Source]:
    """Return all sources by id."""
    from assay.ledger import records

    file = path("data", "sources.yml")
    content, lines = read_yaml(file)
    if not isinstance(content, dict):
        raise RecordError("is not a mapping of ids to sources", where=shown(file))
    return {
        key: _record(records.Source, value, file, lines, prefix=key)
        for key, value in content.items()
    }


def _validated(kind: type[Any], file: Path, record_id: str) -> Any:
    lines: dict[str, int] = {}
    if file.suffix == ".json":
        content = read_json(file)
    else:
        content, lines = read_yaml(file)
    if not isinstance(content, dict):
        raise RecordError("is not a mapping of fields", where=shown(file), fix="see CONTRIBUTING")
    if "id" in content:
        raise RecordError(
            "unknown field 'id'",
            where=place(file, lines, "id"),
            fix="the file's name is the id; remove the field",
        )
    return _record(kind, {"id": record_id, **content}, file, lines)


def _record(
    kind: type[Any], content: Any, file: Path, lines: Mapping[str, int], *, prefix: str = ""
) -> Any:
    import pydantic

    from assay.ledger import records

    try:
        return kind.model_validate(content)
    except pydantic.ValidationError as error:
        flaw = records.flaws(error)[0]
        full = ".".join(part for part in (prefix, flaw.field) if part)
        raise RecordError(
            flaw.sentence, where=place(file, lines, full), fix="see the fields in CONTRIBUTING"
        ) from None


def place(file: Path, lines: Mapping[str, int], field: str) -> str:
    """Return file, line and field as messages show them; a missing field has its parent's line."""
    spot = field
    while spot and spot not in lines:
        cut = max(spot.rfind("."), spot.rfind("["))
        spot = spot[:cut] if cut > 0 else ""
    line = f", line {lines[spot]}" if spot in lines else ""
    return f"{shown(file)}{line}{f', {field}' if field else ''}"


def published_names() -> list[str]:
    """Return the names of the tables of third parties' measurements, sorted."""
    return [file.stem for file in _files(path("data", "published"), "*.csv")]


def published(name: str) -> list[dict[str, str]]:
    """Return one table of third parties' measurements, one row each, as text."""
    _known(name, published_names(), "table", "published")
    return read_csv(path("data", "published", f"{name}.csv"))


# -- evidence -------------------------------------------------------------------------------------


def evidence_name(item: records.Evidence) -> str:
    """Return the file name of a piece of evidence: assertion, basis, content hash."""
    content = json_text(item.model_dump(mode="json", by_alias=True))
    return f"{item.assertion}.{item.basis}.{digest(content)[:12]}.json"


def save(item: records.Evidence) -> Path:
    """Write a piece of evidence and return its path.

    Parameters
    ----------
    item : Evidence
        Written to the staging folder when the press runs the notebook, else to the ledger.

    Returns
    -------
    Path
        The file. Re-deriving replaces the earlier file of the same assertion, basis and
        conditions; a measurement is always a new file.

    Raises
    ------
    RecordError
        When the claim or the assertion does not exist.
    """
    from assay.ledger import records

    _refuse_misfit(claim(item.claim), item, f"claim {item.claim}")
    staged = os.environ.get(STAGING)
    base = Path(staged) if staged else path("data", "evidence")
    # What is written is what is read back: numbers are rounded before they are hashed.
    content = json_text(item.model_dump(mode="json", by_alias=True))
    rounded = records.Evidence.model_validate_json(content)
    file = base / item.claim / evidence_name(rounded)
    write(file, content)
    if not staged:
        _remove_superseded(file.parent, {file.name: rounded}, whole_run=False)
    return file


def found(
    owner: records.Claim,
    assertion: str,
    *,
    basis: records.Basis,
    value: float,
    unit: str,
    method: str,
    finding: str,
    parameters: Mapping[str, bool | int | float | str],
    inputs: Sequence[str],
    conditions: Mapping[str, str | int],
    low: float | Literal["exact"] | None = "exact",
    high: float | Literal["exact"] | None = "exact",
    n: int = 1,
    gates: Sequence[records.Gate] = (),
    provenance: records.Provenance | None = None,
    samples: str | None = None,
) -> records.Evidence:
    """Build one piece of evidence, save it, and return it.

    Parameters
    ----------
    owner : Claim
        The claim it is about.
    assertion : str
        Assertion id.
    basis : Basis
        How it was found.
    value : float
        The estimate [unit].
    unit : str
        Base unit.
    method : str
        How the estimate and its interval were computed.
    finding : str
        One sentence with the computed numbers.
    parameters : mapping
        The notebook's effective parameters.
    inputs : sequence of str
        Files the number depends on, relative to the root.
    conditions : mapping
        Scope values the evidence holds for; keys the assertion's scope marks ``n/a`` may be left
        out.
    low, high : float or None
        Interval [unit]; ``None`` is unbounded, by default the value itself (exact).
    n : int
        Blocks of a measurement, or independent sources of a publication.
    gates, provenance, samples
        For measurements; ``samples`` is a path relative to the root.

    Returns
    -------
    Evidence
        As written.

    Raises
    ------
    RecordError
        When what is given makes no evidence, or none of this claim.
    InputError
        When an input does not exist.
    """
    import pydantic

    from assay.ledger import records

    scope = owner.assertion(assertion).scope
    filled = {key: "n/a" for key in records.SCOPE_KEYS if getattr(scope, key) == "n/a"}
    digests = [_file_digest(name) for name in sorted(inputs)]
    try:
        item = records.Evidence(
            schema_=records.EVIDENCE_SCHEMA,
            claim=owner.id,
            assertion=assertion,
            basis=basis,
            estimate=records.Estimate(
                value=float(value),
                low=_end(low, value),
                high=_end(high, value),
                unit=unit,
                n=n,
                method=method,
            ),
            conditions={**filled, **conditions},
            finding=finding,
            gates=tuple(gates),
            inputs=tuple(digests),
            notebook=_file_digest(f"notebooks/{owner.notebook}.ipynb"),
            parameters=dict(parameters),
            provenance=provenance,
            samples=None if samples is None else _file_digest(samples),
        )
    except pydantic.ValidationError as error:
        flaw = records.flaws(error)[0]
        spot = f"evidence for {owner.id}, {assertion}{f', {flaw.field}' if flaw.field else ''}"
        raise RecordError(flaw.sentence, where=spot, fix="mend the notebook") from None
    return _load_evidence(save(item))


def _end(end: float | Literal["exact"] | None, value: float) -> float | None:
    """Return one end of an interval as a plain float, whatever kind of number it came as."""
    return None if end is None else float(value if end == "exact" else end)


def _file_digest(name: str) -> records.FileDigest:
    from assay.ledger import records

    return records.FileDigest(path=name, sha256=digest(path(name)))


def _refuse_misfit(owner: records.Claim, item: records.Evidence, where: str) -> None:
    from assay.ledger import records

    flaw = records.misfit(owner, item)
    if flaw:
        raise RecordError(flaw.sentence, where=where, fix="mend the notebook")


def _superseded(
    old: Mapping[str, records.Evidence], new: Mapping[str, records.Evidence], *, whole_run: bool
) -> list[str]:
    """Return the names of evidence that new evidence takes the place of.

    A measurement is never replaced. Without an engine a run cannot re-derive what an engine was
    asked for: such evidence carries provenance and yields only to its own kind. The rest belongs
    to the run as a whole.
    """
    produced = {_kind(item) for item in new.values()}
    return [
        name
        for name, item in old.items()
        if name not in new
        and item.basis in _DETERMINISTIC
        and (_kind(item) in produced or (whole_run and item.provenance is None))
    ]


def _kind(item: records.Evidence) -> tuple[str, str, str]:
    return item.assertion, item.basis, json_text(item.conditions)


def _remove_superseded(
    folder: Path, new: Mapping[str, records.Evidence], *, whole_run: bool
) -> None:
    """Remove what new evidence replaces, after it is safely there; what was withdrawn stays."""
    withdrawn = {file.name for file in _withdrawn(folder)}
    old = {file.name: _load_evidence(file) for file in _files(folder, "*.json")}
    for name in _superseded(old, new, whole_run=whole_run):
        if name not in withdrawn:
            (folder / name).unlink()


def promote(staging: Path, claim_id: str) -> list[Path]:
    """Move a finished run's evidence from staging into the ledger.

    Parameters
    ----------
    staging : Path
        Folder the run wrote to.
    claim_id : str
        The claim the run was for; evidence for another claim is an error.

    Returns
    -------
    list of Path
        The ledger's files. Deterministic evidence that this run no longer produces is removed;
        measurements stay.
    """
    owner = claim(claim_id)
    fresh: dict[str, records.Evidence] = {}
    texts: dict[str, str] = {}
    for file in _files(staging, "*/*.json"):
        item = _load_evidence(file)
        _refuse_misfit(owner, item, f"run of {claim_id}")
        fresh[file.name] = item
        texts[file.name] = read_text(file)
    target = path("data", "evidence", claim_id)
    for name, text in texts.items():
        write(target / name, text)
    _remove_superseded(target, fresh, whole_run=True)
    return [target / name for name in fresh]


@functools.lru_cache(maxsize=4096)
def _parse_evidence(text: str, where: str) -> records.Evidence:
    import pydantic

    from assay.ledger import records

    parse_json(text, where=where)
    try:
        return records.Evidence.model_validate_json(text)
    except pydantic.ValidationError as error:
        flaw = records.flaws(error)[0]
        raise RecordError(
            flaw.sentence,
            where=f"{where}{f', {flaw.field}' if flaw.field else ''}",
            fix="re-run the notebook",
        ) from None


def _load_evidence(file: Path) -> records.Evidence:
    text = read_text(file)
    item = _parse_evidence(text, shown(file))
    expected = f"{item.assertion}.{item.basis}.{digest(text)[:12]}.json"
    if file.name != expected:
        raise RecordError(
            f"content does not match the name (its hash gives {expected})",
            where=shown(file),
            fix="restore the file; evidence is never edited",
        )
    if file.parent.name != item.claim:
        raise RecordError(
            f"evidence for claim '{item.claim}' lies in the folder of another",
            where=shown(file),
            fix=f"move it to data/evidence/{item.claim}/",
        )
    return item


def evidence(claim_id: str) -> dict[str, records.Evidence]:
    """Return all evidence of a claim by file name, withdrawn pieces included.

    Staged evidence of the running notebook is included, and what it will replace is not.

    Raises
    ------
    RecordError
        When a file breaks the schema, was edited, or names an unknown claim or assertion.
    """
    owner = claim(claim_id)
    found: dict[str, records.Evidence] = {}
    for file in _files(path("data", "evidence", claim_id), "*.json"):
        found[file.name] = _load_evidence(file)
        _refuse_misfit(owner, found[file.name], shown(file))
    staged = os.environ.get(STAGING)
    if staged:
        fresh = {f.name: _load_evidence(f) for f in _files(Path(staged) / claim_id, "*.json")}
        for name in _superseded(found, fresh, whole_run=True):
            del found[name]
        found |= fresh
    return found


def _withdrawn(folder: Path) -> dict[Path, records.Withdrawal]:
    """Return the withdrawals of a folder by the evidence file they name."""
    from assay.ledger import records

    found: dict[Path, records.Withdrawal] = {}
    for file in _files(folder, "*.withdrawn.yml"):
        content, lines = read_yaml(file)
        record: records.Withdrawal = _record(records.Withdrawal, content, file, lines)
        named = folder / record.evidence
        if named.parent != folder or not named.is_file():
            raise RecordError(
                f"withdraws unknown evidence '{record.evidence}'",
                where=place(file, lines, "evidence"),
                fix="name a file beside it",
            )
        found[named] = record
    return found


def withdrawals(claim_id: str) -> dict[str, records.Withdrawal]:
    """Return the withdrawals of a claim by evidence file name."""
    folder = path("data", "evidence", claim_id)
    return {file.name: record for file, record in _withdrawn(folder).items()}


def live(claim_id: str) -> list[records.Evidence]:
    """Return the evidence of a claim that has not been withdrawn."""
    gone = withdrawals(claim_id)
    return [item for name, item in evidence(claim_id).items() if name not in gone]


def stray_evidence() -> Iterator[Path]:
    """Yield evidence folders and files that belong to no claim."""
    base = path("data", "evidence")
    known = set(claim_ids())
    if base.is_dir():
        for entry in sorted(base.iterdir()):
            if entry.name not in known and not entry.name.startswith("."):
                yield entry


# -- verdicts and history -------------------------------------------------------------------------

_VERDICT_HEADER = (
    "claim",
    "claim_status",
    "assertion",
    "headline",
    "status",
    "reason",
    "basis",
    "claimed",
    "low",
    "high",
    "unit",
)
_HISTORY_HEADER = ("date", "claim", "assertion", "from", "to", "cause")


def _csv_text(header: Sequence[str], rows: Sequence[Mapping[str, object]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, header, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: _cell(row[key]) for key in header})
    return out.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(canonical(value))
    if isinstance(value, list | tuple):
        return (" > " if isinstance(value[0], str) else ":").join(map(_cell, value))
    return str(value)


def verdict_rows(verdicts: Sequence[judges.Verdict]) -> list[dict[str, object]]:
    """Return the ledger's table, one row per assertion, sorted by claim."""
    return [
        {
            "claim": verdict.claim,
            "claim_status": verdict.status,
            "assertion": finding.id,
            "headline": finding.headline,
            "status": finding.status,
            "reason": finding.reason,
            "basis": finding.basis,
            "claimed": finding.claimed,
            "low": finding.low,
            "high": finding.high,
            "unit": finding.unit,
        }
        for verdict in sorted(verdicts, key=lambda v: v.claim)
        for finding in verdict.findings
    ]


def verdicts_text(verdicts: Sequence[judges.Verdict]) -> str:
    """Return the content ``data/verdicts.csv`` should have."""
    return _csv_text(_VERDICT_HEADER, verdict_rows(verdicts))


def verdicts_stale(verdicts: Sequence[judges.Verdict]) -> bool:
    """Whether ``data/verdicts.csv`` differs from what the ledger implies."""
    file = path("data", "verdicts.csv")
    return not file.is_file() or read_text(file) != verdicts_text(verdicts)


def history() -> list[dict[str, str]]:
    """Return all recorded changes of verdicts, oldest first."""
    file = path("data", "history.csv")
    rows = read_csv(file) if file.is_file() else []
    if rows and tuple(rows[0]) != _HISTORY_HEADER:
        raise InputError(
            f"the header is not {','.join(_HISTORY_HEADER)}",
            where=f"{shown(file)}, line 1",
            fix="restore the file",
        )
    return rows


def write_verdicts(
    verdicts: Sequence[judges.Verdict], *, date: str, cause: str
) -> list[dict[str, str]]:
    """Write ``verdicts.csv`` and append every change to ``history.csv``.

    Parameters
    ----------
    verdicts : sequence of Verdict
        All claims' verdicts.
    date : str
        Day of the change, ``YYYY-MM-DD``; the caller reads the clock.
    cause : str
        Why verdicts changed, in a few words.

    Returns
    -------
    list of dict
        The changes appended: date, claim, assertion, from, to, cause.
    """
    last = {(row["claim"], row["assertion"]): row["to"] for row in history()}
    words = {
        (str(row["claim"]), str(row["assertion"])): f"{row['status']} ({row['reason']})"
        if row["reason"]
        else str(row["status"])
        for row in verdict_rows(verdicts)
    }
    gone = {key: "removed" for key in last if key not in words}
    changes = [
        {
            "date": date,
            "claim": key[0],
            "assertion": key[1],
            "from": last.get(key, ""),
            "to": word,
            "cause": cause,
        }
        for key, word in {**words, **gone}.items()
        if last.get(key, "") != word
    ]
    if changes:  # what is there stays byte for byte; the new rows follow it
        file = path("data", "history.csv")
        added = _csv_text(_HISTORY_HEADER, changes)
        past = read_text(file) if file.is_file() else ""
        if past:
            added = past + ("" if past.endswith("\n") else "\n") + added.partition("\n")[2]
        write(file, added)
    write(path("data", "verdicts.csv"), verdicts_text(verdicts))
    return changes
