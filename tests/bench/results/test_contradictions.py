"""A file that contradicts itself is told so, and the figure that cannot be is not shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

Ask = Callable[..., Any]
Build = Callable[..., dict[str, Any]]


@pytest.fixture
def summary(ask: Ask, vllm_result: Build) -> Callable[..., Any]:
    """Read a summary with some fields changed."""
    return lambda **changes: ask(vllm_result(detail=False, **changes))


def named(answer: Any, *starts: str) -> list[str]:
    return [name for name in answer.row if name.startswith(starts)]


# -- units ----------------------------------------------------------------------------------------


def test_a_duration_in_milliseconds_is_converted(summary: Any) -> None:
    answer = summary(duration=11_000.0)
    assert answer.warnings == ["data.summary-only", "units.mixed"]
    assert answer.row["duration"] == 11
    assert answer.row["output_rate"] == pytest.approx(512 / 11)


def test_a_latency_that_is_not_made_of_its_parts_is_not_used(summary: Any) -> None:
    # TTFT of 2.5 s written as 2.5 ms: too long for a unit no server reaches, and still wrong.
    answer = summary(mean_ttft_ms=2.5, median_ttft_ms=2.5, p99_ttft_ms=2.6, mean_e2el_ms=3760.0)
    assert "order.parts" in answer.rules
    assert named(answer, "ttft", "tpot", "itl", "e2el") == []
    assert answer.row["output_rate"] > 0


# -- statistics -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"p99_ttft_ms": 10.0},
        {"max_ttft_ms": 70.0},
        {"min_ttft_ms": 90.0},
        {"std_ttft_ms": 0.0, "median_ttft_ms": 70.0, "p99_ttft_ms": 200.0},
        {"std_ttft_ms": 5000.0, "min_ttft_ms": 70.0, "max_ttft_ms": 90.0},
    ],
)
def test_statistics_out_of_order_are_not_used(summary: Any, changes: dict[str, float]) -> None:
    answer = summary(**changes)
    assert "order.percentiles" in answer.rules
    assert named(answer, "ttft") == []
    assert named(answer, "tpot")


@pytest.mark.parametrize("metric", ["ttft", "e2el"])
def test_a_median_of_zero_is_a_metric_that_is_mostly_missing(summary: Any, metric: str) -> None:
    answer = summary(**{f"mean_{metric}_ms": 50.0, f"median_{metric}_ms": 0.0})
    assert f"{metric}.zero" in answer.rules
    assert named(answer, metric) == []


def test_a_goodput_above_the_rate_of_all_requests_is_not_used(summary: Any) -> None:
    answer = summary(request_goodput=5.0)
    assert "rate.inconsistent" in answer.rules
    assert "goodput" not in answer.row
    assert answer.row["request_rate"] == pytest.approx(8 / 11)


# -- load -----------------------------------------------------------------------------------------


def test_more_requests_in_flight_than_allowed_are_named(ask: Ask, vllm_result: Build) -> None:
    # 8 requests of 1.34 s take 2.7 s with 4 in flight, and not 2 s.
    content = vllm_result(duration=2.0)
    for name, total in (("output", 512), ("total_token", 4608), ("request", 8)):
        content[f"{name}_throughput"] = total / 2
    answer = ask(content)
    assert answer.warnings == ["load.impossible"]
    assert "at most 4" in answer.message("load.impossible")
    assert ask(vllm_result()).rules == []


def many(asked: float, duration: float) -> dict[str, Any]:
    n = 400
    return {
        "num_prompts": n,
        "completed": n,
        "total_input_tokens": 512 * n,
        "total_output_tokens": 64 * n,
        "request_rate": asked,
        "max_concurrency": None,
        "duration": duration,
        "request_throughput": n / duration,
        "output_throughput": 64 * n / duration,
        "total_token_throughput": 576 * n / duration,
    }


@pytest.mark.parametrize(
    ("asked", "duration", "rule"),
    [
        (4.0, 100.0, None),
        (4.0, 103.0, None),
        (4.0, 50.0, "load.above-asked"),
        (4.0, 200.0, "load.not-kept"),
    ],
)
def test_arrivals_are_held_to_the_rate_asked_for(
    summary: Any, asked: float, duration: float, rule: str | None
) -> None:
    found = [r for r in summary(**many(asked, duration)).rules if r.startswith("load.")]
    assert found == ([rule] if rule else [])


def test_a_rate_in_words_is_a_rate(summary: Any) -> None:
    assert summary(request_rate="4.0").row["asked_rate"] == 4.0


# -- speculative decoding -------------------------------------------------------------------------


def test_gaps_of_speculative_decoding_are_between_steps(summary: Any) -> None:
    answer = summary(
        mean_itl_ms=32.0,
        median_itl_ms=32.0,
        p99_itl_ms=33.0,
        spec_decode_acceptance_length=1.6,
        spec_decode_acceptance_rate=30.0,
        spec_decode_draft_tokens=640,
        spec_decode_accepted_tokens=192,
    )
    assert "itl.chunks" in answer.rules
    assert named(answer, "itl") == []
    assert answer.row["acceptance_rate"] == pytest.approx(0.3)
    assert answer.row["acceptance_length"] == pytest.approx(1.6)


@pytest.mark.parametrize(
    "stated",
    [
        {"spec_decode_acceptance_rate": 130.0},
        {"spec_decode_draft_tokens": 10, "spec_decode_accepted_tokens": 30},
        {
            "spec_decode_acceptance_rate": 80.0,
            "spec_decode_draft_tokens": 100,
            "spec_decode_accepted_tokens": 30,
        },
    ],
)
def test_an_impossible_acceptance_is_not_used(summary: Any, stated: dict[str, float]) -> None:
    answer = summary(**stated)
    assert "speculation.inconsistent" in answer.rules
    assert "acceptance_rate" not in answer.row


# -- metadata -------------------------------------------------------------------------------------


def test_metadata_is_text_and_still_counts(summary: Any) -> None:
    answer = summary(external_hit_tokens="0", cached_tokens="0", gpus="2", seed="7")
    assert answer.rules == ["data.summary-only"]
    assert (answer.row["external_hit_tokens"], answer.row["gpus"]) == (0, 2)


@pytest.mark.parametrize("word", ["NaN", "-Infinity", "1e999", '"NaN"', '"inf"'])
def test_no_spelling_of_a_number_that_is_none_is_used(
    ask: Ask, vllm_result: Build, word: str
) -> None:
    text = json.dumps(vllm_result(detail=False, mean_ttft_ms=1))
    answer = ask(text.replace('"mean_ttft_ms": 1', f'"mean_ttft_ms": {word}'))
    assert answer.rules[0] in ("number.not-finite", "number.type")
    assert "ttft_mean" not in answer.row


@pytest.mark.parametrize("word", ["nan", "inf", "+Infinity", "Inf", "-NaN"])
def test_a_word_that_is_not_json_is_refused_with_its_place(
    ask: Ask, vllm_result: Build, word: str
) -> None:
    text = json.dumps(vllm_result(detail=False, mean_ttft_ms=1))
    answer = ask(text.replace('"mean_ttft_ms": 1', f'"mean_ttft_ms": {word}'))
    assert answer.rules == ["file.not-json"]
    assert "line 1, column" in answer.sentences[0]
