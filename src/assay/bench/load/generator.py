"""Generator: ``vllm bench serve``, in a process of its own, watched from within.

Owns the inside of the client process: vLLM's client called with its own arguments, whose
definitions of TTFT, TPOT, ITL and E2EL are the field's, and how busy the process itself was around
the client's measured window, which vLLM's client does not report. Does not own the process
(``client``) or the arguments (``load``).

Started as ``python -m assay.bench.load.generator``: reads one job a line as JSON on standard input,
tells what happens as JSON lines on standard output, and ends when standard input closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import os
import resource
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

__all__ = ["main"]

_PROBE = 0.01  # the client's event loop is asked this often whether it is late [s]


class _Without:
    """An HTTP session that does without what a server does not support."""

    def __init__(self, session: Any, unsupported: Sequence[str]) -> None:
        self._session, self._unsupported = session, unsupported

    def post(
        self, *, json: Mapping[str, object], headers: Mapping[str, str] | None = None, **rest: Any
    ) -> Any:
        kept = {name: value for name, value in json.items() if name not in self._unsupported}
        if "keep-alive" in self._unsupported:
            headers = {**(headers or {}), "Connection": "close"}
        posted = self._session.post(json=kept, headers=headers, **rest)
        return _Apart(posted) if "usage-chunk" in self._unsupported else posted


class _Apart:
    """An answer whose usage comes in a chunk of its own, the only place vLLM's client looks."""

    def __init__(self, posted: Any) -> None:
        self._posted = posted

    async def __aenter__(self) -> _Apart:
        self._answer = await self._posted.__aenter__()
        return self

    async def __aexit__(self, *why: object) -> Any:
        return await self._posted.__aexit__(*why)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._answer, name)

    @property
    def content(self) -> _Apart:
        return self

    async def iter_any(self) -> AsyncIterator[bytes]:
        unread = b""
        async for data in self._answer.content.iter_any():
            *lines, unread = (unread + data).split(b"\n")
            if lines:
                yield b"".join(_apart(line) + b"\n" for line in lines)
        if unread:
            yield _apart(unread)


def _apart(line: bytes) -> bytes:
    """Return a line of an answer's stream, as two where it holds both text and usage."""
    if not line.startswith(b"data: {") or b'"usage"' not in line:
        return line
    chunk = json.loads(line.removeprefix(b"data: "))
    if not chunk.get("usage") or not chunk.get("choices"):
        return line
    parts = [{"choices": [], "usage": chunk.pop("usage")}]
    # A chunk that only says how the answer ended holds no token, and would count as one.
    if any(part.get("text") or part.get("delta", {}).get("content") for part in chunk["choices"]):
        parts.insert(0, chunk)
    return b"\n\n".join(b"data: " + json.dumps(part).encode() for part in parts)


def main() -> None:
    """Run jobs from standard input until it closes."""
    events = os.dup(1)
    os.dup2(2, 1)  # what vLLM prints goes to the log; events stay alone on theirs
    jobs = _follow(sys.stdin.fileno())

    def tell(**event: object) -> None:
        with contextlib.suppress(OSError):
            os.write(events, (json.dumps(event) + "\n").encode())

    from vllm.benchmarks import serve
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    whole = serve.benchmark
    plain = dict(serve.ASYNC_REQUEST_FUNCS)

    async def watched(**options: Any) -> Any:
        tell(event="begin")
        with _Effort() as effort:
            result = await whole(**options)
        tell(event="end", **effort.facts)
        return result

    serve.benchmark = watched
    _trace_sessions()
    for job in jobs:
        try:
            if job["offline"]:
                os.environ["HF_HUB_OFFLINE"] = "1"
            serve.ASYNC_REQUEST_FUNCS.update(plain)
            if job["unsupported"]:
                for name in ("openai", "openai-chat"):
                    serve.ASYNC_REQUEST_FUNCS[name] = _doing_without(
                        plain[name], job["unsupported"]
                    )
            parser = FlexibleArgumentParser()
            serve.add_cli_args(parser)
            asyncio.run(serve.main_async(parser.parse_args(job["arguments"])))
            tell(event="done")
        except (Exception, SystemExit) as error:
            said = " ".join(str(error).split())[:300]
            tell(event="failed", message=f"{type(error).__name__}: {said}")


def _doing_without(function: Callable[..., Any], unsupported: Sequence[str]) -> Callable[..., Any]:
    async def run(request_func_input: Any, session: Any, pbar: Any = None) -> Any:
        return await function(request_func_input, _Without(session, unsupported), pbar)

    return run


class _Effort:
    """How busy this process and how late its event loop is, between two moments."""

    def __init__(self) -> None:
        self.facts: dict[str, object] = {}
        self._late: list[float] = []
        _sending.clear()

    def __enter__(self) -> _Effort:
        self._started = datetime.datetime.now(datetime.UTC)
        self._wall, self._cpu = time.monotonic(), _cpu_time()
        self._probe = asyncio.get_running_loop().create_task(self._look())
        return self

    def __exit__(self, *_: object) -> None:
        self._probe.cancel()
        wall = max(time.monotonic() - self._wall, 1e-9)
        late = sum(self._late) / len(self._late) if self._late else None
        self.facts = {
            "started": self._started.isoformat(timespec="milliseconds"),
            "ended": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
            "busy": (_cpu_time() - self._cpu) / wall,
            "lateness": late,
            "sending": sum(_sending) / len(_sending) if _sending else None,
        }

    async def _look(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(_PROBE)
            self._late.append(max(0.0, time.monotonic() - before - _PROBE))


# From the call to the head on the wire, of every request since the window began [s].
_sending: list[float] = []


def _trace_sessions() -> None:
    """Let every HTTP session of this process note how long a request takes to get out."""
    import aiohttp

    async def begins(_: object, context: Any, __: object) -> None:
        context.begun = time.perf_counter()

    async def is_out(_: object, context: Any, __: object) -> None:
        _sending.append(time.perf_counter() - context.begun)

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(begins)
    trace.on_request_headers_sent.append(is_out)
    plain = aiohttp.ClientSession.__init__

    def traced(self: Any, *given: Any, **named: Any) -> None:
        plain(self, *given, **{"trace_configs": [trace], **named})

    aiohttp.ClientSession.__init__ = traced  # type: ignore[method-assign]


def _cpu_time() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _follow(source: int) -> Iterator[dict[str, Any]]:
    """Yield the jobs that come in; end this process as soon as nobody can send any more."""
    arrived: list[bytes] = []
    new = threading.Condition()

    def listen() -> NoReturn:
        unread = b""
        while data := os.read(source, 65536):
            *lines, unread = (unread + data).split(b"\n")
            with new:
                arrived.extend(lines)
                new.notify()
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        with new:
            while not arrived:
                new.wait()
            line = arrived.pop(0)
        yield json.loads(line)


if __name__ == "__main__":
    main()
