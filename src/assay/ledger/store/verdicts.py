"""Verdicts: the ledger's two printed tables.

Owns the text of ``data/verdicts.csv`` and appending to ``data/history.csv``. Does not own deciding.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from assay.errors import InputError
from assay.ledger.store.files import canonical, path, read_csv, read_text, shown, write

if TYPE_CHECKING:
    from assay.ledger import judge as judges

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
