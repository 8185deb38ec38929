"""Parameters: counting those of a model from its configuration.

Owns which tensors each known family has and the sum of their sizes: all of them, those one token
uses, and the tables at both ends. A family that is not listed is refused by name, never guessed.
Does not own head counts (``heads``), fields (``fields``) or records of models.

Counts are those of the classes in transformers 5.19.0
(``src/transformers/models/*/modeling_*.py``): the language model alone, without the vision part of
a multimodal file and without multi-token-prediction layers. Quantisation does not change them.

Examples
--------
>>> llama = {"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
...          "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8,
...          "vocab_size": 128256, "tie_word_embeddings": False}
>>> count(llama).total
8030261248
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from assay.errors import DerivationError
from assay.physics import fields, heads

__all__ = ["FAMILIES", "Parameters", "count"]

Config = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Parameters:
    """How many parameters a model has.

    Parameters
    ----------
    total : int
        All of them [1].
    active : int
        Those of the layers and experts one token passes, both tables included, as model cards count
        them; equal to ``total`` without experts [1].
    embedding : int
        Input tables that are looked up, not multiplied: positions, and the token table unless the
        output head shares it [1].
    head : int
        Output head, applied once per generated token [1].
    """

    total: int
    active: int
    embedding: int
    head: int

    @property
    def multiplied(self) -> int:
        """Parameters one token is multiplied with."""
        return self.active - self.embedding


@dataclass(frozen=True, slots=True)
class _Family:
    """The tensors of a family. A text is the field that decides, ``field=yes`` with its default.

    Parameters
    ----------
    tied : bool or None
        Whether the output head shares the token table when the file is silent; None refuses.
    gated : bool
        Three matrices in the feed-forward part instead of two.
    qkv_bias, out_bias, mlp_bias : str
        ``yes``, ``no`` or a field.
    qk_norm : str
        ``no``, ``head`` (one norm of the head's width each), ``whole`` (of all heads' width), or a
        field that switches ``head`` on.
    norms : int
        Norms a layer.
    norm_bias, head_bias, positions : bool
        Norms with a bias, a head with a bias, a table of learned positions.
    experts : str
        Field with the number of experts; empty for a dense model.
    shared : bool
        Fused shared experts of ``n_shared_experts`` times the expert's width.
    latent : bool
        MLA instead of per-head keys and values.
    corrected : bool
        Routers with a correction bias per expert; checkpoints hold it as a tensor.
    """

    tied: bool | None = False
    gated: bool = True
    qkv_bias: str = "no"
    out_bias: str = "no"
    mlp_bias: str = "no"
    qk_norm: str = "no"
    norms: int = 2
    norm_bias: bool = False
    head_bias: bool = False
    positions: bool = False
    experts: str = ""
    shared: bool = False
    latent: bool = False
    corrected: bool = False


_LLAMA = _Family(qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias="mlp_bias")
_QWEN3 = _Family(qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="head")
_GEMMA = _Family(tied=True, qkv_bias="attention_bias", out_bias="attention_bias")
_GPT2 = _Family(
    tied=True,
    gated=False,
    qkv_bias="yes",
    out_bias="yes",
    mlp_bias="yes",
    norm_bias=True,
    positions=True,
)
_DEEPSEEK = _Family(
    qkv_bias="attention_bias",
    out_bias="attention_bias",
    experts="n_routed_experts",
    shared=True,
    latent=True,
)

FAMILIES: dict[str, _Family] = {
    "llama": _LLAMA,
    "granite": _LLAMA,
    "mistral": _Family(),
    "mixtral": _Family(experts="num_local_experts"),
    "qwen2": _Family(qkv_bias="yes"),
    "qwen2_moe": _Family(qkv_bias="qkv_bias=yes", experts="num_experts"),
    "qwen3": _QWEN3,
    "qwen3_moe": replace(_QWEN3, experts="num_experts"),
    "gemma": _GEMMA,
    "gemma2": replace(_GEMMA, norms=4),
    "gemma3": replace(_GEMMA, norms=4, qk_norm="head"),
    "phi3": _Family(),
    "phi": _Family(
        gated=False,
        qkv_bias="yes",
        out_bias="yes",
        mlp_bias="yes",
        norms=1,
        norm_bias=True,
        head_bias=True,
    ),
    "gpt_neox": _Family(
        gated=False,
        qkv_bias="attention_bias=yes",
        out_bias="attention_bias=yes",
        mlp_bias="yes",
        norm_bias=True,
    ),
    "gptj": _Family(gated=False, mlp_bias="yes", norms=1, norm_bias=True, head_bias=True),
    "gpt2": _GPT2,
    "gpt_bigcode": _GPT2,
    # The class shares the tables, published checkpoints (falcon-180B) hold both: the file must say.
    "falcon": _Family(
        tied=None, gated=False, qkv_bias="bias", out_bias="bias", mlp_bias="bias", norm_bias=True
    ),
    "starcoder2": _Family(
        tied=True,
        gated=False,
        qkv_bias="use_bias=yes",
        out_bias="use_bias=yes",
        mlp_bias="use_bias=yes",
        norm_bias=True,
    ),
    "olmo2": _Family(qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="whole"),
    "olmoe": _Family(
        qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="whole", experts="num_experts"
    ),
    "smollm3": replace(_LLAMA, tied=True),
    "seed_oss": _Family(
        qkv_bias="attention_bias=yes", out_bias="attention_out_bias", mlp_bias="mlp_bias"
    ),
    "gpt_oss": _Family(
        qkv_bias="attention_bias=yes", out_bias="attention_bias=yes", experts="num_local_experts"
    ),
    "glm4_moe": _Family(
        qkv_bias="attention_bias",
        qk_norm="use_qk_norm",
        experts="n_routed_experts",
        shared=True,
        corrected=True,
    ),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": replace(_DEEPSEEK, corrected=True),
    "kimi_k2": replace(_DEEPSEEK, corrected=True),  # published with the code of deepseek_v3
}
# The language model of a multimodal family, by the name of the family whose layers it has.
_SAME_AS = {
    "qwen2_vl": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen3_vl": "qwen3",
    "qwen3_vl_moe": "qwen3_moe",
}
_EXPERT_FIELDS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
# The field with the feed-forward width where it is not intermediate_size; four times the width of
# the model when silent (class defaults).
_INNER = {
    "falcon": "ffn_hidden_size",
    "gpt2": "n_inner",
    "gpt_bigcode": "n_inner",
    "gptj": "n_inner",
}
# Multimodal files of this family leave it out because it equals the class default.
_VOCABULARY = {"gemma3": 262_208}
_MOST = 10_000_000


def count(config: Config) -> Parameters:
    """Count the parameters of a model.

    Parameters
    ----------
    config : Mapping
        The parsed ``config.json``.

    Returns
    -------
    counted : Parameters
        Total, active, and the tables at both ends.

    Raises
    ------
    DerivationError
        When the family is not known here or a field is missing; the field is named.

    Notes
    -----
    Per layer: attention ``h*q*d + 2*h*k*d + q*d*h`` for width ``h``, ``q`` query and ``k`` KV heads
    of width ``d``; feed-forward ``3*h*i`` when gated, else ``2*h*i``, once per expert; norms and
    biases. Tables: ``vocabulary * h``, twice unless shared.
    """
    if not isinstance(config, Mapping):
        raise DerivationError("the configuration is not a JSON object")
    text = fields.text_config(config)
    name = fields.family(config, text)
    family = FAMILIES.get(_SAME_AS.get(name, name))
    if family is None:
        raise DerivationError(
            f"model_type {name or 'is missing, and so is a class name, so it'} has no list of "
            "tensors here",
            fix="state the parameters, for example 70.55e9 or 671e9:37e9",
        )
    if not family.experts:
        _refuse_experts(text, name)
    width = fields.need(text, fields.HIDDEN, most=_MOST)
    layers = fields.need(text, fields.LAYERS, most=10_000)
    vocabulary = _vocabulary(text, name)
    norm = width * (2 if family.norm_bias else 1)
    always = layers * (_attention(text, family, name, width) + _norms(text, family, name) * norm)
    fed, used = _feed_forward(text, family, name, width, layers)
    tied = fields.flag(config, "tie_word_embeddings", silent=_tied(text, family))
    positions = width * fields.need(text, fields.LONGEST, most=_MOST) if family.positions else 0
    table = vocabulary * width
    ends = positions + table * (1 if tied else 2) + norm + (vocabulary if family.head_bias else 0)
    return Parameters(
        total=always + fed + ends,
        active=always + used + ends,
        embedding=positions + (0 if tied else table),
        head=table + (vocabulary if family.head_bias else 0),
    )


def _refuse_experts(text: Config, name: str) -> None:
    for field in _EXPERT_FIELDS:
        if (fields.whole(text, field, least=0) or 0) > 1:
            raise DerivationError(f"{field} is set, but {name} is known here without experts")


def _vocabulary(text: Config, name: str) -> int:
    if text.get("vocab_size") is None and name in _VOCABULARY:
        return _VOCABULARY[name]
    return fields.need(text, "vocab_size", most=_MOST)


def _tied(text: Config, family: _Family) -> bool:
    if text.get("tie_word_embeddings") is not None or family.tied is not None:
        return fields.flag(text, "tie_word_embeddings", silent=family.tied is True)
    raise DerivationError(
        "tie_word_embeddings is missing, and this family is published both ways",
        fix="add it to the file",
    )


def _says(text: Config, rule: str) -> bool:
    """Evaluate ``yes``, ``no``, ``field`` or ``field=yes`` (true when silent)."""
    if rule in ("yes", "no"):
        return rule == "yes"
    field, _, silent = rule.partition("=")
    return fields.flag(text, field, silent=silent == "yes")


def _norms(text: Config, family: _Family, name: str) -> int:
    if name != "falcon":
        return family.norms
    if fields.flag(text, "new_decoder_architecture"):
        # One norm for attention and one for the feed-forward part, unless the file says one.
        return fields.whole(text, "num_ln_in_parallel_attn", most=2) or 2
    return 1 if fields.flag(text, "parallel_attn", silent=True) else 2


def _attention(text: Config, family: _Family, name: str, width: int) -> int:
    """Return the attention parameters of one layer, norms inside it included."""
    if family.latent:
        return _latent(text, family, width)
    shape = heads.base(text, name)
    query, keys = shape.query * shape.key, shape.kv * shape.key
    found = width * (query + 2 * keys) + query * width
    if _says(text, family.qkv_bias):
        found += query + 2 * keys
    if _says(text, family.out_bias):
        found += width
    if family.qk_norm == "whole":
        found += query + keys
    elif family.qk_norm == "head" or _says(text, family.qk_norm):
        found += 2 * shape.key
    if fields.flag(text, "qk_layernorm"):
        raise DerivationError("qk_layernorm is set, and its size differs between implementations")
    if name == "gpt_oss":
        found += shape.query  # one learned sink a head
    return found


def _latent(text: Config, family: _Family, width: int) -> int:
    """Return the MLA parameters of one layer (DeepSeek-V2, arXiv:2405.04434, section 2.1)."""
    count_ = fields.need(text, fields.HEADS, most=65_536)
    rope = fields.need(text, "qk_rope_head_dim", most=_MOST)
    nope = fields.need(text, "qk_nope_head_dim", most=_MOST)
    value = fields.need(text, "v_head_dim", most=_MOST)
    kept = fields.need(text, "kv_lora_rank", most=_MOST)
    rank = fields.whole(text, "q_lora_rank", most=_MOST)
    query = count_ * (nope + rope)
    found = rank * (width + 1 + query) if rank else width * query  # 1: its norm
    found += width * (kept + rope) + kept  # down, and its norm
    found += kept * count_ * (nope + value) + count_ * value * width
    if _says(text, family.qkv_bias):
        found += (rank or 0) + kept + rope + width
    return found


def _feed_forward(
    text: Config, family: _Family, name: str, width: int, layers: int
) -> tuple[int, int]:
    """Return the feed-forward parameters of all layers, and those one token uses."""
    biased = _says(text, family.mlp_bias)

    def block(inner: int) -> int:
        up = 2 if family.gated else 1
        return (up + 1) * width * inner + (up * inner + width if biased else 0)

    if not family.experts:
        all_layers = layers * block(_inner(text, name, width))
        return all_layers, all_layers
    experts = fields.need(text, family.experts, most=65_536)
    chosen = fields.need(text, ("num_experts_per_tok", "experts_per_token"), most=experts)
    own_width = name in ("mixtral", "olmoe", "gpt_oss")
    inner = fields.need(text, "intermediate_size" if own_width else "moe_intermediate_size")
    expert, router = block(inner), width * experts
    if name == "gpt_oss":
        expert += 2 * inner + width
    if name == "gpt_oss" or family.corrected:
        router += experts
    shared = 0
    if family.shared:
        copies = fields.whole(text, "n_shared_experts", least=0)
        if copies is None:
            raise DerivationError("n_shared_experts is missing", fix="add it to the file")
        shared = block(inner * copies) if copies else 0
    elif name == "qwen2_moe":
        # One shared expert with its own width, and a gate of one output.
        shared = block(fields.need(text, "shared_expert_intermediate_size")) + width
    sparse = _sparse_layers(text, name, layers)
    dense = (layers - sparse) * block(_inner(text, name, width)) if sparse < layers else 0
    always = dense + sparse * (shared + router)
    return always + sparse * experts * expert, always + sparse * chosen * expert


def _sparse_layers(text: Config, name: str, layers: int) -> int:
    """Return how many layers have experts."""
    if name in ("mixtral", "olmoe", "gpt_oss"):
        return layers
    if name in ("qwen2_moe", "qwen3_moe", "qwen3_vl_moe"):
        step = fields.whole(text, "decoder_sparse_step") or 1
        dense = fields.items(text, "mlp_only_layers") or []
        return sum(1 for i in range(layers) if i not in dense and (i + 1) % step == 0)
    if (fields.whole(text, "moe_layer_freq") or 1) != 1:
        raise DerivationError("moe_layer_freq is not 1, and its meaning differs between versions")
    first = fields.whole(text, "first_k_dense_replace", least=0, most=layers)
    if first is None:
        raise DerivationError("first_k_dense_replace is missing", fix="add it to the file")
    return layers - first


def _inner(text: Config, name: str, width: int) -> int:
    if name in _INNER:
        return fields.whole(text, _INNER[name], most=_MOST) or 4 * width
    return fields.need(text, "intermediate_size", most=_MOST)
