"""Journal: the folder of a run, and which of its blocks are finished.

Owns the lock, the plan written first, and the records of finished blocks. Does not own what happens
in a block (``protocol``).

::

    <folder>/plan.json          written first; a folder whose plan differs is refused
    <folder>/lock               held while a run is at work
    <folder>/blocks/0001.parquet    the requests of a finished block
    <folder>/blocks/0001.json       its record, written last: a block without it never happened
    <folder>/partial/           logs of the block at work
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from assay.bench.load import rows
from assay.bench.load.rows import Row
from assay.bench.protocol.plan import SCHEMA, Plan
from assay.bench.protocol.window import Window
from assay.errors import InputError, RecordError
from assay.ledger import store

__all__ = ["alone", "file", "finished", "seconds", "settle", "windows", "write"]


def file(folder: Path, block: int) -> Path:
    """Return where the record of a block lies, or will."""
    return folder / "blocks" / f"{block:04}.json"


def windows(folder: Path) -> list[Window]:
    """Return the windows of the finished blocks of a run folder.

    Raises
    ------
    RecordError
        When a record or its requests were changed.
    """
    found: list[Window] = []
    for record in sorted((folder / "blocks").glob("[0-9]*.json")):
        found += _windows(record)
    return found


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a run folder, as one process at a time may.

    Raises
    ------
    InputError
        When another process is at work in it.
    """
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(
                "another process measures in this folder",
                where=store.shown(folder),
                fix="wait until it ends",
            ) from None
        yield
    finally:
        os.close(lock)


def settle(plan: Plan, folder: Path) -> None:
    """Write the plan of a fresh folder; refuse a folder that holds another.

    Raises
    ------
    InputError
        When it holds another, or blocks without a plan.
    """
    place = folder / "plan.json"
    wanted = store.json_text(plan.to_json())
    if not place.exists():
        if any((folder / "blocks").glob("*.json")):
            raise InputError(
                "finished blocks without their plan",
                where=store.shown(folder),
                fix="name an empty folder",
            )
        store.write(place, wanted)
        return
    if store.read_text(place) != wanted:
        before, now = store.read_json(place), plan.to_json()
        changed = [name for name in now if before.get(name) != store.canonical(now[name])]
        raise InputError(
            f"another plan was begun here ({', '.join(changed) or 'its form'} differs)",
            where=store.shown(folder),
            fix="name a fresh folder; blocks of two plans are never mixed",
        )


def finished(plan: Plan, folder: Path) -> dict[int, list[Window]]:
    """Return the windows of each block of a plan that is finished."""
    there = {block: file(folder, block) for block in range(1, plan.blocks + 1)}
    return {block: _windows(record) for block, record in there.items() if record.exists()}


def seconds(folder: Path, block: int) -> float:
    """Return what a finished block cost [s]."""
    return float(store.read_json(file(folder, block))["seconds"])


def write(
    folder: Path,
    block: int,
    *,
    started: str,
    seconds: float,
    labelled: Sequence[tuple[Mapping[str, object], Row]],
    windows: Sequence[Window],
) -> None:
    """Finish a block: its requests first, its record last.

    Parameters
    ----------
    folder : Path
        Of the run.
    block : int
        From 1.
    started : str
        UTC.
    seconds : float
        What it cost [s].
    labelled : sequence of (mapping, Row)
        As :func:`assay.bench.load.rows.place` takes them.
    windows : sequence of Window
        One a load and arm.
    """
    record = file(folder, block)
    samples = record.with_suffix(".parquet")
    rows.place(samples, labelled)
    content = {
        "schema": SCHEMA,
        "block": block,
        "started": started,
        "seconds": round(seconds, 3),
        "samples": store.digest(samples),
        "windows": [found.to_json() for found in windows],
    }
    store.write(record, store.json_text(content))


def _windows(record: Path) -> list[Window]:
    content = store.read_json(record)
    samples = record.with_suffix(".parquet")
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise RecordError("no record of a block", where=store.shown(record), fix="measure again")
    if not samples.is_file() or store.digest(samples) != content["samples"]:
        raise RecordError(
            "its requests are missing or were changed",
            where=store.shown(record),
            fix="remove the record to measure this block again",
        )
    return [Window.from_json(found) for found in content["windows"]]
