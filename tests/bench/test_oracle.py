"""Our KV figures are vLLM's own, for every configuration that both accept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from assay.bench import agreement, oracle, private
from assay.errors import InputError
from assay.ledger import store
from assay.physics import calculators, kv

WHY_NOT = private.absent()
TABLE = store.published("kv_calculators")
CONFIGS = {name: config for name, _, config in agreement.configs()}

# vLLM changes its process for good (environment, threads, memory), so each is asked in another.
ASK = """
import dataclasses, json, sys
from assay.bench import agreement, oracle
asked = json.load(sys.stdin)
print("ANSWER " + json.dumps([dataclasses.asdict(x) for x in {expression}]))
"""


def ask(expression: str, asked: Any, seconds: float = 540) -> list[dict[str, Any]]:
    if WHY_NOT:
        pytest.skip(f"{WHY_NOT}, so the oracle cannot be asked")
    done = subprocess.run(
        [sys.executable, "-c", ASK.format(expression=expression)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=seconds,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    for line in done.stdout.splitlines():
        if line.startswith("ANSWER "):
            return list(json.loads(line.removeprefix("ANSWER ")))
    raise AssertionError(done.stderr[-2000:])


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, Any]]:
    """Every configuration of the comparison, asked now."""
    answers = ask("agreement.compare(asked)", list(CONFIGS.items()))
    return {row["model"]: row for row in answers}


# -- the committed table, without an engine --------------------------------------------------------


def test_the_table_has_every_configuration_once_and_in_order() -> None:
    assert [row["model"] for row in TABLE] == list(CONFIGS)


def test_the_table_compares_at_least_forty_architectures() -> None:
    settled = {row["model_type"] for row in TABLE if row["verdict"] in ("agree", "documented")}
    assert len(settled) >= 40


@pytest.mark.parametrize("row", TABLE, ids=[row["model"] for row in TABLE])
def test_a_row_of_the_table_holds_what_we_and_the_calculators_say_now(row: dict[str, str]) -> None:
    config = CONFIGS[row["model"]]
    ours = kv.report(config, kv_dtype="bf16")
    now = [
        ours.all_layers_bytes_per_token,
        ours.growth_bytes_per_token,
        ours.bounded_bytes_per_sequence,
        calculators.gpu_poor(config),
        calculators.lmcache(config),
    ]
    columns = ("ours", "ours_growth", "ours_bounded", "gpu_poor", "lmcache")
    assert [row[column] for column in columns] == ["" if n is None else str(n) for n in now]


def test_no_row_of_the_table_differs_without_a_documented_reason() -> None:
    assert [row["model"] for row in TABLE if row["verdict"] == "differ"] == []


def test_agreement_means_three_equal_figures() -> None:
    for row in TABLE:
        same = all(
            row[f"ours{part}"] == row[f"oracle{part}"] for part in ("", "_growth", "_bounded")
        )
        assert same == (row["verdict"] == "agree"), row["model"]


def test_every_configuration_names_its_source() -> None:
    assert [name for name, source, _ in agreement.configs() if not source.strip()] == []


def test_each_documented_difference_is_seen_in_the_table() -> None:
    seen = {row["model_type"] for row in TABLE if row["verdict"] == "documented"}
    assert seen == set(agreement.DOCUMENTED)


# -- the engine itself -----------------------------------------------------------------------------


@pytest.mark.engine
@pytest.mark.slow
def test_no_configuration_differs_from_the_engine_without_a_documented_reason(
    rows: dict[str, dict[str, Any]],
) -> None:
    assert {name: row["why"] for name, row in rows.items() if row["verdict"] == "differ"} == {}


@pytest.mark.engine
@pytest.mark.slow
def test_the_committed_table_is_what_the_engine_says(rows: dict[str, dict[str, Any]]) -> None:
    versions = {row["version"] for row in TABLE}
    if {row["version"] for row in rows.values()} != versions:
        pytest.skip(f"the table is of version {', '.join(versions)}; another one is installed")
    fields = ("verdict", "oracle", "oracle_growth", "oracle_bounded", "parameters")
    now = {
        name: ["" if row[f] is None else str(row[f]) for f in fields] for name, row in rows.items()
    }
    assert now == {row["model"]: [row[f] for f in fields] for row in TABLE}


@pytest.mark.engine
@pytest.mark.slow
def test_one_gpu_of_several_holds_what_the_engine_says() -> None:
    wanted = (
        ("llama-3.1-8b", 2),
        ("llama-3.1-8b", 32),
        ("deepseek-v3", 8),
        ("qwen3-next-80b", 2),
        ("gemma2-9b", 4),
        ("jamba-v0.1", 2),
        ("falcon-180b", 8),
    )
    asked = [(CONFIGS[name], tp) for name, tp in wanted]
    answers = ask("[oracle.specs(config, tp=tp) for config, tp in asked]", asked)
    keys = ("all_layers_bytes_per_token", "growth_bytes_per_token", "bounded_bytes_per_sequence")
    theirs = [[answer[key] for key in keys] for answer in answers]
    ours = [kv.report(config, tp=tp, kv_dtype="bf16").per_gpu for config, tp in asked]
    assert theirs == [[each[key] for key in keys] for each in ours]


@pytest.mark.engine
def test_an_eight_bit_cache_is_half_as_large_for_the_engine_too() -> None:
    names = ("llama-3.1-8b", "deepseek-v3")
    answers = ask("[oracle.specs(x, kv_dtype='fp8') for x in asked]", [CONFIGS[n] for n in names])
    ours = [kv.report(CONFIGS[n], kv_dtype="fp8").all_layers_bytes_per_token for n in names]
    assert [answer["all_layers_bytes_per_token"] for answer in answers] == ours


@pytest.mark.engine
def test_a_refusal_is_an_answer_with_its_reason() -> None:
    nobody, nothing, sparse = ask(
        "[oracle.specs(x) for x in asked]",
        [{"model_type": "acme"}, {}, CONFIGS["glm-5.2"]],
    )
    assert "acme" in nobody["reason"]
    assert nothing["reason"]
    assert "Sparse Attention" in sparse["reason"]


@pytest.mark.engine
def test_a_context_of_ten_million_tokens_does_not_fill_the_memory() -> None:
    llama4 = {**CONFIGS["llama-3.1-8b"], "max_position_embeddings": 10_485_760}
    done = ask("[oracle.specs(asked)]", llama4)
    assert done[0]["all_layers_bytes_per_token"] == 131072


def test_without_the_engine_the_oracle_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "version", lambda: None)
    with pytest.raises(InputError, match="vLLM is not installed"):
        oracle.specs({"model_type": "llama"})


def test_an_unknown_version_of_the_engine_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(private, "version", lambda: ("vllm", "0.99.0"))
    assert private.absent() == (
        "vllm 0.99.0 is installed; its internals are known here for 0.31, 0.32, 0.33 only"
    )
