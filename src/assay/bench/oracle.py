"""Oracle: vLLM's own account of what a model's layers keep, for any ``config.json``.

Owns asking vLLM for the KV cache specs of every layer, on a CPU, without weights. Does not own
vLLM's inner names (``private``), laying its answer beside ours (``agreement``) or a running engine
(``pool``).

Limits, all of the CPU build: what concerns layout only (how groups of layers are padded to one page
size) follows the CPU platform and is not read here. Recurrent states are kept at 32 bits on a
processor with bf16 arithmetic, whatever the file says. The format of the weights is left out of the
question, so a cache format that comes with it must be given. Sparse attention with an indexer
(DeepSeek V3.2 and V4) is refused. Tensor parallelism is pretended: rank 0 of a group that has no
other member.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.bench import private
from assay.ledger import store
from assay.physics import fields

__all__ = ["Kept", "Refusal", "Specs", "specs"]

Config = Mapping[str, object]

# A multiple of 32, as the CPU's attention kernel wants. Bytes per token do not depend on it.
_BLOCK = 32
# Rotary tables are made in earnest, one row for each position: 10 million of them take 14 GB.
_LONGEST = 2**18
# The weights' format, and code that a file would load from elsewhere.
_LEFT_OUT = ("auto_map", "compression_config", "quantization_config")
# Language models that vLLM builds from another model's class (its qwen2_vl, qwen3_vl and so on).
_SAME_BODY = {
    "qwen2_5_omni_text": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen3_omni_moe_text": "qwen3_moe",
    "qwen3_vl_moe_text": "qwen3_moe",
    "qwen3_vl_text": "qwen3",
}
_NAMES = (
    ("SlidingWindow", "sliding"),
    ("ChunkedLocal", "chunked"),
    ("Mamba", "linear"),
    ("CrossAttention", "cross"),
    ("EncoderOnly", "none"),
    ("MLAAttention", "mla"),
    ("FullAttention", "full"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Kept:
    """What one layer keeps, as vLLM says.

    Parameters
    ----------
    layer : str
        vLLM's name of the layer.
    kind : str
        ``full``, ``sliding``, ``chunked``, ``mla``, ``linear``, ``shared``, ``cross`` or ``none``.
    bytes_per_token : int
        Growth per token until the window is full [B/tok].
    window : int
        Tokens kept at most; 0 when every token is kept [tok].
    state_bytes : int
        Constant memory per sequence [B].
    """

    layer: str
    kind: str
    bytes_per_token: int = 0
    window: int = 0
    state_bytes: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Specs:
    """vLLM's answer for one configuration, on one rank [B].

    Parameters
    ----------
    all_layers_bytes_per_token : int
        Every attention layer at full length.
    growth_bytes_per_token : int
        Layers that keep every token.
    bounded_bytes_per_sequence : int
        Windows and states together.
    window_bytes_per_sequence, state_bytes_per_sequence : int
        The two parts of it.
    layers : tuple of Kept
        Every layer that keeps something or reads another layer's cache.
    parameters : int
        Parameters on this rank.
    engine, version : str
        The build that answered.
    notes : tuple of str
        What was changed in the file before it was asked.
    """

    all_layers_bytes_per_token: int
    growth_bytes_per_token: int
    bounded_bytes_per_sequence: int
    window_bytes_per_sequence: int
    state_bytes_per_sequence: int
    layers: tuple[Kept, ...]
    parameters: int
    engine: str
    version: str
    notes: tuple[str, ...] = ()

    def count(self) -> dict[str, int]:
        """Return the layers of each kind that occurs."""
        found: dict[str, int] = {}
        for kept in self.layers:
            found[kept.kind] = found.get(kept.kind, 0) + 1
        return found


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """vLLM did not answer for a configuration, and why."""

    reason: str
    engine: str
    version: str


def specs(
    config: Config, *, tp: int = 1, kv_dtype: str | None = None, longest: int | None = None
) -> Specs | Refusal:
    """Ask vLLM what every layer of a model keeps.

    Parameters
    ----------
    config : Mapping
        The parsed ``config.json``.
    tp : int
        Tensor-parallel size [GPU]; the answer is for rank 0.
    kv_dtype : str, optional
        vLLM's name of the cache's format, such as ``fp8``; the model's own when not given.
    longest : int, optional
        Longest sequence to serve [tok]; the file's when not given.

    Returns
    -------
    Specs or Refusal
        A model that vLLM cannot build is a refusal with its reason, not an exception.

    Raises
    ------
    InputError
        When vLLM is not installed or of an unknown version; ask ``private.absent`` first.

    Notes
    -----
    Some 0.3 s a configuration once vLLM is imported (10 to 15 s), and less than 1 GB of memory:
    weights are shapes only. The class in ``architectures`` is taken from ``model_type`` when the
    file has none.
    """
    private.quiet()
    options: dict[str, Any] = {"block_size": _BLOCK, "kv_cache_dtype": kv_dtype or "auto"}
    if longest is not None:
        options["max_model_len"] = longest
    answer = _asked(config, (), options, tp)
    part = _language_part(config)
    if isinstance(answer, Refusal) and part is not None:
        # The whole model may need packages for pictures or sound that its language does not.
        second = _asked(part, ("only the language model asked for",), options, tp)
        return second if isinstance(second, Specs) else answer
    return answer


def _asked(
    config: Config, remarks: tuple[str, ...], options: dict[str, Any], tp: int
) -> Specs | Refusal:
    engine, version = private.version() or ("", "")
    with private.silence(), tempfile.TemporaryDirectory(prefix="assay-oracle-") as name:
        prepared, notes = _prepared(config)
        word = prepared.get("model_type")
        if not isinstance(word, str) or not private.known(word):
            # vLLM would say the same, after two seconds of trying to load it from elsewhere.
            return Refusal(f"model_type {word!r} has no configuration class", engine, version)
        folder = Path(name)
        # The ledger's JSON writes 1.0 as 1, which transformers refuses where it wants a float.
        store.write(folder / "config.json", json.dumps(prepared))
        try:
            vllm_config = private.engine_config(folder, **options)
            found, shared, parameters = private.layer_specs(vllm_config, tp)
        except (KeyboardInterrupt, MemoryError):
            raise
        except BaseException as error:  # vLLM refuses in many ways, SystemExit among them
            return Refusal(private.describe(error), engine, version)
        longest = int(vllm_config.model_config.max_model_len)
    if longest >= _LONGEST:
        longest = fields.whole(fields.text_config(config), fields.LONGEST) or longest
    layers = [_kept(layer, spec, longest) for layer, spec in found.items()]
    layers += [Kept(layer, "shared") for layer in shared]
    growing = sum(x.bytes_per_token for x in layers if not x.window)
    windowed = sum(x.bytes_per_token for x in layers if x.window)
    windows = sum(x.bytes_per_token * x.window for x in layers)
    states = sum(x.state_bytes for x in layers)
    return Specs(
        growing + windowed,
        growing,
        windows + states,
        windows,
        states,
        tuple(layers),
        parameters,
        engine,
        version,
        (*remarks, *notes),
    )


def _prepared(config: Config) -> tuple[dict[str, object], tuple[str, ...]]:
    """Return the file as vLLM is asked about it, and what was changed."""
    whole = _shortened({name: _shortened(value) for name, value in config.items()})
    kept = {name: value for name, value in whole.items() if name not in _LEFT_OUT}
    notes = [f"{name} left out" for name in _LEFT_OUT if config.get(name) is not None]
    model_type = kept.get("model_type")
    if not kept.get("architectures") and isinstance(model_type, str):
        named = private.architecture(model_type)
        if named:
            kept["architectures"] = [named]
            notes.append(f"architectures taken from model_type: {named}")
    return kept, tuple(notes)


def _shortened(value: Any) -> Any:
    """Return a part of the file with its longest context bounded, other values as they are."""
    if not isinstance(value, Mapping):
        return value
    bound = {
        name: min(length, _LONGEST)
        for name in fields.LONGEST
        if isinstance(length := value.get(name), int)
    }
    return {**value, **bound}


def _language_part(config: Config) -> Config | None:
    """Return the language model of a file that has several, with a class that vLLM knows."""
    part = fields.text_config(config)
    if part is config:
        return None
    word = part.get("model_type")
    name = _SAME_BODY.get(word, word) if isinstance(word, str) else None
    kept = {key: value for key, value in part.items() if key != "architectures"}
    return {**kept, "model_type": name}


def _kept(layer: str, spec: Any, longest: int) -> Kept:
    name = type(spec).__name__
    kind = next((word for part, word in _NAMES if part in name), "full")
    if kind == "linear":
        return Kept(layer, kind, state_bytes=int(spec.real_page_size_bytes))
    if kind in ("cross", "none"):
        return Kept(layer, kind)
    page, block = int(spec.real_page_size_bytes), int(spec.block_size)
    each, rest = divmod(page, block)
    if rest:
        raise AssertionError(f"{name} keeps {page} B in {block} tokens")
    window = getattr(spec, "sliding_window", None) if kind == "sliding" else None
    if kind == "chunked":
        window = spec.attention_chunk_size
    if window is not None and window >= longest:  # vLLM keeps the word; nothing is ever dropped
        return Kept(layer, "full", each)
    return Kept(layer, kind, each, int(window or 0))
