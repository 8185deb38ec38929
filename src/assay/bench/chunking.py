"""Chunking: what is known about chunked prefill and shared prefixes, as rows and evidence.

Owns laying the scheduler's own answers (``data/twin``), published prefills and physical floors
beside the claims on chunk size, TTFT and shared blocks, and recording them. Does not own making
those tables (`twin.tables`), documents (`ledger.published`) or verdicts.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from assay.bench.twin import tables
from assay.ledger import facts, matched, published, records, store
from assay.physics import kv, roofline, units

__all__ = [
    "at",
    "beyond",
    "budgets",
    "clock_errors",
    "clocks",
    "curve",
    "floor",
    "interference",
    "longest_within",
    "prefills",
    "record",
    "record_chunks",
    "record_defaults",
    "record_floor",
    "record_predictions",
    "record_prefills",
    "record_sharing",
    "unchunked",
]

Parameters = Mapping[str, bool | int | float | str]
_TABLE = "data/twin/{}.csv"


def budgets() -> list[dict[str, Any]]:
    """Return every known default of a step's budget or a chunk: asked of vLLM, and as documented.

    Returns
    -------
    list of dict
        ``engine``, ``version``, ``place`` (card or entry point), ``tokens`` [tok] and ``source``
        (``asked`` for the engine itself).
    """
    rows: list[dict[str, Any]] = [
        {
            "engine": "vLLM",
            "version": row["version"],
            "place": f"{row['card']}; {row['entry']}",
            "tokens": int(row["budget"]),
            "source": "asked",
        }
        for row in tables.read("budgets")
    ]
    for cells in _cells("chunk_tokens"):
        rows.append(
            {
                "engine": cells["engine"],
                "version": cells["engine_version"],
                "place": ", ".join(x for x in (cells["gpu_stated"], cells["arm"]) if x),
                "tokens": int(cells["value"]),
                "source": cells["source"],
            }
        )
    return rows


def _cells(metric: str) -> list[dict[str, str]]:
    return [
        cells
        for cells in store.published("measurements")
        if cells["claim"] == "chunked-prefill-ttft"
        and cells["metric"] == metric
        and cells["role"] == "evidence"
        and cells["state"] == "ok"
    ]


def record(
    claim: records.Claim, *, set_up: str, least: int, gpu: str, model: str, parameters: Parameters
) -> list[records.Evidence]:
    """Save everything that bears on this claim.

    Parameters
    ----------
    claim : Claim
        One of the two that share the notebook.
    set_up : str
        Whose steps are looked at, as :func:`curve` names it.
    least : int
        Shortest prompt that counts as very long [tok].
    gpu, model : str
        Of the physical floor.
    parameters : mapping
        The notebook's.
    """
    asked = {assertion.id for assertion in claim.assertions}
    saved = record_sharing(claim, parameters=parameters) if "copy-on-write" in asked else []
    if "default-chunk" in asked:
        saved += record_defaults(claim, parameters=parameters)
        saved += record_prefills(claim, prefills(least), parameters=parameters)
        saved += record_chunks(claim, set_up, parameters=parameters)
        native = store.model(model).native_context
        assert native is not None
        saved.append(
            record_floor(claim, model=model, gpu=gpu, prompt=native, parameters=parameters)
        )
        saved += matched.record(
            claim,
            "chunking-lowers-ttft",
            [(pair, pair.ratio) for pair in unchunked()],
            finding="{name}: TTFT without chunks is {value} of that with them ({source}).",
            parameters=parameters,
        )
    return saved


def record_predictions(
    claim: records.Claim, names: Sequence[str], *, budget: int, parameters: Parameters
) -> list[records.Evidence]:
    """Save the twin's TTFT of the longest prompt, as what it is: a prediction decides nothing.

    Parameters
    ----------
    claim : Claim
        The claim on TTFT; another one gets nothing.
    names : sequence of str
        Models and cards, as :func:`curve` takes them.
    budget : int
        Tokens a step [tok].
    parameters : mapping
        The notebook's.
    """
    saved = []
    for name in names if "ttft-200ms" in {a.id for a in claim.assertions} else ():
        tokens, seconds = curve(name, budget=budget)[-1]
        model, _, cards = name.partition(" on ")
        count, _, gpu = cards.partition(" x ")
        shown = units.text(seconds, "s", display="ms")
        saved.append(
            store.found(
                claim,
                "ttft-200ms",
                basis="simulated",
                value=seconds,
                unit="s",
                method="vLLM's scheduler on a modelled clock",
                finding=f"Predicted: {tokens:,.0f} tokens of {name} take {shown}.",
                parameters=parameters,
                inputs=[_TABLE.format("prefill")],
                conditions={
                    "gpu": gpu,
                    "gpu_count": int(count),
                    "model": model,
                    "precision": "w16a16",
                    "engine": "vllm",
                    "version": tables.read("budgets")[0]["version"],
                    "workload": f"1 prompt of {tokens:.0f} tokens, budget {budget}",
                },
            )
        )
    return saved


def unchunked() -> list[matched.Match]:
    """Return published runs without chunked prefill against the same with it."""
    return matched.matches("ttft", above="chunked prefill off", below="chunked prefill on")


def record_defaults(claim: records.Claim, *, parameters: Parameters) -> list[records.Evidence]:
    """Save vLLM's own answers as ``derived`` and what its repository states as ``documented``."""
    saved = []
    for row in budgets():
        if row["engine"] != "vLLM":
            continue
        asked = row["source"] == "asked"
        says = "vLLM {version} takes {tokens:,} tokens a step when told nothing: {place}."
        saved.append(
            store.found(
                claim,
                "default-chunk",
                basis="derived" if asked else "documented",
                value=row["tokens"],
                unit="tok",
                method="get_batch_defaults, shown the card" if asked else row["source"],
                finding=says.format(**row),
                parameters=parameters,
                inputs=[_TABLE.format("budgets") if asked else "data/published/measurements.csv"],
                conditions={
                    "gpu": row["place"].partition(";")[0],
                    "gpu_count": "any",
                    "model": "any",
                    "engine": "vllm",
                    "version": row["version"],
                    "workload": row["place"].partition("; ")[2] or row["place"],
                },
            )
        )
    return saved


def prefills(least: int) -> list[tuple[published.Row, str]]:
    """Return published TTFTs of prompts of at least so many tokens, with what was special [s]."""
    arms = {cells["row"]: cells["arm"] for cells in _cells("ttft")}
    rows = [row for row in published.measurements() if row.id in arms]
    return [(row, arms[row.id]) for row in rows if row.inputs and row.inputs >= least]


def beyond(rows: Sequence[tuple[published.Row, str]], high: float) -> list[published.Row]:
    """Return those that took longer than a limit [s]."""
    return [row for row, _ in rows if row.value is not None and row.value > high]


def record_prefills(
    claim: records.Claim, rows: Sequence[tuple[published.Row, str]], *, parameters: Parameters
) -> list[records.Evidence]:
    """Save published TTFTs as evidence."""
    saved = []
    for row, arm in rows:
        assert row.value is not None and row.inputs is not None
        shown = units.text(row.value, "s", display="ms")
        saved.append(
            store.found(
                claim,
                "ttft-200ms",
                basis="published",
                value=row.value,
                unit="s",
                method=f"{row.id}, as printed",
                finding=f"{row.source} states {shown} for {row.inputs:,.0f} tokens "
                f"({row.model or 'model as printed'}, {row.gpu_count} x {row.gpu}, {arm}).",
                parameters=parameters,
                inputs=["data/published/measurements.csv"],
                conditions={
                    "gpu": row.gpu or "unstated",
                    "gpu_count": row.gpu_count or "unstated",
                    "model": row.model or "unstated",
                    "precision": row.precision or "unstated",
                    "engine": row.engine.lower(),
                    "version": "unstated",
                    "workload": f"{row.inputs:.0f} tokens, {arm}",
                },
            )
        )
    return saved


def floor(model: str, gpu: str, prompt: int, *, gpus: int = 1) -> float:
    """Return the least TTFT of a prompt alone on cards that reach their full peak [s].

    Parameters
    ----------
    model, gpu : str
        Ids of ``data/models`` and ``data/hardware``.
    prompt : int
        Its length [tok].
    gpus : int
        Cards that share the work without loss.
    """
    record, card = store.model(model), facts.device(store.hardware(gpu))
    limits, layout = facts.limits(record), kv.report(record.config).layout
    peak = card.math("bf16", "fp16")
    assert layout is not None and peak is not None and limits.parameters is not None
    heads, width = (int(str(record.config[k])) for k in ("num_attention_heads", "hidden_size"))
    pair = roofline.attention_flops(len(layout.layers), heads, layout.head_dim or width // heads)
    work = roofline.work(
        limits.parameters - limits.embedding,
        inputs=prompt,
        outputs=1,
        head=limits.head,
        attention=pair,
    )
    weights = roofline.weight_bytes(limits.parameters, 16)
    return roofline.ttft_floor(
        work, flops=peak * gpus, bandwidth=card.bandwidth * gpus, weights=weights
    )


def longest_within(model: str, gpu: str, seconds: float, *, gpus: int = 1) -> int:
    """Return the longest prompt whose floor is within a time, to the nearest 100 tokens [tok]."""
    low, high = 0, 10**7
    while high - low > 100:
        middle = (low + high) // 2
        if floor(model, gpu, max(1, middle), gpus=gpus) <= seconds:
            low = middle
        else:
            high = middle
    return low // 100 * 100


def record_floor(
    claim: records.Claim,
    *,
    model: str,
    gpu: str,
    prompt: int,
    parameters: Parameters,
) -> records.Evidence:
    """Save a physical floor of TTFT as a bound."""
    least = floor(model, gpu, prompt)
    shown = units.text(least, "s", display="ms")
    return store.found(
        claim,
        "ttft-200ms",
        basis="bound",
        value=least,
        low=least,
        high=None,
        unit="s",
        method="least arithmetic over the dense peak, no overhead",
        finding=f"{prompt:,} tokens of {model} on one {gpu} take at least {shown}, "
        "however they are chunked.",
        parameters=parameters,
        inputs=[f"data/models/{model}.json", f"data/hardware/{gpu}.yml"],
        conditions={
            "gpu": gpu,
            "gpu_count": 1,
            "model": model,
            "precision": "w16a16",
            "engine": "any",
            "version": "any",
            "workload": f"1 prompt of {prompt} tokens",
        },
    )


def curve(name: str, *, budget: int) -> list[tuple[float, float]]:
    """Return predicted TTFT against prompt length for a model and card [tok], [s].

    Parameters
    ----------
    name : str
        ``MODEL on N x GPU``, ids as in ``data``.
    budget : int
        Tokens a step [tok].
    """
    return [
        (float(row["prompt_tok"]), float(row["ttft_s"]))
        for row in tables.read("prefill")
        if _name(row) == name and int(row["budget_tok"]) == budget
    ]


def _name(row: Mapping[str, str]) -> str:
    return f"{row['model']} on {row['gpu_count']} x {row['gpu']}"


def at(points: Sequence[tuple[float, float]], where: float) -> float:
    """Return a curve's value between two of its points, on a straight line in both logarithms.

    Examples
    --------
    >>> round(at([(1, 10), (4, 40)], 2), 9)
    20.0
    """
    import numpy as np

    xs, ys = (np.log([p[axis] for p in points]) for axis in (0, 1))
    return float(np.exp(np.interp(np.log(where), xs, ys)))


#: What both clocks are compared on: name, column and the end of the column's name.
_COMPARED = (
    ("throughput", "rate", ""),
    ("mean TTFT", "ttft", "_s"),
    ("mean TPOT", "tpot", "_s"),
)


def clocks() -> list[dict[str, Any]]:
    """Return the twin's clock over the real engine's, load by load."""
    return [
        {
            "load": row["load"],
            "step times": row["role"],
            **{
                f"{name}, predicted over measured": _over(row, key, end)
                for name, key, end in _COMPARED
            },
        }
        for row in tables.read("clock")
    ]


def clock_errors() -> dict[str, float]:
    """Return the median absolute relative error over the predicted loads, by column [1]."""
    rows = [row for row in tables.read("clock") if row["role"] == "predicted"]
    return {
        key: statistics.median(abs(_over(row, key, end) - 1) for row in rows)
        for _, key, end in _COMPARED
    }


def _over(row: Mapping[str, str], key: str, end: str) -> float:
    return float(row[f"{key}_predicted{end}"]) / float(row[f"{key}_measured{end}"])


def interference(name: str) -> list[dict[str, float]]:
    """Return what each budget does to a long prompt and to those that decode meanwhile.

    Returns
    -------
    list of dict
        ``budget`` and ``chunk`` (largest piece of the prompt) [tok], ``ttft`` and ``gap`` (longest
        time a decoding request waits for its next token) [s].
    """
    return [
        {
            "budget": float(row["budget_tok"]),
            "chunk": float(row["largest_chunk_tok"]),
            "step": float(row["largest_step_tok"]),
            "decoders": float(row["decoders"]),
            "ttft": float(row["ttft_s"]),
            "gap": float(row["longest_gap_s"]),
        }
        for row in tables.read("interference")
        if _name(row) == name
    ]


def record_chunks(
    claim: records.Claim, name: str, *, parameters: Parameters
) -> list[records.Evidence]:
    """Save what the scheduler's steps say about the two statements on chunks."""
    alone = [row for row in tables.read("prefill") if _name(row) == name]
    once = all(row["computed_tok"] == row["prompt_tok"] for row in alone)
    many = [row for row in alone if int(row["steps"]) > 1]
    among = next(row for row in interference(name) if row["budget"] == 2048)
    version = tables.read("budgets")[0]["version"]
    told = {
        "incremental-kv": (
            once,
            f"In all {len(many)} prompts of more than one chunk, every token is computed once, so "
            "each chunk adds to the cache that the one before left.",
            "prefill",
        ),
        "chunk-is-of-one-prompt": (
            among["chunk"] == among["budget"],
            f"With {among['decoders']:.0f} requests decoding, a budget of {among['budget']:,.0f} "
            f"leaves a chunk of at most {among['chunk']:,.0f}: the budget is for the whole step.",
            "interference",
        ),
    }
    return [
        store.found(
            claim,
            assertion,
            basis="derived",
            value=float(holds),
            unit="1",
            method=f"vLLM {version}: its scheduler asked step by step",
            finding=finding,
            parameters=parameters,
            inputs=[_TABLE.format(table)],
            conditions={"engine": "vllm", "version": version},
        )
        for assertion, (holds, finding, table) in told.items()
    ]


def record_sharing(claim: records.Claim, *, parameters: Parameters) -> list[records.Evidence]:
    """Save what the block manager does with two prompts that part inside a block."""
    rows = tables.read("sharing")
    inside = [r for r in rows if int(r["same_tok"]) < int(r["prompt_tok"])]
    on, off = ([r for r in inside if r["prefix_caching"] == x] for x in ("on", "off"))
    shares = all(r["blocks_shared"] == r["full_blocks_same"] for r in on)
    unshared = sum(int(r["blocks_shared"]) for r in off)
    copied = sum(int(r["blocks_copied"]) for r in rows)
    version = tables.read("budgets")[0]["version"]
    apart = [r for r in on if int(r["same_tok"]) % int(r["block_tok"])]
    told = {
        "shares-prefix": (
            shares and not unshared,
            f"In {len(on)} pairs of prompts the second one gets exactly the full blocks it has in "
            f"common with the first; with the option off it gets {unshared}.",
        ),
        "copy-on-write": (
            copied > 0,
            f"{copied} blocks are copied in {len(rows)} pairs; where two prompts part inside a "
            f"block ({len(apart)} pairs), that block is computed anew in a block of its own.",
        ),
    }
    return [
        store.found(
            claim,
            assertion,
            basis="derived",
            value=float(holds),
            unit="1",
            method=f"vLLM {version}: its block manager asked, full attention",
            finding=finding,
            parameters=parameters,
            inputs=[_TABLE.format("sharing")],
            conditions={"engine": "vllm", "version": version},
        )
        for assertion, (holds, finding) in told.items()
    ]
