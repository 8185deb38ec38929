"""SGLang: ``bench_serving`` lines, ``bench_one_batch`` and ``bench_offline_throughput``.

Owns their field names. The serving client is vLLM's with other names, so `vllm.serving` reads it;
it also counts its output a second time with the client's tokenizer. Facts about the format:
SGLang's developer guide, "Bench Serving Guide", read 2026-11.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.bench.results import vllm
from assay.bench.results.fields import Fields
from assay.bench.results.table import Run

__all__ = ["is_batch", "is_offline", "is_serving", "offline", "one_batch", "serving"]

_OWN = {"total_output_tokens_retokenized", "mean_e2e_latency_ms", "sharegpt_output_len"}


def is_serving(content: Mapping[str, Any]) -> bool:
    """Say whether an object is a line of ``sglang.bench_serving``."""
    return bool(content.keys() & _OWN) and vllm.is_serving(content)


def serving(content: Mapping[str, Any]) -> Run:
    """Read one line of ``sglang.bench_serving``."""
    return vllm.serving(content, "SGLang bench_serving")


def is_batch(content: Mapping[str, Any]) -> bool:
    """Say whether an object is a line of ``sglang.bench_one_batch`` or of its server variant."""
    return {"batch_size", "input_len", "output_len"} <= content.keys() and bool(
        content.keys() & {"prefill_latency", "total_latency", "latency", "overall_throughput"}
    )


def one_batch(content: Mapping[str, Any]) -> Run:
    """Read one static batch: prefill and decode apart, no queue and no clients."""
    run = Run("SGLang bench_one_batch")
    fields = Fields(dict(content), run.log)
    batch = fields.count("batch_size")
    inputs, outputs = fields.count("input_len"), fields.count("output_len")
    total = fields.number("total_latency", "latency")
    prefill = fields.number("prefill_latency", "ttft")
    run.know(
        label=fields.text("run_name"),
        completed=batch,
        concurrency=batch,
        duration=total,
        input_tokens=None if batch is None or inputs is None else batch * inputs,
        output_tokens=None if batch is None or outputs is None else batch * outputs,
    )
    run.put("ttft", "mean", prefill, samples=1)
    run.put("e2el", "mean", total, samples=1)
    step = fields.number("median_decode_latency")
    if step is not None and outputs is not None and outputs > 2:
        # A step decodes one token of every sequence; its samples are steps of one batch.
        run.put("itl", "p50", step, samples=1)
    run.put("prefill_rate", "rate", fields.number("prefill_throughput", "input_throughput"))
    run.put(
        "decode_rate",
        "rate",
        fields.number("median_decode_throughput", "decode_throughput", "last_gen_throughput"),
    )
    overall = fields.number("overall_throughput")
    run.put("output_rate", "rate", fields.number("output_throughput"))
    run.know(acceptance_length=_accepted(fields.number("acc_length", quiet=True)))
    run.put("total_rate", "rate", overall)
    if overall is not None:
        run.note("total_rate", "input and output tokens together")
    run.log.add("data.summary-only", "one static batch: there is no per-request data")
    return run


def _accepted(length: float | None) -> float | None:
    """Return a mean length of a speculative step; without speculation it is written as -1 or 0."""
    return length if length is not None and length >= 1 else None


def is_offline(content: Mapping[str, Any]) -> bool:
    """Say whether an object is a line of ``sglang.bench_offline_throughput``."""
    return "successful_requests" in content and "total_latency" in content


def offline(content: Mapping[str, Any]) -> Run:
    """Read one line of ``sglang.bench_offline_throughput``."""
    run = Run("SGLang bench_offline_throughput")
    fields = Fields(dict(content), run.log)
    run.know(
        engine=fields.text("backend"),
        completed=fields.count("successful_requests"),
        duration=fields.number("total_latency"),
        input_tokens=fields.count("total_input_tokens"),
        output_tokens=fields.count("total_output_tokens"),
    )
    run.put("request_rate", "rate", fields.number("request_throughput"))
    run.put("input_rate", "rate", fields.number("input_throughput"))
    run.put("output_rate", "rate", fields.number("output_throughput"))
    run.put("total_rate", "rate", fields.number("total_throughput"))
    run.log.add("data.summary-only", "the summary has no per-request data")
    return run
