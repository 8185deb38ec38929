"""Attention: from a Hugging Face ``config.json`` to what every layer keeps in memory.

Owns the layout: for each layer, full attention, a sliding window, a chunk, one MLA latent, a
constant state, the cache of an earlier layer, encoder keys or nothing. Refuses, naming the field,
what a file does not determine. Does not own number formats or bytes (``kv``), the layer plan
(``kinds``), head counts (``heads``) or shapes of states (``state``).

::

    config.json -> fields.text_config -> kinds.plan + heads.base + state.of -> Layout

Examples
--------
>>> llama = {"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
...          "num_attention_heads": 32, "num_key_value_heads": 8}
>>> layout(llama).count()
{'full': 32, 'sliding': 0, 'chunked': 0, 'mla': 0, 'linear': 0, 'shared': 0, 'cross': 0, 'none': 0}
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from assay.errors import DerivationError
from assay.physics import families, fields, heads, kinds, state, windows
from assay.physics.state import State, split

__all__ = ["KINDS", "Layer", "Layout", "layout"]

Config = Mapping[str, object]

KINDS = ("full", "sliding", "chunked", "mla", "linear", "shared", "cross", "none")

# Words in field names that announce a cache of another shape than the ones known here. A field
# that is absent, null, false or zero announces nothing.
_UNKNOWN = re.compile(
    r"compress(?!ion_config$)|(^|_)kv_?latent|latent_kv|(^|_)(kv|k|v|key|value)_(\w+_)?rank$"
    r"|kv_shar|shared?_kv|kv_reuse|reuse_kv|cross_layer_(kv|att)|yoco|^mb_per_layer$|^cca_"
)
_UNDERSTOOD = frozenset({"kv_lora_rank", "num_kv_shared_layers"})
# A sparse-attention indexer keeps its own small keys beside the cache.
_INDEXERS = ("index_head_dim", "index_n_heads", "index_topk", "sparse_attention_config")
_INDEXED_WORDS = frozenset(
    {"indexed_attention", "deepseek_sparse_attention", "qwen_sparse_attention", "minimax_m3_sparse"}
)


@dataclass(frozen=True, slots=True)
class Layer:
    """What one layer keeps.

    Parameters
    ----------
    kind : str
        One of :data:`KINDS`.
    kv_heads, key, value : int
        KV heads in the whole model and the width of one head's key and value.
    latent : int
        MLA: numbers per token, kept once and never split over GPUs; ``rope`` of them are the
        rotary key.
    window : int
        Tokens kept at most; 0 when every token is kept [tok].
    state : State or None
        Constant memory of a recurrent or convolution layer.
    """

    kind: str
    kv_heads: int = 0
    key: int = 0
    value: int = 0
    latent: int = 0
    window: int = 0
    state: State | None = None
    rope: int = 0

    def numbers(self, tp: int = 1) -> int:
        """Return the numbers one token adds on one of ``tp`` GPUs."""
        if self.latent:
            return self.latent
        if not self.kv_heads:
            return 0
        return split(self.kv_heads, tp, "num_key_value_heads") * (self.key + self.value)


@dataclass(frozen=True, slots=True)
class Layout:
    """A model's layers, and how sure the reading is.

    ``status`` is ``ok``, ``lower-bound`` or ``upper-bound``; a refusal is an exception instead.
    """

    model_type: str
    layers: tuple[Layer, ...]
    query_heads: int = 0
    hidden: int = 0
    head_dim: int = 0
    longest: int | None = None
    status: str = "ok"
    reason: str = ""
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def count(self) -> dict[str, int]:
        """Return the layers of each kind; a layer with attention and a state is in both."""
        found = Counter(layer.kind for layer in self.layers)
        found["linear"] += sum(1 for x in self.layers if x.state and x.kind != "linear")
        return {kind: found[kind] for kind in KINDS}

    def groups(self) -> list[tuple[Layer, int]]:
        """Return the different layers, each with how often it occurs."""
        return list(Counter(self.layers).items())


def layout(config: Config) -> Layout:
    """Derive the attention layout of a model.

    Parameters
    ----------
    config : Mapping
        The parsed ``config.json``.

    Returns
    -------
    Layout
        One entry per layer.

    Raises
    ------
    DerivationError
        When the file does not determine the layout; the field is named.

    Notes
    -----
    Rules and their sources are in :mod:`assay.physics.kinds`, :mod:`assay.physics.heads`,
    :mod:`assay.physics.families` and :mod:`assay.physics.state`.

    Examples
    --------
    >>> layout({})
    Traceback (most recent call last):
    ...
    assay.errors.DerivationError: num_hidden_layers is missing; add it to the file
    """
    if not isinstance(config, Mapping):
        raise DerivationError("the configuration is not a JSON object")
    text = fields.text_config(config)
    family = fields.family(config, text)
    name = fields.choice(config, "model_type") or fields.choice(text, "model_type") or family
    if family in families.ENCODERS and not fields.flag(text, "is_decoder"):
        raise DerivationError(
            f"model_type {name} is an encoder: it keeps no KV cache between steps",
        )
    _refuse_unknown(text)
    if family.startswith(families.ATTENTION_FREE):
        return _attention_free(text, name)
    if family in families.ENCODER_DECODERS or fields.flag(text, "is_encoder_decoder"):
        return _decoder_half(text, family, name)
    return _decoder(text, family, name)


def _refuse_unknown(text: Config) -> None:
    for key, value in text.items():
        if not isinstance(key, str) or key in _UNDERSTOOD:
            continue
        if value in (None, False, 0, "") or value == [] or value == {}:
            continue
        if _UNKNOWN.search(key):
            raise DerivationError(
                f"{key} announces a cache layout that is not known here",
                fix="measure it in the engine",
            )


def _attention_free(text: Config, name: str) -> Layout:
    layers = fields.need(text, fields.LAYERS, most=10_000)
    warning = (
        "no attention, so nothing grows with tokens; each sequence keeps a constant recurrent "
        "state whose size differs between implementations and is not counted"
    )
    hidden = fields.whole(text, fields.HIDDEN) or 0
    kept = tuple([Layer("linear")] * layers)
    return Layout(name, kept, hidden=hidden, warnings=(warning,))


def _decoder_half(text: Config, family: str, name: str) -> Layout:
    """Lay out the decoder of an encoder-decoder model."""
    layers = fields.need(
        text, ("decoder_layers", "num_decoder_layers", *fields.LAYERS), most=10_000
    )
    query = fields.need(text, ("decoder_attention_heads", *fields.HEADS), most=65_536)
    plain = heads.base({**text, "num_attention_heads": query, "num_key_value_heads": query}, "")
    layer = Layer("full", plain.kv, plain.key, plain.value)
    reason = (
        "encoder-decoder: the decoder's own cache is counted; keys and values of the encoder's "
        "output, as large again per input token, come on top"
    )
    return Layout(
        name,
        (layer,) * layers,
        plain.query,
        fields.whole(text, fields.HIDDEN) or 0,
        plain.key,
        fields.whole(text, ("max_target_positions", *fields.LONGEST)),
        "lower-bound",
        reason,
        plain.assumptions,
    )


def _decoder(text: Config, family: str, name: str) -> Layout:
    plan = kinds.plan(text, family)
    notes = list(plan.assumptions)
    reasons: list[tuple[str, str]] = [("upper-bound", plan.bound)] if plan.bound else []
    warnings = list(plan.warnings)
    attends = any(kind not in ("linear", "none") for kind in plan.kinds)
    latent = heads.latent(text, family) if attends else None
    geometries, plain = _geometries(text, family, plan.kinds, latent) if attends else ([], None)
    if plain is not None:
        notes += plain.assumptions
    kept_state = None
    if any(kind in ("linear", "hybrid") for kind in plan.kinds):
        try:
            kept_state = state.of(text, family)
            notes.append(_state_note(kept_state))
        except DerivationError as error:
            reasons.append(
                ("lower-bound", f"the constant state of its linear layers is not counted: {error}")
            )
    window = _window(text, family, plan.kinds)
    longest = fields.whole(text, fields.LONGEST)
    kept_kinds = plan.kinds
    if window and longest is not None and window >= longest:
        kept_kinds = tuple("full" if k in ("sliding", "chunked") else k for k in plan.kinds)
        notes.append(f"a window of {window} reaches the longest context {longest}: no effect")
    built = [
        _layer(kind, geometries[i] if attends else None, latent, window, kept_state)
        for i, kind in enumerate(kept_kinds)
    ]
    if latent:
        rope = fields.whole(text, "qk_rope_head_dim", least=0) or 0
        built = [replace(layer, rope=rope) if layer.latent else layer for layer in built]
    built = _shared(text, family, built)
    if any(layer.kind == "cross" for layer in built):
        reasons.append(
            ("lower-bound", "cross-attention layers keep the encoder's tokens, which are not text")
        )
    if _has_indexer(text):
        reasons.append(
            (
                "lower-bound",
                "the sparse-attention indexer (index_head_dim) keeps its own keys per token on top",
            )
        )
    if fields.whole(text, ("num_nextn_predict_layers", "num_mtp_layers"), least=0):
        warnings.append(
            "multi-token-prediction layers keep a cache only when speculation is on; not counted"
        )
    if latent and family == "minicpm3":
        warnings.append("vLLM expands this model's latent to full keys and values; more than here")
    if text.get("attention_k_eq_v") is True:
        notes.append("attention_k_eq_v: K and V are both counted, as engines keep both")
    status, reason = _verdict(reasons)
    return Layout(
        name,
        tuple(built),
        plain.query if plain else 0,
        fields.whole(text, fields.HIDDEN) or 0,
        plain.key if plain else 0,
        longest,
        status,
        reason,
        tuple(dict.fromkeys(notes)),
        tuple(warnings),
    )


def _geometries(
    text: Config, family: str, plan: tuple[str, ...], latent: int | None
) -> tuple[list[heads.Geometry | None], heads.Geometry | None]:
    listed = heads.per_layer(text, len(plan))
    if listed:
        return listed, next((g for g in listed if g is not None), None)
    if latent:  # heads do not change what is kept, but they must exist to be split over GPUs
        query = fields.need(text, fields.HEADS, most=65_536)
        whole_width = sum(
            fields.whole(text, name, least=0) or 0 for name in ("qk_nope_head_dim", "v_head_dim")
        )
        plain = heads.Geometry(query, query, latent, whole_width)
        return [plain] * len(plan), plain
    plain = heads.base(text, family)
    sliding, whole = heads.sliding_and_global(text, family, plain)
    chosen = [sliding if kind in ("sliding", "chunked") else whole for kind in plan]
    return list(chosen), heads.Geometry(
        plain.query, plain.kv, plain.key, plain.value, (*plain.assumptions, *whole.assumptions)
    )


def _layer(
    kind: str,
    geometry: heads.Geometry | None,
    latent: int | None,
    window: int,
    kept_state: State | None,
) -> Layer:
    if kind == "linear":
        return Layer("linear", state=kept_state)
    if kind == "cross":
        return Layer("cross")
    if kind == "none" or geometry is None:
        return Layer("none")
    both = kept_state if kind == "hybrid" else None
    bound = window if kind in ("sliding", "chunked") else 0
    if latent:
        return Layer("sliding" if bound else "mla", latent=latent, window=bound, state=both)
    name = "full" if kind == "hybrid" else kind
    return Layer(name, geometry.kv, geometry.key, geometry.value, window=bound, state=both)


def _window(text: Config, family: str, plan: tuple[str, ...]) -> int:
    if "chunked" in plan:
        return fields.need(text, "attention_chunk_size")
    if "sliding" not in plan:
        return 0
    window = fields.need(text, windows.names(family))
    # ModernBERT writes the whole span and looks half of it back.
    if family == "modernbert-decoder" and text.get("sliding_window") is None:
        return max(1, window // 2)
    if fields.flag(text, "use_sliding_window", silent=True):
        return window
    return 0


def _shared(text: Config, family: str, built: list[Layer]) -> list[Layer]:
    """Replace layers that read another layer's cache."""
    shared = fields.whole(text, "num_kv_shared_layers", least=0, most=len(built))
    if shared is None and family == "gemma3n":
        raise DerivationError(
            "num_kv_shared_layers is missing, and this family shares caches between layers",
        )
    if shared:
        if shared >= len(built):
            raise DerivationError(
                f"num_kv_shared_layers is {shared} of {len(built)} layers",
            )
        return [*built[: len(built) - shared], *[Layer("shared")] * shared]
    if fields.flag(text, "use_cla"):
        every = fields.need(text, "cla_share_factor")
        return [layer if i % every == 0 else Layer("shared") for i, layer in enumerate(built)]
    return built


def _has_indexer(text: Config) -> bool:
    if any(text.get(name) not in (None, 0, False, {}) for name in _INDEXERS):
        return True
    words = text.get("layer_types")
    return isinstance(words, list | tuple) and any(
        isinstance(word, str) and word in _INDEXED_WORDS for word in words
    )


def _state_note(kept: State) -> str:
    four = any(part.item == 4 for part in kept.parts)
    formats = "32-bit recurrent and 16-bit convolution parts" if four else "16-bit parts"
    return f"{kept.name} state: {formats}, unless the engine is told otherwise"


def _verdict(reasons: list[tuple[str, str]]) -> tuple[str, str]:
    directions = {direction for direction, _ in reasons}
    if len(directions) > 1:
        text = "; ".join(reason for _, reason in reasons)
        raise DerivationError(f"neither a lower nor an upper bound: {text}")
    return (directions.pop() if directions else "ok"), "; ".join(reason for _, reason in reasons)
