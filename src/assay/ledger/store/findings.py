"""Findings: content-hashed evidence files that notebooks write and nobody edits.

Owns naming, saving, staging, promoting and withdrawing evidence. Does not own what it says.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from assay.errors import RecordError
from assay.ledger.store.documents import read_yaml
from assay.ledger.store.files import (
    digest,
    json_text,
    listed,
    parse_json,
    path,
    read_bytes,
    read_text,
    shown,
    write,
    write_bytes,
)
from assay.ledger.store.shelf import as_record, claim, claim_ids, place

if TYPE_CHECKING:
    from assay.ledger import records

# A notebook run by the press writes here instead of the ledger, and is promoted when it succeeds.
STAGING = "ASSAY_STAGING"

# Re-deriving one of these replaces its earlier file; a measurement is never replaced.
_DETERMINISTIC = frozenset(
    {"derived", "recomputed", "documented", "bound", "published", "simulated"}
)


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


def keep_samples(claim_id: str, file: Path) -> str:
    """Keep a file of raw samples beside the evidence it stands behind.

    Parameters
    ----------
    claim_id : str
        The claim measured.
    file : Path
        Rows as the load client wrote them, for example Parquet.

    Returns
    -------
    str
        Its place relative to the root, for ``found(samples=...)``; the name carries the content's
        hash, so samples are never overwritten.

    Raises
    ------
    RecordError
        When it is a JSON file, which would be read as evidence.
    """
    if file.suffix == ".json":
        raise RecordError("samples are not kept as JSON", where=file.name, fix="use CSV or Parquet")
    content = read_bytes(file)
    name = f"{file.stem}.{digest(content)[:12]}{file.suffix}"
    staged = os.environ.get(STAGING)
    base = Path(staged) if staged else path("data", "evidence")
    write_bytes(base / claim_id / name, content)
    return f"data/evidence/{claim_id}/{name}"


def _file_digest(name: str) -> records.FileDigest:
    from assay.ledger import records

    staged = os.environ.get(STAGING)
    file = path(name)
    if staged and name.startswith("data/evidence/"):
        waiting = Path(staged) / name.removeprefix("data/evidence/")
        file = waiting if waiting.is_file() else file
    return records.FileDigest(path=name, sha256=digest(file))


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


def _kind(item: records.Evidence) -> tuple[str, str, str, str]:
    # A closed form and an engine asked the same question are two pieces, not one re-derived.
    engine = item.provenance.engine if item.provenance else ""
    return item.assertion, item.basis, json_text(item.conditions), engine


def _remove_superseded(
    folder: Path, new: Mapping[str, records.Evidence], *, whole_run: bool
) -> None:
    """Remove what new evidence replaces, after it is safely there; what was withdrawn stays."""
    withdrawn = {file.name for file in _withdrawn(folder)}
    old = {file.name: _load_evidence(file) for file in listed(folder, "*.json")}
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
    for file in listed(staging, "*/*.json"):
        item = _load_evidence(file)
        _refuse_misfit(owner, item, f"run of {claim_id}")
        fresh[file.name] = item
        texts[file.name] = read_text(file)
    target = path("data", "evidence", claim_id)
    for file in listed(staging / claim_id, "*"):
        if file.suffix != ".json":  # raw samples come first: evidence must never point at nothing
            write_bytes(target / file.name, read_bytes(file))
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
    for file in listed(path("data", "evidence", claim_id), "*.json"):
        found[file.name] = _load_evidence(file)
        _refuse_misfit(owner, found[file.name], shown(file))
    staged = os.environ.get(STAGING)
    # A run replaces evidence of its own claim only; of another, a notebook reads the ledger's.
    if staged and (Path(staged) / claim_id).is_dir():
        fresh = {f.name: _load_evidence(f) for f in listed(Path(staged) / claim_id, "*.json")}
        for name in _superseded(found, fresh, whole_run=True):
            del found[name]
        found |= fresh
    return found


def _withdrawn(folder: Path) -> dict[Path, records.Withdrawal]:
    """Return the withdrawals of a folder by the evidence file they name."""
    from assay.ledger import records

    found: dict[Path, records.Withdrawal] = {}
    for file in listed(folder, "*.withdrawn.yml"):
        content, lines = read_yaml(file)
        record: records.Withdrawal = as_record(records.Withdrawal, content, file, lines)
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
