"""Bodies: the texts of one answer, sorted into reasoning and answer.

Owns reasoning tags and channels, typed parts, doubled fields, and how a deliberation begins. Does
not own token counts (``answers``) or what a field is called (``shapes``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Bodies", "deliberates", "sort"]

# How templates mark reasoning inside the answer's text: Qwen and DeepSeek; Anthropic-style;
# EXAONE; Reflection-style; Magistral; Kimi; Seed-OSS; OpenThoughts; Command A.
_TAGS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<seed:think>", "</seed:think>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)
# The channels of gpt-oss: whole, and as they look where a server dropped the special tokens.
_CHANNEL = re.compile(
    r"(?:<\|channel\|>)?\b(analysis|commentary|final)\b[^<]*(?:<\|constrain\|>\w+)?<\|message\|>"
    r"(.*?)(?=<\|(?:end|return|call|start|channel)\|>|\Z)",
    re.DOTALL,
)
_BARE_CHANNEL = re.compile(
    r"\s*analysis(?:(?P<whole>.*?)assistant\s*final(?P<final>.*)|(?=[A-Z])(?P<cut>.*))", re.DOTALL
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


def sort(content: object, told: Sequence[object]) -> tuple[Bodies, set[str]]:
    """Sort an answer's texts into reasoning and answer.

    Parameters
    ----------
    content : object
        The answer's field: a string, typed parts, or nothing.
    told : sequence of object
        Every field meant for reasoning, of the same kinds.

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
    _collect(content, raw, thoughts, marks)
    named = [_joined(field, marks) for field in told]
    named = [thought.strip() for thought in named if thought.strip()]
    if len(named) > 1:
        marks.add("doubled-fields" if len(set(named)) == 1 else "fields-differ")
    thoughts += list(dict.fromkeys(named))
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
    if reasoning and reasoning == text:
        marks.add("doubled-fields")
        reasoning = ""  # the answer, given as reasoning too
    return Bodies(reasoning, text), marks


def _joined(field: object, marks: set[str]) -> str:
    """Return the text of one field meant for reasoning."""
    thoughts: list[str] = []
    _collect(field, thoughts, thoughts, marks)
    return "".join(thoughts)


def _collect(content: object, raw: list[str], thoughts: list[str], marks: set[str]) -> None:
    """Gather the texts of a string or of typed parts, one inside another."""
    if isinstance(content, str):
        raw.append(content)
    elif isinstance(content, list):
        for part in content:
            _collect(part, raw, thoughts, marks)
    elif isinstance(content, dict):
        kind = f"{content.get('type', '')}"
        reasons = "thinking" in kind or "reasoning" in kind or content.get("thought") is True
        found: list[str] = []
        for key in ("text", "content", "thinking", "summary", "parts"):
            _collect(content.get(key), found if reasons else raw, thoughts, marks)
        thoughts += found
        sealed = any(content.get(key) for key in ("data", "signature", "encrypted_content"))
        if reasons and not "".join(found).strip() and (sealed or kind == "reasoning"):
            marks.add("hidden-reasoning")


def _untagged(text: str, marks: set[str]) -> tuple[str, str]:
    """Split text at reasoning tags into what is inside and what is outside of them."""
    inside: list[str] = []
    text = _unchannelled(text, inside, marks)
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


def _unchannelled(text: str, inside: list[str], marks: set[str]) -> str:
    """Take the analysis channel out of a text and return the final one."""
    if parts := _CHANNEL.findall(text):
        thoughts = [said.strip() for channel, said in parts if channel == "analysis"]
        finals = [said for channel, said in parts if channel == "final"]
        closed = bool(finals)
        # A call of a tool is said in the third channel.
        text = "".join(finals or [said for channel, said in parts if channel == "commentary"])
    elif bare := _BARE_CHANNEL.fullmatch(text):
        closed = bare["final"] is not None
        thoughts = [(bare["whole"] if closed else bare["cut"]).strip()]
        text = bare["final"] or ""
    else:
        return text
    inside += thoughts
    if any(thoughts):
        marks.add("inline-tags" if closed else "unclosed-tag")
    return text
