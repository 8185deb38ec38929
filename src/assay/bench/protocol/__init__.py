"""Protocol: blocks of fresh server starts, interleaved at random, resumable after any crash.

Owns carrying a plan out: a block starts every arm once, in random order, each in a fresh process;
on each start every load runs once, in random order, after a warm-up of its own. Arms of one block
get the same prompts, so that they differ in nothing but the arm; no prompt is sent twice to one
server. Does not own the plan, what a finished block leaves (``journal``), gates or estimates
(``measurement``).
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import math
import re
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypedDict

from assay.bench import provenance
from assay.bench.engines import server
from assay.bench.engines.counters import Counts
from assay.bench.load import Load, rows
from assay.bench.load.client import Client, Drive, Outcome
from assay.bench.load.rows import Row
from assay.bench.protocol import journal, window
from assay.bench.protocol.journal import windows
from assay.bench.protocol.plan import Plan, number
from assay.bench.protocol.progress import Clock, Progress
from assay.bench.protocol.window import Window

__all__ = ["Plan", "Progress", "run", "windows"]


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
        Puts the load on; by default :class:`assay.bench.load.client.Client`.
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
    with journal.alone(folder), contextlib.ExitStack() as stack:
        journal.settle(plan, folder)
        done = journal.finished(plan, folder)
        if len(done) < plan.blocks:
            clock = Clock(plan, tell, [journal.seconds(folder, block) for block in sorted(done)])
            shutil.rmtree(folder / "partial", ignore_errors=True)  # of a block that was cut short
            if drive is None:
                drive = stack.enter_context(Client(folder / "partial"))
            for block in range(1, plan.blocks + 1):
                if block not in done:
                    _block(plan, block, folder, drive, clock, ready_limit)
                    done = journal.finished(plan, folder)
            shutil.rmtree(folder / "partial", ignore_errors=True)
    return [found for block in sorted(done) for found in done[block]]


def _block(
    plan: Plan, block: int, folder: Path, drive: Drive, clock: Clock, ready_limit: float
) -> None:
    began = time.monotonic()
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    found: list[Window] = []
    labelled: list[tuple[Mapping[str, object], Row]] = []
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
    journal.write(
        folder,
        block,
        started=started,
        seconds=time.monotonic() - began,
        labelled=labelled,
        windows=found,
    )
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
        drive.run(load.warm(), running, seed=number(seed, "warm-up"), on_window=lambda _: None)
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
    done = [row for row in outcome.rows if row.completed]
    found, samples = window.values(outcome.rows, outcome.duration)
    outputs = sum(row.output_tokens for row in done)
    found["cold_start"] = running.ready_after or None
    found["power"] = seen.watched.power
    energy = seen.watched.energy
    found["energy_per_output_token"] = energy / outputs if energy and outputs else None
    sent = [row.sent_s for row in outcome.rows]
    asked_input, asked_output = load.asked
    pattern = running.recipe.compiles
    compiled = [
        line.strip()[:300] for line in seen.log.splitlines() if pattern and re.search(pattern, line)
    ]
    rate = rows.arrivals(sent) if len(sent) > 1 else None
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
        in_flight=rows.peak([row.sent_s for row in done], [_end(row) for row in done]),
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


def _end(row: Row) -> float:
    return row.sent_s + (row.latency_s or 0.0)
