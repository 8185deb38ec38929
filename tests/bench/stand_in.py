"""A small client for tests of the protocol where vLLM is missing, and a run that can be killed.

Never used for a number: a measurement's load comes from ``vllm bench serve``. Run as a program, it
carries out a plan on the synthetic server: ``stand_in.py FOLDER BLOCKS [SEED]``.
"""

from __future__ import annotations

import concurrent.futures
import datetime
import http.client
import itertools
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from assay.bench import protocol, synthetic
from assay.bench.engines import server
from assay.bench.load import Load
from assay.bench.load.client import Outcome
from assay.bench.load.rows import Row


class StandIn:
    """Sends what a load asks for, with words as tokens."""

    def __init__(self) -> None:
        self.seeds: list[int] = []

    def run(
        self,
        load: Load,
        server: server.Server,
        *,
        seed: int,
        on_window: Callable[[bool], None],
    ) -> Outcome:
        self.seeds.append(seed)
        chance = random.Random(seed)
        prompts = [
            " ".join(f"w{chance.randrange(10_000)}" for _ in range(load.input_tokens))
            for _ in range(load.requests)
        ]
        started = datetime.datetime.now(datetime.UTC)
        on_window(True)
        began = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(load.concurrency or load.requests) as pool:
            rows = list(pool.map(lambda prompt: _ask(server, load, prompt, began), prompts))
        duration = time.perf_counter() - began
        on_window(False)
        ended = datetime.datetime.now(datetime.UTC)
        return Outcome(
            rows=tuple(rows),
            duration=duration,
            started=started.isoformat(),
            ended=ended.isoformat(),
            busy=0.1,
            lateness=0.0,
            sending=0.0,
        )


def _ask(server: server.Server, load: Load, prompt: str, began: float) -> Row:
    asked = {"prompt": prompt, "max_tokens": load.output_tokens, "stream": True}
    link = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=30)
    sent = time.perf_counter()
    moments: list[float] = []
    usage: dict[str, int] = {}
    whole = False
    try:
        link.request("POST", "/v1/completions", json.dumps(asked))
        answer = link.getresponse()
        if answer.status != 200:
            return Row(False, 0, 0, sent - began, 0.0, None, None, (), f"status {answer.status}")
        for line in answer:
            whole = whole or line.startswith(b"data: [DONE]")
            if line.startswith(b"data: {"):
                content = json.loads(line[6:])
                usage = content.get("usage") or usage
                if content["choices"]:
                    moments.append(time.perf_counter())
    except (OSError, http.client.HTTPException) as error:
        return Row(False, 0, 0, sent - began, 0.0, None, None, (), str(error) or "broken")
    finally:
        link.close()
    if not whole:
        return Row(False, 0, 0, sent - began, 0.0, None, None, (), "broken off")
    gaps = tuple(b - a for a, b in itertools.pairwise(moments))
    return Row(
        completed=True,
        input_tokens=usage.get("prompt_tokens", 0),
        output_tokens=usage.get("completion_tokens", len(moments)),
        sent_s=sent - began,
        queued_s=0.0,
        ttft_s=moments[0] - sent,
        latency_s=moments[-1] - sent,
        itl_s=gaps,
        error="",
    )


def plan(blocks: int, *, seed: int = 0) -> protocol.Plan:
    """Return two arms, of which one is slower, under two loads."""
    quick = synthetic.Behaviour(ttft=0.01, tpot=0.002)
    slow = synthetic.Behaviour(ttft=0.01, tpot=0.004)
    return protocol.Plan(
        arms={"quick": synthetic.serve(quick), "slow": synthetic.serve(slow)},
        loads={
            "few": Load(requests=2, input_tokens=4, output_tokens=5, concurrency=1, warmup=0),
            "many": Load(requests=4, input_tokens=3, output_tokens=6, concurrency=4, warmup=0),
        },
        blocks=blocks,
        seed=seed,
    )


if __name__ == "__main__":
    chosen = plan(int(sys.argv[2]), seed=int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    protocol.run(chosen, Path(sys.argv[1]), drive=StandIn(), tell=lambda said: print(said))
