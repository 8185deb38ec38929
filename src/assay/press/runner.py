"""Runner: execute the notebooks of claims, in parallel, and keep only what succeeded.

Owns which runs are needed, their order, limits and signals. Does not own a notebook's checks
(``notebook``), what a run does and leaves (``attempt``, ``worker``) or how progress looks
(``progress``).

A run is one claim.
"""

from __future__ import annotations

import contextlib
import difflib
import fcntl
import functools
import os
import selectors
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from assay.errors import InputError, RunError
from assay.ledger import parameter, records, store
from assay.press import attempt, inputs, notebook

__all__ = ["Event", "Outcome", "exit_code", "run"]

# Limits of a run, unless the caller sets others [s]. A notebook is meant to take a minute; one that
# has the machine to itself measures, and starts servers several times.
_CELL_LIMIT, _RUN_LIMIT = 600.0, 1800.0
_MEASURING_CELL_LIMIT, _MEASURING_RUN_LIMIT = 7200.0, 21600.0

_TICK = 0.2  # how often limits and signals are looked at [s]

State = Literal["done", "unchanged", "failed", "not-written"]


@dataclass(frozen=True)
class Outcome:
    """What became of one run; all fields are JSON values.

    Parameters
    ----------
    claim, notebook : str
        Ids.
    state : {'done', 'unchanged', 'failed', 'not-written'}
        ``not-written``: the claim's notebook does not exist yet.
    seconds : float
        Wall time [s]; of the earlier run when unchanged.
    message : str
        One sentence for a failure, else empty.
    """

    claim: str
    notebook: str
    state: State
    seconds: float
    message: str


@dataclass(frozen=True)
class Event:
    """One step of a run, for whoever shows progress.

    Parameters
    ----------
    kind : {'start', 'cell', 'end'}
        ``end`` comes exactly once per claim, also for runs that never start.
    claim, notebook : str
        Ids.
    cell, cells : int
        Number of the current cell, from 1, and of all cells.
    outcome : Outcome or None
        With ``end``.
    """

    kind: Literal["start", "cell", "end"]
    claim: str
    notebook: str
    cell: int = 0
    cells: int = 0
    outcome: Outcome | None = None


class _Stop:
    """Set by SIGINT and SIGTERM, so that no signal interrupts a step of committing results."""

    def __init__(self) -> None:
        self.number = 0

    def __call__(self, number: int, frame: object) -> None:
        self.number = self.number or number


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """Return the exit status that fits: 1 when any run failed, else 0."""
    return int(any(outcome.state == "failed" for outcome in outcomes))


def run(
    selection: Sequence[str] = (),
    *,
    overrides: Mapping[str, str] | None = None,
    jobs: int | None = None,
    force: bool = False,
    measure: bool = False,
    cell_limit: float | None = None,
    run_limit: float | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> list[Outcome]:
    """Execute the notebooks of the selected claims where anything they read has changed.

    Parameters
    ----------
    selection : sequence of str
        Notebook names (or their paths) and claim ids; all claims when empty.
    overrides : mapping of str to str, optional
        Parameters as typed on the command line.
    jobs : int, optional
        Notebooks at a time; by default one per core.
    force : bool
        Also run what has not changed.
    measure : bool
        Set the parameter ``measure`` of every notebook that declares it, so that it measures
        instead of replaying committed evidence; such a run has the machine to itself.
    cell_limit, run_limit : float, optional
        Wall time one cell and one run may take [s].
    on_event : callable, optional
        Receives every `Event`, in the calling thread.

    Returns
    -------
    list of Outcome
        One per selected claim, sorted by claim.

    Raises
    ------
    InputError, RecordError
        Before anything runs, when a selection, a notebook, a parameter or a record is wrong.
    KeyboardInterrupt, SystemExit
        After SIGINT or SIGTERM, once all processes have ended and staging is removed.
    """
    tell = on_event or (lambda event: None)
    with _alone():
        outcomes, needed = _plan(
            selection, overrides or {}, force, cell_limit, run_limit, measure=measure
        )
        for outcome in outcomes:
            tell(Event("end", outcome.claim, outcome.notebook, outcome=outcome))
        if needed:
            with _signals() as stop:
                outcomes += _execute(needed, jobs or _cores(), tell, stop)
            if stop.number == signal.SIGTERM:
                raise SystemExit(128 + signal.SIGTERM)
            if stop.number:
                raise KeyboardInterrupt
    return sorted(outcomes, key=lambda outcome: outcome.claim)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Hold the lock of this project, and clear what dead runs left."""
    folder = store.path("_build")
    try:
        folder.mkdir(exist_ok=True)
        lock = os.open(folder / "run.lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InputError(
            f"cannot be written ({error.strerror})", where="_build", fix="check its permissions"
        ) from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(lock, 20, 0).decode().strip() or "unknown"
            raise InputError(
                f"another assay run is at work here (process {holder})", fix="wait until it ends"
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        for left in (folder / "staging").glob("*"):  # by runs that were killed
            attempt.clear(left)
        yield
    finally:
        os.close(lock)  # this releases it, as the end of the process does


@contextlib.contextmanager
def _signals() -> Iterator[_Stop]:
    stop = _Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# -- what is needed -------------------------------------------------------------------------------


def _selected(selection: Sequence[str], claims: Sequence[records.Claim]) -> list[records.Claim]:
    if not selection:
        return list(claims)
    wanted: set[str] = set()
    known = {claim.id for claim in claims} | {claim.notebook for claim in claims}
    for item in selection:
        name = Path(item).name.removesuffix(".ipynb")
        found = {claim.id for claim in claims if name in (claim.notebook, claim.id)}
        if not found:
            close = difflib.get_close_matches(name, sorted(known), n=3)
            advice = f"did you mean {' or '.join(close)}?" if close else "see data/claims/"
            if name in notebook.names():
                raise InputError(f"no claim uses notebook '{name}'", fix="name it in a claim")
            raise InputError(f"no notebook and no claim is called '{name}'", fix=advice)
        wanted |= found
    return [claim for claim in claims if claim.id in wanted]


def _plan(
    selection: Sequence[str],
    overrides: Mapping[str, str],
    force: bool,
    cell_limit: float | None,
    run_limit: float | None,
    *,
    measure: bool = False,
) -> tuple[list[Outcome], list[attempt.Attempt]]:
    claims = _selected(selection, store.claims())
    written = set(notebook.names())
    sources = {name: notebook.read(name) for name in sorted({c.notebook for c in claims} & written)}
    common = inputs.shared() if sources else {}
    outcomes: list[Outcome] = []
    needed: list[attempt.Attempt] = []
    for claim in claims:
        if claim.notebook not in sources:
            outcomes.append(Outcome(claim.id, claim.notebook, "not-written", 0.0, ""))
            continue
        source = sources[claim.notebook]
        measuring = {"measure": "true"} if measure and "measure" in source.parameters else {}
        values = parameter.effective(
            source.parameters,
            source.where,
            claim.id,
            claim.parameters,
            {**measuring, **overrides},
        )
        fixed = inputs.fixed(claim.id, source.text, values, common)
        record = attempt.record(claim.id)
        seconds = float(record.get("seconds", 0.0))
        if (
            not force
            and record.get("key") == inputs.key(claim.id, fixed)
            and attempt.intact(claim.id, record)
        ):
            outcomes.append(Outcome(claim.id, claim.notebook, "unchanged", seconds, ""))
            continue
        job = attempt.Attempt(
            claim=claim.id,
            source=source,
            parameters=values,
            fixed=fixed,
            before=seconds,
            cell_limit=cell_limit or _CELL_LIMIT,
            run_limit=run_limit or _RUN_LIMIT,
        )
        if job.alone:
            job.cell_limit = cell_limit or _MEASURING_CELL_LIMIT
            job.run_limit = run_limit or _MEASURING_RUN_LIMIT
        needed.append(job)
    for name in sorted({job.source.name for job in needed}):
        notebook.check_format(sources[name])
    return outcomes, needed


# -- execution ------------------------------------------------------------------------------------


def _execute(
    needed: Sequence[attempt.Attempt], jobs: int, tell: Callable[[Event], None], stop: _Stop
) -> list[Outcome]:
    # The longest first, so that the last one to end ends early; measuring ones one by one, last.
    ordered = sorted(needed, key=lambda job: (-job.before, job.claim))
    waves = [(jobs, [job for job in ordered if not job.alone])]
    waves += [(1, [job]) for job in ordered if job.alone]
    outcomes: list[Outcome] = []
    for width, wave in waves:
        outcomes += _wave(wave, max(1, width), tell, stop)
    return outcomes


def _wave(
    waiting: list[attempt.Attempt], width: int, tell: Callable[[Event], None], stop: _Stop
) -> list[Outcome]:
    outcomes: list[Outcome] = []
    active: list[attempt.Attempt] = []
    with selectors.DefaultSelector() as selector:
        try:
            while (waiting or active) and not stop.number:
                while waiting and len(active) < width:
                    job = waiting.pop(0)
                    attempt.start(job)
                    active.append(job)
                    selector.register(job.output, selectors.EVENT_READ, job)
                    tell(Event("start", job.claim, job.source.name, 0, len(job.source.cells)))
                ended = []
                for chosen, _ in selector.select(timeout=_TICK):
                    job = chosen.data
                    if not attempt.listen(job, functools.partial(_at_cell, job, tell)):
                        ended.append(job)
                for job in active:
                    if job not in ended and time.monotonic() - job.started > job.run_limit:
                        place = f"{job.source.where}, cell {max(job.cell, 1)}"
                        late = RunError(
                            f"the run took longer than its limit of {job.run_limit:g} s",
                            where=place,
                            fix="make it faster, or raise --run-timeout",
                        )
                        job.said = {"event": "failed", "message": str(late)}
                        ended.append(job)
                for job in ended:
                    selector.unregister(job.output)
                    active.remove(job)
                    outcome = _outcome(job, attempt.finish(job))
                    outcomes.append(outcome)
                    tell(Event("end", job.claim, job.source.name, outcome=outcome))
        finally:
            for job in active:
                attempt.end(job)
    return outcomes


def _at_cell(job: attempt.Attempt, tell: Callable[[Event], None], number: int) -> None:
    tell(Event("cell", job.claim, job.source.name, number, len(job.source.cells)))


def _outcome(job: attempt.Attempt, message: str) -> Outcome:
    return Outcome(
        job.claim, job.source.name, "failed" if message else "done", job.seconds, message
    )
