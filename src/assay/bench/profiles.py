"""Profiles: what a notebook measures on a GPU, how long it takes, and running it.

Owns two plans, chunked prefill and KV offloading, each quick (within 10 minutes on one 80 GB card)
and full (within 60). They are shown before anything starts. Does not own the protocol, the load
client or the engine.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from assay.errors import InputError
from assay.ledger import records, store

if TYPE_CHECKING:
    from assay.bench.measurement import Measurement

__all__ = [
    "NAMES",
    "Arm",
    "Profile",
    "chunked_prefill",
    "cpu_offload",
    "record_effects",
    "record_ttft",
]

Parameters = Mapping[str, bool | int | float | str]

NAMES = ("none", "quick", "full")
#: A start of vLLM with an 8B model from a local disk, graphs captured [s].
_START = 75.0
#: Between two runs: prompts are made, counters read [s].
_CLIENT = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class Arm:
    """One way to start the server.

    Parameters
    ----------
    flags : tuple of str
        Added to ``vllm serve``.
    prefix_cache : bool
        Whether prefixes are kept.
    """

    flags: tuple[str, ...]
    prefix_cache: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Profile:
    """What will be run.

    Parameters
    ----------
    name : str
        Of the run, and of its folder.
    model : str
        Folder or hub id.
    arms : mapping of str to Arm
        Servers.
    loads : mapping of str to mapping
        Arguments of :class:`assay.bench.load.Load`.
    seconds : mapping of str to float
        How long one run of each load is expected to take [s].
    blocks : int
        Starts of each server.
    longest : int
        Longest sequence [tok].
    """

    name: str
    model: str
    arms: Mapping[str, Arm]
    loads: Mapping[str, Mapping[str, Any]]
    seconds: Mapping[str, float]
    blocks: int
    longest: int

    @property
    def minutes(self) -> float:
        """Expected duration of all of it [min]."""
        one = _START + sum(self.seconds[load] + _CLIENT for load in self.loads)
        return self.blocks * len(self.arms) * one / 60

    def rows(self) -> list[dict[str, Any]]:
        """Return the plan as a table: arm, load, starts and expected seconds a run."""
        return [
            {
                "arm": arm,
                "flags": " ".join(told.flags),
                "load": load,
                "starts": self.blocks,
                "expected s": self.seconds[load],
            }
            for arm, told in self.arms.items()
            for load in self.loads
        ]

    def measure(self, *, tell: Any = print) -> Measurement:
        """Run the plan, or continue it, and return what was measured."""
        from assay.bench import load as loads
        from assay.bench import measurement
        from assay.bench.engines import vllm

        arms = {
            name: vllm.serve(
                self.model,
                max_model_len=self.longest,
                prefix_cache=arm.prefix_cache,
                flags=arm.flags,
            )
            for name, arm in self.arms.items()
        }
        asked = {name: loads.Load(**load) for name, load in self.loads.items()}
        return measurement.measure(arms, asked, name=self.name, blocks=self.blocks, tell=tell)


def _chosen(profile: str) -> bool:
    if profile not in NAMES[1:]:
        raise InputError(f"there is no profile '{profile}'", fix="quick or full")
    return profile == "full"


def chunked_prefill(profile: str, model: str) -> Profile:
    """Return the plan for TTFT against prompt length and token budget.

    Parameters
    ----------
    profile : str
        ``quick`` or ``full``.
    model : str
        Folder or hub id of an 8B model.

    Examples
    --------
    >>> chunked_prefill("quick", "m").minutes < 10 < chunked_prefill("full", "m").minutes < 60
    True
    """
    full = _chosen(profile)
    budgets = (512, 2048, 16384) if full else (2048,)
    prompts = (2048, 8192, 32768, 100_000) if full else (2048, 32768)
    requests = 5 if full else 4
    loads: dict[str, dict[str, Any]] = {
        f"alone-{n}": {
            "requests": requests,
            "input_tokens": n,
            "output_tokens": 2,
            "concurrency": 1,
            "warmup": 1,
        }
        for n in prompts
    }
    # Twice what an H100 takes by a published figure, 6.85 s for 100,000 tokens.
    seconds = {f"alone-{n}": (requests + 1) * 2 * n * 6.85e-5 for n in prompts}
    return Profile(
        f"chunked-prefill-{profile}",
        model,
        {f"budget-{b}": Arm(("--max-num-batched-tokens", str(b))) for b in budgets},
        loads,
        seconds,
        blocks=5 if full else 3,
        longest=max(prompts) + 64,
    )


def cpu_offload(profile: str, model: str, *, pool: int = 2 * 10**10) -> Profile:
    """Return the plan for a host tier on and off, over KV pressure and reuse.

    Parameters
    ----------
    profile : str
        ``quick`` or ``full``.
    model : str
        Folder or hub id of an 8B model.
    pool : int
        KV memory of the card; small, so that pressure is reached with few requests [B].

    Examples
    --------
    >>> cpu_offload("quick", "m").minutes < 10 < cpu_offload("full", "m").minutes < 60
    True
    """
    full = _chosen(profile)
    per_token = 131_072  # Llama 3.1 8B in 16 bits [B/tok]
    prefix, suffix, output = 3584, 512, 128
    pressures = (0.5, 1.0, 2.0, 4.0) if full else (0.5, 2.5)
    loads: dict[str, dict[str, Any]] = {}
    for pressure in pressures:
        groups = max(1, math.ceil(pressure * pool / per_token / (prefix + suffix)))
        for reuse in ("reuse", "none") if full else ("reuse",):
            many = groups * (3 if reuse == "reuse" else 1)
            loads[f"{reuse}-{pressure:g}"] = {
                "requests": max(64, many),
                "input_tokens": prefix + suffix,
                "output_tokens": output,
                "concurrency": 32,
                "warmup": 2,
                **(
                    {
                        "dataset": "prefix_repetition",
                        "options": {
                            "prefix-repetition-prefix-len": str(prefix),
                            "prefix-repetition-suffix-len": str(suffix),
                            "prefix-repetition-num-prefixes": str(groups),
                            "prefix-repetition-output-len": str(output),
                        },
                    }
                    if reuse == "reuse"
                    else {}
                ),
            }
    # 25,000 input tokens a second is what an H100 reads at less than its published best.
    seconds = {
        name: load["requests"] * load["input_tokens"] / 25_000 for name, load in loads.items()
    }
    memory = ("--kv-cache-memory-bytes", str(pool))
    tier = ("--kv-offloading-size", "64", "--kv-offloading-backend", "native")
    return Profile(
        f"cpu-offload-{profile}",
        model,
        {"off": Arm(memory, prefix_cache=True), "on": Arm(memory + tier, prefix_cache=True)},
        loads,
        seconds,
        blocks=5 if full else 2,
        longest=8192,
    )


def record_ttft(
    claim: records.Claim, measured: Measurement, *, gpu: str, parameters: Parameters
) -> list[records.Evidence]:
    """Save the measured TTFT of each prompt length and budget.

    Parameters
    ----------
    claim : Claim
        The claim on TTFT.
    measured : Measurement
        Of :func:`chunked_prefill`.
    gpu : str
        Id of the card in ``data/hardware``.
    parameters : mapping
        The notebook's.
    """
    if "ttft-200ms" not in {assertion.id for assertion in claim.assertions}:
        return []
    saved = []
    for arm, load in ((a, x) for a in measured.plan.arms for x in measured.plan.loads):
        fields = measured.record("ttft", claim_id=claim.id, arm=arm, load=load)
        tokens = measured.plan.loads[load].input_tokens
        saved.append(
            store.found(
                claim,
                "ttft-200ms",
                basis="measured",
                finding=f"{tokens:,} tokens with {arm} take {fields['value'] * 1e3:,.0f} ms.",
                parameters=parameters,
                inputs=[],
                conditions=_conditions(measured, gpu, f"1 prompt of {tokens} tokens, {arm}"),
                **fields,
            )
        )
    return saved


def record_effects(
    claim: records.Claim, measured: Measurement, *, gpu: str, parameters: Parameters
) -> list[records.Evidence]:
    """Save the measured effect of the host tier on throughput and TTFT, load by load.

    Parameters
    ----------
    claim : Claim
        The general claim; another one gets nothing.
    measured : Measurement
        Of :func:`cpu_offload`.
    gpu : str
        Id of the card in ``data/hardware``.
    parameters : mapping
        The notebook's.
    """
    names = {"output_throughput": "throughput-improves", "ttft": "ttft-improves"}
    asked = {assertion.id for assertion in claim.assertions}
    saved = []
    for metric, assertion in names.items():
        for load in measured.plan.loads if assertion in asked else ():
            ratio = measured.ratio(metric, "on", "off", load=load)
            fields = measured.record(metric, claim_id=claim.id, arm="on", load=load)
            ends = [None if x is None else x - 1 for x in (ratio.low, ratio.high)]
            fields |= {"value": ratio.value - 1, "low": ends[0], "high": ends[1]}
            fields |= {"unit": "1", "n": ratio.n, "method": ratio.method}
            fields["gates"] += measured.gates(metric, arm="off", load=load)
            count = {"counting": "output"} if metric == "output_throughput" else {}
            saved.append(
                store.found(
                    claim,
                    assertion,
                    basis="measured",
                    finding=f"{metric} {ratio.value - 1:+.1%} with the host tier ({load}).",
                    parameters=parameters,
                    inputs=[],
                    conditions={**_conditions(measured, gpu, load), **count},
                    **fields,
                )
            )
    return saved


def _conditions(measured: Measurement, gpu: str, workload: str) -> dict[str, str | int]:
    recipe = next(iter(measured.plan.arms.values()))
    return {
        "gpu": gpu,
        "gpu_count": recipe.devices,
        "model": recipe.model,
        "precision": "w16a16",
        "engine": "vllm",
        "version": recipe.version,
        "workload": workload,
    }
