"""Time the twin: steps a second by number running, the time outside vLLM's code, and memory.

Owns four closed loops of Llama 3.1 70B on four A100, and one long run of short requests for
memory. Run it as ``python benchmarks/twin.py [REQUESTS]``; the bars are a simulated hour with up to
256 running in under 5 minutes on one core, at most 20 % of the time outside vLLM, and flat memory.
Processor time is counted, not the wall, so that other work on the machine matters less.
"""

from __future__ import annotations

import resource
import sys
import time
from typing import Any

from assay.bench.twin import engine, run, steptime, workload
from assay.ledger import store

_KV_BYTES = 32 * 10**9  # what 80 GB leave beside a quarter of 141 GB of weights, on each card


class Timed(engine.Engine):
    """An engine that adds up the processor time spent in vLLM's own functions."""

    def __init__(self, setup: engine.Setup) -> None:
        super().__init__(setup)
        self.inside = 0.0
        for name in ("schedule", "update_from_output", "add_request"):
            setattr(self._scheduler, name, self._timed(getattr(self._scheduler, name)))

    def _timed(self, function: Any) -> Any:
        def timed(*arguments: Any, **options: Any) -> Any:
            start = time.process_time()
            try:
                return function(*arguments, **options)
            finally:
                self.inside += time.process_time() - start

        return timed


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
    hour = took * 3600 / found.duration
    print(
        f"{running:4d} running  {found.steps / took:7.0f} steps/s  "
        f"{1 - timed.inside / took:6.1%} outside vLLM  "
        f"{hour:6.0f} s for a simulated hour  {found.preemptions} preemptions",
        flush=True,
    )


def memory(requests: int) -> None:
    """Serve many short requests and print the memory before, half-way and after."""
    model, card = store.model("llama-3.1-8b"), store.hardware("h100-sxm-80gb")
    setup = engine.Setup(model.config, kv_bytes=8 * 10**9, longest=1024)
    step_time = steptime.Roofline.of(model, card)
    peaks = []
    for count in (requests // 10, requests):
        stream = workload.asks(count, workload.fixed(64, 4), workload.poisson(400, seed=1))
        start = time.process_time()
        found = run.run(setup, workload.open_loop(stream), step_time)
        took = time.process_time() - start
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        print(f"{len(found):,} requests in {took:.0f} s, peak {peaks[-1]:.0f} MiB", flush=True)
    print(f"{(peaks[1] - peaks[0]) * 2**20 / (requests * 0.9):.0f} B a further request")


def main() -> None:
    """Print the figures."""
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    for running in (1, 64, 256, 400):
        loop(running, max(8, 3 * running))
    memory(requests)


if __name__ == "__main__":
    main()
