"""Counting parameters: against model cards, the ledger's records and the engine's own classes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from assay.errors import DerivationError
from assay.ledger import store
from assay.physics import fields
from assay.physics.parameters import FAMILIES, count

# Total and active parameters as model cards round them, 10^9.
CARDS = {
    # meta-llama/Llama-2-70b, safetensors total 68,976,648,192
    "llama-2-70b": (68.976648192, 68.976648192),
    # meta-llama/Llama-3.1-8B, safetensors total 8,030,261,248
    "llama-3.1-8b": (8.030261248, 8.030261248),
    # Mixtral of Experts, arXiv:2401.04088: 47B, 13B active; the release said 46.7B and 12.9B
    "mixtral-8x7b": (46.7, 12.9),
    # DeepSeek-V3 technical report, arXiv:2412.19437: 671B, 37B active
    "deepseek-v3": (671, 37),
    # DeepSeek-V2, arXiv:2405.04434: 236B, 21B active
    "deepseek-v2": (236, 21),
    # Qwen3-30B-A3B and Qwen3-235B-A22B model cards
    "qwen3-30b-a3b": (30.5, 3.3),
    "qwen3-235b-a22b": (235, 22),
}
# Of these records the configuration does not decide the count: it says so in its locator.
UNDECIDED = {"falcon-180b", "glm-5.2", "minimax-m3"}
TINY: dict[str, Any] = {
    "num_hidden_layers": 3,
    "hidden_size": 64,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 501,
    "pad_token_id": 0,
}
BIASED = {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "head_dim": 16}
GPT = {"n_layer": 3, "n_embd": 64, "n_head": 8, "vocab_size": 501, "n_positions": 77}
MOE = {"num_experts_per_tok": 2, "moe_intermediate_size": 33}
SHARED = {**MOE, "n_routed_experts": 4, "n_shared_experts": 2, "first_k_dense_replace": 1}
MLA = {
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 10,
    "n_group": 1,
    "topk_group": 1,
}
DENSE = (
    "llama", "mistral", "qwen2", "qwen3", "granite", "smollm3", "seed_oss", "olmo2", "phi3", "phi",
    "starcoder2", "gemma", "gemma2", "gemma3",
)  # fmt: skip
SHAPES: list[dict[str, Any]] = [
    *({**TINY, "model_type": name, **extra} for name in DENSE for extra in ({}, BIASED)),
    # This family has no grouped heads.
    {**TINY, "model_type": "gpt_neox", "num_key_value_heads": 8},
    *({**GPT, "model_type": name, "rotary_dim": 8} for name in ("gpt2", "gptj", "gpt_bigcode")),
    *(
        {
            **TINY, "model_type": "falcon", "tie_word_embeddings": False, "num_kv_heads": 4,
            "new_decoder_architecture": new, "parallel_attn": parallel, "bias": parallel,
        }
        for new, parallel in itertools.product((True, False), repeat=2)
    ),
    {**TINY, **MOE, "model_type": "mixtral", "num_local_experts": 4},
    {**TINY, **MOE, "model_type": "olmoe", "num_experts": 6},
    {**TINY, **MOE, "model_type": "qwen3_moe", "num_experts": 6, "mlp_only_layers": [1]},
    {
        **TINY, **MOE, "model_type": "qwen2_moe", "num_experts": 6, "decoder_sparse_step": 2,
        "shared_expert_intermediate_size": 44,
    },
    {
        **TINY, **MOE, "model_type": "gpt_oss", "num_local_experts": 4,
        "layer_types": ["full_attention"] * 3,
    },
    {**TINY, **SHARED, "model_type": "glm4_moe", "use_qk_norm": True, "attention_bias": True},
    *(
        {**TINY, **SHARED, **MLA, "model_type": name, "q_lora_rank": rank,
         "attention_bias": rank is not None}
        for name in ("deepseek_v2", "deepseek_v3") for rank in (None, 24)
    ),
]  # fmt: skip


@pytest.mark.parametrize("name", CARDS)
def test_totals_and_active_parameters_are_those_of_the_model_card(name):
    counted, (total, active) = count(store.model(name).config), CARDS[name]
    # Cards round to three digits, and DeepSeek's active count leaves a table out (36.6 or 37.6).
    assert counted.total / 1e9 == pytest.approx(total, rel=2e-3)
    assert counted.active / 1e9 == pytest.approx(active, rel=2.5e-2)


@pytest.mark.parametrize("name", sorted(set(store.model_ids()) - UNDECIDED))
def test_the_count_is_that_of_the_record(name):
    record = store.model(name)
    counted = count(record.config)
    assert counted.total == record.parameters
    if record.active_parameters is None:
        assert counted.active == counted.total
    else:
        assert counted.multiplied == record.active_parameters


@pytest.mark.parametrize("name", sorted(UNDECIDED))
def test_a_configuration_that_does_not_decide_is_refused(name):
    with pytest.raises(DerivationError):
        count(store.model(name).config)


def _id(shape: dict[str, Any]) -> str:
    told = ("head_dim", "q_lora_rank", "new_decoder_architecture", "parallel_attn")
    return "-".join([shape["model_type"], *(f"{k}={shape[k]}" for k in told if k in shape)])


@pytest.mark.engine
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shape", SHAPES, ids=_id)
def test_the_count_is_that_of_the_class_in_transformers(shape):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    given = {key: value for key, value in shape.items() if key != "model_type"}
    family = {"gemma3": "gemma3_text"}.get(shape["model_type"], shape["model_type"])
    config = transformers.AutoConfig.for_model(family, **given)
    with torch.device("meta"):  # shapes only, no memory
        model = transformers.AutoModelForCausalLM.from_config(config)
    # A checkpoint holds the routers' correction bias, which the class keeps as a buffer.
    kept = [b for name, b in model.named_buffers() if name.endswith("e_score_correction_bias")]
    assert count(shape).total == sum(x.numel() for x in [*model.parameters(), *kept])


def test_every_family_is_held_against_something():
    checked = {shape["model_type"] for shape in SHAPES}
    for name in store.model_ids():
        config = store.model(name).config
        checked.add(fields.family(config, fields.text_config(config)))
    assert set(FAMILIES) <= checked


LLAMA = {**TINY, "model_type": "llama"}


@pytest.mark.parametrize(
    "field", ["hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size"]
)
def test_a_missing_field_is_named(field):
    with pytest.raises(DerivationError, match=field):
        count({key: value for key, value in LLAMA.items() if key != field})


@pytest.mark.parametrize("field", ["vocab_size", "intermediate_size"])
@pytest.mark.parametrize("value", ["many", -1, 0, 1.5, True])
def test_a_value_that_is_no_size_is_refused_by_name(field, value):
    with pytest.raises(DerivationError, match=field):
        count({**LLAMA, field: value})


def test_an_unknown_family_is_refused_by_name():
    with pytest.raises(DerivationError, match="model_type mystery"):
        count({**LLAMA, "model_type": "mystery"})


def test_experts_in_a_dense_family_are_refused():
    with pytest.raises(DerivationError, match="num_local_experts"):
        count({**LLAMA, "num_local_experts": 8})


def test_sharing_the_tables_saves_exactly_one():
    apart, shared = (count({**LLAMA, "tie_word_embeddings": tied}) for tied in (False, True))
    assert apart.total - shared.total == apart.embedding == apart.head == 501 * 64
    assert shared.embedding == 0
    assert shared.multiplied == apart.multiplied


def test_one_more_expert_adds_one_block_a_layer_and_no_active_one():
    config = {**TINY, **MOE, "model_type": "mixtral", "num_local_experts": 4}
    fewer, more = count(config), count({**config, "num_local_experts": 5})
    router = TINY["hidden_size"]
    block = 3 * TINY["hidden_size"] * TINY["intermediate_size"]
    assert more.total - fewer.total == TINY["num_hidden_layers"] * (block + router)
    assert more.active - fewer.active == TINY["num_hidden_layers"] * router


def test_a_nested_file_counts_its_language_model():
    assert count({"text_config": LLAMA, "vision_config": {"hidden_size": 8}}) == count(LLAMA)
