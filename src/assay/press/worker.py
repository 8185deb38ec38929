"""Worker: execute one notebook with papermill, in a process of its own.

Owns everything that touches the kernel: start, cells, time limits, what counts as a failure, and
the end of every process the notebook started. Does not own the ledger; it writes to the run's
folder only, and ``runner`` decides what becomes of that.

Started as ``python -m assay.press.worker``. Reads one job as a JSON line on standard input, tells
what happens as JSON lines on standard output, and ends, with all that it started, when standard
input closes: that is how it learns that the runner is gone, however that ended.

papermill's own record of a run cannot be trusted for this: it says "completed" after a kernel died
and after a timeout. So every code cell must have an execution count, and no output may be an error.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

from assay.bench.engines import process
from assay.errors import RunError
from assay.ledger import store
from assay.press import kernel, scrub

__all__ = ["OUTPUT_LIMIT", "main"]

# Executed notebooks become web pages; a page above this does not load on a phone [B].
OUTPUT_LIMIT = 10_000_000

_START_LIMIT = 120  # a kernel's start takes about 1 s; a loaded machine takes longer [s]
_MESSAGE_LIMIT = 400  # characters of an error that a one-line message repeats
_PRINT_LESS = "print less, or show the head of the table"
_MARKER = "papermill-error-cell-tag"
_TRACEBACK = "Traceback (most recent call last)"


class _Job:
    """The run in progress: what it was asked, where it is, and how it says so."""

    def __init__(self, asked: dict[str, Any], events: int) -> None:
        self.asked = asked
        self.events = events
        self.folder = Path(asked["folder"])
        self.root = Path(asked["root"])
        self.staging = Path(os.environ[store.STAGING])
        self.scrub = scrub.scrubber(self.root, self.staging)
        self.live: Any = None
        self.cell = 0
        self.printed = 0

    def tell(self, **event: object) -> None:
        os.write(self.events, (json.dumps(event) + "\n").encode())

    def number(self, index: int) -> int:
        """Return a cell's number in the source, from 1; papermill has put one cell in between."""
        return index + 1 if index <= self.asked["parameters_at"] else index

    def fail(self, what: str, index: int | None = None, fix: str = "") -> NoReturn:
        where = self.asked["where"]
        if index is not None:
            where += f", cell {self.number(index)}"
        raise RunError(self.scrub(scrub.plain(what)), where=where, fix=fix)

    # -- papermill and nbclient call these ---------------------------------------------------------

    def on_notebook_start(self, notebook: Any) -> None:
        self.live = notebook

    def on_cell_start(self, cell: Any, cell_index: int) -> None:
        self.cell = cell_index
        self.tell(event="cell", cell=self.number(cell_index))

    def write(self, text: str) -> None:
        """Count what the cells print, and stop before it fills the memory."""
        self.printed += len(text)
        if self.printed > OUTPUT_LIMIT:
            # An exception raised here is seen only when the cell ends, which it may never do.
            where = f"{self.asked['where']}, cell {self.number(self.cell)}"
            error = RunError(_too_large(self.printed), where=where, fix=_PRINT_LESS)
            self.tell(event="failed", message=str(error))
            _end()

    def flush(self) -> None:
        """Nothing is kept back."""


def main() -> None:
    """Read one job from standard input and run it."""
    events = os.dup(1)
    os.dup2(2, 1)  # the kernel inherits standard output; events must stay alone on theirs
    asked = json.loads(sys.stdin.readline())
    kernel.adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: _end())
    threading.Thread(target=_follow_runner, daemon=True).start()
    job = _Job(asked, events)
    try:
        try:
            _execute(job)
            _inspect(job)
            text = _text(job)
        finally:
            process.end_tree(os.getpid(), itself=False)
        _require_evidence(job)
        store.write(job.folder / "executed.ipynb", text)
        job.tell(event="done")
    except RunError as error:
        _keep_failed(job)
        job.tell(event="failed", message=str(error))


def _follow_runner() -> None:
    while os.read(0, 4096):
        pass
    _end()


def _end() -> NoReturn:
    process.end_tree(os.getpid(), itself=False)
    os._exit(1)


def _execute(job: _Job) -> None:
    import logging

    import papermill
    from nbclient import exceptions as client_errors
    from papermill import exceptions as papermill_errors

    logging.getLogger("papermill").setLevel(logging.CRITICAL)
    source = str(job.folder / "source.ipynb")
    limit = job.asked["cell_limit"]
    try:
        papermill.execute_notebook(
            source.replace("{", "{{").replace("}", "}}"),  # papermill formats paths
            None,
            parameters=job.asked["parameters"],
            kernel_name="python3",
            language="python",
            progress_bar=False,
            start_timeout=_START_LIMIT,
            execution_timeout=None if limit is None else math.ceil(limit),
            request_save_on_cell_execute=False,
            autosave_cell_every=0,
            stdout_file=job,
            stderr_file=job,
            cwd=job.asked["root"],
            # From here on these are settings of nbclient.
            kernel_manager_class=kernel.SocketKernelManager,
            on_notebook_start=job.on_notebook_start,
            on_cell_start=job.on_cell_start,
            record_timing=False,
            coalesce_streams=True,
            allow_errors=False,
        )
    except papermill_errors.PapermillExecutionError:
        # The error is read from the outputs below, as one that a cell magic swallowed is; what
        # papermill wrote about it goes, since it would shift the numbers of the cells.
        job.live.cells = [
            cell for cell in job.live.cells if _MARKER not in cell.metadata.get("tags", [])
        ]
    except client_errors.CellTimeoutError:
        job.fail(
            f"ran longer than the limit of {limit:g} s for one cell",
            job.cell,
            "make it faster, or raise --cell-timeout",
        )
    except client_errors.DeadKernelError:
        job.fail(f"the kernel died ({_ending()})", job.cell)
    except Exception as error:
        if job.live is None:
            job.fail(f"the kernel did not start ({_last_line(str(error))})")
        job.fail(f"could not go on ({type(error).__name__}: {_last_line(str(error))})", job.cell)


def _ending() -> str:
    status = kernel.SocketKernelManager.ended
    if status == -signal.SIGKILL:
        return "killed by SIGKILL, most often for want of memory"
    if status is not None and status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return "it left no message" if status is None else f"exit status {status}"


def _inspect(job: _Job) -> None:
    """Fail on any error among the outputs and on any cell that was not executed."""
    for index, cell in enumerate(job.live.cells):
        if cell.cell_type != "code":
            continue
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                said = f"{output.ename}: {output.evalue}" if output.evalue else output.ename
                job.fail(_one_line(said), index)
            if output.output_type == "stream" and output.name == "stderr":
                text = scrub.plain(output.text)
                if _TRACEBACK in text:
                    job.fail(f"an error was swallowed: {_last_line(text)}", index)
        if cell.source.strip() and cell.get("execution_count") is None:
            job.fail("was not executed", index)


def _text(job: _Job) -> str:
    """Return the executed notebook as it will be kept."""
    for index, cell in enumerate(job.live.cells):
        size = len(json.dumps(cell.get("outputs", [])))
        if size > OUTPUT_LIMIT:
            job.fail(_too_large(size), index, _PRINT_LESS)
    content = scrub.notebook(json.loads(json.dumps(job.live)), job.scrub)
    injected = content["cells"][job.asked["parameters_at"] + 1]
    injected["id"] = "injected-parameters"  # papermill draws a new one for every run
    try:
        text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    except ValueError:
        job.fail(
            "an output holds NaN or an infinity as JSON", _not_finite(content), "show it as text"
        )
    if len(text.encode()) > OUTPUT_LIMIT:
        job.fail(_too_large(len(text.encode())), fix=_PRINT_LESS)
    return text


def _not_finite(content: dict[str, Any]) -> int | None:
    for index, cell in enumerate(content["cells"]):
        try:
            json.dumps(cell, allow_nan=False)
        except ValueError:
            return index
    return None


def _require_evidence(job: _Job) -> None:
    claim = job.asked["claim"]
    for entry in sorted(job.staging.iterdir()):
        if entry.name != claim:
            job.fail(f"saved evidence for '{entry.name}' in a run of {claim}", fix="use claim_id")
    if not any(job.staging.glob(f"{claim}/*.json")):
        job.fail(f"saved no evidence for {claim}", fix="save it in the cell tagged 'record'")


def _keep_failed(job: _Job) -> None:
    """Leave the notebook as far as it came, for whoever looks for the reason."""
    if job.live is None:  # the kernel never started
        return
    raw = json.dumps(job.live)
    if len(raw) <= OUTPUT_LIMIT:
        content = scrub.notebook(json.loads(raw), job.scrub)
        text = json.dumps(content, indent=1, ensure_ascii=False)
        store.write(job.folder / "failed.ipynb", text + "\n")


def _too_large(size: int) -> str:
    return f"output of {size / 1e6:.1f} MB is above the limit of {OUTPUT_LIMIT / 1e6:.0f} MB"


def _one_line(text: str) -> str:
    joined = re.sub(r"\s*\n\s*", " / ", scrub.plain(text).strip())
    return joined if len(joined) <= _MESSAGE_LIMIT else joined[: _MESSAGE_LIMIT - 1] + "…"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in scrub.plain(text).splitlines() if line.strip()]
    return _one_line(lines[-1]) if lines else "no message"


if __name__ == "__main__":
    main()
