"""Kinds: which layer of a model attends to what.

Owns the reading of every spelling of the layer plan: explicit lists, pattern strings, intervals,
indices and the defaults of a model's class. Answers one kind per layer: ``full``, ``sliding``,
``chunked``, ``linear`` (any recurrent or convolution state), ``hybrid`` (attention and a state in
one layer), ``cross`` and ``none``. Does not own head counts, windows' sizes or bytes.

Examples
--------
>>> plan({"num_hidden_layers": 4, "full_attention_interval": 4}, "qwen3_next").kinds
('linear', 'linear', 'linear', 'full')
"""

from __future__ import annotations

from collections.abc import Mapping

from assay.errors import DerivationError
from assay.physics import fields, windows
from assay.physics.windows import Plan

__all__ = ["Plan", "plan"]

Config = Mapping[str, object]

_MOST_LAYERS = 10_000

# The words of ``layer_types``, ``layers_block_type`` and ``block_types`` (transformers 5.19.0,
# configuration_utils.ALLOWED_LAYER_TYPES and its legacy names).
_WORDS = {
    "full_attention": "full",
    "attention": "full",
    "full": "full",
    "global": "full",
    "global_attention": "full",
    "indexed_attention": "full",
    "deepseek_sparse_attention": "full",
    "qwen_sparse_attention": "full",
    "minimax_m3_sparse": "full",
    "sliding_attention": "sliding",
    "sliding_window_attention": "sliding",
    "sliding_window": "sliding",
    "sliding": "sliding",
    "local": "sliding",
    "local_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "linear",
    "mamba": "linear",
    "mamba2": "linear",
    "recurrent": "linear",
    "conv": "linear",
    "hybrid": "hybrid",
    "moe": "none",
    "mlp": "none",
}
# One word says that both live in one layer only for these (zaya's "hybrid" is something else).
_HYBRID_FAMILIES = ("zamba", "zamba2", "falcon_h1")
_LETTERS = {"M": "linear", "*": "full", "-": "none", "E": "none"}  # Nemotron-H
# Fields of a recurrent or convolution layer: with one of these and no plan, nothing is sure.
_STATE_FIELDS = (
    "mamba_",
    "ssm_",
    "linear_num_",
    "linear_attn_config",
    "linear_conv_",
    "conv_L_cache",
    "lru_width",
    "short_conv_",
)


def plan(text: Config, family: str) -> Plan:
    """Return the kind of every layer.

    Parameters
    ----------
    text : Mapping
        The language model's configuration.
    family : str
        The model family.

    Returns
    -------
    Plan
        Kinds in layer order.

    Raises
    ------
    DerivationError
        When the file does not say, or says something unknown; the field is named.
    """
    found = _listed(text, family) or _pattern_string(text) or _indexed(text, family)
    if found is not None:
        return found
    layers = _count(text, family)
    if family in ("mamba", "mamba2", "falcon_mamba"):
        return Plan(("linear",) * layers)
    if family == "falcon_h1":
        return Plan(("hybrid",) * layers)
    for name in text:
        if (
            isinstance(name, str)
            and name.startswith(_STATE_FIELDS)
            and text[name] is not None
            and not isinstance(text[name], bool)
        ):
            raise DerivationError(
                f"layer_types is missing: {name} says some layers keep a state, not which",
                fix="add layer_types or the pattern this model uses",
            )
    return windows.plan(text, family, layers)


def _count(text: Config, family: str) -> int:
    if family in ("longcat_flash", "longcat_flash_ngram", "longcat_next"):
        # Two attention blocks a layer; the class calls their number num_hidden_layers.
        blocks = fields.whole(text, "num_layers", most=_MOST_LAYERS)
        if blocks is not None:
            return 2 * blocks
    return fields.need(text, fields.LAYERS, most=_MOST_LAYERS)


def _listed(text: Config, family: str) -> Plan | None:
    for name in ("layer_types", "layers_block_type"):
        words = fields.items(text, name)
        if words is None:
            continue
        kinds = []
        for index, word in enumerate(words):
            kind = _WORDS.get(word) if isinstance(word, str) else None
            if kind is None or (kind == "hybrid" and family not in _HYBRID_FAMILIES):
                raise DerivationError(
                    f"{name}[{index}] is {str(word)[:40]!r}, an unknown kind of layer",
                )
            kinds.append(kind)
        return _sized(text, family, kinds, name)
    return None


def _sized(text: Config, family: str, kinds: list[str], name: str) -> Plan:
    layers = fields.whole(text, fields.LAYERS, most=_MOST_LAYERS)
    extra = fields.whole(text, ("num_nextn_predict_layers", "num_mtp_layers"), least=0) or 0
    if family == "nemotron_h":
        layers = len(kinds)  # the class takes the list's length and ignores the count
    if layers is None:
        layers = fields.need(text, fields.LAYERS)
    if len(kinds) == layers + extra:
        kinds = kinds[:layers]
    if len(kinds) != layers or not kinds:
        raise DerivationError(f"{name} has {len(kinds)} entries for {layers} layers")
    if family.startswith("gemma4") and kinds[-1] == "sliding":
        kinds[-1] = "full"
        return Plan(tuple(kinds), assumptions=("the last layer is global: its class forces it",))
    if family == "falcon_h1":
        kinds = ["hybrid"] * layers
    return Plan(tuple(kinds))


def _pattern_string(text: Config) -> Plan | None:
    value = text.get("hybrid_override_pattern")
    if value is None:
        return None
    if not isinstance(value, str) or not value or len(value) > _MOST_LAYERS:
        raise DerivationError("hybrid_override_pattern is not a pattern of layers")
    unknown = sorted(set(value) - set(_LETTERS))
    if unknown:
        raise DerivationError(
            f"hybrid_override_pattern has the unknown letter {unknown[0]!r}",
        )
    layers = fields.whole(text, fields.LAYERS, most=_MOST_LAYERS)
    note = (
        (f"num_hidden_layers is {layers}; the pattern has {len(value)} layers and counts",)
        if layers is not None and layers != len(value)
        else ()
    )
    return Plan(tuple(_LETTERS[letter] for letter in value), warnings=note)


def _indexed(text: Config, family: str) -> Plan | None:
    """Read plans given as numbers: indices, periods and per-layer codes."""
    for name, code in (("attn_type_list", "linear"), ("hybrid_layer_pattern", "sliding")):
        codes = fields.items(text, name)
        if codes is not None:  # attn_type_list: 1 attends; hybrid_layer_pattern: 1 slides
            attends = 1 if name == "attn_type_list" else 0
            values = [fields.checked(c, name, least=0, most=1) for c in codes]
            return _sized(text, family, ["full" if v == attends else code for v in values], name)
    layers = fields.whole(text, fields.LAYERS, most=_MOST_LAYERS)
    nested = text.get("linear_attn_config")
    if isinstance(nested, Mapping) and nested.get("full_attn_layers") is not None:
        chosen = _numbers(nested, "full_attn_layers", least=1)  # counted from one
        return _chosen(text, {n - 1 for n in chosen}, "full", "linear")
    if text.get("full_attn_idxs") is not None:
        return _chosen(text, _numbers(text, "full_attn_idxs"), "full", "linear")
    if text.get("attn_layer_indices") is not None:
        return _chosen(text, _numbers(text, "attn_layer_indices"), "full", "linear")
    if text.get("cross_attention_layers") is not None:
        return _chosen(text, _numbers(text, "cross_attention_layers"), "cross", "full")
    if text.get("hybrid_layer_ids") is not None:
        return _chosen(text, _numbers(text, "hybrid_layer_ids"), "hybrid", "linear")
    if text.get("full_attention_interval") is not None:
        every = fields.need(text, "full_attention_interval")
        count = fields.need(text, fields.LAYERS, most=_MOST_LAYERS)
        return Plan(tuple("linear" if (i + 1) % every else "full" for i in range(count)))
    if layers is None:
        return None
    if text.get("attn_layer_period") is not None:
        period = fields.need(text, "attn_layer_period")
        offset = fields.need(text, "attn_layer_offset", least=0, most=period - 1)
        if family == "zamba":  # two Mamba layers and a hybrid one come first
            rest = ("hybrid" if i % period == offset else "linear" for i in range(layers - 3))
            return Plan(("linear", "linear", "hybrid", *rest)[:layers])
        return Plan(tuple("full" if i % period == offset else "linear" for i in range(layers)))
    if text.get("mamba_step") is not None:  # PLaMo 2
        step = fields.need(text, "mamba_step", least=2)
        if layers <= step // 2:
            return Plan(("linear",) * (layers - 1) + ("full",))
        return Plan(tuple("full" if i % step == step // 2 else "linear" for i in range(layers)))
    if text.get("layer_group_size") is not None and family.startswith("bailing"):
        group = fields.need(text, "layer_group_size")
        whole_groups = layers // group * group if "short_conv_kernel_size" in text else layers
        return Plan(
            tuple(
                "full" if (i + 1) % group == 0 or i >= whole_groups else "linear"
                for i in range(layers)
            )
        )
    for name in ("block_types", "_block_types"):
        words = fields.items(text, name)
        if words:
            kinds = [_WORDS.get(w) if isinstance(w, str) else None for w in words]
            if None in kinds:
                raise DerivationError(f"{name} has an unknown kind of layer")
            # RecurrentGemma's attention is local, and its word for it is plain "attention".
            local = ["sliding" if k == "full" else str(k) for k in kinds]
            return Plan(tuple(local[i % len(local)] for i in range(layers)))
    return _gpt_neo(text, layers)


def _gpt_neo(text: Config, layers: int) -> Plan | None:
    groups = fields.items(text, "attention_types")
    if groups is None:
        return None
    kinds: list[str] = []
    for group in groups:
        if not (isinstance(group, list | tuple) and len(group) == 2 and isinstance(group[0], list)):
            raise DerivationError("attention_types is not [[kinds, repeats]]")
        words = [_WORDS.get(w) if isinstance(w, str) else None for w in group[0]]
        if None in words:
            raise DerivationError("attention_types has an unknown kind")
        repeats = fields.checked(group[1], "attention_types", most=_MOST_LAYERS)
        kinds += [str(word) for word in words] * repeats
    if len(kinds) != layers:
        raise DerivationError(f"attention_types gives {len(kinds)} layers for {layers}")
    return Plan(tuple(kinds))


def _numbers(config: Config, name: str, least: int = 0) -> set[int]:
    values = fields.items(config, name) or []
    return {fields.checked(v, name, least=least, most=_MOST_LAYERS) for v in values}


def _chosen(text: Config, chosen: set[int], kind: str, other: str) -> Plan:
    layers = fields.need(text, fields.LAYERS, most=_MOST_LAYERS)
    beyond = [n for n in sorted(chosen) if n >= layers]
    if beyond:
        raise DerivationError(
            f"layer {beyond[0]} is named, but num_hidden_layers is {layers}",
        )
    return Plan(tuple(kind if i in chosen else other for i in range(layers)))
