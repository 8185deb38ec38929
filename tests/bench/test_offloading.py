"""Published effects of a host tier have both signs, and each pair is one load."""

from __future__ import annotations

import pytest

from assay.bench import offloading
from assay.ledger import store


def test_published_effects_have_both_signs() -> None:
    for metric in ("throughput", "ttft"):
        found = [effect.change[0] for effect in offloading.effects(metric)]
        assert min(found) < 0 < max(found)
        assert found == sorted(found)


def test_a_pair_has_one_source_one_load_and_one_length() -> None:
    for metric in ("throughput", "ttft"):
        for effect in offloading.effects(metric):
            one, other = effect.match.above, effect.match.below
            assert (one.source, one.workload, one.inputs, one.metric, one.counting) == (
                other.source,
                other.workload,
                other.inputs,
                other.metric,
                other.counting,
            )


def test_changes_are_those_the_sources_print() -> None:
    # GPUStack prints the change of TTFT beside the two times: 15.0 % and -58.8 %.
    found = {e.label: e.change[0] for e in offloading.effects("ttft") if "RTX 4090" in e.label}
    assert round(100 * found["Qwen3-8B, RTX 4090: 8192 tokens, random, no reuse"], 1) == 15.0
    turns = "Qwen3-8B, RTX 4090: 20000 tokens, multi-turn conversations, 20K"
    assert round(100 * found[turns], 1) == -58.8


def test_a_rate_that_does_not_say_what_it_counts_is_not_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv(store.STAGING, str(tmp_path))
    saved = offloading.record_effects(store.claim("cpu-offload-general"), parameters={})
    rates = [item for item in saved if item.assertion == "throughput-improves"]
    assert rates and not [item for item in rates if "44294" in item.finding]
    assert {item.conditions["counting"] for item in rates} == {"output"}


def test_the_numbers_of_the_source_imply_more_than_a_hundred_answers_at_once() -> None:
    before, after = offloading.waiting(input_rate=2000, prompt=1000)
    assert round(before.at_once) == 122
    assert round(after.at_once) == 123
    assert min(before.waiting, after.waiting) > 0.99
    assert before.prompt > 100_000


def test_the_printed_values_keep_their_digits() -> None:
    rows = {row["metric"]: row for row in offloading.printed()}
    assert rows["output tokens per second of the deployment"]["before"] == "783.09 tok/s"
    assert rows["time to first token"]["after"] == "66,509 ms"


def test_the_map_shows_help_harm_and_nothing() -> None:
    nothing = offloading.curve("output_rate", reuse=0.0, link=25e9)
    helped = offloading.curve("output_rate", reuse=0.9, link=25e9)
    harmed = offloading.curve("ttft_s", reuse=0.9, link=2.5e9)
    assert max(abs(change) for _, change in nothing) < 0.005
    assert dict(helped)[4.0] > 0.2 > dict(helped)[0.5]
    assert dict(harmed)[4.0] > 1


def test_the_twin_with_a_tier_agrees_with_the_engine_step_by_step() -> None:
    told = offloading.agreed()
    assert told["host_same"] == told["host_cases"] != "0"
    assert int(told["host_tokens"].replace(",", "")) > 0
