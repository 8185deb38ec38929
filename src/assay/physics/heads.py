"""Heads: how many KV heads a layer has and how wide they are.

Owns the order in which the old and new names are believed, multi-query switches, per-layer head
lists and the one latent vector of MLA. Does not own which layers attend (``kinds``) or bytes.

Examples
--------
>>> base({"num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096}, "llama").kv
8
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from assay.errors import DerivationError
from assay.physics import families, fields

__all__ = ["Geometry", "base", "latent", "per_layer", "sliding_and_global"]

Config = Mapping[str, object]

_MOST_HEADS = 65_536
_MOST_WIDTH = 1_048_576
_KV_NAMES = (
    "num_key_value_heads",
    "n_head_kv",
    "num_kv_heads",
    "multi_query_group_num",
    "num_attention_groups",
    "num_query_groups",
    "n_kv_heads",
    "kv_n_heads",
)
_WIDTH_NAMES = (
    "head_dim",
    "kv_channels",
    "attention_head_dim",
    "hidden_size_per_head",
    "d_kv",
    "head_size",
    "attention_head_size",
)


@dataclass(frozen=True, slots=True)
class Geometry:
    """Heads and widths of one attention layer in the whole model, before any splitting."""

    query: int
    kv: int
    key: int
    value: int
    assumptions: tuple[str, ...] = ()


def base(text: Config, family: str) -> Geometry:
    """Return the geometry that layers have unless something overrides it.

    Parameters
    ----------
    text : Mapping
        The language model's configuration.
    family : str
        The model family.

    Returns
    -------
    Geometry
        Query heads, KV heads and widths.

    Raises
    ------
    DerivationError
        When heads or width are missing, contradict each other or do not divide.
    """
    if family in families.ALL_SILENT and not any(
        text.get(name) is not None for name in (*fields.HEADS, *_KV_NAMES, *_WIDTH_NAMES)
    ):
        query, kv, width = families.ALL_SILENT[family]
        note = f"no head field at all: {query} heads, {kv} KV heads of {width}, as its class says"
        return Geometry(query, kv, width, width, (note,))
    query = fields.need(text, fields.HEADS, most=_MOST_HEADS)
    kv, notes = _kv_heads(text, family, query)
    width, width_notes = _width(text, family, query)
    value = width
    if family.startswith("mimo_v2") and text.get("v_head_dim") is not None:
        value = fields.need(text, "v_head_dim", most=_MOST_WIDTH)
    return Geometry(_divided(query, kv, family), kv, width, value, (*notes, *width_notes))


def _divided(query: int, kv: int, family: str) -> int:
    if query % kv:
        raise DerivationError(
            f"num_attention_heads {query} is not a multiple of num_key_value_heads {kv}",
        )
    return query


def _kv_heads(text: Config, family: str, query: int) -> tuple[int, tuple[str, ...]]:
    if family in ("falcon", "refinedweb", "refinedwebmodel") and not fields.flag(
        text, "new_decoder_architecture"
    ):
        # Such files may also carry num_kv_heads = n_head; the engine believes multi_query.
        if fields.flag(text, "multi_query", silent=family == "falcon"):
            return 1, ()
        return query, ()
    if family != "falcon" and "multi_query" in text and text["multi_query"] is not None:
        return (1 if fields.flag(text, "multi_query") else query), ()
    if family == "gpt_bigcode":
        return 1, ("multi_query is absent and true by default in gpt_bigcode",)
    if text.get("multi_query_attention") is not None and not fields.flag(
        text, "multi_query_attention"
    ):
        return query, ()
    found = fields.whole(text, _KV_NAMES, most=_MOST_HEADS)
    if found is not None:
        return found, ()
    nested = text.get("attn_config")
    if isinstance(nested, Mapping):
        found = fields.whole(nested, ("kv_n_heads", "num_kv_heads"), most=_MOST_HEADS)
        if found is not None:
            return found, ()
        if fields.choice(nested, "attn_type") == "multiquery_attention":
            return 1, ()
    if family in families.MHA_WHEN_SILENT:
        return query, (f"no KV-head field: every head of {family or 'it'} has its own K and V",)
    raise DerivationError(
        "num_key_value_heads is missing",
        fix="add the number of KV heads",
    )


def _width(text: Config, family: str, query: int) -> tuple[int, tuple[str, ...]]:
    # Zamba 2 files also carry kv_channels, which its class does not read.
    first = ("attention_head_dim",) if family in ("zamba", "zamba2") else ()
    for name in (*first, *_WIDTH_NAMES):
        if text.get(name) not in (None, 0) or isinstance(text.get(name), bool):
            return fields.need(text, name, most=_MOST_WIDTH), ()
    if family in families.HEAD_DIM:
        width = families.HEAD_DIM[family]
        return width, (f"head_dim is absent; its class says {width}, not hidden/heads",)
    hidden = fields.need(text, fields.HIDDEN)
    if family in ("zamba", "zamba2"):  # attention reads the layer and the embedding side by side
        hidden *= 2
    if hidden % query:
        raise DerivationError(
            f"head_dim is missing and hidden_size {hidden} is not a multiple of {query} heads",
        )
    return hidden // query, (f"head_dim is absent: hidden/heads = {hidden // query}",)


def latent(text: Config, family: str) -> int | None:
    """Return the numbers MLA keeps per token and layer: latent plus rotary key, once.

    Returns
    -------
    int or None
        None when the model does not use MLA.

    Raises
    ------
    DerivationError
        When half of the pair is there; the missing one is named.

    Examples
    --------
    >>> latent({"kv_lora_rank": 512, "qk_rope_head_dim": 64}, "deepseek_v3")
    576
    """
    rank = fields.whole(text, "kv_lora_rank", least=0, most=_MOST_WIDTH) or 0
    rope = fields.whole(text, "qk_rope_head_dim", least=0, most=_MOST_WIDTH)
    if not fields.flag(text, "use_mla", silent=True):
        return None
    if rank and rope is None:
        raise DerivationError("kv_lora_rank is given but qk_rope_head_dim is missing")
    if rank:
        return rank + (rope or 0)
    if rope or fields.whole(text, "qk_nope_head_dim", least=0, most=_MOST_WIDTH):
        raise DerivationError(
            "kv_lora_rank is missing, while qk_rope_head_dim or qk_nope_head_dim says that keys "
            "are kept in a compressed form",
        )
    return None


def per_layer(text: Config, layers: int) -> list[Geometry | None]:
    """Return a geometry for each layer when the file gives heads layer by layer.

    Parameters
    ----------
    text : Mapping
        The language model's configuration.
    layers : int
        Number of layers.

    Returns
    -------
    list
        One geometry a layer, None where nothing is cached; empty when heads are not listed.
    """
    blocks = fields.items(text, "block_configs")
    if blocks is not None:
        return _blocks(text, blocks, layers)
    for name in ("num_key_value_heads_per_layer", *_KV_NAMES):
        value = text.get(name)
        if isinstance(value, list | tuple):
            return _listed(text, list(value), name, layers)
    return []


def _listed(text: Config, counts: list[object], name: str, layers: int) -> list[Geometry | None]:
    if len(counts) != layers:
        raise DerivationError(f"{name} has {len(counts)} entries for {layers} layers")
    queries = text.get("num_query_heads")
    found: list[Geometry | None] = []
    for index, count in enumerate(counts):
        kv = fields.checked(count, f"{name}[{index}]", least=0, most=_MOST_HEADS)
        if isinstance(queries, list | tuple):
            if len(queries) != layers:
                raise DerivationError("num_query_heads has a wrong length")
            query = fields.checked(queries[index], "num_query_heads", most=_MOST_HEADS)
        else:
            query = fields.need(text, fields.HEADS, most=_MOST_HEADS)
        width, _ = _width(text, "", query)
        found.append(Geometry(_divided(query, kv, ""), kv, width, width) if kv else None)
    return found


def _blocks(text: Config, blocks: list[object], layers: int) -> list[Geometry | None]:
    if len(blocks) != layers:
        raise DerivationError(f"block_configs has {len(blocks)} entries for {layers} layers")
    query = fields.need(text, fields.HEADS, most=_MOST_HEADS)
    width, _ = _width(text, "", query)
    found: list[Geometry | None] = []
    for index, block in enumerate(blocks):
        where = f"block_configs[{index}].attention"
        part = block.get("attention") if isinstance(block, Mapping) else None
        if not isinstance(part, Mapping):
            raise DerivationError(f"{where} is missing")
        if fields.flag(part, "no_op") or fields.flag(part, "replace_with_linear"):
            found.append(None)
            continue
        kv = fields.whole(part, "num_key_value_heads", most=_MOST_HEADS)
        if kv is None:
            group = fields.whole(part, "n_heads_in_group", most=_MOST_HEADS)
            if group is None or query % group:
                raise DerivationError(
                    f"{where}.n_heads_in_group is missing or does not divide {query} heads",
                )
            kv = query // group
        found.append(Geometry(_divided(query, kv, ""), kv, width, width))
    return found


def sliding_and_global(text: Config, family: str, plain: Geometry) -> tuple[Geometry, Geometry]:
    """Return the geometries of windowed and of global layers, where a model has two.

    Returns
    -------
    tuple of (Geometry, Geometry)
        Sliding, then global; the same one twice for most models.
    """
    sliding = plain
    other = text.get("attention_other_setting")  # Step 3.5 and 3.7
    source: Config = other if isinstance(other, Mapping) else text
    prefix = "" if isinstance(other, Mapping) else "swa_"
    query = fields.whole(source, f"{prefix}num_attention_heads", most=_MOST_HEADS)
    kv = fields.whole(
        source, (f"{prefix}num_key_value_heads", f"{prefix}num_attention_groups"), most=_MOST_HEADS
    )
    key = fields.whole(source, f"{prefix}head_dim", most=_MOST_WIDTH)
    value = fields.whole(source, f"{prefix}v_head_dim", most=_MOST_WIDTH)
    if source is not text or prefix:
        sliding = _overridden(plain, query if kv or query else None, kv, key, value)
        if source is text and query is None and kv is None and key is None and value is None:
            sliding = plain
    return sliding, _global(text, family, plain)


def _overridden(
    plain: Geometry, query: int | None, kv: int | None, key: int | None, value: int | None
) -> Geometry:
    changed = replace(
        plain,
        query=query or plain.query,
        kv=kv or plain.kv,
        key=key or plain.key,
        value=value or key or plain.value,
    )
    _divided(changed.query, changed.kv, "")
    return changed


def _global(text: Config, family: str, plain: Geometry) -> Geometry:
    gemma4 = family.startswith("gemma4")
    width = fields.whole(text, "global_head_dim", most=_MOST_WIDTH)
    notes = plain.assumptions
    if width is None and gemma4:
        width = 512  # Gemma4TextConfig, transformers 5.19.0
        notes = (*notes, "global_head_dim is absent; its class says 512")
    if width is None:
        return plain
    kv = None
    if fields.flag(text, "attention_k_eq_v", silent=not gemma4):
        kv = fields.whole(text, "num_global_key_value_heads", most=_MOST_HEADS)
    return replace(_overridden(plain, None, kv, width, width), assumptions=notes)
