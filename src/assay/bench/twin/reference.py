"""Reference: the twin at the conditions of published runs, with nothing fitted to them.

Owns the rule by which published rows are picked and what vLLM was told in each. Does not own the
rows (`ledger.published`), the loop (`run`), what the comparison shows (`comparison`) nor the step
time, whose two shares are taken as they are.

The rule looks at conditions and never at values. A row is taken when a third party ran plain vLLM
of a stated version on stated cards, with a model and a number format that the step time knows,
stated lengths and a load that says how many requests are in flight, without a prompt token from a
cache; and when its source did not set a share of the step time. Of several rates of one run the
output rate counts.

Not modelled, and to be known when reading an error: the client, the network and tokenizing; the
memory that CUDA graphs and the sampler take; how much of its data sheet this card keeps under load.
vLLM before 0.8 puts prompts before running requests and, in the run of 0.6, plans ten steps at
once; the scheduler here is today's, which mixes both and plans each step when the one before is
done. What the host does between steps is a constant, though it grows with the sequences.
"""

from __future__ import annotations

import collections
import functools
import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from assay.bench.twin import engine, run, steptime, workload
from assay.errors import InputError
from assay.ledger import published, records, store
from assay.physics import kv, units

__all__ = ["KINDS", "Told", "left_out", "rows", "told", "why"]

#: Published metric -> what kind of figure it is; rates of one run in the order they are taken.
KINDS = {
    "output_throughput": "throughput",
    "request_throughput": "throughput",
    "total_throughput": "throughput",
    "ttft": "TTFT",
    "tpot": "TPOT",
}
_BITS = {("w16a16", "bf16"): 16, ("w16a16", "fp16"): 16, ("w8a8", "fp8"): 8}
_KV = {"": "auto", "bf16": "auto", "fp8": "fp8"}
#: Arms that are the engine as it comes.
_PLAIN = ("", "baseline", "default flags")
_BURST = re.compile(r"burst of (\d+) prompts")
_CLOSED = re.compile(r"(\d+) prompts, (\d+) at a time")
_SAMPLED = "sharegpt"
#: Share of a card's memory that vLLM takes when told nothing, in every version here.
_UTILIZATION = 0.9
_LARGE = 70 * 2**30  # cards from this size on get the larger defaults, the A100 excepted [B]


@dataclass(frozen=True, slots=True)
class Told:
    """What the scheduler was told.

    Parameters
    ----------
    budget : int
        Most tokens a step [tok].
    most_running : int
        Most sequences at once.
    chunked, prefix_caching : bool
        Whether prompts may be split, and whether prefixes are kept.
    """

    budget: int
    most_running: int
    chunked: bool = True
    prefix_caching: bool = True


def told(version: str, card: records.Hardware, longest: int) -> Told:
    """Return what a vLLM server's scheduler is told when the run's flags are left as printed.

    Parameters
    ----------
    version : str
        As printed.
    card : Hardware
        What it runs on.
    longest : int
        Longest sequence [tok].

    Notes
    -----
    From 0.8 on: ``EngineArgs.get_batch_defaults`` for the API server, which looks at the card's
    memory and name (``data/twin/budgets.csv`` has today's answers). The runs of 0.6 are those of
    the project's nightly benchmark, whose files set 512 sequences and ten scheduler steps; a
    context of 8,192 tokens is then served in whole prompts and without prefix caching.
    """
    if version.startswith("0.6"):
        return Told(longest, 512, chunked=False, prefix_caching=False)
    large = _memory(card) >= _LARGE and "a100" not in card.id
    return Told(8192, 1024) if large else Told(2048, 256)


# -- which rows ---------------------------------------------------------------------------------


def rows(*wanted: str) -> Iterator[dict[str, str | int | float]]:
    """Serve every chosen run and yield one row a published figure; needs vLLM.

    Parameters
    ----------
    *wanted : str
        Ids of published rows; all that the rule takes when there are none.

    Yields
    ------
    dict
        The conditions, ``published`` and ``predicted`` in the base unit named, and ``error``: the
        prediction over the published value, less 1.
    """
    values = {row.id: row for row in published.measurements()}
    runs = collections.defaultdict(list)
    for cells in _chosen():
        if not wanted or cells["row"] in wanted:
            runs[_run(cells)].append(cells)
    for same in runs.values():
        setup, step, asks, in_flight = _conditions(same[0])
        source = workload.closed_loop(asks, in_flight) if in_flight < len(asks) else None
        found = run.run(setup, source or workload.open_loop(asks), step)
        for cells in same:
            row, predicted = values[cells["row"]], _measure(found, cells)
            assert row.value is not None and row.gpu_count is not None
            stated = row.value * (row.gpu_count if row.per == "gpu" else 1)
            yield {
                "row": row.id,
                "source": row.source,
                "engine_version": cells["engine_version"],
                "model": row.model,
                "experts": "yes" if store.model(row.model).active_parameters else "no",
                "precision": row.precision,
                "gpu": row.gpu,
                "gpu_count": row.gpu_count,
                "workload": row.workload or "fixed lengths",
                "prompt_tok": statistics.fmean(ask.prompt for ask in asks),
                "output_tok": statistics.fmean(ask.output for ask in asks),
                "requests": len(asks),
                "in_flight": in_flight,
                "budget_tok": setup.budget,
                "most_running": setup.most_running,
                "pool_tok": (found.blocks - 1) * setup.block_size,
                "preemptions": found.preemptions,
                "kind": KINDS[row.metric],
                "metric": row.metric,
                "statistic": cells["statistic"] or "n/a",
                "unit": row.unit,
                "published": stated,
                "predicted": predicted,
                "error": predicted / stated - 1,
            }


def left_out() -> dict[str, int]:
    """Return why published figures of vLLM are not compared, and how many each reason leaves out.

    Returns
    -------
    dict
        Reason -> rows, most frequent first. Each row counts once, under the first reason.
    """
    reasons = (why(cells) for cells in _candidates())
    return dict(collections.Counter(reason for reason in reasons if reason).most_common())


def _candidates() -> Iterator[dict[str, str]]:
    return (cells for cells in store.published("measurements") if _figure(cells))


def _figure(cells: dict[str, str]) -> bool:
    return (
        cells["role"] == "evidence"
        and cells["state"] == "ok"
        and cells["engine"] == "vLLM"
        and cells["metric"] in KINDS
        and cells["value"] != ""
        and not cells["duplicate_of"]
    )


def _chosen() -> list[dict[str, str]]:
    return [cells for cells in _candidates() if not why(cells)]


def why(cells: dict[str, str]) -> str:
    """Return why a published row is not compared, in a few words; empty when it is.

    Parameters
    ----------
    cells : dict
        A row of ``data/published/measurements.csv``.

    Returns
    -------
    str
        The first condition that it does not meet.
    """
    if not _figure(cells):
        return "no third party's rate or latency of vLLM"
    kind = KINDS[cells["metric"]]
    checks = (
        (cells["source"] not in _seen(), "its source set a share of the step time"),
        (cells["engine_version"] != "", "version unstated"),
        (cells["gpu"] != "" and cells["gpu_count"] != "", "cards unstated"),
        (
            (cells["precision"], cells["format"]) in _BITS and cells["kv_dtype"] in _KV,
            "number format unstated, or not one the step time knows",
        ),
        (cells["input_tokens"] != "" and cells["output_tokens"] != "", "lengths unstated"),
        (cells["arm"] in _PLAIN, "not the plain engine"),
        (cells["cached_share"] in ("", "0"), "prompt tokens come from a cache"),
        (_load(cells) is not None, "requests in flight unstated, or conversations"),
        (
            kind == "throughput" or cells["statistic"] in ("mean", "median"),
            "statistic unstated",
        ),
        (not _better_rates(cells), "the run's other rate"),
    )
    for met, reason in checks:
        if not met:
            return reason
    return _unknown(cells["model"], cells["gpu"])


@functools.cache
def _seen() -> frozenset[str]:
    rows_ = store.published("measurements")
    return frozenset(cells["source"] for cells in rows_ if cells["row"] in steptime.SET_BY)


@functools.cache
def _unknown(model: str, card: str) -> str:
    try:
        record = store.model(model)
        steptime.Roofline.of(record, store.hardware(card))
    except InputError:
        return "attention or card not known to the step time"
    layout = kv.report(record.config).layout
    assert layout is not None
    whole = all(layer.kind == "full" for layer in layout.layers)
    return "" if whole else "attention other than of keys and values over the whole context"


def _run(cells: dict[str, str]) -> tuple[str, ...]:
    """Return what names a run: rows that share it were measured together."""
    same = ("source", "engine_version", "model", "gpu", "gpu_count", "input_tokens")
    more = ("output_tokens", "workload", "load", "arm", "kv_dtype", "precision")
    return tuple(cells[name] for name in same + more)


def _better_rates(cells: dict[str, str]) -> set[str]:
    """Return the rates of the same run that are taken before this one."""
    rates = [metric for metric, kind in KINDS.items() if kind == "throughput"]
    if cells["metric"] not in rates:
        return set()
    before = rates[: rates.index(cells["metric"])]
    return _measured().get(_run(cells), set()) & set(before)


@functools.cache
def _measured() -> dict[tuple[str, ...], set[str]]:
    found = collections.defaultdict[tuple[str, ...], set[str]](set)
    for cells in _candidates():
        found[_run(cells)].add(cells["metric"])
    return dict(found)


def _load(cells: dict[str, str]) -> tuple[int, int] | None:
    """Return how many requests there are and how many are in flight."""
    if found := _BURST.fullmatch(cells["load"]):
        return int(found[1]), int(found[1])
    if found := _CLOSED.fullmatch(cells["load"]):
        return int(found[1]), int(found[2])
    return None


# -- what the engine was told -------------------------------------------------------------------


def _conditions(
    cells: dict[str, str],
) -> tuple[engine.Setup, steptime.Roofline, list[workload.Ask], int]:
    model, card = store.model(cells["model"]), store.hardware(cells["gpu"])
    tp, bits = int(cells["gpu_count"]), _BITS[cells["precision"], cells["format"]]
    step = steptime.Roofline.of(
        model, card, tp=tp, bits=bits, kv_bits=8 if cells["kv_dtype"] == "fp8" else 16
    )
    load = _load(cells)
    assert load is not None and model.native_context is not None
    asks = _asks(cells, load[0])
    flags = told(cells["engine_version"], card, model.native_context)
    # With chunks, the longest sequence decides nothing but whether the pool could hold it.
    longest = max(ask.prompt + ask.output for ask in asks) if flags.chunked else flags.budget
    setup = engine.Setup(
        model.config,
        kv_bytes=int(_room(model, card, step, flags, tp)),
        tp=tp,
        budget=flags.budget,
        most_running=flags.most_running,
        longest=longest,
        chunked=flags.chunked,
        prefix_caching=flags.prefix_caching,
        kv_dtype=_KV[cells["kv_dtype"]],
    )
    return setup, step, asks, load[1]


def _asks(cells: dict[str, str], count: int) -> list[workload.Ask]:
    prompt, output = float(cells["input_tokens"]), float(cells["output_tokens"])
    if cells["workload"] == _SAMPLED:
        kept = store.published("sharegpt_lengths")[:count]
        pairs = [(int(row["prompt"]), int(row["output"])) for row in kept]
        return list(workload.asks(count, workload.stretched(pairs, prompt, output)))
    return list(workload.asks(count, workload.fixed(round(prompt), round(output))))


def _room(
    model: records.Model, card: records.Hardware, step: steptime.Roofline, flags: Told, tp: int
) -> float:
    """Return the KV memory of one card [B]: vLLM's share, less weights and activations.

    Of the activations the largest are taken: both halves of the feed-forward layer's input side
    and their product, in 16 bits, for a whole step.
    """
    config = model.config
    width = float(str(config["intermediate_size"]))
    if model.active_parameters:
        width = (
            float(str(config.get("moe_intermediate_size") or width))
            * steptime.experts_chosen(config)[0]
        )
    activations = flags.budget * 3 * width * 2 / tp
    return _UTILIZATION * _memory(card) - step.weights - activations


def _memory(card: records.Hardware) -> float:
    """Return what the driver shows of a card's memory, or what is printed where nobody says [B]."""
    stated = [fact for fact in card.facts if fact.quantity == "memory"]
    shown = [fact for fact in stated if fact.unit == "MiB"]
    return max(units.to_base(fact.value, fact.unit)[0] for fact in shown or stated)


def _measure(found: run.Result, cells: dict[str, str]) -> float:
    metric = cells["metric"]
    if metric == "request_throughput":
        return len(found) / found.duration
    if metric == "output_throughput":
        return found.output_rate
    if metric == "total_throughput":
        return (sum(found.prompt) + sum(found.output)) / found.duration
    values = found.ttft() if metric == "ttft" else found.tpot()
    return statistics.median(values) if cells["statistic"] == "median" else statistics.fmean(values)
