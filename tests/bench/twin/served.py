"""What the tests of the twin look at: small runs, made in a process of their own.

vLLM changes its process for good, so this is started as a script and prints one JSON line.
"""

from __future__ import annotations

import json
import math
from typing import Any

from assay.bench import checkpoint
from assay.bench.twin import engine, run, steptime, workload
from assay.errors import InputError
from assay.ledger import store

CONFIG = checkpoint.SMALL.config()
STEP = steptime.Fitted(fixed=0.01, per_token=1e-5, per_context=1e-8)
BLOCK_BYTES = 2 * 2 * 4 * 2 * 64 * 16  # keys and values, 16 bits, layers, heads, width, tokens


class Watched(engine.Engine):
    """An engine whose blocks are counted after each step."""

    def __init__(self, setup: engine.Setup) -> None:
        super().__init__(setup)
        self.wrong: list[str] = []
        self.most = 0

    def complete(self, plan: engine.Plan, transfers: Any = None) -> list[engine.Token]:
        found = super().complete(plan, transfers)
        blocks = [block for held in self.held().values() for block in held if block]
        self.most = max(self.most, len(blocks))
        if len(set(blocks)) != len(blocks):
            self.wrong.append("a block has two owners")
        if len(blocks) + self.free_blocks != self.blocks - 1:
            self.wrong.append(f"{len(blocks)} held, {self.free_blocks} free of {self.blocks}")
        return found


def setup(**changes: Any) -> engine.Setup:
    told: dict[str, Any] = {"blocks": 400, "longest": 1024, "budget": 512, "config": CONFIG}
    return engine.Setup(**{**told, **changes})


def mixed(count: int, rate: float | None = None, **extra: Any) -> workload.Source:
    lengths = workload.lognormal(150, 60, sigma=0.7, most=400, seed=1)
    times = None if rate is None else workload.poisson(rate, seed=2)
    return workload.open_loop(workload.asks(count, lengths, times, **extra))


def columns(found: run.Result) -> dict[str, Any]:
    names = ("arrival", "first", "last", "prompt", "output", "cached", "external")
    return {name: list(getattr(found, name)) for name in names}


def conserved() -> dict[str, Any]:
    told = setup(blocks=150, prefix_caching=False)
    watched = Watched(told)
    found = run.run(told, mixed(80), STEP, log=True, engine=watched)
    asked = list(workload.asks(80, workload.lognormal(150, 60, sigma=0.7, most=400, seed=1)))
    assert found.log is not None
    return {
        **columns(found),
        "asked": [[a.prompt, a.output] for a in asked],
        "wrong": watched.wrong,
        "most": watched.most,
        "left": [watched.free_blocks, watched.blocks],
        "end": list(found.log.end),
        "tokens": list(found.log.tokens),
        "running": list(found.log.running),
        "preemptions": found.preemptions,
        "computed": found.tokens,
    }


def little() -> dict[str, Any]:
    """Count requests in the system over time, and how long each stays, in the middle of a run."""
    found = run.run(setup(blocks=4000), mixed(6000, 20.0), STEP, log=True)
    assert found.log is not None
    start, stop = found.duration * 0.1, found.duration * 0.9
    area, before = 0.0, 0.0
    for end, running, waiting in zip(
        found.log.end, found.log.running, found.log.waiting, strict=True
    ):
        if start <= before and end <= stop:
            area += (running + waiting) * (end - before)
        before = end
    inside = [(a, b) for a, b in zip(found.arrival, found.last, strict=True) if start <= a < stop]
    span = stop - start
    stay = sum(b - a for a, b in inside) / len(inside)
    return {"in_system": area / span, "rate": len(inside) / span, "stay": stay}


def tiers() -> dict[str, Any]:
    """Serve with and without a host tier, with and without prompts that come back."""
    free = engine.Tier(memory=2000 * BLOCK_BYTES, to_host=math.inf, to_device=math.inf)
    slow = engine.Tier(memory=2000 * BLOCK_BYTES, to_host=2e6, to_device=2e6)
    small = engine.Tier(memory=4 * BLOCK_BYTES, to_host=math.inf, to_device=math.inf)
    reuse: dict[str, Any] = {"shared": 320, "groups": 12}
    told = {"blocks": 200}
    step = steptime.Fitted(fixed=0.01, per_token=2e-4)
    return {
        "apart": [
            columns(run.run(setup(blocks=1200, tier=tier), mixed(60, 8.0), STEP))
            for tier in (None, free)
        ],
        "again": {
            name: (lambda r: {**columns(r), "rate": r.output_rate, "loaded": r.loaded_bytes})(
                run.run(setup(**told, tier=tier), mixed(120, **reuse), step)
            )
            for name, tier in {"none": None, "free": free, "slow": slow, "small": small}.items()
        },
    }


def refused() -> list[str]:
    said = []
    for told, source in (
        (setup(blocks=20), mixed(3)),
        (setup(), workload.open_loop([workload.Ask(0, 1000, 100)])),
        (setup(chunked=False), mixed(3)),
        (setup(prefix_caching=False, tier=engine.Tier(memory=1)), mixed(3)),
        (setup(config={"model_type": "unheard-of"}), mixed(3)),
    ):
        try:
            run.run(told, source, STEP)
        except InputError as error:
            said.append(str(error))
    return said


def chunks() -> dict[str, Any]:
    """Let a long prompt arrive while others decode."""
    asks = [workload.Ask(n, 20, 60) for n in range(4)] + [workload.Ask(4, 900, 2, arrival=0.03)]
    step = steptime.Fitted(fixed=0.001, per_token=1e-4)
    found = {}
    for name, told in {
        "narrow": setup(budget=128, most_running=64),
        "wide": setup(budget=1024),
        "whole": setup(budget=1024, chunked=False),
    }.items():
        one = run.run(told, workload.open_loop(asks), step)
        found[name] = {"gap": max(list(one.longest_gap)[:4]), "ttft": one.ttft()[4]}
    return found


def closed() -> dict[str, Any]:
    stream = workload.asks(60, workload.fixed(64, 16))
    found = run.run(setup(), workload.closed_loop(stream, 5), STEP, log=True)
    assert found.log is not None
    busy = [a + b for a, b in zip(found.log.running, found.log.waiting, strict=True)]
    return {"most": max(busy), "requests": len(found)}


def main() -> None:
    once, twice = (run.run(setup(), mixed(60, 5.0), STEP, gaps=True) for _ in range(2))
    big = engine.Engine(
        engine.Setup(store.model("llama-3.1-70b").config, kv_bytes=10**10, tp=4, longest=4096)
    )
    answer = {
        "conserved": conserved(),
        "little": little(),
        "tiers": tiers(),
        "refused": refused(),
        "chunks": chunks(),
        "closed": closed(),
        "twice": [store.json_text(r.document(model="small")) for r in (once, twice)],
        "big": {"blocks": big.blocks, "block_bytes": big.block_bytes, "weights": big.parameters},
    }
    print("ANSWER " + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
