"""Roof: what this processor reaches by itself, and what that allows a served model.

Owns measuring the copy bandwidth and the rate of matrix products on the machine at hand, and the
limits that follow for one load. Does not own the closed forms (``physics/roofline``), limits from
data sheets (``ceiling``) or the engines held against it (``lineup``).
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import os
import time
from collections.abc import Callable, Mapping

from assay.bench.load import Load
from assay.errors import InputError
from assay.physics import parameters, roofline

__all__ = ["Limits", "Roof", "limits", "measure"]

# An array of 512 MiB does not fit any processor's cache, and a product of 2048 by 2048 keeps every
# core busy for milliseconds, so that neither call's overhead shows.
_ARRAY = 512 * 2**20
_SIDE = 2048


@dataclasses.dataclass(frozen=True, slots=True)
class Roof:
    """The best that was seen of each, since a limit is what can be reached at all.

    Parameters
    ----------
    bandwidth : float
        Bytes read and written by a copy of a large array [B/s].
    flops : mapping of str to float
        Rate of matrix products by number format [FLOP/s].
    repeats : int
        Tries behind each [1].
    """

    bandwidth: float
    flops: Mapping[str, float]
    repeats: int


def measure(*, repeats: int = 10, size: int = _ARRAY, side: int = _SIDE) -> Roof:
    """Measure the processor's copy bandwidth and its rate of matrix products.

    Parameters
    ----------
    repeats : int
        Tries of each; the best counts [1].
    size : int
        Of the array that is copied [B].
    side : int
        Of the square matrices [1].

    Returns
    -------
    Roof
        All cores together.

    Raises
    ------
    InputError
        When torch is not installed.

    Notes
    -----
    A copy reads and writes every byte: twice the size over the time (STREAM, McCalpin 1995).
    A product of two square matrices takes 2 n³ operations.
    """
    try:
        import torch
    except ImportError:
        raise InputError(
            "torch is not installed, so matrix products cannot be timed",
            fix="install the extra 'cpu'",
        ) from None
    flops = {}
    for name, kind in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        left, right = (torch.rand(side, side).to(kind) for _ in range(2))
        product = functools.partial(torch.mm, left, right, out=torch.empty_like(left))
        flops[name] = 2 * side**3 / _best(repeats, product)
    return Roof(_copy(size, repeats), flops, repeats)


def _copy(size: int, repeats: int) -> float:
    import numpy as np

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    source = np.ones(size // 8)
    target = np.empty_like(source)
    parts = list(zip(np.array_split(source, cores), np.array_split(target, cores), strict=True))
    with concurrent.futures.ThreadPoolExecutor(cores) as pool:

        def once() -> None:
            # numpy lets go of the interpreter's lock while it copies.
            list(pool.map(lambda part: np.copyto(part[1], part[0]), parts))

        return 2 * source.nbytes / _best(repeats, once)


def _best(repeats: int, call: Callable[[], object]) -> float:
    call()  # touches the memory and starts the threads
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return min(times)


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """What a roof allows a model under a load.

    Parameters
    ----------
    parameters, weights : float
        Of the model [1], [B].
    output_throughput : float
        Most output tokens a second of the load [tok/s].
    tpot, ttft : float
        Least time of a decode step, for reading the weights once; and least time until the first
        token, for two operations per parameter and prompt token [s].
    """

    parameters: float
    weights: float
    output_throughput: float
    tpot: float
    ttft: float


def limits(roof: Roof, config: Mapping[str, object], load: Load) -> Limits:
    """Return what a roof allows a model in 16-bit weights under a load of fixed lengths.

    Parameters
    ----------
    roof : Roof
        As measured.
    config : mapping
        Fields of the model's ``config.json``.
    load : Load
        A closed loop.

    Returns
    -------
    Limits
        In favour of the engine: no KV cache is read, no attention computed, prefill and decode
        overlap perfectly, and of two rates of matrix products the higher counts.

    Raises
    ------
    InputError
        When the load's lengths are those of a data set.

    Notes
    -----
    :func:`assay.physics.roofline.mixed_ceiling` with measured rates in the place of a data sheet's.
    """
    inputs, outputs = load.asked
    if inputs is None or outputs is None:
        raise InputError("the load has no fixed lengths", fix="use the dataset 'random'")
    counted = parameters.count(config)
    flops = max(roof.flops.values())
    weights = 2.0 * counted.total
    request = roofline.work(counted.multiplied, inputs=inputs, outputs=outputs, head=counted.head)
    most = roofline.mixed_ceiling(
        request,
        flops=flops,
        bandwidth=roof.bandwidth,
        weights=weights,
        batch=load.concurrency or load.requests,
    )
    return Limits(
        parameters=counted.total,
        weights=weights,
        output_throughput=most.requests * outputs,
        tpot=weights / roof.bandwidth,
        ttft=roofline.ttft_floor(request, flops=flops, bandwidth=roof.bandwidth, weights=weights),
    )
