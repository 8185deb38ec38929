"""What is said of chunks and shared blocks follows from the tables."""

from __future__ import annotations

import pytest

from assay.bench import chunking, prefill
from assay.ledger import store

ONE = "llama-3.1-8b on 1 x h100-sxm-80gb"
LARGE = "llama-3.1-70b on 4 x a100-sxm-80gb"


def test_2048_is_the_answer_in_one_of_the_four_cells_of_the_published_rule() -> None:
    # vllm/engine/arg_utils.py, get_batch_defaults, before the class of 160 GiB was added.
    cells = {
        row["place"]: row["tokens"]
        for row in chunking.budgets()
        if row["source"] == "asked" and ("H100" in row["place"] or "L40S" in row["place"])
    }
    assert sorted(cells.values()) == [2048, 8192, 8192, 16384]


def test_asked_and_documented_defaults_do_not_contradict_each_other() -> None:
    rows = chunking.budgets()
    stated = {r["tokens"] for r in rows if r["source"] == "vllm-arg-utils"}
    assert stated <= {r["tokens"] for r in rows if r["source"] == "asked"}


def test_the_published_prefill_of_four_a100_is_predicted_within_a_tenth() -> None:
    # NVIDIA, TensorRT-LLM performance of v0.5: LLaMA 70B on four A100, 2,048 tokens, 377 ms.
    assert prefill.at(prefill.curve(LARGE, budget=2048), 2048) == pytest.approx(0.377, rel=0.1)


def test_predictions_and_published_prefills_lie_within_a_third_of_each_other() -> None:
    curve = prefill.curve(ONE, budget=16384)
    alone = [(r, arm) for r, arm in prefill.printed(8192) if r.source == "vllm-blog-2026-01-08"]
    assert len(alone) == 4
    for row, _ in alone:
        assert row.inputs is not None
        assert prefill.at(curve, row.inputs) == pytest.approx(row.value, rel=0.34)


def test_no_prediction_is_below_the_floor() -> None:
    for tokens, seconds in prefill.curve(ONE, budget=16384):
        assert seconds > prefill.floor("llama-3.1-8b", "h100-sxm-80gb", int(tokens))


def test_the_longest_prompt_within_a_time_is_at_its_floor() -> None:
    longest = prefill.longest_within("llama-3.1-8b", "h100-sxm-80gb", 0.4)
    assert prefill.floor("llama-3.1-8b", "h100-sxm-80gb", longest) <= 0.4
    assert prefill.floor("llama-3.1-8b", "h100-sxm-80gb", longest + 200) > 0.4


def test_a_smaller_budget_shortens_the_wait_of_others_and_lengthens_the_prompts_own() -> None:
    rows = chunking.interference(ONE)
    gaps, own = [r["gap"] for r in rows], [r["ttft"] for r in rows]
    assert gaps == sorted(gaps)
    assert own == sorted(own, reverse=True)


def test_most_published_prefills_of_long_prompts_are_beyond_the_claimed_time() -> None:
    rows = prefill.printed(8192)
    assert len(prefill.beyond(rows, 0.4)) == len(rows) - 1


@pytest.mark.parametrize("claim", ["chunked-prefill-ttft", "prefix-cache-copy-on-write"])
def test_what_is_recorded_is_about_the_claim(
    claim: str, monkeypatch: pytest.MonkeyPatch, tmp_path: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv(store.STAGING, str(tmp_path))
    owner = store.claim(claim)
    saved = chunking.record(
        owner, set_up=ONE, least=8192, gpu="h100-sxm-80gb", model="llama-3.1-8b", parameters={}
    )
    assert {item.claim for item in saved} == {claim}
    assert not [item for item in saved if item.basis == "simulated"]
    values = {(item.assertion, item.basis): item.estimate.value for item in saved}
    if claim == "prefix-cache-copy-on-write":
        assert values == {("shares-prefix", "derived"): 1, ("copy-on-write", "derived"): 0}
    else:
        assert values["chunk-is-of-one-prompt", "derived"] == 0
        assert values["incremental-kv", "derived"] == 1
        assert values["ttft-200ms", "bound"] > 1
