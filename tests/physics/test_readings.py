"""Readings of published rates, and the answer built from them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from assay.errors import InputError
from assay.ledger import store
from assay.physics import accelerator
from assay.physics.conditions import Conditions, ModelFacts
from assay.physics.possible import block_arithmetic, mfu_readings, possible
from assay.physics.precision import admissible
from assay.physics.rate import Rate, parse_rate

HARDWARE = Path(__file__).parents[2] / "data" / "hardware"
# Llama 2 70B: 80 layers, hidden 8192, 8 KV heads of 128, vocabulary 32,000 (config.json).
LLAMA_2_70B = ModelFacts(
    68_976_648_192, kv_per_token=327_680, embedding=32_000 * 8192, head=32_000 * 8192
)
LLAMA_3_70B = ModelFacts(
    70_553_706_496, kv_per_token=327_680, embedding=128_256 * 8192, head=128_256 * 8192
)
READING = [
    "precision",
    "counting",
    "gpus",
    "batch",
    "fits",
    "ceiling",
    "limited_by",
    "ratio",
    "possible",
]


def card(hardware_id: str) -> accelerator.Accelerator:
    content, _ = store.read_yaml(HARDWARE / f"{hardware_id}.yml")
    return accelerator.from_record({**content, "id": hardware_id})


def judge(words, model, hardware_id, **stated):
    return possible(parse_rate(words), model, card(hardware_id), Conditions(**stated))


DEPLOYBASE = {"gpus": 1, "inputs": 512, "outputs": 128, "concurrency": 32}


@pytest.mark.parametrize("model", [LLAMA_2_70B, ModelFacts(70.55e9)])
def test_3500_output_tokens_on_one_a100_are_impossible_in_every_precision(model):
    answer = judge("3500 tok/s", model, "a100-sxm-80gb", **DEPLOYBASE)
    output = [r for r in answer["readings"] if r["counting"] == "output"]
    assert output
    assert not any(r["possible"] for r in output)


def test_3500_tokens_in_bf16_on_one_a100_are_impossible_however_counted():
    answer = judge("3500 tok/s", LLAMA_2_70B, "a100-sxm-80gb", precision="bf16", **DEPLOYBASE)
    assert answer["status"] == "impossible"
    assert {r["limited_by"] for r in answer["readings"]} == {"memory"}
    assert answer["needs"]["devices_by_counting"]["total"] == 2


def test_needs_names_the_least_cards_that_would_do():
    answer = judge("3500 tok/s", LLAMA_2_70B, "a100-sxm-80gb", counting="output", **DEPLOYBASE)
    least = answer["needs"]["devices"]
    assert answer["status"] == "impossible"
    for gpus, status in ((least - 1, False), (least, True)):
        again = judge(
            "3500 tok/s",
            LLAMA_2_70B,
            "a100-sxm-80gb",
            counting="output",
            **{**DEPLOYBASE, "gpus": gpus},
        )
        assert any(r["possible"] for r in again["readings"]) is status


def test_a_reading_has_exactly_the_documented_fields_and_is_json():
    answer = judge("3500 tok/s", LLAMA_2_70B, "a100-sxm-80gb")
    assert list(answer) == ["status", "readings", "needs", "warnings", "unstated"]
    assert all(list(r) == READING for r in answer["readings"])
    json.dumps(answer, allow_nan=False)


def test_unstated_devices_and_counting_are_enumerated_and_said():
    answer = judge("3500 tok/s", LLAMA_2_70B, "a100-sxm-80gb")
    assert {r["gpus"] for r in answer["readings"]} == {1, 2, 4, 8}
    assert {r["counting"] for r in answer["readings"]} == {"output", "total"}
    said = " ".join(answer["unstated"])
    for word in ("devices", "counting", "precision", "concurrency", "input length"):
        assert word in said


@pytest.mark.parametrize(
    ("concurrency", "rate", "status"),
    [(50, 2100, "possible"), (10, 650, "impossible"), (1, 120, "impossible")],
)
def test_of_the_h100_rows_only_the_one_at_50_requests_is_possible(concurrency, rate, status):
    # spheron.network, Llama 3.3 70B FP8 on one H100 SXM, 512 in, 256 out.
    answer = judge(
        f"{rate} tok/s",
        LLAMA_3_70B,
        "h100-sxm-80gb",
        gpus=1,
        inputs=512,
        outputs=256,
        concurrency=concurrency,
        precision="fp8",
        counting="output",
    )
    assert answer["status"] == status
    if status == "impossible":
        assert answer["needs"]["batch"] > concurrency
        assert answer["needs"]["tokens_per_step"] > 1


@pytest.mark.parametrize(
    ("tok_s", "hardware_id", "share", "suspect"),
    [
        (171.5, "rtx-4090", 0.80, False),
        (100.7, "rtx-4090", 0.47, False),
        (6.203, "gb10", 0.106, True),
    ],
)
def test_a_slow_rate_is_possible_and_flagged_below_15_percent(tok_s, hardware_id, share, suspect):
    # paiml/aprender issue 2846: 4.68 GB read a token, one stream.
    model = ModelFacts(None, weights_read=4.68e9)
    answer = judge(f"{tok_s} tok/s", model, hardware_id, gpus=1, concurrency=1, counting="output")
    assert answer["status"] == "possible"
    assert answer["readings"][0]["ratio"] == pytest.approx(share, abs=5e-3)
    assert any("looks like a CPU path" in w for w in answer["warnings"]) is suspect


def test_a_copy_faster_than_memory_is_impossible_and_explained_by_the_cache():
    # mli/transformers-benchmarks issue 4: 4 Mi floats on an RTX 4090.
    answer = possible(
        parse_rate("3868.374 GB/s"),
        None,
        card("rtx-4090"),
        Conditions(),
        working_set=4_194_304 * 4,
    )
    assert answer["status"] == "impossible"
    assert answer["readings"][0]["ratio"] == pytest.approx(3.84, abs=5e-3)
    assert "fit in the 72.00 MiB cache" in answer["warnings"][0]


def test_a_copy_below_the_memory_bandwidth_is_possible():
    answer = judge("1727.486 GB/s", None, "a800-pcie-80gb")
    assert answer["status"] == "possible"


def test_the_claimed_mfu_is_the_dense_one():
    # fms-fsdp issue 89: 46 % claimed; 48.5 % on the dense peak, 24.3 % on the sparse one.
    rows = {r["density"]: r["mfu"] for r in mfu_readings(9600 * 0.05e12, card("h100-sxm-80gb"))}
    assert rows == pytest.approx({"dense": 0.485, "sparse": 0.243}, abs=5e-4)


def test_an_mfu_above_one_is_impossible():
    assert judge("104 % MFU", None, "h100-sxm-80gb")["status"] == "impossible"


def test_2048_blocks_of_4_kib_are_8_mib():
    found = block_arithmetic(640e6, 2048, 4096)
    assert found["product"] == 8 * 2**20
    assert found["blocks_needed"] == 156_250


def test_without_a_batch_a_rate_beyond_one_stream_says_so():
    # An 8B model on an RTX 5070 Ti (896 GB/s): 4-bit weights allow 223 tok/s to one stream.
    answer = judge("300 tok/s", ModelFacts(8.03e9), "rtx-5070-ti", gpus=1, counting="output")
    assert answer["status"] == "possible"
    assert answer["needs"]["batch"] == 2
    assert any("a batch must be stated" in w for w in answer["warnings"])


def test_a_small_card_bounds_a_single_stream():
    # L4: 300 GB/s over 16.06 GB of 16-bit weights is 18.7 tok/s.
    answer = judge(
        "30 tok/s", ModelFacts(8.03e9), "l4", gpus=1, concurrency=1, precision="bf16",
        counting="output",
    )  # fmt: skip
    assert answer["status"] == "impossible"
    assert answer["readings"][0]["ceiling"] == pytest.approx(18.7, abs=0.05)


def test_a_rate_of_a_node_is_not_a_rate_of_a_gpu():
    # MLPerf Inference v4.1, eight H100, Llama 2 70B FP8 offline: 24,525 tok/s.
    stated = {"gpus": 8, "precision": "fp8", "counting": "output"}
    node = judge("24525 tok/s", LLAMA_2_70B, "h100-sxm-80gb", **stated)
    each = judge("24525 tok/s/GPU", LLAMA_2_70B, "h100-sxm-80gb", **stated)
    assert (node["status"], each["status"]) == ("possible", "impossible")
    assert any("whole deployment" in w for w in node["warnings"])


# Credible published one-card and multi-card rates: no ceiling may contradict them.
CREDIBLE = [
    # QServe README, one A100-80GB, Llama 2 70B, 1024 in, 512 out.
    ("419 tok/s", LLAMA_2_70B, "a100-sxm-80gb", 1, 1024, 512, 96, "w4a8", "output"),
    ("358 tok/s", LLAMA_2_70B, "a100-sxm-80gb", 1, 1024, 512, None, "w4a16", "output"),
    ("235 tok/s", LLAMA_2_70B, "a100-sxm-80gb", 1, 1024, 512, None, "w8a8", "output"),
    # TensorRT-LLM 0.17 performance overview, Llama 3.1 70B.
    ("2733.48 tok/s", LLAMA_3_70B, "a100-sxm-80gb", 4, 128, 128, None, "fp16", "output"),
    ("325.15 tok/s", LLAMA_3_70B, "a100-sxm-80gb", 4, 2048, 128, None, "fp16", "output"),
    # XiongjieDai GPU benchmarks, llama.cpp, one stream.
    ("22.11 tok/s", LLAMA_3_70B, "a100-pcie-80gb", 1, 0, 1024, 1, "q4_k_m", "output"),
    # LMDeploy 0.2.0 documentation, four A100, input and output counted.
    ("3467.969 tok/s", LLAMA_2_70B, "a100-sxm-80gb", 4, None, None, 256, "fp16", "total"),
    # NanoFlow README, eight A100, per card, input and output counted.
    ("1306 tok/s/GPU", LLAMA_3_70B, "a100-sxm-80gb", 8, 1024, 512, None, "fp16", "total"),
    # vLLM 0.6 post, four A100.
    ("11.9 req/s", LLAMA_3_70B, "a100-sxm-80gb", 4, 462, 16, None, "bf16", "requests"),
]


@pytest.mark.parametrize("row", CREDIBLE, ids=lambda r: r[0])
def test_a_credible_published_rate_is_possible(row):
    words, model, hardware_id, gpus, inputs, outputs, concurrency, precision, counting = row
    answer = judge(
        words,
        model,
        hardware_id,
        gpus=gpus,
        inputs=inputs,
        outputs=outputs,
        concurrency=concurrency,
        precision=precision,
        counting=counting,
    )
    assert answer["status"] == "possible"


def test_prefix_cache_hits_explain_a_rate_beyond_the_arithmetic():
    # GPUStack LMCache report, "All VRAM KV Cache Hit", 20K: RTX 4090, Qwen3-8B, the whole burst of
    # `vllm bench serve` at once, one prompt repeated.
    qwen = ModelFacts(
        8_190_735_360, kv_per_token=147_456, embedding=151_936 * 4096, head=151_936 * 4096
    )
    stated = {
        "gpus": 1,
        "inputs": 20_000,
        "outputs": 128,
        "precision": "bf16",
        "counting": "total",
    }
    miss = judge("317543.74 tok/s", qwen, "rtx-4090", **stated)
    hit = judge("317543.74 tok/s", qwen, "rtx-4090", cached=1.0, **stated)
    assert miss["status"] == "impossible"
    assert any("prefix cache" in w for w in miss["warnings"])
    assert hit["status"] == "possible"


def test_a_model_that_does_not_fit_names_memory_and_host_offload():
    answer = judge("2 tok/s", LLAMA_2_70B, "rtx-4090", gpus=1, counting="output")
    assert answer["status"] == "impossible"
    assert {r["limited_by"] for r in answer["readings"]} == {"memory"}
    assert any("host memory" in w for w in answer["warnings"])


def test_time_per_token_is_bounded_by_one_pass_over_the_weights():
    slow, fast = (
        judge(f"{ms} ms TPOT", ModelFacts(70.55e9), "h100-sxm-80gb", gpus=1, precision="fp8")
        for ms in (22, 20)
    )
    assert (slow["status"], fast["status"]) == ("possible", "impossible")
    assert slow["readings"][0]["ceiling"] == pytest.approx(70.55 / 3350, rel=1e-6)


def test_time_to_first_token_is_bounded_by_prefill_arithmetic():
    stated = {"gpus": 4, "inputs": 2048, "precision": "fp16"}
    # TensorRT-LLM documentation: 377 ms for 2,048 tokens, 70B on four A100.
    assert judge("377 ms TTFT", LLAMA_2_70B, "a100-sxm-80gb", **stated)["status"] == "possible"
    assert judge("100 ms TTFT", LLAMA_2_70B, "a100-sxm-80gb", **stated)["status"] == "impossible"


def test_a_mixture_is_judged_by_its_active_weights():
    dense = judge("100 tok/s", ModelFacts(30e9), "l40s", gpus=1, concurrency=1, precision="fp8",
                  counting="output")  # fmt: skip
    mixture = judge("100 tok/s", ModelFacts(30e9, active=3e9), "l40s", gpus=1, concurrency=1,
                    precision="fp8", counting="output")  # fmt: skip
    assert (dense["status"], mixture["status"]) == ("impossible", "possible")


def test_speculation_raises_the_decode_ceiling_by_its_factor():
    stated = {"gpus": 1, "concurrency": 1, "precision": "fp8", "counting": "output"}
    one, two = (
        judge("1 tok/s", LLAMA_3_70B, "h100-sxm-80gb", tokens_per_step=k, **stated)["readings"][0]
        for k in (1.0, 2.0)
    )
    assert two["ceiling"] / one["ceiling"] == pytest.approx(2, rel=1e-3)


def test_four_bit_math_is_offered_only_where_the_chip_has_it():
    names = {
        hardware_id: {p.name for p in admissible(card(hardware_id), "any")}
        for hardware_id in ("a100-sxm-80gb", "h100-sxm-80gb", "b200-sxm-180gb")
    }
    assert "w4a4" in names["a100-sxm-80gb"]
    assert "w4a4" not in names["h100-sxm-80gb"]
    assert "nvfp4" in names["b200-sxm-180gb"]
    assert "fp8" not in names["a100-sxm-80gb"]


def test_fp8_on_a_chip_without_it_multiplies_in_16_bit():
    (fp8,) = admissible(card("a100-sxm-80gb"), "fp8")
    assert fp8.flops(card("a100-sxm-80gb")) == 312e12


@pytest.mark.parametrize(
    ("words", "rate"),
    [
        ("3,500 tok/s", Rate(3500.0, "tok/s", "throughput", False)),
        ("3500 tokens per second", Rate(3500.0, "tok/s", "throughput", False)),
        ("3618.7 tok/s/GPU", Rate(3618.7, "tok/s", "throughput", True)),
        ("1000 tokens/s per GPU", Rate(1000.0, "tok/s", "throughput", True)),
        ("8.6 req/s", Rate(8.6, "req/s", "throughput", False)),
        ("20 ms/tok", Rate(0.02, "s", "tpot", False)),
        ("20 ms ITL", Rate(0.02, "s", "tpot", False)),
        ("150 ms TTFT", Rate(0.15, "s", "ttft", False)),
        ("TTFT 150 ms", Rate(0.15, "s", "ttft", False)),
        ("46 % MFU", Rate(0.46, "1", "mfu", False)),
        ("3868.374 GB/s", Rate(3868.374e9, "B/s", "bandwidth", False)),
    ],
)
def test_a_rate_is_read_as_people_write_it(words, rate):
    read = parse_rate(words)
    assert read.value == pytest.approx(rate.value)
    assert (read.unit, read.metric, read.per_gpu) == (rate.unit, rate.metric, rate.per_gpu)


@pytest.mark.parametrize("words", ["fast", "3500", "150 ms", "0 tok/s", "-5 tok/s", "12 GB", "3 W"])
def test_a_figure_that_is_no_rate_is_refused_in_one_sentence(words):
    with pytest.raises(InputError) as error:
        parse_rate(words)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("words", "stated", "message"),
    [
        ("5 req/s", {"counting": "output"}, "does not suit"),
        ("5 tok/s", {"precision": "fp7"}, "unknown precision"),
    ],
)
def test_conditions_that_do_not_suit_the_rate_are_refused(words, stated, message):
    with pytest.raises(InputError, match=message):
        judge(words, LLAMA_2_70B, "l4", **stated)


@pytest.mark.parametrize(
    "stated",
    [
        {"gpus": 0},
        {"outputs": 0},
        {"concurrency": 0},
        {"cached": 1.5},
        {"inputs": -1},
        {"counting": "x"},
    ],
)
def test_conditions_that_no_run_can_have_are_refused(stated):
    with pytest.raises(InputError):
        Conditions(**stated)


def test_physics_imports_nothing_outside_the_standard_library():
    code = (
        "import sys; import assay.physics.possible; "
        "print(sorted({m.split('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(HARDWARE.parents[1] / "src")},
    )
    assert done.stdout.strip() in ("['__main__', 'assay']", "['assay']")
