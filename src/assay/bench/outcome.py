"""Outcome: what the two studies on the small model show, kept in the ledger.

Owns every rounded arm against another, and saving the measured evidence. Does not own running or
replaying (``study``), what a page shows of an exam (``exhibits``) or verdicts.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.bench import study
from assay.bench.exam import Held, tasks
from assay.errors import InputError
from assay.ledger import paired, records, stats, store

__all__ = [
    "Rounded",
    "record_reasoning",
    "record_rounding",
    "rounding_arms",
]


@dataclasses.dataclass(frozen=True, slots=True)
class Rounded:
    """What one arm of the rounding study shows.

    Parameters
    ----------
    arm : str
        What was rounded, and to how many bits.
    right, asked : int
        Right answers, and questions [1].
    change, low, high : float
        Accuracy minus that of the unrounded model with its paired 90 % interval [1].
    divergence : float
        Mean over all places of the answers [nat/tok].
    same : float
        Share of places with the same most likely token [1].
    """

    arm: str
    right: int
    asked: int
    change: float
    low: float
    high: float
    divergence: float
    same: float


def _record(
    claim: records.Claim,
    assertion: str,
    held: Held,
    *,
    conditions: Mapping[str, str | int],
    parameters: Mapping[str, bool | int | float | str],
    **numbers: Any,
) -> records.Evidence:
    """Save a measurement of the model named in the conditions, on the processor."""
    scope = claim.assertion(assertion).scope
    place: dict[str, str | int] = {
        "gpu": "none",
        "gpu_count": 0,
        "precision": "w16a16",
        "engine": held.provenance.engine,
        "version": held.provenance.engine_version,
        "workload": "generated sums",
        **conditions,
    }
    return store.found(
        claim,
        assertion,
        basis="measured",
        unit="1",
        parameters=parameters,
        inputs=[f"data/claims/{claim.id}.yml"],
        conditions={key: v for key, v in place.items() if getattr(scope, key) != "n/a"},
        provenance=held.provenance,
        gates=held.gates,
        samples=store.keep_samples(claim.id, held.file),
        **numbers,
    )


def record_reasoning(
    claim: records.Claim,
    held: Held,
    result: Mapping[str, Any],
    *,
    parameters: Mapping[str, bool | int | float | str],
    model: str = "",
    task: str = tasks.GENERATED,
) -> list[records.Evidence]:
    """Save what the exam measured beside the assertions about the author's own set-up.

    What the arms do not allow (censored, not comparable, one server start) is not saved.

    Parameters
    ----------
    claim : Claim
        The claim.
    held : Held
        The exam.
    result : mapping
        The comparison over all questions.
    parameters : mapping
        The notebook's parameters.
    model : str
        Folder or hub id; the small trained model when empty.
    task : str
        What was asked, as ``tasks.questions`` names it.
    """
    place = (
        {} if task == tasks.GENERATED else {"workload": Path(task.removeprefix(tasks.HARNESS)).stem}
    )
    named = Path(model).name if model else study.SMALL
    rates: Mapping[str, Any] = result["rates"] or {}
    starts = rates.get("server_starts", 0)
    saved = []
    for assertion in claim.assertions:
        if assertion.headline or assertion.metric not in ("throughput_ratio", "accuracy_change"):
            continue
        keep = functools.partial(_record, claim, assertion.id, held, parameters=parameters)
        if assertion.metric == "accuracy_change":
            gain = result["accuracy"]
            if gain is None or not isinstance(starts, int):
                continue
            saved.append(
                keep(
                    conditions={"model": named, **place},
                    value=gain["difference"],
                    low=gain["low"],
                    high=gain["high"],
                    n=starts,
                    method=f"paired over {gain['questions']} questions, 90 %; {gain['method']}",
                    finding=f"The {named} is right {100 * gain['difference']:+.1f} pp more often "
                    "with reasoning on.",
                )
            )
            continue
        for name, counting, words in (
            ("tok_per_s", "output", "output tokens"),
            ("requests_per_s", "requests", "requests"),
        ):
            rate = rates.get(name)
            if rate is None:
                continue
            saved.append(
                keep(
                    conditions={"model": named, "counting": counting, **place},
                    value=rate["value"],
                    low=rate["low"],
                    high=rate["high"],
                    n=starts,
                    method=f"{rate['method']} over {rate['n']} server starts",
                    finding=f"The {named} gives {rate['value']:.1%} of the {words} per second "
                    "with reasoning on.",
                )
            )
    return saved


def record_rounding(
    claim: records.Claim,
    held: Held,
    *,
    bits: int,
    parameters: Mapping[str, bool | int | float | str],
) -> list[records.Evidence]:
    """Save accuracy with prefill rounded minus that with decode rounded, where it is claimed.

    Parameters
    ----------
    claim : Claim
        The claim; only its assertions about a change of accuracy are concerned.
    held : Held
        The rounding study.
    bits : int
        Width at which the phases are compared [1].
    parameters : mapping
        The notebook's parameters.
    """
    arms = rounding_arms(held, against=f"decode in {bits} bit")
    (apart,) = [arm for arm in arms if arm.arm == f"prefill in {bits} bit"]
    return [
        _record(
            claim,
            assertion.id,
            held,
            conditions={"model": study.SMALL, "precision": f"w{bits}a{bits}"},
            parameters=parameters,
            value=apart.change,
            low=apart.low,
            high=apart.high,
            method=f"paired over {apart.asked} questions, 90 %; one run",
            finding=f"The {study.SMALL} is right {100 * apart.change:+.1f} pp more often with "
            f"prefill rounded to {bits} bits than with decode rounded so.",
        )
        for assertion in claim.assertions
        if assertion.metric == "accuracy_change"
    ]


def rounding_arms(held: Held, *, against: str = "nothing") -> list[Rounded]:
    """Return every arm of the rounding study against another one.

    Parameters
    ----------
    held : Held
        The study.
    against : str
        Arm the changes are relative to; the unrounded model by default.

    Returns
    -------
    list of Rounded
        In the order of the arms; the arm compared with is left out.

    Raises
    ------
    InputError
        When there is no such arm.
    """
    arms = {row["arm"]: row for row in study.rows(held, "arm")}
    if against not in arms:
        raise InputError(f"no arm '{against}'", fix=f"use one of {', '.join(arms)}")
    base = arms[against]
    found = []
    for arm, own in arms.items():
        if arm in (against, "nothing"):
            continue
        pairs = list(zip(own["correct"], base["correct"], strict=True))
        apart = paired.proportion_difference(
            pairs.count((1, 0)), pairs.count((0, 1)), len(pairs), level=stats.LEVEL
        )
        places = sum(own["places"])
        found.append(
            Rounded(
                arm=arm,
                right=sum(own["correct"]),
                asked=len(pairs),
                change=apart.value,
                low=apart.low,
                high=apart.high,
                divergence=sum(map(operator.mul, own["divergence"], own["places"])) / places,
                same=sum(map(operator.mul, own["same"], own["places"])) / places,
            )
        )
    return found
