"""A configuration becomes the layers it describes, or is refused by the field's name."""

from __future__ import annotations

from typing import Any

import pytest

from assay.errors import DerivationError
from assay.physics import attention, families

Configs = dict[str, dict[str, Any]]


def kinds(config: dict[str, Any]) -> dict[str, int]:
    return {kind: n for kind, n in attention.layout(config).count().items() if n}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama-3.1-8b", {"full": 32}),
        ("gpt-oss-20b", {"full": 12, "sliding": 12}),
        ("gemma3-27b-nested", {"full": 10, "sliding": 52}),
        ("gemma3n-e4b", {"full": 4, "sliding": 16, "shared": 15}),
        ("qwen3-next-80b", {"full": 12, "linear": 36}),
        ("jamba-v0.1", {"full": 4, "linear": 28}),
        ("nemotron-3-nano-30b", {"full": 6, "linear": 23, "none": 23}),
        ("nemotron-nas-49b", {"full": 49, "none": 31}),
        ("deepseek-v3", {"mla": 61}),
        ("hunyuan-large-cla", {"full": 32, "shared": 32}),
        ("starcoder2-7b", {"sliding": 32}),
        ("mllama", {"full": 32, "cross": 8}),
        ("llama4 nope", {"full": 12, "chunked": 36}),
    ],
)
def test_layers_are_counted_by_kind(configs: Configs, name: str, expected: dict[str, int]) -> None:
    assert kinds(configs[name]) == expected


def test_a_layer_with_attention_and_a_state_is_counted_in_both(configs: Configs) -> None:
    assert kinds(configs["falcon-h1-7b"]) == {"full": 44, "linear": 44}


def test_vision_parts_are_never_read(configs: Configs) -> None:
    plain = configs["qwen3-vl-8b"]
    vision = {"num_hidden_layers": 27, "hidden_size": 1152, "num_attention_heads": 16}
    assert attention.layout({**plain, "vision_config": vision}) == attention.layout(plain)


def test_the_language_model_is_found_inside_nested_parts(configs: Configs) -> None:
    inner = configs["llama-3.1-8b"]
    for outer in (
        {"llm_config": inner},
        {"language_config": inner},
        {"thinker_config": {"text_config": inner}},
    ):
        assert kinds(outer) == {"full": 32}


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("llama-3.1-8b", "num_hidden_layers"),
        ("llama-3.1-8b", "num_attention_heads"),
        ("llama-3.1-8b", "hidden_size"),
        ("qwen3-32b", "num_key_value_heads"),
        ("mixtral-8x7b", "num_key_value_heads"),
        ("deepseek-v3", "kv_lora_rank"),
        ("deepseek-v3", "qk_rope_head_dim"),
        ("gpt-oss-20b", "sliding_window"),
        ("jamba-v0.1", "attn_layer_period"),
        ("qwen3-next-80b", "full_attention_interval"),
        ("nemotron-3-nano-30b", "hybrid_override_pattern"),
        ("nemotron-nas-49b", "block_configs"),
        ("hunyuan-large-cla", "cla_share_factor"),
    ],
)
def test_a_file_without_a_deciding_field_is_refused(
    configs: Configs, name: str, field: str
) -> None:
    cut = {key: value for key, value in configs[name].items() if key != field}
    with pytest.raises(DerivationError):
        attention.layout(cut)


@pytest.mark.parametrize(
    "value", [-8, "8", True, 8.0, float("nan"), float("inf"), 10**30, [8], {"n": 8}]
)
@pytest.mark.parametrize("field", ["num_attention_heads", "num_key_value_heads", "head_dim"])
def test_a_value_that_is_no_size_is_refused_by_name(
    configs: Configs, field: str, value: object
) -> None:
    with pytest.raises(DerivationError, match=field):
        attention.layout({**configs["qwen3-32b"], field: value})


@pytest.mark.parametrize("field", ["num_attention_heads", "num_key_value_heads"])
def test_no_heads_at_all_is_refused(configs: Configs, field: str) -> None:
    with pytest.raises(DerivationError, match=field):
        attention.layout({**configs["qwen3-32b"], field: 0})


def test_heads_that_do_not_divide_are_refused(configs: Configs) -> None:
    with pytest.raises(DerivationError, match="not a multiple of num_key_value_heads"):
        attention.layout({**configs["qwen3-32b"], "num_key_value_heads": 7})


def test_an_unknown_kind_of_layer_is_refused_by_its_place(configs: Configs) -> None:
    words = list(configs["gpt-oss-20b"]["layer_types"])
    words[3] = "holographic_attention"
    with pytest.raises(DerivationError, match=r"layer_types\[3\]"):
        attention.layout({**configs["gpt-oss-20b"], "layer_types": words})


@pytest.mark.parametrize(
    "field",
    ["compress_ratios", "kv_compression_factor", "kv_latent_dim", "kv_sharing_map", "kv_rank"],
)
def test_a_field_that_announces_another_cache_is_refused(configs: Configs, field: str) -> None:
    with pytest.raises(DerivationError, match=field):
        attention.layout({**configs["llama-3.1-8b"], field: 4})


def test_a_family_without_a_name_is_read_by_its_class(configs: Configs) -> None:
    plain = dict(configs["opt"])
    del plain["model_type"]
    assert kinds({**plain, "architectures": ["OPTForCausalLM"]}) == {"full": 32}


def test_an_unknown_family_with_complete_fields_is_plain_attention(configs: Configs) -> None:
    found = attention.layout({**configs["llama-3.1-8b"], "model_type": "acme"})
    assert found.status == "ok"


def test_a_window_that_no_rule_places_is_an_upper_bound(configs: Configs) -> None:
    found = attention.layout(configs["unknown window"])
    assert found.status == "upper-bound"
    assert "sliding_window" in found.reason


def test_head_width_of_the_class_beats_hidden_over_heads(configs: Configs) -> None:
    assert attention.layout(configs["gemma3-12b"]).head_dim == families.HEAD_DIM["gemma3"]
