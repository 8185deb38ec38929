"""Waste: what replays of serving, and an engine's block manager, say about claims of KV waste.

Owns turning shares of a pool into evidence and into rows of tables, for whichever of the known
assertions a claim makes. Does not own the replay (``assay.physics.paging``), the engine's manager
(``blocks``) or verdicts.

An engine's answers carry provenance without times, so asking again rewrites the same files; where
no engine is installed, what was committed is read back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from assay.bench import blocks, private
from assay.errors import InputError
from assay.ledger import records, store
from assay.physics import units
from assay.physics.paging import Shares

__all__ = [
    "answers",
    "lengths",
    "percent",
    "record_gain",
    "record_manager",
    "record_replays",
    "rows",
]

Parameters = Mapping[str, bool | int | float | str]

BEFORE, AFTER, ANY, GAIN = "waste-before", "waste-after", "waste-after-any", "throughput-ratio"

_LENGTHS = "data/published/sharegpt_lengths.csv"


def lengths() -> list[tuple[int, int]]:
    """Return prompt and output tokens of real requests, in the order of the table [tok]."""
    return [(int(row["prompt"]), int(row["output"])) for row in store.published("sharegpt_lengths")]


def rows(pools: Mapping[str, Shares]) -> list[dict[str, object]]:
    """Return where the slots of each pool are, as rows of a table.

    Parameters
    ----------
    pools : mapping of str to Shares
        By the rule's name.

    Examples
    --------
    >>> rows({"blocks": Shares(0.9, 0.0, 0.05, 0.05, 40.0, 350.0)})[0]["holds a token"]
    '90.0 %'
    """
    return [
        {
            "set aside": name,
            "holds a token": percent(one.tokens),
            "waits": percent(one.waiting),
            "never used": percent(one.never),
            "free, unusable": percent(one.outside),
            "sequences at once": round(one.sequences, 1),
        }
        for name, one in pools.items()
    ]


def percent(share: float, digits: int = 1) -> str:
    """Return a share in per cent, as tables and sentences print it.

    Examples
    --------
    >>> percent(0.0204, 2)
    '2.04 %'
    """
    return f"{100 * share:.{digits}f} %"


def record_replays(
    claim: records.Claim,
    *,
    reserved: Mapping[str, Shares],
    paged: Mapping[int, Shares],
    short: Shares,
    block: int,
    parameters: Parameters,
) -> list[records.Evidence]:
    """Save what replays show, for those assertions that the claim makes.

    Parameters
    ----------
    claim : Claim
        The claim.
    reserved : mapping of str to Shares
        By reservation rule, ``power`` among them.
    paged : mapping of int to Shares
        By block size [tok].
    short : Shares
        Short requests alone, at ``block``.
    block : int
        The block size the claim means [tok].
    parameters : mapping
        The notebook's parameters.

    Returns
    -------
    list of Evidence
        Reservation as one interval over its rules, of the whole pool, as published; paging of what
        is set aside.
    """
    empty = [1 - one.tokens for one in reserved.values()]
    usual, largest = paged[block], max(paged)
    found = [
        (
            BEFORE,
            (1 - reserved["power"].tokens, min(empty), max(empty)),
            ("reservation to a fixed length", "2022", "ShareGPT lengths"),
            f"Reserving ahead leaves {percent(min(empty))} (every length known) to "
            f"{percent(max(empty))} (the longest reserved) of the pool without a token.",
        ),
        (
            AFTER,
            (usual.waste_held,) * 3,
            ("vllm", "any", _workload(block)),
            f"At {block} tokens a block and a mean live length of {usual.live_length:.0f} tokens, "
            f"{percent(usual.waste_held)} is empty.",
        ),
        (
            ANY,
            (paged[largest].waste_held,) * 3,
            ("any", "any", _workload(largest)),
            f"At {largest} tokens a block, {percent(paged[largest].waste_held)} is empty.",
        ),
        (
            ANY,
            (short.waste_held,) * 3,
            ("any", "any", f"short chats, block {block}"),
            f"Chats of {short.live_length:.0f} tokens leave {percent(short.waste_held)} empty at "
            f"{block} tokens a block.",
        ),
    ]
    return [
        store.found(
            claim,
            assertion,
            basis="derived",
            value=value,
            low=low,
            high=high,
            unit="1",
            method="replay of a pool that is always in demand, exact",
            finding=sentence,
            parameters=parameters,
            inputs=[_LENGTHS],
            conditions=dict(zip(("engine", "version", "workload"), place, strict=True)),
        )
        for assertion, (value, low, high), place, sentence in found
        if _makes(claim, assertion)
    ]


def record_manager(
    claim: records.Claim,
    requests: Sequence[tuple[int, int]],
    *,
    sizes: Sequence[int],
    slots: int,
    longest: int,
    block: int,
    parameters: Parameters,
) -> list[records.Evidence]:
    """Ask the installed vLLM's block manager and save its answers.

    Parameters
    ----------
    claim : Claim
        The claim; one that makes no assertion about paged memory asks nothing.
    requests : sequence of (int, int)
        Prompt and output tokens of each request; a few hundred take seconds [tok].
    sizes : sequence of int
        Block sizes [tok].
    slots, longest, block : int
        The pool, the longest sequence, and the block size the claim means [tok].
    parameters : mapping
        The notebook's parameters.

    Returns
    -------
    list of Evidence
        One per size; empty where no vLLM of a known version is installed, and then the committed
        answers stay as they are.
    """
    if private.absent() or not _makes(claim, AFTER):
        return []
    engine = blocks.provenance()
    kept = []
    for size in sizes:
        found = blocks.replay(requests, slots=slots, block=size, longest=longest).waste_held
        kept.append(
            store.found(
                claim,
                AFTER if size == block else ANY,
                basis="derived",
                value=found,
                unit="1",
                method=f"the engine's own block manager, {len(requests)} requests, exact",
                finding=f"vLLM {engine.engine_version}'s own block manager leaves "
                f"{percent(found)} empty at {size} tokens a block.",
                parameters=parameters,
                inputs=[_LENGTHS],
                conditions={
                    "engine": engine.engine,
                    "version": engine.engine_version,
                    "workload": _workload(size),
                },
                provenance=engine,
            )
        )
    return kept


def answers(claim_id: str) -> dict[int, float]:
    """Return what a block manager has answered, by block size: share of slots without a token.

    Parameters
    ----------
    claim_id : str
        The claim whose evidence holds the answers, of this run or committed.

    Raises
    ------
    InputError
        When no engine was ever asked.
    """
    asked = [
        item
        for item in store.live(claim_id)
        if item.provenance and str(item.conditions["workload"]).startswith(_workload(""))
    ]
    if not asked:
        raise InputError(
            f"no block manager was asked for {claim_id}",
            fix="run it where vLLM is installed (the extra 'cpu' brings it)",
        )
    newest = max(item.conditions["version"] for item in asked)
    return {
        int(str(item.conditions["workload"]).rpartition(" ")[2]): item.estimate.value
        for item in asked
        if item.conditions["version"] == newest
    }


def record_gain(claim: records.Claim, *, parameters: Parameters) -> list[records.Evidence]:
    """Save the published throughput factor of paging, if the claim asserts one.

    Parameters
    ----------
    claim : Claim
        The claim.
    parameters : mapping
        The notebook's parameters.

    Returns
    -------
    list of Evidence
        One per source; a source alone never settles a number.
    """
    if not _makes(claim, GAIN):
        return []
    scope = claim.assertion(GAIN).scope
    kept = []
    for row in store.published("measurements"):
        if row["claim"] != claim.id or row["comparability"] != "A":
            continue
        low, high = float(row["value_low"]), float(row["value_high"])
        kept.append(
            store.found(
                claim,
                GAIN,
                basis="published",
                value=low,
                low=low,
                high=high,
                unit=units.base_of(row["unit"]),
                method=f"{row['source']}: {row['locator']}",
                finding=f"The authors print {low:g} to {high:g} times the throughput at the same "
                "latency; no second group has measured it.",
                parameters=parameters,
                inputs=["data/published/measurements.csv"],
                conditions={
                    key: value
                    for key in records.SCOPE_KEYS
                    if isinstance(value := getattr(scope, key), str | int)
                },
            )
        )
    return kept


def _makes(claim: records.Claim, assertion: str) -> bool:
    return any(one.id == assertion for one in claim.assertions)


def _workload(block: int | str) -> str:
    return f"ShareGPT lengths, block {block}"
