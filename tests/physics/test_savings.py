"""What a design saves is two factors, and both follow from the configuration alone."""

from __future__ import annotations

from typing import Any

import pytest

from assay.errors import DerivationError
from assay.ledger import store
from assay.physics import kv, savings

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}


def model(name: str) -> dict[str, Any]:
    return dict(store.model(name).config)


@pytest.mark.parametrize("heads", [1, 2, 4, 8, 16, 32])
def test_grouped_heads_save_query_heads_over_kv_heads(heads: int) -> None:
    found = savings.of({**LLAMA, "num_key_value_heads": heads}, tokens=100)
    assert (found.heads, found.layers) == (32 / heads, 1)
    assert found.share == 1 - heads / 32


@pytest.mark.parametrize("tokens", [1, 4096, 10**6])
def test_grouped_heads_save_the_same_at_every_length(tokens: int) -> None:
    assert savings.of(LLAMA, tokens=tokens).factor == 4


def test_the_baseline_of_llama_2_70b_is_the_cache_of_64_heads() -> None:
    found = savings.of(model("llama-2-70b"), tokens=4096)
    assert found.multi_head_bytes == 2 * 80 * 64 * 128 * 2 * 4096
    assert (found.design, found.factor) == ("grouped heads", 8)


def test_a_latent_saves_as_much_as_two_and_a_quarter_grouped_heads() -> None:
    # DeepSeek-V2, arXiv:2405.04434, table 1: its cache equals that of GQA with 2.25 groups.
    found = savings.of(model("deepseek-v2"), tokens=4096)
    assert found.design == "latent"
    assert 128 / found.heads == 2.25


def test_deepseeks_printed_saving_is_that_of_a_cache_of_six_bits() -> None:
    # DeepSeek-V2 prints 93.3 % over DeepSeek 67B, which has grouped heads, with 6 bits a number.
    sizes = [
        kv.report(model(name), kv_dtype="bf16").all_layers_bytes_per_token
        for name in ("deepseek-v2", "deepseek-llm-67b")
    ]
    assert sizes[0] is not None
    assert sizes[1] is not None
    assert 1 - sizes[0] / sizes[1] == pytest.approx(0.822, abs=5e-4)
    assert 1 - sizes[0] / sizes[1] * 6 / 16 == pytest.approx(0.933, abs=5e-4)


def test_windows_save_more_the_longer_the_sequence() -> None:
    config = {
        **LLAMA,
        "model_type": "mistral",
        "sliding_window": 1024,
        "max_position_embeddings": 65536,
    }
    found = [savings.of(config, tokens=n) for n in (512, 1024, 2048, 8192)]
    assert [one.layers for one in found] == [1, 1, 2, 8]
    assert {one.heads for one in found} == {4}
    assert {one.design for one in found} == {"grouped heads + windows"}


def test_the_two_factors_multiply_to_the_whole() -> None:
    rows = store.read_json(store.path("data", "published", "kv_configs.json"))
    seen = 0
    for row in rows:
        try:
            found = savings.of(row["config"], tokens=32_768)
        except DerivationError:
            continue
        seen += 1
        assert found.heads * found.layers == pytest.approx(found.factor)
        assert found.share == pytest.approx(1 - 1 / found.factor)
        assert found.heads >= 1
    assert seen > 50


def test_a_file_that_does_not_determine_its_cache_is_refused() -> None:
    with pytest.raises(DerivationError, match="cannot derive"):
        savings.of({}, tokens=100)


def test_a_model_without_heads_has_nothing_to_compare_with() -> None:
    rows = store.read_json(store.path("data", "published", "kv_configs.json"))
    mamba = next(row["config"] for row in rows if row["model"] == "mamba-2.8b")
    with pytest.raises(DerivationError, match="no query heads"):
        savings.of(mamba, tokens=100)
