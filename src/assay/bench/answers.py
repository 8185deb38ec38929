"""Answers: one record per question and arm of a reasoning experiment.

Owns reading such records from JSON lines (our own shape, an OpenAI-compatible response, a grader's
row), and what one record says by itself: which text is reasoning and which is the answer, and
which token counts are known. Does not own what two arms show (``reasoning``).

Tokens are counted twice. **By channel** is what the server's ``usage`` says; **by body** is what a
tokenizer, or failing that the bytes, say about the text that came back. Where ``usage`` omits a
count, or the text contradicts it, the count is unknown (None), never 0. Two rules of the bodies:
text in the reasoning field of an answer that has no other text and was asked not to reason *is*
the answer; and the same text under two names is one text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from assay.bench import bodies
from assay.bench.bodies import Bodies
from assay.errors import InputError
from assay.ledger import store

__all__ = ["Answer", "Arm", "parse", "read"]

Arm = Literal["on", "off"]

_ON = re.compile(r"on|true|enabled|think(ing)?|reasoning|cot")
_OFF = re.compile(r"off|false|disabled|direct|none|(no|non|without)_?(think(ing)?|reasoning|cot)")
_CUT = frozenset({"length", "max_tokens", "max_output_tokens", "max_completion_tokens"})
_SETUP = (
    *("model", "engine", "temperature", "top_p", "top_k", "min_p"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty", "concurrency"),
)
_QUESTION = ("question_id", "task_id", "doc_id", "custom_id", "id", "index", "idx", "call")
_CONTENT = ("content", "text", "output", "completion")
_REASONING = ("reasoning", "reasoning_content", "thinking", "reasoning_text")
_REPEAT = ("repeat", "sample", "attempt", "trial", "block")


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
    def censored(self) -> bool:
        """Whether the grade is not the model's: cut short of it, empty, failed, of another mode."""
        if self.fallback or self.failed:
            return True
        return self.correct is not True and (self.truncated or self.empty)

    @property
    def reasoned(self) -> bool | None:
        """Whether it reasoned; None when neither counts nor texts say so."""
        if self.reasoning or (self.reasoning_tokens or 0) > 0 or "deliberates" in self.marks:
            return True
        return False if self.reasoning_tokens == 0 else None

    @property
    def unaccounted(self) -> bool:
        """Whether more tokens came than the texts have bytes; a token has at least one byte."""
        if self.output_tokens is None or self.text is None:
            return self.text is None
        return self.output_tokens > _size(self.text) + _size(self.reasoning or "") + _MARKUP


# Special tokens (turn ends, tags, channel names) that no text shows.
_MARKUP = 16


# -- files ----------------------------------------------------------------------------------------


def read(file: Path, *, arm: Arm | None = None) -> list[Answer]:
    """Read the records of a file: JSON lines, or one JSON array of objects.

    Parameters
    ----------
    file : Path
        The file.
    arm : "on", "off" or None
        What a record that names no arm belongs to.

    Returns
    -------
    list of Answer
        In the file's order.

    Raises
    ------
    InputError
        When it is no such file, is empty, or a field has a value it cannot have; the message
        names file, line and field.
    """
    where = store.shown(file)
    text = store.read_text(file)
    rows: Iterable[tuple[str, Any]]
    if text.lstrip().startswith("["):
        content = store.parse_json(text, where=where)
        rows = [(f"{where}, record {i}", row) for i, row in enumerate(content, 1)]
    else:
        # Only "\n" ends a record: U+2028 and its like are legal inside JSON strings.
        lines = ((f"{where}, line {i}", line) for i, line in enumerate(text.split("\n"), 1))
        rows = [(at, store.parse_json(line, where=at)) for at, line in lines if line.strip()]
    found = [parse(row, where=at, arm=arm) for at, row in rows]
    if not found:
        raise InputError("holds no records", where=where, fix="give JSON lines, one a question")
    return found


def parse(row: object, *, where: str, arm: Arm | None = None) -> Answer:
    """Turn one row into a record.

    Parameters
    ----------
    row : object
        A parsed JSON value.
    where : str
        File and line, for messages.
    arm : "on", "off" or None
        What a row that names no arm belongs to.

    Returns
    -------
    Answer
        With its texts sorted out and its counts resolved.

    Raises
    ------
    InputError
        When the row is no object, names no question, or a value is not of its kind.

    Examples
    --------
    >>> found = parse({"id": 1, "arm": "off", "content": "<think></think>7"}, where="line 1")
    >>> found.text, found.reasoning_tokens
    ('7', 0)
    """
    if not isinstance(row, dict):
        raise InputError("is not a JSON object", where=where, fix="write one object a line")
    fields = _Fields(row, where)
    question = fields.name(*_QUESTION)
    if not question:
        raise InputError("names no question", where=where, fix="add the field 'id'")
    own = _arm(fields) or arm
    told = [fields.plain(name) for name in _REASONING]
    texts, marks = bodies.sort(fields.plain(*_CONTENT), [t for t in told if isinstance(t, str)])
    given = fields.has(*_CONTENT, *_REASONING)
    reported = fields.count("reasoning_tokens", "thinking_tokens")
    output = fields.count("completion_tokens", "output_tokens", "eval_count")
    if _misplaced(texts, own, reported):
        texts = Bodies("", texts.reasoning)
        marks.add("answer-misplaced")
    answer = fields.name("answer", "extracted_answer", "prediction") or None
    correct = fields.truth("correct", "is_correct", "exact_match")
    if _lacks_answer(fields, texts, answer):
        marks.add("no-answer")
    if bodies.deliberates(texts.text):
        marks.add("deliberates")
    reasoning, of_answer = _counts(fields, texts, output, reported, marks)
    if output == 0 and (texts.text or texts.reasoning):
        output = None
        marks.add("usage-contradicts-text")
    ttft = fields.seconds("ttft", "time_to_first_token")
    ttfa = fields.seconds("ttfa", "time_to_first_answer_token")
    latency = fields.seconds("e2e", "e2el", "latency", "end_to_end", "duration")
    start, end = fields.seconds("start", "start_time"), fields.seconds("end", "end_time")
    for earlier, later in ((ttft, ttfa), (ttft, latency), (ttfa, latency), (start, end)):
        if earlier is not None and later is not None and earlier > later:
            raise InputError(
                f"a later time ({later} s) is before an earlier one ({earlier} s)",
                where=where,
                fix="check the clock and the units of the time fields",
            )
    return Answer(
        question=question,
        repeat=fields.name(*_REPEAT),
        arm=own,
        prompt_tokens=fields.count("prompt_tokens", "input_tokens", "prompt_eval_count"),
        output_tokens=output,
        reasoning_tokens=reasoning,
        answer_tokens=of_answer,
        reasoning_body_tokens=fields.count("reasoning_body_tokens"),
        answer_body_tokens=fields.count("answer_body_tokens"),
        reasoning=texts.reasoning if given else None,
        text=texts.text if given else None,
        answer=answer,
        correct=correct,
        finish=fields.name("finish_reason", "stop_reason", "done_reason").lower(),
        budget=fields.count(
            "max_tokens", "max_completion_tokens", "max_new_tokens", "max_output_tokens"
        ),
        thinking_budget=fields.count(
            "thinking_budget", "thinking_token_budget", "reasoning_budget", "budget_tokens"
        ),
        ttft=ttft,
        ttfa=ttfa,
        latency=latency,
        start=start,
        end=end,
        energy=fields.number("energy_j"),
        cost=fields.number("cost_usd"),
        block=fields.name("block", "server_start"),
        fallback=bool(fields.truth("fallback_used", "fallback", "fell_back")),
        failed=bool(fields.plain("error")) or fields.truth("success") is False,
        reference=fields.name("reference", "expected", "target", "gold") or None,
        setup={name: value for name in _SETUP if (value := fields.plain(name)) is not None},
        marks=frozenset(marks),
    )


class _Fields:
    """The fields of one row, wherever its shape keeps them."""

    def __init__(self, row: Mapping[str, Any], where: str) -> None:
        self.where = where
        self.layers: list[Mapping[str, Any]] = []
        self._add(row)

    def _add(self, layer: object) -> None:
        if not isinstance(layer, dict):
            return
        self.layers.append(layer)
        for key in ("message", "response", "body", "usage", "sampling", "chat_template_kwargs"):
            self._add(layer.get(key))
        for key in ("completion_tokens_details", "output_tokens_details", "extra_body"):
            self._add(layer.get(key))
        choices = layer.get("choices")
        if isinstance(choices, list) and choices:
            self._add(choices[0])

    def has(self, *names: str) -> bool:
        return any(name in layer for layer in self.layers for name in names)

    def plain(self, *names: str) -> Any:
        """Return the first value that is not null, in the order of the names."""
        for name in names:
            for layer in self.layers:
                if (value := layer.get(name)) is not None:
                    return value
        return None

    def _refuse(self, names: Sequence[str], value: object, what: str) -> InputError:
        name = next(n for n in names if self.plain(n) is not None)
        return InputError(f"{str(value)[:40]!r} {what}", where=f"{self.where}, field '{name}'")

    def name(self, *names: str) -> str:
        value = self.plain(*names)
        if isinstance(value, dict | list):
            return ""
        return "" if value is None else str(value).strip()

    def count(self, *names: str) -> int | None:
        value = self.plain(*names)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._refuse(names, value, "is not a number of tokens")
        if value < 0 or not math.isfinite(value) or value != int(value):
            raise self._refuse(names, value, "is not a whole number of at least 0")
        return int(value)

    def number(self, *names: str) -> float | None:
        value = self.plain(*names)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._refuse(names, value, "is not a number")
        if value < 0 or not math.isfinite(value):
            raise self._refuse(names, value, "is not a finite number of at least 0")
        return float(value)

    def seconds(self, *stems: str) -> float | None:
        """Return a time whose name says its unit; a bare name is not guessed."""
        for stem in stems:
            if (value := self.number(f"{stem}_s")) is not None:
                return value
            if (value := self.number(f"{stem}_ms")) is not None:
                return value / 1000
        return None

    def truth(self, *names: str) -> bool | None:
        value = self.plain(*names)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int | float) and value in (0, 1):
            return bool(value)
        raise self._refuse(names, value, "is not true or false")


def _arm(fields: _Fields) -> Arm | None:
    said = fields.name("arm", "mode").lower().replace("-", "_").replace(" ", "_")
    if _ON.fullmatch(said):
        return "on"
    if _OFF.fullmatch(said):
        return "off"
    if said and fields.has("arm"):
        raise InputError(
            f"the arm '{said[:40]}' is not known",
            where=f"{fields.where}, field 'arm'",
            fix="write on or off",
        )
    for name in ("enable_thinking", "thinking_configured", "reasoning_enabled", "thinking"):
        asked = fields.plain(name)
        if isinstance(asked, bool):
            return "on" if asked else "off"
    return None


# -- what texts and counts say together ----------------------------------------------------------


def _size(text: str) -> int:
    return len(text.encode())


def _misplaced(texts: Bodies, arm: Arm | None, reported: int | None) -> bool:
    """Say whether the text in the reasoning field is the answer of an arm that does not reason."""
    return (
        arm == "off"
        and not texts.text
        and bool(texts.reasoning)
        and not reported
        and not bodies.deliberates(texts.reasoning)
    )


def _lacks_answer(fields: _Fields, texts: Bodies, answer: str | None) -> bool:
    if answer:
        return False
    graded = fields.has("answer", "extracted_answer", "prediction")
    return graded or (fields.has(*_CONTENT, *_REASONING) and not texts.text)


def _counts(
    fields: _Fields, texts: Bodies, output: int | None, reported: int | None, marks: set[str]
) -> tuple[int | None, int | None]:
    """Return reasoning and answer tokens; None is unknown."""
    reasoning = reported
    if (texts.reasoning or "deliberates" in marks) and not reported:
        if reported == 0:
            marks.add("usage-contradicts-text")
        reasoning = None
    elif reported is None and fields.has(*_CONTENT, *_REASONING) and not texts.reasoning:
        # Without reasoning text there was none, unless tokens were generated that no text shows.
        shown = _size(texts.text) + _MARKUP
        reasoning = 0 if output is None or output <= shown else None
    if reasoning is not None and output is not None and reasoning > output:
        marks.add("impossible-usage")
        return None, None
    of_answer = fields.count("answer_tokens")
    if of_answer is None and reasoning is not None and output is not None:
        of_answer = output - reasoning
    return reasoning, of_answer
