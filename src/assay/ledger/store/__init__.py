"""Store: the only place that reads and writes files.

Owns where things live, atomic writing, content-hashed evidence names, and turning files into
records with errors that name file, line and field. Does not own what the records mean.

Writing is atomic (a temporary file beside the target, then a rename), so a process killed at any
moment leaves either the old file or the new one. Output is deterministic: sorted keys, two spaces,
whole numbers in full and others to 12 significant digits, newline at the end.

The rooms inside: ``files`` (text, JSON, CSV, atomic writing), ``documents`` (YAML with lines),
``shelf`` (records people write), ``findings`` (evidence that notebooks write) and ``verdicts`` (the
printed tables). Everything comes and goes through this one door.
"""

from assay.ledger.store.documents import (
    examine_yaml,
    read_yaml,
)
from assay.ledger.store.files import (
    canonical,
    digest,
    json_text,
    parse_json,
    path,
    read_bytes,
    read_csv,
    read_json,
    read_text,
    root,
    shown,
    write,
    write_bytes,
)
from assay.ledger.store.findings import (
    STAGING,
    evidence,
    evidence_name,
    found,
    keep_samples,
    live,
    promote,
    save,
    stray_evidence,
    withdrawals,
)
from assay.ledger.store.shelf import (
    claim,
    claim_ids,
    claims,
    hardware,
    hardware_ids,
    model,
    model_ids,
    place,
    published,
    published_names,
    sources,
)
from assay.ledger.store.verdicts import (
    history,
    verdict_rows,
    verdicts_stale,
    verdicts_text,
    write_verdicts,
)

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
    "keep_samples",
    "live",
    "model",
    "model_ids",
    "parse_json",
    "path",
    "place",
    "promote",
    "published",
    "published_names",
    "read_bytes",
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
    "write_bytes",
    "write_verdicts",
]
