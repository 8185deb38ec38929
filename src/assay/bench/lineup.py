"""Lineup: engines side by side on this machine, from the same weights and under the same load.

Owns the small model and load, which engines take part, running them with this processor's own roof
before and after, and the committed samples ``data/published/engines_here.csv``. Does not own
starting or loading an engine (``measurement``), the roof (``roof``) or the page (``press``).

It shows the method at work. On a shared machine of few cores its numbers are evidence about no
claim. ``python -m assay.bench.lineup`` measures anew and renews the samples.
"""

from __future__ import annotations

import csv
import dataclasses
import datetime
import functools
import io
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from assay.bench import checkpoint, machine, measurement, provenance, roof
from assay.bench.checkpoint import gguf
from assay.bench.engines import llamacpp, sglang, transformers, vllm
from assay.bench.engines.recipe import Recipe
from assay.bench.load import Load
from assay.bench.protocol import Progress
from assay.errors import InputError
from assay.ledger import store

__all__ = [
    "BLOCKS",
    "LOAD",
    "QUANTITIES",
    "SHAPE",
    "Line",
    "allowed",
    "best_roof",
    "engines",
    "lines",
    "run",
    "text",
]

# Some 54 million parameters in few, wide layers: larger than a processor's cache, and two cores
# spend their time on matrices and not on calls.
SHAPE = checkpoint.Shape(
    layers=4, hidden=1024, intermediate=2816, heads=16, kv_heads=4, longest=4096
)
# The lengths of the A100 table that ``engine_table`` judges.
LOAD = Load(requests=12, input_tokens=512, output_tokens=128, concurrency=4)
BLOCKS = 5
# What is kept of each block, with its unit.
QUANTITIES = {"output_throughput": "tok/s", "ttft": "s", "tpot": "s"}
# Without a number of blocks, continuous batching takes 90 % of memory for its cache and is killed
# where others hold the rest (transformers 5.19.0). 128 blocks of 32 hold more than the load needs.
_PAGES = ("--cb-block-size", "32", "--cb-num-blocks", "128", "--cb-max-batch-tokens", "1024")
_ROOF = "roof"
_TABLE = "engines_here"


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """One quantity of one engine against what the roof allows.

    Parameters
    ----------
    engine, version, quantity, unit : str
        What was measured.
    blocks : tuple of float
        One value a server start [unit].
    limit : float
        What the roof allows at best [unit].
    """

    engine: str
    version: str
    quantity: str
    unit: str
    blocks: tuple[float, ...]
    limit: float

    @property
    def middle(self) -> float:
        """Median over blocks [unit]."""
        return statistics.median(self.blocks)

    @property
    def share(self) -> float:
        """How much of the roof is reached, by the median: at most 1 when all is well [1]."""
        rate = self.unit.endswith("/s")
        return self.middle / self.limit if rate else self.limit / self.middle


def engines(model: Path) -> dict[str, Recipe]:
    """Return every engine that is installed here and serves these weights as they are.

    Parameters
    ----------
    model : Path
        Folder of the checkpoint.

    Returns
    -------
    dict of str to Recipe
        By short name; vLLM and transformers on a processor, llama.cpp and SGLang too where they
        are installed.
    """
    longest = LOAD.input_tokens + LOAD.output_tokens + 64
    slots = LOAD.concurrency or 1
    makers: dict[str, Callable[[], Recipe]] = {
        "vllm": lambda: vllm.serve(
            str(model), weights_kind="random", eager=True, spin=False, max_model_len=longest
        ),
        "transformers": lambda: transformers.serve(str(model), weights_kind="random", flags=_PAGES),
        "llamacpp": lambda: llamacpp.serve(
            str(gguf.write(model)),
            tokenizer=str(model),
            weights_kind="random",
            slots=slots,
            context=longest,
        ),
        "sglang": lambda: sglang.serve(str(model), weights_kind="random"),
    }
    found = {}
    for name, make in makers.items():
        try:
            found[name] = make()
        except InputError:
            continue  # not installed here
    return found


def run(
    *,
    blocks: int = BLOCKS,
    place: Path | None = None,
    tell: Callable[[Progress], None] = lambda _: None,
) -> list[dict[str, object]]:
    """Measure the roof, every engine block by block, and the roof again.

    Parameters
    ----------
    blocks : int
        Server starts of each engine [1].
    place : Path or None
        Folder of the run.
    tell : callable
        Receives the progress.

    Returns
    -------
    list of dict
        Rows of the table of samples.

    Raises
    ------
    InputError
        When fewer than two engines are installed.
    RunError
        When an engine or the client fails.
    """
    model = checkpoint.make(SHAPE)
    arms = engines(model)
    if len(arms) < 2:
        raise InputError(
            f"{len(arms)} engines are installed, and two are needed to stand side by side",
            fix="install the extra 'cpu', and accelerate for transformers serve",
        )
    rows = _roof_rows(1)
    found = measurement.measure(
        arms, [LOAD], name="lineup", blocks=blocks, tell=tell, place=place, ready_limit=300.0
    )
    rows += [row for arm in arms for row in _engine_rows(found, arm, model)]
    return rows + _roof_rows(2)


def _roof_rows(block: int) -> list[dict[str, object]]:
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    seen = roof.measure()
    values = {"copy_bandwidth": (seen.bandwidth, "B/s")}
    values |= {f"matmul_{name}": (rate, "FLOP/s") for name, rate in seen.flops.items()}
    return [
        {
            "subject": _ROOF,
            "version": "",
            "block": block,
            "started": started,
            "quantity": name,
            "value": f"{value:.6g}",
            "unit": unit,
            "completed": "",
            "load_average": f"{os.getloadavg()[0]:.2f}",
            "failed_gates": "",
            "flags": f"best of {seen.repeats}",
            **_place(),
        }
        for name, (value, unit) in values.items()
    ]


def _engine_rows(found: measurement.Measurement, arm: str, model: Path) -> list[dict[str, object]]:
    recipe = found.plan.arms[arm]
    flags = " ".join(found.provenance(arm=arm).flags).replace(str(model), "MODEL")
    rows: list[dict[str, object]] = []
    for window in found.of(arm=arm):
        for name, unit in QUANTITIES.items():
            gates = [gate for gate in found.gates(name, arm=arm) if not gate.passed]
            load_average = window.watched.load_average
            rows.append(
                {
                    "subject": recipe.engine,
                    "version": recipe.version,
                    "block": window.block,
                    "started": window.started,
                    "quantity": name,
                    "value": f"{window.values[name]:.6g}",
                    "unit": unit,
                    "completed": window.completed,
                    "load_average": "" if load_average is None else f"{load_average:.2f}",
                    "failed_gates": "; ".join(f"{gate.id}: {gate.says}" for gate in gates),
                    "flags": flags,
                    **_place(),
                }
            )
    return rows


@functools.cache
def _place() -> Mapping[str, str]:
    here = machine.discover(())
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    installed = provenance.packages()
    return {
        "machine": f"{here.processor}, {cores} cores",
        "packages": " ".join(f"{name}=={version}" for name, version in installed.items()),
        "commit": provenance.commit(),
    }


def text(rows: Sequence[Mapping[str, object]]) -> str:
    """Return rows as CSV, as they are kept in ``data/published/engines_here.csv``."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def best_roof(samples: Sequence[Mapping[str, str]]) -> roof.Roof:
    """Return the highest of each quantity that the samples hold of the roof."""
    seen: dict[str, float] = {}
    mine = [row for row in samples if row["subject"] == _ROOF]
    for row in mine:
        seen[row["quantity"]] = max(float(row["value"]), seen.get(row["quantity"], 0.0))
    flops = {k.removeprefix("matmul_"): v for k, v in seen.items() if k.startswith("matmul_")}
    return roof.Roof(seen["copy_bandwidth"], flops, len(mine))


def allowed(samples: Sequence[Mapping[str, str]]) -> roof.Limits:
    """Return what the roof of the samples allows the model under the load."""
    return roof.limits(best_roof(samples), SHAPE.config(), LOAD)


def lines(samples: Sequence[Mapping[str, str]] | None = None) -> list[Line]:
    """Return every quantity of every engine with its limit.

    Parameters
    ----------
    samples : sequence of mapping, optional
        The committed ones by default.

    Examples
    --------
    >>> all(0 < line.share <= 1 for line in lines())
    True
    """
    rows = list(store.published(_TABLE) if samples is None else samples)
    limits = allowed(rows)
    blocks: dict[tuple[str, str, str], list[float]] = {}
    for row in rows:
        if row["subject"] != _ROOF:
            key = (row["subject"], row["version"], row["quantity"])
            blocks.setdefault(key, []).append(float(row["value"]))
    return [
        Line(engine, version, name, QUANTITIES[name], tuple(values), getattr(limits, name))
        for (engine, version, name), values in blocks.items()
    ]


def main() -> None:
    """Measure here and renew the committed samples."""
    rows = run(tell=lambda progress: print(progress, flush=True))
    store.write(store.path("data", "published", f"{_TABLE}.csv"), text(rows))


if __name__ == "__main__":
    main()
