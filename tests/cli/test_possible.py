"""`assay possible`, from the words on the command line to the JSON and the table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from assay import cli
from assay.errors import AssayError, InputError
from assay.ledger import facts, store
from assay.physics import parameters

BAR = (
    "3500 tok/s", "--model", "llama-2-70b", "--gpu", "a100-sxm-80gb", "--gpus", "1",
    "--input", "512", "--output", "128", "--concurrency", "32",
)  # fmt: skip


def run(*words: str) -> Any:
    done = CliRunner().invoke(cli.app, ["possible", *words, "--json"])
    if done.exception is not None:
        raise done.exception
    return json.loads(done.stdout)


def never(words: str) -> Mapping[str, object]:
    raise InputError(f"{words} names no file")


def test_3500_tokens_on_one_a100_are_impossible_where_the_claim_needs_them():
    answer = run(*BAR)
    assert set(answer) == {"status", "readings", "needs", "warnings", "unstated"}
    output = [r for r in answer["readings"] if r["counting"] == "output"]
    total_in_bf16 = [
        r for r in answer["readings"] if r["counting"] == "total" and r["precision"] == "bf16"
    ]
    assert output
    assert not any(r["possible"] for r in [*output, *total_in_bf16])
    assert answer["needs"]["devices_by_counting"]["output"] > 1
    assert answer["status"] == "depends"  # INT8 and 4-bit arithmetic allow it, counting the input


@pytest.mark.parametrize("stated", [("--counting", "output"), ("--precision", "bf16")])
def test_it_is_impossible_outright_once_one_of_the_two_is_stated(stated):
    answer = run(*BAR, *stated)
    assert answer["status"] == "impossible"
    assert answer["needs"]["devices"] >= 2


def test_a_rate_per_card_differs_from_the_deployment_rate():
    node = run("8000 tok/s", "--model", "llama-2-70b", "--gpu", "h100-sxm-80gb", "--gpus", "8",
               "--precision", "fp8", "--counting", "total")  # fmt: skip
    card = run("8000 tok/s/GPU", "--model", "llama-2-70b", "--gpu", "h100-sxm-80gb", "--gpus", "8",
               "--precision", "fp8", "--counting", "total")  # fmt: skip
    assert card["readings"][0]["ratio"] == pytest.approx(8 * node["readings"][0]["ratio"])


def test_an_id_reads_no_other_device(monkeypatch):
    read: list[str] = []
    whole = store.hardware
    monkeypatch.setattr(store, "hardware", lambda name: read.append(name) or whole(name))
    run(*BAR)
    assert read == ["a100-sxm-80gb"]


def test_a_driver_name_with_its_memory_finds_the_device():
    answer = run("50 tok/s", "--model", "8B", "--gpu", "NVIDIA H100 80GB HBM3, 81559 MiB")
    assert answer["readings"]


def test_a_memory_that_contradicts_the_name_is_refused():
    with pytest.raises(InputError, match="contradicts"):
        run("50 tok/s", "--model", "8B", "--gpu", "NVIDIA H100 80GB HBM3, 24576 MiB")


def test_a_copy_above_the_bandwidth_that_fits_the_cache_says_so():
    # A user's benchmark of 4,194,304 floats on an RTX 4090 (72 MiB of L2).
    words = ("3868.374 GB/s", "--gpu", "rtx-4090", "--working-set", "16 MiB")
    answer = run(*words)
    assert answer["status"] == "impossible"
    assert "cache" in answer["warnings"][0]
    assert answer["readings"][0]["ratio"] == pytest.approx(3.84, abs=0.01)


def test_memory_the_engine_keeps_can_make_a_model_not_fit():
    words = (
        "5 tok/s",
        "--model",
        "7.5B",
        "--gpu",
        "rtx-4080",
        "--gpus",
        "1",
        "--precision",
        "bf16",
    )
    assert run(*words)["readings"][0]["fits"]
    assert not run(*words, "--overhead", "4 GB")["readings"][0]["fits"]


def test_stated_kv_bits_lower_a_ceiling_that_the_cache_limits():
    words = ("100 tok/s", "--model", "llama-2-7b", "--gpu", "a100-sxm-80gb", "--gpus", "1",
             "--input", "4000", "--output", "500", "--precision", "bf16",
             "--counting", "output")  # fmt: skip
    free, wide = run(*words), run(*words, "--kv-bits", "16")
    assert wide["readings"][0]["ceiling"] < free["readings"][0]["ceiling"]


# -- what --model may be -------------------------------------------------------------------------


def test_an_id_gives_the_record():
    assert facts.limits_of("llama-2-70b", never) == facts.limits(store.model("llama-2-70b"))


@pytest.mark.parametrize(
    ("words", "total", "active"),
    [
        ("70.55e9", 70.55e9, None),
        ("70B", 70e9, None),
        ("500m", 500e6, None),
        ("671e9:37e9", 671e9, 37e9),
        ("46.7B:12.9B", 46.7e9, 12.9e9),
    ],
)
def test_parameters_are_read_as_people_write_them(words, total, active):
    found = facts.limits_of(words, never)
    assert (found.parameters, found.active) == (total, active)
    assert found.kv_per_token is None


@pytest.mark.parametrize("words", ["8x7B", "30B-A3B", "70", "70B:", "7B:9B", "1e30"])
def test_a_name_or_a_slip_is_not_taken_for_a_size(words):
    with pytest.raises(AssayError, match=r".+"):
        facts.limits_of(words, never)


def test_bytes_read_replace_parameters():
    found = facts.limits_of("4.68 GB", never)
    assert (found.parameters, found.weights_read) == (None, 4.68e9)


def test_a_configuration_is_counted(tmp_path: Path):
    record = store.model("qwen3-30b-a3b")
    file = tmp_path / "config.json"
    file.write_text(json.dumps(dict(record.config)), encoding="utf-8")
    counted = parameters.count(record.config)
    found = facts.limits_of(str(file), _read)
    assert (found.parameters, found.active) == (counted.total, counted.active)
    assert found.multiplied == facts.limits(record).multiplied
    answer = run("50 tok/s", "--model", str(file), "--gpu", "l4", "--gpus", "1")
    assert answer["readings"]


def _read(name: str) -> Mapping[str, object]:
    content: dict[str, object] = json.loads(Path(name).read_text(encoding="utf-8"))
    return content


@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v3", "gpt-oss-120b", "glm-4.6"])
def test_the_input_table_of_a_mixture_is_left_out_once(name):
    # The record's active parameters already leave out the table that is looked up.
    record = store.model(name)
    assert facts.limits(record).multiplied == record.active_parameters


@pytest.mark.parametrize(
    "words",
    [
        ("fast", "--gpu", "l4"),
        ("3500 tok/s", "--gpu", "l4"),
        ("3500 tok/s", "--gpu", "no-such-card", "--model", "8B"),
        ("3500 tok/s", "--gpu", "l4", "--model", "no-such-model"),
        ("3500 tok/s", "--gpu", "l4", "--model", "8B", "--gpus", "0"),
        ("3500 tok/s", "--gpu", "l4", "--model", "8B", "--precision", "w2a2"),
        ("3500 tok/s", "--gpu", "l4", "--model", "8B", "--counting", "requests"),
        ("3500 tok/s", "--gpu", "l4", "--model", "8B", "--overhead", "2 tok"),
        ("3500 tok/s", "--gpu", "l4", "--model", "8B", "--cached", "1.5"),
    ],
)
def test_bad_input_is_an_error_with_exit_code_2(words):
    with pytest.raises(AssayError) as caught:
        run(*words)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


def test_the_table_for_people_names_the_status_and_the_need():
    done = CliRunner().invoke(cli.app, ["possible", *BAR])
    assert done.exit_code == 0
    assert "depends" in done.stdout
    assert "needs, counting output: at least" in done.stdout
