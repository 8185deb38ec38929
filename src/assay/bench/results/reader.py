"""Reader: the door. Any benchmark's result file in, normalised runs and problems out.

Owns telling the formats apart, by content and never by name, and the answer of ``assay read``.
No number of a run with an error leaves this file.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.bench.results import (
    aiperf,
    checks,
    guidellm,
    llamabench,
    lmbench,
    loose,
    sglang,
    table,
    trtllm,
    vllm,
)
from assay.bench.results.problems import Problem
from assay.bench.results.stream import Buffer, Document, documents, opened
from assay.bench.results.table import Run
from assay.errors import AssayError, InputError
from assay.ledger import store

__all__ = ["LISTED", "Reading", "answer", "read", "sentences"]

#: Runs of one file that are read; a longer list is a suite nobody looks at in one table.
LISTED = 10_000
#: Text tables are read whole; beyond this they are no benchmark's [B].
_TABLE = 64 << 20
_KNOWN = "vLLM, SGLang, GuideLLM, AIPerf, llama-bench, TensorRT-LLM and LMBenchmark"


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
        JSON, JSON lines, CSV, a Markdown table, or YAML claims.

    Returns
    -------
    Reading
        Runs with their problems.
    """
    path = Path(file)
    shown = str(file)
    try:
        data = opened(path, shown)
        found = list(itertools.islice(_runs(path, data, shown), LISTED))
        if not found:
            raise InputError("holds no run", where=shown, fix=f"give a file of {_KNOWN}")
    except InputError as error:
        return Reading(shown, error=error)
    for run in found:
        checks.check(run)
    return Reading(shown, tuple(found))


def _runs(path: Path, data: Buffer, shown: str) -> Iterator[Run]:
    start = data[:4096].removeprefix(b"\xef\xbb\xbf").lstrip()
    if start[:1] in (b"{", b"["):
        yield from _json(documents(data, shown), shown)
    elif path.suffix in (".yaml", ".yml"):
        yield from _object(_yaml(path), shown)
    elif _is_table(start):
        yield from _table(data, shown)
    else:
        # JSON that starts with something else is said to be no JSON, with its place.
        next(documents(data, shown), None)
        raise InputError(
            "is not a benchmark's result: one value, not an object",
            where=shown,
            fix=f"give a file of {_KNOWN}",
        )


def _yaml(path: Path) -> dict[str, Any]:
    content, _ = store.read_yaml(path)
    return content if isinstance(content, dict) else {}


def _json(found: Iterator[Document], shown: str) -> Iterator[Run]:
    for document in found:
        value = document.value
        if isinstance(value, dict) and aiperf.is_record(value):
            yield aiperf.records(itertools.chain([document], found))
            continue
        objects = value if isinstance(value, list) else [value]
        place = shown if document.line == 1 else f"{shown}, line {document.line}"
        if not objects:
            raise InputError("is an empty list", where=place, fix=f"give a file of {_KNOWN}")
        for item in objects:
            yield from _object(item, place)


def _object(item: Any, place: str) -> Iterator[Run]:
    if not isinstance(item, dict):
        raise InputError(
            "holds a value that is not an object", where=place, fix=f"give a file of {_KNOWN}"
        )
    shape = _shape(item)
    if shape is None:
        keys = ", ".join(sorted(str(k)[:24] for k in item)[:4]) or "none"
        raise InputError(
            f"no known benchmark writes such an object (keys: {_printable(keys)})",
            where=place,
            fix=f"give a file of {_KNOWN}",
        )
    yield from shape


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _shape(item: Mapping[str, Any]) -> list[Run] | None:
    """Return the runs of an object, by the first format that knows it."""
    if guidellm.is_report(item):
        return guidellm.runs(item)
    if loose.is_claims(item):
        return loose.claims(item)
    for known, reader in (
        (sglang.is_serving, sglang.serving),
        (vllm.is_serving, vllm.serving),
        (aiperf.is_summary, aiperf.summary),
        (llamabench.is_test, llamabench.run),
        (trtllm.is_report, trtllm.report),
        (trtllm.is_two_rates, trtllm.two_rates),
        (sglang.is_batch, sglang.one_batch),
        (sglang.is_offline, sglang.offline),
        (vllm.is_latency, vllm.latency),
        (vllm.is_throughput, vllm.throughput),
        (loose.is_counts, loose.per_gpu),
        (loose.is_requests, loose.requests),
        (loose.is_usage, loose.usage),
    ):
        if known(item):
            return [reader(item)]
    return None


# -- text tables ----------------------------------------------------------------------------------


def _is_table(start: bytes) -> bool:
    head = start.split(b"\n", 1)[0]
    return head.startswith(b"|") or (head.count(b",") >= 2 and b"{" not in head)


def _table(data: Buffer, shown: str) -> Iterator[Run]:
    if len(data) > _TABLE:
        raise InputError(
            f"is a table of more than {_TABLE >> 20} MiB", where=shown, fix="give a part of it"
        )
    try:
        text = bytes(data[:]).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"is not UTF-8 text (byte {error.start})", where=shown, fix="save it as UTF-8"
        ) from None
    marked = text.lstrip().startswith("|")
    names, rows = _markdown(text) if marked else _csv(text, shown)
    if lmbench.is_header(names):
        yield lmbench.run(rows)
    elif marked and llamabench.is_header(names):
        yield from (llamabench.markdown(row) for row in rows)
    elif llamabench.is_header(names) and "n_prompt" in names:
        yield from (llamabench.run(llamabench.typed(row)) for row in rows)
    else:
        columns = _printable(", ".join(name[:24] for name in names[:4]))
        raise InputError(
            f"no known benchmark writes such a table (columns: {columns})",
            where=shown,
            fix=f"give a file of {_KNOWN}",
        )


def _csv(text: str, shown: str) -> tuple[list[str], list[dict[str, str]]]:
    try:
        cells = list(csv.reader(io.StringIO(text)))
    except csv.Error as error:
        raise InputError(f"is not CSV: {error}", where=shown, fix="mend it") from None
    cells = [row for row in cells if row]
    names = [name.strip() for name in cells[0]] if cells else []
    for number, row in enumerate(cells[1:], start=2):
        if len(row) != len(names):
            raise InputError(
                f"row {number} has {len(row)} cells and the header {len(names)}",
                where=shown,
                fix="mend the row, or run the benchmark again",
            )
    return names, [dict(zip(names, row, strict=True)) for row in cells[1:]]


def _markdown(text: str) -> tuple[list[str], list[dict[str, str]]]:
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith("|")]
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines]
    rows = [row for row in cells[1:] if not all(set(c) <= set("-: ") for c in row)]
    return cells[0], [dict(zip(cells[0], row, strict=False)) for row in rows]


# -- the answer -----------------------------------------------------------------------------------


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
    if error.what.startswith("not JSON"):
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
