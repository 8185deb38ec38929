"""Readings: what a published rate may have meant, each meaning held against its ceiling.

Owns the enumeration of admissible readings (precision, counting, number of devices) and the
judgement of each. Does not own the ceilings (``roofline``), devices (``accelerator``), formats
(``precision``) or the answer built from the readings (``possible``), and reads no files.

A condition that is not stated is enumerated (precision, counting, devices) or taken at the value
most generous to the claim (batch, lengths, KV format).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from assay.errors import InputError
from assay.physics import roofline
from assay.physics.accelerator import Accelerator
from assay.physics.conditions import Conditions, ModelFacts
from assay.physics.precision import Precision, admissible
from assay.physics.rate import Rate

__all__ = [
    "DEVICE_COUNTS",
    "ROUNDING",
    "Reading",
    "countings",
    "enumerate_readings",
    "judge",
    "precisions",
]

# Deployments tried when the number of devices is unstated: one card to one full host.
DEVICE_COUNTS = (1, 2, 4, 8)
# Ratios are products of a dozen floats; a rate equal to its ceiling must not fail on the last bit.
ROUNDING = 1e-9

# Smallest KV element that engines ship (QServe, LMDeploy: 4 bits), taken when none is stated.
_LEAST_KV_BITS = 4.0
# Stands for "as many tokens as you like" where a length is not stated [tok].
_UNBOUNDED = 1e6


@dataclass(frozen=True)
class Reading:
    """One meaning of a rate, judged.

    Parameters
    ----------
    precision : str or None
        Format of weights and activations.
    counting : str or None
        ``output``, ``total`` or ``requests``.
    gpus : int
        Devices.
    batch : float or None
        Requests in flight; None when unbounded.
    fits : bool
        Whether weights and one sequence fit in device memory.
    ceiling : float or None
        The limit in the unit of the claim: the most for a rate, the least for a time. It is
        computed as if the model fitted. None when nothing limits.
    limited_by : str
        ``memory`` when it does not fit, else ``bandwidth`` or ``compute``.
    ratio : float
        How many times the claim is beyond the limit; above 1 is impossible.
    possible : bool
        Fits, and ``ratio`` is at most 1.
    """

    precision: str | None
    counting: str | None
    gpus: int
    batch: float | None
    fits: bool
    ceiling: float | None
    limited_by: str
    ratio: float
    possible: bool

    def as_dict(self) -> dict[str, Any]:
        """Return the fields in their documented order."""
        return dict(vars(self))


def enumerate_readings(
    rate: Rate, model: ModelFacts, accelerator: Accelerator, stated: Conditions
) -> list[Reading]:
    """List the admissible readings of a rate, each judged.

    Parameters
    ----------
    rate : Rate
        The published figure.
    model : ModelFacts
        The model.
    accelerator : Accelerator
        One device.
    stated : Conditions
        What is known of the conditions.

    Returns
    -------
    list of Reading
        By counting, devices, then precision.
    """
    counts = DEVICE_COUNTS if stated.gpus is None else (stated.gpus,)
    return [
        judge(rate, model, accelerator, stated, precision, counting, n)
        for counting in countings(rate, stated)
        for n in counts
        for precision in precisions(model, accelerator, stated)
    ]


def precisions(
    model: ModelFacts, accelerator: Accelerator, stated: Conditions
) -> Sequence[Precision]:
    """Return the formats to try; one nameless format when the claim states the bytes it reads."""
    if model.weights_read is not None:
        # The claim gives the bytes, so only the arithmetic is open: use the fastest.
        return (Precision("as stated", 0.0, tuple(accelerator.peaks)),)
    return admissible(accelerator, stated.precision)


def countings(rate: Rate, stated: Conditions) -> tuple[str, ...]:
    """Return what the rate may have counted.

    Raises
    ------
    InputError
        When the stated counting does not suit the unit of the rate.
    """
    fitting = {"req/s": ("requests",), "tok/s": ("output", "total"), "s": ("output",)}[rate.unit]
    if stated.counting == "any":
        return fitting
    if stated.counting not in fitting:
        raise InputError(
            f"counting {stated.counting} does not suit a rate in {rate.unit}",
            fix=f"use {' or '.join(fitting)}",
        )
    return (stated.counting,)


@dataclass(frozen=True)
class _Shape:
    """Lengths used where some are unstated, each at its most generous."""

    inputs: float
    outputs: float
    kv_counts: bool


def _shape(counting: str, inputs: float | None, outputs: float | None) -> _Shape:
    if counting == "output":
        return _Shape(inputs or 0.0, outputs or _UNBOUNDED, outputs is not None)
    if counting == "total":
        return _Shape(_UNBOUNDED if inputs is None else inputs, outputs or 1.0, inputs is not None)
    return _Shape(inputs or 0.0, outputs or 1.0, True)


def judge(
    rate: Rate,
    model: ModelFacts,
    accelerator: Accelerator,
    stated: Conditions,
    precision: Precision,
    counting: str,
    gpus: int,
) -> Reading:
    """Hold one reading against its ceiling.

    Parameters
    ----------
    rate : Rate
        The published figure.
    model, accelerator, stated
        As in :func:`enumerate_readings`.
    precision : Precision
        Format of weights and activations.
    counting : str
        ``output``, ``total`` or ``requests``.
    gpus : int
        Devices of the deployment.

    Returns
    -------
    Reading
        The reading, judged.

    Notes
    -----
    The least time per output token leaves out the KV of other sequences: the batch a mean TPOT was
    measured at is below the concurrency by an unknown amount.
    """
    memory, bandwidth = gpus * accelerator.memory, gpus * accelerator.bandwidth
    peak = precision.flops(accelerator)
    flops = math.inf if peak is None else gpus * peak
    shape = _shape(counting, stated.inputs, stated.outputs)
    if rate.metric == "ttft":
        shape = _Shape(1.0 if stated.inputs is None else stated.inputs, 1.0, True)
    elif rate.metric == "tpot":
        shape = _Shape(stated.inputs or 0.0, stated.outputs or 1.0, True)
    bits = stated.kv_bits or _LEAST_KV_BITS
    kv = (model.kv_per_token or 0.0) * bits / 16 if shape.kv_counts else 0.0
    if model.weights_read is not None:
        held = read = model.weights_read
    else:
        held = roofline.weight_bytes(model.parameters or 0.0, precision.weight_bits)
        read = model.multiplied * precision.weight_bits / 8
    request = roofline.work(
        model.multiplied,
        inputs=shape.inputs,
        outputs=shape.outputs,
        head=model.head,
        attention=model.attention if shape.kv_counts else 0.0,
        cached=stated.cached,
        tokens_per_step=stated.tokens_per_step,
    )
    room = roofline.fit(
        memory,
        held,
        kv_per_token=kv,
        longest=shape.inputs + shape.outputs,
        mean=request.context,
        overhead=gpus * stated.overhead,
    )
    wanted = math.inf if stated.concurrency is None else stated.concurrency
    # A model that does not fit is still shown its ceiling, at the batch that was asked for.
    batch = min(wanted, room.sequences) if room.fits else wanted
    if rate.metric == "throughput":
        most = roofline.mixed_ceiling(
            request,
            flops=flops,
            bandwidth=bandwidth,
            weights=read,
            batch=batch,
            kv_per_token=kv,
        )
        tokens = {"output": shape.outputs, "total": shape.inputs + shape.outputs, "requests": 1.0}
        ceiling = most.requests * tokens[counting] / (gpus if rate.per_gpu else 1)
        limited_by, ratio = most.limited_by, rate.value / ceiling
    else:
        batch = 1.0
        traffic = read / bandwidth
        if rate.metric == "ttft":
            ceiling = roofline.ttft_floor(request, flops=flops, bandwidth=bandwidth, weights=read)
        else:
            traffic = roofline.step_floor(
                bandwidth, read, batch=1, kv_per_token=kv, context=request.context
            )
            traffic /= stated.tokens_per_step
            ceiling = max(traffic, 2 * model.multiplied / flops)
        limited_by = "bandwidth" if ceiling <= traffic else "compute"
        ratio = ceiling / rate.value
    return Reading(
        precision=precision.name,
        counting=counting,
        gpus=gpus,
        batch=None if math.isinf(batch) else batch,
        fits=room.fits,
        ceiling=None if math.isinf(ceiling) else ceiling,
        limited_by=limited_by if room.fits else "memory",
        ratio=ratio,
        possible=room.fits and ratio <= 1 + ROUNDING,
    )
