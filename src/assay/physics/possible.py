"""Possible: the answer to "is this number possible?", from all its readings.

Owns the status, what would have to be true instead, the warnings, and the list of what was not
stated. Does not own the readings (``readings``), the formulas (``roofline``) or the parsing of a
claim (``rate``).

``impossible`` is a proof under the stated conditions; ``possible`` is only the absence of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from assay.errors import InputError
from assay.physics import roofline, units
from assay.physics.accelerator import Accelerator
from assay.physics.conditions import Conditions, ModelFacts
from assay.physics.precision import Precision
from assay.physics.rate import Rate
from assay.physics.readings import (
    ROUNDING,
    Reading,
    countings,
    enumerate_readings,
    judge,
    precisions,
)

__all__ = ["SUSPECT_SHARE", "block_arithmetic", "mfu_readings", "possible"]

# Below this share of its ceiling a rate is possible but odd: well-run engines publish 30 to 90 %.
SUSPECT_SHARE = 0.15

# How far the search for "what would make it possible" goes.
_MOST_DEVICES, _MOST_BATCH, _MOST_TOKENS_PER_STEP = 4096, 1 << 20, 32


def possible(
    rate: Rate,
    model: ModelFacts | None,
    accelerator: Accelerator,
    stated: Conditions,
    *,
    working_set: float | None = None,
) -> dict[str, Any]:
    """Judge a rate under every admissible reading.

    Parameters
    ----------
    rate : Rate
        The published figure.
    model : ModelFacts or None
        The model; None for a copy bandwidth or an MFU, which need none.
    accelerator : Accelerator
        One device.
    stated : Conditions
        What is known of the conditions.
    working_set : float, optional
        Bytes a copy benchmark moved, for the remark on caches [B].

    Returns
    -------
    dict
        ``status`` (``impossible``: no reading allows it; ``possible``: every one does;
        ``depends``), ``readings``, ``needs``, ``warnings`` and ``unstated``.

    Raises
    ------
    InputError
        When the counting does not suit the unit, or a model is needed and missing.
    """
    if rate.metric in ("bandwidth", "mfu"):
        return _judge_device(rate, accelerator, stated.gpus or 1, working_set)
    if model is None:
        raise InputError("a rate of tokens or requests needs a model", fix="state the model")
    judged = enumerate_readings(rate, model, accelerator, stated)
    return {
        "status": _status(judged),
        "readings": [r.as_dict() for r in judged],
        "needs": _needs(rate, model, accelerator, stated, judged),
        "warnings": _warnings(rate, model, accelerator, stated, judged),
        "unstated": _unstated(rate, model, stated),
    }


def _status(judged: Sequence[Reading]) -> str:
    if not any(r.possible for r in judged):
        return "impossible"
    return "possible" if all(r.possible for r in judged) else "depends"


def _least(holds: Callable[..., bool], most: int) -> int | None:
    """Return the least whole number at which a monotone condition holds, None above ``most``."""
    low, high = 0, 1
    while not holds(high):
        if high >= most:
            return None
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _needs(
    rate: Rate,
    model: ModelFacts,
    accelerator: Accelerator,
    stated: Conditions,
    judged: Sequence[Reading],
) -> dict[str, Any]:
    """Find the least that would make the rate possible, one condition changed at a time."""

    def holds(conditions: Conditions, precision: Precision, counting: str, gpus: int) -> bool:
        return judge(rate, model, accelerator, conditions, precision, counting, gpus).possible

    rows: list[dict[str, Any]] = []
    counted = countings(rate, stated)
    for counting in counted:
        for precision in precisions(model, accelerator, stated):
            devices = _least(
                lambda n, p=precision, c=counting: holds(stated, p, c, n), _MOST_DEVICES
            )
            at = stated.gpus or devices
            batch = None
            if rate.metric == "throughput" and at is not None:
                batch = _least(
                    lambda b, p=precision, c=counting, n=at: holds(
                        replace(stated, concurrency=float(b)), p, c, n
                    ),
                    _MOST_BATCH,
                )
            rows.append(
                {
                    "counting": counting,
                    "precision": precision.name,
                    "devices": devices,
                    "batch": batch,
                }
            )

    def least(key: str, *wanted: str) -> int | None:
        return min((r[key] for r in rows if r["counting"] in wanted and r[key]), default=None)

    free = enumerate_readings(
        rate, model, accelerator, replace(stated, counting="any", precision="any")
    )
    return {
        "devices": least("devices", *counted),
        "devices_by_counting": {c: least("devices", c) for c in counted},
        "batch": least("batch", *counted),
        "counting": sorted({r.counting for r in free if r.possible and r.counting}),
        "precision": list(dict.fromkeys(r.precision for r in free if r.possible)),
        "tokens_per_step": _speculation(rate, model, accelerator, stated, judged),
        "by_reading": rows,
    }


def _speculation(
    rate: Rate,
    model: ModelFacts,
    accelerator: Accelerator,
    stated: Conditions,
    judged: Sequence[Reading],
) -> float | None:
    """Return the least tokens per step that would make an impossible rate possible, if any do."""
    if rate.metric == "ttft" or any(r.possible for r in judged):
        return None

    def holds(tenths: int) -> bool:
        tried = replace(stated, tokens_per_step=stated.tokens_per_step * (1 + tenths / 10))
        return any(r.possible for r in enumerate_readings(rate, model, accelerator, tried))

    tenths = _least(holds, 10 * _MOST_TOKENS_PER_STEP)
    return None if tenths is None else round(stated.tokens_per_step * (1 + tenths / 10), 2)


def _warnings(
    rate: Rate,
    model: ModelFacts,
    accelerator: Accelerator,
    stated: Conditions,
    judged: Sequence[Reading],
) -> list[str]:
    said = []
    # Without a stated batch the ceiling is that of a full card, which says nothing about a rate
    # that may be one stream; so suspicion compares with a single stream.
    compared = judged
    if rate.metric == "throughput" and stated.concurrency is None:
        compared = enumerate_readings(rate, model, accelerator, replace(stated, concurrency=1.0))
    ratios = [r.ratio for r in compared if r.fits]
    if rate.metric != "ttft" and ratios and max(ratios) < SUSPECT_SHARE:
        share = f"{100 * max(ratios):.1f} % of the ceiling"
        one = stated.concurrency in (None, 1)
        likely = "looks like a CPU path" if one else "looks like a card mostly idle"
        said.append(f"suspect: {share} at most in any reading; {likely}")
    if compared is not judged:
        said.extend(_as_one_stream(judged, compared))
    if judged and not any(r.fits for r in judged):
        said.append(
            "the weights do not fit in device memory in any reading; with part of them in host "
            "memory a far lower rate is possible, which is not judged here"
        )
    if rate.metric == "throughput" and not rate.per_gpu and (stated.gpus or 1) > 1:
        each = enumerate_readings(replace(rate, per_gpu=True), model, accelerator, stated)
        whole = {(r.precision, r.counting): r for r in judged}
        beyond = [r for r in each if whole[r.precision, r.counting].possible and not r.possible]
        if beyond:
            worst = max(r.ratio for r in beyond)
            said.append(
                f"read as a rate of the whole deployment; per device it would be up to "
                f"{worst:.1f} times beyond a ceiling"
            )
    if stated.cached == 0 and rate.metric == "throughput" and rate.unit == "tok/s":
        total = [r for r in judged if r.counting == "total" and r.fits]
        if total and not any(r.possible for r in total):
            said.append(
                "input tokens served by a prefix cache cost no arithmetic; state their share if "
                "the load repeats prompts"
            )
    return said


def _as_one_stream(judged: Sequence[Reading], single: Sequence[Reading]) -> list[str]:
    """Say what a rate without a batch would mean if it were a single request at a time."""
    pairs = [(r, s) for r, s in zip(judged, single, strict=True) if r.counting != "total"]
    lost = [s for r, s in pairs if r.possible and not s.possible]
    if not lost:
        return []
    kept = sorted({s.precision for _, s in pairs if s.possible and s.precision})
    counted = " and ".join(sorted({s.counting for s in lost if s.counting}))
    if kept:
        return [f"counting {counted}, one request at a time allows it only in {', '.join(kept)}"]
    return [
        f"counting {counted}, it is impossible for one request at a time in every format; "
        "a batch must be stated"
    ]


def _unstated(rate: Rate, model: ModelFacts, stated: Conditions) -> list[str]:
    """Say what was enumerated or taken at its most generous value."""
    throughput = rate.metric == "throughput"
    lines = (
        (stated.gpus is None, "devices: 1, 2, 4 and 8 tried"),
        (
            stated.precision == "any" and model.weights_read is None,
            "precision: every format of the device tried, down to 4-bit weights",
        ),
        (
            stated.counting == "any" and rate.unit == "tok/s",
            "counting: output tokens and input+output tokens tried",
        ),
        (
            stated.concurrency is None and throughput,
            "concurrency: taken as the most that memory holds",
        ),
        (
            stated.inputs is None,
            "input length: taken as the most generous to each counting",
        ),
        (
            stated.outputs is None and rate.metric != "ttft",
            "output length: taken as the most generous to each counting",
        ),
        (model.kv_per_token is None, "KV cache: unknown for this model, taken as free"),
        (
            stated.kv_bits is None and model.kv_per_token is not None,
            "KV format: taken as 4 bit, the smallest that engines ship",
        ),
        (stated.tokens_per_step == 1, "speculative decoding: none assumed"),
        (stated.cached == 0, "prefix cache: no hits assumed"),
        (stated.overhead == 0, "engine memory: none reserved"),
        (model.attention == 0, "attention arithmetic: left out"),
    )
    return [line for applies, line in lines if applies]


def _judge_device(
    rate: Rate, accelerator: Accelerator, gpus: int, working_set: float | None
) -> dict[str, Any]:
    """Judge a copy bandwidth or an MFU, which need no model."""
    if rate.metric == "mfu":
        ceiling, limited_by = 1.0, "compute"
    else:
        limited_by = "bandwidth"
        ceiling = accelerator.bandwidth * (1 if rate.per_gpu else gpus)
    ratio = rate.value / ceiling
    reading = Reading(
        None, None, gpus, None, True, ceiling, limited_by, ratio, ratio <= 1 + ROUNDING
    )
    said = []
    if rate.metric == "mfu":
        said.append(
            "an MFU against a sparse peak is half of that against the dense one; say which peak"
        )
    elif not reading.possible:
        text = f"{ratio:.1f} times the memory bandwidth"
        if working_set and accelerator.cache and working_set <= accelerator.cache:
            size = units.text(working_set, "B", display="MB")
            cache = units.text(accelerator.cache, "B", display="MiB")
            text += f": {size} fit in the {cache} cache, so it measures the cache"
        else:
            text += ": a cache or the clock was measured, not the memory"
        said.append(text)
    elif ratio < SUSPECT_SHARE:
        said.append(f"suspect: {100 * ratio:.1f} % of the ceiling; too little was copied")
    devices = math.ceil(rate.value / accelerator.bandwidth) if rate.metric == "bandwidth" else None
    return {
        "status": _status([reading]),
        "readings": [reading.as_dict()],
        "needs": {"devices": devices},
        "warnings": said,
        "unstated": [],
    }


def mfu_readings(
    achieved: float, accelerator: Accelerator, *, formats: Sequence[str] = ("bf16",)
) -> list[dict[str, Any]]:
    """Compute MFU against the dense and the sparse peak, so that a claim shows which it used.

    Parameters
    ----------
    achieved : float
        Model arithmetic per second and device [FLOP/s].
    accelerator : Accelerator
        The device.
    formats : sequence of str
        Number formats to try.

    Returns
    -------
    list of dict
        ``format``, ``density``, ``peak`` [FLOP/s], ``mfu`` [1] and ``possible``. The sparse peak
        is twice the dense one (2:4 sparsity) and is no peak of a dense model.
    """
    rows = []
    for name in formats:
        dense = accelerator.math(name)
        if dense is None:
            continue
        for density, peak in (("dense", dense), ("sparse", 2 * dense)):
            share = roofline.utilisation(achieved, peak)
            rows.append(
                {
                    "format": name,
                    "density": density,
                    "peak": peak,
                    "mfu": share,
                    "possible": density == "dense" and share <= 1,
                }
            )
    return rows


def block_arithmetic(total: float, blocks: int, block: float) -> dict[str, float]:
    """Check a size said to be so many blocks.

    Parameters
    ----------
    total : float
        The size claimed [B].
    blocks : int
        Number of blocks claimed.
    block : float
        Size of one [B].

    Returns
    -------
    dict
        ``product`` [B], ``ratio`` of the claim to it, and ``blocks_needed`` for the claimed size.

    Examples
    --------
    >>> block_arithmetic(640e6, 2048, 4096)
    {'product': 8388608.0, 'ratio': 76.2939453125, 'blocks_needed': 156250.0}
    """
    product = float(blocks * block)
    return {
        "product": product,
        "ratio": total / product,
        "blocks_needed": float(math.ceil(total / block)),
    }
