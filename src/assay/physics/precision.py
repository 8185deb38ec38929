"""Precisions: what a format name means for bytes read and arithmetic used.

Owns the list of weight and activation formats a published rate may have been measured in, their
bits per weight, and which dense rate of a device they can use. Does not own the rates
(``accelerator``) or the ceilings (``roofline``).

Bits are lower bounds: the scales of AWQ and GPTQ are left out, and a mixed GGUF type counts as if
every tensor were its smallest. A device without arithmetic for a format widens it to 16 bit, as
weight-only kernels do.
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.errors import InputError
from assay.physics.accelerator import Accelerator

__all__ = ["PRECISIONS", "Precision", "admissible"]

_WIDE = ("bf16", "fp16")
_BYTE = ("fp8", "int8")


@dataclass(frozen=True)
class Precision:
    """One way to hold weights and multiply with them.

    Parameters
    ----------
    name : str
        As printed in a reading; ``w4a8`` is 4-bit weights with 8-bit activations.
    weight_bits : float
        Least bits per parameter.
    formats : tuple of str
        Number formats whose arithmetic it can use; the fastest that the device has counts.
    """

    name: str
    weight_bits: float
    formats: tuple[str, ...]

    def flops(self, accelerator: Accelerator) -> float | None:
        """Return the dense rate it can use on a device [FLOP/s]; None when none is stated."""
        own = accelerator.math(*self.formats)
        return own if own is not None else accelerator.math(*_WIDE)


# Block formats. NVFP4: one FP8 scale per 16 values, 4 + 8/16 bits (NVIDIA cuDNN block scaling).
# MXFP4: one 8-bit scale per 32 values, 4 + 8/32 (OCP MX specification 1.0, section 5). GGUF: bits
# per weight of the block structures in ggml-common.h.
_GGUF = {
    "q8_0": 8.5,
    "q6_k": 6.5625,
    "q5_k_m": 5.5,
    "q5_0": 5.5,
    "q4_k_m": 4.5,
    "q4_0": 4.5,
    "q3_k_m": 3.4375,
    "q2_k": 2.625,
}

PRECISIONS: dict[str, Precision] = {
    p.name: p
    for p in (
        Precision("fp32", 32, ("fp32", "tf32")),
        Precision("bf16", 16, ("bf16",)),
        Precision("fp16", 16, ("fp16",)),
        Precision("fp8", 8, ("fp8",)),
        Precision("int8", 8, ("int8",)),
        Precision("w8a8", 8, _BYTE),
        Precision("w8a16", 8, _WIDE),
        Precision("w4a16", 4, _WIDE),
        Precision("w4a8", 4, _BYTE),
        Precision("w4a4", 4, ("int4", "fp4")),
        Precision("nvfp4", 4.5, ("fp4", *_BYTE, *_WIDE)),
        Precision("mxfp4", 4.25, ("fp4", *_BYTE, *_WIDE)),
        *(Precision(name, bits, ("int8", *_WIDE)) for name, bits in _GGUF.items()),
    )
}
_ALSO = {"awq": "w4a16", "gptq": "w4a16", "float16": "fp16", "bfloat16": "bf16", "half": "fp16"}
_FOUR_BIT = ("w4a16", "w4a8", "w4a4")


def admissible(accelerator: Accelerator, stated: str) -> list[Precision]:
    """List the formats a rate on this device may have been measured in.

    Parameters
    ----------
    accelerator : Accelerator
        The device.
    stated : str
        A format name, ``int4`` for any 4-bit weights, or ``any``.

    Returns
    -------
    list of Precision
        Widest weights first. ``any`` leaves out what has no arithmetic of its own on the device
        (apart from weight-only formats) and types below 4 bits.

    Raises
    ------
    InputError
        When the name is unknown.
    """
    name = stated.strip().lower().replace("-", "_")
    name = _ALSO.get(name, name)

    def has(*formats: str) -> bool:
        return accelerator.math(*formats) is not None

    if name in ("int4", "fp4"):
        names = [n for n in _FOUR_BIT if n != "w4a4" or has("int4", "fp4")]
    elif name == "any":
        twofold = (accelerator.math("fp16") or 0) > 1.01 * (accelerator.math("bf16") or 0) > 0
        choices = (
            ("bf16", has("bf16")),
            ("fp16", twofold or not has("bf16")),
            ("fp8", has("fp8")),
            ("int8", has("int8")),
            ("w8a16", not has("fp8")),
            ("nvfp4", has("fp4")),
            ("w4a16", True),
            ("w4a8", has(*_BYTE)),
            ("w4a4", has("int4", "fp4")),
        )
        names = [n for n, admitted in choices if admitted]
    elif name in PRECISIONS:
        names = [name]
    else:
        known = ", ".join(["any", "int4", *PRECISIONS, *_ALSO])
        raise InputError(f"unknown precision '{stated}'", fix=f"use one of {known}")
    return [PRECISIONS[n] for n in names]
