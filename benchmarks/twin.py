"""Time the twin: steps a second by number running, the time outside vLLM's code, and memory.

Owns four closed loops of Llama 3.1 70B on four A100, and one long run of short requests for
memory. Run it as ``python benchmarks/twin.py [REQUESTS]``; the bars are a simulated hour with up to
256 running in under 5 minutes on one core, at most 20 % of the time outside vLLM, and flat memory.
Processor time is counted, not the wall, so that other work on the machine matters less. Reading
that clock twice a call is itself a share of a step with one sequence; it is measured on a function
that does nothing, and taken off.
"""

from __future__ import annotations

import resource
import sys
import time
from typing import Any

import psutil

from assay.bench.twin import engine, run, steptime, workload
from assay.ledger import store

_KV_BYTES = 32 * 10**9  # what 80 GB leave beside a quarter of 141 GB of weights, on each card


class Timed(engine.Engine):
    """An engine that adds up the processor time spent in vLLM's own functions."""

    def __init__(self, setup: engine.Setup) -> None:
        super().__init__(setup)
        self.inside = 0.0
        self.calls = 0
        for name in ("schedule", "update_from_output", "add_request"):
            setattr(self._scheduler, name, self.timed(getattr(self._scheduler, name)))

    def timed(self, function: Any) -> Any:
        """Return the function with its time added to ``inside``."""

        def timed(*arguments: Any) -> Any:
            start = time.process_time()
            found = function(*arguments)
            self.inside += time.process_time() - start
            self.calls += 1
            return found

        return timed


def nothing(*_: object) -> None:
    """Do nothing, as a scheduler function would be called."""


def timer() -> tuple[float, float]:
    """Return what timing one call adds to the time inside and to the whole [s]."""
    watch = Timed.__new__(Timed)
    watch.inside, watch.calls = 0.0, 0
    empty, count = watch.timed(nothing), 200_000
    start = time.process_time()
    for _ in range(count):
        nothing(None)
    plain = time.process_time() - start
    start = time.process_time()
    for _ in range(count):
        empty(None)
    whole = time.process_time() - start - plain
    return watch.inside / count, whole / count


def loop(running: int, requests: int) -> None:
    """Serve a closed loop and print its figures."""
    model, card = store.model("llama-3.1-70b"), store.hardware("a100-sxm-80gb")
    setup = engine.Setup(
        model.config, tp=4, kv_bytes=_KV_BYTES, most_running=max(running, 16), longest=4096
    )
    timed = Timed(setup)
    lengths = workload.lognormal(200, 200, sigma=0.5, most=1500, seed=1)
    source = workload.closed_loop(workload.asks(requests, lengths), running)
    step_time = steptime.Roofline.of(model, card, tp=4)
    start = time.process_time()
    found = run.run(setup, source, step_time, engine=timed)
    took = time.process_time() - start
    inside, whole = timer()
    took -= timed.calls * whole
    spent = timed.inside - timed.calls * inside
    hour = took * 3600 / found.duration
    print(
        f"{running:4d} running  {found.steps / took:7.0f} steps/s  "
        f"{1 - spent / took:6.1%} outside vLLM  "
        f"{hour:6.0f} s for a simulated hour  {found.preemptions} preemptions",
        flush=True,
    )


def memory(requests: int) -> None:
    """Serve many short requests and print the memory after a tenth of them and after all."""
    model, card = store.model("llama-3.1-8b"), store.hardware("h100-sxm-80gb")
    setup = engine.Setup(model.config, kv_bytes=8 * 10**9, longest=1024)
    step_time = steptime.Roofline.of(model, card)
    held, process = [], psutil.Process()
    for count in (requests // 10, requests):
        stream = workload.asks(count, workload.fixed(64, 4), workload.poisson(400, seed=1))
        start = time.process_time()
        found = run.run(setup, workload.open_loop(stream), step_time)
        took = time.process_time() - start
        held.append(process.memory_info().rss)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{len(found):,} requests in {took:.0f} s, {held[-1] / 2**20:.0f} MiB at the end, "
            f"peak {peak:.0f} MiB",
            flush=True,
        )
    print(f"{(held[1] - held[0]) / (requests * 0.9):.0f} B a further request")


def main() -> None:
    """Print the figures."""
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    memory(requests)
    for running in (1, 64, 256, 400):
        loop(running, max(8, 3 * running))


if __name__ == "__main__":
    main()
