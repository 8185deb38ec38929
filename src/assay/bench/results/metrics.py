"""Metrics: the closed list of what a result can say, with units and what is counted.

Owns the metrics and facts of the normalised table. Latencies are in seconds, rates in tokens or
requests per second; output, total (input + output) and request rates are different metrics. Does
not own values (``table``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["FACTS", "METRICS", "Metric"]

Better = Literal["lower", "higher", ""]


@dataclass(frozen=True, slots=True)
class Metric:
    """What one metric measures.

    Parameters
    ----------
    unit : str
        Base unit.
    counting : str
        ``output``, ``input``, ``total``, ``requests``, or empty for a time.
    per : str
        What one value belongs to: a request, a token, a chunk, the deployment.
    better : str
        Which direction is better; empty when neither.
    says : str
        The definition.
    """

    unit: str
    counting: str
    per: str
    better: Better
    says: str


#: Definitions of ttft, tpot, itl and e2el are those of `vllm bench serve` 0.32.
METRICS: dict[str, Metric] = {
    "ttft": Metric("s", "", "request", "lower", "request sent to first chunk with text"),
    "tpot": Metric(
        "s", "", "request", "lower", "(latency - TTFT) / (output tokens - 1), 2 or more tokens"
    ),
    "itl": Metric("s", "", "token", "lower", "gap between two tokens, all requests pooled"),
    "chunk_gap": Metric("s", "", "chunk", "", "gap between two chunks of several tokens"),
    "second_token": Metric("s", "", "request", "", "first token to second token"),
    "e2el": Metric("s", "", "request", "lower", "request sent to last token"),
    "latency_per_token": Metric(
        "s", "", "request", "", "latency / output tokens, first token included: not TPOT"
    ),
    "generation_time": Metric("s", "", "request", "lower", "first token to last token"),
    "output_rate": Metric("tok/s", "output", "deployment", "higher", "output tokens / duration"),
    "total_rate": Metric(
        "tok/s", "total", "deployment", "higher", "input and output tokens / duration"
    ),
    "input_rate": Metric("tok/s", "input", "deployment", "higher", "input tokens / duration"),
    "request_rate": Metric(
        "req/s", "requests", "deployment", "higher", "completed requests / duration"
    ),
    "goodput": Metric(
        "req/s", "requests", "deployment", "higher", "requests within their objectives / duration"
    ),
    "peak_output_rate": Metric(
        "tok/s", "output", "deployment", "", "most chunks in one second, which stand for tokens"
    ),
    "prefill_rate": Metric(
        "tok/s", "input", "deployment", "higher", "prompt tokens / prefill time"
    ),
    "decode_rate": Metric(
        "tok/s", "output", "deployment", "higher", "generated tokens / decode time, no prefill"
    ),
    "combined_rate": Metric(
        "tok/s", "total", "deployment", "", "prompt and generated tokens / time: not decode"
    ),
    "request_output_rate": Metric(
        "tok/s", "output", "request", "higher", "output tokens of one request / its latency"
    ),
    "request_decode_rate": Metric(
        "tok/s", "output", "request", "higher", "tokens of one request after its first / their time"
    ),
}

#: What is known about a run: name -> (unit or empty for text, what it is).
FACTS: dict[str, tuple[str, str]] = {
    "engine": ("", "client backend or engine"),
    "engine_version": ("", "as the file states"),
    "model": ("", "as the file states"),
    "tokenizer": ("", "the client's"),
    "hardware": ("", "as the file states"),
    "dataset": ("", "as the file states"),
    "test": ("", "what a row of a suite ran"),
    "settings": ("", "of the engine, as the file states"),
    "seed": ("", "of the prompts"),
    "date": ("", "as the file states"),
    "label": ("", "as the file states"),
    "asked": ("req", "requests asked for"),
    "completed": ("req", "requests completed"),
    "failed": ("req", "requests failed or never sent"),
    "concurrency": ("req", "most requests in flight; null when not limited or not stated"),
    "asked_rate": ("req/s", "arrival rate asked for; inf sends all at once"),
    "gpus": ("GPU", "devices of the deployment"),
    "duration": ("s", "of the whole run"),
    "input_tokens": ("tok", "sent, as the client counts unless noted"),
    "output_tokens": ("tok", "received"),
    "cached_tokens": ("tok", "input served by a prefix cache"),
    "prefix_cache": ("", "off, when the file says so"),
    "acceptance_rate": ("1", "drafted tokens that were accepted, with speculative decoding"),
    "acceptance_length": ("tok", "mean of one step with speculative decoding"),
    "input_per_request": ("tok", "mean"),
    "output_per_request": ("tok", "mean"),
    "external_hit_tokens": ("tok", "input served from outside the device's own cache"),
}
