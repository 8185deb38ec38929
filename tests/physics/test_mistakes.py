"""A claimed size is answered with the slip that gives it, or with none."""

from __future__ import annotations

from typing import Any

import pytest

from assay.errors import InputError
from assay.physics import kv, mistakes

Configs = dict[str, dict[str, Any]]
LLAMA_2_70B = {
    "model_type": "llama",
    "num_hidden_layers": 80,
    "hidden_size": 8192,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "max_position_embeddings": 4096,
}


def test_every_known_wrong_figure_is_named(mistaken: dict[str, Any]) -> None:
    found = mistakes.explain(mistaken["wrong"], kv.report(mistaken["config"], kv_dtype="bf16"))
    assert found.verdict == "mistake", found.sentence
    assert found.reproduced_bytes == mistaken["wrong"]


def test_every_right_figure_is_a_match(growing: dict[str, Any]) -> None:
    found = mistakes.explain(growing["all"], kv.report(growing["config"], kv_dtype="bf16"))
    assert found.verdict == "match"


@pytest.mark.parametrize(
    ("name", "claim", "words"),
    [
        ("qwen2.5-7b", "1605632", ["query heads", "8 bits taken for 8 bytes"]),
        ("qwen3-32b-fp8-weights-only", "131072 B/token", ["weights' 8-bit format"]),
        ("deepseek-v3", "124928", ["latent doubled"]),
        ("deepseek-v3", "140,544 B", ["latent doubled"]),
        ("deepseek-v3", "1748992", ["MLA counted"]),
        ("mixtral-8x7b", "4194304", ["hidden size used as the head width"]),
        ("mixtral-8x7b", "4096 B per token", ["one layer taken for all"]),
        ("nemotron-nas-49b", "2621440", ["query heads", "no growing cache"]),
    ],
)
def test_the_slip_is_named(configs: Configs, name: str, claim: str, words: list[str]) -> None:
    found = mistakes.explain(claim, kv.report(configs[name]))
    assert found.verdict == "mistake", found.sentence
    assert len(found.mistakes) == len(words)
    for said, word in zip(found.mistakes, words, strict=True):
        assert word in said


@pytest.mark.parametrize(
    ("claim", "word"),
    [
        ("10.74 GB", "query heads"),
        ("2.62 MB per block", "only K"),
        ("5.0 MB per block", "units mixed up"),
        ("1.25 GB per sequence", "units mixed up"),
    ],
)
def test_claims_with_units_are_read_to_their_digits(claim: str, word: str) -> None:
    found = mistakes.explain(claim, kv.report(LLAMA_2_70B))
    assert word in found.mistakes[0]


def test_other_slips_that_give_the_same_figure_are_listed() -> None:
    found = mistakes.explain("2.62 MB per block", kv.report(LLAMA_2_70B))
    assert "weights' 8-bit format taken for the cache's" in found.alternatives


@pytest.mark.parametrize("claim", ["70 KB per token", "68.6 KB per token", "68.6 KiB", "70.3 kB"])
def test_kb_is_read_both_ways_and_the_exact_words_one_way(configs: Configs, claim: str) -> None:
    assert mistakes.explain(claim, kv.report(configs["deepseek-v3"])).verdict == "match"


def test_a_binary_figure_with_a_decimal_unit_is_no_match(configs: Configs) -> None:
    found = mistakes.explain("68.6 kB per token", kv.report(configs["deepseek-v3"]))
    assert found.verdict == "mistake"


def test_a_figure_that_nothing_gives_is_left_unexplained(configs: Configs) -> None:
    found = mistakes.explain("123457", kv.report(configs["llama-3.1-8b"]))
    assert (found.verdict, found.mistakes) == ("unexplained", ())
    assert "no named mistake reproduces" in found.sentence


def test_a_refused_model_explains_nothing(configs: Configs) -> None:
    found = mistakes.explain("88064", kv.report(configs["deepseek-v4-flash"]))
    assert found.verdict == "unexplained"


@pytest.mark.parametrize("claim", ["", "many", "5 parsecs", "-3 MB", "nan"])
def test_a_claim_that_is_no_size_is_refused(configs: Configs, claim: str) -> None:
    with pytest.raises(InputError):
        mistakes.explain(claim, kv.report(configs["llama-3.1-8b"]))
