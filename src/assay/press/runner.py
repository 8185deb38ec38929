"""Runner: execute the notebooks of claims, in parallel, and keep only what succeeded.

Owns which runs are needed, their order, their limits, and the moment their results enter the
ledger and ``_build/executed``. Does not own a notebook's checks (``notebook``), the kernel
(``worker``) or how progress looks (``progress``).

A run is one claim. Its result becomes visible in three steps, each atomic: evidence, executed copy,
run record. The record comes last and names the other two by content, so a run that was interrupted
between them is not taken for a finished one.

::

    _build/staging/<run>/       source.ipynb, evidence/, log, sockets; removed when the run ends
    _build/executed/<claim>.ipynb, .json     the last success and its record
    _build/failed/<claim>.ipynb              the last failure, as far as it came
"""

from __future__ import annotations

import contextlib
import datetime
import difflib
import fcntl
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import assay
from assay.errors import AssayError, InputError, RunError
from assay.ledger import records, store
from assay.press import inputs, notebook, parameter

__all__ = ["Event", "Outcome", "exit_code", "run"]

_SCHEMA = 1

# Limits of a run, unless the caller sets others [s]. A notebook is meant to take a minute; one that
# has the machine to itself measures, and starts servers several times.
_CELL_LIMIT, _RUN_LIMIT = 600.0, 1800.0
_MEASURING_CELL_LIMIT, _MEASURING_RUN_LIMIT = 7200.0, 21600.0

_TICK = 0.2  # how often limits and signals are looked at [s]
_END_LIMIT = 15.0  # a worker that has said its last word ends within this time [s]

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


@dataclass
class _Run:
    """A run that is needed, and its process once it has one."""

    claim: str
    source: notebook.Notebook
    parameters: dict[str, parameter.Value]
    fixed: str  # digest of the inputs as they were when the run was planned
    before: float  # seconds it took last time, 0 when unknown [s]
    cell_limit: float
    run_limit: float
    folder: Path = field(default_factory=Path)
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    cell: int = 0
    unread: bytes = b""
    said: dict[str, Any] = field(default_factory=dict)


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
        outcomes, needed = _plan(selection, overrides or {}, force, cell_limit, run_limit)
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
            _clear(left)
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
) -> tuple[list[Outcome], list[_Run]]:
    claims = _selected(selection, store.claims())
    written = set(notebook.names())
    sources = {name: notebook.read(name) for name in sorted({c.notebook for c in claims} & written)}
    common = inputs.shared() if sources else {}
    outcomes: list[Outcome] = []
    needed: list[_Run] = []
    for claim in claims:
        if claim.notebook not in sources:
            outcomes.append(Outcome(claim.id, claim.notebook, "not-written", 0.0, ""))
            continue
        source = sources[claim.notebook]
        values = parameter.effective(
            source.parameters, source.where, claim.id, claim.parameters, overrides
        )
        fixed = inputs.fixed(claim.id, source.text, values, common)
        record = _record(claim.id)
        seconds = float(record.get("seconds", 0.0))
        if (
            not force
            and record.get("key") == inputs.key(claim.id, fixed)
            and _intact(claim.id, record)
        ):
            outcomes.append(Outcome(claim.id, claim.notebook, "unchanged", seconds, ""))
            continue
        limits = (
            (_MEASURING_CELL_LIMIT, _MEASURING_RUN_LIMIT)
            if source.exclusive
            else (_CELL_LIMIT, _RUN_LIMIT)
        )
        needed.append(
            _Run(
                claim=claim.id,
                source=source,
                parameters=values,
                fixed=fixed,
                before=seconds,
                cell_limit=cell_limit or limits[0],
                run_limit=run_limit or limits[1],
            )
        )
    for name in sorted({job.source.name for job in needed}):
        notebook.check_format(sources[name])
    return outcomes, needed


def _record(claim_id: str) -> dict[str, Any]:
    try:
        content = store.read_json(store.path("_build", "executed", f"{claim_id}.json"))
    except InputError:
        return {}
    return content if isinstance(content, dict) and content.get("schema") == _SCHEMA else {}


def _intact(claim_id: str, record: Mapping[str, Any]) -> bool:
    """Whether the executed copy and the evidence of a finished run are still what it wrote."""
    files = {store.path("_build", "executed", f"{claim_id}.ipynb"): record.get("executed")}
    for name, sha256 in dict(record.get("evidence", {})).items():
        files[store.path("data", "evidence", claim_id, name)] = sha256
    return all(file.is_file() and store.digest(file) == sha256 for file, sha256 in files.items())


# -- execution ------------------------------------------------------------------------------------


def _execute(
    needed: Sequence[_Run], jobs: int, tell: Callable[[Event], None], stop: _Stop
) -> list[Outcome]:
    # The longest first, so that the last one to end ends early; measuring ones one by one, last.
    ordered = sorted(needed, key=lambda job: (-job.before, job.claim))
    waves = [(jobs, [job for job in ordered if not job.source.exclusive])]
    waves += [(1, [job]) for job in ordered if job.source.exclusive]
    outcomes: list[Outcome] = []
    for width, wave in waves:
        outcomes += _wave(wave, max(1, width), tell, stop)
    return outcomes


def _wave(
    waiting: list[_Run], width: int, tell: Callable[[Event], None], stop: _Stop
) -> list[Outcome]:
    outcomes: list[Outcome] = []
    active: list[_Run] = []
    with selectors.DefaultSelector() as selector:
        try:
            while (waiting or active) and not stop.number:
                while waiting and len(active) < width:
                    job = waiting.pop(0)
                    try:
                        _start(job)
                    except OSError as error:
                        raise InputError(
                            f"no run can be started ({error.strerror})",
                            where="_build/staging",
                            fix="check space and permissions",
                        ) from None
                    active.append(job)
                    assert job.process is not None and job.process.stdout is not None
                    selector.register(job.process.stdout, selectors.EVENT_READ, job)
                    tell(Event("start", job.claim, job.source.name, 0, len(job.source.cells)))
                ended = [
                    chosen.data
                    for chosen, _ in selector.select(timeout=_TICK)
                    if not _listen(chosen.data, tell)
                ]
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
                    assert job.process is not None and job.process.stdout is not None
                    selector.unregister(job.process.stdout)
                    active.remove(job)
                    outcome = _finish(job)
                    outcomes.append(outcome)
                    tell(Event("end", job.claim, job.source.name, outcome=outcome))
        finally:
            for job in active:
                _end(job)
    return outcomes


def _start(job: _Run) -> None:
    """Start the worker of a run in a process group of its own."""
    from assay.press import kernel

    base = store.path("_build", "staging")
    base.mkdir(parents=True, exist_ok=True)
    job.folder = Path(tempfile.mkdtemp(prefix="", dir=base))
    staging = job.folder / "evidence"
    staging.mkdir()
    store.write(job.folder / "source.ipynb", job.source.text)
    sockets = job.folder
    if len(os.fsencode(sockets)) + len("/k-99") > kernel.SOCKET_PATH_LIMIT:
        sockets = job.folder / "sockets"  # a deep project: the sockets lie elsewhere, behind a link
        sockets.symlink_to(tempfile.mkdtemp(prefix="assay-"))
        sockets = sockets.resolve()
    environment = {
        **os.environ,
        "ASSAY_ROOT": str(store.root()),
        store.STAGING: str(staging),
        kernel.SOCKETS: str(sockets),
        # The worker and the notebook import the same Assay as this process, from any folder.
        "PYTHONPATH": os.pathsep.join(
            [str(Path(assay.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        ),
        # Nobody's start-up files and history; figures go into the notebook.
        "IPYTHONDIR": str(job.folder / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(job.folder / "runtime"),
        "PYTHONHASHSEED": "0",
    }
    environment.pop("MPLBACKEND", None)
    with (job.folder / "log").open("wb") as log:
        job.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "assay.press.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=store.root(),
            env=environment,
            start_new_session=True,
        )
    job.started = time.monotonic()
    asked = {
        "claim": job.claim,
        "where": job.source.where,
        "folder": str(job.folder),
        "root": str(store.root()),
        "parameters": job.parameters,
        "parameters_at": job.source.parameters_at,
        "cell_limit": job.cell_limit,
    }
    assert job.process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it died at once: its silence is noticed below
        job.process.stdin.write((json.dumps(asked) + "\n").encode())
        job.process.stdin.flush()  # and stays open: its closing tells the worker that we are gone


def _listen(job: _Run, tell: Callable[[Event], None]) -> bool:
    """Take in what a worker says; return whether it may say more."""
    assert job.process is not None and job.process.stdout is not None
    data = os.read(job.process.stdout.fileno(), 65536)
    *lines, job.unread = (job.unread + data).split(b"\n")
    for line in lines:
        said = json.loads(line)
        if said["event"] == "cell":
            job.cell = said["cell"]
            tell(Event("cell", job.claim, job.source.name, job.cell, len(job.source.cells)))
        else:
            job.said = said
    return bool(data)


def _finish(job: _Run) -> Outcome:
    """End a run's processes and keep its result, or say why there is none."""
    message = ""
    try:
        _settle(job)
        _commit(job)
        store.path("_build", "failed", f"{job.claim}.ipynb").unlink(missing_ok=True)
    except AssayError as error:
        message = str(error)
    except OSError as error:
        message = f"{job.source.where}: the result cannot be kept ({error.strerror})"
    finally:
        if message:
            _keep_failed(job)
        _end(job)
    seconds = round(time.monotonic() - job.started, 1)
    return Outcome(job.claim, job.source.name, "failed" if message else "done", seconds, message)


def _settle(job: _Run) -> None:
    """Wait for a worker that has said its last word; raise unless that word was success."""
    assert job.process is not None
    if job.said.get("event") == "failed":
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.process.wait(timeout=1.0)
        raise _Said(job.said["message"])
    try:
        status = job.process.wait(timeout=_END_LIMIT)
    except subprocess.TimeoutExpired:
        raise RunError("its process does not end", where=job.source.where) from None
    if not job.said:
        log = _last_words(job.folder / "log")
        raise RunError(
            f"its process ended unexpectedly (status {status}{log})", where=job.source.where
        )


class _Said(RunError):
    """A failure already put into one sentence by the worker."""


def _commit(job: _Run) -> None:
    """Move a finished run's results to where readers find them, the record last."""
    fresh = job.folder / "executed.ipynb"
    executed = store.path("_build", "executed", f"{job.claim}.ipynb")
    sha256 = store.digest(fresh)
    placed = store.promote(job.folder / "evidence", job.claim)
    executed.parent.mkdir(parents=True, exist_ok=True)
    os.replace(fresh, executed)
    record = {
        "schema": _SCHEMA,
        "claim": job.claim,
        "notebook": job.source.name,
        "parameters": job.parameters,
        # A run that measured has added an input: this is the key the next run will compute.
        "key": inputs.key(job.claim, job.fixed),
        "executed": sha256,
        "evidence": {file.name: store.digest(file) for file in placed},
        "seconds": round(time.monotonic() - job.started, 1),
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": inputs.versions(),
    }
    store.write(executed.with_suffix(".json"), store.json_text(record))


def _keep_failed(job: _Run) -> None:
    partial = job.folder / "failed.ipynb"
    if partial.is_file():
        kept = store.path("_build", "failed", f"{job.claim}.ipynb")
        kept.parent.mkdir(parents=True, exist_ok=True)
        os.replace(partial, kept)


def _last_words(log: Path) -> str:
    with contextlib.suppress(AssayError):
        lines = [line.strip() for line in store.read_text(log).splitlines() if line.strip()]
        return f": {lines[-1][:200]}" if lines else ""
    return ""


def _end(job: _Run) -> None:
    """Kill what still runs of a run, and remove its folder."""
    from assay.press import kernel

    assert job.process is not None and job.process.stdin is not None
    if job.process.poll() is None:
        kernel.end_tree(job.process.pid, itself=True)
        job.process.wait()
    for pipe in (job.process.stdin, job.process.stdout):
        assert pipe is not None
        with contextlib.suppress(BrokenPipeError):
            pipe.close()
    _clear(job.folder)


def _clear(folder: Path) -> None:
    """Remove a run's folder, and its sockets where they lie elsewhere."""
    sockets = folder / "sockets"
    if sockets.is_symlink():
        shutil.rmtree(sockets.resolve(), ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
