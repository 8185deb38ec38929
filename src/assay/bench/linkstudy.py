"""Link study: the A/B over a throttled link as it is kept and replayed.

Owns what is kept of :func:`assay.bench.throttled.measure`, with its gates and the twin's forecast,
and reading back what is committed. Does not own measuring, or what it shows (``linkmap``).
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.bench import checkpoint, machine, reset, throttled, tier
from assay.errors import InputError
from assay.ledger import records, store

__all__ = ["CLAIM", "HERE", "METRICS", "Study", "committed", "measured", "study", "workload"]

#: Whose evidence it lies beside.
CLAIM = "cpu-offload-general"
#: The GPU of what was measured on a processor.
HERE = "none"

#: What is compared; evidence is of the first.
METRICS = ("output_throughput", "ttft")

Cell = tuple[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Study:
    """What is kept of the A/B.

    Parameters
    ----------
    samples : str
        The requests of all arms, relative to the root.
    moved, forecast : Path
        What moved in each window, and what the twin said.
    provenance : mapping of str to Provenance
        By arm with a tier.
    gates : mapping of (str, str) to tuple of Gate
        By arm with a tier and load.
    """

    samples: str
    moved: Path
    forecast: Path
    provenance: Mapping[str, records.Provenance]
    gates: Mapping[Cell, tuple[records.Gate, ...]]

    @property
    def device(self) -> str:
        """The processor."""
        return next(iter(self.provenance.values())).device

    @property
    def seconds_per_token(self) -> float:
        """What a further token of a prompt takes to compute here [s/tok]."""
        arm, seen = next(iter(self.provenance.items()))
        speed = _speed(seen.flags)
        return (throttled.link(arm) or 0.0) * throttled.per_token_bytes() / speed

    @property
    def speeds(self) -> dict[str, float]:
        """The speed of each arm's link [B/s]."""
        return {arm: _speed(seen.flags) for arm, seen in self.provenance.items()}

    def voided(self) -> list[str]:
        """Return which cells have a failed gate, and why."""
        return [
            f"{arm}, {load}: {gate.says}"
            for (arm, load), gates in self.gates.items()
            for gate in gates
            if not gate.passed
        ]


def _speed(flags: Sequence[str]) -> float:
    told = next((part for part in flags if "link_bytes_per_s" in part), None)
    if told is None:
        raise InputError("an arm's flags state no link", fix="measure again")
    return float(json.loads(told)["kv_connector_extra_config"]["link_bytes_per_s"])


def _link(flags: Sequence[str]) -> float:
    """Return the speed of a server's link; infinite where there is none [B/s]."""
    return _speed(flags) if any("link_bytes_per_s" in part for part in flags) else math.inf


def study(*, measure: bool, tell: Callable[[Any], None] = print) -> Study:
    """Return the study, measured here or as committed.

    Parameters
    ----------
    measure : bool
        Measure, on a machine without a GPU; one with a GPU has better things to measure.
    tell : callable
        Receives the progress.

    Raises
    ------
    InputError
        When nothing is committed to replay, or vLLM is missing.
    """
    if not measure or machine.discover(()).devices:
        return committed()
    found, pace = throttled.measure(tell=tell)
    return measured(found, pace)


def measured(found: reset.Tiered, pace: throttled.Pace) -> Study:
    """Return the study of a measurement, with the twin's forecast.

    Parameters
    ----------
    found : Tiered
        The measurement.
    pace : Pace
        What set the links.
    """
    from assay.bench import forecast
    from assay.bench.twin import tables

    folder = found.found.folder
    moved, told = folder / "moved.csv", folder / "forecast.csv"
    store.write(moved, tables.text([*_moved(found)]))
    if not told.is_file():
        # Only now: in the process that imports vLLM, engines started later are slow.
        model = checkpoint.make(throttled.SHAPE)
        store.write(told, tables.text(forecast.forecast(model, pace)))
    arms = [arm for arm in found.found.plan.arms if throttled.link(arm)]
    provenance = {arm: found.found.provenance(arm=arm) for arm in arms}
    gates = {}
    for arm in arms:
        for load in found.found.plan.loads:
            speed = _speed(provenance[arm].flags)
            tiers = found.gates(METRICS[0], arm=arm, load=load, speed=speed)
            gates[arm, load] = (*tiers, *found.gates(METRICS[0], arm=tier.WITHOUT, load=load))
    return Study(found.found.samples(CLAIM), moved, told, provenance, gates)


def _moved(found: reset.Tiered) -> Iterator[dict[str, str | int | float]]:
    """Yield what moved in each window, and which gates of its arm and load failed."""
    failed = {
        (arm, load, metric): " ".join(
            gate.id
            for gate in found.gates(metric, arm=arm, load=load, speed=_link(recipe.flags))
            if not gate.passed
        )
        for arm, recipe in found.found.plan.arms.items()
        for load in found.found.plan.loads
        for metric in METRICS
    }
    for row in found.rows():
        arm, load = str(row["arm"]), str(row["load"])
        yield {**row, **{f"{name}_failed": failed[arm, load, name] for name in METRICS}}


def committed() -> Study:
    """Return the newest committed study.

    Raises
    ------
    InputError
        When there is none.
    """
    items = [e for e in store.live(CLAIM) if e.conditions["gpu"] == HERE]
    ran = [e for e in items if e.basis == "measured" and e.provenance and e.samples]
    told = [e for e in items if e.basis == "simulated"]
    if not ran or not told:
        raise InputError(
            "no measurement on a processor is committed to replay",
            where=f"data/evidence/{CLAIM}",
            fix="run the notebook with measure set to true",
        )
    newest = max(ran, key=lambda e: e.provenance.ended if e.provenance else "")
    assert newest.samples is not None
    own = [e for e in ran if e.samples == newest.samples]
    by_workload = {str(e.conditions["workload"]): e for e in own}
    provenance, gates = {}, {}
    for arm, load in _cells():
        item = by_workload.get(workload(arm, load))
        if item is not None and item.provenance is not None:
            provenance[arm], gates[arm, load] = item.provenance, item.gates
    return Study(
        newest.samples.path,
        store.path(newest.inputs[0].path),
        store.path(told[0].inputs[0].path),
        provenance,
        gates,
    )


def _cells() -> list[Cell]:
    return [(f"link-{r:g}", load) for r in throttled.RATIOS for load in throttled.asked()]


def workload(arm: str, load: str) -> str:
    """Return what an arm was given, in the words of a scope.

    Examples
    --------
    >>> workload("link-8", "none-2")
    'on a CPU, KV demand 2x the pool, nothing comes back, link 8x as fast as computing'
    """
    meant = tier.kind(load, throttled.asked()[load])
    return f"on a CPU, {meant.words}, link {throttled.link(arm):g}x as fast as computing"
