"""Conditions: what is known of a model and of the run behind a published rate.

Owns the two records that readings are enumerated from, and their sanity. Does not own how a model
is read from a configuration, or what an unstated condition is taken to be (``readings``).
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.errors import InputError

__all__ = ["Conditions", "ModelFacts"]


@dataclass(frozen=True)
class ModelFacts:
    """The numbers of a model that limit its speed.

    Parameters
    ----------
    parameters : float or None
        All parameters; None when only ``weights_read`` is known [1].
    active : float or None
        Parameters used per token, for a mixture of experts; None for all [1].
    kv_per_token : float or None
        KV cache of one token at 16 bit: the growth per token at long context; None unknown [B/tok].
    embedding : float
        Parameters that are looked up, not multiplied: an untied input embedding; 0 unknown [1].
    head : float
        Parameters of the output head, applied once per generated token; 0 unknown [1].
    attention : float
        ``roofline.attention_flops``; 0 leaves attention arithmetic out.
    weights_read : float or None
        Bytes read per step when a claim states them instead of a precision [B].
    """

    parameters: float | None
    active: float | None = None
    kv_per_token: float | None = None
    embedding: float = 0.0
    head: float = 0.0
    attention: float = 0.0
    weights_read: float | None = None

    def __post_init__(self) -> None:
        """Refuse facts that determine nothing."""
        if self.parameters is None and self.weights_read is None:
            raise InputError("neither parameters nor bytes read are known", fix="state one")
        if self.active and self.parameters and self.active > self.parameters:
            raise InputError("more active parameters than parameters", fix="check the model")

    @property
    def multiplied(self) -> float:
        """Parameters one token is multiplied with, 0 when unknown."""
        return max((self.active or self.parameters or 0.0) - self.embedding, 0.0)


@dataclass(frozen=True)
class Conditions:
    """What is stated about a rate; None is *unstated*.

    Parameters
    ----------
    gpus : int or None
        Devices of the deployment.
    inputs, outputs : float or None
        Mean tokens of a request [tok].
    concurrency : float or None
        Requests in flight over the whole deployment [1].
    precision : str
        A name of ``precision``, or ``any``.
    counting : str
        ``output``, ``total``, ``requests`` or ``any``.
    tokens_per_step : float
        Tokens a sequence gains per decode step; 1 without speculation [tok].
    cached : float
        Share of input tokens served by a prefix cache, 0 to 1.
    kv_bits : float or None
        Bits of one cached number.
    overhead : float
        Memory per device that holds neither weights nor KV [B].
    """

    gpus: int | None = None
    inputs: float | None = None
    outputs: float | None = None
    concurrency: float | None = None
    precision: str = "any"
    counting: str = "any"
    tokens_per_step: float = 1.0
    cached: float = 0.0
    kv_bits: float | None = None
    overhead: float = 0.0

    def __post_init__(self) -> None:
        """Refuse conditions that no run can have."""
        for name in ("gpus", "outputs", "concurrency", "tokens_per_step"):
            value = getattr(self, name)
            if value is not None and not value >= 1:
                raise InputError(f"{name} must be at least 1, not {value:g}", where=name)
        if self.inputs is not None and self.inputs < 0:
            raise InputError("inputs must not be negative", where="inputs")
        if not 0 <= self.cached <= 1:
            raise InputError("cached must lie between 0 and 1", where="cached")
        if self.counting not in ("any", "output", "total", "requests"):
            raise InputError(
                f"unknown counting '{self.counting}'", fix="use output, total, requests or any"
            )
