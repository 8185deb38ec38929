"""Two public calculators print what public threads say they print."""

from __future__ import annotations

from typing import Any

import pytest

from assay.physics import calculators, kv


@pytest.mark.parametrize(
    ("name", "printed"),
    # LMCache issues #688 and #2132: hidden / heads for the head width, MLA as 128 heads.
    [("qwen3-4b", 92_160), ("qwen3-32b", 163_840), ("deepseek-v3", 1_748_992)],
)
def test_lmcache_divides_the_hidden_size_by_the_heads(
    configs: dict[str, dict[str, Any]], name: str, printed: int
) -> None:
    assert calculators.lmcache(configs[name]) == printed


def test_gpu_poor_counts_every_query_head(configs: dict[str, dict[str, Any]]) -> None:
    # 8 KV heads for 128 query heads: 16 times too much.
    right = kv.report(configs["llama-3.1-405b"]).all_layers_bytes_per_token
    assert right is not None
    assert calculators.gpu_poor(configs["llama-3.1-405b"]) == 16 * right


@pytest.mark.parametrize("missing", ["num_hidden_layers", "hidden_size"])
def test_a_calculator_without_its_fields_has_no_answer(
    configs: dict[str, dict[str, Any]], missing: str
) -> None:
    config = {k: v for k, v in configs["llama-3.1-8b"].items() if k != missing}
    assert calculators.gpu_poor(config) is None
    assert calculators.lmcache(config) is None


# What vLLM's own specs corrected in our reading of a file.


def test_a_listed_window_as_long_as_the_context_bounds_nothing() -> None:
    # Olmo3Config of transformers 5.19.0 by default: a window of 4096 in a context of 2048.
    config: dict[str, object] = {
        "model_type": "olmo3",
        "num_hidden_layers": 4,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "sliding_window": 4096,
        "max_position_embeddings": 2048,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
    }
    found = kv.report(config, kv_dtype="bf16")
    assert found.growth_bytes_per_token == found.all_layers_bytes_per_token == 4 * 16_384
    longer = kv.report({**config, "max_position_embeddings": 4097}, kv_dtype="bf16")
    assert longer.growth_bytes_per_token == 16_384


def test_zamba_2_is_as_wide_as_attention_head_dim_says(
    configs: dict[str, dict[str, Any]],
) -> None:
    # Its files carry kv_channels too, half as wide: vLLM's zamba2.py reads attention_head_dim.
    plain = configs["zamba2-2.7b"]
    assert kv.report(plain) == kv.report({**plain, "kv_channels": 80})
