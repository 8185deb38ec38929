"""What `vllm bench serve` writes is read as it is meant, and not as it looks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

Ask = Callable[..., Any]
Build = Callable[..., dict[str, Any]]


def test_a_sound_detailed_file_has_no_problem(ask: Ask, vllm_result: Build) -> None:
    answer = ask(vllm_result())
    assert answer.usable
    assert answer.rules == []
    assert answer.row["completed"] == 8


def test_a_sound_summary_is_only_told_that_it_is_one(ask: Ask, vllm_result: Build) -> None:
    answer = ask(vllm_result(detail=False))
    assert answer.usable
    assert answer.rules == ["data.summary-only"]


def test_milliseconds_become_seconds(ask: Ask, vllm_result: Build) -> None:
    answer = ask(vllm_result(detail=False, mean_ttft_ms=76.8, median_ttft_ms=76.0))
    assert answer.row["ttft_mean"] == pytest.approx(0.0768)
    units = {c["name"]: c["unit"] for c in answer.content["columns"]}
    assert units["ttft_mean"] == "s"
    assert units["output_rate"] == "tok/s"
    assert units["request_rate"] == "req/s"


def test_every_rate_says_what_it_counts(ask: Ask, vllm_result: Build) -> None:
    counted = {c["name"]: c["counting"] for c in ask(vllm_result()).content["columns"]}
    assert (counted["output_rate"], counted["total_rate"]) == ("output", "total")
    assert counted["request_rate"] == "requests"


def test_a_failed_request_is_no_latency_of_zero(ask: Ask, vllm_result: Build) -> None:
    content = vllm_result(failed=(2, 5, 6))
    answer = ask(content)
    good = [t for t in content["ttfts"] if t > 0]
    assert answer.row["ttft_mean"] == pytest.approx(sum(good) / 5)
    assert answer.row["failed"] == 3
    assert answer.warnings == ["requests.failed"]


def test_no_request_completed_is_no_data_and_not_zero(ask: Ask, vllm_result: Build) -> None:
    answer = ask(vllm_result([64] * 4, failed=(0, 1, 2, 3)))
    assert not answer.usable
    assert answer.rows == []
    assert "no data" in answer.message("requests.none")


def test_one_of_many_is_refused_though_none_is_said_to_have_failed(
    ask: Ask, vllm_result: Build
) -> None:
    content = vllm_result([64], detail=False, num_prompts=500)
    del content["failed"]
    answer = ask(content)
    assert not answer.usable
    assert answer.rows == []
    assert "1 of 500" in answer.sentences[0]


def test_gaps_that_contain_the_ttft_lose_it(ask: Ask, vllm_result: Build) -> None:
    content = vllm_result()
    true = [gap for gaps in content["itls"] for gap in gaps]
    content["itls"] = [[t, *g] for t, g in zip(content["ttfts"], content["itls"], strict=True)]
    pooled = [gap for gaps in content["itls"] for gap in gaps]
    content["mean_itl_ms"] = sum(pooled) / len(pooled) * 1e3
    answer = ask(content)
    assert answer.warnings == ["itl.contains-ttft"]
    assert answer.row["itl_mean"] == pytest.approx(sum(true) / len(true))
    assert answer.row["tpot_mean"] == pytest.approx(content["mean_tpot_ms"] / 1e3)


def test_chunks_are_not_tokens(ask: Ask, vllm_result: Build) -> None:
    content = vllm_result(max_output_tokens_per_s=8.0)
    content["itls"] = [[0.16] * 7] * 8  # 8 chunks of 8 tokens
    content["mean_itl_ms"] = 160.0
    content["mean_tpot_ms"] = 7 * 0.16 / 63 * 1e3
    answer = ask(content)
    assert answer.warnings == ["itl.chunks", "rate.peak-below-mean"]
    assert answer.row["chunk_gap_mean"] == pytest.approx(0.16)
    assert answer.row["tpot_mean"] == pytest.approx(0.017777, rel=1e-3)
    assert "itl_mean" not in answer.row
    assert "peak_output_rate" not in answer.row


def test_a_summary_betrays_chunks_by_its_gaps(ask: Ask, vllm_result: Build) -> None:
    # vllm-project/vllm pull 8378: mean ITL 192.59 ms beside TPOT 22.01 ms with 8-step scheduling.
    answer = ask(
        vllm_result(detail=False, mean_itl_ms=192.59, median_itl_ms=190, p99_itl_ms=200)
        | {"mean_tpot_ms": 22.01, "median_tpot_ms": 22, "p99_tpot_ms": 23}
    )
    assert "itl.chunks" in answer.rules
    assert answer.row["tpot_mean"] == pytest.approx(0.02201)
    assert "itl_mean" not in answer.row


def test_one_output_token_has_no_tpot(ask: Ask, vllm_result: Build) -> None:
    answer = ask(vllm_result([1] * 6))
    assert answer.warnings == ["tpot.one-token"]
    assert not [name for name in answer.row if name.startswith(("tpot", "itl"))]
    assert answer.row["output_rate"] == answer.row["request_rate"]


def test_no_tokens_after_two_seconds_is_refused(ask: Ask, vllm_result: Build) -> None:
    nothing = {"ttfts": [0.0] * 8, "itls": [[]] * 8, "output_lens": [0] * 8}
    content = vllm_result(total_output_tokens=0, output_throughput=0.0, **nothing)
    answer = ask(content | {"mean_e2el_ms": 2000.0})
    assert not answer.usable
    assert "tokens.none" in answer.rules


def test_appended_lines_are_runs_and_no_error(ask: Ask, vllm_result: Build) -> None:
    one, two = vllm_result(detail=False), vllm_result([64] * 4, detail=False)
    answer = ask(f"{json.dumps(one)}\n{json.dumps(two)}")
    assert answer.usable
    assert [row["completed"] for row in answer.rows] == [8, 4]


def test_an_infinite_rate_is_a_rate(ask: Ask, vllm_result: Build) -> None:
    answer = ask(vllm_result(request_rate=float("inf")))
    assert answer.usable
    assert answer.rules == []
    assert answer.row["asked_rate"] == "inf"


@pytest.mark.parametrize("field", ["mean_ttft_ms", "output_throughput"])
def test_infinity_elsewhere_is_not_used(ask: Ask, vllm_result: Build, field: str) -> None:
    answer = ask(vllm_result(detail=False, **{field: float("inf")}))
    assert "number.not-finite" in answer.rules
    assert all(value != float("inf") for value in answer.row.values())


def test_nan_beside_a_number_under_one_key_is_neither(ask: Ask, vllm_result: Build) -> None:
    text = json.dumps(vllm_result(detail=False, std_ttft_ms=3.5))
    answer = ask(text[:-1] + ', "std_ttft_ms": NaN}')
    assert "file.duplicate-key" in answer.rules
    assert answer.usable
    assert "ttft_std" not in answer.row


def test_the_old_name_of_goodput_is_known(ask: Ask, vllm_result: Build) -> None:
    content = vllm_result(detail=False) | {"request_goodput:": 0.5}
    assert ask(content).row["goodput"] == 0.5


def test_an_unknown_key_is_ignored(ask: Ask, vllm_result: Build) -> None:
    assert ask(vllm_result(new_key={"a": [1]})).rules == []


def test_the_server_counts_other_tokens(ask: Ask, vllm_result: Build) -> None:
    answer = ask(vllm_result(server_prompt_tokens_total=20_992))
    assert "5.12 times" in answer.message("tokens.client-server")
    assert answer.row["input_tokens"] == 20_992


def test_repeated_prompts_are_named(ask: Ask, vllm_result: Build) -> None:
    assert ask(vllm_result(note="every prompt identical, prefix caching on")).warnings == [
        "cache.identical-prompts"
    ]
    assert ask(vllm_result(note="distinct prompts, prefix caching off")).warnings == []


def test_rows_in_milliseconds_are_converted(ask: Ask, vllm_result: Build) -> None:
    content = vllm_result()
    true = content["mean_ttft_ms"] / 1e3
    content["ttfts"] = [t * 1e3 for t in content["ttfts"]]
    content["itls"] = [[g * 1e3 for g in gaps] for gaps in content["itls"]]
    answer = ask(content)
    assert answer.warnings == ["units.mixed"]
    assert answer.row["ttft_mean"] == pytest.approx(true)


def test_a_latency_longer_than_the_run_is_not_used(ask: Ask, vllm_result: Build) -> None:
    answer = ask(vllm_result(detail=False, mean_ttft_ms=76_800.0, p99_ttft_ms=80_000.0))
    assert "order.duration" in answer.rules or "order.percentiles" in answer.rules
    assert "ttft_mean" not in answer.row


@pytest.mark.parametrize("field", ["mean_ttft_ms", "duration", "completed", "output_throughput"])
def test_below_zero_is_refused(ask: Ask, vllm_result: Build, field: str) -> None:
    answer = ask(vllm_result(detail=False, **{field: -5}))
    assert not answer.usable
    assert answer.rows == []
    assert "number.negative" in answer.rules


def test_a_negative_row_is_refused(ask: Ask, vllm_result: Build) -> None:
    content = vllm_result()
    content["ttfts"][3] = -0.01
    assert ask(content).rules == ["number.negative"]


def test_text_for_a_number_is_not_read_as_one(ask: Ask, vllm_result: Build) -> None:
    answer = ask(vllm_result(detail=False, mean_ttft_ms="76.8"))
    assert "number.type" in answer.rules
    assert "ttft_mean" not in answer.row


def test_an_unreadable_count_of_requests_is_refused(ask: Ask, vllm_result: Build) -> None:
    answer = ask(vllm_result(detail=False, completed="8"))
    assert "requests.unknown" in answer.rules
    assert answer.rows == []


def test_rows_tell_what_an_unreadable_count_does_not(ask: Ask, vllm_result: Build) -> None:
    answer = ask(vllm_result(failed=(1,)) | {"completed": "7"})
    assert answer.row["completed"] == 7


def test_seconds_under_a_name_in_milliseconds_are_not_used(ask: Ask, vllm_result: Build) -> None:
    answer = ask(
        vllm_result(detail=False, mean_ttft_ms=0.076, median_ttft_ms=0.075, p99_ttft_ms=0.08)
    )
    assert "units.mixed" in answer.rules
    assert "ttft_mean" not in answer.row


def test_lists_of_unequal_length_are_not_paired(ask: Ask, vllm_result: Build) -> None:
    content = vllm_result()
    content["ttfts"].pop()
    answer = ask(content)
    assert answer.warnings == ["rows.lengths"]
    assert answer.row["ttft_mean"] == pytest.approx(content["mean_ttft_ms"] / 1e3)


def test_a_file_without_gaps_still_has_ttft(ask: Ask, vllm_result: Build) -> None:
    content = vllm_result()
    del content["itls"]
    answer = ask(content)
    assert answer.usable
    assert answer.row["ttft_mean"] == pytest.approx(content["mean_ttft_ms"] / 1e3)


def test_a_rate_that_is_not_its_total_over_time_is_recomputed(ask: Ask, vllm_result: Build) -> None:
    answer = ask(vllm_result(output_throughput=500.0))
    assert "rate.inconsistent" in answer.rules
    assert answer.row["output_rate"] == pytest.approx(512 / 11)


def test_more_completed_than_asked_is_refused(ask: Ask, vllm_result: Build) -> None:
    assert not ask(vllm_result(detail=False, num_prompts=3)).usable


def test_a_percentile_of_too_few_requests_is_none_and_says_why(
    ask: Ask, vllm_result: Build
) -> None:
    answer = ask(vllm_result())
    assert answer.row["ttft_p99"] is None
    notes = {n["column"]: n["note"] for n in answer.content["notes"]}
    assert notes["ttft_p99"] == "p99 needs 662 requests; there are 8"


@pytest.mark.parametrize(("n", "certified"), [(10, False), (11, True)])
def test_a_median_needs_eleven_requests(
    ask: Ask, vllm_result: Build, n: int, certified: bool
) -> None:
    answer = ask(vllm_result([16] * n, detail=False))
    assert (answer.row["ttft_p50"] is not None) == certified


def test_a_mean_is_not_taken_from_a_percentile(ask: Ask, vllm_result: Build) -> None:
    answer = ask(vllm_result(detail=False, mean_ttft_ms=500.0, p99_ttft_ms=80.0, max_ttft_ms=90.0))
    assert "order.percentiles" in answer.rules
    assert "ttft_mean" not in answer.row


def test_nothing_streamed_has_no_first_token(ask: Ask, vllm_result: Build) -> None:
    content = vllm_result(latencies=None)
    content["itls"] = [[] for _ in range(8)]
    content["latencies"] = content["ttfts"] = [1.0] * 8
    answer = ask(content)
    assert "ttft.no-stream" in answer.rules
    assert not [name for name in answer.row if name.startswith(("ttft", "tpot", "itl"))]
    assert answer.row["e2el_mean"] == 1.0


def test_a_summary_without_gaps_was_not_streamed(ask: Ask, vllm_result: Build) -> None:
    # An SGLang table of this shape: mean TTFT 2,074 ms of 2,098 ms, TPOT 1.76 ms, ITL 0.00 ms.
    gone = {"mean_itl_ms": 0.0, "median_itl_ms": 0.0, "p99_itl_ms": 0.0}
    answer = ask(vllm_result(detail=False, **gone))
    assert "ttft.no-stream" in answer.rules
    assert not [name for name in answer.row if name.startswith(("ttft", "tpot", "itl"))]


def test_latency_and_throughput_files_of_vllm_are_known(ask: Ask) -> None:
    one = ask({"avg_latency": 1.5, "latencies": [1.0, 2.0], "percentiles": {"50": 1.5}})
    assert one.row["e2el_mean"] == 1.5
    two = ask(
        {"elapsed_time": 10, "num_requests": 5, "requests_per_second": 0.5}
        | {"tokens_per_second": 64, "total_num_tokens": 640}
    )
    assert two.row["total_rate"] == 64
    assert "output_rate" not in two.row
    wrong = ask({"elapsed_time": 10, "tokens_per_second": 128, "total_num_tokens": 640})
    assert wrong.row["total_rate"] == 64
    assert "rate.inconsistent" in wrong.rules
