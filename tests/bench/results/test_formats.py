"""Every other benchmark's file is read with its own definitions."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest

Ask = Callable[..., Any]
Shapes = dict[str, Any]


def test_every_shape_is_known(ask: Ask, shapes: Shapes) -> None:
    unknown = {name for name, shape in shapes.items() if "file.unknown-format" in ask(shape).rules}
    assert unknown == set()


# -- GuideLLM -------------------------------------------------------------------------------------


def test_guidellm_leaves_a_missing_ttft_out_of_the_mean(ask: Ask, shapes: Shapes) -> None:
    answer = ask(shapes["guidellm"])
    assert answer.row["ttft_mean"] == pytest.approx(0.1)  # 75 ms over 4 is 100 ms over 3
    assert "ttft.zero" in answer.rules


def test_guidellm_drops_a_ttft_whose_missing_values_cannot_be_counted(
    ask: Ask, shapes: Shapes
) -> None:
    report = json.loads(json.dumps(shapes["guidellm"]))
    metrics = report["benchmarks"][0]["metrics"]
    metrics["time_to_first_token_ms"]["successful"] |= {"mean": 40.0}
    answer = ask(report)
    assert "ttft_mean" not in answer.row


def test_guidellm_uses_only_successful_requests(ask: Ask, shapes: Shapes) -> None:
    answer = ask(shapes["guidellm"])
    assert (answer.row["completed"], answer.row["failed"]) == (4, 2)
    assert "requests.failed" in answer.rules


def test_guidellm_time_per_token_is_not_tpot(ask: Ask, shapes: Shapes) -> None:
    row = ask(shapes["guidellm"]).row
    assert row["latency_per_token_mean"] == pytest.approx(0.02125)
    assert "tpot_mean" not in row
    assert row["itl_mean"] == pytest.approx(0.02)


def test_guidellm_v1_keeps_its_totals_elsewhere(ask: Ask, shapes: Shapes) -> None:
    report = json.loads(json.dumps(shapes["guidellm"]))
    del report["metadata"]
    benchmark = report["benchmarks"][0]
    totals = benchmark["metrics"].pop("request_totals")
    benchmark["run_stats"] = {"requests_made": totals}
    assert ask(report).row["completed"] == 4


# -- AIPerf ---------------------------------------------------------------------------------------


def test_aiperf_says_that_tokens_arrive_in_bundles(ask: Ask, shapes: Shapes) -> None:
    answer = ask(shapes["aiperf"])
    assert "second-token.bundled" in answer.rules
    assert answer.row["ttft_mean"] == pytest.approx(0.04417)
    assert answer.row["ttft_p50"] == pytest.approx(0.04445)
    assert answer.row["ttft_p99"] is None  # 80 requests


def test_aiperf_inter_token_latency_is_tpot(ask: Ask, shapes: Shapes) -> None:
    summary = shapes["aiperf"] | {"inter_token_latency": {"unit": "ms", "avg": 12.0}}
    assert ask(summary).row["tpot_mean"] == pytest.approx(0.012)


def test_aiperf_units_are_read_and_not_guessed(ask: Ask, shapes: Shapes) -> None:
    summary = shapes["aiperf"] | {"request_latency": {"unit": "s", "avg": 6.6}}
    assert ask(summary).row["e2el_mean"] == pytest.approx(6.6)
    odd = shapes["aiperf"] | {"request_latency": {"unit": "fortnights", "avg": 6.6}}
    assert "e2el_mean" not in ask(odd).row


def lines(record: dict[str, Any], n: int = 3) -> str:
    return "".join(json.dumps(record) + "\n" for _ in range(n))


def test_aiperf_lines_are_requests(ask: Ask, shapes: Shapes) -> None:
    answer = ask(lines(shapes["aiperf record"]), "profile_export.jsonl")
    assert answer.row["completed"] == 3
    assert answer.row["ttft_mean"] == pytest.approx(0.26)
    assert answer.row["tpot_mean"] == pytest.approx(0.005)


def test_aiperf_failed_lines_are_no_latency(ask: Ask, shapes: Shapes) -> None:
    bad = shapes["aiperf record"] | {"error": {"code": 499}, "metrics": {}}
    answer = ask(lines(shapes["aiperf record"]) + lines(bad, 1))
    assert (answer.row["completed"], answer.row["failed"]) == (3, 1)
    assert answer.row["ttft_mean"] == pytest.approx(0.26)


def test_aiperf_naming_the_ttft_twice_loses_it_and_is_reported(ask: Ask, shapes: Shapes) -> None:
    # The documentation's own example of a line does so, with 255.9 ms and 4.9 ms.
    text = lines(shapes["aiperf record"]).replace(
        '"request_latency"',
        '"time_to_first_token": {"value": 4.9, "unit": "ms"}, "request_latency"',
    )
    answer = ask(text)
    assert "file.duplicate-key" in answer.rules
    assert "ttft_mean" not in answer.row
    assert answer.row["e2el_mean"] == pytest.approx(0.3)


# -- llama-bench ----------------------------------------------------------------------------------


def llama_csv(tests: list[dict[str, Any]]) -> str:
    names = [name for name in tests[0] if not name.startswith("samples")]
    out = io.StringIO()
    writer = csv.DictWriter(out, names, quoting=csv.QUOTE_ALL, extrasaction="ignore")
    writer.writeheader()
    writer.writerows(tests)
    return out.getvalue()


@pytest.mark.parametrize("form", ["json", "jsonl", "csv", "md"])
def test_llama_bench_decode_is_tg_and_never_the_combined_row(
    ask: Ask, shapes: Shapes, form: str
) -> None:
    tests = shapes["llama-bench"]
    text = {
        "json": json.dumps(tests),
        "jsonl": "".join(json.dumps(test) + "\n" for test in tests),
        "csv": llama_csv(tests),
        "md": "| model | backend | test | t/s |\n| --- | --- | ---: | ---: |\n"
        "| llama 7B Q4_0 | CUDA | pp512 | 4918.36 ± 132.23 |\n"
        "| llama 7B Q4_0 | CUDA | tg128 | 165.76 ± 1.50 |\n"
        "| llama 7B Q4_0 | CUDA | pp512+tg128 | 600.22 ± 3.39 |\n",
    }[form]
    answer = ask(text, f"bench.{form}")
    assert answer.usable
    kinds = ("prefill_rate", "decode_rate", "combined_rate")
    found = [{kind: row[kind] for kind in kinds if kind in row} for row in answer.rows]
    assert found == [{"prefill_rate": 4918.36}, {"decode_rate": 165.76}, {"combined_rate": 600.22}]
    assert answer.rules == ["rate.combined"]


# -- TensorRT-LLM, SGLang, LMBenchmark ------------------------------------------------------------


def test_two_rates_keep_their_own_tokens_and_time(ask: Ask, shapes: Shapes) -> None:
    answer = ask(shapes["two rates"])
    assert answer.row["output_rate"] == 43.09  # 190 tokens / 4.4098 s
    assert answer.row["decode_rate"] == 50.379  # 189 tokens / 3.7515 s
    assert answer.rules == ["rate.two"]


def test_a_rate_that_its_tokens_contradict_is_recomputed(ask: Ask, shapes: Shapes) -> None:
    answer = ask(shapes["two rates"] | {"tokens_per_sec": 50.379})
    assert answer.row["output_rate"] == pytest.approx(43.0857, rel=1e-4)
    assert "rate.not-a-speed" in answer.rules


def test_trtllm_bench_keeps_per_gpu_apart(ask: Ask, shapes: Shapes) -> None:
    answer = ask(shapes["trtllm"])
    assert answer.row["output_rate"] == 8960
    assert answer.row["output_rate_per_GPU"] == 4480
    units = {c["name"]: c["unit"] for c in answer.content["columns"]}
    assert units["output_rate_per_GPU"] == "tok/s/GPU"
    assert answer.row["e2el_p99"] == 1.0  # 700 requests are enough


def test_sglang_counts_its_output_twice(ask: Ask, shapes: Shapes) -> None:
    assert ask(shapes["sglang"]).rules == ["data.summary-only"]
    answer = ask(shapes["sglang"] | {"total_output_tokens_retokenized": 250})
    assert "tokens.client-server" in answer.rules


def test_sglang_one_batch_keeps_prefill_and_decode_apart(ask: Ask, shapes: Shapes) -> None:
    row = ask(shapes["one batch"]).row
    assert (row["prefill_rate"], row["decode_rate"], row["total_rate"]) == (40960, 1000, 7680)


def lmbench(rows: list[tuple[object, ...]]) -> str:
    head = "prompt_tokens,generation_tokens,ttft,generation_time\n"
    return head + "".join(",".join(map(str, row)) + "\n" for row in rows)


def test_lmbench_of_one_token_and_no_time_is_refused(ask: Ask) -> None:
    answer = ask(lmbench([(21126, 1, 0.0, 0.0)] * 5), "summary.csv")
    assert not answer.usable
    assert answer.rows == []
    assert "data.none" in answer.rules


def test_lmbench_rows_are_requests(ask: Ask) -> None:
    answer = ask(lmbench([(1000, 101, 0.5, 2.0)] * 12), "summary.csv")
    assert answer.row["ttft_mean"] == 0.5
    assert answer.row["tpot_mean"] == pytest.approx(0.02)


# -- loose objects --------------------------------------------------------------------------------


def test_a_rate_is_divided_by_every_gpu_count_and_labelled(ask: Ask, shapes: Shapes) -> None:
    answer = ask(shapes["counts"])
    found = {name: round(value, 1) for name, value in answer.row.items() if "_per_" in name}
    assert found == {
        "output_rate_per_allocated_GPU": 301.0,
        "output_rate_per_decode_GPU": 481.6,
        "output_rate_per_working_GPU": 401.3,
        "total_rate_per_allocated_GPU": 2714.0,
        "total_rate_per_working_GPU": 3618.7,
    }
    notes = {n["column"] for n in answer.content["notes"]}
    assert notes == {"total_rate_per_working_GPU"}


def test_a_first_chunk_that_hides_tokens_gives_no_speed(ask: Ask, shapes: Shapes) -> None:
    answer = ask(shapes["hidden"])
    assert answer.warnings == ["ttft.hidden-tokens", "rate.not-a-speed"]
    assert answer.row["request_output_rate_mean"] == pytest.approx(200 / 5.41)
    assert 928.79 not in answer.row.values()
    assert not [name for name in answer.row if name.startswith(("ttft", "tpot"))]


def test_a_request_without_tokens_has_no_speed(ask: Ask, shapes: Shapes) -> None:
    answer = ask(shapes["hidden"] | {"requests": [{"output_tokens": 0, "e2e_s": 5.0}]})
    assert answer.rows == []
    assert "tokens.none" in answer.rules


def test_more_cached_than_sent_is_refused(ask: Ask, shapes: Shapes) -> None:
    answer = ask(shapes["usage"])
    assert answer.rules == ["tokens.cached-exceeds-prompt"]
    assert answer.rows == []


def test_a_total_rate_is_not_what_a_gpu_generates(ask: Ask) -> None:
    answer = ask(
        "claims:\n  - {id: g1, wording: each GPU generates 1000 tok/s, input_tokens: 1024,\n"
        "     field_used: total_token_throughput, output_tokens: 1024, total_tok_s: 1000}\n",
        "claims.yaml",
    )
    assert answer.row["output_rate_per_GPU"] == 500
    assert "at most 500" in answer.message("rate.not-a-speed")
