"""Offload: how long KV blocks take between the device and the host.

Owns the link's clock, each way first come first served, and the worker's side of vLLM's
offloading connector, whose scheduler side is real: a store is submitted at the beginning of the
next step, a load at once, and a store whose blocks are about to be given away is waited for. Does
not own which blocks move or which are evicted: the connector decides.

Modelled, and to be known when reading a result: a transfer takes its bytes over the link's speed
plus a fixed latency; the two directions do not slow each other, nor the model.
"""

from __future__ import annotations

import math
from typing import Any

from assay.bench.twin.engine import Tier

__all__ = ["Link"]


class Link:
    """The transfers under way.

    Parameters
    ----------
    tier : Tier
        Speeds and latency.
    block_bytes : int
        Bytes of a block on one device [B].

    Notes
    -----
    Facts about the order of submissions: vLLM 0.32,
    ``kv_connector/v1/offloading/worker.py``.
    """

    def __init__(self, tier: Tier, block_bytes: int) -> None:
        self._tier, self._bytes = tier, block_bytes
        self._free = {"load": 0.0, "store": 0.0}
        self._waiting: dict[int, Any] = {}
        self._flying: dict[int, tuple[float, str]] = {}
        self.loaded_bytes = 0
        self.stored_bytes = 0

    def begin(self, asked: Any, now: float) -> float:
        """Submit what a step asks for and return when the step can start [s].

        Parameters
        ----------
        asked : object
            The connector's metadata of the step.
        now : float
            Clock [s].
        """
        flush = asked.jobs_to_flush or ()
        for job in flush:
            if job in asked.store_jobs:
                self._waiting[job] = asked.store_jobs.pop(job)
        for job, entry in self._waiting.items():
            self._submit(job, "store", len(entry.src_spec.block_ids), now)
        self._waiting.clear()
        start = max([now, *(self._flying[job][0] for job in flush if job in self._flying)])
        for job, entry in asked.load_jobs.items():
            self._submit(job, f"load {entry.req_id}", len(entry.dst_spec.block_ids), start)
        self._waiting.update(asked.store_jobs)
        return start

    def end(self, now: float) -> Any:
        """Return what has arrived, as the worker reports it; None when nothing has."""
        from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import (
            OffloadingWorkerMetadata,
        )
        from vllm.v1.outputs import KVConnectorOutput

        arrived = [job for job, (when, _) in self._flying.items() if when <= now]
        if not arrived:
            return None
        report, loaded = OffloadingWorkerMetadata(), set()
        for job in arrived:
            _, what = self._flying.pop(job)
            report.mark_completed(job)
            if what.startswith("load "):
                loaded.add(what.removeprefix("load "))
        return KVConnectorOutput(finished_recving=loaded, kv_connector_worker_meta=report)

    def next_time(self) -> float:
        """Return when the next transfer ends [s]; infinite when none is under way."""
        return min((when for when, _ in self._flying.values()), default=math.inf)

    @property
    def idle(self) -> bool:
        """Whether nothing is under way or waiting to be."""
        return not self._flying and not self._waiting

    def _submit(self, job: int, what: str, blocks: int, now: float) -> None:
        way = what.partition(" ")[0]
        speed = self._tier.to_device if way == "load" else self._tier.to_host
        moved = blocks * self._bytes
        if way == "load":
            self.loaded_bytes += moved
        else:
            self.stored_bytes += moved
        begun = max(now, self._free[way])
        self._free[way] = begun + moved / speed + self._tier.latency
        self._flying[job] = (self._free[way], what)
