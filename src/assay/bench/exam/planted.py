"""Planted: answers with and without reasoning whose lengths and grades are known beforehand.

Owns the effect (how many times the tokens, how many more right answers), what a model with exactly
this effect says to one question, and the records of a whole exam on it. The synthetic server says
the same over HTTP, so that the asking, counting and grading of an exam can be held against it. Does
not own the server (``synthetic``) or the exam (``exam``). Nothing here is a measurement.

An answer depends on the effect's seed, the sum that is asked and the arm, and on nothing else.
Both arms of a question share its difficulty, as in reality: long answers come in pairs.
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
import re
from collections.abc import Sequence
from typing import Any, Literal

from assay.bench.exam import arithmetic
from assay.bench.reasoning import bodies
from assay.errors import InputError

__all__ = ["Effect", "Reply", "reply", "rows"]

# Lengths are lognormal: these are the deviations of the logarithm that the arms share and do not.
_SHARED, _OWN = 0.35, 0.3
_VARIANCE = _SHARED**2 + _OWN**2
_SUM = re.compile(r"\d+(?:[+-]\d+)+")
_TAGS = ("<think>", "</think>")


@dataclasses.dataclass(frozen=True, slots=True)
class Effect:
    """What reasoning does to a model that does not exist.

    Parameters
    ----------
    tokens : float
        Mean length of an answer without reasoning [tok].
    ratio : float
        Mean length with reasoning, over that [1].
    both, only_on, only_off : float
        Shares of questions that both arms, or one only, answer rightly [1].
    shown : "field", "tags" or "hidden"
        Where the reasoning text comes: in a field of its own, between tags in the answer, nowhere.
    counted : bool
        Whether ``usage`` says how many tokens were reasoning.
    empty : float
        Share of the answers with reasoning that are cut before they begin [1].
    ignored : bool
        Whether the server takes the switch and ignores it.
    seed : int
        Which questions go which way.

    Examples
    --------
    >>> Effect(only_on=0.2, only_off=0.05).gain
    0.15
    """

    tokens: float = 60.0
    ratio: float = 3.1
    both: float = 0.55
    only_on: float = 0.175
    only_off: float = 0.10
    shown: Literal["field", "tags", "hidden"] = "field"
    counted: bool = True
    empty: float = 0.0
    ignored: bool = False
    seed: int = 0

    @property
    def gain(self) -> float:
        """Accuracy with reasoning minus accuracy without [1]."""
        return round(self.only_on - self.only_off, 12)

    def text(self) -> str:
        """Return it as one line, as :meth:`read` takes it."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def read(cls, text: str) -> Effect:
        """Return the effect that :meth:`text` wrote."""
        return cls(**json.loads(text))


@dataclasses.dataclass(frozen=True, slots=True)
class Reply:
    """What is said to one question.

    Parameters
    ----------
    reasoning, content : tuple of str
        Words of either field; a word is a token.
    hidden : int
        Tokens of reasoning that are not shown [tok].
    reasoned : int
        Tokens of reasoning, shown or not [tok].
    finish : str
        ``stop``, or ``length`` where the budget cut it.
    """

    reasoning: tuple[str, ...]
    content: tuple[str, ...]
    hidden: int
    reasoned: int
    finish: str

    @property
    def tokens(self) -> int:
        """Everything that was generated [tok]."""
        return len(self.reasoning) + len(self.content) + self.hidden

    def usage(self, effect: Effect, prompt: int) -> dict[str, Any]:
        """Return what the server reports."""
        found: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": self.tokens}
        if effect.counted:
            found["completion_tokens_details"] = {"reasoning_tokens": self.reasoned}
        return found


def reply(effect: Effect, text: str, *, thinking: bool, budget: int) -> Reply:
    """Return what the model says to a question.

    Parameters
    ----------
    effect : Effect
        The model.
    text : str
        The question; it holds a sum.
    thinking : bool
        Whether reasoning is asked for.
    budget : int
        Most tokens of the answer [tok].

    Returns
    -------
    Reply
        The same for the same arguments.

    Raises
    ------
    InputError
        When the text holds no sum.

    Examples
    --------
    >>> found = reply(Effect(), "What is 3+4?", thinking=False, budget=500)
    >>> found.reasoned, found.content[-1] in ("7", "8")
    (0, True)
    """
    asked = _SUM.search(text)
    if asked is None:
        raise InputError("holds no sum to answer", where="question", fix="ask as `arithmetic` does")
    drawn = random.Random(f"{effect.seed}/{asked[0]}")
    hard, cell, cut = drawn.gauss(0, _SHARED), drawn.random(), drawn.random()
    own = {arm: drawn.gauss(0, _OWN) for arm in (True, False)}
    thinks = thinking and not effect.ignored
    mean = effect.tokens * (effect.ratio if thinks else 1.0)
    length = max(4, round(mean * math.exp(hard + own[thinks] - _VARIANCE / 2)))
    other = effect.only_on if thinks else effect.only_off
    # One draw for both arms: right in both, right in one only, in neither.
    start = effect.both if thinks else effect.both + effect.only_on
    right = cell < effect.both or start <= cell < start + other
    terms = (int(term) for term in re.findall(r"[+-]?\d+", asked[0]))
    answer = f"{sum(terms) + (0 if right else 1)}"
    words = tuple(f"w{2 + place % 7}" for place in range(length))
    if not thinks:
        whole = (*words[1:], answer)
        return Reply((), whole[:budget], 0, 0, "stop" if length <= budget else "length")
    emptied = cut < effect.empty
    finish = "length" if emptied or length > budget else "stop"
    tags = 2 if effect.shown == "tags" else 0
    said = () if finish == "length" else (answer,)
    # What is cut ends in its reasoning, before a closing tag and an answer.
    reasoned = min(length, budget) - (tags // 2 if finish == "length" else tags + 1)
    thought = words[:reasoned]
    if effect.shown == "hidden":
        return Reply((), said, reasoned, reasoned, finish)
    if effect.shown == "field":
        return Reply(thought, said, 0, reasoned, finish)
    closing = () if finish == "length" else (_TAGS[1],)
    return Reply((), (_TAGS[0], *thought, *closing, *said), 0, reasoned, finish)


def rows(
    effect: Effect,
    questions: Sequence[arithmetic.Question],
    *,
    budget: int,
    template: str = arithmetic.PLAIN,
) -> list[dict[str, Any]]:
    """Return the records of an exam on the model, without asking any server.

    Parameters
    ----------
    effect : Effect
        The model.
    questions : sequence of Question
        What is asked.
    budget : int
        Most tokens of an answer [tok].
    template : str
        How it is asked.

    Returns
    -------
    list of dict
        One row a question and arm, with the fields of an exam's rows that do not depend on time.
    """
    found = []
    for question in questions:
        text = question.asked(template)
        for arm in ("on", "off"):
            said = reply(effect, text, thinking=arm == "on", budget=budget)
            texts, _ = bodies.sort(" ".join(said.content), [" ".join(said.reasoning)])
            mark, right = question.marked(texts.text)
            usage = said.usage(effect, len(text.split()))
            row = {
                "id": question.id,
                "arm": arm,
                "content": " ".join(said.content),
                "answer": mark,
                "correct": right,
                "finish_reason": said.finish,
                "prompt_tokens": usage["prompt_tokens"],
                "completion_tokens": usage["completion_tokens"],
                "max_tokens": budget,
            }
            if effect.counted:
                row["reasoning_tokens"] = said.reasoned
            if said.reasoning:
                row["reasoning"] = " ".join(said.reasoning)
            found.append(row)
    return found
