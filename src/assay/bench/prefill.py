"""Prefill: how long one prompt takes alone, as published, at least, and as the twin predicts.

Owns published times to first token, the floor that arithmetic sets, the twin's curves, and
recording them. Does not own the twin's tables (`twin.tables`), documents (`ledger.published`),
measuring (`longprompt`) or verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from assay.bench.twin import tables
from assay.ledger import facts, published, records, store
from assay.physics import kv, roofline, units

__all__ = [
    "at",
    "beyond",
    "cells",
    "curve",
    "floor",
    "longest_within",
    "printed",
    "record_floor",
    "record_predictions",
    "record_printed",
    "set_up",
]

Parameters = Mapping[str, bool | int | float | str]
_CLAIM = "chunked-prefill-ttft"


def cells(metric: str) -> list[dict[str, str]]:
    """Return the cells of the claim's published rows of a metric."""
    return [
        row
        for row in store.published("measurements")
        if row["claim"] == _CLAIM
        and row["metric"] == metric
        and row["role"] == "evidence"
        and row["state"] == "ok"
    ]


def printed(least: int) -> list[tuple[published.Row, str]]:
    """Return published TTFTs of prompts of at least so many tokens, with what was special [s]."""
    arms = {row["row"]: row["arm"] for row in cells("ttft")}
    rows = [row for row in published.measurements() if row.id in arms]
    return [(row, arms[row.id]) for row in rows if row.inputs and row.inputs >= least]


def beyond(rows: Sequence[tuple[published.Row, str]], high: float) -> list[published.Row]:
    """Return those that took longer than a limit [s]."""
    return [row for row, _ in rows if row.value is not None and row.value > high]


def record_printed(
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


def set_up(row: Mapping[str, str]) -> str:
    """Return the name of the set-up that a row of the twin's tables is about."""
    return f"{row['model']} on {row['gpu_count']} x {row['gpu']}"


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
        if set_up(row) == name and int(row["budget_tok"]) == budget
    ]


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
                inputs=["data/twin/prefill.csv"],
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
