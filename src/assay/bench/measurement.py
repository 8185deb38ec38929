"""Measurement: the one call that turns a question into numbers that may enter the ledger.

Owns :func:`measure` and what it returns: estimates with intervals, gates, provenance and raw rows
of every arm, load and metric. Does not own the parts it is made of (``protocol``, ``gates``,
``provenance``, ``ledger/stats``) or the verdict.

In a notebook::

    arm = engines.vllm.serve(str(checkpoint.make()), weights_kind="random", eager=True)
    asked = load.Load(requests=32, input_tokens=128, output_tokens=64, concurrency=4)
    found = measurement.measure({"vllm": arm}, [asked], name="small-model")
    store.found(claim, "rate", basis="measured", **found.record("output_throughput"), ...)
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.bench import ceiling as ceilings
from assay.bench import gates as gating
from assay.bench import protocol
from assay.bench import provenance as provenances
from assay.bench.engines.recipe import Recipe
from assay.bench.load import Load, rows
from assay.bench.load.client import Drive
from assay.bench.protocol import Progress, window
from assay.bench.protocol.window import Window
from assay.errors import InputError
from assay.ledger import records, stats, store

__all__ = ["Measurement", "folder", "measure"]


@dataclasses.dataclass(frozen=True, slots=True)
class Measurement:
    """What was measured.

    Parameters
    ----------
    plan : Plan
        What was asked.
    windows : tuple of Window
        All runs of all blocks.
    folder : Path
        Of the run.
    ceilings : mapping of (str, str) to Ceiling
        By arm and load.
    cached_share : float
        Share of prompt tokens meant to be found in the prefix cache [1].
    """

    plan: protocol.Plan
    windows: tuple[Window, ...]
    folder: Path
    ceilings: Mapping[tuple[str, str], ceilings.Ceiling]
    cached_share: float

    def of(self, *, arm: str | None = None, load: str | None = None) -> list[Window]:
        """Return the windows of one arm and load, in the order of blocks.

        Parameters
        ----------
        arm, load : str or None
            Names; may be left out where there is one only.

        Raises
        ------
        InputError
            When there is none of that name, or several to choose from.
        """
        chosen = self._chosen(arm, load)
        return [w for w in self.windows if (w.arm, w.load) == chosen]

    def _chosen(self, arm: str | None, load: str | None) -> tuple[str, str]:
        return _one("arm", arm, self.plan.arms), _one("load", load, self.plan.loads)

    def blocks(
        self, metric: str, *, arm: str | None = None, load: str | None = None
    ) -> list[float]:
        """Return one value a block, in base units.

        Raises
        ------
        InputError
            When the metric is unknown, or a block has no value of it.
        """
        found = [w.values.get(metric) for w in self.of(arm=arm, load=load)]
        _unit(metric)
        values = [value for value in found if value is not None]
        if len(values) < len(found) or not values:
            raise InputError(
                f"{len(found) - len(values)} of {len(found)} blocks have no {metric}",
                where=store.shown(self.folder),
                fix="see what the gates say",
            )
        return values

    def estimate(
        self, metric: str, *, arm: str | None = None, load: str | None = None
    ) -> records.Estimate:
        """Return the mean over blocks with its 90 % interval, in base units."""
        found = stats.block_mean(self.blocks(metric, arm=arm, load=load), level=stats.LEVEL)
        return _estimate(found, _unit(metric))

    def ratio(
        self, metric: str, above: str, below: str, *, load: str | None = None
    ) -> records.Estimate:
        """Return one arm's value over another's, block by block, with its 90 % interval [1]."""
        first = self.blocks(metric, arm=above, load=load)
        second = self.blocks(metric, arm=below, load=load)
        return _estimate(stats.log_ratio(first, second, level=stats.LEVEL), "1")

    def gates(
        self, metric: str, *, arm: str | None = None, load: str | None = None
    ) -> list[records.Gate]:
        """Return the gates of one number."""
        chosen = self._chosen(arm, load)
        recipe = self.plan.arms[chosen[0]]
        top = self.ceilings[chosen]
        return gating.check(
            self.of(arm=arm, load=load),
            gating.Intent(
                metrics=(metric,),
                ceiling=top.rate,
                ceiling_why=top.why,
                cached_share=self.cached_share,
                prefix_cache=recipe.prefix_cache,
                counted_by_server=bool(recipe.metrics),
            ),
        )

    def provenance(self, *, arm: str | None = None) -> records.Provenance:
        """Return where, with what and under which conditions an arm was measured."""
        name = _one("arm", arm, self.plan.arms)
        return provenances.provenance(
            self.plan.arms[name], [w for w in self.windows if w.arm == name]
        )

    def samples(self, claim_id: str) -> str:
        """Keep the raw rows beside a claim's evidence; return their path below the root.

        Parameters
        ----------
        claim_id : str
            Whose evidence rests on them. The name carries the content's hash.
        """
        files = sorted((self.folder / "blocks").glob("[0-9]*.parquet"))
        whole = self.folder / "samples.parquet"
        labelled = []
        for file in files:
            for row in rows.read(file):
                labels = {name: row.pop(name) for name in ("block", "arm", "load", "seed")}
                row.pop("request")
                row["itl_s"] = tuple(row["itl_s"])
                labelled.append((labels, rows.Row(**row)))
        rows.place(whole, labelled)
        name = f"data/evidence/{claim_id}/samples-{store.digest(whole)[:12]}.parquet"
        target = store.path(*name.split("/"))
        target.parent.mkdir(parents=True, exist_ok=True)
        hidden = target.with_name(f".writing-{os.getpid()}-{target.name}")
        shutil.copyfile(whole, hidden)
        os.replace(hidden, target)
        return name

    def record(
        self, metric: str, *, claim_id: str, arm: str | None = None, load: str | None = None
    ) -> dict[str, Any]:
        """Return the arguments of ``store.found`` that a measurement fills.

        Parameters
        ----------
        metric : str
            Name of :data:`assay.bench.protocol.window.VALUES`.
        claim_id : str
            Whose evidence it becomes.
        arm, load : str or None
            Which; may be left out where there is one only.
        """
        estimate = self.estimate(metric, arm=arm, load=load)
        return {
            "value": estimate.value,
            "low": estimate.low,
            "high": estimate.high,
            "unit": estimate.unit,
            "n": estimate.n,
            "method": estimate.method,
            "gates": self.gates(metric, arm=arm, load=load),
            "provenance": self.provenance(arm=arm),
            "samples": self.samples(claim_id),
        }

    def energy_per_token(self, *, arm: str | None = None, load: str | None = None) -> float | None:
        """Return the energy per output token; None where no counter could be read [J/tok]."""
        return provenances.joules_per_token(self.of(arm=arm, load=load))

    def cost(self, price: float, *, arm: str | None = None, load: str | None = None) -> float:
        """Return what a million output tokens cost at a price of the deployment in USD/h [USD]."""
        rate = self.estimate("output_throughput", arm=arm, load=load).value
        return provenances.usd_per_million_tokens(price=price, rate=rate)

    def table(
        self, metrics: Sequence[str] = ("output_throughput", "ttft", "tpot")
    ) -> list[dict[str, Any]]:
        """Return one line for each arm, load and metric.

        Returns
        -------
        list of dict
            ``arm, load, metric, value, low, high, unit, n, failed``; the last lists failed gates.
        """
        lines = []
        for arm in self.plan.arms:
            for load in self.plan.loads:
                for metric in metrics:
                    failed = [g for g in self.gates(metric, arm=arm, load=load) if not g.passed]
                    line: dict[str, Any] = {"arm": arm, "load": load, "metric": metric}
                    try:
                        found = self.estimate(metric, arm=arm, load=load)
                        line |= found.model_dump(include={"value", "low", "high", "unit", "n"})
                    except InputError:
                        line |= dict.fromkeys(("value", "low", "high"))
                        line |= {"unit": _unit(metric), "n": len(self.of(arm=arm, load=load))}
                    lines.append(line | {"failed": [f"{g.id}: {g.says}" for g in failed]})
        return lines


def folder(name: str) -> Path:
    """Return the folder of the run of this name; it is kept until it is removed by hand."""
    return store.path("_build", "runs", name)


def measure(
    arms: Mapping[str, Recipe],
    load: Sequence[Load] | Mapping[str, Load],
    *,
    name: str,
    blocks: int = stats.BLOCKS,
    seed: int = 0,
    ceiling: float | None = None,
    cached_share: float = 0.0,
    tell: Callable[[Progress], None] = lambda _: None,
    place: Path | None = None,
    drive: Drive | None = None,
    ready_limit: float = 600.0,
) -> Measurement:
    """Measure every load on every arm, block by block.

    Parameters
    ----------
    arms : mapping of str to Recipe
        Engines by name.
    load : sequence or mapping of Load
        Loads, by name or named by their lengths and rate.
    name : str
        Of the run; calling again with the same name and plan continues it.
    blocks : int
        Server starts of each arm; at least five for a verdict [1].
    seed : int
        Of order, prompts and arrival times.
    ceiling : float or None
        Most output tokens a second the hardware allows, where it is known better than
        :func:`assay.bench.ceiling.ceiling` can say [tok/s].
    cached_share : float
        Share of prompt tokens meant to be found in the prefix cache [1].
    tell : callable
        Receives the progress; ``print`` will do.
    place : Path or None
        Folder of the run, instead of :func:`folder`.
    drive : Drive or None
        The client, instead of ``vllm bench serve``.
    ready_limit : float
        Time a server may take until it serves [s].

    Returns
    -------
    Measurement
        Ready for the ledger, whatever the gates say: they go with the number.

    Raises
    ------
    InputError
        When the plan is none, or another one was begun under this name.
    RunError
        When an engine or the client fails; finished blocks are kept.
    """
    named = dict(load) if isinstance(load, Mapping) else {item.name: item for item in load}
    if len(named) < len(load):
        raise InputError("two loads have one name", where="load", fix="give them names")
    plan = protocol.Plan(arms=dict(arms), loads=named, blocks=blocks, seed=seed)
    chosen = place or folder(name)
    found = protocol.run(plan, chosen, drive=drive, tell=tell, ready_limit=ready_limit)
    hardware = [store.hardware(known) for known in store.hardware_ids()]
    tops = {
        (arm, key): ceilings.Ceiling(ceiling, "as given")
        if ceiling is not None
        else ceilings.ceiling(recipe, item, hardware=hardware, cached=cached_share)
        for arm, recipe in arms.items()
        for key, item in named.items()
    }
    return Measurement(plan, tuple(found), chosen, tops, cached_share)


def _one(kind: str, name: str | None, known: Mapping[str, object]) -> str:
    if name is None and len(known) == 1:
        return next(iter(known))
    if name is None or name not in known:
        given = "none" if name is None else f"'{name}'"
        raise InputError(f"{given} is no {kind} of this run", fix=f"use one of {', '.join(known)}")
    return name


def _unit(metric: str) -> str:
    base = metric.rpartition("_p")[0] if metric not in window.VALUES else metric
    try:
        return window.VALUES[base]
    except KeyError:
        raise InputError(
            f"unknown metric '{metric}'", fix=f"use one of {', '.join(window.VALUES)}"
        ) from None


def _estimate(found: stats.Interval, unit: str) -> records.Estimate:
    return records.Estimate(
        value=found.value,
        low=found.low,
        high=found.high,
        unit=unit,
        n=found.n,
        method=f"{found.method}, {found.level:.0%}, over {found.n} server starts",
    )
