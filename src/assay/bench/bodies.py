"""Bodies: the texts of one answer, sorted into reasoning and answer.

Owns reasoning tags, doubled fields, and how a deliberation begins. Does not own token counts or
what a field is called (``answers``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Bodies", "deliberates", "sort"]

# How templates mark reasoning inside the answer's text: Qwen and DeepSeek; Anthropic-style;
# Magistral; Kimi; Seed-OSS.
_TAGS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<seed:think>", "</seed:think>"),
)
# How a model begins to deliberate, as against a worked solution, which is an answer.
_DELIBERATION = re.compile(
    r"""\s*(?:
      (?:ok|okay|alright|all\s+right|hmm+|well|so|wait|first)\b[\s,.:!…-]*
        (?:let\s+me|let['’]s|i\s+(?:need|should|have|must)|the\s+(?:user|question|problem)|we\s+need|so\b)
      | let\s+me\s+(?:think|see|recall|figure)
      | let['’]s\s+think
      | the\s+user\s+(?:wants|asks|asked|is\s+asking|needs)
      | we\s+(?:need\s+to|are\s+asked)
      | i\s+need\s+to\s+(?:figure|find|work|think|solve|determine)
      | hmm+\b
      | 嗯 | (?:好的?[，,])?\s*(?:让我|我(?:需要|得|应该)|用户)
    )""",
    re.IGNORECASE | re.VERBOSE,
)


@dataclass(frozen=True)
class Bodies:
    """The texts of one answer.

    Parameters
    ----------
    reasoning, text : str
        What was thought and what was answered; empty where there is none.
    """

    reasoning: str
    text: str


def deliberates(text: str) -> bool:
    """Say whether a text begins as a deliberation rather than as an answer.

    Examples
    --------
    >>> deliberates("Okay, let me see. The user wants"), deliberates("The answer is 7")
    (True, False)
    """
    return _DELIBERATION.match(text) is not None


def sort(content: object, told: list[str]) -> tuple[Bodies, set[str]]:
    """Sort an answer's texts into reasoning and answer.

    Parameters
    ----------
    content : object
        The answer's field: a string, typed parts, or nothing.
    told : list of str
        The texts of every field meant for reasoning.

    Returns
    -------
    tuple of (Bodies, set of str)
        The texts, and the rules that say what was odd about them.

    Examples
    --------
    >>> sort("<think>3 + 4</think>7", [])
    (Bodies(reasoning='3 + 4', text='7'), {'inline-tags'})
    >>> sort("7", ["3 + 4", "3 + 4"])
    (Bodies(reasoning='3 + 4', text='7'), {'doubled-fields'})
    """
    marks: set[str] = set()
    thoughts: list[str] = []
    raw: list[str] = []
    _collect(content, raw, thoughts)
    told = [text.strip() for text in told if text.strip()]
    if len(told) > 1:
        marks.add("doubled-fields" if len(set(told)) == 1 else "fields-differ")
    thoughts += list(dict.fromkeys(told))
    inside, text = _untagged("".join(raw), marks)
    kept = []
    for thought in thoughts:
        # A parser that missed the end tag leaves the answer behind it.
        deeper, rest = _untagged(thought, marks)
        kept.append(deeper or rest)
        if deeper and rest and not text:
            text = rest
            marks.add("answer-misplaced")
    reasoning = "\n".join(dict.fromkeys(t for t in (*kept, inside) if t))
    return Bodies(reasoning, text), marks


def _collect(content: object, raw: list[str], thoughts: list[str]) -> None:
    """Gather the texts of a string or of typed parts, one inside another."""
    if isinstance(content, str):
        raw.append(content)
    elif isinstance(content, list):
        for part in content:
            _collect(part, raw, thoughts)
    elif isinstance(content, dict):
        reasons = content.get("type") in ("thinking", "reasoning")
        for key in ("text", "content", "thinking", "summary"):
            _collect(content.get(key), thoughts if reasons else raw, thoughts)


def _untagged(text: str, marks: set[str]) -> tuple[str, str]:
    """Split text at reasoning tags into what is inside and what is outside of them."""
    inside: list[str] = []
    for start, end in _TAGS:
        if end in text and start not in text.split(end)[0]:
            text = start + text  # the template itself wrote the opening tag
        while start in text:
            before, _, after = text.partition(start)
            thought, closed, rest = after.partition(end)
            marks.add("inline-tags" if thought.strip() else "empty-tags")
            if not closed:
                marks.add("unclosed-tag")
            inside.append(thought.strip())
            text = before + rest
    return "\n".join(t for t in inside if t), text.strip()
