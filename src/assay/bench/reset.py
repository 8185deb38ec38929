"""Reset: the same load on servers with and without a host tier, each from an empty device.

Owns a load client that has the device forget its KV blocks before every run, so that loads do not
lean on each other and the tier's own blocks are all that is warm; what moved in each window; and
the measurement with both. Does not own the protocol, what the loads are or the gates (``tier``).

vLLM has a path for it, ``POST /reset_prefix_cache`` in its development mode. It empties the
device's cache and leaves the connector's alone unless it is told otherwise
(``entrypoints/serve/dev/cache``, ``Scheduler.reset_prefix_cache``, 0.32.0).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from assay.bench import measurement, tier
from assay.bench.engines.recipe import Recipe
from assay.bench.engines.server import Server
from assay.bench.load import Load
from assay.bench.load.client import Client, Drive, Outcome
from assay.bench.protocol.plan import Plan
from assay.bench.tier import Moved
from assay.errors import RunError
from assay.ledger import records, stats, store

__all__ = ["ALLOWED", "Emptied", "Tiered", "measure"]

#: What a server's environment needs, so that it may be told to forget.
ALLOWED = {"VLLM_SERVER_DEV_MODE": "1"}

_LIMIT = 180.0  # blocks on their way over a slow link hold the reset up [s]
_PREFIXES = "prefix-repetition-num-prefixes"

Key = tuple[int, str, str]


class Emptied:
    """A load client that has the device forget its blocks before every run; the host keeps its own.

    Parameters
    ----------
    plan : Plan
        Tells windows from warm-ups, and arms from each other.
    folder : Path
        Of the run; receives what moved in each window.
    inner : Drive or None
        Puts the load on; by default a client that is started with the first run.
    """

    def __init__(self, plan: Plan, folder: Path, inner: Drive | None = None) -> None:
        self._folder, self._inner = folder, inner
        self._stack = contextlib.ExitStack()
        self._arms = {arm.command: name for name, arm in plan.arms.items()}
        self._windows = {
            plan.prompts(block, name): (block, name)
            for block in range(1, plan.blocks + 1)
            for name in plan.loads
        }

    def __enter__(self) -> Emptied:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(
        self, load: Load, server: Server, *, seed: int, on_window: Callable[[bool], None]
    ) -> Outcome:
        """Empty the device's cache, run, and write down what moved."""
        if self._inner is None:
            self._inner = self._stack.enter_context(Client(self._folder / "client"))
        if seed not in self._windows and _PREFIXES in load.options:
            # The client refuses fewer requests than prefixes, and a warm-up has few.
            load = dataclasses.replace(load, options={**load.options, _PREFIXES: "1"})
        _forget(server)
        before = _moved(server)
        outcome = self._inner.run(load, server, seed=seed, on_window=on_window)
        if seed in self._windows:
            block, name = self._windows[seed]
            gained = _moved(server, settled=True).since(before)
            file = _note(self._folder, (block, self._arms[server.recipe.command], name))
            store.write(file, store.json_text(dataclasses.asdict(gained)))
        return outcome


def _forget(server: Server) -> None:
    """Have vLLM drop the device's prefix cache; the connector's blocks stay unless asked for."""
    began = time.monotonic()
    while True:
        asked = urllib.request.Request(server.url + "/reset_prefix_cache", method="POST")
        with _direct().open(asked, timeout=30) as answer:
            if json.loads(answer.read()).get("success"):
                return
        if time.monotonic() - began > _LIMIT:
            raise RunError(
                f"the device's cache could not be emptied in {_LIMIT:g} s",
                where=server.recipe.engine,
                fix="give the link more speed, or the load fewer prompts",
            )
        time.sleep(0.05)


def _moved(server: Server, *, settled: bool = False) -> Moved:
    """Return the counters; settled ones are the same twice."""
    before = None
    while True:
        with _direct().open(server.url + server.recipe.metrics, timeout=30) as answer:
            now = Moved.read(answer.read().decode())
        if not settled or now == before:
            return now
        before = now
        time.sleep(0.1)


def _direct() -> urllib.request.OpenerDirector:
    # A proxy that the environment names must not stand between this machine and itself.
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _note(folder: Path, key: Key) -> Path:
    block, arm, name = key
    return folder / "moved" / f"{block:04}-{arm}-{name}.json"


# -- the measurement ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Tiered:
    """A measurement with what moved in each of its windows.

    Parameters
    ----------
    found : Measurement
        The measurement.
    moved : mapping of (int, str, str) to Moved
        By block, arm and load.
    """

    found: measurement.Measurement
    moved: Mapping[Key, Moved]

    def gates(
        self, metric: str, *, arm: str, load: str, speed: float = math.inf
    ) -> list[records.Gate]:
        """Return the gates of one number.

        Parameters
        ----------
        metric, arm, load : str
            Which.
        speed : float
            Of the link, where it is set [B/s].
        """
        blocks = {window.block for window in self.found.of(arm=arm, load=load)}
        seen = {b: m for (b, *which), m in self.moved.items() if which == [arm, load]}
        return tier.gates(
            self.found.gates(metric, arm=arm, load=load),
            seen if blocks == seen.keys() else {},
            tier.kind(load, self.found.plan.loads[load]),
            arm=arm,
            speed=speed,
        )

    def rows(self) -> list[dict[str, str | int | float]]:
        """Return what moved, one row a window."""
        return [
            {"block": block, "arm": arm, "load": load, **dataclasses.asdict(moved)}
            for (block, arm, load), moved in sorted(self.moved.items())
        ]


def measure(
    arms: Mapping[str, Recipe],
    asked: Mapping[str, Load],
    *,
    name: str,
    blocks: int = stats.BLOCKS,
    tell: Callable[[Any], None] = lambda _: None,
    place: Path | None = None,
    drive: Drive | None = None,
) -> Tiered:
    """Measure loads on arms with and without a tier, or continue to.

    Parameters
    ----------
    arms : mapping of str to Recipe
        Servers, started with :data:`ALLOWED`.
    asked : mapping of str to Load
        From :func:`assay.bench.tier.loads`.
    name : str
        Of the run.
    blocks : int
        Server starts of each arm [1].
    tell : callable
        Receives the progress.
    place : Path or None
        Folder of the run, instead of the usual one.
    drive : Drive or None
        The client, instead of ``vllm bench serve``.

    Raises
    ------
    InputError, RunError
        As :func:`assay.bench.measurement.measure`.
    """
    folder = place or measurement.folder(name)
    plan = Plan(arms=dict(arms), loads=dict(asked), blocks=blocks, seed=0)
    with Emptied(plan, folder, drive) as emptied:
        found = measurement.measure(
            arms,
            asked,
            name=name,
            blocks=blocks,
            # The most that any of the loads may find cached: the physical bound must allow it.
            cached_share=max(tier.kind(told, load).share for told, load in asked.items()),
            tell=tell,
            place=folder,
            drive=emptied,
        )
    return Tiered(found, dict(_notes(folder, plan)))


def _notes(folder: Path, plan: Plan) -> Iterator[tuple[Key, Moved]]:
    for block in range(1, plan.blocks + 1):
        for arm in plan.arms:
            for name in plan.loads:
                file = _note(folder, (block, arm, name))
                if file.is_file():
                    yield (block, arm, name), Moved(**store.read_json(file))
