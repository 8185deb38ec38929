"""Paper: what an exam asks, of which arm, and how.

Owns how reasoning is switched, the questions of every block, and the order in which the arms sit.
Does not own holding the exam (``exam``) or the questions (``tasks``).
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping

from assay.bench.exam import arithmetic, tasks
from assay.errors import InputError

__all__ = ["SWITCHES", "Paper", "Switch"]


@dataclasses.dataclass(frozen=True, slots=True)
class Switch:
    """How reasoning is turned on and off.

    Parameters
    ----------
    on, off : mapping
        Fields added to the request of either arm.
    say_on, say_off : str
        Sentence added to the question of either arm; empty for none.
    """

    on: Mapping[str, object] = dataclasses.field(default_factory=dict)
    off: Mapping[str, object] = dataclasses.field(default_factory=dict)
    say_on: str = ""
    say_off: str = ""


# ``template`` is what Qwen3 and its successors understand; ``prompt`` serves models without one.
SWITCHES = {
    "template": Switch(
        on={"chat_template_kwargs": {"enable_thinking": True}},
        off={"chat_template_kwargs": {"enable_thinking": False}},
    ),
    "prompt": Switch(
        say_on=" Think step by step before you answer.",
        say_off=" Answer at once, with the number only.",
    ),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Paper:
    """What is asked, and how.

    Parameters
    ----------
    questions : tuple of Question
        Dealt out to the blocks in turn.
    template : str
        Text around the ``{expression}`` of a sum; other questions bring their own.
    switch : str
        One of :data:`SWITCHES`.
    blocks : int
        Server starts [1].
    budget : int
        Most output tokens of an answer, the same in both arms [tok].
    concurrency : int
        Questions in flight [1].
    temperature : float
        0 is greedy [1].
    seed : int
        Of the order of the arms.
    """

    questions: tuple[tasks.Question, ...]
    template: str = arithmetic.PLAIN
    switch: str = "template"
    blocks: int = 5
    budget: int = 160
    concurrency: int = 8
    temperature: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be held."""
        if self.switch not in SWITCHES:
            raise InputError(
                f"unknown switch '{self.switch}'", fix=f"use {' or '.join(sorted(SWITCHES))}"
            )
        if not 0 < self.blocks <= len(self.questions) or min(self.budget, self.concurrency) < 1:
            raise InputError(
                f"{len(self.questions)} questions in {self.blocks} blocks, {self.budget} tokens, "
                f"{self.concurrency} in flight cannot be held",
                fix="give at least one of each, and a question for every block",
            )

    def of(self, block: int) -> list[tasks.Question]:
        """Return the questions of a block."""
        return list(self.questions[block :: self.blocks])

    def order(self, block: int) -> list[str]:
        """Return the arms of a block in the order in which they sit."""
        arms = ["on", "off"]
        random.Random(f"{self.seed}/{block}").shuffle(arms)
        return arms
