"""TensorRT-LLM: reports of ``trtllm-bench`` and the rates of its older benchmark.

Owns their field names. The older benchmark prints two rates with different numerators and
denominators: all output tokens over the whole latency, and the tokens after the first over the
generation time. Facts about the format: TensorRT-LLM, ``bench/dataclasses/reporting.py``, read
2026-11.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.bench.results.fields import Fields
from assay.bench.results.table import Run

__all__ = ["is_report", "is_two_rates", "report", "two_rates"]

_STATISTICS = {"average": "mean", "minimum": "min", "maximum": "max"}
_PERCENTILES = ("p50", "p90", "p95", "p99")
#: Printed rates have two to four digits [1].
_TOLERANCE = 0.01


def is_report(content: Mapping[str, Any]) -> bool:
    """Say whether an object is a report of ``trtllm-bench``."""
    performance = content.get("performance")
    return isinstance(performance, dict) and "total_latency_ms" in performance


def report(content: Mapping[str, Any]) -> Run:
    """Read a report of ``trtllm-bench``."""
    run = Run("trtllm-bench")
    fields = Fields(dict(content), run.log)
    engine, world = fields.part("engine"), fields.part("world_info")
    asked, speed = fields.part("request_info"), fields.part("performance")
    total = speed.number("total_latency_ms")
    gpus = world.count("world_size")
    n = asked.count("num_requests")
    run.know(
        engine="TensorRT-LLM",
        engine_version=engine.text("version"),
        model=engine.text("model", "model_path"),
        hardware=fields.part("machine").text("name"),
        gpus=gpus,
        completed=n,
        duration=None if total is None else total / 1e3,
        input_per_request=asked.number("avg_input_length"),
        output_per_request=asked.number("avg_output_length"),
    )
    in_flight = asked.number("avg_num_concurrent_requests")
    if in_flight is not None:
        run.note("concurrency", f"{in_flight:.3g} requests were in flight on average")
    run.put("request_rate", "rate", speed.number("request_throughput_req_s"))
    output = speed.number("system_output_throughput_tok_s")
    run.put("output_rate", "rate", output)
    run.put("total_rate", "rate", speed.number("system_total_throughput_tok_s"))
    _per_gpu(run, output, speed.number("output_throughput_per_gpu_tok_s"), gpus)
    user = speed.number("output_throughput_per_user_tok_s")
    run.put("request_output_rate", "mean", user, samples=n)
    _times(run, speed, "request_latency_percentiles_ms", "e2el", n)
    run.put("e2el", "mean", _ms(speed.number("avg_request_latency_ms")), samples=n)
    stream = fields.part("streaming_metrics")
    for metric in ("ttft", "tpot"):
        run.put(metric, "mean", _ms(stream.number(f"avg_{metric}_ms")), samples=n)
        _times(run, stream, f"{metric}_percentiles", metric, n)
    speed_of_one = stream.number("token_output_speed_tok_s")
    run.put("request_decode_rate", "mean", speed_of_one, samples=n)
    drafts = fields.part("decoding_stats")
    run.know(
        acceptance_rate=drafts.part("draft_acceptance_rate_percentiles").number("average"),
        acceptance_length=drafts.part("acceptance_length_percentiles").number("average"),
    )
    run.log.add("data.summary-only", "the report has no per-request data")
    return run


def _ms(value: float | None) -> float | None:
    return None if value is None else value / 1e3


def _per_gpu(run: Run, output: float | None, stated: float | None, gpus: int | None) -> None:
    if stated is None:
        return
    if gpus and output and abs(stated * gpus / output - 1) > _TOLERANCE:
        run.log.add(
            "rate.inconsistent",
            "the stated rate per GPU is not the output rate over the GPUs; not used",
        )
        return
    run.put("output_rate", "rate", stated, per="GPU")


def _times(run: Run, fields: Fields, name: str, metric: str, n: int | None) -> None:
    part = fields.part(name)
    for field, statistic in (*_STATISTICS.items(), *((p, p) for p in _PERCENTILES)):
        run.put(metric, statistic, _ms(part.number(field)), samples=n)


def is_two_rates(content: Mapping[str, Any]) -> bool:
    """Say whether an object is one line of the older benchmark."""
    return "tokens_per_sec" in content and bool(
        content.keys() & {"generation_tokens_per_second", "generation_time_ms", "latency_ms"}
    )


def two_rates(content: Mapping[str, Any]) -> Run:
    """Read one line of the older benchmark, each rate with its own tokens and time."""
    run = Run("TensorRT-LLM benchmark")
    fields = Fields(dict(content), run.log)
    batch = fields.count("batch_size")
    outputs = fields.number("output_length")
    latency, spent = _ms(fields.number("latency_ms")), _ms(fields.number("generation_time_ms"))
    run.know(
        engine="TensorRT-LLM",
        completed=batch,
        concurrency=batch,
        duration=latency,
        output_per_request=outputs,
        input_per_request=fields.number("input_length"),
    )
    run.put("e2el", "mean", latency, samples=batch)
    run.put("generation_time", "mean", spent, samples=batch)
    sequences = batch or 1
    whole = None if outputs is None else outputs * sequences
    _checked(run, "output_rate", fields.number("tokens_per_sec"), whole, latency)
    decode = fields.number("generation_tokens_per_second")
    _checked(run, "decode_rate", decode, fields.number("total_generated_tokens"), spent)
    if run.get("output_rate") is not None and run.get("decode_rate") is not None:
        run.log.add(
            "rate.two",
            "one rate is all output tokens over the whole latency, prefill included; the other is "
            "the tokens after the first over the generation time",
        )
    return run


def _checked(
    run: Run, metric: str, stated: float | None, tokens: float | None, seconds: float | None
) -> None:
    due = None if tokens is None or not seconds else tokens / seconds
    if stated is not None and due and abs(stated / due - 1) > _TOLERANCE:
        run.log.add(
            "rate.not-a-speed",
            f"the stated {metric.replace('_', ' ')} is not its tokens over its time; recomputed",
        )
        run.put(metric, "rate", due, recomputed=True)
        return
    run.put(metric, "rate", stated if stated is not None else due, recomputed=stated is None)
