"""Process: a command and all its descendants, ended together however the caller ends.

Owns the supervisor and its handle. Does not own what the command is (``recipe``) or when it counts
as ready (``server``).

Between the caller and the command stands a supervisor: ``python -m assay.bench.engines.process``.
It adopts every orphan of the command, and its standard input is a pipe that only the caller holds.
When the caller ends in any way, SIGKILL included, the pipe closes, and the supervisor kills the
whole tree. Should the supervisor itself be killed, the kernel kills the command (on Linux).
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import psutil

from assay.errors import RunError

__all__ = ["Ending", "Process", "end_tree"]

# linux/prctl.h
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_TICK = 0.1  # how often the supervisor looks at its command and its parent [s]
_SLACK = 10.0  # a supervisor told to stop ends this long after its grace at the latest [s]


@dataclasses.dataclass(frozen=True, slots=True)
class Ending:
    """How a command ended.

    Parameters
    ----------
    status : int
        Exit status; the negative number of a signal when one killed it.
    out_of_memory : bool
        Whether the kernel killed some process for want of memory meanwhile.
    """

    status: int
    out_of_memory: bool

    def __str__(self) -> str:
        if self.status < 0:
            return f"killed by {signal.Signals(-self.status).name}"
        return f"exit status {self.status}"


class Process:
    """A supervised command.

    Parameters
    ----------
    command : sequence of str
        Program and arguments.
    log : Path
        Receives its output, appended.
    environment : mapping
        Its whole environment.
    grace : float
        Time between SIGTERM and SIGKILL when it is stopped [s].

    Raises
    ------
    RunError
        When the program cannot be started.
    """

    def __init__(
        self, command: Sequence[str], *, log: Path, environment: Mapping[str, str], grace: float
    ) -> None:
        self.grace = grace
        self.ending: Ending | None = None
        self._unread = b""
        self._supervisor = subprocess.Popen(
            [
                *(sys.executable, "-m", "assay.bench.engines.process"),
                *(str(log), str(grace), "--", *command),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**environment, "PYTHONPATH": _with_assay(environment.get("PYTHONPATH", ""))},
            start_new_session=True,  # Ctrl-C in a terminal reaches the caller only
        )
        try:
            said = self._listen(timeout=60.0)
        except BaseException:
            self.stop()
            raise
        if "pid" not in said:
            self.stop()
            raise RunError(
                f"'{command[0]}' cannot be started ({said.get('error', 'no answer')})",
                fix="check that it is installed",
            )
        self.pid = int(str(said["pid"]))

    def ended(self) -> Ending | None:
        """Return how the command ended; None while it runs."""
        if self.ending is None:
            said = self._listen(timeout=0.0)
            if said.get("event") == "ended":
                self.ending = Ending(int(str(said["status"])), bool(said["oom"]))
            elif self._supervisor.poll() is not None:
                self.ending = Ending(self._supervisor.returncode, False)
        return self.ending

    def tree(self) -> list[psutil.Process]:
        """Return the command and its descendants that still run."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return _descendants(psutil.Process(self._supervisor.pid))
        return []

    def listens(self, port: int) -> bool:
        """Whether the command or a descendant of it listens on a TCP port of this machine."""
        for process in self.tree():
            with contextlib.suppress(psutil.Error):
                for link in process.net_connections(kind="tcp"):
                    if link.status == psutil.CONN_LISTEN and link.laddr.port == port:
                        return True
        return False

    def stop(self) -> None:
        """End the command and every descendant; return when none is left."""
        supervisor = self._supervisor
        assert supervisor.stdin is not None and supervisor.stdout is not None
        with contextlib.suppress(OSError, ValueError):
            supervisor.stdin.write(b"stop\n")
            supervisor.stdin.flush()
        try:
            supervisor.wait(timeout=self.grace + _SLACK)
        except subprocess.TimeoutExpired:
            end_tree(supervisor.pid, itself=True)
            supervisor.wait()
        finally:
            if supervisor.poll() is None:  # interrupted while waiting: no grace
                end_tree(supervisor.pid, itself=True)
                supervisor.wait()
            with contextlib.suppress(OSError):
                supervisor.stdin.close()
            supervisor.stdout.close()
        if self.ending is None:
            self.ending = Ending(-signal.SIGTERM, False)

    def _listen(self, timeout: float) -> dict[str, object]:
        """Return the next thing the supervisor says; empty when it says nothing in time."""
        stream = self._supervisor.stdout
        assert stream is not None
        until = time.monotonic() + timeout
        while b"\n" not in self._unread and not stream.closed:
            left = max(0.0, until - time.monotonic())
            if not select.select([stream], [], [], left)[0]:
                return {}
            data = os.read(stream.fileno(), 4096)
            if not data:
                return {}
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        said: dict[str, object] = json.loads(line) if line else {}
        return said


def _with_assay(before: str) -> str:
    """Return a module path on which the supervisor finds the same Assay as its caller."""
    here = str(Path(__file__).resolve().parents[3])
    return os.pathsep.join([here, *filter(None, [before])])


# -- ending ---------------------------------------------------------------------------------------


def end_tree(pid: int, *, itself: bool) -> None:
    """Kill all descendants of a process, and the process itself if asked.

    Parameters
    ----------
    pid : int
        Root of the tree.
    itself : bool
        Whether the root goes too, after its descendants, so that none is orphaned.
    """
    with contextlib.suppress(psutil.NoSuchProcess):
        top = psutil.Process(pid)
        for _ in range(20):  # a process may start another while it is being killed
            children = _descendants(top)
            if not children:
                break
            for child in children:
                with contextlib.suppress(psutil.Error):
                    child.kill()
            psutil.wait_procs(children, timeout=1)
        if itself:
            top.kill()


def _descendants(top: psutil.Process) -> list[psutil.Process]:
    return [process for process in top.children(recursive=True) if _running(process)]


def _running(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


# -- the supervisor -------------------------------------------------------------------------------


def main(arguments: Sequence[str]) -> None:
    """Run a command until it ends or the caller is gone; then end its whole tree."""
    log, grace, _, *command = arguments
    parent = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: _leave())
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    killed_before = _oom_kills()
    try:
        with open(log, "ab") as output:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=_die_with_parent(),
                start_new_session=True,
            )
    except OSError as error:
        _say(event="failed", error=error.strerror)
        return
    _say(event="started", pid=child.pid)
    asked = b""
    while child.poll() is None:
        heard = bool(select.select([0], [], [], _TICK)[0])
        data = os.read(0, 64) if heard else b""
        if (heard and not data) or os.getppid() != parent:
            _leave()  # the caller is gone
        asked += data
        if b"stop" in asked:
            with contextlib.suppress(ProcessLookupError):
                child.terminate()
            _wait(child, float(grace))
            _leave()
    end_tree(os.getpid(), itself=False)
    _say(event="ended", status=child.returncode, oom=_oom_kills() > killed_before)


def _wait(child: subprocess.Popen[bytes], grace: float) -> None:
    """Give a command that was asked to end its time; none is left when the caller goes."""
    until = time.monotonic() + grace
    while child.poll() is None and time.monotonic() < until:
        if select.select([0], [], [], 0.02)[0] and not os.read(0, 64):
            return


def _leave() -> NoReturn:
    end_tree(os.getpid(), itself=False)
    os._exit(0)


def _say(**event: object) -> None:
    with contextlib.suppress(OSError):  # the caller is gone
        os.write(1, (json.dumps(event) + "\n").encode())


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _die_with_parent() -> Callable[[], None] | None:
    """Return what a child runs so that the kernel kills it with the supervisor."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up before the fork

    def preexec() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    return preexec


def _oom_kills() -> int:
    """Return how many processes this machine has killed for want of memory since it started."""
    with contextlib.suppress(OSError, ValueError), open("/proc/vmstat") as counters:
        for line in counters:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


if __name__ == "__main__":
    main(sys.argv[1:])
