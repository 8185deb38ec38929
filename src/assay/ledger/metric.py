"""Metrics: the closed list of quantities an assertion may be about.

Owns each metric's base unit, display unit, formula and who counts. Does not own values. A metric
that is not on this list cannot be claimed: the list is what keeps output tokens, total tokens and
requests apart.

Notes
-----
Definitions of TTFT, TPOT, ITL and E2EL follow ``vllm bench serve`` (checked on 2026-11-30 against
0.32.0): TPOT excludes the first token, ITL is the gap between consecutive streamed chunks.
"""

from __future__ import annotations

import dataclasses

from assay.errors import RecordError
from assay.physics import units

__all__ = ["METRICS", "Metric", "named"]


@dataclasses.dataclass(frozen=True, slots=True)
class Metric:
    """One quantity that can be claimed.

    Parameters
    ----------
    id : str
        Name used in claims.
    title : str
        Lower-case words for axes and tables.
    unit : str
        Base unit.
    display : str
        Unit shown to readers.
    formula : str
        How it is computed, in words.
    counted_by : str
        Which side counts, and what is excluded.
    """

    id: str
    title: str
    unit: str
    display: str
    formula: str
    counted_by: str


def _table(*rows: tuple[str, str, str, str, str]) -> dict[str, Metric]:
    table = {}
    for name, title, display, formula, counted in rows:
        table[name] = Metric(name, title, units.base_of(display), display, formula, counted)
    return table


METRICS: dict[str, Metric] = _table(
    # rates
    (
        "output_throughput",
        "output tokens per second of the deployment",
        "tok/s",
        "generated tokens ÷ wall time of the window",
        "client; input tokens excluded, prefill time included",
    ),
    (
        "total_throughput",
        "input and output tokens per second of the deployment",
        "tok/s",
        "(input + generated tokens) ÷ wall time of the window",
        "client",
    ),
    (
        "throughput",
        "tokens per second, counting rule unstated",
        "tok/s",
        "tokens ÷ wall time; the source does not say which tokens",
        "unknown",
    ),
    (
        "request_throughput",
        "requests per second",
        "req/s",
        "completed requests ÷ wall time of the window",
        "client; failed requests excluded",
    ),
    (
        "throughput_change",
        "relative change of output throughput",
        "%",
        "after ÷ before − 1",
        "as the two throughputs",
    ),
    (
        "throughput_ratio",
        "throughput ratio",
        "x",
        "throughput of the first arm ÷ throughput of the second",
        "as the two throughputs",
    ),
    # latencies
    (
        "ttft",
        "time to first token",
        "ms",
        "first non-empty chunk − request sent",
        "client; queueing included",
    ),
    ("ttft_change", "relative change of TTFT", "%", "after ÷ before − 1", "as the two TTFTs"),
    ("ttft_ratio", "TTFT ratio", "x", "TTFT of the baseline ÷ TTFT of the system", "as the TTFTs"),
    (
        "tpot",
        "time per output token",
        "ms",
        "(end-to-end latency − TTFT) ÷ (output tokens − 1)",
        "client; the first token excluded",
    ),
    ("tpot_change", "relative change of TPOT", "%", "after ÷ before − 1", "as the two TPOTs"),
    ("tpot_ratio", "TPOT ratio", "x", "TPOT of the baseline ÷ TPOT of the system", "as the TPOTs"),
    (
        "itl",
        "inter-token latency",
        "ms",
        "gap between consecutive streamed chunks",
        "client; a chunk may carry several tokens",
    ),
    ("itl_change", "relative change of ITL", "%", "after ÷ before − 1", "as the two ITLs"),
    (
        "cold_start",
        "cold start time",
        "ms",
        "first request served − process started",
        "operator; image pull and weight download as stated",
    ),
    # memory
    (
        "kv_bytes",
        "KV cache of one sequence, all layers at full length",
        "GB",
        "2 · layers · KV heads · head dim · bytes · tokens",
        "closed form; all devices together",
    ),
    (
        "kv_bytes_per_token",
        "KV cache per token, all layers at full length",
        "B/tok",
        "2 · layers · KV heads · head dim · bytes",
        "closed form; all devices together",
    ),
    (
        "kv_reduction",
        "share of KV cache saved",
        "%",
        "1 − KV bytes ÷ KV bytes of the baseline",
        "closed form",
    ),
    (
        "kv_ratio",
        "KV cache ratio",
        "x",
        "KV bytes of the baseline ÷ KV bytes",
        "closed form",
    ),
    (
        "allocation_ratio",
        "KV bytes allocated ÷ bytes of the closed form",
        "x",
        "bytes of the engine's KV tensors ÷ (blocks · tokens a block · bytes per token)",
        "engine's tensors, added up from their storage",
    ),
    (
        "kv_waste",
        "share of reserved KV memory that holds no token",
        "%",
        "1 − live KV bytes ÷ reserved KV bytes",
        "engine's block manager",
    ),
    (
        "kv_occupancy",
        "share of KV blocks in use",
        "%",
        "blocks in use ÷ blocks in the pool",
        "engine; not the device's busy share",
    ),
    (
        "gpu_utilisation_ratio",
        "GPU utilisation ratio",
        "x",
        "share of time with a kernel running, after ÷ before",
        "NVML",
    ),
    (
        "weight_bytes",
        "size of the weights",
        "GB",
        "parameters · bytes per parameter",
        "closed form",
    ),
    # quality, counts, documents
    (
        "accuracy_change",
        "change of accuracy",
        "pp",
        "accuracy of the first arm − accuracy of the second",
        "grader of the benchmark",
    ),
    ("score_change", "change of a score without unit", "1", "first − second", "unstated"),
    (
        "tokens_per_answer_ratio",
        "ratio of output tokens per answer",
        "x",
        "output tokens per answer of the first arm ÷ those of the second",
        "client; reasoning tokens included",
    ),
    ("speedup", "speed-up", "x", "rate after ÷ rate before", "as the two rates"),
    ("count", "count", "1", "number of things counted", "as the assertion says"),
    ("count_ratio", "ratio of two counts", "x", "first count ÷ second count", "as the two counts"),
    (
        "chunk_tokens",
        "token budget of one scheduler step",
        "tok",
        "resolved max_num_batched_tokens (or the engine's chunk size)",
        "engine's resolved configuration",
    ),
    (
        "context_tokens",
        "context length",
        "tok",
        "tokens a sequence may hold",
        "model's card or config",
    ),
    (
        "statement",
        "whether the statement holds",
        "1",
        "1 when it holds, 0 when it does not",
        "reader of the named document, or the code asked",
    ),
    (
        "rank",
        "smallest ratio between neighbours of the claimed order",
        "x",
        "min over neighbours of (first ÷ second); above 1 the order holds",
        "as the compared rates",
    ),
)


def named(metric: str) -> Metric:
    """Return a metric by its id.

    Raises
    ------
    RecordError
        When the id is not on the list.

    Examples
    --------
    >>> named("ttft").unit
    's'
    """
    try:
        return METRICS[metric]
    except KeyError:
        raise RecordError(
            f"unknown metric '{metric}'", fix=f"use one of {', '.join(METRICS)}"
        ) from None
