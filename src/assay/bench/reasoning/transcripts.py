"""Transcripts: files of answers, each row read as one record.

Owns what a row says: its arm, which text is reasoning and which is the answer, which token counts
are known, how it ended and whether it was right. Does not own where a row keeps its fields
(``shapes``), the forms of files (``sheets``), or the record (``answers``).

Two rules of the texts: what stands in the reasoning field of an answer that has no other text and
was asked not to reason *is* the answer; and the same text under two names is one text.
"""

from __future__ import annotations

import re
from pathlib import Path

from assay.bench.reasoning import bodies, sheets
from assay.bench.reasoning.answers import MARKUP, Answer, Arm, size
from assay.bench.reasoning.bodies import Bodies
from assay.bench.reasoning.shapes import CONTENT, REASONING, Row
from assay.errors import InputError
from assay.ledger import store

__all__ = ["parse", "read"]

_MODE = r"(think(ing)?|reasoning|cot)"
_ON = re.compile(rf"on|true|1|yes|enabled?|((with|enabled?)_?)?{_MODE}(_?(on|true|enabled?|1))?")
_OFF = re.compile(
    rf"off|false|0|no|disabled?|direct|none|(no|non|not|without|disabled?)_?{_MODE}"
    rf"|{_MODE}_?(off|false|disabled?|0)"
)
# Endings that are not the model's.
_BROKEN = frozenset(
    {"error", "abort", "aborted", "cancelled", "timeout", "content_filter", "safety", "recitation"}
)
_SETUP = (
    *("model", "engine", "temperature", "top_p", "top_k", "min_p", "filter"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty", "concurrency"),
)
_ANSWER = ("answer", "extracted_answer", "prediction", "filtered_resps")
_GRADE = ("correct", "is_correct", "exact_match", "passed", "acc")
_REPEAT = ("repeat", "sample", "attempt", "trial", "block")
_BUDGET = (
    *("max_tokens", "max_completion_tokens", "max_new_tokens", "max_output_tokens"),
    *("max_gen_toks", "num_predict", "maxOutputTokens"),
)
_THINKING_BUDGET = (
    *("thinking_budget", "thinking_token_budget", "reasoning_budget", "budget_tokens"),
    *("thinkingBudget", "max_thinking_tokens"),
)
# Clocks are read in pieces and rounded: that much earlier is no contradiction [1], [s].
_ROUNDING, _TICK = 0.01, 0.002


def read(file: Path, *, arm: Arm | None = None) -> list[Answer]:
    """Read the records of a file.

    Parameters
    ----------
    file : Path
        In any of the forms of ``sheets``.
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
    found = [parse(row, where=at, arm=arm) for at, row in sheets.rows(file)]
    if not found:
        raise InputError(
            "holds no records", where=store.shown(file), fix="give JSON lines, one a question"
        )
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
        When the row is no object, names no question, holds several answers, or a value is not of
        its kind.

    Examples
    --------
    >>> found = parse({"id": 1, "arm": "off", "content": "<think></think>7"}, where="line 1")
    >>> found.text, found.reasoning_tokens
    ('7', 0)
    """
    if not isinstance(row, dict):
        raise InputError("is not a JSON object", where=where, fix="write one object a line")
    fields = Row(row, where)
    question = fields.question()
    if not question:
        raise InputError("names no question", where=where, fix="add the field 'question_id'")
    said, asked = _labelled(fields), _requested(fields)
    own = said or asked or arm
    finish = _finish(fields)
    first = (fields.bodies(*CONTENT) or [None])[0]
    texts, marks = bodies.sort(first, fields.bodies(*REASONING))
    if None not in (said, asked) and said != asked:
        marks.add("mislabelled")
    reported = fields.count("reasoning_tokens", "thinking_tokens", "thoughtsTokenCount")
    output = _output(fields, reported, marks)
    if _misplaced(texts, own, reported, finish):
        texts, reported = Bodies("", texts.reasoning), None if reported else reported
        marks.add("answer-misplaced")
    answer = fields.name(*_ANSWER) or None
    correct = fields.truth(*_GRADE)
    if fields.plain("tool_calls", "function_call"):
        marks.add("tool-call")
    if _lacks_answer(fields, texts, answer):
        marks.add("no-answer")
    elif answer is None and fields.has(*_ANSWER) and texts.text and not correct:
        marks.add("unparsed-answer")
    if bodies.deliberates(texts.text):
        marks.add("deliberates")
    if output == 0 and (texts.text or texts.reasoning):
        output = None
        marks.add("usage-contradicts-text")
    reasoning, of_answer = _counts(fields, texts, output, reported, marks)
    limit = fields.count(*_THINKING_BUDGET)
    if limit and reasoning is not None and reasoning >= limit:
        marks.add("budget-used")
    given = fields.told(*CONTENT, *REASONING)
    return Answer(
        question=question,
        repeat=fields.name(*_REPEAT),
        arm=own,
        prompt_tokens=_prompt(fields),
        output_tokens=output,
        reasoning_tokens=reasoning,
        answer_tokens=of_answer,
        reasoning_body_tokens=fields.count("reasoning_body_tokens"),
        answer_body_tokens=fields.count("answer_body_tokens"),
        reasoning=texts.reasoning if given else None,
        text=texts.text if given else None,
        answer=answer,
        correct=correct,
        finish=finish,
        budget=fields.count(*_BUDGET),
        thinking_budget=limit,
        **_times(fields),
        energy=fields.number("energy_j"),
        cost=fields.number("cost_usd"),
        block=fields.name("block", "server_start"),
        fallback=bool(fields.truth("fallback_used", "fallback", "fell_back")),
        failed=_failed(fields, finish),
        reference=fields.name("reference", "expected", "target", "gold") or None,
        setup={name: value for name in _SETUP if (value := fields.plain(name)) is not None},
        marks=frozenset(marks),
    )


def _labelled(fields: Row) -> Arm | None:
    """Return the arm a record says it is of."""
    said = fields.name("arm", "mode").lower().replace("-", "_").replace(" ", "_")
    if _ON.fullmatch(said):
        return "on"
    if _OFF.fullmatch(said):
        return "off"
    if said and fields.plain("arm") is not None:
        raise InputError(
            f"the arm '{said[:40]}' is not known",
            where=f"{fields.where}, field 'arm'",
            fix="write on or off",
        )
    return None


def _requested(fields: Row) -> Arm | None:
    """Return the arm that the request, as it is echoed, asks for."""
    for name in ("enable_thinking", "thinking_configured", "reasoning_enabled", "think"):
        asked = f"{fields.plain(name)}".lower()
        if asked in ("true", "false"):
            return "on" if asked == "true" else "off"
    for name in ("thinking", "reasoning"):
        setting = fields.plain(name)
        if isinstance(setting, dict):
            setting = setting.get("type", setting.get("enabled", setting.get("effort")))
        if setting in (True, "enabled", "adaptive"):
            return "on"
        if setting in (False, "disabled"):
            return "off"
    effort = fields.name("reasoning_effort", "effort").lower()
    if effort == "none" or fields.plain(*_THINKING_BUDGET) == 0:
        return "off"
    return "on" if effort in ("low", "medium", "high", "xhigh", "max") else None


def _finish(fields: Row) -> str:
    """Return how an answer ended, in lower case."""
    said = fields.plain("finish_reason", "stop_reason", "done_reason", "finishReason")
    if isinstance(said, dict):
        said = said.get("type")
    if isinstance(said, str) and said:
        return said.strip().lower()
    if fields.plain("status") == "incomplete":
        why = fields.plain("incomplete_details")
        return f"{why.get('reason') or 'incomplete'}".lower() if isinstance(why, dict) else "length"
    return ""


def _failed(fields: Row, finish: str) -> bool:
    codes = [fields.plain(name) for name in ("status_code", "status")]
    return (
        any(isinstance(code, int) and code >= 400 for code in codes)
        or finish in _BROKEN
        or bool(fields.plain("error"))
        or fields.truth("success") is False
    )


def _times(fields: Row) -> dict[str, float | None]:
    found = {
        "ttft": fields.seconds("ttft", "time_to_first_token"),
        "ttfa": fields.seconds("ttfa", "time_to_first_answer_token"),
        "latency": fields.seconds("e2e", "e2el", "latency", "end_to_end", "duration"),
        "start": fields.seconds("start", "start_time"),
        "end": fields.seconds("end", "end_time"),
    }
    for first, then in (
        ("ttft", "ttfa"),
        ("ttft", "latency"),
        ("ttfa", "latency"),
        ("start", "end"),
    ):
        earlier, later = found[first], found[then]
        if earlier is None or later is None or earlier <= later:
            continue
        if earlier > later * (1 + _ROUNDING) + _TICK:
            raise InputError(
                f"a later time ({later:.6g} s) is before an earlier one ({earlier:.6g} s)",
                where=fields.where,
                fix="check the clock and the units of the time fields",
            )
        found[then] = earlier
    return found


# -- what texts and counts say together ----------------------------------------------------------


def _prompt(fields: Row) -> int | None:
    return fields.count("prompt_tokens", "input_tokens", "prompt_eval_count", "promptTokenCount")


def _output(fields: Row, reported: int | None, marks: set[str]) -> int | None:
    """Return everything that was generated; some servers count reasoning beside it."""
    output = fields.count(
        "completion_tokens", "output_tokens", "eval_count", "candidatesTokenCount"
    )
    total = fields.count("total_tokens", "totalTokenCount")
    if output is None or not reported:
        return output
    if total is not None and total == (_prompt(fields) or 0) + output + reported:
        marks.add("usage-splits-output")
        return output + reported
    if reported > output:
        marks.add("impossible-usage")
        return None
    return output


def _misplaced(texts: Bodies, arm: Arm | None, reported: int | None, finish: str) -> bool:
    """Say whether the text in the reasoning field is the answer of an arm that does not reason."""
    return (
        arm == "off"
        and not texts.text
        and bool(texts.reasoning)
        # A server that takes the answer for reasoning counts it so as well; one that was cut may
        # have been reasoning indeed.
        and (not reported or finish in ("stop", "end_turn"))
        and not bodies.deliberates(texts.reasoning)
    )


def _lacks_answer(fields: Row, texts: Bodies, answer: str | None) -> bool:
    """Say whether there is no answer: no text of one, or where no text was kept, none extracted."""
    if answer:
        return False
    if fields.told(*CONTENT, *REASONING):
        return not texts.text
    return fields.has(*_ANSWER)


def _counts(
    fields: Row, texts: Bodies, output: int | None, reported: int | None, marks: set[str]
) -> tuple[int | None, int | None]:
    """Return reasoning and answer tokens; None is unknown."""
    of_answer = fields.count("answer_tokens")
    if "impossible-usage" in marks:
        return None, None
    reasoning = reported
    reasoned = texts.reasoning or {"deliberates", "hidden-reasoning"} & marks
    if reasoned and not reported:
        if reported == 0:
            marks.add("usage-contradicts-text")
        reasoning = None
    elif reported is None and fields.told(*CONTENT, *REASONING):
        # Without reasoning text there was none, unless tokens were generated that no text shows,
        # or nothing was counted and no field for reasoning was kept.
        kept = fields.told(*REASONING) or {"empty-tags", "answer-misplaced"} & marks
        shown = size(texts.text) + MARKUP
        if "tool-call" not in marks and (kept if output is None else output <= shown):
            reasoning = 0
    if reasoning is None and of_answer is not None and output is not None and of_answer <= output:
        reasoning = output - of_answer
    if of_answer is None and reasoning is not None and output is not None:
        of_answer = output - reasoning
    return reasoning, of_answer
