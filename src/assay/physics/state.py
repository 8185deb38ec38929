"""State: the constant memory of a layer that does not keep every token.

Owns the shapes of convolution and recurrent states of Mamba, Mamba-2, gated delta nets, Kimi delta
attention, lightning attention, RG-LRU and short convolutions, and how tensor parallelism splits
them. Shapes and number formats follow vLLM 0.32 (``layers/mamba/mamba_utils.py``). Does not own
which layers have a state (``attention``) or anything that grows with tokens (``kv``).

Examples
--------
>>> jamba = {"hidden_size": 4096, "mamba_d_conv": 4, "mamba_d_state": 16, "mamba_expand": 2}
>>> of(jamba, "jamba").size(1)  # 3 x 8192 x 2 B + 8192 x 16 x 4 B
573440
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from assay.errors import DerivationError
from assay.physics import fields

__all__ = ["Part", "State", "of", "split"]

Config = Mapping[str, object]

# Convolution states are kept in the number format the model runs in, which is 16 bits: engines
# also run float32 checkpoints at 16 bits (vLLM config/model.py, _resolve_auto_dtype).
_RUN_BYTES = 2
# Recurrent states are kept at 32 bits unless the file names another format: the reference kernels
# accumulate in float32. An engine told otherwise halves this part.
_STATE_BYTES = {"float32": 4, "float": 4, "fp32": 4, "float16": 2, "bfloat16": 2, "half": 2}


def split(heads: int, tp: int, field: str) -> int:
    """Return how many heads one of ``tp`` GPUs holds.

    Parameters
    ----------
    heads : int
        Heads in the whole model.
    tp : int
        Tensor-parallel size [GPU].
    field : str
        The field to name when they do not divide.

    Returns
    -------
    int
        ``heads / tp``, or 1 when there are more GPUs than heads and each head is copied.

    Raises
    ------
    DerivationError
        When neither divides the other.

    Examples
    --------
    >>> split(8, 4, "num_key_value_heads"), split(2, 8, "num_key_value_heads")
    (2, 1)
    """
    if heads % tp and tp % heads:
        raise DerivationError(
            f"{field} is {heads}, which tensor parallelism of {tp} does not divide",
            fix=f"choose a size that divides {heads} or is a multiple of it",
        )
    return max(1, heads // tp)


@dataclass(frozen=True, slots=True)
class Part:
    """One tensor of a state: ``units`` shards of ``width`` numbers of ``item`` bytes."""

    units: int
    width: int
    item: int
    field: str
    copied: bool = False  # may be replicated when there are more GPUs than units

    def size(self, tp: int) -> int:
        """Return the bytes of this tensor on one of ``tp`` GPUs."""
        if not self.copied and self.units % tp:
            raise DerivationError(
                f"{self.field} gives {self.units} parts, which tensor parallelism of {tp} "
                "does not divide",
            )
        held = split(self.units, tp, self.field) if self.copied else self.units // tp
        return held * self.width * self.item


@dataclass(frozen=True, slots=True)
class State:
    """The state of one layer, per sequence."""

    name: str
    parts: tuple[Part, ...]

    def size(self, tp: int = 1) -> int:
        """Return the bytes of one sequence's state on one of ``tp`` GPUs [B]."""
        return sum(part.size(tp) for part in self.parts)


def of(text: Config, family: str) -> State:
    """Return the state of a linear, Mamba or convolution layer.

    Parameters
    ----------
    text : Mapping
        The language model's configuration.
    family : str
        The model family.

    Returns
    -------
    State
        Its tensors.

    Raises
    ------
    DerivationError
        When the fields do not determine a shape; the first missing field is named.
    """
    if text.get("linear_num_value_heads") is not None or family == "olmo_hybrid":
        return _gated_delta_net(text, family)
    if text.get("linear_attn_config") is not None or text.get("linear_num_heads") is not None:
        return _kimi_delta(text)
    if family in ("minimax", "minimax_text_01", "minimax_m1", "bailing_moe_linear"):
        return _lightning(text)
    if text.get("lru_width") is not None or family == "recurrent_gemma":
        return _rg_lru(text)
    if text.get("conv_L_cache") is not None or family in ("lfm2", "lfm2_moe"):
        return _short_conv(text)
    heads = ("mamba_n_heads", "mamba_num_heads", "num_heads" if family == "mamba2" else "")
    if family == "zamba2" or any(text.get(name) is not None for name in heads if name):
        return _mamba2(text, family)
    return _mamba1(text)


def _state_bytes(text: Config) -> int:
    for name in ("mamba_ssm_cache_dtype", "mamba_ssm_dtype"):
        word = fields.choice(text, name)
        if word and word != "auto":
            if word not in _STATE_BYTES:
                raise DerivationError(f"{name} is '{word}', an unknown number format")
            return _STATE_BYTES[word]
    return 4


def _expanded(text: Config) -> int:
    """Return expand x hidden, the inner width of a Mamba layer."""
    name = "mamba_expand" if text.get("mamba_expand") is not None else "expand"
    factor = text.get(name)
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor <= 1024:
        raise DerivationError(f"{name} is missing or not a positive number")
    return max(1, int(factor * fields.need(text, fields.HIDDEN)))


def _mamba1(text: Config) -> State:
    inner = (
        fields.need(text, "intermediate_size")
        if text.get("state_size") is not None and text.get("intermediate_size") is not None
        else _expanded(text)
    )
    taps = fields.need(text, ("mamba_d_conv", "conv_kernel"), most=1024) - 1
    states = fields.need(text, ("mamba_d_state", "state_size"))
    conv = Part(inner, taps, _RUN_BYTES, "mamba_expand")
    return State("mamba", (conv, Part(inner, states, _state_bytes(text), "mamba_expand")))


def _mamba2(text: Config, family: str) -> State:
    names = ("mamba_n_heads", "mamba_num_heads", "n_mamba_heads")
    heads = fields.need(text, ("num_heads", *names) if family == "mamba2" else names)
    own = ("head_dim",) if family == "mamba2" else ()
    width_names = (*own, "mamba_d_head", "mamba_head_dim", "mamba_headdim", "hidden_size_per_head")
    automatic = text.get("mamba_d_head") == "auto"
    width = None if automatic else fields.whole(text, width_names)
    inner = fields.whole(text, "mamba_d_ssm") or (
        heads * width if family in ("nemotron_h", "plamo2") and width else _expanded(text)
    )
    if width is None:
        if inner % heads:
            raise DerivationError("mamba_d_head is missing")
        width = inner // heads
    group_names = ("mamba_n_groups", "mamba_ngroups", "n_groups")
    groups = 0 if family == "plamo2" else fields.need(text, group_names)
    states = fields.need(text, ("mamba_d_state", "ssm_state_size", "state_size"))
    taps = fields.need(text, ("mamba_d_conv", "conv_kernel"), most=1024) - 1
    parts = [Part(inner, taps, _RUN_BYTES, "mamba_expand")]
    if groups:  # the B and C projections, copied when there are more GPUs than groups
        parts.append(Part(groups, 2 * states * taps, _RUN_BYTES, "mamba_n_groups", copied=True))
    parts.append(Part(heads, width * states, _state_bytes(text), "mamba_n_heads"))
    return State("mamba2", tuple(parts))


def _gated_delta_net(text: Config, family: str) -> State:
    if family == "olmo_hybrid":  # this class derives what the file leaves out
        heads = fields.need(text, fields.HEADS)
        keys = fields.whole(text, "linear_num_key_heads") or heads
        values = fields.whole(text, "linear_num_value_heads") or heads
        hidden = fields.need(text, fields.HIDDEN)
        key_dim = fields.whole(text, "linear_key_head_dim") or max(1, int(0.75 * hidden / keys))
        value_dim = fields.whole(text, "linear_value_head_dim") or 2 * key_dim
        taps = (fields.whole(text, "linear_conv_kernel_dim", most=1024) or 4) - 1
    else:
        keys = fields.need(text, "linear_num_key_heads")
        values = fields.need(text, "linear_num_value_heads")
        key_dim = fields.need(text, "linear_key_head_dim")
        value_dim = fields.need(text, "linear_value_head_dim")
        taps = fields.need(text, "linear_conv_kernel_dim", most=1024) - 1
    return State(
        "gated delta net",
        (
            Part(keys, 2 * key_dim * taps, _RUN_BYTES, "linear_num_key_heads"),
            Part(values, value_dim * taps, _RUN_BYTES, "linear_num_value_heads"),
            Part(values, value_dim * key_dim, _state_bytes(text), "linear_num_value_heads"),
        ),
    )


def _kimi_delta(text: Config) -> State:
    nested = text.get("linear_attn_config")
    if isinstance(nested, Mapping):
        heads = fields.need(nested, "num_heads")
        width = fields.need(nested, "head_dim")
        taps = fields.need(nested, "short_conv_kernel_size", most=1024) - 1
    else:
        heads = fields.need(text, "linear_num_heads")
        width = fields.need(text, "linear_head_dim")
        taps = fields.need(text, "linear_conv_kernel_dim", most=1024) - 1
    conv = Part(heads, 3 * width * taps, _RUN_BYTES, "linear_attn_config.num_heads")
    recurrent = Part(heads, width * width, 4, "linear_attn_config.num_heads")
    return State("Kimi delta attention", (conv, recurrent))


def _lightning(text: Config) -> State:
    heads = fields.need(text, fields.HEADS)
    width = fields.whole(text, "head_dim") or fields.need(text, fields.HIDDEN) // heads
    part = Part(heads, width * width, _RUN_BYTES, "num_attention_heads")
    return State("lightning attention", (part,))


def _rg_lru(text: Config) -> State:
    width = fields.whole(text, "lru_width") or fields.need(text, fields.HIDDEN)
    taps = fields.need(text, "conv1d_width", most=1024) - 1
    conv = Part(width, taps, _RUN_BYTES, "lru_width")
    return State("RG-LRU", (conv, Part(width, 1, _state_bytes(text), "lru_width")))


def _short_conv(text: Config) -> State:
    width = fields.whole(text, "conv_dim") or fields.need(text, fields.HIDDEN)
    taps = fields.need(text, "conv_L_cache", most=1024) - 1
    return State("short convolution", (Part(width, taps, _RUN_BYTES, "conv_dim"),))
