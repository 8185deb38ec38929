"""Progress: where a run is, and how long the rest should take.

Owns the two; what a block costs is learnt from the blocks that are finished. Does not own showing
it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

from assay.bench.protocol.plan import Plan

__all__ = ["Clock", "Progress"]


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """Where a run is.

    Parameters
    ----------
    block, blocks : int
        Block at work and in all [1].
    doing : str
        What happens now.
    done, total : int
        Runs of a load, finished and in all [1].
    elapsed : float
        Since this call [s].
    remaining : float or None
        Expected until the end, from the blocks that are finished [s].
    """

    block: int
    blocks: int
    doing: str
    done: int
    total: int
    elapsed: float
    remaining: float | None

    def __str__(self) -> str:
        left = "" if self.remaining is None else f", about {self.remaining / 60:.1f} min left"
        return f"block {self.block} of {self.blocks}: {self.doing} ({self.done}/{self.total}{left})"


class Clock:
    """Tells the progress of a plan, and learns from each block what one costs.

    Parameters
    ----------
    plan : Plan
        What is measured.
    tell : callable
        Receives the progress.
    seconds : sequence of float
        What each block cost that was finished before [s].
    """

    def __init__(
        self, plan: Plan, tell: Callable[[Progress], None], seconds: Sequence[float]
    ) -> None:
        self.plan, self._tell = plan, tell
        self.per_block = len(plan.arms) * len(plan.loads)
        self.done = len(seconds) * self.per_block
        self.began = time.monotonic()
        self.seconds = list(seconds)

    def tell(self, block: int, doing: str) -> None:
        """Say what happens now in a block."""
        total = self.plan.blocks * self.per_block
        remaining = None
        if self.seconds:
            mean = sum(self.seconds) / len(self.seconds)
            remaining = mean * (total - self.done) / self.per_block
        elapsed = time.monotonic() - self.began
        self._tell(Progress(block, self.plan.blocks, doing, self.done, total, elapsed, remaining))
