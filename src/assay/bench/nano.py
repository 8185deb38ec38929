"""Nano: what nano-vLLM's own scheduler answered, and what it says about a claim.

Owns the committed answers ``data/published/nano_vllm_scheduler.csv`` and the evidence about waste.
Does not own asking (``nano_scheduler``), the closed form and the replay it is held against
(``physics.paging``), or counts of lines (``source_lines``).

``python -m assay.bench.nano CHECKOUT`` asks a checkout anew and renews the committed answers.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from assay.bench import waste
from assay.bench.nano_scheduler import COMMIT, Asked, ask
from assay.ledger import records, store
from assay.physics import paging

__all__ = ["BLOCKS", "answers", "provenance", "record_waste", "text"]

BLOCKS = (16, 64, 256)  # tokens; its own configuration refuses all but multiples of 256
_TABLE = "nano_vllm_scheduler"


def answers() -> dict[int, Asked]:
    """Return the committed answers by block size [tok]."""
    return {
        int(row["block"]): Asked(
            int(row["block"]),
            int(row["requests"]),
            int(row["steps"]),
            int(row["preempted"]),
            float(row["sequences"]),
            float(row["live_length"]),
            float(row["waste"]),
        )
        for row in store.published(_TABLE)
    }


def text(found: Sequence[Asked]) -> str:
    """Return answers as CSV, as they are kept in ``data/published``."""
    out = io.StringIO()
    names = [field.name for field in dataclasses.fields(Asked)]
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    for one in found:
        row = dataclasses.asdict(one)
        writer.writerow({k: f"{v:.12g}" if isinstance(v, float) else v for k, v in row.items()})
    return out.getvalue()


def provenance() -> records.Provenance:
    """Return who answered, without device or times: the same files give the same answer."""
    return records.Provenance(
        device="none: scheduler and block manager alone, without model and memory",
        driver=None,
        clocks=None,
        engine="nano-vllm",
        engine_version=COMMIT,
        flags=(),
        packages={},
        commit="none: deterministic",
        started="none: deterministic",
        ended="none: deterministic",
    )


def record_waste(
    claim: records.Claim,
    assertion: str,
    *,
    shares: paging.Shares,
    block: int,
    limit: float,
    parameters: Mapping[str, bool | int | float | str],
) -> list[records.Evidence]:
    """Save whether paging in its block stays below a limit, by our replay and by its scheduler.

    Parameters
    ----------
    claim : Claim
        The claim.
    assertion : str
        Its statement about waste.
    shares : Shares
        Of the replay at this block.
    block : int
        Its default block [tok].
    limit : float
        Largest share of empty slots that still agrees, 0 to 1.
    parameters : mapping
        The notebook's parameters.

    Returns
    -------
    list of Evidence
        The replay first; both are exact for the given lengths.
    """
    asked = answers()[block]
    bend = paging.length_at(limit, block)
    means = f"below {waste.percent(limit, 0)} only from a mean of {bend:,.0f} tokens on"
    found = [
        (
            shares.waste_held,
            None,
            "replay of a pool always in demand, exact",
            f"At {block} tokens a block and a mean live length of {shares.live_length:.0f} tokens, "
            f"{waste.percent(shares.waste_held)} of the slots handed out hold no token; the share "
            f"is {means}.",
        ),
        (
            asked.waste,
            provenance(),
            f"its own scheduler and block manager, {asked.requests:,} requests, exact",
            f"nano-vLLM's own scheduler leaves {waste.percent(asked.waste)} of the slots it hands "
            f"out empty on the same requests.",
        ),
    ]
    scope = claim.assertion(assertion).scope
    return [
        store.found(
            claim,
            assertion,
            basis="derived",
            value=float(share <= limit),
            unit="1",
            method=method,
            finding=sentence,
            parameters=parameters,
            inputs=["data/published/sharegpt_lengths.csv", f"data/published/{_TABLE}.csv"],
            conditions={"version": str(scope.version), "workload": str(scope.workload)},
            provenance=who,
        )
        for share, who, method, sentence in found
    ]


def main(arguments: list[str]) -> None:
    """Ask the checkout that is named, and renew the committed answers."""
    if len(arguments) != 1:
        raise SystemExit("usage: python -m assay.bench.nano CHECKOUT")
    found = [ask(Path(arguments[0]), waste.lengths(), block=block) for block in BLOCKS]
    store.write(store.path("data", "published", f"{_TABLE}.csv"), text(found))


if __name__ == "__main__":
    main(sys.argv[1:])
