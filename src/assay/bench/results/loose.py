"""Loose: small objects that are no benchmark's file but are passed around as results.

Owns four shapes: rates with several GPU counts, a list of requests with their times, one usage
record, and a claim that names the field a number was read from. Each answer says what is counted
and per which GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from assay.bench.results.fields import Fields
from assay.bench.results.rows import Rows, compute, numbers, sound
from assay.bench.results.table import Run

__all__ = [
    "claims",
    "is_claims",
    "is_counts",
    "is_requests",
    "is_usage",
    "per_gpu",
    "requests",
    "usage",
]

#: GPU counts a file may state, and what a GPU of each kind is called.
_KINDS = {
    "allocated_gpus": "allocated GPU",
    "working_gpus": "working GPU",
    "prefill_gpus": "prefill GPU",
    "decode_gpus": "decode GPU",
    "num_gpus": "GPU",
}
_TOLERANCE = 0.005


def is_counts(content: Mapping[str, Any]) -> bool:
    """Say whether an object states a rate and GPU counts."""
    return bool(content.keys() & _KINDS.keys()) and bool(
        content.keys() & {"total_token_throughput", "output_token_throughput", "output_throughput"}
    )


def per_gpu(content: Mapping[str, Any]) -> Run:
    """Divide rates by every GPU count the file states, each labelled."""
    run = Run("rates and GPU counts")
    fields = Fields(dict(content), run.log)
    counts = {kind: fields.count(name) for name, kind in _KINDS.items()}
    rates = {
        "total_rate": fields.number("total_token_throughput"),
        "output_rate": fields.number("output_token_throughput", "output_throughput"),
        "input_rate": fields.number("input_token_throughput", "input_throughput"),
    }
    run.know(gpus=counts["GPU"] or counts["allocated GPU"])
    for metric, rate in rates.items():
        run.put(metric, "rate", rate)
        for kind, count in counts.items():
            # Prefill GPUs make no output, and decode GPUs read no prompt.
            apart = {"prefill GPU": "input_rate", "decode GPU": "output_rate"}.get(kind, metric)
            if rate is not None and count and apart == metric:
                run.put(metric, "rate", rate / count, per=kind, recomputed=True)
    for name in content:
        if name.startswith("claimed_") and name.endswith("_per_gpu"):
            _which(run, name, fields.number(name))
    return run


def _which(run: Run, name: str, value: float | None) -> None:
    if not value:
        return
    hits = [f for f in run.figures.values() if f.per and abs(f.value / value - 1) < _TOLERANCE]
    for figure in hits:
        counted = figure.metric.removesuffix("_rate")
        run.note(figure.column, f"'{name[:60]}' is this: {counted} tokens per {figure.per}")
    if not hits:
        run.log.add(
            "rate.not-a-speed", f"'{name[:60]}' is none of the rates over any of the GPU counts"
        )


def is_requests(content: Mapping[str, Any]) -> bool:
    """Say whether an object is a list of requests with their times in seconds."""
    found = content.get("requests")
    return isinstance(found, list) and any(isinstance(r, dict) and "e2e_s" in r for r in found)


def requests(content: Mapping[str, Any]) -> Run:
    """Read requests with their times; a stated rate is held against them."""
    run = Run("list of requests")
    fields = Fields(dict(content), run.log)
    listed = [Fields(r, run.log, f"requests[{i}]") for i, r in enumerate(content["requests"])]
    n = len(listed)
    run.know(completed=n)

    def column(*names: str) -> Any:
        values = [r.number(*names) for r in listed]
        return sound(run, names[0], numbers(values, n))

    outputs, inputs = column("output_tokens"), column("input_tokens", "prompt_tokens")
    ttft, latency = column("ttft_s"), column("e2e_s")
    if np.isfinite(outputs).all():
        run.know(output_tokens=int(outputs.sum()))
    if run.log.failed:
        return run
    compute(run, Rows(ttft, latency, outputs, inputs))
    with np.errstate(all="ignore"):
        rate = np.where(latency > 0, outputs / latency, np.nan)
    rate = rate[np.isfinite(rate) & (rate > 0)]
    if len(rate):
        mean = float(rate.mean())
        run.put("request_output_rate", "mean", mean, samples=len(rate), recomputed=True)
        for name in content:
            stated = fields.number(name) if name.endswith("tok_s_per_request") else None
            if stated and abs(stated / mean - 1) > 0.1:
                run.log.add(
                    "rate.not-a-speed",
                    f"'{name[:60]}' says {stated:,.2f} tok/s and the tokens over the whole latency "
                    f"are {mean:,.2f} tok/s: it divides by the time after the first chunk",
                )
    return run


def is_usage(content: Mapping[str, Any]) -> bool:
    """Say whether an object holds one usage record of an OpenAI-compatible server."""
    found = content.get("usage")
    return isinstance(found, dict) and "prompt_tokens" in found


def usage(content: Mapping[str, Any]) -> Run:
    """Read one usage record: token counts, no time."""
    run = Run("usage record")
    part = Fields(dict(content), run.log).part("usage")
    prompt, made = part.count("prompt_tokens"), part.count("completion_tokens")
    cached = part.part("prompt_tokens_details").count("cached_tokens")
    total = part.count("total_tokens")
    run.know(input_tokens=prompt, output_tokens=made, cached_tokens=cached)
    if None not in (prompt, made, total) and (prompt or 0) + (made or 0) != total:
        run.log.add("tokens.sum", "total_tokens is not prompt_tokens plus completion_tokens")
    return run


def is_claims(content: Mapping[str, Any]) -> bool:
    """Say whether an object lists claims that name the field they were read from."""
    found = content.get("claims")
    return isinstance(found, list) and any(isinstance(c, dict) and "field_used" in c for c in found)


def claims(content: Mapping[str, Any]) -> list[Run]:
    """Read claimed rates: how much of a total rate can be output."""
    found = []
    for number, claim in enumerate(content["claims"]):
        run = Run("claimed rate")
        fields = Fields(claim, run.log, f"claims[{number}]")
        inputs, outputs = fields.number("input_tokens"), fields.number("output_tokens")
        total = fields.number("total_tok_s")
        run.know(label=fields.text("id"), input_per_request=inputs, output_per_request=outputs)
        run.put("total_rate", "rate", total, per="GPU" if "GPU" in str(claim) else "")
        if total is not None and inputs is not None and outputs:
            most = total * outputs / (inputs + outputs)
            run.put("output_rate", "rate", most, per="GPU" if "GPU" in str(claim) else "")
            run.log.add(
                "rate.not-a-speed",
                f"the field '{str(fields.raw('field_used'))[:40]}' adds input tokens: of "
                f"{total:,.4g} tok/s at most {most:,.4g} are generated",
            )
        found.append(run)
    return found
