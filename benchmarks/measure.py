"""Check how steady a measurement is here, and that vLLM's own command agrees with it.

Measures a small random-weight model on the installed vLLM at concurrency 1, 4 and 16 over five
blocks, runs plain ``vllm bench serve`` on a server start of its own before each, and prints for
each load the interval, its half width, the gates that fail, and whether the plain figure is in it.

    python benchmarks/measure.py [--blocks N] [--name NAME] [--without-plain]

Needs vLLM (`make setup`), two cores and nothing else at work; about eleven minutes. The plain
command is run on several starts because an interval of a mean is about means: a single new start
lies outside it four times in ten even when both measure the same thing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from assay.bench import checkpoint, load, measurement, protocol
from assay.bench.engines import recipe, server, vllm
from assay.ledger import stats

HALF_WIDTH = 0.05
TIME = 15 * 60  # allowed for the measurement [s]
REQUESTS = {1: 32, 4: 96, 16: 256}


def loads() -> dict[str, load.Load]:
    """Return the three loads, each long enough for some ten seconds on two cores."""
    return {
        f"c{concurrency}": load.Load(
            requests=requests, input_tokens=128, output_tokens=128, concurrency=concurrency
        )
        for concurrency, requests in REQUESTS.items()
    }


class Plain:
    """Runs ``vllm bench serve`` as a person would, before each block of the measurement.

    The two take turns, so that whatever else this machine does meets both alike.
    """

    def __init__(self, arm: recipe.Recipe, folder: Path) -> None:
        self.arm, self.folder = arm, folder
        self.rates: dict[str, list[float]] = {name: [] for name in loads()}
        self.seconds = 0.0

    def block(self, number: int) -> None:
        """Start a server and run every load on it."""
        began = time.monotonic()
        with server.start(self.arm, self.folder) as running:
            for name, asked in loads().items():
                self.rates[name].append(self._rate(running, asked, number))
        self.seconds += time.monotonic() - began

    def _rate(self, running: server.Server, asked: load.Load, number: int) -> float:
        """Return the output rate that the command writes to its result file [tok/s]."""
        result = self.folder / "plain.json"
        command = [
            *(sys.executable, "-m", "assay.bench.engines.vllm", "bench", "serve"),
            *("--backend", "openai", "--base-url", running.url, "--model", self.arm.model),
            *("--dataset-name", "random", "--random-input-len", str(asked.input_tokens)),
            *("--random-output-len", str(asked.output_tokens), "--ignore-eos"),
            *("--num-prompts", str(asked.requests), "--num-warmups", "4"),
            *("--max-concurrency", str(asked.concurrency), "--temperature", "0"),
            *("--seed", str(1000 + number), "--disable-tqdm", "--save-result"),
            *("--result-dir", str(self.folder), "--result-filename", result.name),
        ]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        with (self.folder / "plain.log").open("ab") as log:
            subprocess.run(command, check=True, stdout=log, stderr=log, env=environment)
        return float(json.loads(result.read_text())["output_throughput"])


def main() -> int:
    """Measure, print, and return 0 when every bar is met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=stats.BLOCKS)
    parser.add_argument("--name", default=f"steady-{time.strftime('%Y%m%d-%H%M%S')}")
    parser.add_argument("--without-plain", action="store_true")
    given = parser.parse_args()

    model = str(checkpoint.make())
    arm = vllm.serve(model, weights_kind="random", eager=True, spin=False, max_model_len=4096)
    plain = Plain(arm, measurement.folder(f"{given.name}-plain"))

    def tell(said: protocol.Progress) -> None:
        print(f"{said.elapsed:5.0f} s  {said}", flush=True)
        if said.doing.startswith("starting") and not given.without_plain:
            plain.block(said.block)

    began = time.monotonic()
    found = measurement.measure(
        {"vllm": arm},
        loads(),
        name=given.name,
        blocks=given.blocks,
        tell=tell,
    )
    seconds = time.monotonic() - began - plain.seconds
    met = seconds <= TIME
    print(f"\n{given.blocks} blocks in {seconds:.0f} s (at most {TIME} s)")
    busiest = max(w.watched.load_average or 0.0 for w in found.windows)
    print(f"load average up to {busiest:.1f} on {os.cpu_count()} cores (the engine's own is 2)\n")

    by_hand = {} if given.without_plain else plain.rates
    for name in loads():
        rate = found.estimate("output_throughput", load=name)
        assert rate.low is not None and rate.high is not None
        half = max(rate.high - rate.value, rate.value - rate.low) / rate.value
        failed = [g for g in found.gates("output_throughput", load=name) if not g.passed]
        line = (
            f"{name:>4}  {rate.value:7.1f} output tok/s [{rate.low:.1f}, {rate.high:.1f}] "
            f"±{half:.1%}"
        )
        met = met and half <= HALF_WIDTH and not failed
        if name in by_hand:
            mean = stats.block_mean(by_hand[name])
            inside = rate.low <= mean.value <= rate.high
            met = met and inside
            line += f"  plain {mean.value:.1f} {'inside' if inside else 'OUTSIDE'}"
        print(line)
        print(f"      blocks {[round(x, 1) for x in found.blocks('output_throughput', load=name)]}")
        if name in by_hand:
            print(f"      plain  {[round(x, 1) for x in by_hand[name]]}")
        for gate in failed:
            print(f"      failed {gate.id}: {gate.says}")
    print(f"\n{'met' if met else 'NOT met'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
