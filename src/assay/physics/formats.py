"""Formats: how many bytes one cached number takes, and where a file says so.

Owns the KV number formats, their spellings, and the three places that name one: the quantisation
block of ``config.json`` (``kv_cache_scheme``, a word or a dictionary), the ``hf_quant_config.json``
that sits beside it (``kv_cache_quant_algo``, when merged in), and the option a person gives. The
format of the *weights* says nothing about the cache. Does not own bytes per token (``kv``).

Examples
--------
>>> chosen({"quantization_config": {"quant_method": "fp8"}}, None).source
'assumed'
>>> chosen({"quantization_config": {"kv_cache_scheme": "FP8"}}, None).name
'fp8'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from assay.errors import DerivationError, InputError
from assay.physics import fields

__all__ = ["FORMATS", "Format", "chosen", "named"]

Config = Mapping[str, object]

# Sixteenths of a byte per number, so that all of them are whole. NVFP4 is 4 bits plus one 8-bit
# scale for 16 numbers, which vLLM stores beside the data (utils/torch_utils.py, 0.32). Scales of
# the other formats are per tensor or per head and too small to count; they are noted.
FORMATS: dict[str, int] = {
    "fp32": 64,
    "bf16": 32,
    "fp16": 32,
    "fp8": 16,
    "fp8_e4m3": 16,
    "fp8_e5m2": 16,
    "int8": 16,
    "nvfp4": 9,
    "int4": 8,
}
_SPELLINGS = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "float": "fp32",
    "e4m3": "fp8_e4m3",
    "float8_e4m3fn": "fp8_e4m3",
    "e5m2": "fp8_e5m2",
    "float8_e5m2": "fp8_e5m2",
    "f8": "fp8",
    "fp4": "nvfp4",
}
_WEIGHTS = ("quantization_config", "compression_config")
_SILENT = ("", "none", "null", "auto")


@dataclass(frozen=True, slots=True)
class Format:
    """A number format and where it was found: ``config``, ``option`` or ``assumed``."""

    name: str
    source: str
    note: str = ""
    weights_quantised: bool = False

    def size(self, numbers: int) -> int:
        """Return the bytes of so many numbers, rounded up [B]."""
        return -(-numbers * FORMATS[self.name] // 16)


def named(word: str) -> str:
    """Return the format a word means.

    Raises
    ------
    InputError
        When it is not a known format.

    Examples
    --------
    >>> named("bfloat16")
    'bf16'
    """
    plain = word.strip().lower().replace("-", "_")
    plain = _SPELLINGS.get(plain, plain)
    if plain not in FORMATS:
        raise InputError(f"unknown KV number format '{word[:40]}'", fix=f"use {', '.join(FORMATS)}")
    return plain


def chosen(config: Config, option: str | None) -> Format:
    """Return the format of the cache: the option, else the file's word, else 16 bits.

    Parameters
    ----------
    config : Mapping
        The whole ``config.json``.
    option : str or None
        What the person asked for; ``auto`` is the same as nothing.

    Returns
    -------
    Format
        With its source.

    Raises
    ------
    InputError
        When the option is not a format.
    DerivationError
        When the file names a format that is not known.
    """
    weights = any(
        config.get(key) is not None for key in ("quantization_config", "compression_config")
    )
    if option is not None and option.strip().lower() not in _SILENT:
        return Format(named(option), "option", _scales(named(option)), weights)
    found = _in_file(config)
    if found is not None:
        return Format(found, "config", _scales(found), weights)
    run = _run_format(config)
    name = run if run in ("bf16", "fp16") else "bf16"
    note = "the file names no KV format: 16 bits assumed"
    if run == "fp32":
        # vLLM 0.32, config/model.py: float32 checkpoints are run at 16 bits unless told otherwise.
        note += ", also for a float32 checkpoint, which engines run at 16 bits"
    if weights:
        note += "; the weights' format is not the cache's"
    return Format(name, "assumed", note, weights)


def _scales(name: str) -> str:
    if name == "nvfp4":
        return "nvfp4: 4 bits and one 8-bit scale per 16 numbers, 4.5 bits in all"
    if name in ("int4", "int8"):
        return f"{name}: scales are not counted; their layout differs between engines"
    return ""


def _run_format(config: Config) -> str:
    for part in (config, fields.text_config(config)):
        for key in ("torch_dtype", "dtype"):
            value = part.get(key)
            if isinstance(value, str):
                word = value.removeprefix("torch.").lower()
                return _SPELLINGS.get(word, word)
    return ""


def _in_file(config: Config) -> str | None:
    text = fields.text_config(config)
    places: list[tuple[str, Config]] = []
    for part in (config,) if text is config else (config, text):
        for key in ("quantization_config", "compression_config", "hf_quant_config", "quantization"):
            block = part.get(key)
            if isinstance(block, Mapping):
                places.append((key, block))
                inner = block.get("quantization")
                if isinstance(inner, Mapping):
                    places.append((f"{key}.quantization", inner))
        places.append(("", part))
    for where, block in places:
        for key in ("kv_cache_scheme", "kv_cache_quant_algo", "kv_cache_dtype"):
            value = block.get(key)
            if value is None or (isinstance(value, str) and value.lower() in _SILENT):
                continue
            return _word(value, f"{where}.{key}".lstrip("."))
    return None


def _word(value: object, where: str) -> str:
    if isinstance(value, str):
        try:
            return named(value)
        except InputError as error:
            raise DerivationError(error.what, where=where, fix="give the format yourself") from None
    if isinstance(value, Mapping):
        bits = value.get("num_bits")
        kind = value.get("type", "float")
        table = {
            (4, "float"): "nvfp4",
            (4, "int"): "int4",
            (8, "float"): "fp8",
            (8, "int"): "int8",
            (16, "float"): "bf16",
        }
        found = table.get((bits, kind)) if isinstance(bits, int) and isinstance(kind, str) else None
        if found is not None and not isinstance(bits, bool):
            return found
    raise DerivationError(
        "the KV format is not one known here", where=where, fix="give it yourself"
    )
