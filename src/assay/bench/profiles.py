"""Profiles: what a notebook measures on a GPU, how long it takes, and running it.

Owns two plans, chunked prefill and KV offloading, each quick (within 10 minutes on one 80 GB card)
and full (within 60). They are shown before anything starts. Does not own the protocol, the load
client or the engine.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from assay.errors import InputError
from assay.ledger import records, store

if TYPE_CHECKING:
    from assay.bench.engines.recipe import Recipe
    from assay.bench.load import Load
    from assay.bench.measurement import Measurement
    from assay.bench.reset import Tiered

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
        from assay.bench import measurement

        return measurement.measure(
            self._servers({}), self._asked(), name=self.name, blocks=self.blocks, tell=tell
        )

    def measure_tier(self, *, tell: Any = print) -> Tiered:
        """Run the plan of a host tier, every load from an empty device."""
        from assay.bench import reset

        servers = self._servers(reset.ALLOWED)
        return reset.measure(servers, self._asked(), name=self.name, blocks=self.blocks, tell=tell)

    def _servers(self, environment: Mapping[str, str]) -> dict[str, Recipe]:
        from assay.bench.engines import vllm

        return {
            name: vllm.serve(
                self.model,
                max_model_len=self.longest,
                prefix_cache=arm.prefix_cache,
                flags=arm.flags,
                environment=environment,
            )
            for name, arm in self.arms.items()
        }

    def _asked(self) -> dict[str, Load]:
        from assay.bench.load import Load

        return {name: Load(**load) for name, load in self.loads.items()}


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


def cpu_offload(profile: str, model: str, *, pool: int = 15 * 10**9) -> Profile:
    """Return the plan for a host tier on and off, over KV pressure and reuse.

    Parameters
    ----------
    profile : str
        ``quick`` or ``full``; the latter has a server without any cache, too.
    model : str
        Folder or hub id of an 8B model.
    pool : int
        KV memory of the card; small, so that pressure is reached with few requests [B].

    Notes
    -----
    What the names of the loads mean stands in :mod:`assay.bench.tier`.

    Examples
    --------
    >>> cpu_offload("quick", "m").minutes < 10 < cpu_offload("full", "m").minutes < 60
    True
    """
    from assay.bench import tier

    full = _chosen(profile)
    names = ("reuse-0.5", "reuse-1", "reuse-2", "reuse-4", "none-2", "warm-2")
    asked = tier.loads(
        {name: 2026 for name in (names if full else ("reuse-0.5", "reuse-2", "warm-2"))},
        pool=pool // 131_072,  # Llama 3.1 8B in 16 bits [B/tok]
        prefix=3584,
        suffix=512,
        output=128,
        concurrency=16,
        least=48,
    )
    # 25,000 input tokens a second is what an H100 reads at less than its published best; the run
    # before a warm one is as long.
    seconds = {
        name: load.requests * load.input_tokens / 25_000 * (2 if name[:4] == "warm" else 1)
        for name, load in asked.items()
    }
    memory = ("--kv-cache-memory-bytes", str(pool))
    host = ("--kv-offloading-size", "64", "--kv-offloading-backend", "native")
    arms = {tier.WITHOUT: Arm(memory, prefix_cache=True), "on": Arm(memory + host, True)}
    return Profile(
        f"cpu-offload-{profile}",
        model,
        {tier.NONE: Arm(memory), **arms} if full else arms,
        {name: dataclasses.asdict(load) for name, load in asked.items()},
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
    claim: records.Claim, tiered: Tiered, *, gpu: str, parameters: Parameters
) -> list[records.Evidence]:
    """Save the measured effect of the host tier on throughput and TTFT, load by load.

    Parameters
    ----------
    claim : Claim
        The general claim; another one gets nothing.
    tiered : Tiered
        Of :func:`cpu_offload`.
    gpu : str
        Id of the card in ``data/hardware``.
    parameters : mapping
        The notebook's.
    """
    names = {"output_throughput": "throughput-improves", "ttft": "ttft-improves"}
    asked = {assertion.id for assertion in claim.assertions}
    measured, saved = tiered.found, []
    for metric, assertion in names.items():
        for load in measured.plan.loads if assertion in asked else ():
            ratio = measured.ratio(metric, "on", "off", load=load)
            fields = measured.record(metric, claim_id=claim.id, arm="on", load=load)
            ends = [None if x is None else x - 1 for x in (ratio.low, ratio.high)]
            fields |= {"value": ratio.value - 1, "low": ends[0], "high": ends[1]}
            fields |= {"unit": "1", "n": ratio.n, "method": ratio.method}
            both = [tiered.gates(metric, arm=arm, load=load) for arm in ("on", "off")]
            fields["gates"] = [gate for gates in both for gate in gates]
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
