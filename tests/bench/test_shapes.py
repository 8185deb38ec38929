"""Shapes: what wrote a record decides where its fields are, and never what they mean.

The shapes are those of the interfaces' public references: OpenAI chat and responses, Anthropic
messages, Gemini, Ollama, OpenRouter, gpt-oss's harmony format, and the samples of the evaluation
harness.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from assay import cli
from assay.bench import reasoning
from assay.bench.reasoning import transcripts
from assay.bench.reasoning.answers import Answer
from assay.errors import InputError

Row = dict[str, Any]

HARMONY = (
    "<|channel|>analysis<|message|>3 and 4<|end|><|start|>assistant<|channel|>final<|message|>7"
)
DETAIL = [{"type": "reasoning.text", "text": "3 and 4"}]
SEALED = [{"type": "reasoning.encrypted", "data": "gAAA"}]
PIECES = [
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
    {"choices": [{"index": 0, "delta": {"reasoning_content": "3 and"}}]},
    {"choices": [{"index": 0, "delta": {"reasoning_content": " 4"}}]},
    {"choices": [{"index": 0, "delta": {"content": "7"}, "finish_reason": "stop"}]},
    {"choices": [], "usage": {"completion_tokens": 60}},
]
STREAM = "".join(f"data: {json.dumps(piece)}\n\n" for piece in PIECES) + "data: [DONE]\n\n"


def parsed(row: Row, *, arm: Any = "on") -> Answer:
    return transcripts.parse({"question_id": "q", **row}, where="line 1", arm=arm)


@pytest.mark.parametrize(
    "row",
    [
        {"choices": [{"message": {"content": "7", "reasoning_content": "3 and 4"}}]},
        {"choices": [{"message": {"content": "7", "reasoning": "3 and 4"}}]},
        {"choices": [{"message": {"content": "<think>3 and 4</think>7"}}]},
        {"choices": [{"message": {"content": "<thought>3 and 4</thought>7"}}]},
        {"message": {"role": "assistant", "content": "7", "thinking": "3 and 4"}},
        {"message": {"content": "7", "reasoning": "3 and 4", "reasoning_details": DETAIL}},
        {"message": {"content": "7", "reasoning_details": DETAIL}},
        {"messages": [{"role": "user", "content": "3+4?"},
                      {"role": "assistant", "content": "7", "reasoning_content": "3 and 4"}]},
        {"content": [{"type": "thinking", "thinking": "3 and 4", "signature": "s"},
                     {"type": "text", "text": "7"}]},
        {"output": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "3 and 4"}]},
                    {"type": "message", "content": [{"type": "output_text", "text": "7"}]}]},
        {"candidates": [{"content": {"parts": [{"text": "3 and 4", "thought": True},
                                               {"text": "7"}]}}]},
        {"content": HARMONY},
        {"content": HARMONY.removeprefix("<|channel|>") + "<|return|>"},
        {"content": "analysis3 and 4assistantfinal7"},
        {"chunks": PIECES},
        {"response": STREAM},
        {"resps": [["<think>3 and 4</think>7"]]},
        {"reasoning": "", "content": "", "message": {"content": "7", "reasoning": "3 and 4"}},
        {"response": {"body": {"choices": [{"message": {"content": "7",
                                                       "reasoning": "3 and 4"}}]}}},
    ],
)  # fmt: skip
def test_reasoning_and_answer_are_found_in_every_shape(row: Row) -> None:
    found = parsed(row)
    assert (found.reasoning, found.text) == ("3 and 4", "7")
    assert found.reasoned
    assert not found.empty


@pytest.mark.parametrize(
    ("row", "tokens"),
    [
        ({"usage": {"prompt_tokens": 5, "completion_tokens": 60}}, (5, 60, None)),
        ({"usage": None}, (None, None, None)),
        ({"usage": {"completion_tokens": 60, "completion_tokens_details": None}}, (None, 60, None)),
        ({"usage": {"input_tokens": 5, "output_tokens": 60,
                    "output_tokens_details": {"reasoning_tokens": 50}}}, (5, 60, 50)),
        ({"prompt_eval_count": 5, "eval_count": 60}, (5, 60, None)),
        # Beside the output, as the total shows: the output is both.
        ({"usage": {"prompt_tokens": 5, "completion_tokens": 10, "reasoning_tokens": 50,
                    "total_tokens": 65}}, (5, 60, 50)),
        ({"usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 10,
                            "thoughtsTokenCount": 50, "totalTokenCount": 65}}, (5, 60, 50)),
        # Within the output, as the total shows.
        ({"usage": {"prompt_tokens": 5, "completion_tokens": 60, "reasoning_tokens": 50,
                    "total_tokens": 65}}, (5, 60, 50)),
        # More reasoning than output, and no total to explain it: nothing is known.
        ({"usage": {"completion_tokens": 10, "reasoning_tokens": 50}}, (None, None, None)),
        ({"usage": {"completion_tokens": "60"}}, (None, 60, None)),
        ({"usage": [1, 2]}, (None, None, None)),
    ],
)  # fmt: skip
def test_tokens_are_counted_as_each_interface_counts_them(
    row: Row, tokens: tuple[int | None, ...]
) -> None:
    found = parsed({"content": "7", "reasoning": "3 and 4", **row})
    assert (found.prompt_tokens, found.output_tokens, found.reasoning_tokens) == tokens


@pytest.mark.parametrize(
    "row",
    [
        {"content": [{"type": "redacted_thinking", "data": "Emw"}, {"type": "text", "text": "7"}]},
        {"content": [{"type": "thinking", "thinking": "", "signature": "s"},
                     {"type": "text", "text": "7"}]},
        {"output": [{"type": "reasoning", "summary": []},
                    {"type": "message", "content": [{"type": "output_text", "text": "7"}]}]},
        {"message": {"content": "7", "reasoning_details": SEALED}},
    ],
)  # fmt: skip
def test_reasoning_whose_text_is_withheld_is_reasoning_of_unknown_length(row: Row) -> None:
    found = parsed({**row, "usage": {"output_tokens": 12}})
    assert (found.reasoned, found.reasoning_tokens, found.text) == (True, None, "7")


@pytest.mark.parametrize(
    ("row", "finish", "cut"),
    [
        ({"finish_reason": "length"}, "length", True),
        ({"finish_reason": {"type": "length", "length": 64}}, "length", True),
        ({"stop_reason": "max_tokens"}, "max_tokens", True),
        ({"candidates": [{"finishReason": "MAX_TOKENS"}]}, "max_tokens", True),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
         "max_output_tokens", True),
        ({"status": "completed"}, "", False),
        ({"stop_reason": "end_turn"}, "end_turn", False),
        ({"done_reason": "stop"}, "stop", False),
    ],
)  # fmt: skip
def test_an_ending_is_found_under_every_name(row: Row, finish: str, cut: bool) -> None:
    found = parsed({"content": "", **row})
    assert (found.finish, found.truncated) == (finish, cut)


@pytest.mark.parametrize(
    "row",
    [
        {"error": {"message": "overloaded"}},
        {"success": "false"},
        {"response": {"status_code": 500, "body": {}}},
        {"status": 503},
        {"finish_reason": "content_filter"},
        {"finish_reason": "abort"},
    ],
)
def test_what_the_model_did_not_end_has_failed(row: Row) -> None:
    assert parsed(row).failed


@pytest.mark.parametrize(
    ("request_", "arm"),
    [
        ({"chat_template_kwargs": {"enable_thinking": True}}, "on"),
        ({"request": {"chat_template_kwargs": {"enable_thinking": False}}}, "off"),
        ({"extra_body": {"enable_thinking": "false"}}, "off"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "on"),
        ({"thinking": {"type": "disabled"}}, "off"),
        ({"reasoning": {"effort": "high"}, "reasoning_effort": "high"}, "on"),
        ({"reasoning_effort": "none"}, "off"),
        ({"think": False}, "off"),
        ({"thinking_budget": 0}, "off"),
        ({"arm": 1}, "on"),
        ({"arm": "thinking-off"}, "off"),
        ({"arm": "without reasoning"}, "off"),
    ],
)
def test_an_arm_is_known_by_its_label_or_its_request(request_: Row, arm: str) -> None:
    assert parsed(request_, arm=None).arm == arm


def test_a_servers_own_id_is_no_question() -> None:
    for name in ("chatcmpl-1a", "resp_1a", "msg_01", "batch_req_1"):
        with pytest.raises(InputError, match="names no question"):
            transcripts.parse({"id": name, "content": "7"}, where="line 1")
    batch = {"id": "batch_req_1", "custom_id": "q7", "response": {"body": {}}}
    assert transcripts.parse(batch, where="line 1").question == "q7"


def test_the_index_of_a_choice_is_no_question() -> None:
    with pytest.raises(InputError, match="names no question"):
        transcripts.parse({"choices": [{"index": 0, "message": {}}]}, where="line 1")


def test_the_text_of_a_question_names_it_where_nothing_else_does() -> None:
    assert transcripts.parse({"question": " 3+4? "}, where="line 1").question == "3+4?"


@pytest.mark.parametrize(
    "row",
    [
        {"choices": [{"message": {"content": "7"}}, {"message": {"content": "8"}}]},
        {"resps": [["7", "8"]]},
        {"chunks": [{"choices": [{"index": i, "delta": {"content": "7"}}]} for i in range(2)]},
    ],
)
def test_several_answers_in_one_record_are_refused(row: Row) -> None:
    with pytest.raises(InputError, match=r"holds 2 answers.*one record an answer"):
        parsed(row)


@pytest.mark.parametrize(
    ("word", "right"),
    [
        ("true", True),
        ("False", False),
        ("1", True),
        (" no ", False),
        ("Correct", True),
        (1.0, True),
    ],
)
def test_a_grade_may_be_a_word(word: object, right: bool) -> None:
    assert parsed({"correct": word}).correct is right


def test_one_text_as_reasoning_and_as_answer_is_the_answer() -> None:
    found = parsed({"content": "It is 7", "reasoning_content": "It is 7"}, arm="off")
    assert (found.reasoning, found.text) == ("", "It is 7")
    assert "doubled-fields" in found.marks


def test_analysis_is_a_word_too() -> None:
    found = parsed({"content": "analysis of both sums gives 7"})
    assert (found.reasoning, found.text) == ("", "analysis of both sums gives 7")


def test_a_channel_that_never_reached_the_final_one_is_no_answer() -> None:
    for content in ("<|channel|>analysis<|message|>3 and", "analysisWe need 3 and"):
        found = parsed({"content": content, "finish_reason": "length"})
        assert found.empty
        assert found.reasoned


def test_a_call_of_a_tool_is_not_a_wrong_answer() -> None:
    call = {"function": {"name": "add", "arguments": "{}"}}
    found = parsed({"content": None, "tool_calls": [call], "correct": False})
    assert found.censored
    assert "tool-call" in found.marks


def test_a_text_in_which_no_answer_was_found_is_neither_empty_nor_wrong() -> None:
    found = parsed({"content": "I cannot tell.", "answer": None, "correct": False})
    assert not found.empty
    assert found.unparsed
    assert found.censored
    assert not parsed({"content": "3 +", "answer": None, "finish_reason": "length"}).unparsed


def test_without_counts_and_without_a_field_for_it_reasoning_is_unknown() -> None:
    assert parsed({"text": "7"}).reasoned is None
    assert parsed({"text": "7", "reasoning": None}).reasoned is False


def test_a_time_that_was_rounded_is_not_before_an_earlier_one() -> None:
    found = parsed({"ttft_ms": 1234.56, "e2e_s": 1.234})
    assert found.ttft == found.latency == pytest.approx(1.23456)


# -- files ----------------------------------------------------------------------------------------

ROWS = [
    {"id": i, "arm": arm, "content": "Drei und vier", "correct": True}
    for i in range(3)
    for arm in ("on", "off")
]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)


@pytest.mark.parametrize(
    "content",
    [
        LINES.encode(),
        b"\xef\xbb\xbf" + LINES.encode(),
        gzip.compress(LINES.encode()),
        LINES.replace("\n", "\r\n").encode(),
        ("\n\n" + LINES.rstrip()).encode(),
        json.dumps(ROWS).encode(),
        json.dumps(ROWS, indent=2).encode(),
        json.dumps({"records": ROWS}).encode(),
        json.dumps({"model": "m", "samples": ROWS}, indent=2).encode(),
    ],
)
def test_a_file_of_any_form_holds_the_same_records(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.jsonl").write_bytes(content)
    on, off = reasoning.load(tmp_path / "a.jsonl")
    assert ([a.question for a in on], [a.question for a in off]) == (["0", "1", "2"],) * 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (LINES.encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
        (LINES.replace("Drei", "Dréi").encode("latin-1"), "is not UTF-8 text"),
        (LINES.encode()[:-30], "line 6: not JSON.*cut off: remove its last line"),
        (b"data: {}\n\ndata: [DONE]\n", "raw event stream"),
        (b"id,arm\n1,on\n", "line 1: not JSON"),
        (b'[{"id": 1},]', "not JSON"),
        (b"[]", "holds no records"),
        (b"{}", "names no question"),
        (b"7", "is not a JSON object"),
        (b"\n", "is empty"),
        (b"[" * 100_000, "nested too deeply"),
        (LINES.replace("true", "NaN").encode(), "line 1: not JSON: bare NaN"),
        (b'{"id": 1, "arm": "on"}\n<<<<<<< ours\n', "line 2.*merge"),
        (b'{"id": 1, "arm": "on", "reasoning": "a", "reasoning": "b"}', "duplicate key"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_in_one_sentence(
    tmp_path: Path, content: bytes, words: str
) -> None:
    (tmp_path / "a.jsonl").write_bytes(content)
    found = CliRunner().invoke(cli.app, ["reasoning", str(tmp_path / "a.jsonl")])
    assert isinstance(found.exception, InputError)
    assert "\n" not in str(found.exception)
    assert re.search(words, str(found.exception))


def test_nested_parts_end_somewhere() -> None:
    row: Row = {"content": "7"}
    for _ in range(500):
        row = {"message": row}
    assert parsed(row).text is None


# -- pairs ----------------------------------------------------------------------------------------


def pairs(count: int, change: Callable[[int, str], Row]) -> list[Answer]:
    rows = []
    for i in range(count):
        for arm, tokens in (("on", 900 + i), ("off", 40 + i % 7)):
            row = {"id": i, "arm": arm, "completion_tokens": tokens, "correct": True}
            row |= {"reasoning_tokens": 800 if arm == "on" else 0, "finish_reason": "stop"}
            rows.append(row | change(i, arm))
    return [transcripts.parse(row, where="test") for row in rows]


def compared(answers: list[Answer]) -> Row:
    on, off = ([a for a in answers if a.arm == arm] for arm in ("on", "off"))
    return reasoning.compare(on, off)


@pytest.mark.parametrize("share", [0.5, 0.25, 0.06])
@pytest.mark.parametrize(
    "gone",
    [
        {"content": ""},
        {"content": " \n"},
        {"content": None, "reasoning": "Three and"},
        {"content": "<think>Three and"},
        {"content": [{"type": "thinking", "thinking": "Three and"}]},
        {"content": "", "finish_reason": "length"},
        {"content": "", "correct": None},
        {"answer": None},
        {"answer": ""},
    ],
)
def test_a_thinking_budget_that_leaves_answers_empty_gives_bounds(gone: Row, share: float) -> None:
    empty = {"correct": False, "thinking_budget": 800} | gone
    found = compared(pairs(100, lambda i, arm: empty if arm == "on" and i < 100 * share else {}))
    assert found["verdict"] == "censored"
    assert found["accuracy"] is None
    assert found["bounds"]["accuracy_on"] == pytest.approx([1 - share, 1.0])
    assert any(reason.startswith("empty-answers:") for reason in found["reasons"])


def test_a_grader_that_finds_no_answer_gives_bounds() -> None:
    lost = {"content": "about seven", "answer": None, "correct": False}
    found = compared(pairs(100, lambda i, arm: lost if arm == "off" and i < 20 else {}))
    assert found["verdict"] == "censored"
    assert found["reasons"][0].startswith("unparsed-answers: 20 of 100")
    assert found["bounds"]["accuracy_difference"] == pytest.approx([0.0, 0.2])


def test_an_arm_that_asked_for_the_other_mode_is_not_that_arm() -> None:
    asked = {"chat_template_kwargs": {"enable_thinking": False}}
    found = compared(pairs(40, lambda i, arm: asked if arm == "on" else {}))
    assert found["verdict"] == "not-comparable"
    assert found["reasons"][0].startswith("mislabelled: 40 of 40")


def test_two_filters_over_the_same_answers_are_told_from_repeats() -> None:
    rows = [
        {"doc_id": i, "arm": arm, "resps": [["7"]], "filtered_resps": ["7"], "exact_match": 1.0}
        | {"filter": name, "target": "7"}
        for i in range(40)
        for arm in ("on", "off")
        for name in ("strict-match", "flexible-extract")
    ]
    found = compared([transcripts.parse(row, where="test") for row in rows])
    assert "filters flexible-extract and strict-match; keep one" in found["reasons"][0]


def test_a_set_on_which_nothing_is_right_shows_no_cost_of_being_right() -> None:
    found = compared(pairs(400, lambda i, arm: {"correct": False, "cost_usd": 0.1, "e2e_s": 2.0}))
    assert found["verdict"] == "insufficient"
    assert any(reason.startswith("floor:") for reason in found["reasons"])
    assert found["ratios"]["usd_per_correct"] is None
    assert found["ratios"]["correct_per_s"] is None
    assert found["accuracy"]["mcnemar_p"] == 1.0


def test_a_set_on_which_everything_is_right_says_so() -> None:
    found = compared(pairs(400, lambda i, arm: {}))
    assert any(reason.startswith("ceiling:") for reason in found["reasons"])
    assert found["accuracy"]["low"] < 0 < found["accuracy"]["high"]


@pytest.mark.parametrize("count", [1, 2, 29])
def test_few_questions_give_no_verdict_and_no_traceback(count: int) -> None:
    found = compared(pairs(count, lambda i, arm: {"e2e_s": 1.0, "start_s": 0.0, "end_s": 1.0}))
    assert found["verdict"] == "insufficient"
    json.dumps(found, allow_nan=False)


def test_no_record_is_left_out_when_both_files_hold_both_arms(tmp_path: Path) -> None:
    for name in ("on", "off"):
        rows = [{**row, "id": f"{name}-{row['id']}"} for row in ROWS]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / name).write_text(lines, encoding="utf-8")
    on, off = reasoning.load(tmp_path / "on", tmp_path / "off")
    assert (len(on), len(off)) == (6, 6)


def test_two_files_of_one_arm_are_refused(tmp_path: Path) -> None:
    off = {"enable_thinking": False, "content": "7"}
    for name in ("on", "off"):
        (tmp_path / name).write_text(json.dumps({"id": 1} | off), encoding="utf-8")
    with pytest.raises(InputError, match="both files hold records of the off arm only"):
        reasoning.load(tmp_path / "on", tmp_path / "off")
