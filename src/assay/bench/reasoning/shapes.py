"""Shapes: one row of somebody's answers, whatever wrote it.

Owns where a value is kept: flat in the row, in an OpenAI-compatible or Ollama response, in the
blocks of a messages or responses interface, in a list of streamed chunks, or in a row of the
evaluation harness; and that a value is of its kind. Does not own what values mean together
(``answers``) or how texts are split (``bodies``).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from assay.errors import InputError

__all__ = ["CONTENT", "REASONING", "Row"]

CONTENT = ("content", "text", "output", "completion", "response", "generated_text", "resps")
REASONING = ("reasoning", "reasoning_content", "thinking", "reasoning_text", "reasoning_details")
# Parts of a row that hold fields of their own, what came back before what was asked.
_NESTED = (
    *("message", "response", "body", "usage", "usageMetadata", "meta_info", "sampling"),
    *("completion_tokens_details", "output_tokens_details", "incomplete_details"),
    *("extra_body", "chat_template_kwargs", "request", "sampling_params", "params"),
)
_STREAMED = ("chunks", "events", "stream")
# A harness or a person names questions anywhere; a bare id or index only at the top is one.
_QUESTION = ("question_id", "task_id", "doc_id", "custom_id")
_PLACE = ("id", "index", "idx", "call")
_ASKED = ("question", "problem", "prompt")
# What servers call their answers, which says nothing about the question.
_SERVER_ID = re.compile(r"(chatcmpl|cmpl|resp|msg|gen|batch_req)[-_]")
_TRUE = frozenset({"true", "yes", "1", "1.0", "correct", "right", "pass", "passed", "c"})
_FALSE = frozenset({"false", "no", "0", "0.0", "incorrect", "wrong", "fail", "failed", "i"})
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")
_MOST = 10**9  # no answer has more tokens
_DEEPEST = 12  # no shape nests its parts deeper


class Row:
    """The fields of one row, wherever its shape keeps them.

    Parameters
    ----------
    row : mapping
        A parsed JSON object.
    where : str
        File and line, for messages.

    Raises
    ------
    InputError
        When the row holds several answers.

    Examples
    --------
    >>> row = Row({"response": {"usage": {"completion_tokens": 9}}}, "line 1")
    >>> row.count("completion_tokens")
    9
    """

    def __init__(self, row: Mapping[str, Any], where: str) -> None:
        self.where = where
        self.top = row
        self.layers: list[Mapping[str, Any]] = []
        self._add(row, 0)

    def _add(self, layer: object, depth: int) -> None:
        if not isinstance(layer, dict) or depth > _DEEPEST:
            return
        self.layers.append(layer)
        inside: list[object] = [_joined(layer.get(key)) for key in _STREAMED]
        if isinstance(answer := layer.get("response"), str) and answer.startswith("data:"):
            inside.append(_joined(_events(answer)))
        inside += [layer.get(key) for key in _NESTED]
        inside += [self._only(layer.get(key), key) for key in ("choices", "candidates")]
        messages = layer.get("messages")
        if isinstance(messages, list) and messages and isinstance(messages[-1], dict):
            inside += [messages[-1]] if messages[-1].get("role") == "assistant" else []
        for part in inside:
            self._add(part, depth + 1)

    def _only(self, answers: object, what: str) -> object:
        """Return the one answer of a list; several share their token counts, so none has its own.

        A list of one for every sample, as the harness writes them, is opened as well.
        """
        while isinstance(answers, list):
            if len(answers) > 1:
                raise InputError(
                    f"holds {len(answers)} answers under '{what}'",
                    where=self.where,
                    fix="write one record an answer, with its own counts and a field 'repeat'",
                )
            answers = answers[0] if answers else None
        return answers

    def has(self, *names: str) -> bool:
        """Say whether any layer has one of the fields, be it null."""
        return any(name in layer for layer in self.layers for name in names)

    def told(self, *names: str) -> bool:
        """Say whether any layer has one of the fields as a text, typed parts or nothing."""
        values = [layer[name] for layer in self.layers for name in names if name in layer]
        return any(v is None or isinstance(v, str | list) or _typed(v) for v in values)

    def plain(self, *names: str) -> Any:
        """Return the first value that is not null, in the order of the names."""
        for name in names:
            for layer in self.layers:
                if (value := layer.get(name)) is not None:
                    return value
        return None

    def bodies(self, *names: str) -> list[object]:
        """Return the texts or typed parts of each field that has one, in the order of the names."""
        found: list[object] = []
        for name in names:
            values = [layer.get(name) for layer in self.layers]
            if name == "resps":
                values = [self._only(value, name) for value in values]
            # A string beside its own events is their raw text.
            kept: list[object] = []
            kept += [v for v in values if isinstance(v, str) and not v.startswith("data:")]
            kept += [v for v in values if isinstance(v, list)]
            kept += [v for v in values if _typed(v)]
            full = [v for v in kept if not isinstance(v, str) or v.strip()]
            found += full[:1]
        return found

    def question(self) -> str:
        """Return what identifies the question; empty when nothing does."""
        named = self.name(*_QUESTION)
        if named:
            return named
        for name in _PLACE:
            value = self.top.get(name)
            if isinstance(value, str | int | float) and not _SERVER_ID.match(f"{value}"):
                return f"{value}".strip()
        texts = (self.top.get(name) for name in _ASKED)
        return next((text.strip() for text in texts if isinstance(text, str)), "")

    def _refuse(self, names: Sequence[str], value: object, what: str) -> InputError:
        name = next(n for n in names if self.plain(n) is not None)
        return InputError(f"{str(value)[:40]!r} {what}", where=f"{self.where}, field '{name}'")

    def name(self, *names: str) -> str:
        """Return a word; empty when there is none."""
        value = self.plain(*names)
        while isinstance(value, list) and len(value) == 1:
            value = value[0]
        return "" if value is None or isinstance(value, dict | list) else str(value).strip()

    def count(self, *names: str) -> int | None:
        """Return a number of tokens."""
        value = _number(self.plain(*names))
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._refuse(names, value, "is not a number of tokens")
        if value < 0 or not math.isfinite(value) or value != int(value):
            raise self._refuse(names, value, "is not a whole number of at least 0")
        if value > _MOST:
            raise self._refuse(names, value, "is more tokens than any answer has")
        return int(value)

    def number(self, *names: str) -> float | None:
        """Return a number of at least 0."""
        value = _number(self.plain(*names))
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
        """Return a yes or no, also where it is written as a word or as 1 and 0."""
        value = self.plain(*names)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int | float) and value in (0, 1):
            return bool(value)
        said = value.strip().lower() if isinstance(value, str) else None
        if said in _TRUE or said in _FALSE:
            return said in _TRUE
        raise self._refuse(names, value, "is not true or false")


def _typed(value: object) -> bool:
    return isinstance(value, dict) and ("parts" in value or "type" in value)


def _number(value: Any) -> Any:
    """Return a number that was written as text as a number."""
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return float(value) if set(value) & set(".eE") else int(value)
    return value


def _events(text: str) -> list[object]:
    """Return the events of a recorded stream; what does not parse is left out."""
    found: list[object] = []
    for line in text.splitlines():
        data = line.removeprefix("data:").strip()
        if line.startswith("data:") and data.startswith("{"):
            try:
                found.append(json.loads(data))
            except ValueError:
                continue
    return found


def _joined(chunks: object) -> dict[str, Any] | None:
    """Put the pieces of a streamed answer together, by the name each came under."""
    events = [c for c in chunks if isinstance(c, dict)] if isinstance(chunks, list) else []
    found: dict[str, Any] = {}
    answers: dict[object, dict[str, Any]] = {}
    for event in events:
        if isinstance(usage := event.get("usage"), dict):
            found["usage"] = usage
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict):
                continue
            answer = answers.setdefault(f"{choice.get('index', 0)}", {})
            answer["finish_reason"] = choice.get("finish_reason") or answer.get("finish_reason")
            delta = choice.get("delta")
            for name, piece in delta.items() if isinstance(delta, dict) else ():
                if name in (*CONTENT, *REASONING) and isinstance(piece, str):
                    answer[name] = answer.get(name, "") + piece
    if answers:
        found["choices"] = list(answers.values())
    return found or None
