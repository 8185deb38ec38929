"""A report that was exported as a table says the same as the report."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from assay.bench.results import documents

Ask = Callable[..., Any]
Shapes = dict[str, Any]
Tables = dict[str, str]


def test_every_table_is_known(ask: Ask, tables: Tables) -> None:
    found = {name: ask(text, "export.csv") for name, text in tables.items()}
    assert {name for name, answer in found.items() if not answer.usable} == set()


# -- AIPerf and GenAI-Perf ------------------------------------------------------------------------


def test_aiperf_csv_keeps_its_units_and_thousands(ask: Ask, tables: Tables) -> None:
    row = ask(tables["aiperf"], "profile_export_aiperf.csv").row
    assert row["ttft_mean"] == pytest.approx(1.25589)
    assert row["ttft_p99"] == pytest.approx(1.34)  # 800 requests certify it
    assert row["tpot_mean"] == pytest.approx(0.0052)
    assert row["e2el_max"] == pytest.approx(1.4)
    assert (row["completed"], row["duration"], row["request_rate"]) == (800, 40.0, 20.0)


def test_aiperf_csv_counts_the_devices_it_has_telemetry_of(ask: Ask, tables: Tables) -> None:
    row = ask(tables["aiperf"]).row
    assert (row["gpus"], row["hardware"]) == (2, "Example GPU")


def test_genai_perf_csv_is_read_by_its_own_names(ask: Ask, tables: Tables) -> None:
    answer = ask(tables["genai-perf"])
    assert answer.row["ttft_mean"] == pytest.approx(0.01626)
    assert answer.row["output_rate"] == pytest.approx(520.87)
    assert answer.row["ttft_p99"] is None  # 100 requests


def test_a_metric_named_twice_in_a_table_is_not_used(ask: Ask, tables: Tables) -> None:
    twice = "Request Throughput (requests/sec),20.00\n"
    answer = ask(tables["aiperf"].replace(twice, twice + twice.replace("20", "30")))
    assert "file.duplicate-key" in answer.rules
    assert answer.row["request_rate"] == 20  # 800 requests in 40 s, and neither stated rate


def test_a_rate_that_is_not_per_second_is_not_used(ask: Ask, tables: Tables) -> None:
    answer = ask(tables["genai-perf"].replace("Throughput (per sec)", "Throughput (per min)"))
    assert "number.type" in answer.rules
    assert not {"output_rate", "request_rate"} & answer.row.keys()


def test_decimal_commas_are_no_numbers(ask: Ask, tables: Tables) -> None:
    text = tables["genai-perf"].replace(",", ";").replace(".", ",")
    assert not ask(text).usable


def test_aiperf_errors_are_requests_that_failed(ask: Ask, shapes: Shapes) -> None:
    errors = [{"error_details": {"code": 503}, "count": 4}, {"error_details": {}, "count": 1}]
    answer = ask(shapes["aiperf"] | {"error_summary": errors})
    assert answer.row["failed"] == 5
    assert "requests.failed" in answer.rules


# -- GuideLLM -------------------------------------------------------------------------------------


def test_guidellm_csv_of_three_header_rows(ask: Ask, tables: Tables) -> None:
    answer = ask(tables["guidellm"], "benchmarks.csv")
    row = answer.row
    assert (row["completed"], row["failed"], row["concurrency"]) == (700, 16, 16)
    assert row["model"] == "example-org/small-7b"
    assert row["ttft_mean"] == pytest.approx(0.075)
    assert row["itl_mean"] == pytest.approx(0.02)
    assert (row["e2el_p99"], row["e2el_max"]) == (2, 3)
    assert row["output_rate"] == pytest.approx(746.7)
    assert row["output_per_request"] == 64


def test_guidellm_csv_of_one_header_row(ask: Ask, tables: Tables) -> None:
    row = ask(tables["guidellm old"], "benchmarks.csv").row
    assert (row["completed"], row["failed"], row["e2el_p99"]) == (700, 10, 2)
    assert row["ttft_mean"] == pytest.approx(0.075)


def test_every_row_of_a_guidellm_csv_is_a_run(ask: Ask, tables: Tables) -> None:
    lines = tables["guidellm"].splitlines()
    answer = ask("\n".join([*lines, lines[-1].replace("concurrent,60", "synchronous,60")]))
    assert [row["test"] for row in answer.rows] == ["concurrent", "synchronous"]


def test_a_row_that_does_not_fit_its_header_is_refused(ask: Ask, tables: Tables) -> None:
    answer = ask(tables["guidellm"] + "1,2,3\n")
    assert not answer.usable
    assert "row 5 has 3 cells" in answer.sentences[0]


@pytest.mark.parametrize("name", ["benchmarks.yaml", "benchmarks.txt"])
def test_guidellm_yaml_says_what_its_json_says(ask: Ask, shapes: Shapes, name: str) -> None:
    text = yaml.safe_dump(shapes["guidellm"])
    assert ask(text, name).row | {"file": ""} == ask(shapes["guidellm"]).row | {"file": ""}


def test_the_steps_of_a_guidellm_sweep_are_told_apart(ask: Ask, shapes: Shapes) -> None:
    report = json.loads(json.dumps(shapes["guidellm"]))
    one = report["benchmarks"][0]
    two = json.loads(json.dumps(one))
    one["config"] = {"strategy": {"type_": "concurrent", "streams": 8}}
    two["scheduler"] = {"strategy": {"type_": "constant", "rate": 4.0}}
    report["benchmarks"].append(two)
    rows = ask(report).rows
    assert rows[0]["concurrency"] == 8
    assert (rows[1]["test"], rows[1]["asked_rate"]) == ("constant", 4.0)


def test_guidellm_requests_mend_a_mean_that_holds_missing_values(
    ask: Ask, shapes: Shapes, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = json.loads(json.dumps(shapes["guidellm"]))
    times = [100.0, 0.0, 110.0, None]
    report["benchmarks"][0]["requests"] = {
        "successful": [
            {
                "time_to_first_token_ms": time,
                "request_latency": 1.36,
                "output_tokens": 64,
                "output": "x" * 500,
            }
            for time in times
        ]
    }
    answer = ask(report)
    monkeypatch.setattr(documents, "WHOLE", 64)
    assert ask(report).row == answer.row  # a long report keeps of a request what is used
    assert answer.row["ttft_mean"] == pytest.approx(0.105)
    assert answer.row["tpot_mean"] == pytest.approx((2 * 1.36 - 0.21) / 2 / 63)
    assert "data.summary-only" not in answer.rules


# -- vLLM and llama-bench -------------------------------------------------------------------------


def test_a_vllm_sweep_is_runs(ask: Ask, tables: Tables, vllm_result: Any) -> None:
    answer = ask(tables["vllm sweep"], "summary.csv")
    one = ask(vllm_result(detail=False)).row
    assert answer.row["ttft_mean"] == pytest.approx(one["ttft_mean"])
    assert answer.row["asked_rate"] == "inf"


def test_llama_bench_sql_is_read(ask: Ask, tables: Tables) -> None:
    rows = ask(tables["llama-bench sql"], "bench.sql").rows
    assert [row["test"] for row in rows] == ["pp512", "tg128"]
    assert rows[1]["decode_rate"] == 165.76
    assert rows[0]["model"] == "it's 7B"


def test_sql_that_is_cut_off_is_refused(ask: Ask, tables: Tables) -> None:
    answer = ask(tables["llama-bench sql"][:-30], "bench.sql")
    assert not answer.usable
    assert "cut off" in answer.sentences[0]


@pytest.mark.parametrize(
    ("test", "name"),
    [("pp 512", "pp512"), ("tg128 @ d512", "tg128 @ d512"), ("pg 512,128", "pp512+tg128")],
)
def test_llama_bench_markdown_of_any_age(ask: Ask, test: str, name: str) -> None:
    head = "| model | size | params | backend | ngl | test | t/s |\n"
    answer = ask(f"{head}| 7B | 3.6 GiB | 6.7 B | CUDA | 99 | {test} | 165.76 ± 1.50 |\n")
    assert answer.row["test"] == name
    assert answer.row["settings"] == "ngl 99"


# -- text -----------------------------------------------------------------------------------------


def test_a_column_named_twice_is_refused(ask: Ask) -> None:
    text = "prompt_tokens,generation_tokens,ttft,ttft\n1,2,3,4\n"
    assert "twice" in ask(text, "x.csv").sentences[0]


def test_a_table_of_endless_cells_is_refused(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.bench.results import tables as text_tables

    monkeypatch.setattr(text_tables, "_CELLS", 50)
    out = io.StringIO()
    csv.writer(out).writerows([["Metric", "avg", "min"], *[["a", 1, 2]] * 20])
    assert "more than 50 cells" in ask(out.getvalue()).sentences[0]
