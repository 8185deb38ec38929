"""Throttled: a host tier on and off on the real engine of this processor, over links of any speed.

Owns the small model, the servers and loads of the A/B, and the speed of the link as a ratio to the
speed of computing. Does not own what the study kept or shows (``linkstudy``), the loads'
meaning and gates (``tier``), or the worker whose link is throttled (``twin/hostlink``).

The device's KV pool is a few sequences large, so that pressure is reached with few requests. The
link is set by what a block costs to compute on this machine, which is measured first:

    ratio = link [B/s] x seconds to compute the tokens of a block / bytes of a block

At 1 a block takes as long to fetch as to compute. Nothing here speaks for a GPU: both memories are
the same, a copy takes the engine's own thread, and the model is small.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

from assay.bench import checkpoint, measurement, reset, tier
from assay.bench.engines import vllm
from assay.bench.engines.recipe import Recipe
from assay.bench.load import Load
from assay.bench.protocol.plan import Plan
from assay.bench.twin import hostlink
from assay.errors import InputError
from assay.ledger import stats, store

__all__ = [
    "BLOCK",
    "BLOCKS",
    "HOST",
    "IN_FLIGHT",
    "LONGEST",
    "RATIOS",
    "SHAPE",
    "STEP",
    "Pace",
    "arms",
    "asked",
    "link",
    "measure",
    "pace",
]

#: 27 million parameters, of which 8 KiB of keys and values a token.
SHAPE = checkpoint.Shape(
    layers=8, hidden=512, intermediate=1376, heads=8, kv_heads=4, head_dim=64, longest=2048
)
BLOCK = 32  # the processor's attention kernel wants a multiple of it [tok]
BLOCKS = 96  # of the pool; the engine keeps one for itself
LONGEST = 2048  # [tok]
IN_FLIGHT = 2
HOST = 2**30  # memory of the tier: all that a run sends there stays [B]
#: Links eight times as fast as computing, as fast, and half as fast.
RATIOS = (8.0, 1.0, 0.5)
_PREFIX, _SUFFIX, _OUTPUT = 768, 32, 10
_REPEATS, _LEAST = 3, 8
#: Loads with the seed of their prompts, where the run before the window must have the same.
_LOADS = {"reuse-0.5": 0, "reuse-2": 0, "reuse-4": 0, "none-2": 0, "warm-2": 2026}
_START, _RUN = 18.0, 4.0  # of a server and of a load on two cores, for the expected duration [s]
STEP = 2048  # most tokens a step: no prompt is split [tok]


@dataclasses.dataclass(frozen=True, slots=True)
class Pace:
    """How fast this machine computes.

    Parameters
    ----------
    per_token : float
        Of a prompt, one more token [s/tok].
    per_step : float
        A decode step with one sequence [s].
    """

    per_token: float
    per_step: float

    def link(self, ratio: float) -> float:
        """Return the speed of a link as a multiple of that of computing [B/s].

        Examples
        --------
        >>> Pace(per_token=1e-3, per_step=0.0).link(2.0)
        16384000.0
        """
        return ratio * per_token_bytes() / self.per_token


def per_token_bytes() -> int:
    """Return the keys and values of one token, in 16 bits [B/tok]."""
    return 2 * 2 * SHAPE.kv_heads * SHAPE.head_dim * SHAPE.layers


def link(arm: str) -> float | None:
    """Return the ratio of an arm's link; None for an arm without one.

    Examples
    --------
    >>> link("link-0.25"), link("off")
    (0.25, None)
    """
    name, _, ratio = arm.partition("-")
    return float(ratio) if name == "link" else None


def asked() -> dict[str, Load]:
    """Return the loads."""
    return tier.loads(
        _LOADS,
        pool=(BLOCKS - 1) * BLOCK,
        prefix=_PREFIX,
        suffix=_SUFFIX,
        output=_OUTPUT,
        concurrency=IN_FLIGHT,
        least=_LEAST,
        repeats=_REPEATS,
    )


def arms(model: str, found: Pace) -> dict[str, Recipe]:
    """Return the servers: no cache, the device's alone, and a tier over each link.

    Parameters
    ----------
    model : str
        Folder of the checkpoint.
    found : Pace
        From :func:`pace`.
    """
    servers = {
        tier.NONE: _serve(model, prefix_cache=False),
        tier.WITHOUT: _serve(model, prefix_cache=True),
    }
    for ratio in RATIOS:
        # Three digits, so that a plan reads well and says what was set.
        speed = float(f"{found.link(ratio):.3g}")
        servers[f"link-{ratio:g}"] = _serve(model, prefix_cache=True, speed=speed)
    return servers


def _serve(model: str, *, prefix_cache: bool, speed: float | None = None) -> Recipe:
    flags = ["--block-size", str(BLOCK), "--num-gpu-blocks-override", str(BLOCKS)]
    flags += ["--max-num-seqs", str(4 * IN_FLIGHT), "--max-num-batched-tokens", str(STEP)]
    if speed is not None:
        connector = {
            "kv_connector": "OffloadingConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {
                "cpu_bytes_to_use": HOST,
                "link_bytes_per_s": speed,
                "spec_module_path": hostlink.__name__,
                "spec_name": hostlink.SPEC,
            },
        }
        flags += ["--kv-transfer-config", json.dumps(connector)]
    return vllm.serve(
        model,
        weights_kind="random",
        max_model_len=LONGEST,
        prefix_cache=prefix_cache,
        eager=True,
        spin=False,
        flags=flags,
        environment=reset.ALLOWED,
    )


def pace(model: str, *, tell: Callable[[Any], None] = print) -> Pace:
    """Measure how fast this machine computes a prompt and a step, on a server without a cache.

    Parameters
    ----------
    model : str
        Folder of the checkpoint.
    tell : callable
        Receives the progress.

    Raises
    ------
    InputError
        When a longer prompt does not take longer.

    Notes
    -----
    Median TTFT of one prompt at a time, of two lengths; the slope between them leaves out what a
    request costs however short it is.
    """
    short, long = _SUFFIX, _PREFIX + _SUFFIX
    both = {
        f"prompt-{n}": Load(requests=12, input_tokens=n, output_tokens=_OUTPUT, concurrency=1)
        for n in (short, long)
    }
    server = {tier.NONE: _serve(model, prefix_cache=False)}
    plan = Plan(arms=server, loads=both, blocks=1, seed=0)
    found = measurement.measure(server, both, name=_named("pace", plan), blocks=1, tell=tell)
    less, more = (found.blocks("ttft_p50", load=f"prompt-{n}")[0] for n in (short, long))
    if more <= less:
        raise InputError(
            f"a prompt of {long} tokens takes {more:.3g} s, one of {short} tokens {less:.3g} s",
            fix="measure on a machine that does nothing else",
        )
    step = found.blocks("tpot_p50", load=f"prompt-{short}")[0]
    return Pace(per_token=(more - less) / (long - short), per_step=step)


def measure(
    *, blocks: int = stats.BLOCKS, tell: Callable[[Any], None] = print
) -> tuple[reset.Tiered, Pace]:
    """Measure the A/B here, or continue to; about a quarter of an hour on two cores.

    Parameters
    ----------
    blocks : int
        Starts of each server [1].
    tell : callable
        Receives the progress.

    Returns
    -------
    tuple of (Tiered, Pace)
        What was measured, and the pace that set the links.

    Raises
    ------
    InputError, RunError
        When vLLM is missing, or an engine or the client fails; finished blocks stay.
    """
    model = str(checkpoint.make(SHAPE))
    found = pace(model, tell=tell)
    servers, loads = arms(model, found), asked()
    plan = Plan(arms=servers, loads=loads, blocks=blocks, seed=0)
    minutes = blocks * len(servers) * (_START + len(loads) * _RUN) / 60
    tell(
        f"{len(servers)} servers, {len(loads)} loads, {blocks} starts of each: "
        f"about {minutes:.0f} min"
    )
    return (
        reset.measure(servers, loads, name=_named("here", plan), blocks=blocks, tell=tell),
        found,
    )


def _named(what: str, plan: Plan) -> str:
    # Blocks of two plans are never mixed: another plan is another folder.
    return f"cpu-offload-{what}-{store.digest(store.json_text(plan.to_json()))[:12]}"
