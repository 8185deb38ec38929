"""Result files in the shapes that benchmarks write, small and made here."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.bench.results import reader

Content = dict[str, Any]


def _summary(name: str, values: list[float]) -> Content:
    """Return what the writer of vLLM puts down for a metric; 0 where there are no values."""
    kept = sorted(values) or [0.0]
    mean = sum(kept) / len(kept)
    return {
        f"mean_{name}_ms": mean * 1e3,
        f"median_{name}_ms": kept[len(kept) // 2] * 1e3,
        f"p99_{name}_ms": kept[-1] * 1e3,
    }


def detailed(
    outputs: list[int] | None = None,
    *,
    failed: tuple[int, ...] = (),
    detail: bool = True,
    **changes: Any,
) -> Content:
    """Return a result of `vllm bench serve`; some requests may fail."""
    lens = [64] * 8 if outputs is None else outputs
    draw = random.Random(0)
    ttfts, itls, ends = [], [], []
    for number, length in enumerate(lens):
        good = number not in failed
        ttfts.append(draw.uniform(0.07, 0.08) if good else 0.0)
        itls.append([draw.uniform(0.018, 0.022) for _ in range(length - 1)] if good else [])
        ends.append("" if good else "connection reset")
    good = [n for n in range(len(lens)) if n not in failed]
    spans = [sum(itls[n]) for n in good]
    many = [s / (lens[n] - 1) for s, n in zip(spans, good, strict=True) if lens[n] > 1]
    total = sum(lens[n] for n in good)
    content: Content = {
        "date": "20260801-101500",
        "backend": "openai",
        "model_id": "example-org/small-7b",
        "tokenizer_id": "example-org/small-7b",
        "num_prompts": len(lens),
        "request_rate": "inf",
        "max_concurrency": 4,
        "duration": 11.0,
        "completed": len(good),
        "failed": len(failed),
        "total_input_tokens": 512 * len(good),
        "total_output_tokens": total,
        "request_throughput": len(good) / 11,
        "output_throughput": total / 11,
        "total_token_throughput": (total + 512 * len(good)) / 11,
        **_summary("ttft", [ttfts[n] for n in good]),
        **_summary("tpot", many),
        **_summary("itl", [gap for n in good for gap in itls[n]]),
    }
    if detail:
        content |= {
            "input_lens": [512] * len(lens),
            "output_lens": [0 if n in failed else length for n, length in enumerate(lens)],
            "ttfts": ttfts,
            "itls": itls,
            "generated_texts": ["text"] * len(lens),
            "errors": ends,
        }
    return {**content, **changes}


GUIDELLM: Content = {
    "metadata": {"version": 2, "guidellm_version": "0.0.0"},
    "benchmarks": [
        {
            "type_": "generative_benchmark",
            "metrics": {
                "request_totals": {"successful": 4, "incomplete": 0, "errored": 2, "total": 6},
                "time_to_first_token_ms": {
                    "successful": {"mean": 75.0, "min": 0.0, "max": 100.0, "count": 4},
                    "total": {"mean": 50.0, "count": 6},
                },
                "inter_token_latency_ms": {"successful": {"mean": 20.0, "count": 189}},
                "time_per_output_token_ms": {"successful": {"mean": 21.25, "count": 192}},
                "output_tokens_per_second": {"successful": {"mean": 40.0}},
            },
        }
    ],
}
AIPERF: Content = {
    "request_throughput": {"unit": "requests/sec", "avg": 0.15},
    "request_latency": {"unit": "ms", "avg": 6655.5, "p50": 6653.9, "p99": 6686.5},
    "request_count": {"unit": "requests", "avg": 80.0},
    "time_to_first_token": {"unit": "ms", "avg": 44.17, "p50": 44.45, "p99": 48.17},
    "time_to_second_token": {"unit": "ms", "avg": 0.251, "p50": 0.0079},
}
AIPERF_RECORD: Content = {
    "metadata": {
        "session_num": 1,
        "request_start_ns": 1_000_000_000,
        "request_end_ns": 1_300_000_000,
        "benchmark_phase": "profiling",
        "was_cancelled": False,
    },
    "metrics": {
        "input_sequence_length": {"value": 550, "unit": "tokens"},
        "output_sequence_length": {"value": 9, "unit": "tokens"},
        "time_to_first_token": {"value": 260.0, "unit": "ms"},
        "request_latency": {"value": 300.0, "unit": "ms"},
        "inter_chunk_latency": {"value": [5.0] * 8, "unit": "ms"},
        "inter_token_latency": {"value": 5.0, "unit": "ms"},
    },
    "error": None,
}
LLAMA: list[Content] = [
    {
        "build_commit": "abcdef12",
        "model_type": "llama 7B Q4_0",
        "n_prompt": prompt,
        "n_gen": made,
        "avg_ns": nanoseconds,
        "avg_ts": rate,
        "stddev_ts": 1.5,
        "samples_ts": [rate],
    }
    for prompt, made, nanoseconds, rate in (
        (512, 0, 104_099_741, 4918.36),
        (0, 128, 772_200_772, 165.76),
        (512, 128, 1_066_275_699, 600.22),
    )
]
TWO_RATES: Content = {
    "batch_size": 1,
    "output_length": 190,
    "latency_ms": 4409.816,
    "generation_time_ms": 3751.546,
    "total_generated_tokens": 189,
    "tokens_per_sec": 43.09,
    "generation_tokens_per_second": 50.379,
}
TRTLLM: Content = {
    "engine": {"model": "example-org/small-7b", "version": "1.0"},
    "world_info": {"tp_size": 2, "world_size": 2},
    "request_info": {"num_requests": 700, "avg_input_length": 128, "avg_output_length": 128},
    "performance": {
        "total_latency_ms": 10_000.0,
        "avg_request_latency_ms": 900.0,
        "request_throughput_req_s": 70.0,
        "system_output_throughput_tok_s": 8960.0,
        "system_total_throughput_tok_s": 17920.0,
        "output_throughput_per_user_tok_s": 142.0,
        "output_throughput_per_gpu_tok_s": 4480.0,
        "request_latency_percentiles_ms": {"p50": 880.0, "p99": 1000.0, "average": 900.0},
    },
    "streaming_metrics": {"avg_ttft_ms": 30.0, "avg_tpot_ms": 6.8, "ttft_percentiles": {"p99": 60}},
}
BATCH: Content = {
    "run_name": "default",
    "batch_size": 8,
    "input_len": 256,
    "output_len": 32,
    "prefill_latency": 0.05,
    "prefill_throughput": 40960.0,
    "median_decode_latency": 0.008,
    "median_decode_throughput": 1000.0,
    "total_latency": 0.3,
    "overall_throughput": 7680.0,
}
COUNTS: Content = {
    "total_token_throughput": 86848.766,
    "output_token_throughput": 9631.879,
    "allocated_gpus": 32,
    "working_gpus": 24,
    "prefill_gpus": 4,
    "decode_gpus": 20,
    "claimed_total_per_gpu": 3618.699,
}
HIDDEN: Content = {
    "requests": [{"output_tokens": 200, "ttft_s": 5.17, "e2e_s": 5.41}],
    "reported_tok_s_per_request": 928.79,
}
USAGE: Content = {
    "usage": {
        "prompt_tokens": 87,
        "completion_tokens": 40,
        "total_tokens": 127,
        "prompt_tokens_details": {"cached_tokens": 128},
    }
}
SHAPES: dict[str, Any] = {
    "vllm": detailed(),
    "vllm summary": detailed(detail=False),
    "sglang": detailed(
        detail=False, mean_e2e_latency_ms=1300.0, total_output_tokens_retokenized=512
    ),
    "guidellm": GUIDELLM,
    "aiperf": AIPERF,
    "aiperf record": AIPERF_RECORD,
    "llama-bench": LLAMA,
    "two rates": TWO_RATES,
    "trtllm": TRTLLM,
    "one batch": BATCH,
    "counts": COUNTS,
    "hidden": HIDDEN,
    "usage": USAGE,
}


# Tables in the shapes that exporters write, cut down; numbers are made up.
AIPERF_CSV = """\
Metric,avg,min,max,sum,p1,p5,p10,p25,p50,p75,p90,p95,p99,std
Input Sequence Length (tokens),550.00,550,550,440000,550,550,550,550,550,550,550,550,550,0.00
Inter Token Latency (ms),5.20,4.80,5.90,,4.81,4.85,4.90,5.00,5.20,5.40,5.60,5.70,5.80,0.20
Output Sequence Length (tokens),9.00,9,9,7200,9,9,9,9,9,9,9,9,9,0.00
Request Latency (ms),"1,297.53",900.00,"1,400.00",,905.00,910.00,950.00,990.00,"1,290.00",\
"1,310.00","1,330.00","1,350.00","1,390.00",90.00
Time to First Token (ms),"1,255.89",850.00,"1,350.00",,855.00,860.00,900.00,940.00,"1,250.00",\
"1,270.00","1,290.00","1,310.00","1,340.00",90.00

Metric,Value
Benchmark Duration (sec),40.00
Output Token Throughput (tokens/sec),180.00
Request Count,800
Request Throughput (requests/sec),20.00


Endpoint,GPU_Index,GPU_Name,GPU_UUID,Metric,avg,min,max,sum,p1,p5,p10,p25,p50,p75,p90,p95,p99,std
host:9400,0,Example GPU,GPU-a,GPU Power Usage (W),300.00,1,2,3,4,5,6,7,8,9,10,11,12,13
host:9400,1,Example GPU,GPU-b,GPU Power Usage (W),310.00,1,2,3,4,5,6,7,8,9,10,11,12,13
"""
GENAI_PERF_CSV = """\
Metric,avg,min,max,p99,p95,p90,p75,p50,p25
Time To First Token (ms),16.26,12.39,17.25,17.09,16.68,16.56,16.46,16.42,16.33
Inter Token Latency (ms),1.85,1.55,2.04,2.02,1.97,1.92,1.90,1.87,1.80
Request Latency (ms),499.20,451.01,554.61,548.69,526.13,514.19,506.17,498.90,490.00
Output Sequence Length,261.90,256.00,298.00,296.60,270.00,265.00,264.00,262.00,260.00

Metric,Value
Output Token Throughput (per sec),520.87
Request Throughput (per sec),1.99
Request Count (count),100.00
"""
#: Minimum, p0.1, p1, p5, p10, p25, p75, p90, p95, p99 and maximum.
_RANKS = "[1, 1, 1, 1, 1, 1.1, 1.4, 1.5, 1.6, 2, 3]"
#: One benchmark of GuideLLM under three header rows; the columns that matter.
GUIDELLM_COLUMNS: list[tuple[str, str, str, str]] = [
    ("Run Info", "Backend", "", '{"type": "openai_http", "model": "example-org/small-7b"}'),
    ("Run Info", "Profile", "", '{"type_": "concurrent", "streams": [16]}'),
    ("Benchmark", "Type", "", "generative_benchmark"),
    ("Benchmark", "Strategy", "", "concurrent"),
    ("Timings", "Duration", "Sec", "60.0"),
    ("Request Counts", "Successful", "", "700"),
    ("Request Counts", "Incomplete", "", "16"),
    ("Request Counts", "Errored", "", "0"),
    ("Request Counts", "Total", "", "716"),
    ("Request Latency", "Successful Sec", "Mean", "1.3"),
    ("Request Latency", "Successful Sec", "Median", "1.25"),
    ("Request Latency", "Successful Sec", "Percentiles", _RANKS),
    ("Request Latency", "Errored Sec", "Mean", "30.0"),
    ("Time to First Token", "Successful ms", "Mean", "75.0"),
    ("Inter Token Latency", "Successful ms", "Mean", "20.0"),
    ("Token Metrics", "Successful Output Tokens", "Mean", "64.0"),
    ("Token Throughput", "Successful Output Tokens/Sec", "Mean", "746.7"),
]
#: And under the one header row that versions before 0.4 wrote.
GUIDELLM_OLD: dict[str, str] = {
    "Type": "generative_benchmark",
    "Id": "one",
    "Name": "constant@4.00",
    "Duration": "60.0",
    "Successful Requests": "700",
    "Successful Request latency mean": "1.3",
    "Successful Request latency [min, 0.1, 1, 5, 10, 25, 75, 90, 95, 99, max]": _RANKS,
    "Successful Time to first token ms mean": "75.0",
    "Incomplete Requests": "0",
    "Incomplete Time to first token ms mean": "0.0",
    "Errored Requests": "10",
}
LLAMA_SQL = """\
CREATE TABLE IF NOT EXISTS llama_bench (
  build_commit TEXT,
  n_prompt INTEGER
);

INSERT INTO llama_bench (build_commit, model_type, n_prompt, n_gen, avg_ns, avg_ts, stddev_ts) \
VALUES ('abcdef12', 'it''s 7B', '512', '0', '104099741', '4918.36', '1.5');
INSERT INTO llama_bench (build_commit, model_type, n_prompt, n_gen, avg_ns, avg_ts, stddev_ts) \
VALUES ('abcdef12', 'it''s 7B', '0', '128', '772200772', '165.76', '1.5');
"""


def rows_of(columns: list[tuple[str, ...]]) -> str:
    """Write columns, header cells first, as CSV."""
    out = io.StringIO()
    csv.writer(out).writerows(zip(*columns, strict=True))
    return out.getvalue()


def sweep_csv() -> str:
    """Return the summary of a sweep of `vllm bench serve`, as pandas writes it."""
    content = detailed(detail=False) | {"tensor_parallel_size": 2, "label": ""}
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["", *content])
    writer.writerow(["0", *content.values()])
    return out.getvalue()


TABLES: dict[str, str] = {
    "aiperf": AIPERF_CSV,
    "genai-perf": GENAI_PERF_CSV,
    "guidellm": rows_of([tuple(c) for c in GUIDELLM_COLUMNS]),
    "guidellm old": rows_of(list(GUIDELLM_OLD.items())),
    "llama-bench sql": LLAMA_SQL,
    "vllm sweep": sweep_csv(),
}


class Answer:
    """What `assay read` says of one file, with short ways to look at it."""

    def __init__(self, reading: reader.Reading) -> None:
        self.reading = reading
        self.content = reader.answer([reading])
        self.usable: bool = self.content["usable"]
        self.rows: list[Content] = self.content["rows"]
        self.rules: list[str] = [p["rule"] for p in self.content["problems"]]
        self.warnings: list[str] = [
            p["rule"] for p in self.content["problems"] if p["severity"] != "note"
        ]
        self.sentences = reader.sentences([reading])

    @property
    def row(self) -> Content:
        """The only run."""
        assert len(self.rows) == 1
        return self.rows[0]

    def message(self, rule: str) -> str:
        """What one rule says."""
        return next(p["message"] for p in self.content["problems"] if p["rule"] == rule)


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., Answer]:
    """Read content (text, bytes, or something to be written as JSON) out of a file."""

    def read(content: Any, name: str = "result.json") -> Answer:
        file = tmp_path / name
        if isinstance(content, bytes):
            file.write_bytes(content)
        else:
            text = content if isinstance(content, str) else json.dumps(content)
            file.write_text(text, encoding="utf-8")
        return Answer(reader.read(file))

    return read


@pytest.fixture(scope="session")
def vllm_result() -> Callable[..., Content]:
    """Build a result of `vllm bench serve`."""
    return detailed


@pytest.fixture(scope="session")
def shapes() -> dict[str, Any]:
    """One file of every shape, as it would be written."""
    return SHAPES


@pytest.fixture(scope="session")
def tables() -> dict[str, str]:
    """One table of every exporter, as it would be written."""
    return TABLES
