"""Protocol: blocks of fresh server starts, interleaved at random, resumable after any crash.

Owns the plan, the order of runs, the run folder and what a finished block leaves in it. Does not
own gates or estimates (``measurement``).

::

    <folder>/plan.json          written first; a folder whose plan differs is refused
    <folder>/lock               held while a run is at work
    <folder>/blocks/0001.parquet    the requests of a finished block
    <folder>/blocks/0001.json       its record, written last: a block without it never happened
    <folder>/partial/           logs of the block at work

A block starts every arm once, in random order, each in a fresh process; on each start every load
runs once, in random order, after a warm-up of its own. Arms of one block get the same prompts, so
that they differ in nothing but the arm; no prompt is sent twice to one server.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import fcntl
import hashlib
import math
import os
import random
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from assay.bench import load as loads
from assay.bench import provenance, window
from assay.bench.engines import server
from assay.bench.engines.counters import Counts
from assay.bench.engines.recipe import Recipe
from assay.bench.load import Drive, Load, Outcome
from assay.bench.window import Window
from assay.errors import InputError, RecordError
from assay.ledger import store

__all__ = ["Plan", "Progress", "run", "windows"]

_SCHEMA = 1
_KEPT = re.compile(r"[a-z0-9][a-z0-9._-]*")


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What will be measured; two runs of one plan ask the same of the same servers.

    Parameters
    ----------
    arms : mapping of str to Recipe
        By name.
    loads : mapping of str to Load
        By name.
    blocks : int
        Server starts of each arm [1].
    seed : int
        Of order, prompts and arrival times.

    Raises
    ------
    InputError
        When it is empty, or a name cannot be one of a file.
    """

    arms: Mapping[str, Recipe]
    loads: Mapping[str, Load]
    blocks: int
    seed: int

    def __post_init__(self) -> None:
        if not self.arms or not self.loads or self.blocks < 1:
            raise InputError("nothing to measure", where="plan", fix="give an arm, a load, a block")
        for name in (*self.arms, *self.loads):
            if not _KEPT.fullmatch(name):
                raise InputError(
                    f"'{name}' is no name of an arm or a load",
                    where="plan",
                    fix="use lower case, digits, points and hyphens",
                )

    def order(self, block: int) -> list[tuple[str, list[str]]]:
        """Return the arms of a block and the loads of each, in the order they run.

        Parameters
        ----------
        block : int
            From 1.
        """
        chance = random.Random(_number(self.seed, block, "order"))
        arms = sorted(self.arms)
        chance.shuffle(arms)
        order = []
        for arm in arms:
            names = sorted(self.loads)
            chance.shuffle(names)
            order.append((arm, names))
        return order

    def prompts(self, block: int, name: str) -> int:
        """Return the seed of a load's prompts in a block; the same for all arms."""
        return _number(self.seed, block, name)

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON value, with the packages that decide what it means."""
        content = window.finite(
            {
                "schema": _SCHEMA,
                "arms": {name: dataclasses.asdict(arm) for name, arm in self.arms.items()},
                "loads": {name: dataclasses.asdict(load) for name, load in self.loads.items()},
                "blocks": self.blocks,
                "seed": self.seed,
                "packages": provenance.packages(),
            }
        )
        assert isinstance(content, dict)
        return content


def _number(*parts: object) -> int:
    """Return a number that follows from its parts, and looks random [0, 2**31)."""
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """Where a run is.

    Parameters
    ----------
    block, blocks : int
        Block at work and in all [1].
    doing : str
        What happens now.
    done, total : int
        Runs of a load, finished and in all [1].
    elapsed : float
        Since this call [s].
    remaining : float or None
        Expected until the end, from the blocks that are finished [s].
    """

    block: int
    blocks: int
    doing: str
    done: int
    total: int
    elapsed: float
    remaining: float | None

    def __str__(self) -> str:
        left = "" if self.remaining is None else f", about {self.remaining / 60:.1f} min left"
        return f"block {self.block} of {self.blocks}: {self.doing} ({self.done}/{self.total}{left})"


def run(
    plan: Plan,
    folder: Path,
    *,
    drive: Drive | None = None,
    tell: Callable[[Progress], None] = lambda _: None,
    ready_limit: float = 600.0,
) -> list[Window]:
    """Carry out a plan, or what is left of it.

    Parameters
    ----------
    plan : Plan
        What to measure.
    folder : Path
        Of this run; a folder with finished blocks of the same plan is continued.
    drive : Drive or None
        Puts the load on; by default :class:`assay.bench.load.Client`.
    tell : callable
        Receives the progress.
    ready_limit : float
        Time a server may take until it serves [s].

    Returns
    -------
    list of Window
        Of all blocks, in order.

    Raises
    ------
    InputError
        When the folder holds another plan, or another process is at work in it.
    RunError
        When an engine or the client fails; finished blocks stay.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder), contextlib.ExitStack() as stack:
        _settle(plan, folder)
        done = _finished(plan, folder)
        if len(done) < plan.blocks:
            clock = _Clock(plan, folder, tell, sorted(done))
            shutil.rmtree(folder / "partial", ignore_errors=True)  # of a block that was cut short
            if drive is None:
                drive = stack.enter_context(loads.Client(folder / "partial"))
            for block in range(1, plan.blocks + 1):
                if block not in done:
                    _block(plan, block, folder, drive, clock, ready_limit)
                    done = _finished(plan, folder)
            shutil.rmtree(folder / "partial", ignore_errors=True)
    return [found for block in sorted(done) for found in done[block]]


def windows(folder: Path) -> list[Window]:
    """Return the windows of the finished blocks of a run folder.

    Raises
    ------
    RecordError
        When a record or its requests were changed.
    """
    found: list[Window] = []
    for file in sorted((folder / "blocks").glob("[0-9]*.json")):
        found += _record(file)
    return found


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
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


def _settle(plan: Plan, folder: Path) -> None:
    """Write the plan of a fresh folder; refuse a folder that holds another."""
    file = folder / "plan.json"
    wanted = store.json_text(plan.to_json())
    if not file.exists():
        if any((folder / "blocks").glob("*.json")):
            raise InputError(
                "finished blocks without their plan",
                where=store.shown(folder),
                fix="name an empty folder",
            )
        store.write(file, wanted)
        return
    if store.read_text(file) != wanted:
        before, now = store.read_json(file), plan.to_json()
        changed = [name for name in now if before.get(name) != store.canonical(now[name])]
        raise InputError(
            f"another plan was begun here ({', '.join(changed) or 'its form'} differs)",
            where=store.shown(folder),
            fix="name a fresh folder; blocks of two plans are never mixed",
        )


def _finished(plan: Plan, folder: Path) -> dict[int, list[Window]]:
    done = {}
    for block in range(1, plan.blocks + 1):
        file = folder / "blocks" / f"{block:04}.json"
        if file.exists():
            done[block] = _record(file)
    return done


def _record(file: Path) -> list[Window]:
    content = store.read_json(file)
    rows = file.with_suffix(".parquet")
    if not isinstance(content, dict) or content.get("schema") != _SCHEMA:
        raise RecordError("no record of a block", where=store.shown(file), fix="measure again")
    if not rows.is_file() or store.digest(rows) != content["samples"]:
        raise RecordError(
            "its requests are missing or were changed",
            where=store.shown(file),
            fix="remove the record to measure this block again",
        )
    return [Window.from_json(found) for found in content["windows"]]


class _Clock:
    """Tells the progress, and how long the rest should take."""

    def __init__(
        self, plan: Plan, folder: Path, tell: Callable[[Progress], None], done: Sequence[int]
    ) -> None:
        self.plan, self._tell = plan, tell
        self.per_block = len(plan.arms) * len(plan.loads)
        self.done = len(done) * self.per_block
        self.began = time.monotonic()
        files = [folder / "blocks" / f"{block:04}.json" for block in done]
        self.seconds = [float(store.read_json(file)["seconds"]) for file in files]

    def tell(self, block: int, doing: str) -> None:
        total = self.plan.blocks * self.per_block
        remaining = None
        if self.seconds:
            mean = sum(self.seconds) / len(self.seconds)
            remaining = mean * (total - self.done) / self.per_block
        elapsed = time.monotonic() - self.began
        self._tell(Progress(block, self.plan.blocks, doing, self.done, total, elapsed, remaining))


def _block(
    plan: Plan, block: int, folder: Path, drive: Drive, clock: _Clock, ready_limit: float
) -> None:
    began = time.monotonic()
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    found: list[Window] = []
    labelled: list[tuple[Mapping[str, object], loads.Row]] = []
    for arm, names in plan.order(block):
        recipe = plan.arms[arm]
        clock.tell(block, f"starting {recipe.engine} ({arm})")
        place = folder / "partial" / f"{block:04}-{arm}"
        sent: set[int] = set()
        with server.start(recipe, place, ready_limit=ready_limit) as running:
            for name in names:
                clock.tell(block, f"{arm}, {name}")
                seed = plan.prompts(block, name)
                chosen = plan.loads[name]
                outcome, seen = _one(chosen, running, drive, seed)
                labels = _Labels(block=block, arm=arm, load=name, seed=seed)
                labelled += [(labels, row) for row in outcome.rows]
                first = seed not in sent
                sent.add(seed)
                found.append(_window(labels, first, chosen, running, outcome, seen))
                clock.done += 1
    file = folder / "blocks" / f"{block:04}.json"
    loads.place_rows(file.with_suffix(".parquet"), labelled)
    record = {
        "schema": _SCHEMA,
        "block": block,
        "started": started,
        "seconds": round(time.monotonic() - began, 3),
        "samples": store.digest(file.with_suffix(".parquet")),
        "windows": [item.to_json() for item in found],
    }
    store.write(file, store.json_text(record))
    clock.seconds.append(time.monotonic() - began)


class _Labels(TypedDict):
    block: int
    arm: str
    load: str
    seed: int


@dataclasses.dataclass
class _Seen:
    """What the protocol itself sees of one window."""

    watched: window.Watched
    counts: Counts | None
    log: str


def _one(load: Load, running: server.Server, drive: Drive, seed: int) -> tuple[Outcome, _Seen]:
    """Warm up, then run one load and watch."""
    if load.warmup != 0:
        drive.run(load.warm(), running, seed=_number(seed, "warm-up"), on_window=lambda _: None)
    before, size = running.counts(), running.log_size()
    watch = provenance.Watch(running.recipe.devices)
    watched = [window.Watched()]

    def on_window(begins: bool) -> None:
        if begins:
            watch.begin()
        else:
            watched.append(watch.end())

    outcome = drive.run(load, running, seed=seed, on_window=on_window)
    running.check()
    after = running.counts(settled=True)
    gained = None if before is None or after is None else after.since(before)
    return outcome, _Seen(watched[-1], gained, running.log_since(size))


def _window(
    labels: _Labels,
    first: bool,
    load: Load,
    running: server.Server,
    outcome: Outcome,
    seen: _Seen,
) -> Window:
    rows = outcome.rows
    done = [row for row in rows if row.completed]
    found, samples = window.values(rows, outcome.duration)
    outputs = sum(row.output_tokens for row in done)
    found["cold_start"] = running.ready_after or None
    found["power"] = seen.watched.power
    energy = seen.watched.energy
    found["energy_per_output_token"] = energy / outputs if energy and outputs else None
    sent = [row.sent_s for row in rows]
    asked_input, asked_output = load.asked
    pattern = running.recipe.compiles
    compiled = [
        line.strip()[:300] for line in seen.log.splitlines() if pattern and re.search(pattern, line)
    ]
    rate = loads.arrivals(sent) if len(sent) > 1 else None
    return Window(
        **labels,
        fresh=running.process is not None,
        first=first,
        started=outcome.started,
        ended=outcome.ended,
        duration=outcome.duration,
        asked=load.requests,
        completed=len(done),
        asked_input=None if asked_input is None else asked_input * load.requests,
        asked_output=None if asked_output is None else asked_output * load.requests,
        input_tokens=sum(row.input_tokens for row in done),
        output_tokens=outputs,
        chunks=sum(1 + len(row.itl_s) for row in done),
        concurrency=load.concurrency,
        rate=load.rate,
        in_flight=loads.peak([row.sent_s for row in done], [_end(row) for row in done]),
        arrivals=None if rate is None or not math.isfinite(rate) else rate,
        server=seen.counts,
        compiled=tuple(compiled) if running.process is not None else None,
        busy=outcome.busy,
        lateness=outcome.lateness,
        sending=outcome.sending,
        watched=seen.watched,
        values=found,
        samples=samples,
    )


def _end(row: loads.Row) -> float:
    return row.sent_s + (row.latency_s or 0.0)
