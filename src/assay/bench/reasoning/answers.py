"""Answers: one record per question and arm of a reasoning experiment.

Owns what a record holds and what it says by itself: whether the budget cut it, whether it holds an
answer, whether it reasoned. Does not own reading one (``transcripts``), or what two arms show
(``reasoning``).

Tokens are counted twice. **By channel** is what the server's ``usage`` says; **by body** is what a
tokenizer, or failing that the bytes, say about the text that came back. Where ``usage`` omits a
count, or the text contradicts it, the count is unknown (None), never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["MARKUP", "Answer", "Arm", "size"]

Arm = Literal["on", "off"]

# Special tokens (turn ends, tags, channel names) that no text shows.
MARKUP = 16
_CUT = frozenset(
    {
        *("length", "max_tokens", "max_output_tokens", "max_completion_tokens", "incomplete"),
        *("model_length", "model_context_window_exceeded"),
    }
)


@dataclass(frozen=True)
class Answer:
    """What one arm did with one question.

    Parameters
    ----------
    question : str
        Identifies the question across arms.
    repeat : str
        Tells several answers to one question apart; empty when there is one.
    arm : "on", "off" or None
        Whether reasoning was asked for; None when the record does not say.
    prompt_tokens, output_tokens : int or None
        By channel [tok]; output is everything that was generated.
    reasoning_tokens, answer_tokens : int or None
        Parts of the output [tok]; None is unknown.
    reasoning_body_tokens, answer_body_tokens : int or None
        The same by body: what a tokenizer counts in the text [tok].
    reasoning, text : str or None
        Reasoning and answer text after tags and doubled fields are sorted out; None when the
        record has no texts.
    answer : str or None
        What the grader extracted.
    correct : bool or None
        The grade; None when it was not graded.
    finish : str
        Finish reason in lower case; empty when unstated.
    budget, thinking_budget : int or None
        Most output tokens, and most reasoning tokens, that were allowed [tok].
    ttft, ttfa, latency, start, end : float or None
        Times to the first token, to the first *answer* token, and of the whole request; its
        start and end on one clock [s].
    energy, cost : float or None
        Of this request [J], [USD].
    block : str
        Which server start it ran on; empty when unstated.
    fallback, failed : bool
        The client fell back to another mode; the request did not complete.
    reference : str or None
        The right answer it was graded against.
    setup : mapping
        Model and sampling settings that the record states.
    marks : frozenset of str
        Rules of ``reasoning`` that this record alone shows.
    """

    question: str
    repeat: str = ""
    arm: Arm | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    answer_tokens: int | None = None
    reasoning_body_tokens: int | None = None
    answer_body_tokens: int | None = None
    reasoning: str | None = None
    text: str | None = None
    answer: str | None = None
    correct: bool | None = None
    finish: str = ""
    budget: int | None = None
    thinking_budget: int | None = None
    ttft: float | None = None
    ttfa: float | None = None
    latency: float | None = None
    start: float | None = None
    end: float | None = None
    energy: float | None = None
    cost: float | None = None
    block: str = ""
    fallback: bool = False
    failed: bool = False
    reference: str | None = None
    setup: Mapping[str, object] = field(default_factory=dict)
    marks: frozenset[str] = frozenset()

    @property
    def truncated(self) -> bool:
        """Whether the budget cut it: by its finish reason, or by having used all of it."""
        if self.finish:
            return self.finish in _CUT
        return None not in (self.budget, self.output_tokens) and (
            (self.output_tokens or 0) >= (self.budget or 0)
        )

    @property
    def empty(self) -> bool:
        """Whether it certainly holds no answer."""
        if self.correct or self.failed:
            return False
        return "no-answer" in self.marks

    @property
    def unparsed(self) -> bool:
        """Whether it is a whole text in which the grader found no answer."""
        return "unparsed-answer" in self.marks and not (self.truncated or self.failed)

    @property
    def censored(self) -> bool:
        """Whether the grade is not the model's: cut, empty, not found, failed, of another mode."""
        if self.fallback or self.failed:
            return True
        return self.correct is not True and (self.truncated or self.empty or self.unparsed)

    @property
    def reasoned(self) -> bool | None:
        """Whether it reasoned; None when neither counts nor texts say so."""
        seen = {"deliberates", "hidden-reasoning"} & self.marks
        if self.reasoning or (self.reasoning_tokens or 0) > 0 or seen:
            return True
        return False if self.reasoning_tokens == 0 else None

    @property
    def unaccounted(self) -> bool:
        """Whether more tokens came than the texts have bytes; a token has at least one byte."""
        if self.output_tokens is None or self.text is None:
            return self.text is None
        return self.output_tokens > size(self.text) + size(self.reasoning or "") + MARKUP


def size(text: str) -> int:
    """Return the bytes of a text, which no text has fewer of than tokens."""
    return len(text.encode("utf-8", "surrogatepass"))
