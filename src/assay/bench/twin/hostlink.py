"""Host link: the worker's side of KV offloading on a machine whose "device" is its own memory.

Owns a worker for vLLM's real offloading connector that copies blocks to a second buffer in the
same memory and reports a transfer as done when a link of a chosen speed would be. vLLM's own worker
refuses a CPU. Loaded by vLLM itself, through the connector's documented options ``spec_name`` and
``spec_module_path``. Written for the versions in :data:`assay.bench.private.TESTED`.

vLLM asks once a step which transfers are done, of its own worker too, so a transfer that ends
within a step is noticed at the step's end. What is reported as its time includes that delay. The
copy itself is made at once, on the engine's own thread, some 3 GB/s; its time counts as the link's.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any

__all__ = ["SPEC", "HostWorker"]

#: What vLLM is told to ask this module for; it is made then, since it needs vLLM.
SPEC = "HostSpec"


class HostWorker:
    """Copies blocks at once and reports them at the link's pace, first come first served.

    Parameters
    ----------
    caches : CanonicalKVCaches
        The device's blocks, as vLLM lays them out.
    chunks : int
        Chunks in the host's buffer.
    blocks_per_chunk : int
        Blocks of a chunk.
    speed : float
        Of the link, each way [B/s]; infinite for none.
    """

    def __init__(self, caches: Any, chunks: int, blocks_per_chunk: int, speed: float) -> None:
        import torch

        self._device = [
            part.tensor.view(torch.int8).view(part.tensor.shape[0], -1) for part in caches.tensors
        ]
        self._parts = caches.group_data_refs
        self._host = [
            torch.empty(chunks * blocks_per_chunk, part.page_size_bytes, dtype=torch.int8)
            for part in caches.tensors
        ]
        self._per_chunk, self._speed = blocks_per_chunk, speed
        self._free = {True: 0.0, False: 0.0}
        self._flying: dict[int, tuple[float, float, int]] = {}

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        """Copy device blocks to the host."""
        return self._copy(job_id, src_spec, dst_spec, store=True)

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        """Copy host blocks to the device."""
        return self._copy(job_id, dst_spec, src_spec, store=False)

    def get_finished(self) -> list[Any]:
        """Return the transfers that the link has carried by now."""
        from vllm.v1.kv_offload.base import TransferResult

        now = time.perf_counter()
        found = []
        for job, (begun, ends, moved) in list(self._flying.items()):
            if ends <= now:
                del self._flying[job]
                found.append(TransferResult(job, True, moved, now - begun))
        return found

    def wait(self, job_ids: Iterable[int]) -> None:
        """Wait for transfers."""
        last = max((self._flying[j][1] for j in job_ids if j in self._flying), default=0.0)
        time.sleep(max(0.0, last - time.perf_counter()))

    def shutdown(self) -> None:
        """Forget what is under way."""
        self._flying.clear()

    def _copy(self, job: int, device: Any, host: Any, *, store: bool) -> bool:
        now, moved = time.perf_counter(), 0
        for group, block, slot in self._pairs(device, host):
            for part in self._parts[group]:
                size = part.page_size_bytes
                ours = self._device[part.tensor_idx][block][:size]
                theirs = self._host[part.tensor_idx][slot][:size]
                (theirs.copy_(ours) if store else ours.copy_(theirs))
                moved += size
        takes = 0.0 if math.isinf(self._speed) else moved / self._speed
        begun = max(now, self._free[store])
        self._free[store] = begun + takes
        self._flying[job] = (begun, self._free[store], moved)
        return True

    def _pairs(self, device: Any, host: Any) -> Iterable[tuple[int, int, int]]:
        """Give each device block its place in the host's buffer."""
        at = chunk = 0
        for group, (count, first) in enumerate(
            zip(device.group_sizes, device.block_indices, strict=True)
        ):
            skip = first % self._per_chunk
            for number in range(count):
                place = skip + number
                slot = int(host.block_ids[chunk + place // self._per_chunk]) * self._per_chunk
                yield group, int(device.block_ids[at + number]), slot + place % self._per_chunk
            at += count
            chunk += -(-(skip + count) // self._per_chunk)


def __getattr__(name: str) -> Any:
    if name != SPEC:
        raise AttributeError(name)
    from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec

    class HostSpec(CPUOffloadingSpec):  # type: ignore[misc]
        """vLLM's own CPU tier, with a worker that runs here."""

        def get_worker(self, kv_caches: Any) -> HostWorker:
            """Return the worker, made at the first call."""
            if not hasattr(self, "_ours"):
                speed = float(self.extra_config.get("link_bytes_per_s", math.inf))
                self._ours = HostWorker(kv_caches, self.num_chunks, self.blocks_per_chunk, speed)
            return self._ours

    return HostSpec
