"""Reader: the door. Any benchmark's result file in, normalised runs and problems out.

Owns the answer of ``assay read``: a file's runs or the one sentence why it has none, and the table
over several files. No number of a run with an error leaves this file. Does not own telling the
formats apart (``formats``).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.bench.results import checks, formats, table
from assay.bench.results.problems import Problem
from assay.bench.results.stream import opened
from assay.bench.results.table import Run
from assay.errors import AssayError, InputError

__all__ = ["LISTED", "Reading", "answer", "read", "sentences"]

#: Runs of one file that are read; a longer list is a suite nobody looks at in one table.
LISTED = 10_000


@dataclass(frozen=True, slots=True)
class Reading:
    """What one file says.

    Parameters
    ----------
    file : str
        Its name as given.
    runs : tuple of Run
        In the order of the file; empty when it cannot be read.
    error : InputError, optional
        Why it cannot be read.
    """

    file: str
    runs: tuple[Run, ...] = ()
    error: InputError | None = None

    @property
    def usable(self) -> bool:
        """Whether any of its runs may be shown."""
        return any(run.usable for run in self.runs)


def read(file: Path | str) -> Reading:
    """Read one result file; what is wrong with it is in the answer, not raised.

    Parameters
    ----------
    file : Path or str
        JSON, JSON lines, YAML, CSV, SQL or a Markdown table; compressed or not.

    Returns
    -------
    Reading
        Runs with their problems.
    """
    path = Path(file)
    shown = str(file)
    try:
        data = opened(path, shown)
        found = list(itertools.islice(formats.runs(data, shown), LISTED))
        if not found:
            raise InputError("holds no run", where=shown, fix=f"give a file of {formats.KNOWN}")
    except InputError as error:
        return Reading(shown, error=error)
    for run in found:
        checks.check(run)
    return Reading(shown, tuple(found))


def answer(readings: Sequence[Reading]) -> dict[str, Any]:
    """Return what ``assay read`` says: one table over all files.

    Parameters
    ----------
    readings : sequence of Reading
        One for each file.

    Returns
    -------
    dict
        ``usable`` (every run of every file is), ``files``, ``problems``, ``columns`` (each with
        its unit and what it counts), ``rows`` (usable runs, base units) and ``notes``.
    """
    shown = [run for reading in readings for run in reading.runs if run.usable]
    result: dict[str, Any] = {
        "usable": bool(readings) and all(_whole(reading) for reading in readings),
        "files": [],
        "problems": [],
        "columns": table.columns(shown),
        "rows": [],
        "notes": [],
    }
    for reading in readings:
        formats = list(dict.fromkeys(run.format for run in reading.runs))
        result["files"].append(
            {
                "file": reading.file,
                "format": ", ".join(formats) or None,
                "usable": reading.usable,
            }
        )
        for place, problem in _problems(reading):
            result["problems"].append(
                {
                    "file": reading.file,
                    "run": place,
                    "rule": problem.rule,
                    "severity": problem.severity,
                    "message": problem.message,
                }
            )
        for number, run in enumerate(reading.runs, start=1):
            if not run.usable:
                continue
            head = {"file": reading.file, "run": number, "format": run.format}
            result["rows"].append({**head, **_finite(table.row(run))})
            for column, text in (*run.notes, *table.uncertified(run)):
                result["notes"].append(
                    {"file": reading.file, "run": number, "column": column, "note": text}
                )
    return result


def _whole(reading: Reading) -> bool:
    return bool(reading.runs) and all(run.usable for run in reading.runs)


def _problems(reading: Reading) -> Iterator[tuple[str | None, Problem]]:
    if reading.error is not None:
        yield None, Problem(_rule(reading.error), str(reading.error))
    several = len(reading.runs) > 1
    for number, run in enumerate(reading.runs, start=1):
        for problem in run.log.problems:
            yield (f"run {number}" if several else None), problem


def _rule(error: AssayError) -> str:
    if error.what.startswith(("not JSON", "not YAML", "is not CSV")):
        return "file.not-json"
    unknown = ("no known", "holds", "is not a bench", "is an empty list")
    return "file.unknown-format" if error.what.startswith(unknown) else "file.unreadable"


def _finite(cells: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in cells.items()
    }


def sentences(readings: Sequence[Reading]) -> list[str]:
    """Return one sentence for every run that cannot be used: what, where, what to do."""
    found = []
    for reading in readings:
        if reading.error is not None:
            found.append(str(reading.error))
        several = len(reading.runs) > 1
        for number, run in enumerate(reading.runs, start=1):
            if run.usable:
                continue
            place = f"{reading.file}, run {number}" if several else reading.file
            reasons = [p.message for p in run.log.problems if p.severity == "error"]
            found.append(f"{place}: not usable: {reasons[0]}; run the benchmark again")
    return found
