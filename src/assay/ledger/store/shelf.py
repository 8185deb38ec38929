"""Shelf: the records people write, read from ``data/`` one by one.

Owns finding a record by its id and the message when it breaks its schema. Does not own the schemas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import InputError, RecordError
from assay.ledger.store.documents import read_yaml
from assay.ledger.store.files import listed, path, read_csv, read_json, shown

if TYPE_CHECKING:
    from assay.ledger import records


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
        key: as_record(records.Source, value, file, lines, prefix=key)
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
    return as_record(kind, {"id": record_id, **content}, file, lines)


def as_record(
    kind: type[Any], content: Any, file: Path, lines: Mapping[str, int], *, prefix: str = ""
) -> Any:
    """Return a parsed document as a record, or say which field is wrong and where."""
    import pydantic

    from assay.ledger import records

    try:
        return kind.model_validate(content)
    except pydantic.ValidationError as error:
        found = records.flaws(error)
        # A misspelt field is missing under its right name too; the slip itself says more.
        flaw = next((f for f in found if f.kind == "unknown-field"), found[0])
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
    return [file.stem for file in listed(path("data", "published"), "*.csv")]


def published(name: str) -> list[dict[str, str]]:
    """Return one table of third parties' measurements, one row each, as text."""
    _known(name, published_names(), "table", "published")
    return read_csv(path("data", "published", f"{name}.csv"))
