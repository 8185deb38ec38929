"""Attempt: one run of one claim's notebook, from an empty folder to a result that is kept.

Owns the run's folder and process, and the moment its result enters the ledger and
``_build/executed``. Does not own which runs are needed or how many run at a time (``runner``).

A result becomes visible in three steps, each atomic: evidence, executed copy, run record. The
record comes last and names the other two by content, so a run that was interrupted between them is
not taken for a finished one.

::

    _build/staging/<run>/       source.ipynb, evidence/, log, sockets; removed when the run ends
    _build/executed/<claim>.ipynb, .json     the last success and its record
    _build/failed/<claim>.ipynb              the last failure, as far as it came
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import assay
from assay.errors import AssayError, InputError, RunError
from assay.ledger import parameter, store
from assay.press import inputs, notebook

__all__ = ["Attempt", "clear", "end", "finish", "intact", "listen", "record", "start"]

_SCHEMA = 1

_END_LIMIT = 15.0  # a worker that has said its last word ends within this time [s]


@dataclass(eq=False)
class Attempt:
    """A run that is needed, and its process once it has one.

    Parameters
    ----------
    claim : str
        Id of the claim.
    source : Notebook
        Checked source.
    parameters : dict
        Effective values of all parameters.
    fixed : str
        Digest of the inputs as they were when the run was planned (``inputs.fixed``).
    before : float
        Wall time of the last success, 0 when unknown [s].
    cell_limit, run_limit : float
        Wall time allowed for one cell and for the run [s].
    """

    claim: str
    source: notebook.Notebook
    parameters: dict[str, parameter.Value]
    fixed: str
    before: float
    cell_limit: float
    run_limit: float
    folder: Path = field(default_factory=Path)
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    cell: int = 0
    unread: bytes = b""
    said: dict[str, Any] = field(default_factory=dict)

    @property
    def alone(self) -> bool:
        """Whether it needs the machine to itself: it says so, or it measures this time."""
        return self.source.exclusive or self.parameters.get("measure") is True

    @property
    def seconds(self) -> float:
        """Wall time since the start [s]."""
        return round(time.monotonic() - self.started, 1)

    @property
    def output(self) -> IO[bytes]:
        """What the worker says, as a pipe; only after the start."""
        assert self.process is not None and self.process.stdout is not None
        return self.process.stdout


def record(claim_id: str) -> dict[str, Any]:
    """Return the record of a claim's last success; empty when there is none."""
    try:
        content = store.read_json(store.path("_build", "executed", f"{claim_id}.json"))
    except InputError:
        return {}
    return content if isinstance(content, dict) and content.get("schema") == _SCHEMA else {}


def intact(claim_id: str, made: Mapping[str, Any]) -> bool:
    """Whether the executed copy and the evidence of a finished run are still what it wrote."""
    files = {store.path("_build", "executed", f"{claim_id}.ipynb"): made.get("executed")}
    for name, sha256 in dict(made.get("evidence", {})).items():
        files[store.path("data", "evidence", claim_id, name)] = sha256
    return all(file.is_file() and store.digest(file) == sha256 for file, sha256 in files.items())


def start(job: Attempt) -> None:
    """Start the worker of a run, in a process group of its own.

    Raises
    ------
    InputError
        When its folder cannot be made or its process not started.
    """
    try:
        _start(job)
    except OSError as error:
        if job.folder != Path():
            clear(job.folder)
        raise InputError(
            f"no run can be started ({error.strerror})",
            where="_build/staging",
            fix="check space and permissions",
        ) from None


def _start(job: Attempt) -> None:
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


def listen(job: Attempt, on_cell: Callable[[int], None]) -> bool:
    """Take in what a worker says; return whether it may say more.

    Parameters
    ----------
    job : Attempt
        Started, and with something to read.
    on_cell : callable
        Receives the number of every cell that begins.
    """
    data = os.read(job.output.fileno(), 65536)
    *lines, job.unread = (job.unread + data).split(b"\n")
    for line in lines:
        said = json.loads(line)
        if said["event"] == "cell":
            job.cell = said["cell"]
            on_cell(job.cell)
        else:
            job.said = said
    return bool(data)


def finish(job: Attempt) -> str:
    """End a run's processes and keep its result; return why there is none, or nothing."""
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
        end(job)
    return message


def _settle(job: Attempt) -> None:
    """Wait for a worker that has said its last word; raise unless that word was success."""
    assert job.process is not None
    if job.said.get("event") == "failed":
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.process.wait(timeout=1.0)
        raise RunError(job.said["message"])  # where and fix are in the sentence
    try:
        status = job.process.wait(timeout=_END_LIMIT)
    except subprocess.TimeoutExpired:
        raise RunError("its process does not end", where=job.source.where) from None
    if not job.said:
        log = _last_words(job.folder / "log")
        raise RunError(
            f"its process ended unexpectedly (status {status}{log})", where=job.source.where
        )


def _commit(job: Attempt) -> None:
    """Move a finished run's results to where readers find them, the record last."""
    fresh = job.folder / "executed.ipynb"
    executed = store.path("_build", "executed", f"{job.claim}.ipynb")
    sha256 = store.digest(fresh)
    placed = store.promote(job.folder / "evidence", job.claim)
    executed.parent.mkdir(parents=True, exist_ok=True)
    os.replace(fresh, executed)
    made = {
        "schema": _SCHEMA,
        "claim": job.claim,
        "notebook": job.source.name,
        "parameters": job.parameters,
        # A run that measured has added an input: this is the key the next run will compute.
        "key": inputs.key(job.claim, job.fixed),
        "executed": sha256,
        "evidence": {file.name: store.digest(file) for file in placed},
        "seconds": job.seconds,
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": inputs.versions(),
    }
    store.write(executed.with_suffix(".json"), store.json_text(made))


def _keep_failed(job: Attempt) -> None:
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


def end(job: Attempt) -> None:
    """Kill what still runs of a run, and remove its folder."""
    from assay.bench.engines.process import end_tree

    assert job.process is not None and job.process.stdin is not None
    if job.process.poll() is None:
        end_tree(job.process.pid, itself=True)
        job.process.wait()
    for pipe in (job.process.stdin, job.output):
        with contextlib.suppress(BrokenPipeError):
            pipe.close()
    clear(job.folder)


def clear(folder: Path) -> None:
    """Remove a run's folder, and its sockets where they lie elsewhere."""
    sockets = folder / "sockets"
    if sockets.is_symlink():
        shutil.rmtree(sockets.resolve(), ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
