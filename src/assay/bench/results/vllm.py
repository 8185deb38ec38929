"""vLLM: the result files of ``vllm bench serve``, ``latency`` and ``throughput``.

Owns their field names, old and new, and what their writer does with failed requests. Facts about
the format are from vLLM 0.32, ``vllm/benchmarks/serve.py``: failed rows have 0 s and no gaps, a
run without any completed request has 0 everywhere, ``request_rate`` is the text ``inf``, and
``e2el`` is written only when asked for. ``sglang`` shares `serving`.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np

from assay.bench.results.fields import Fields
from assay.bench.results.rows import Array, Rows, compute, numbers, sound
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
        _rows(run, fields)
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
        cached_tokens=fields.count("cached_tokens", "total_cached_tokens"),
        external_hit_tokens=fields.count("external_hit_tokens"),
        concurrency=fields.count("max_concurrency"),
        asked_rate=_asked_rate(fields),
        seed=_seed(fields),
    )
    version = fields.text("vllm_version", "engine_version", "version")
    run.know(engine_version=version)


def _asked_rate(fields: Fields) -> float | str | None:
    raw = fields.raw("request_rate")
    if isinstance(raw, str):
        if raw.strip().lower() in ("inf", "infinity", "+inf"):
            return "inf"
        try:
            raw = float(raw)
        except ValueError:
            return None
    # The one place where Infinity is a value: all requests are sent at once.
    if isinstance(raw, float) and raw == float("inf"):
        return "inf"
    return fields.number("request_rate") if raw is not None else None


def _seed(fields: Fields) -> str | None:
    raw = fields.raw("seed")
    return str(raw)[:40] if isinstance(raw, int | str) and not isinstance(raw, bool) else None


def _server(run: Run, fields: Fields) -> None:
    """Compare what the client counts with what the server, or a second tokenizer, counts."""
    sent = run.facts.get("input_tokens")
    server = fields.number("server_prompt_tokens_total", "server_input_tokens")
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
        other = fields.number(name)
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
    said = " ".join(
        str(v) for k in ("note", "notes", "comment", "label") if (v := fields.text(k)) is not None
    )
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


def _rows(run: Run, fields: Fields) -> None:
    lists = {
        n: fields.sequence(n) for n in ("ttfts", "output_lens", "input_lens", "itls", "errors")
    }
    lists["latencies"] = fields.sequence("latencies", "e2e_latencies")
    # Newer writers keep latencies in a summary; alone they are no per-request data.
    there = {n: v for n, v in lists.items() if v is not None}
    if "output_lens" not in there or not there.keys() & {"ttfts", "latencies"}:
        run.log.add("data.summary-only", "the summary has no per-request data")
        return
    size = len(there["output_lens"])
    if any(len(v) != size for v in there.values()):
        sizes = ", ".join(f"{n} {len(v):,}" for n, v in there.items())
        run.log.add("rows.lengths", f"per-request lists differ in length ({sizes}); not used")
        return
    outputs = sound(run, "output_lens", numbers(there["output_lens"], size))
    ttft = sound(run, "ttfts", numbers(there.get("ttfts"), size))
    inputs = sound(run, "input_lens", numbers(there.get("input_lens"), size))
    latency = sound(run, "latencies", numbers(there.get("latencies"), size))
    gaps = _gaps(run, there.get("itls"), size)
    if run.log.failed:
        return
    unsuccessful = _unsuccessful(run, there.get("errors"), outputs, ttft, gaps)
    keep = ~unsuccessful
    _agree(run, size, int(keep.sum()), outputs[keep], inputs[keep])
    if gaps is not None:
        gaps = [g for g, k in zip(gaps, keep, strict=True) if k]
    rows = Rows(ttft[keep], latency[keep], outputs[keep], inputs[keep], gaps)
    _seconds(run, rows)
    compute(run, rows)


def _gaps(run: Run, lists: list[Any] | array[float] | None, size: int) -> list[Array] | None:
    if lists is None:
        return None
    if not isinstance(lists, list) or not all(isinstance(g, list | array) for g in lists):
        run.log.add("number.type", "'itls' is not a list of lists; not used")
        return None
    if not any(len(g) for g in lists):
        return None if size == 0 else [np.empty(0) for _ in lists]
    found = [numbers(g, len(g)) for g in lists]
    pooled = sound(run, "itls", np.concatenate(found))
    ends = np.cumsum([len(g) for g in found])
    return np.split(pooled, ends[:-1])


def _unsuccessful(
    run: Run,
    errors: list[Any] | array[float] | None,
    outputs: Array,
    ttft: Array,
    gaps: list[Array] | None,
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Mark requests that failed: an error, or nothing received at all."""
    with np.errstate(invalid="ignore"):
        nothing = ~(outputs > 0) & ~(ttft > 0)
    if gaps is not None:
        nothing &= np.array([len(g) == 0 for g in gaps], dtype=bool)
    if errors is None:
        return nothing
    said = np.array([bool(e) for e in errors], dtype=bool)
    # A request may succeed and return nothing that the client reads; a failed one may give no
    # reason. The stated count tells which it is.
    if len(said) - int(said.sum()) == run.facts.get("completed"):
        return said
    return said | nothing


def _agree(run: Run, size: int, kept: int, outputs: Array, inputs: Array) -> None:
    facts = run.facts
    completed = facts.get("completed")
    if completed is not None and kept != completed:
        run.log.add(
            "rows.disagree",
            f"{completed:,} requests are said to have completed and {kept:,} of {size:,} rows did",
        )
    if kept != completed:
        facts["completed"] = kept
        facts["failed"] = size - kept
        facts["asked"] = max(size, facts.get("asked", 0))
    for name, values in (("output_tokens", outputs), ("input_tokens", inputs)):
        total = facts.get(name)
        if not np.isfinite(values).all() or not len(values):
            continue
        found = float(values.sum())
        if total is None:
            facts[name] = int(found)
        elif abs(found - total) > 0.005 * max(total, 1) and not run.log.has("tokens.client-server"):
            run.log.add(
                "rows.disagree",
                f"{name.replace('_', ' ')} are stated as {total:,} and the rows add up to "
                f"{found:,.0f}; the rows are used",
            )
            facts[name] = int(found)


def _seconds(run: Run, rows: Rows) -> None:
    """Take rows in milliseconds for what they are."""
    stated = run.get("ttft", "mean")
    seen = rows.ttft[np.isfinite(rows.ttft)]
    if not stated or not len(seen) or not 950 < float(seen.mean()) / stated < 1050:
        return
    run.log.add("units.mixed", "per-request times are in ms where s are due: converted")
    rows.ttft = rows.ttft / 1e3
    rows.latency = rows.latency / 1e3
    rows.gaps = None if rows.gaps is None else [g / 1e3 for g in rows.gaps]


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
    run.put("total_rate", "rate", fields.number("tokens_per_second"))
    run.note("total_rate", "counts input and output tokens; the output rate is not in the file")
    run.log.add("data.summary-only", "the summary has no per-request data")
    return run
