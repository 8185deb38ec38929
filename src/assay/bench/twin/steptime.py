"""Step time: how long one engine step takes, given what is in it.

Owns three models of it: `Roofline` from a device's data sheet and stated shares of its peaks,
`Fitted` from measured steps, `Table` by interpolation. Pure: no clock and no engine. Does not own
what is scheduled, nor transfers between memories.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from assay.errors import InputError
from assay.ledger import facts, records
from assay.physics import conditions, kv, roofline, units

__all__ = [
    "SET_BY",
    "SHARE_OF_BANDWIDTH",
    "SHARE_OF_PEAK",
    "Fitted",
    "Roofline",
    "StepTime",
    "Table",
    "Work",
    "experts_chosen",
]

#: Share of the dense peak that prefill reaches [1]. An H100 reads 10,000 tokens of Llama 3.1 8B in
#: 260 ms (data/published/measurements.csv, vllm-offload-post-h100-8b-ttft-10000), which is 0.65.
SHARE_OF_PEAK = 0.65
#: Share of the memory bandwidth that decode reaches [1]: 15.18 ms between tokens for eight
#: sequences of about 21,000 tokens (fp8-kv-post-h100-8b-bf16-itl) is 0.75.
SHARE_OF_BANDWIDTH = 0.75
#: The two published rows, by id; what their sources print cannot test a prediction.
SET_BY = ("vllm-offload-post-h100-8b-ttft-10000", "fp8-kv-post-h100-8b-bf16-itl")
#: What a step costs however little is in it: launches, sampling, the scheduler itself [s]. A
#: choice, not a measurement; half or twice of it moves a decode step of 8B on an H100 by a third.
_FIXED = 2e-3
_ROUNDS = 3  # after which the weights of a fit no longer move
_LINK_SHARE = 0.5  # of the printed interconnect: it sums both directions
#: Bits of a weight -> the number formats whose peak counts, the one vLLM takes first. They
#: accumulate in 32 bits; a peak printed for accumulating in 16 is of no use here.
_FORMATS = {16: ("bf16", "fp16"), 8: ("fp8",)}


@dataclass(slots=True)
class Work:
    """What one step does, on the whole deployment.

    Parameters
    ----------
    tokens : int
        Tokens computed [tok].
    sequences : int
        Sequences with at least one of them.
    context : int
        Tokens whose keys and values are read [tok].
    pairs : float
        Token pairs that attention looks at: each computed token with what is before it [tok*tok].
    decoded : int
        The part of ``context`` that sequences read which compute a single token [tok].
    """

    tokens: int = 0
    sequences: int = 0
    context: int = 0
    pairs: float = 0.0
    decoded: int = 0


class StepTime(Protocol):
    """Anything that gives a step's duration."""

    def __call__(self, work: Work) -> float:
        """Return the duration of a step [s]."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """The longer of arithmetic and memory traffic, plus what every step costs.

    Parameters
    ----------
    weights : float
        Weights on one device, all experts included [B].
    parameters : float
        Parameters a token is multiplied with on one device, output head left out [1].
    head : float
        Parameters of the output head on one device, used once a sequence [1].
    kv_per_token : float
        KV cache of one token on one device [B/tok].
    attention : float
        Arithmetic of one token pair on one device [FLOP].
    flops, bandwidth : float
        Peak and memory bandwidth of one device [FLOP/s], [B/s].
    share_of_peak, share_of_bandwidth : float
        What is reached of them [1].
    fixed : float
        Added to every step [s].
    exchange : float
        Time the devices exchange partial sums, a token [s/tok].
    experts : float
        Weights of the experts among which a token chooses, on one device [B].
    chosen : float
        Share of these that one token is sent to [1].

    Notes
    -----
    Of ``experts``, a step of n tokens leaves the share (1 - chosen)^n unread: the probability that
    none of n tokens is sent to an expert, when each token chooses evenly and on its own.

    Examples
    --------
    >>> model = Roofline(weights=16e9, parameters=7e9, head=0.5e9, kv_per_token=131072,
    ...                  attention=524288, flops=989e12, bandwidth=3.35e12)
    >>> model(Work(tokens=1, sequences=1, context=100, pairs=100)) < 0.01
    True
    """

    weights: float
    parameters: float
    head: float
    kv_per_token: float
    attention: float
    flops: float
    bandwidth: float
    share_of_peak: float = SHARE_OF_PEAK
    share_of_bandwidth: float = SHARE_OF_BANDWIDTH
    fixed: float = _FIXED
    exchange: float = 0.0
    experts: float = 0.0
    chosen: float = 1.0

    def __call__(self, work: Work) -> float:
        """Return the duration of a step [s]."""
        arithmetic = 2 * (self.parameters * work.tokens + self.head * work.sequences)
        arithmetic += self.attention * work.pairs
        traffic = self.weights + self.kv_per_token * work.context
        if self.experts:
            traffic -= self.experts * (1 - self.chosen) ** work.tokens
        return (
            self.fixed
            + self.exchange * work.tokens
            + max(
                arithmetic / (self.flops * self.share_of_peak),
                traffic / (self.bandwidth * self.share_of_bandwidth),
            )
        )

    @classmethod
    def of(
        cls,
        model: records.Model,
        card: records.Hardware,
        *,
        tp: int = 1,
        bits: int = 16,
        kv_bits: int = 16,
        share_of_peak: float = SHARE_OF_PEAK,
        share_of_bandwidth: float = SHARE_OF_BANDWIDTH,
        fixed: float = _FIXED,
    ) -> Roofline:
        """Return the model of a step for a model on a card.

        Parameters
        ----------
        model : Model
            From ``data/models``.
        card : Hardware
            From ``data/hardware``.
        tp : int
            Cards that share every layer [GPU].
        bits : int
            Bits of a weight and of what it is multiplied with: 16, or 8 for FP8.
        kv_bits : int
            Bits of a number in the cache.
        share_of_peak, share_of_bandwidth : float
            What is reached of the card's figures [1].
        fixed : float
            Added to every step [s].

        Raises
        ------
        InputError
            When the card states no peak of that format, or the attention or the experts of the
            model are not known.

        Notes
        -----
        Every layer is taken to attend to the whole context. Exchange between cards: two sums a
        layer, as a ring, over half the printed interconnect.
        Of a mixture of experts only the reading of weights is modelled. How far both kinds of model
        are from published runs: ``data/twin/published.csv``.
        """
        limits, device = facts.limits(model), facts.device(card)
        formats = _FORMATS.get(bits, ())
        peak = next((device.peaks[name] for name in formats if name in device.peaks), None)
        if peak is None or limits.parameters is None:
            raise InputError(f"the card states no {bits}-bit peak", where=device.title)
        layout = kv.report(model.config).layout
        heads = model.config.get("num_attention_heads")
        if layout is None or limits.kv_per_token is None or not isinstance(heads, int):
            raise InputError("the attention of the model is not known", where=model.title)
        layers, width = len(layout.layers), float(str(model.config["hidden_size"]))
        pair = roofline.attention_flops(layers, heads, layout.head_dim or int(width) // heads)
        apart, chosen = _experts(model, limits)
        multiplied = limits.active or limits.parameters - limits.embedding
        return cls(
            weights=roofline.weight_bytes(limits.parameters, bits) / tp,
            parameters=(multiplied - limits.head) / tp,
            head=limits.head / tp,
            kv_per_token=limits.kv_per_token * kv_bits / 16 / tp,
            attention=pair / tp,
            flops=peak,
            bandwidth=device.bandwidth,
            share_of_peak=share_of_peak,
            share_of_bandwidth=share_of_bandwidth,
            fixed=fixed,
            exchange=_exchange(card, layers, width, tp),
            experts=apart * bits / 8 / tp,
            chosen=chosen,
        )


def experts_chosen(config: Mapping[str, object]) -> tuple[int, int]:
    """Return how many experts a token is sent to, and among how many it chooses; 1, 1 without any.

    Parameters
    ----------
    config : Mapping
        The model's ``config.json``.

    Raises
    ------
    InputError
        When the configuration names one and not the other.

    Examples
    --------
    >>> experts_chosen({"num_experts_per_tok": 8, "num_experts": 128})
    (8, 128)
    """
    among = [
        config[n] for n in ("num_experts", "n_routed_experts", "num_local_experts") if config.get(n)
    ]
    each = config.get("num_experts_per_tok")
    if not among and not each:
        return 1, 1
    if not among or not isinstance(among[0], int) or not isinstance(each, int):
        raise InputError("the configuration does not say how many experts a token is sent to")
    return each, among[0]


def _experts(model: records.Model, limits: conditions.ModelFacts) -> tuple[float, float]:
    """Return the parameters of the experts among which tokens choose, and the share of a token."""
    if limits.parameters is None or not limits.active:
        return 0.0, 1.0
    each, among = experts_chosen(model.config)
    chosen = each / among
    # All parameters less those a token uses are the experts it is not sent to, and an input table
    # of its own, which is looked up.
    table = 0 if model.config.get("tie_word_embeddings") is not False else limits.head
    return (limits.parameters - limits.active - table) / (1 - chosen), chosen


def _exchange(card: records.Hardware, layers: int, width: float, tp: int) -> float:
    if tp == 1:
        return 0.0
    stated = [units.to_base(f.value, f.unit)[0] for f in card.facts if f.quantity == "interconnect"]
    if not stated:
        raise InputError("the card states no interconnect", where=card.title, fix="use one card")
    # Two all-reduces a layer of `width` 16-bit numbers; a ring moves 2 (tp - 1) / tp of them.
    moved = 2 * layers * 2 * width * 2 * (tp - 1) / tp
    return moved / (max(stated) * _LINK_SHARE)


@dataclass(frozen=True, slots=True)
class Fitted:
    """A sum of costs, each not below 0, fitted to measured steps.

    Parameters
    ----------
    fixed : float
        Of every step [s].
    per_token, per_sequence, per_context, per_pair : float
        Of a token, a sequence, a token read to decode, and a pair in a prompt [s].

    Notes
    -----
    Attention reads a prompt's keys once for many queries and a decoding sequence's for one, so the
    same pair costs several times as much in a decode step. The two are counted apart.
    """

    fixed: float
    per_token: float = 0.0
    per_sequence: float = 0.0
    per_context: float = 0.0
    per_pair: float = 0.0

    def __call__(self, work: Work) -> float:
        """Return the duration of a step [s]."""
        return (
            self.fixed
            + self.per_token * work.tokens
            + self.per_sequence * work.sequences
            + self.per_context * work.decoded
            + self.per_pair * (work.pairs - work.decoded)
        )

    @classmethod
    def to(cls, steps: Sequence[tuple[Work, float]]) -> Fitted:
        """Fit to measured steps.

        Parameters
        ----------
        steps : sequence of (Work, float)
            What was in each step and how long it took [s].

        Returns
        -------
        Fitted
            Least squares of the error relative to the fit, with no cost below 0. Steps more than
            four times the first fit, or less than a quarter, are left out: a machine that does
            other work has such steps.

        Raises
        ------
        InputError
            When there are fewer steps than costs.

        Examples
        --------
        >>> steps = [(Work(tokens=n, sequences=1), 0.01 + 0.001 * n) for n in range(1, 20)]
        >>> round(Fitted.to(steps)(Work(tokens=100, sequences=1)), 4)
        0.11
        """
        if len(steps) < 5:
            raise InputError("a fit of five costs needs at least five steps", fix="measure more")
        seconds = [t for _, t in steps]
        first = _least_squares(steps, seconds)
        kept = [(w, t) for w, t in steps if 0.25 < t / max(first(w), 1e-12) < 4]
        found = _least_squares(kept, [first(w) for w, _ in kept]) if len(kept) >= 5 else first
        for _ in range(_ROUNDS if len(kept) >= 5 else 0):
            found = _least_squares(kept, [found(w) for w, _ in kept])
        return found


def _least_squares(steps: Sequence[tuple[Work, float]], relative_to: Sequence[float]) -> Fitted:
    """Fit with each error divided by a time.

    Divided by the measured times, slow steps would count little and the fit would lie below their
    mean, which is what adds up to a run. Divided by the fit itself it does not.
    """
    import numpy as np
    from scipy.optimize import nnls

    columns = np.array(
        [[1.0, w.tokens, w.sequences, w.decoded, w.pairs - w.decoded] for w, _ in steps]
    )
    seconds = np.array([t for _, t in steps])
    weights = np.maximum(np.array(relative_to), 1e-12)
    # Columns of like size, so that the solver's tolerance means the same for each.
    scale = np.maximum(columns.max(axis=0), 1e-300)
    found, _ = nnls(columns / scale / weights[:, None], seconds / weights)
    return Fitted(*(float(x) for x in found / scale))


@dataclass(frozen=True, slots=True)
class Table:
    """Durations at given numbers of tokens, straight lines between; context is left out.

    Parameters
    ----------
    tokens : tuple of float
        Ascending [tok].
    seconds : tuple of float
        Duration at each [s].

    Examples
    --------
    >>> round(Table((1, 101), (0.01, 0.11))(Work(tokens=51)), 9)
    0.06
    """

    tokens: tuple[float, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.seconds) or len(self.tokens) < 2:
            raise InputError("a table of step times needs two or more pairs")
        if list(self.tokens) != sorted(set(self.tokens)) or min(self.seconds) < 0:
            raise InputError("the tokens must ascend, and no time may be below 0")

    def __call__(self, work: Work) -> float:
        """Return the duration of a step [s]; beyond the ends the last line goes on."""
        right = min(max(bisect.bisect_left(self.tokens, work.tokens), 1), len(self.tokens) - 1)
        x0, x1 = self.tokens[right - 1], self.tokens[right]
        y0, y1 = self.seconds[right - 1], self.seconds[right]
        found = y0 + (y1 - y0) * (work.tokens - x0) / (x1 - x0)
        return found if math.isfinite(found) and found > 0 else 0.0
