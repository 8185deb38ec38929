"""Published runs are picked by their conditions, and what is kept is what the twin says of them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from assay.bench import private
from assay.bench.twin import comparison, reference, steptime, tables
from assay.ledger import published, store

WHY_NOT = private.absent()
KEPT = {row["row"]: row for row in tables.read("published")}
CELLS = {cells["row"]: cells for cells in store.published("measurements")}
ROWS = {row.id: row for row in published.measurements()}

MAKE = """
import json, sys
from assay.bench.twin import reference, tables
print("MADE " + json.dumps(tables.text(list(reference.rows(*sys.argv[1:])))))
"""


def test_the_kept_rows_are_those_that_the_rule_takes_now() -> None:
    taken = [cells["row"] for cells in store.published("measurements") if not reference.why(cells)]
    assert sorted(KEPT) == sorted(taken)


def test_every_published_figure_of_vllm_is_compared_or_left_out_for_a_reason() -> None:
    figures = [cells for cells in CELLS.values() if "third party" not in reference.why(cells)]
    assert len(KEPT) + sum(reference.left_out().values()) == len(figures)
    assert {cells["engine"] for cells in figures} == {"vLLM"}


def test_what_set_a_share_tests_nothing() -> None:
    sources = {CELLS[row]["source"] for row in steptime.SET_BY}
    assert len(sources) == 2
    assert not sources & {row["source"] for row in KEPT.values()}


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("role", "claim", "no third party"),
        ("engine", "SGLang", "no third party"),
        ("engine_version", "", "version unstated"),
        ("gpu_count", "", "cards unstated"),
        ("precision", "w4a16", "number format"),
        ("output_tokens", "", "lengths unstated"),
        ("arm", "LMCache CPU 50 GB", "not the plain engine"),
        ("cached_share", "0.5", "come from a cache"),
        ("load", "one static batch", "in flight unstated"),
        ("model", "mistral-7b", "over the whole context"),
    ],
)
def test_a_row_with_a_condition_missing_is_left_out(column: str, value: str, reason: str) -> None:
    cells = CELLS["gpustack-h100-qwen3-8b-vllm-c4-output"]
    assert reference.why(cells) == ""
    assert reason in reference.why({**cells, column: value})


def test_the_value_of_a_row_decides_nothing() -> None:
    cells = CELLS["gpustack-h100-qwen3-8b-vllm-c4-output"]
    assert reference.why({**cells, "value": "1"}) == ""


def test_the_published_value_is_that_of_the_ledger() -> None:
    for name, row in KEPT.items():
        stated = ROWS[name]
        assert stated.value is not None
        assert stated.per == "deployment"
        assert float(row["published"]) == pytest.approx(stated.value, rel=1e-5)
        assert row["unit"] == stated.unit


def test_the_error_is_the_prediction_over_the_published_value_less_one() -> None:
    for row in KEPT.values():
        ratio = float(row["predicted"]) / float(row["published"])
        assert float(row["error"]) == pytest.approx(ratio - 1, rel=1e-5, abs=1e-5)


def test_stretched_lengths_have_the_means_that_the_source_states() -> None:
    for name, row in KEPT.items():
        assert float(row["prompt_tok"]) == pytest.approx(
            float(CELLS[name]["input_tokens"]), rel=2e-3
        )
        assert float(row["output_tok"]) == pytest.approx(
            float(CELLS[name]["output_tokens"]), rel=2e-3
        )


def test_the_defaults_are_those_that_vllm_itself_gives_these_cards() -> None:
    asked = {row["card"]: row for row in tables.read("budgets") if row["entry"] == "API server"}
    for card, shown in {
        "h100-sxm-80gb": "80 GiB, such as H100",
        "a100-sxm-80gb": "A100 of 80 GiB",
        "l40s": "48 GiB or less, such as L40S",
    }.items():
        flags = reference.told("0.11.0", store.hardware(card), 32768)
        assert flags.budget == int(asked[shown]["budget"])


def test_an_old_server_takes_whole_prompts() -> None:
    flags = reference.told("0.6.0", store.hardware("a100-sxm-80gb"), 8192)
    assert (flags.budget, flags.chunked, flags.prefix_caching) == (8192, False, False)


def test_the_errors_count_every_kept_figure_once() -> None:
    dense, few, experts = comparison.GROUPS
    rows = comparison.errors()
    counted = {g: sum(r["figures"] for r in rows if r["group"] == g) for g in comparison.GROUPS}
    assert counted[dense] + counted[experts] == len(KEPT) == len(comparison.scatter())
    assert 0 < counted[few] < counted[dense]
    assert all(row["lowest"] <= row["median"] <= row["highest"] for row in rows)
    assert {row["kind"] for row in rows} == {"throughput", "TTFT", "TPOT"}


def test_an_error_is_printed_with_its_sign() -> None:
    for row, said in zip(comparison.errors(), comparison.table(), strict=True):
        low, high = said["lowest to highest"].split(" to ")
        assert (low[0] == "-") == (row["lowest"] < 0)
        assert (high[0] == "-") == (row["highest"] < 0)
        assert said["figures"] == row["figures"]


@pytest.mark.engine
@pytest.mark.skipif(bool(WHY_NOT), reason=f"{WHY_NOT}: the scheduler cannot be driven")
def test_what_the_twin_predicts_now_is_what_is_kept() -> None:
    names = [
        "gpustack-4090-8b-random-1k-total-baseline",
        "gpustack-4090-8b-random-1k-ttft-baseline",
        "gpustack-h100-qwen3-8b-vllm-c4-tpot",
        "vllm-0.6-post-a100-70b-tp4-vllm-prefill-heavy",
    ]
    done = subprocess.run(
        [sys.executable, "-c", MAKE, *names], capture_output=True, text=True, timeout=540
    )
    line = next((x for x in done.stdout.splitlines() if x.startswith("MADE ")), None)
    assert line is not None, done.stderr[-2000:]
    made = json.loads(line.removeprefix("MADE ")).splitlines()
    kept = store.read_text(store.path("data", "twin", "published.csv")).splitlines()
    assert len(made) == 1 + len(names)
    assert set(made) <= set(kept)
