"""Server: start a recipe, know when it serves, read its counters, stop it.

Owns ports, readiness, and telling apart in one sentence why a start failed: the port was taken, it
ran out of memory, it crashed, or it was not ready in time. Does not own processes (``process``).
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from assay.bench.engines import counters
from assay.bench.engines.process import Ending, Process
from assay.bench.engines.recipe import PORT, Recipe
from assay.errors import RunError

__all__ = ["Server", "free_port", "start"]

_POLL = 0.05  # between two questions whether it is ready [s]
_SETTLE = 0.1  # between two readings that must agree [s]
_ANSWER_LIMIT = 5.0  # for one answer to such a question [s]
_TRIES = 3  # another process may take a free port between choosing and binding it
_TAIL = 65536  # how much of a log is read for the reason of an end [B]

_PORT_TAKEN = re.compile(r"address already in use|EADDRINUSE|Errno 98|Errno 48", re.IGNORECASE)
_NO_MEMORY = re.compile(
    r"out of memory|OutOfMemory|MemoryError|Cannot allocate memory|bad_alloc|oom-kill"
    r"|No available memory for the cache blocks|not enough memory|insufficient memory"
    r"|less than desired (GPU|CPU) memory|Not enough memory",
    re.IGNORECASE,
)


class Server:
    """An engine that serves; use it as a context manager, or call :meth:`stop`.

    Parameters
    ----------
    recipe : Recipe
        What was started.
    url : str
        Where it answers.
    process : Process or None
        None when somebody else runs it.
    log : Path
        Its output.
    ready_after : float
        From the start of the process to the first answer [s].
    """

    def __init__(
        self, recipe: Recipe, url: str, process: Process | None, log: Path, ready_after: float
    ) -> None:
        self.recipe, self.url, self.process = recipe, url, process
        self.log, self.ready_after = log, ready_after
        self.started = datetime.datetime.now(datetime.UTC)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End it with all its children; does nothing to a server that somebody else runs."""
        if self.process is not None:
            self.process.stop()

    def check(self) -> None:
        """Raise when it has ended.

        Raises
        ------
        RunError
            With the reason.
        """
        if self.process is not None:
            ending = self.process.ended()
            if ending is not None:
                raise RunError(_why(ending, self.log, None), where=self.recipe.engine)

    def log_size(self) -> int:
        """Return the length of the log so far [B]."""
        with contextlib.suppress(OSError):
            return self.log.stat().st_size
        return 0

    def log_since(self, size: int) -> str:
        """Return what was logged after the log had a given length."""
        return _tail(self.log, size)

    def counts(self, *, settled: bool = False) -> counters.Counts | None:
        """Return its totals since it started; None when it publishes none.

        Parameters
        ----------
        settled : bool
            Wait until two readings agree: an engine may count a request shortly after the client
            has its last token.
        """
        if not self.recipe.metrics or not (self.recipe.counts.prompt or self.recipe.counts.output):
            return None
        before = None
        for _ in range(20):
            now = self._counts()
            if now is None or now == before or not settled:
                return now
            before = now
            time.sleep(_SETTLE)
        return before

    def _counts(self) -> counters.Counts | None:
        with contextlib.suppress(OSError):
            text = _get(self.url + self.recipe.metrics)
            return counters.counts(text, self.recipe.counts)
        return None

    def models(self) -> list[str]:
        """Return the names under which it answers."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return [str(entry["id"]) for entry in _models(self.url)]
        return []


def _models(url: str) -> list[Any]:
    answer: dict[str, list[Any]] = json.loads(_get(url + "/v1/models"))
    return answer["data"]


def free_port() -> int:
    """Return a TCP port of the loopback interface that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(
    recipe: Recipe,
    folder: Path,
    *,
    ready_limit: float = 600.0,
    grace: float = 10.0,
    port: int | None = None,
) -> Server:
    """Start an engine in a fresh process and wait until it serves.

    Parameters
    ----------
    recipe : Recipe
        What to start.
    folder : Path
        Receives ``engine.log``.
    ready_limit : float
        Time allowed until it serves [s].
    grace : float
        Time between SIGTERM and SIGKILL when it is stopped [s].
    port : int or None
        Loopback port; by default a free one.

    Returns
    -------
    Server
        Ready.

    Raises
    ------
    RunError
        When it does not come to serve; the sentence says why, and where the log is.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "engine.log"
    if not recipe.command:
        return _joined(recipe, log, ready_limit)
    for attempt in range(_TRIES):
        chosen = port or free_port()
        if not _free(chosen):
            raise RunError(
                f"port {chosen} is in use by another process",
                where=recipe.engine,
                fix="end that process or name another port",
            )
        try:
            return _start(recipe, log, chosen, ready_limit, grace)
        except _PortTakenError as error:
            if port is not None or attempt == _TRIES - 1:
                raise RunError(error.what, where=error.where, fix=error.fix) from None
    raise AssertionError("unreachable")


class _PortTakenError(RunError):
    """Another process bound the port first."""


def _start(recipe: Recipe, log: Path, port: int, ready_limit: float, grace: float) -> Server:
    began = time.monotonic()
    size = log.stat().st_size if log.exists() else 0
    process = Process(
        [part.replace(PORT, str(port)) for part in recipe.command],
        log=log,
        environment={**os.environ, **recipe.environment},
        grace=grace,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        while True:
            ending = process.ended()
            if ending is not None:
                kind = _PortTakenError if _PORT_TAKEN.search(_tail(log, size)) else RunError
                raise kind(_why(ending, log, port, size), where=recipe.engine, fix=_fix(log))
            if _answers(url + recipe.ready):
                if process.listens(port):
                    return Server(recipe, url, process, log, time.monotonic() - began)
                if process.ended() is None:
                    raise _PortTakenError(
                        f"port {port} is in use: another process answers on it",
                        where=recipe.engine,
                        fix="end that process or name another port",
                    )
            if time.monotonic() - began > ready_limit:
                raise RunError(
                    f"was not ready after {ready_limit:g} s{_said(log, size)}",
                    where=recipe.engine,
                    fix=f"raise the limit, or {_fix(log)}",
                )
            time.sleep(_POLL)
    except BaseException:
        process.stop()
        raise


def _joined(recipe: Recipe, log: Path, ready_limit: float) -> Server:
    """Return a server that somebody else runs, once it answers."""
    began = time.monotonic()
    url = recipe.url.rstrip("/")
    while not _answers(url + recipe.ready):
        if time.monotonic() - began > ready_limit:
            raise RunError(
                f"nothing answers at {url}{recipe.ready} after {ready_limit:g} s",
                where=recipe.engine,
                fix="start the server, or correct the address",
            )
        time.sleep(_POLL)
    return Server(recipe, url, None, log, 0.0)


def _why(ending: Ending, log: Path, port: int | None, size: int = 0) -> str:
    text = _tail(log, size)
    if port is not None and _PORT_TAKEN.search(text):
        return f"port {port} is in use by another process"
    if ending.out_of_memory or _NO_MEMORY.search(text) or ending.status == -9:
        return f"ran out of memory ({ending}{_said(log, size)})"
    return f"crashed ({ending}{_said(log, size)})"


def _fix(log: Path) -> str:
    return f"read {log}"


def _said(log: Path, size: int) -> str:
    """Return the line of a log that most likely tells the reason, else the last one."""
    lines = [line.strip() for line in _tail(log, size).splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"\w*(Error|Exception)\b: ", line)]
    last = (telling or lines or [""])[-1]
    return f"; {last[:200]}" if last else ""


def _tail(log: Path, size: int) -> str:
    """Return the end of a log, from a given length on."""
    try:
        with log.open("rb") as stream:
            end = stream.seek(0, os.SEEK_END)
            stream.seek(max(size, end - _TAIL))
            return stream.read().decode(errors="replace")
    except OSError:
        return ""


# -- asking ---------------------------------------------------------------------------------------


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _answers(url: str) -> bool:
    try:
        _get(url)
    except urllib.error.HTTPError as error:
        # Some engines know no health path; an answer about it is an answer.
        return error.code in (404, 405)
    except (OSError, ValueError):
        return False
    return True


def _get(url: str) -> str:
    # A proxy that the environment names must not stand between this machine and itself.
    local = urllib.parse.urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")
    handlers = [urllib.request.ProxyHandler({})] if local else []
    opener = urllib.request.build_opener(*handlers)
    with opener.open(url, timeout=_ANSWER_LIMIT) as answer:
        return str(answer.read().decode(errors="replace"))
