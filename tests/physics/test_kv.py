"""The three KV figures, per GPU and at a length, and what fits in memory."""

from __future__ import annotations

from typing import Any

import pytest

from assay.errors import InputError
from assay.physics import kv

Configs = dict[str, dict[str, Any]]
KEYS = {
    "status",
    "reason",
    "model_type",
    "layers",
    "kv_dtype",
    "kv_dtype_source",
    "all_layers_bytes_per_token",
    "growth_bytes_per_token",
    "bounded_bytes_per_sequence",
    "per_gpu",
    "bytes_at",
    "assumptions",
    "warnings",
}
MIB, GIB = 2**20, 2**30


def test_every_model_has_its_known_figures(known_shape: dict[str, Any]) -> None:
    found = kv.report(known_shape["config"], kv_dtype="bf16")
    assert found.status == known_shape["status"], found.reason
    known = {
        "all": found.all_layers_bytes_per_token,
        "growth": found.growth_bytes_per_token,
        "bounded": found.bounded_bytes_per_sequence,
    }
    refused = known_shape["status"] == "refused"
    checked = {k: v for k, v in known.items() if refused or known_shape[k] is not None}
    assert checked == {k: known_shape[k] for k in checked}


def test_the_answer_has_exactly_its_keys(known_shape: dict[str, Any]) -> None:
    found = kv.answer(known_shape["config"], tokens=8192)
    assert found.keys() == KEYS
    assert found["per_gpu"].keys() == {"tp", "pp", *kv.sums.NUMBERS}  # type: ignore[attr-defined]
    assert found["bytes_at"].keys() == {"tokens", "sequences", "all_layers", "capped"}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "config"),
    [("empty", {}), ("a list", []), ("V4", {"num_hidden_layers": 4, "compress_ratios": [4]})],
)
def test_a_refusal_has_a_reason_and_no_number(name: str, config: Any) -> None:
    found = kv.report(config)
    assert found.status == "refused"
    assert found.reason.startswith("cannot derive")
    assert found.all_layers_bytes_per_token is None
    assert found.bytes_at["all_layers"] is None


# Gemma 3: MiB at 16 bits, windows capped (hand-checked in two public tests).
@pytest.mark.parametrize(
    ("name", "tokens", "capped", "full"),
    [
        ("gemma3-27b-nested", 8_000, 1041.0, 3875.0),
        ("gemma3-27b-nested", 32_000, 2916.0, 15500.0),
        ("gemma3-27b-nested", 128_000, 10416.0, 62000.0),
        ("gemma3n-e4b", 8_000, 78.5, None),
        ("gemma3n-e4b", 32_000, 266.0, None),
        ("gemma3n-e4b", 128_000, 1016.0, None),
    ],
)
def test_windows_are_capped_at_a_length(
    configs: Configs, name: str, tokens: int, capped: float, full: float | None
) -> None:
    found = kv.report(configs[name], tokens=tokens).bytes_at
    assert found["capped"] == capped * MIB
    assert full is None or found["all_layers"] == full * MIB


def test_sliding_layers_are_neither_dropped_nor_full(configs: Configs) -> None:
    # alvarobartt/hf-mem #60: 32 sequences of 8,192 tok are 6.09375 GiB capped and 12 GiB full.
    found = kv.report(configs["gpt-oss-20b"], tokens=8192, sequences=32).bytes_at
    assert (found["capped"], found["all_layers"]) == (6.09375 * GIB, 12 * GIB)


def test_a_pure_window_model_stops_growing(configs: Configs) -> None:
    at = [kv.report(configs["starcoder2-7b"], tokens=n).bytes_at["capped"] for n in (4096, 16384)]
    assert at == [256 * MIB, 256 * MIB]


@pytest.mark.parametrize(("tp", "expected"), [(2, 15_360), (4, 15_360), (8, 15_360)])
def test_kv_heads_are_copied_when_there_are_more_gpus(
    configs: Configs, tp: int, expected: int
) -> None:
    found = kv.report(configs["qwen3.5-397b-a17b"], tp=tp)
    assert found.per_gpu["all_layers_bytes_per_token"] == expected


def test_copies_are_counted_over_the_cluster(configs: Configs) -> None:
    said = " ".join(kv.report(configs["qwen3.5-397b-a17b"], tp=8).warnings)
    assert "122,880 B/token" in said


@pytest.mark.parametrize("tp", [8, 32])
def test_one_kv_head_a_gpu_is_the_least(configs: Configs, tp: int) -> None:
    assert kv.report(configs["llama-3.1-8b"], tp=tp).per_gpu["all_layers_bytes_per_token"] == 16_384


@pytest.mark.parametrize("tp", [1, 2, 8, 64])
def test_the_mla_latent_is_not_split(configs: Configs, tp: int) -> None:
    assert kv.report(configs["deepseek-v3"], tp=tp).per_gpu["all_layers_bytes_per_token"] == 70_272


@pytest.mark.parametrize(("name", "tp"), [("llama-3.1-8b", 3), ("falcon-7b", 2), ("jamba-v0.1", 5)])
def test_heads_that_tp_does_not_divide_are_refused(configs: Configs, name: str, tp: int) -> None:
    assert kv.report(configs[name], tp=tp).status == "refused"


def test_the_fullest_pipeline_stage_counts(configs: Configs) -> None:
    # 61 layers on 4 stages are 15, 15, 16 and 15 in vLLM 0.32.
    found = kv.report(configs["deepseek-v3"], pp=4)
    assert found.per_gpu["all_layers_bytes_per_token"] == 16 * 576 * 2


def test_more_stages_than_layers_are_refused(configs: Configs) -> None:
    assert kv.report(configs["llama-3.1-8b"], pp=33).status == "refused"


def test_states_are_split_over_gpus_as_the_engine_does(configs: Configs) -> None:
    alone = kv.report(configs["qwen3-next-80b"]).per_gpu["bounded_bytes_per_sequence"]
    split = kv.report(configs["qwen3-next-80b"], tp=2).per_gpu["bounded_bytes_per_sequence"]
    assert alone == 77_266_944  # 77.3 MB, vLLM 0.32 KV specs
    assert split == alone / 2


@pytest.mark.parametrize(
    ("block", "word", "source", "total"),
    [
        ({"quant_method": "fp8"}, "bf16", "assumed", 262_144),
        ({"quant_algo": "FP8", "kv_cache_scheme": "FP8"}, "fp8", "config", 131_072),
        ({"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8", "config", 131_072),
        ({"kv_cache_scheme": {"num_bits": 8, "type": "int"}}, "int8", "config", 131_072),
        ({"quantization": {"kv_cache_quant_algo": "FP8"}}, "fp8", "config", 131_072),
        ({"quantization": {"kv_cache_quant_algo": "NVFP4"}}, "nvfp4", "config", 73_728),
        ({"kv_cache_scheme": None}, "bf16", "assumed", 262_144),
    ],
)
def test_the_cache_format_is_read_from_where_it_is_said(
    configs: Configs, block: dict[str, Any], word: str, source: str, total: int
) -> None:
    found = kv.report({**configs["qwen3-32b"], "quantization_config": block})
    assert (found.kv_dtype, found.kv_dtype_source) == (word, source)
    assert found.all_layers_bytes_per_token == total


def test_a_file_beside_the_config_may_name_the_format(configs: Configs) -> None:
    merged = {
        **configs["llama-3.1-8b"],
        "hf_quant_config": {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}},
    }
    assert kv.report(merged).kv_dtype_source == "config"


def test_an_unknown_format_in_the_file_is_refused_unless_given(configs: Configs) -> None:
    odd = {**configs["qwen3-32b"], "quantization_config": {"kv_cache_scheme": "FP3"}}
    assert kv.report(odd).status == "refused"
    assert kv.report(odd, kv_dtype="bf16").status == "ok"


def test_a_float32_checkpoint_is_cached_at_16_bits(configs: Configs) -> None:
    found = kv.report({**configs["llama-3.1-8b"], "torch_dtype": "float32"})
    assert (found.all_layers_bytes_per_token, found.kv_dtype_source) == (131_072, "assumed")


def test_the_cache_format_does_not_change_states(configs: Configs) -> None:
    found = [kv.report(configs["jamba-v0.1"], kv_dtype=d) for d in ("bf16", "fp8")]
    assert found[0].bounded_bytes_per_sequence == found[1].bounded_bytes_per_sequence


@pytest.mark.parametrize(
    "options",
    [{"tp": 0}, {"pp": -1}, {"tokens": -5}, {"sequences": 0}, {"block_size": 0}, {"kv_dtype": "x"}],
)
def test_an_option_that_cannot_be_used_is_the_persons_error(
    configs: Configs, options: dict[str, Any]
) -> None:
    with pytest.raises(InputError):
        kv.report(configs["llama-3.1-8b"], **options)


def test_lengths_are_rounded_up_to_whole_blocks(configs: Configs) -> None:
    found = kv.report(configs["llama-3.1-8b"], tokens=17, block_size=16).bytes_at
    assert found["all_layers"] == 32 * 131_072


def test_capacity_keeps_the_null_block_back(configs: Configs) -> None:
    found = kv.report(configs["llama-3.1-8b"], tokens=8192, block_size=16)
    held = kv.capacity(found, GIB)  # 512 blocks of 2 MiB
    assert (held.blocks, held.reserved_blocks, held.tokens_all_layers) == (512, 1, 511 * 16)
    assert held.sequences_all_layers == 0
    assert not held.fits


def test_negative_memory_does_not_fit_and_gives_no_negative_count(configs: Configs) -> None:
    held = kv.capacity(kv.report(configs["llama-3.1-8b"], tokens=8192), -2.14 * GIB)
    assert not held.fits
    assert held.tokens_all_layers == 0


def test_the_rank_with_least_memory_limits(configs: Configs) -> None:
    found = kv.report(configs["llama-3.1-8b"], tokens=8192)
    assert kv.capacity(found, [40 * GIB, 20 * GIB]) == kv.capacity(found, 20 * GIB)


def test_the_least_of_the_ranks_is_the_capacity() -> None:
    # vllm #15928: five workers of one group.
    ranks = [107_824, 107_456, 107_312, 107_344, 107_392]
    least, times = kv.least_capacity(ranks, 32_768)
    assert (least, round(times, 2)) == (107_312, 3.27)


def test_no_attention_means_no_limit_by_tokens(configs: Configs) -> None:
    held = kv.capacity(kv.report(configs["mamba-2.8b"], tokens=8192), GIB)
    assert held.tokens_all_layers is None
    assert held.sequences_capped == GIB // 22_937_600
