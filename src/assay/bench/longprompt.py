"""Long prompt: its time to first token by length and token budget, measured on a processor.

Owns the small model, the servers and loads, and the choice between running them and reading back
what is committed. Does not own the protocol (``measurement``), the numbers and their gates
(``sweep``), the files and the evidence (``sweeps``) or the arriving prompt (``arrival``).

It is about the shape, not the size: how TTFT grows with the prompt, and what the budget does to it
and to those who decode meanwhile. A processor is no GPU, and every number says so in a gate that it
fails, so that none of them decides a claim about GPUs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from assay.bench import arrival, checkpoint, machine, sweep, sweeps
from assay.bench.load import Load
from assay.ledger import records, stats
from assay.physics import parameters, roofline

if TYPE_CHECKING:
    from assay.bench.engines.recipe import Recipe
    from assay.bench.measurement import Measurement

__all__ = [
    "BUDGETS",
    "LENGTHS",
    "SCENE",
    "SHAPE",
    "arms",
    "crossing",
    "loads",
    "measure",
    "on_gpu",
    "study",
]

Parameters = Mapping[str, bool | int | float | str]

#: Attention has as large a part in the arithmetic as in Llama 3.1 8B. A prompt of n tokens takes
#: 384 n² operations of attention and 19.5e6 n others, there 262,144 n² and 14.0e9 n.
SHAPE = checkpoint.Shape(
    layers=3, hidden=512, intermediate=2048, heads=2, kv_heads=1, head_dim=32, longest=33_280
)
LENGTHS = (1024, 2048, 4096, 8192, 16_384, 32_768)  # [tok]
BUDGETS = (512, 2048, 8192, 16_384)  # tokens a step [tok]
SCENE = arrival.Scene(decoders=4, prompt=128, answer=256, arriving=16_384, rate=16.0)

_TWICE = 8192  # up to this length a server start is asked twice, beyond it once [tok]
_MINUTES = 0.7  # one start with its loads on two quiet cores [min]


@dataclasses.dataclass(frozen=True, slots=True)
class _Alone(Load):
    """One prompt; before a very long one comes a shorter one, which warms the server as well."""

    def warm(self) -> Load:
        return dataclasses.replace(self, requests=1, input_tokens=min(self.input_tokens, _TWICE))


def arms(
    model: Path, *, budgets: Sequence[int] = BUDGETS, longest: int = SHAPE.longest
) -> dict[str, Recipe]:
    """Return one server for each budget, and one that takes every prompt in one step.

    Parameters
    ----------
    model : Path
        Folder of the checkpoint.
    budgets : sequence of int
        Most tokens of a step [tok].
    longest : int
        Longest sequence [tok].
    """
    from assay.bench.engines import vllm

    chosen: dict[str, tuple[str, ...]] = {
        f"budget-{budget}": ("--max-num-batched-tokens", str(budget)) for budget in budgets
    }
    whole = ("--max-num-batched-tokens", str(longest), "--no-enable-chunked-prefill")
    chosen[sweep.UNCHUNKED] = whole
    return {
        name: vllm.serve(
            str(model),
            weights_kind="random",
            max_model_len=longest,
            eager=True,  # every length is another shape, and compiling each takes longer than it
            spin=False,
            flags=flags,
        )
        for name, flags in chosen.items()
    }


def loads(
    model: Path,
    folder: Path,
    *,
    lengths: Sequence[int] = LENGTHS,
    scene: arrival.Scene = SCENE,
) -> dict[str, Load]:
    """Return one prompt alone by its length, and the long one among others.

    Parameters
    ----------
    model : Path
        Folder of the checkpoint.
    folder : Path
        Receives the requests of the scene.
    lengths : sequence of int
        Of the prompt [tok].
    scene : Scene
        Who is there when it arrives.
    """
    found: dict[str, Load] = {
        sweep.ALONE.format(length): _Alone(
            requests=2 if length <= _TWICE else 1,
            input_tokens=length,
            output_tokens=2,
            concurrency=1,
            warmup=1,
        )
        for length in lengths
    }
    return {**found, sweep.AMONG: arrival.load(scene, model, folder)}


def crossing(shape: checkpoint.Shape = SHAPE) -> float:
    """Return the length at which attention takes as many operations as all the rest [tok]."""
    counted = parameters.count(shape.config())
    pair = roofline.attention_flops(shape.layers, shape.heads, shape.head_dim)
    # A causal prompt of n tokens has n²/2 pairs; every other weight is used twice a token.
    return 2 * (counted.multiplied - counted.head) / (pair / 2)


def measure(
    *,
    name: str = "long-prompt",
    blocks: int = stats.BLOCKS,
    place: Path | None = None,
    tell: Callable[[object], None] = print,
) -> Measurement:
    """Run every load on every server, or continue a run that was broken off.

    Parameters
    ----------
    name : str
        Of the run, and of its folder.
    blocks : int
        Starts of each server [1].
    place : Path or None
        Folder of the run, instead of the usual one.
    tell : callable
        Receives the progress.

    Raises
    ------
    InputError
        When vLLM is not installed.
    RunError
        When an engine or the client fails; finished blocks are kept.
    """
    from assay.bench import measurement

    model = checkpoint.make(SHAPE)
    servers = arms(model)
    starts = blocks * len(servers)
    tell(f"{starts} starts of {len(servers)} servers, about {starts * _MINUTES:.0f} minutes")
    asked = loads(model, model.parent / "arrivals")
    return measurement.measure(servers, asked, name=name, blocks=blocks, place=place, tell=tell)


def study(
    claim: records.Claim, *, measuring: bool, tell: Callable[[object], None] = print
) -> sweep.Sweep:
    """Return the sweep: measured here when asked for and there is no GPU, else as committed.

    Parameters
    ----------
    claim : Claim
        The one the notebook is run for; only the claim on TTFT is measured for.
    measuring : bool
        Whether to measure.
    tell : callable
        Receives the progress.
    """
    if measuring and claim.id == sweeps.CLAIM and not on_gpu():
        return sweeps.kept(measure(tell=tell))
    return sweeps.committed()


def on_gpu() -> bool:
    """Whether this machine has a GPU; then the profile for one is measured and not this sweep."""
    return bool(machine.discover(()).devices)
