"""Chunking: what is known about chunked prefill and shared prefixes, as rows and evidence.

Owns laying the scheduler's own answers (``data/twin``) beside the claims on chunk size, budgets and
shared blocks, and recording all that bears on those claims. Does not own making those tables
(`twin.tables`), times of long prompts (`prefill`, `longprompt`) or verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.bench import prefill
from assay.bench.twin import tables
from assay.ledger import matched, records, store

__all__ = [
    "budgets",
    "interference",
    "record",
    "record_chunks",
    "record_defaults",
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
    for cells in prefill.cells("chunk_tokens"):
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


def record(
    claim: records.Claim, *, set_up: str, least: int, gpu: str, model: str, parameters: Parameters
) -> list[records.Evidence]:
    """Save everything that bears on this claim.

    Parameters
    ----------
    claim : Claim
        One of the two that share the notebook.
    set_up : str
        Whose steps are looked at, as :func:`prefill.curve` names it.
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
        saved += prefill.record_printed(claim, prefill.printed(least), parameters=parameters)
        saved += record_chunks(claim, set_up, parameters=parameters)
        native = store.model(model).native_context
        assert native is not None
        saved.append(
            prefill.record_floor(claim, model=model, gpu=gpu, prompt=native, parameters=parameters)
        )
        saved += matched.record(
            claim,
            "chunking-lowers-ttft",
            [(pair, pair.ratio) for pair in unchunked()],
            finding="{name}: TTFT without chunks is {value} of that with them ({source}).",
            parameters=parameters,
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
        if prefill.set_up(row) == name
    ]


def record_chunks(
    claim: records.Claim, name: str, *, parameters: Parameters
) -> list[records.Evidence]:
    """Save what the scheduler's steps say about the two statements on chunks."""
    alone = [row for row in tables.read("prefill") if prefill.set_up(row) == name]
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
