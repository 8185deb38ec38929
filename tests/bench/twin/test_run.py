"""The twin loses nothing, is the same twice, and keeps the laws that every queue keeps."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.bench import private
from assay.bench.results import vllm
from assay.bench.twin import run
from assay.ledger import store
from assay.physics import kv

WHY_NOT = private.absent()
pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(bool(WHY_NOT), reason=f"{WHY_NOT}: no scheduler to drive"),
]


@pytest.fixture(scope="module")
def served() -> dict[str, Any]:
    """All runs, made once."""
    return answer(sys.executable)


def answer(python: str, environment: dict[str, str] | None = None) -> dict[str, Any]:
    """Return what the runs give under an interpreter."""
    done = subprocess.run(
        [python, str(Path(__file__).with_name("served.py"))],
        capture_output=True,
        text=True,
        timeout=540,
        env=environment,
    )
    for line in done.stdout.splitlines():
        if line.startswith("ANSWER "):
            return dict(json.loads(line.removeprefix("ANSWER ")))
    raise AssertionError(done.stderr[-2000:])


def test_every_request_gets_exactly_the_tokens_it_asked_for(served: dict[str, Any]) -> None:
    found = served["conserved"]
    given = [list(pair) for pair in zip(found["prompt"], found["output"], strict=True)]
    assert given == found["asked"]


def test_tokens_computed_are_those_asked_for_unless_some_are_computed_again(
    served: dict[str, Any],
) -> None:
    found = served["conserved"]
    # The last token of a request is sampled and not computed.
    needed = sum(prompt + output - 1 for prompt, output in found["asked"])
    assert found["preemptions"] > 0
    assert found["computed"] == sum(found["tokens"]) > needed


def test_no_block_is_leaked_or_owned_twice(served: dict[str, Any]) -> None:
    found = served["conserved"]
    free, blocks = found["left"]
    assert found["wrong"] == []
    assert found["most"] > blocks // 2
    assert free == blocks - 1  # one is the engine's own


def test_the_clock_never_goes_back(served: dict[str, Any]) -> None:
    found = served["conserved"]
    assert all(a < b for a, b in itertools.pairwise(found["end"]))
    rows = zip(found["arrival"], found["first"], found["last"], strict=True)
    assert all(arrival < first <= last for arrival, first, last in rows)


def test_no_step_exceeds_what_the_engine_was_told(served: dict[str, Any]) -> None:
    assert max(served["conserved"]["tokens"]) <= 512
    assert max(served["conserved"]["running"]) <= 256


def test_littles_law_holds_within_one_percent(served: dict[str, Any]) -> None:
    found = served["little"]
    assert found["in_system"] == pytest.approx(found["rate"] * found["stay"], rel=0.01)
    assert found["in_system"] > 10


def test_the_same_inputs_give_the_same_bytes(served: dict[str, Any]) -> None:
    once, twice = served["twice"]
    assert once == twice


def test_a_tier_without_hits_changes_nothing(served: dict[str, Any]) -> None:
    without, with_tier = served["tiers"]["apart"]
    assert sum(with_tier["external"]) == 0
    assert with_tier == without


def test_a_tier_gives_back_prefixes_that_the_pool_has_lost(served: dict[str, Any]) -> None:
    none, free = served["tiers"]["again"]["none"], served["tiers"]["again"]["free"]
    assert sum(none["external"]) == 0 < sum(free["external"])
    assert free["loaded"] > 0
    assert free["rate"] > none["rate"]


def test_a_slow_link_is_worse_than_no_link(served: dict[str, Any]) -> None:
    again = served["tiers"]["again"]
    assert again["slow"]["rate"] < again["none"]["rate"]


def test_a_tier_too_small_for_the_prefixes_finds_less(served: dict[str, Any]) -> None:
    again = served["tiers"]["again"]
    assert sum(again["small"]["external"]) < sum(again["free"]["external"])


def test_chunks_shorten_the_gap_of_others_and_not_the_prompts_own_ttft(
    served: dict[str, Any],
) -> None:
    found = served["chunks"]
    assert found["narrow"]["gap"] < found["wide"]["gap"]
    assert found["narrow"]["ttft"] > found["whole"]["ttft"]


def test_a_closed_loop_keeps_its_number_in_flight(served: dict[str, Any]) -> None:
    assert served["closed"] == {"most": 5, "requests": 60}


def test_a_set_up_that_cannot_work_is_refused_in_a_sentence(served: dict[str, Any]) -> None:
    said = served["refused"]
    assert len(said) == 5
    assert "vLLM refuses the set-up" in said[0]
    assert "longer than 1024" in said[1]
    assert "without chunks" in said[2]
    assert "by their prefix" in said[3]
    assert all("Traceback" not in text for text in said)


def test_a_block_on_one_of_four_cards_is_a_quarter_of_our_figure(served: dict[str, Any]) -> None:
    found, config = served["big"], store.model("llama-3.1-70b").config
    each = kv.report(config).all_layers_bytes_per_token
    assert each is not None
    assert found["block_bytes"] == each * 16 // 4
    assert found["blocks"] == 10**10 // found["block_bytes"]


def test_the_result_reads_as_a_run_of_the_benchmark_client(served: dict[str, Any]) -> None:
    content = json.loads(served["twice"][0])
    found = vllm.serving(content)
    assert found.usable
    assert found.facts["label"] == run.LABEL
    assert found.facts["completed"] == len(content["ttfts"]) == 60
    assert found.get("ttft", "mean") == pytest.approx(content["mean_ttft_ms"] / 1e3)
    assert found.get("tpot", "mean") == pytest.approx(content["mean_tpot_ms"] / 1e3)
    assert found.get("output_rate") == pytest.approx(content["output_throughput"])


@pytest.mark.slow
def test_an_older_vllm_schedules_the_same(served: dict[str, Any]) -> None:
    older = os.environ.get("ASSAY_OLDER_PYTHON")
    if older is None:
        pytest.skip("ASSAY_OLDER_PYTHON is not set; tests/bench/twin/older.py makes an interpreter")
    there = answer(older, {**os.environ, "PYTHONPATH": str(store.path("src"))})
    # The wording of a refusal may change between releases, what is served may not.
    assert {**there, "refused": []} == {**served, "refused": []}
