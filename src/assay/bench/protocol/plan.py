"""Plan: which arms are measured under which loads, in which order, from one seed.

Owns the plan, the random order of each block and the seeds of its prompts. Does not own carrying it
out (``protocol``).
"""

from __future__ import annotations

import dataclasses
import hashlib
import random
import re
from collections.abc import Mapping
from typing import Any

from assay.bench import provenance
from assay.bench.engines.recipe import Recipe
from assay.bench.load import Load
from assay.bench.protocol import window
from assay.errors import InputError

__all__ = ["SCHEMA", "Plan", "number"]

SCHEMA = 1  # of a plan and of a block's record
_KEPT = re.compile(r"[a-z0-9][a-z0-9._-]*")


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What will be measured; two runs of one plan ask the same of the same servers.

    Parameters
    ----------
    arms : mapping of str to Recipe
        By name.
    loads : mapping of str to Load
        By name.
    blocks : int
        Server starts of each arm [1].
    seed : int
        Of order, prompts and arrival times.

    Raises
    ------
    InputError
        When it is empty, or a name cannot be one of a file.
    """

    arms: Mapping[str, Recipe]
    loads: Mapping[str, Load]
    blocks: int
    seed: int

    def __post_init__(self) -> None:
        if not self.arms or not self.loads or self.blocks < 1:
            raise InputError("nothing to measure", where="plan", fix="give an arm, a load, a block")
        for name in (*self.arms, *self.loads):
            if not _KEPT.fullmatch(name):
                raise InputError(
                    f"'{name}' is no name of an arm or a load",
                    where="plan",
                    fix="use lower case, digits, points and hyphens",
                )

    def order(self, block: int) -> list[tuple[str, list[str]]]:
        """Return the arms of a block and the loads of each, in the order they run.

        Parameters
        ----------
        block : int
            From 1.
        """
        chance = random.Random(number(self.seed, block, "order"))
        arms = sorted(self.arms)
        chance.shuffle(arms)
        order = []
        for arm in arms:
            names = sorted(self.loads)
            chance.shuffle(names)
            order.append((arm, names))
        return order

    def prompts(self, block: int, name: str) -> int:
        """Return the seed of a load's prompts in a block; the same for all arms."""
        return number(self.seed, block, name)

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON value, with the packages that decide what it means."""
        content = window.finite(
            {
                "schema": SCHEMA,
                "arms": {name: dataclasses.asdict(arm) for name, arm in self.arms.items()},
                "loads": {name: dataclasses.asdict(load) for name, load in self.loads.items()},
                "blocks": self.blocks,
                "seed": self.seed,
                "packages": provenance.packages(),
            }
        )
        assert isinstance(content, dict)
        return content


def number(*parts: object) -> int:
    """Return a number that follows from its parts, and looks random.

    Parameters
    ----------
    *parts : object
        Of which the text counts.

    Returns
    -------
    int
        From 0 to 2**31 - 1, a seed that every library takes.

    Examples
    --------
    >>> number(0, 1, "order") == number(0, 1, "order") != number(0, 2, "order")
    True
    """
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1
