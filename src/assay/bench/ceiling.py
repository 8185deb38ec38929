"""Ceiling: the most output tokens a second that this machine could make of a load.

Owns the choice of numbers for the machine at hand; the closed forms are in ``physics/roofline``.
Every choice is in favour of the measurement: a rate above the ceiling is an error of measurement.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
from collections.abc import Sequence
from pathlib import Path

from assay.bench import machine
from assay.bench.engines.recipe import Recipe
from assay.bench.load import Load
from assay.errors import AssayError, InputError
from assay.ledger import records, store
from assay.physics import accelerator, parameters, roofline, units

__all__ = ["Ceiling", "ceiling"]

# No processor on sale boosts higher (Intel Core i9-14900KS, 2024) [1/s].
_CLOCK = 6.2e9
# Operations of one core in one cycle, by the widest extension it names, each at twice the vectors
# a core issues: AMX 1024 multiply-adds of bf16, AVX-512 bf16 two vectors of 32, and so on.
_PER_CYCLE = {"amx_bf16": 2048, "amx_int8": 4096, "avx512_bf16": 256, "avx512f": 128, "avx2": 64}
_OTHER = 256
_LEAST_BITS = 4  # weights of fewer bits a parameter are not served by these engines


@dataclasses.dataclass(frozen=True, slots=True)
class Ceiling:
    """An upper bound and its derivation.

    Parameters
    ----------
    rate : float or None
        Output tokens of the deployment [tok/s]; None when it cannot be derived.
    why : str
        From what, or why not.
    """

    rate: float | None
    why: str


def ceiling(
    recipe: Recipe,
    load: Load,
    *,
    hardware: Sequence[records.Hardware],
    cached: float = 0.0,
) -> Ceiling:
    """Return the most output tokens a second that a load can get here.

    Parameters
    ----------
    recipe : Recipe
        Engine and model.
    load : Load
        Its lengths and requests in flight.
    hardware : sequence of Hardware
        Known devices.
    cached : float
        Share of the input that a prefix cache may serve [1].

    Returns
    -------
    Ceiling
        Never fails: what cannot be derived is said.

    Notes
    -----
    :func:`assay.physics.roofline.mixed_ceiling`. On a processor the bandwidth is left out, since
    small models live in its cache.
    """
    folder = Path(recipe.weights) if recipe.weights else None
    if folder is None or not (folder / "config.json").is_file():
        return Ceiling(None, "the model's configuration is not at hand")
    try:
        counted = parameters.count(store.read_json(folder / "config.json"))
        flops, bandwidth, device = _processor() if not recipe.devices else _gpus(recipe, hardware)
    except AssayError as error:
        return Ceiling(None, str(error))
    inputs, outputs = load.asked
    request = roofline.work(
        counted.multiplied,
        inputs=1 if inputs is None else inputs,
        outputs=load.output_tokens if outputs is None else outputs,
        head=counted.head,
        cached=cached,
    )
    found = roofline.mixed_ceiling(
        request,
        flops=flops,
        bandwidth=bandwidth,
        weights=_weights(folder, counted.total) * counted.active / counted.total,
        batch=load.concurrency or math.inf,
    )
    rate = found.requests * (load.output_tokens if outputs is None else outputs)
    return Ceiling(rate, f"{units.number(counted.total / 1e6)} M parameters on {device}")


def _processor() -> tuple[float, float, str]:
    features = _features()
    known = [name for name in _PER_CYCLE if name in features]
    operations = max((_PER_CYCLE[name] for name in known), default=_OTHER)
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    words = f"{cores} cores at {_CLOCK / 1e9:g} GHz with {operations} operations a cycle"
    return cores * _CLOCK * operations, math.inf, words


def _features() -> set[str]:
    with contextlib.suppress(InputError):
        for line in store.read_text(Path("/proc/cpuinfo")).splitlines():
            if line.startswith("flags"):
                return set(line.partition(":")[2].split())
    return set()


def _gpus(recipe: Recipe, hardware: Sequence[records.Hardware]) -> tuple[float, float, str]:
    devices = machine.discover(hardware).devices[: recipe.devices]
    if len(devices) < recipe.devices:
        raise InputError(f"{recipe.devices} GPUs are used and {len(devices)} seen here")
    known = {device.id: device for device in hardware}
    flops = bandwidth = 0.0
    for device in devices:
        if device.id is None:
            raise InputError(f"{device.name} is no known device", fix="add it to data/hardware")
        facts = accelerator.from_record(known[device.id].model_dump())
        flops += max(facts.peaks.values(), default=math.inf)
        bandwidth += facts.bandwidth
    return flops, bandwidth, f"{len(devices)} × {devices[0].name}"


def _weights(folder: Path, total: int) -> float:
    """Return the size of the weights, or the least they can have [B]."""
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    return float(size or total * _LEAST_BITS / 8)
