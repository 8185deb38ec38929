"""Roofline: what memory, bandwidth and arithmetic allow, as upper bounds on any rate.

Owns the closed forms: fit, the decode bandwidth ceiling, the compute ceiling, and the ceiling of a
mix of prefill and decode. Does not own models, devices, or what a claim may have meant
(``readings``). Arguments are plain numbers in base units, so the same formulas can be written in
another language and compared.

Every ceiling is an upper bound. It may say *impossible*; it never says *true*. Each choice that
physics leaves open is made in favour of the claim:

- ``n`` devices count as one with ``n`` times the memory, bandwidth and arithmetic. No way to split
  a model beats that: tensor parallel reaches it with free communication, pipeline and data parallel
  stay below it in a batch that does not fill every stage or replica.
- Bandwidth and arithmetic overlap perfectly, so a step takes the longer of the two, not the sum.
- Prefill reads the weights for nothing (it rides along with decode steps), activations and the
  writing of KV cost nothing, nothing is reserved unless stated.
- A mixture of experts reads only its active weights in a step, as if all sequences chose alike.
- Attention arithmetic counts only when its coefficient is given; windows and linear layers make it
  depend on the model, so the default is to leave it out.

Notes
-----
Roofline: Williams, Waterman, Patterson (2009), doi:10.1145/1498765.1498785. Two operations per
parameter and token: Kaplan et al. (2020), arXiv:2001.08361, section 2.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from assay.errors import InputError

__all__ = [
    "Ceiling",
    "Fit",
    "Work",
    "attention_flops",
    "compute_ceiling",
    "decode_bandwidth_ceiling",
    "devices_to_hold",
    "fit",
    "mixed_ceiling",
    "output_share",
    "ridge_point",
    "step_floor",
    "touched_weights",
    "ttft_floor",
    "utilisation",
    "weight_bytes",
    "work",
]


def weight_bytes(parameters: float, bits: float) -> float:
    """Return the bytes of the weights.

    Parameters
    ----------
    parameters : float
        Number of parameters [1].
    bits : float
        Bits per parameter, block scales included where the format has them [1].

    Returns
    -------
    float
        Weights [B].

    Examples
    --------
    >>> weight_bytes(70.55e9, 16)
    141100000000.0
    """
    _positive("parameters", parameters)
    _positive("bits", bits)
    return parameters * bits / 8


def touched_weights(
    total: float, active: float, batch: float, per_token: float = 1.0
) -> tuple[float, float]:
    """Return the least and the most weights that one decode step reads.

    Parameters
    ----------
    total, active : float
        All weights, and those one token uses [B] (or both in parameters).
    batch : float
        Sequences in the step [1].
    per_token : float
        Tokens each sequence carries in the step, above 1 under speculation [1].

    Returns
    -------
    tuple of (float, float)
        Least: every token chooses the same experts. Most: no two share one, up to all.

    Examples
    --------
    >>> touched_weights(60e9, 6e9, 32)
    (6000000000.0, 60000000000.0)
    """
    return float(active), min(float(total), active * batch * per_token)


@dataclass(frozen=True)
class Fit:
    """Whether a model and its KV cache fit.

    Parameters
    ----------
    fits : bool
        Weights, overhead and one whole sequence fit.
    free : float
        Memory left for KV after weights and overhead, negative when they do not fit [B].
    sequences : float
        Sequences of the mean length that fit at once; infinite when KV costs nothing [1].
    """

    fits: bool
    free: float
    sequences: float


def fit(
    memory: float,
    weights: float,
    *,
    kv_per_token: float,
    longest: float,
    mean: float,
    overhead: float,
) -> Fit:
    """Decide whether weights, overhead and KV fit in memory.

    Parameters
    ----------
    memory : float
        Memory of all devices together [B].
    weights : float
        All weights, active or not [B].
    kv_per_token : float
        KV cache of one token over all layers; 0 when unknown, which is generous [B/tok].
    longest : float
        Tokens of one whole sequence, input and output [tok].
    mean : float
        Tokens a sequence holds on average while it runs [tok].
    overhead : float
        What the engine, driver and activations keep, as stated by the caller; 0 is generous [B].

    Returns
    -------
    Fit
        Verdict, free memory and the number of sequences.

    Examples
    --------
    >>> fit(85.9e9, 141.1e9, kv_per_token=327680, longest=640, mean=576, overhead=0).fits
    False
    """
    free = memory - weights - overhead
    fits = free >= kv_per_token * longest and free >= 0
    per_sequence = kv_per_token * mean
    if not fits:
        return Fit(False, free, 0.0)
    if per_sequence <= 0:
        return Fit(True, free, math.inf)
    return Fit(True, free, max(1.0, float(math.floor(free / per_sequence))))


def devices_to_hold(memory: float, weights: float, kv: float = 0.0, overhead: float = 0.0) -> int:
    """Return the least number of devices whose memory holds weights and KV.

    Parameters
    ----------
    memory : float
        Memory of one device [B].
    weights, kv, overhead : float
        What must be held; ``overhead`` is per device [B].

    Examples
    --------
    >>> devices_to_hold(85.9e9, 141.1e9)
    2
    """
    usable = memory - overhead
    _positive("memory left after the overhead", usable)
    return max(1, math.ceil((weights + kv) / usable))


def decode_bandwidth_ceiling(
    bandwidth: float,
    weights: float,
    *,
    batch: float,
    kv_per_token: float = 0.0,
    context: float = 0.0,
    tokens_per_step: float = 1.0,
) -> float:
    """Return the most tokens a second that memory bandwidth lets decode make.

    A step reads the weights once for the whole batch, and every sequence's KV.

    Parameters
    ----------
    bandwidth : float
        Memory bandwidth of all devices [B/s].
    weights : float
        Weights read in a step [B].
    batch : float
        Sequences decoded together [1].
    kv_per_token : float
        KV cache of one token [B/tok].
    context : float
        Mean tokens in a sequence's cache [tok].
    tokens_per_step : float
        Tokens each sequence gains in a step, above 1 under speculation [tok].

    Returns
    -------
    float
        Output tokens [tok/s].

    Notes
    -----
    ``batch * k * bandwidth / (weights + batch * kv_per_token * context)``.

    Examples
    --------
    >>> round(decode_bandwidth_ceiling(1008e9, 4.68e9, batch=1))
    215
    """
    return (
        batch
        * tokens_per_step
        / step_floor(bandwidth, weights, batch=batch, kv_per_token=kv_per_token, context=context)
    )


def step_floor(
    bandwidth: float,
    weights: float,
    *,
    batch: float,
    kv_per_token: float = 0.0,
    context: float = 0.0,
) -> float:
    """Return the least time of one decode step, which is the least TPOT without speculation.

    Parameters are those of :func:`decode_bandwidth_ceiling`.

    Returns
    -------
    float
        Time of a step [s].

    Examples
    --------
    >>> round(step_floor(3.35e12, 70.6e9, batch=1) * 1000, 1)
    21.1
    """
    _positive("bandwidth", bandwidth)
    return (weights + batch * kv_per_token * context) / bandwidth


def compute_ceiling(flops: float, parameters: float, attention: float = 0.0) -> float:
    """Return the most tokens a second, input and output together, that arithmetic allows.

    Parameters
    ----------
    flops : float
        Dense peak of all devices in the number format of the activations [FLOP/s].
    parameters : float
        Parameters a token is multiplied with; the active ones of a mixture of experts [1].
    attention : float
        Attention arithmetic of a token, see :func:`attention_flops` [FLOP/tok].

    Returns
    -------
    float
        Tokens processed [tok/s], whatever the batch.

    Notes
    -----
    ``flops / (2 * parameters + attention)``.

    Examples
    --------
    A model of 70.55e9 parameters on one A100 in BF16:

    >>> round(compute_ceiling(312e12, 70.55e9))
    2211
    """
    _positive("parameters", parameters)
    return flops / (2 * parameters + attention)


def attention_flops(layers: int, heads: int, head_dim: int) -> float:
    """Return the attention arithmetic of one token per token of its context.

    Scores and weighted values are two multiply-adds per head element and layer. A causal prefill of
    ``S`` tokens sums to ``S**2 / 2`` such pairs.

    Parameters
    ----------
    layers, heads, head_dim : int
        Layers that attend to the whole context, query heads and their width.

    Returns
    -------
    float
        ``4 * layers * heads * head_dim`` [FLOP/tok/tok].

    Examples
    --------
    Llama 2 70B:

    >>> attention_flops(80, 64, 128)
    2621440.0
    """
    return 4.0 * layers * heads * head_dim


def ridge_point(flops: float, bandwidth: float) -> float:
    """Return the arithmetic intensity at which both roofs meet.

    Examples
    --------
    H200 against H100, same arithmetic:

    >>> round(ridge_point(989e12, 4.8e12), 1), round(ridge_point(989e12, 3.35e12), 1)
    (206.0, 295.2)
    """
    _positive("bandwidth", bandwidth)
    return flops / bandwidth


def utilisation(achieved: float, peak: float) -> float:
    """Return achieved over peak: MFU of arithmetic, MBU of bandwidth.

    Examples
    --------
    9,600 tok/s at 0.05 TFLOP a token on an H100 SXM, dense and sparse peak:

    >>> round(utilisation(9600 * 0.05e12, 989.5e12), 3)
    0.485
    >>> round(utilisation(9600 * 0.05e12, 1979e12), 3)
    0.243
    """
    _positive("peak", peak)
    return achieved / peak


def output_share(total: float, inputs: float, outputs: float) -> float:
    """Return the generated part of a rate that counts input and output tokens.

    Parameters
    ----------
    total : float
        Input and output tokens together [tok/s].
    inputs, outputs : float
        Mean tokens of a request [tok].

    Examples
    --------
    >>> output_share(1000, 1024, 1024)
    500.0
    """
    _positive("tokens of a request", inputs + outputs)
    return total * outputs / (inputs + outputs)


@dataclass(frozen=True)
class Work:
    """What one request costs at least.

    Parameters
    ----------
    prefill_flops, decode_flops : float
        Arithmetic of the input, and of the output after the first token [FLOP].
    steps : float
        Decode steps after the first token [1].
    context : float
        Mean tokens in the cache during decode [tok].
    """

    prefill_flops: float
    decode_flops: float
    steps: float
    context: float


def work(
    parameters: float,
    *,
    inputs: float,
    outputs: float,
    head: float = 0.0,
    attention: float = 0.0,
    cached: float = 0.0,
    tokens_per_step: float = 1.0,
) -> Work:
    """Return the least work of one request.

    The pass over the input yields the first output token, so ``outputs - 1`` remain.

    Parameters
    ----------
    parameters : float
        Parameters a token is multiplied with, the output head included [1].
    inputs, outputs : float
        Tokens of the request [tok]; ``outputs`` is at least 1.
    head : float
        Parameters of the output head, applied to the last input token only; 0 when unknown [1].
    attention : float
        Arithmetic per token and token of context, :func:`attention_flops`; 0 leaves it out.
    cached : float
        Share of the input served from a prefix cache, 0 to 1. It costs no arithmetic, and its KV,
        being shared, no bandwidth or memory.
    tokens_per_step : float
        Tokens gained in a decode step [tok].

    Returns
    -------
    Work
        Arithmetic, steps and mean context.

    Examples
    --------
    >>> w = work(70e9, inputs=512, outputs=128)
    >>> w.steps, w.context
    (127.0, 576.0)
    """
    fresh = inputs * (1 - cached)
    later = max(0.0, outputs - 1)
    pairs = (inputs * inputs - (inputs - fresh) ** 2) / 2
    prefill = 2 * (parameters - head) * fresh + 2 * head + attention * pairs
    decode = 2 * parameters * later + attention * later * (inputs + outputs / 2)
    return Work(prefill, decode, later / tokens_per_step, fresh + outputs / 2)


@dataclass(frozen=True)
class Ceiling:
    """The most requests a second, and what sets the limit.

    Parameters
    ----------
    requests : float
        Upper bound [req/s].
    limited_by : str
        ``bandwidth`` or ``compute``.
    """

    requests: float
    limited_by: str


def mixed_ceiling(
    request: Work,
    *,
    flops: float,
    bandwidth: float,
    weights: float,
    batch: float,
    kv_per_token: float = 0.0,
) -> Ceiling:
    """Return the most requests a second for a given mix of prefill and decode.

    Three bounds hold at once and the smallest counts: arithmetic, bandwidth, and the fact that at
    most ``batch`` requests are in flight, each of which needs its own prefill and decode in turn.

    Parameters
    ----------
    request : Work
        Cost of one request.
    flops : float
        Dense peak of all devices; infinite when unknown [FLOP/s].
    bandwidth : float
        Memory bandwidth of all devices [B/s].
    weights : float
        Weights read in a decode step [B].
    batch : float
        Requests in flight; may be infinite [1].
    kv_per_token : float
        KV cache of one token [B/tok].

    Returns
    -------
    Ceiling
        Requests a second and the limit.

    Notes
    -----
    With prefill and decode arithmetic ``Fp``, ``Fd``, ``s`` steps, mean context ``c``, weights
    ``W``, KV per token ``k``, batch ``b``, peak ``F`` and bandwidth ``B``::

        compute    F / (Fp + Fd)
        bandwidth  B / (s * (W / b + k * c))
        in flight  b / (max(Fp / F, W / B) + max(Fd / F, s * (W + k * c) / B))

    Examples
    --------
    Llama 2 70B in INT4 on one A100, 512 in, 128 out, 32 at once: the weights alone allow 1,850
    output tokens a second, prefill in BF16 far fewer.

    >>> w = work(70.55e9, inputs=512, outputs=128)
    >>> c = mixed_ceiling(w, flops=312e12, bandwidth=2039e9, weights=35.275e9, batch=32)
    >>> round(c.requests * 128), c.limited_by
    (443, 'compute')
    """
    _positive("batch", batch)
    _positive("bandwidth", bandwidth)
    own = request.context * kv_per_token
    compute = (request.prefill_flops + request.decode_flops) / flops
    traffic = request.steps * (weights / batch + own) / bandwidth
    prefill = max(request.prefill_flops / flops, weights / bandwidth)
    decode_compute = request.decode_flops / flops
    decode_traffic = request.steps * (weights + own) / bandwidth
    turn = (prefill + max(decode_compute, decode_traffic)) / batch
    longest = max(compute, traffic, turn)
    if longest <= 0:
        return Ceiling(math.inf, "compute")
    if longest == compute:
        return Ceiling(1 / longest, "compute")
    if longest == traffic or max(decode_compute, decode_traffic) >= prefill:
        return Ceiling(1 / longest, "bandwidth")
    by_compute = request.prefill_flops / flops > weights / bandwidth
    return Ceiling(1 / longest, "compute" if by_compute else "bandwidth")


def ttft_floor(request: Work, *, flops: float, bandwidth: float, weights: float) -> float:
    """Return the least time to first token of a request that waits for nobody.

    Parameters are those of :func:`mixed_ceiling`.

    Returns
    -------
    float
        The longer of its prefill arithmetic and one pass over the weights [s].

    Examples
    --------
    >>> w = work(70.55e9, inputs=512, outputs=1)
    >>> round(ttft_floor(w, flops=312e12, bandwidth=2039e9, weights=141.1e9), 3)
    0.232
    """
    _positive("bandwidth", bandwidth)
    return max(request.prefill_flops / flops, weights / bandwidth)


def _positive(what: str, value: float) -> None:
    if not value > 0:
        raise InputError(f"{what} must be above 0, not {value:g}", fix="check the numbers given")
