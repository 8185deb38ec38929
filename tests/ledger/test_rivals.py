"""Rivals: pairs that differ in the engine or the card alone, and how often one leads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from assay.errors import DerivationError
from assay.ledger import judge, rivals, store

THROUGHPUT = rivals.engines("SGLang", "vLLM")
ROWS = {row["row"]: row for row in store.published("measurements")}


@pytest.fixture(autouse=True)
def _staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(store.STAGING, str(tmp_path))


def _of(name: str, pairs: list[rivals.Pair]) -> rivals.Pair:
    (found,) = [pair for pair in pairs if pair.name == name]
    return found


def test_one_lab_ran_both_engines_seventeen_times_and_each_leads_in_several() -> None:
    # GPUStack's performance lab, pages as of 2026-08-21.
    mine = [pair for pair in THROUGHPUT if pair.group == "gpustack"]
    assert len(mine) == 17
    assert rivals.leads(mine)[0] == 10


def test_the_ratio_is_that_of_the_two_printed_rates_with_their_rounding() -> None:
    # GPUStack, Qwen3-32B on one A100: SGLang 672.56 and vLLM 832.43 tok/s.
    pair = _of("qwen3-32b, a100", THROUGHPUT)
    assert pair.ratio == pytest.approx(672.56 / 832.43)
    assert pair.low == pytest.approx(672.555 / 832.435)
    assert pair.high == pytest.approx(672.565 / 832.425)


def test_a_large_model_turns_the_order_from_one_card_to_the_other() -> None:
    assert _of("qwen3-235b-a22b, 8×a100", THROUGHPUT).ratio > 1
    assert _of("qwen3-235b-a22b, 8×h100", THROUGHPUT).ratio < 1


def test_pairs_share_producer_host_model_and_prompts() -> None:
    same = ("group", "source", "model", "gpu", "gpu_count", "workload", "concurrency", "metric")
    for pair in THROUGHPUT:
        if len(pair.rows) == 2:
            first, second = (ROWS[name] for name in pair.rows)
            assert [first[key] for key in same] == [second[key] for key in same]
            assert {first["engine"], second["engine"]} == {"SGLang", "vLLM"}


def test_swapping_the_engines_turns_every_ratio_over() -> None:
    swapped = {p.rows[::-1]: p.ratio for p in rivals.engines("vLLM", "SGLang", metric="ttft")}
    for pair in rivals.engines("SGLang", "vLLM", metric="ttft"):
        assert pair.ratio * swapped[pair.rows] == pytest.approx(1)


def test_a_pair_counts_once_whatever_the_rates_that_are_printed_of_it() -> None:
    places = [(p.name, p.group) for p in THROUGHPUT]
    assert len(places) == len(set(places))


def test_the_share_of_leads_has_wilsons_interval() -> None:
    # Wilson's formula by hand for 10 of 17 at z = 1.959964.
    n, k, z = 17, 10, 1.959964
    middle = (k + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * (k * (n - k) / n + z * z / 4) ** 0.5
    mine = [pair for pair in THROUGHPUT if pair.group == "gpustack"]
    assert rivals.leads(mine)[2:] == pytest.approx((middle - half, middle + half), rel=1e-5)


def test_nothing_to_count_is_said() -> None:
    with pytest.raises(DerivationError, match="no pair"):
        rivals.leads(rivals.engines("vLLM", "no such engine"))


def test_groups_of_the_lead_table_add_up_to_all_pairs() -> None:
    table = rivals.lead_table(THROUGHPUT, lambda pair: str(pair.conditions["model"]))
    assert sum(int(row["pairs"]) for row in table) == len(THROUGHPUT)
    assert sum(int(row["first leads"]) for row in table) == rivals.leads(THROUGHPUT)[0]


def test_cards_are_compared_under_one_engine_release_and_as_many_of_each() -> None:
    for pair in rivals.cards("a100", "h100"):
        first, second = (ROWS[name] for name in pair.rows)
        same = ("engine", "engine_version", "model", "precision", "gpu_count", "workload")
        assert [first[key] for key in same] == [second[key] for key in same]
        assert (first["gpu"][:4], second["gpu"][:4]) == ("a100", "h100")


def test_pairs_for_and_against_a_general_claim_are_recorded_and_one_against_decides() -> None:
    claim = store.claim("vllm-vs-sglang")
    text = "{name}: {ratio} ({source})."
    fair = [p for p in THROUGHPUT if p.group == "gpustack"]
    every = rivals.record(claim, "sglang-throughput", fair, finding=text, parameters={})
    found = judge.judge(claim, every).findings[0]
    assert len(every) == len(fair)
    assert (found.status, found.basis) == ("disputed", "published")
    kind = [e for e in every if e.estimate.value > 1]
    assert judge.judge(claim, kind).findings[0].status == "open"


def test_a_mix_of_prefill_and_decode_lies_between_their_two_ratios() -> None:
    claim = store.claim("a100-above-h100")
    pairs = [p for p in rivals.cards("a100", "h100") if p.group == "xiongjiedai"]
    saved = rivals.record_mix(claim, "one-card-ratio", pairs, parameters={})
    # README of XiongjieDai: A100 PCIe 726.65 and 22.11 tok/s, H100 PCIe 984.06 and 25.01.
    inputs, outputs = 512, 128
    older = inputs / 726.65 + outputs / 22.11
    newer = inputs / 984.06 + outputs / 25.01
    pcie = next(e for e in saved if "a100 pcie" in e.finding)
    low, high = pcie.estimate.low, pcie.estimate.high
    assert low is not None and high is not None
    assert low < newer / older < high < 1


def test_printed_rates_that_a_reading_allows_are_no_limits_business() -> None:
    claim, table = store.claim("a100-above-h100"), store.claim("deploybase-a100-table")
    rate = table.assertion("tensorrt-llm-rate")
    save = rivals.record_impossible
    assert not save(claim, "conditions-explain", [(rate, True)], inputs=[], parameters={})
    (against,) = save(claim, "conditions-explain", [(rate, False)], inputs=[], parameters={})
    assert judge.decide(claim.assertion("conditions-explain"), [against]).status == "disputed"


def test_a_score_without_unit_is_undecidable_and_agrees_with_everything() -> None:
    claim = store.claim("vllm-vs-sglang")
    saved = rivals.record_unscaled(claim, "total-score", parameters={})
    found = judge.decide(claim.assertion("total-score"), [saved])
    assert (found.status, found.reason) == ("open", "undecidable-as-stated")
    assert saved.estimate.low is None and saved.estimate.high is None


def test_every_finding_is_one_sentence() -> None:
    claim = store.claim("a100-above-h100")
    pairs = [p for p in rivals.cards("a100", "h100") if p.group == "xiongjiedai"]
    for item in rivals.record_mix(claim, "one-card-ratio", pairs, parameters={}):
        assert re.fullmatch(r"[^\n]+[^.\n]\.", item.finding)
