"""vLLM: the result files of ``vllm bench serve``, ``latency`` and ``throughput``.

Owns their field names, old and new, and what their writer does with failed requests. Facts about
the format are from vLLM 0.32, ``vllm/benchmarks/serve.py``: failed rows have 0 s and no gaps, a
run without any completed request has 0 everywhere, ``request_rate`` is the text ``inf``, and
``e2el`` is written only when asked for. ``sglang`` shares `serving`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from assay.bench.results import vllm_rows
from assay.bench.results.fields import Fields
from assay.bench.results.rows import numbers, sound
from assay.bench.results.table import Run

__all__ = ["is_latency", "is_serving", "is_throughput", "latency", "serving", "throughput"]

_STATISTIC = re.compile(
    r"(mean|median|std|min|max|p\d{1,2}(?:\.\d{1,4})?)_(ttft|tpot|itl|e2el|e2e_latency)_ms"
)
_METRIC = {"e2e_latency": "e2el"}
#: Notes by which people say that prompts repeat, in the free text that ``--metadata`` stores.
_REPEATED = re.compile(
    r"identical|same prompt|repeated prompt|shared prefix|prefix[- _]?(cache|caching)", re.I
)
_NOT_REPEATED = re.compile(
    r"\b(no|not|without|off|disabled?)\b[^,;.]{0,24}prefix|"
    r"prefix[- _]?(cache|caching)[ :=]*(is )?(off|disabled|false|no\b)",
    re.I,
)
#: A stated rate is its tokens over its time within [1].
_ROUNDED = 0.02
_DATASETS = {"prefix_repetition", "generated-shared-prefix"}


def is_serving(content: Mapping[str, Any]) -> bool:
    """Say whether an object is a result of a serving benchmark of vLLM's shape."""
    return "completed" in content and bool(
        content.keys() & {"duration", "request_throughput", "output_throughput", "mean_ttft_ms"}
    )


def serving(content: Mapping[str, Any], format_name: str = "vllm bench serve") -> Run:
    """Read one run of a serving benchmark.

    Parameters
    ----------
    content : mapping
        The object as written.
    format_name : str
        Who wrote it.
    """
    run = Run(format_name)
    fields = Fields(dict(content), run.log)
    _facts(run, fields)
    n = run.facts.get("completed")
    for name in content:
        match = _STATISTIC.fullmatch(name)
        if match:
            statistic = {"median": "p50"}.get(match[1], match[1])
            value = fields.number(name)
            metric = _METRIC.get(match[2], match[2])
            run.put(metric, statistic, None if value is None else value / 1e3, samples=n)
    for name, metric in (
        ("request_throughput", "request_rate"),
        ("output_throughput", "output_rate"),
        ("input_throughput", "input_rate"),
        ("max_output_tokens_per_s", "peak_output_rate"),
    ):
        run.put(metric, "rate", fields.number(name))
    run.put("total_rate", "rate", fields.number("total_token_throughput", "total_throughput"))
    run.put("goodput", "rate", fields.number("request_goodput", "request_goodput:"))
    _server(run, fields)
    _cache(run, fields)
    if run.facts.get("completed") != 0:
        vllm_rows.read(run, fields)
    if "completed" not in run.facts:
        run.log.add("requests.unknown", "how many requests completed is not said")
    return run


def _facts(run: Run, fields: Fields) -> None:
    run.know(
        engine=fields.text("backend", "endpoint_type"),
        model=fields.text("model_id", "model"),
        tokenizer=fields.text("tokenizer_id"),
        dataset=fields.text("dataset_name", "dataset"),
        date=fields.text("date"),
        label=fields.text("label", "tag"),
        asked=fields.count("num_prompts"),
        completed=fields.count("completed"),
        failed=fields.count("failed"),
        duration=fields.number("duration"),
        input_tokens=fields.count("total_input_tokens"),
        output_tokens=fields.count("total_output_tokens"),
        cached_tokens=_whole(fields.told("cached_tokens", "total_cached_tokens")),
        external_hit_tokens=_whole(fields.told("external_hit_tokens")),
        gpus=_whole(fields.told("num_gpus", "gpus", "gpu_count")),
        hardware=fields.text("gpu", "gpu_name", "hardware"),
        prefix_cache=_prefix_cache(fields),
        concurrency=fields.count("max_concurrency"),
        asked_rate=_asked_rate(fields),
        seed=_seed(fields),
    )
    version = fields.text("vllm_version", "engine_version", "version")
    run.know(engine_version=version)
    if run.facts.get("gpus") == 0:
        del run.facts["gpus"]
    _speculation(run, fields)
    if fields.raw("run_number") == -1:
        run.log.add("run.warm-up", "the file says that the run warmed the server up: no repeat")


def _whole(value: float | None) -> int | None:
    return None if value is None or value != int(value) else int(value)


def _prefix_cache(fields: Fields) -> str | None:
    """Return ``off`` when people noted that the prefix cache is off."""
    for name in ("enable_prefix_caching", "prefix_caching", "prefix_cache"):
        value = fields.raw(name)
        if value is False or str(value).strip().lower() in ("false", "off", "no", "0", "disabled"):
            return "off"
    return "off" if _NOT_REPEATED.search(_noted(fields)) else None


def _noted(fields: Fields) -> str:
    words = (fields.text(name) for name in ("note", "notes", "comment", "label"))
    return " ".join(word for word in words if word is not None)


def _speculation(run: Run, fields: Fields) -> None:
    """Read what came of drafted tokens; vLLM's rate is in percent, SGLang has a length only."""
    drafted = fields.number("spec_decode_draft_tokens")
    accepted = fields.number("spec_decode_accepted_tokens")
    percent = fields.number("spec_decode_acceptance_rate")
    rate = None if percent is None else percent / 100
    if drafted and accepted is not None:
        due = accepted / drafted
        if due > 1 or (rate is not None and abs(rate - due) > 0.01):
            run.log.add(
                "speculation.inconsistent",
                f"{accepted:,.0f} tokens accepted of {drafted:,.0f} drafted is not the stated "
                "acceptance; none is used",
            )
            return
        rate = due
    length = fields.number("spec_decode_acceptance_length", "accept_length", "acc_length")
    if rate is not None and rate > 1:
        run.log.add("speculation.inconsistent", "more tokens were accepted than drafted; not used")
        return
    run.know(acceptance_rate=rate, acceptance_length=length if length and length >= 1 else None)


def _asked_rate(fields: Fields) -> float | str | None:
    raw = fields.raw("request_rate")
    if isinstance(raw, str) and raw.strip().lower().lstrip("+") in ("inf", "infinity"):
        return "inf"
    # The one place where Infinity is a value: all requests are sent at once.
    if isinstance(raw, float) and raw == float("inf"):
        return "inf"
    return fields.told("request_rate")


def _seed(fields: Fields) -> str | None:
    raw = fields.raw("seed")
    return str(raw)[:40] if isinstance(raw, int | str) and not isinstance(raw, bool) else None


def _server(run: Run, fields: Fields) -> None:
    """Compare what the client counts with what the server, or a second tokenizer, counts."""
    sent = run.facts.get("input_tokens")
    server = fields.told("server_prompt_tokens_total", "server_input_tokens")
    if sent and server and abs(server / sent - 1) > 0.02:
        run.log.add(
            "tokens.client-server",
            f"the client counts {sent:,} input tokens and the server {server:,.0f} "
            f"({server / sent:.2f} times): the load is not the one asked for, so the run compares "
            "with no other; the server's count is used",
        )
        run.facts["input_tokens"] = int(server)
        run.drop("input_rate")
        run.drop("total_rate")
    made = run.facts.get("output_tokens")
    for name, who in (
        ("server_completion_tokens_total", "the server"),
        ("server_generation_tokens_total", "the server"),
        ("server_output_tokens", "the server"),
        ("total_output_tokens_retokenized", "a second tokenizer"),
    ):
        other = fields.told(name)
        if made and other is not None and abs(other / made - 1) > 0.05:
            run.log.add(
                "tokens.client-server",
                f"the client counts {made:,} output tokens and {who} {other:,.0f} "
                f"({other / made:.2f} times): the output rate depends on whose tokens are meant",
            )
    _asked_lengths(run, fields)


def _asked_lengths(run: Run, fields: Fields) -> None:
    completed = run.facts.get("completed")
    ratio = fields.number("random_range_ratio", quiet=True)
    if not completed or (ratio is not None and ratio < 1 and run.format.startswith("SGLang")):
        return
    for name, total, what in (
        ("random_input_len", run.facts.get("input_tokens"), "input"),
        ("random_output_len", run.facts.get("output_tokens"), "output"),
    ):
        asked = fields.number(name, quiet=True)
        random = (run.facts.get("dataset") or "random").startswith("random")
        if asked and total is not None and random and abs(total / completed / asked - 1) > 0.05:
            run.log.add(
                "tokens.lengths-differ",
                f"{asked:,.0f} {what} tokens a request were asked and "
                f"{total / completed:,.1f} delivered",
            )


def _cache(run: Run, fields: Fields) -> None:
    said = _noted(fields)
    dataset = run.facts.get("dataset") or ""
    if dataset in _DATASETS or (_REPEATED.search(said) and not _NOT_REPEATED.search(said)):
        run.log.add(
            "cache.identical-prompts",
            "the prompts repeat, so a prefix cache answers most of the input: speed from here is "
            "that of the cache and not of the engine",
        )
    inputs, cached = run.facts.get("input_tokens"), run.facts.get("cached_tokens")
    if cached and inputs and 0.01 * inputs < cached <= inputs:
        run.log.add(
            "cache.identical-prompts",
            f"{cached / inputs:.0%} of the input came from a prefix cache",
        )


def is_latency(content: Mapping[str, Any]) -> bool:
    """Say whether an object is a result of ``vllm bench latency``."""
    return "avg_latency" in content and "latencies" in content


def latency(content: Mapping[str, Any]) -> Run:
    """Read a result of ``vllm bench latency``: whole batches, no first token."""
    run = Run("vllm bench latency")
    fields = Fields(dict(content), run.log)
    values = fields.sequence("latencies")
    found = sound(run, "latencies", numbers(values, 0))
    found = found[np.isfinite(found)]
    n = len(found) or None
    run.put("e2el", "mean", fields.number("avg_latency"), samples=n)
    for name, value in fields.part("percentiles").content.items():
        if re.fullmatch(r"\d{1,2}", name) and type(value) in (int, float):
            part = fields.part("percentiles")
            run.put("e2el", f"p{name}", part.number(name), samples=n)
    run.note("e2el_mean", "one latency is that of a whole batch, without a queue")
    if not len(found):
        run.log.add("data.summary-only", "the summary has no per-iteration data")
    return run


def is_throughput(content: Mapping[str, Any]) -> bool:
    """Say whether an object is a result of ``vllm bench throughput``."""
    return "elapsed_time" in content and "tokens_per_second" in content


def throughput(content: Mapping[str, Any]) -> Run:
    """Read a result of ``vllm bench throughput``; its tokens are input and output together."""
    run = Run("vllm bench throughput")
    fields = Fields(dict(content), run.log)
    completed = fields.count("num_requests")
    run.know(completed=completed, duration=fields.number("elapsed_time"))
    run.put("request_rate", "rate", fields.number("requests_per_second"))
    stated, total = fields.number("tokens_per_second"), fields.number("total_num_tokens")
    seconds = run.facts.get("duration")
    due = total / seconds if total and seconds else None
    if stated is not None and due is not None and abs(stated / due - 1) > _ROUNDED:
        run.log.add(
            "rate.inconsistent",
            f"the stated rate is {stated / due:.3g} times the tokens over the duration; the latter "
            "is used",
        )
        run.put("total_rate", "rate", due, recomputed=True)
    else:
        run.put("total_rate", "rate", stated)
    run.note("total_rate", "counts input and output tokens; the output rate is not in the file")
    run.log.add("data.summary-only", "the summary has no per-request data")
    return run
