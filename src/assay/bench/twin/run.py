"""Run: the loop that drives the scheduler on a simulated clock.

Owns the clock, what is recorded of each request and each step, and the result in the shape of
``vllm bench serve``, so that ``assay read`` and ``assay compare`` take it. Does not own vLLM's
names (`engine`), durations (`steptime`) or arrivals (`workload`).
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.bench.twin.engine import Engine, Setup
from assay.bench.twin.offload import Link
from assay.bench.twin.steptime import StepTime
from assay.bench.twin.workload import Source
from assay.errors import RunError
from assay.ledger import store

__all__ = ["Result", "Steps", "run"]

#: Steps in a row that may compute nothing before the run is given up: a request that never gets in.
_PATIENCE = 10_000
LABEL = "simulated: vLLM's scheduler on a modelled clock"


@dataclass(slots=True)
class Steps:
    """The step log, one entry a step that computed something.

    Parameters
    ----------
    end : array of float
        When it ended [s].
    tokens, running, waiting : array of int
        Tokens computed, requests in the batch and requests not in it yet.
    usage : array of float
        Share of the pool in use [1].
    """

    end: array[float] = field(default_factory=lambda: array("d"))
    tokens: array[int] = field(default_factory=lambda: array("q"))
    running: array[int] = field(default_factory=lambda: array("q"))
    waiting: array[int] = field(default_factory=lambda: array("q"))
    usage: array[float] = field(default_factory=lambda: array("d"))

    def __len__(self) -> int:
        return len(self.end)

    def key(self) -> list[tuple[int, int, float]]:
        """Return tokens, running and use of the pool step by step: what a real engine must match.

        The use is rounded to 10**-9, far below one block of any pool.
        """
        return [
            (t, r, round(u, 9))
            for t, r, u in zip(self.tokens, self.running, self.usage, strict=True)
        ]


@dataclass(slots=True)
class Result:
    """What happened, request by request in order of arrival.

    Parameters
    ----------
    setup : Setup
        What the engine was told.
    arrival, first, last : array of float
        When it was sent, got its first and its last token [s].
    prompt, output, cached, external : array of int
        Lengths, and prompt tokens found in the pool and in the host's memory [tok].
    longest_gap : array of float
        Longest time between two of its tokens [s].
    gaps : list of array, optional
        All of them, when asked for.
    steps, preemptions : int
        Steps that computed something; times that a request lost its blocks.
    tokens : int
        Tokens computed, recomputed ones included [tok].
    duration : float
        From 0 to the end of the last step [s].
    blocks : int
        Blocks in the pool.
    loaded_bytes, stored_bytes : int
        Moved over one device's link [B].
    log : Steps, optional
        Step by step, when asked for.
    """

    setup: Setup
    arrival: array[float] = field(default_factory=lambda: array("d"))
    first: array[float] = field(default_factory=lambda: array("d"))
    last: array[float] = field(default_factory=lambda: array("d"))
    prompt: array[int] = field(default_factory=lambda: array("q"))
    output: array[int] = field(default_factory=lambda: array("q"))
    cached: array[int] = field(default_factory=lambda: array("q"))
    external: array[int] = field(default_factory=lambda: array("q"))
    longest_gap: array[float] = field(default_factory=lambda: array("d"))
    gaps: list[array[float]] | None = None
    steps: int = 0
    preemptions: int = 0
    tokens: int = 0
    duration: float = 0.0
    blocks: int = 0
    loaded_bytes: int = 0
    stored_bytes: int = 0
    log: Steps | None = None

    def __len__(self) -> int:
        return len(self.arrival)

    @property
    def output_rate(self) -> float:
        """Output tokens over the duration [tok/s]."""
        return sum(self.output) / self.duration

    def ttft(self) -> list[float]:
        """Return the time to the first token of each request [s]."""
        return [f - a for f, a in zip(self.first, self.arrival, strict=True)]

    def tpot(self) -> list[float]:
        """Return the time per further token of each request with two or more [s]."""
        rows = zip(self.first, self.last, self.output, strict=True)
        return [(end - start) / (n - 1) for start, end, n in rows if n > 1]

    def mean_ttft(self) -> float:
        """Return the mean time to the first token [s]."""
        return math.fsum(self.ttft()) / len(self)

    def mean_tpot(self) -> float:
        """Return the mean over requests of the time per further token [s]."""
        found = self.tpot()
        return math.fsum(found) / len(found) if found else math.nan

    def document(self, *, model: str = "") -> dict[str, Any]:
        """Return the result as ``vllm bench serve --save-detailed`` writes one.

        Parameters
        ----------
        model : str
            Name to put in it.

        Returns
        -------
        dict
            With a label that says it is simulated.
        """
        n, inputs, outputs = len(self), sum(self.prompt), sum(self.output)
        found: dict[str, Any] = {
            "backend": "vllm",
            "cached_tokens": sum(self.cached) + sum(self.external),
            "completed": n,
            "duration": self.duration,
            "failed": 0,
            "input_lens": list(self.prompt),
            "label": LABEL,
            "latencies": [b - a for a, b in zip(self.arrival, self.last, strict=True)],
            "mean_tpot_ms": self.mean_tpot() * 1e3,
            "mean_ttft_ms": self.mean_ttft() * 1e3,
            "model_id": model,
            "num_prompts": n,
            "output_lens": list(self.output),
            "output_throughput": outputs / self.duration,
            "request_throughput": n / self.duration,
            "start_times": list(self.arrival),
            "total_input_tokens": inputs,
            "total_output_tokens": outputs,
            "total_token_throughput": (inputs + outputs) / self.duration,
            "ttfts": self.ttft(),
        }
        if self.gaps is not None:
            found["itls"] = [list(gaps) for gaps in self.gaps]
        return found

    def write(self, file: Path, *, model: str = "") -> None:
        """Write :meth:`document` to a file."""
        store.write(file, store.json_text(self.document(model=model)))


def run(
    setup: Setup,
    source: Source,
    step_time: StepTime,
    *,
    log: bool = False,
    gaps: bool = False,
    engine: Engine | None = None,
) -> Result:
    """Serve a workload on the simulated clock.

    Parameters
    ----------
    setup : Setup
        What the engine is told.
    source : Source
        What arrives. It is used up.
    step_time : StepTime
        How long a step takes.
    log : bool
        Whether to keep the step log.
    gaps : bool
        Whether to keep every gap between tokens; memory then grows with the output.
    engine : Engine, optional
        A fresh one made from the set-up, to look into afterwards.

    Returns
    -------
    Result
        In order of arrival.

    Raises
    ------
    RunError
        When no step can be made although requests wait: one of them does not fit the pool.
    """
    engine = engine or Engine(setup)
    link = None if setup.tier is None else Link(setup.tier, engine.block_bytes)
    found = Result(setup, blocks=engine.blocks, log=Steps() if log else None)
    if gaps:
        found.gaps = []
    _loop(engine, link, source, step_time, found)
    if link is not None:
        found.loaded_bytes, found.stored_bytes = link.loaded_bytes, link.stored_bytes
    return found


def _loop(
    engine: Engine, link: Link | None, source: Source, step_time: StepTime, found: Result
) -> None:
    place: dict[str, int] = {}
    last, output, longest_gap, gaps = found.last, found.output, found.longest_gap, found.gaps
    now, idle, upcoming = 0.0, 0, source.next_time()
    while True:
        if upcoming <= now:
            for ask, when in source.due(now):
                place[engine.submit(ask, when)] = _row(found, ask.prompt, when)
            upcoming = source.next_time()
        if not place:
            if upcoming == math.inf:
                break
            now = upcoming
            continue
        plan = engine.plan()
        work = plan.work
        start = now if link is None else link.begin(plan.transfers, now)
        if work.tokens:
            now, idle = start + step_time(work), 0
            found.steps += 1
            found.tokens += work.tokens
            if found.log is not None:
                _note(found.log, engine, work.tokens, now)
        else:
            # Nothing to compute: the next thing to happen is a transfer's end or an arrival.
            idle += 1
            ahead = min(upcoming, math.inf if link is None else link.next_time())
            now = max(start, ahead) if ahead < math.inf else start
            if idle > _PATIENCE or (ahead == math.inf and (link is None or link.idle) and idle > 2):
                raise RunError(
                    f"{engine.waiting} requests wait and none can be let in: one does not fit "
                    f"the pool of {engine.blocks} blocks",
                    fix="give more KV memory or shorter requests",
                )
        if plan.preempted:
            found.preemptions += len(plan.preempted)
        arrived = None if link is None else link.end(now)
        for name, hits, done in engine.complete(plan, arrived):
            row = place[name]
            before = last[row]
            last[row] = now
            output[row] += 1
            if before != before:  # not a number: this is the first token
                _first(found, row, hits, now)
            else:
                gap = now - before
                if gap > longest_gap[row]:
                    longest_gap[row] = gap
                if gaps is not None:
                    gaps[row].append(gap)
            if done:
                del place[name]
                source.done(now)
                upcoming = source.next_time()
    found.duration = now


def _row(found: Result, prompt: int, when: float) -> int:
    found.arrival.append(when)
    found.prompt.append(prompt)
    found.output.append(0)
    for column in (found.first, found.last):
        column.append(math.nan)
    for counts in (found.cached, found.external):
        counts.append(0)
    found.longest_gap.append(0.0)
    if found.gaps is not None:
        found.gaps.append(array("d"))
    return len(found.arrival) - 1


def _first(found: Result, row: int, hits: tuple[int, int] | None, now: float) -> None:
    found.first[row] = now
    if hits is not None:
        found.cached[row], found.external[row] = hits


def _note(log: Steps, engine: Engine, tokens: int, now: float) -> None:
    log.end.append(now)
    log.tokens.append(tokens)
    log.running.append(engine.running)
    log.waiting.append(engine.waiting)
    log.usage.append(engine.usage)
