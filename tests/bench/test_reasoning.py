"""Reasoning on against off: what records say, when there is no verdict, and planted effects.

The first shapes are those reported in public threads (vLLM 17609 and 29408, Qwen3 1297, LiteLLM
41849, benchlocal-cli 103), made again with other numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats
from typer.testing import CliRunner

from assay import cli
from assay.bench import reasoning
from assay.bench.reasoning import arms, contrast, expense
from assay.bench.reasoning import transcripts as records
from assay.bench.reasoning.answers import Answer
from assay.errors import InputError

Row = dict[str, Any]


def row(number: int, arm: str = "off", **changes: Any) -> Row:
    """Return a sound record of either arm."""
    on = arm == "on"
    return {
        "id": number,
        "arm": arm,
        "completion_tokens": 900 if on else 40,
        "reasoning_tokens": 800 if on else 0,
        "finish_reason": "stop",
        "content": "The sum of both numbers is therefore 7.",
        "reasoning": "Three and four. " * 250 if on else "",
        "answer": "7",
        "correct": True,
        "max_tokens": 4096,
    } | changes


def parsed(*rows: Row) -> list[Answer]:
    return [records.parse(r, where="test") for r in rows]


def compared(rows: list[Row], **settings: Any) -> Row:
    found = parsed(*rows)
    on, off = ([a for a in found if a.arm == arm] for arm in ("on", "off"))
    return reasoning.compare(on, off, **settings)


def rules(answer: Row, severity: str = "error") -> set[str]:
    return {p["rule"] for p in answer["problems"] if p["severity"] == severity}


def both(count: int = 40, *, on: Row | None = None, off: Row | None = None) -> list[Row]:
    return [row(i, "on", **(on or {})) for i in range(count)] + [
        row(i, "off", **(off or {})) for i in range(count)
    ]


# -- one record -----------------------------------------------------------------------------------


def test_text_in_the_reasoning_field_with_the_flag_off_is_the_answer() -> None:
    [found] = parsed(row(1, content=None, reasoning="It is 7", completion_tokens=50))
    assert (found.text, found.reasoning, found.reasoning_tokens) == ("It is 7", "", 0)
    assert found.answer_tokens == 50
    assert not found.empty


def test_the_same_text_under_two_names_counts_once() -> None:
    message = {"reasoning": "one step", "reasoning_content": "one step", "content": "7"}
    [found] = parsed({"id": 1, "arm": "on", "completion_tokens": 90, "message": message})
    assert found.reasoning == "one step"
    assert found.reasoning_tokens is None
    assert found.marks == {"doubled-fields"}


def test_two_different_reasoning_texts_are_both_kept_and_told() -> None:
    [found] = parsed(row(1, "on", reasoning="one", reasoning_content="two"))
    assert found.reasoning == "one\ntwo"
    assert "fields-differ" in found.marks


@pytest.mark.parametrize("tags", [("<think>", "</think>"), ("[THINK]", "[/THINK]")])
def test_empty_tags_are_no_reasoning(tags: tuple[str, str]) -> None:
    content = f"{tags[0]}\n\n{tags[1]}\n\n7"
    [found] = parsed(row(1, content=content, reasoning_tokens=None, completion_tokens=12))
    assert (found.text, found.reasoning_tokens, found.reasoned) == ("7", 0, False)


@pytest.mark.parametrize(
    "content", ["<think>3 and 4</think>7", "3 and 4</think>7", "<think> 3 and 4 </think>\n7"]
)
def test_reasoning_between_tags_is_taken_out_of_the_answer(content: str) -> None:
    [found] = parsed(row(1, "on", content=content, reasoning="", reasoning_tokens=None))
    assert (found.text, found.reasoning) == ("7", "3 and 4")
    assert found.reasoning_tokens is None


def test_a_tag_that_never_closes_leaves_no_answer() -> None:
    [found] = parsed(row(1, "on", content="<think>3 and", reasoning="", answer=None, correct=False))
    assert found.empty
    assert "unclosed-tag" in found.marks


def test_an_answer_behind_the_end_tag_in_the_reasoning_field_is_found() -> None:
    [found] = parsed(row(1, "on", content=None, reasoning="3 and 4</think>7"))
    assert (found.reasoning, found.text) == ("3 and 4", "7")


def test_zero_tokens_beside_a_text_are_unknown() -> None:
    [found] = parsed(row(1, "on", reasoning_tokens=0))
    assert found.reasoning_tokens is None
    assert found.answer_tokens is None
    assert "usage-contradicts-text" in found.marks


def test_tokens_that_usage_omits_are_unknown_not_zero() -> None:
    [seen] = parsed(row(1, "on", reasoning_tokens=None))
    [hidden] = parsed(row(1, "on", reasoning_tokens=None, reasoning="", completion_tokens=900))
    assert (seen.reasoning_tokens, hidden.reasoning_tokens) == (None, None)


def test_more_reasoning_than_output_is_unknown() -> None:
    [found] = parsed(row(1, "on", reasoning_tokens=1000, completion_tokens=900))
    assert (found.reasoning_tokens, found.answer_tokens) == (None, None)
    assert "impossible-usage" in found.marks


def test_tokens_of_both_channels_add_up() -> None:
    [found] = parsed(row(1, "on"))
    assert (found.reasoning_tokens, found.answer_tokens) == (800, 100)


def test_a_servers_response_is_read_like_a_flat_record() -> None:
    response = {
        "choices": [{"finish_reason": "length", "message": {"content": "7", "reasoning": "3+4"}}],
        "usage": {
            "prompt_tokens": 12,
            "completion_tokens": 90,
            "completion_tokens_details": {"reasoning_tokens": 80},
        },
    }
    [found] = parsed({"question_id": "q", "enable_thinking": True, "response": response})
    assert (found.question, found.arm, found.finish) == ("q", "on", "length")
    assert (found.prompt_tokens, found.reasoning_tokens, found.answer_tokens) == (12, 80, 10)


def test_typed_parts_are_sorted_by_their_type() -> None:
    parts = [{"type": "thinking", "thinking": "3+4"}, {"type": "text", "text": "7"}]
    [found] = parsed(row(1, "on", content=parts, reasoning=None))
    assert (found.reasoning, found.text) == ("3+4", "7")


@pytest.mark.parametrize(
    ("label", "arm"),
    [("ON", "on"), ("thinking", "on"), (True, "on"), ("no-think", "off"), ("direct", "off")],
)
def test_an_arm_has_many_names(label: object, arm: str) -> None:
    [found] = parsed(row(1) | {"arm": label})
    assert found.arm == arm


@pytest.mark.parametrize("name", ["e2e_s", "latency_s", "e2e_ms"])
def test_a_time_is_read_in_the_unit_of_its_name(name: str) -> None:
    [found] = parsed(row(1, **{name: 2000 if name.endswith("ms") else 2}))
    assert found.latency == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"completion_tokens": -1}, "field 'completion_tokens'.*at least 0"),
        ({"completion_tokens": "many"}, "is not a number of tokens"),
        ({"completion_tokens": 1.5}, "whole number"),
        ({"correct": "maybe"}, "true or false"),
        ({"correct": 0.5}, "true or false"),
        ({"arm": "sideways"}, "the arm 'sideways' is not known"),
        ({"ttft_s": 3.0, "e2e_s": 2.0}, "before an earlier one"),
        ({"id": None}, "names no question"),
    ],
)
def test_a_bad_value_is_named_with_its_place(changes: Row, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parsed(row(1, **changes))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5000) | st.floats() | st.text(max_size=30),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*row(1, "on"), "message", "usage", "choices"]), JSON))
def test_any_row_is_read_or_refused_in_one_sentence(changes: Row) -> None:
    try:
        found = compared([row(1) | changes, row(1, "on")])
    except InputError as error:
        assert "\n" not in str(error)
    else:
        json.dumps(found, allow_nan=False)


# -- files ----------------------------------------------------------------------------------------


def write(file: Path, rows: list[Row]) -> Path:
    file.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    return file


def test_one_file_with_both_arms_is_split_by_its_labels(tmp_path: Path) -> None:
    file = write(tmp_path / "both.jsonl", both(3))
    for arguments in ((file,), (file, file)):
        on, off = reasoning.load(*arguments)
        assert [len(on), len(off)] == [3, 3]


def test_files_the_other_way_round_are_put_right(tmp_path: Path) -> None:
    on = write(tmp_path / "a.jsonl", [row(1, "on")])
    off = write(tmp_path / "b.jsonl", [row(1, "off")])
    assert reasoning.load(on, off) == reasoning.load(off, on)


def test_records_without_a_label_belong_to_their_file(tmp_path: Path) -> None:
    bare = {k: v for k, v in row(1).items() if k != "arm"}
    files = [write(tmp_path / name, [bare]) for name in ("on.jsonl", "off.jsonl")]
    assert [[a.arm for a in arm] for arm in reasoning.load(*files)] == [["on"], ["off"]]
    with pytest.raises(InputError, match="of which arm"):
        reasoning.load(files[0])


def test_an_array_is_read_like_lines(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(both(2)), encoding="utf-8")
    lines = write(tmp_path / "a.jsonl", both(2))
    assert records.read(tmp_path / "a.json") == records.read(lines)


def test_a_bad_line_is_named_by_its_number(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1, "arm": "on"}\n{oops\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"a\.jsonl, line 2"):
        records.read(tmp_path / "a.jsonl")


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("\n", encoding="utf-8")
    with pytest.raises(InputError, match="is empty"):
        records.read(tmp_path / "a.jsonl")


# -- what takes the verdict away ------------------------------------------------------------------


def some(count: int, change: Row, share: float, arm: str = "on") -> list[Row]:
    """Return sound pairs in which a share of one arm is changed."""
    return [
        r | (change if r["arm"] == arm and r["id"] < share * count else {}) for r in both(count)
    ]


HALF_EMPTY = {"content": "", "answer": None, "correct": False, "thinking_budget": 800}
CUT = {"finish_reason": "length", "answer": None, "correct": False}

INVALID: list[tuple[str, list[Row], str, str]] = [
    (
        "silent fallback",
        some(200, {"fallback_used": True}, 0.97),
        "not-exercised",
        "silent-fallback",
    ),
    (
        "flag ignored",
        both(on={"reasoning": "", "reasoning_tokens": 0}),
        "not-exercised",
        "flag-ignored",
    ),
    (
        "off arm reasons in its own field",
        some(40, {"reasoning": "Three and four.", "reasoning_tokens": None}, 0.3, "off"),
        "not-comparable",
        "off-arm-reasons",
    ),
    (
        "off arm reasons inside tags",
        some(40, {"content": "<think>3 + 4</think>7"}, 0.3, "off"),
        "not-comparable",
        "off-arm-reasons",
    ),
    (
        "off arm deliberates in its answer",
        some(40, {"content": "Okay, let me see. The user wants a sum"}, 0.3, "off"),
        "not-comparable",
        "off-arm-reasons",
    ),
    (
        "off arm hides its tokens",
        some(40, {"content": "7", "completion_tokens": 3}, 0.5, "off")
        + [row(100 + i, content="28", answer="28", completion_tokens=96) for i in range(20)],
        "not-comparable",
        "off-arm-reasons",
    ),
    (
        "other model",
        both(on={"model": "a"}, off={"model": "b"}),
        "not-comparable",
        "different-setup",
    ),
    (
        "other sampling",
        both(on={"temperature": 0.6}, off={"temperature": 0.7}),
        "not-comparable",
        "different-setup",
    ),
    (
        "other questions",
        both(on={"reference": "7"}, off={"reference": "8"}),
        "not-comparable",
        "different-questions",
    ),
    ("records twice", both(20) + both(20), "not-comparable", "duplicate-records"),
    ("off arm cut", some(40, CUT | {"max_tokens": 40}, 0.5, "off"), "censored", "truncation"),
    ("half of the answers empty", some(40, HALF_EMPTY, 0.5), "censored", "empty-answers"),
    (
        "half empty, null",
        some(40, HALF_EMPTY | {"content": None}, 0.5),
        "censored",
        "empty-answers",
    ),
    ("some fell back", some(40, {"fallback": True}, 0.2), "censored", "partial-fallback"),
    ("requests failed", some(40, {"error": "HTTP 500"}, 0.2), "censored", "failed-requests"),
    ("one arm", [row(i, "on") for i in range(40)], "insufficient", "one-arm"),
]


@pytest.mark.parametrize(
    ("rows", "verdict", "rule"), [c[1:] for c in INVALID], ids=[c[0] for c in INVALID]
)
def test_arms_that_are_not_what_they_seem_get_no_numbers(
    rows: list[Row], verdict: str, rule: str
) -> None:
    found = compared(rows)
    assert found["verdict"] == verdict
    assert rule in rules(found)
    assert any(reason.startswith(f"{rule}:") for reason in found["reasons"])
    assert found["accuracy"] is None
    assert found["ratios"] is None


def test_an_arm_that_is_not_itself_is_marked_invalid() -> None:
    found = compared(some(40, {"content": "Okay, let me see. The user wants"}, 0.3, "off"))
    assert (found["arms"]["on"]["valid"], found["arms"]["off"]["valid"]) == (True, False)


def test_a_worked_solution_is_not_deliberation() -> None:
    worked = "Let's solve this step by step. First, add 3 and 4. The sum of both is 7."
    assert "off-arm-reasons" not in rules(compared(both(off={"content": worked})))


def test_a_cut_arm_bounds_the_difference() -> None:
    found = compared(some(40, CUT | {"max_tokens": 40}, 0.5, "off"))
    assert found["bounds"]["accuracy_difference"] == [0.0, 0.5]
    assert found["bounds"]["output_tokens_per_answer"] == {"at_most": pytest.approx(900 / 40)}
    assert "unequal-budgets" in rules(found)


def test_an_arm_that_was_cut_while_thinking_costs_at_least_so_much() -> None:
    found = compared(some(40, HALF_EMPTY | {"finish_reason": "length"}, 0.5))
    assert found["bounds"]["accuracy_on"] == [0.5, 1.0]
    assert found["bounds"]["output_tokens_per_answer"] == {"at_least": pytest.approx(900 / 40)}


def test_a_cut_answer_that_is_right_is_right() -> None:
    [found] = parsed(row(1, finish_reason="length"))
    assert found.truncated
    assert not found.censored


def test_few_cut_answers_widen_the_interval_instead() -> None:
    rows = some(200, CUT, 0.04)
    found, clean = compared(rows), compared(both(200))
    assert "truncation" in rules(found, "warning")
    assert found["accuracy"]["low"] < -0.03 < clean["accuracy"]["low"]
    assert found["accuracy"]["high"] == pytest.approx(clean["accuracy"]["high"], abs=0.03)


def test_budgets_that_no_answer_reached_are_told_and_harmless() -> None:
    found = compared(both(off={"max_tokens": 1024}))
    assert "unequal-budgets" in rules(found, "warning")
    assert found["verdict"] not in ("censored", "not-comparable")


def test_questions_in_one_arm_only_are_left_out() -> None:
    found = compared([*both(40), row(99, "on", correct=False)])
    assert found["pairs"] == {"questions": 40, "only_on": 1, "only_off": 0}
    assert found["accuracy"]["on"] == 1.0


def test_unknown_tokens_are_called_unknown() -> None:
    found = compared([row(i, "on", reasoning_tokens=0) for i in range(3)])
    assert found["arms"]["on"]["reasoning_tokens"] == "unknown"
    assert found["arms"]["on"]["output_tokens"] == 2700


def test_every_error_has_an_outcome() -> None:
    seen = {rule for _, rows, _, _ in INVALID for rule in rules(compared(rows))}
    assert seen <= arms.OUTCOMES.keys()


# -- verdicts -------------------------------------------------------------------------------------


def graded(
    on: Callable[[int], bool], off: Callable[[int], bool], tokens: Row | None = None
) -> list[Row]:
    rows = []
    for i in range(400):
        rows.append(
            row(i, "on", correct=on(i), completion_tokens=(tokens or {}).get("on", 900 + i))
        )
        rows.append(row(i, correct=off(i), completion_tokens=(tokens or {}).get("off", 40 + i % 7)))
    return rows


TRUTH = [
    ("mixed", graded(lambda i: True, lambda i: i % 2 == 0)),
    ("worse", graded(lambda i: i % 2 == 0, lambda i: True)),
    ("worse", graded(lambda i: True, lambda i: True)),
    ("better", graded(lambda i: True, lambda i: i % 2 == 0, {"on": 900, "off": 900})),
    ("no-difference", graded(lambda i: True, lambda i: True, {"on": 900, "off": 900})),
    ("mixed", graded(lambda i: i % 2 == 0, lambda i: True, {"on": 850, "off": 1000})),
    ("insufficient", graded(lambda i: i % 10 < 7, lambda i: i % 11 < 7)),
    ("insufficient", [r | {"correct": None} for r in both(40)]),
    ("insufficient", both(29)),
]


@pytest.mark.parametrize(
    ("verdict", "rows"), TRUTH, ids=[f"{i}-{t[0]}" for i, t in enumerate(TRUTH)]
)
def test_accuracy_is_weighed_against_tokens(verdict: str, rows: list[Row]) -> None:
    assert compared(rows)["verdict"] == verdict


def test_the_table_of_pairs_gives_the_p_of_mcnemar() -> None:
    found = compared(graded(lambda i: i < 300, lambda i: i >= 20))["accuracy"]
    assert (found["both"], found["only_on"], found["only_off"], found["neither"]) == (
        280,
        20,
        100,
        0,
    )
    assert found["mcnemar_p"] == pytest.approx(scipy_stats.binomtest(20, 120).pvalue)


def timed(count: int = 60, *, starts: int = 5) -> list[Row]:
    rows = []
    for i in range(count):
        for arm, tokens, pace in (("on", 900 + 7 * i, 0.010), ("off", 40 + i % 9, 0.012)):
            drift = 1 + 0.01 * (i % starts)
            seconds = tokens * pace * drift
            extra = {"e2e_s": seconds, "energy_j": 300 * seconds, "block": f"s{i % starts}"}
            grade = i % 4 != 0 if arm == "on" else i % 3 != 0
            rows.append(row(i, arm, completion_tokens=tokens, correct=grade, **extra))
    return rows


def test_the_request_rate_is_the_token_rate_over_tokens_per_answer() -> None:
    found = compared(timed())["identity"]
    assert found["residual"] == pytest.approx(0, abs=1e-9)
    assert found["tok_per_s"] == pytest.approx(1.2, rel=0.01)
    assert found["requests_per_s"] == pytest.approx(
        found["tok_per_s"] / found["output_tokens_per_answer"]
    )


def test_thirty_two_percent_at_one_token_rate_is_three_times_the_tokens() -> None:
    ratios: dict[str, Any] = {"requests_per_s": {"value": 0.32}, "tok_per_s": {"value": 1.0}}
    ratios["output_tokens_per_answer"] = {"value": 1 / 0.32}
    found = expense.identity(ratios)
    assert found is not None and found["residual"] == pytest.approx(0)
    assert found["output_tokens_per_answer"] == pytest.approx(3.1, abs=0.03)


def test_correct_answers_per_second_divide_by_time_not_by_questions() -> None:
    found = compared(timed())["ratios"]
    on, off = [[r for r in timed() if r["arm"] == arm] for arm in ("on", "off")]
    rates = [sum(r["correct"] for r in arm) / sum(r["e2e_s"] for r in arm) for arm in (on, off)]
    assert found["correct_per_s"]["value"] == pytest.approx(rates[0] / rates[1])


def test_energy_and_money_are_per_correct_answer() -> None:
    found = compared(timed(), prices=contrast.Prices(output=2.0))["ratios"]
    on = [r for r in timed() if r["arm"] == "on"]
    right = sum(r["correct"] for r in on)
    tokens, joules = (sum(r[key] for r in on) for key in ("completion_tokens", "energy_j"))
    assert found["usd_per_correct"]["on"] == pytest.approx(tokens * 2e-6 / right)
    assert found["j_per_correct"]["on"] == pytest.approx(joules / right)


def test_what_was_not_recorded_has_no_ratio() -> None:
    found = compared(both(40))["ratios"]
    unknown = {name for name, ratio in found.items() if ratio is None}
    assert unknown == set(expense.RATIOS) - {"output_tokens_per_answer"}


def test_a_clock_counts_the_time_an_arm_took() -> None:
    rows = []
    for i in range(40):  # on: two at a time, each 4 s; off: one at a time, each 1 s
        rows.append(row(i, "on", start_s=4.0 * (i // 2), end_s=4.0 * (i // 2) + 4))
        rows.append(row(i, start_s=1.0 * i, end_s=1.0 * i + 1))
    found = compared(rows)
    assert found["ratios"]["requests_per_s"]["value"] == pytest.approx(0.5)
    assert found["ratios"]["latency"]["value"] == pytest.approx(4)
    assert "clock" in found["rates"]["from"]


def test_rates_over_server_starts_have_an_interval_of_their_own() -> None:
    found = compared(timed(starts=5))
    assert found["rates"]["server_starts"] == 5
    assert found["rates"]["tok_per_s"]["n"] == 5
    assert (
        compared([{k: v for k, v in r.items() if k != "block"} for r in timed()])["rates"][
            "server_starts"
        ]
        == "unknown"
    )


def test_repeats_of_a_question_are_one_question() -> None:
    rows = [
        r | {"repeat": k} for k in range(3) for r in graded(lambda i: True, lambda i: i % 2 == 0)
    ]
    found = compared(rows)
    assert found["accuracy"]["questions"] == 400
    assert found["ratios"]["output_tokens_per_answer"]["n"] == 400
    assert "mcnemar_p" not in found["accuracy"]


def test_the_same_records_give_the_same_answer() -> None:
    assert compared(timed()) == compared(timed())


# -- the command ----------------------------------------------------------------------------------


def test_the_command_prints_the_verdict_first(tmp_path: Path) -> None:
    file = write(tmp_path / "both.jsonl", timed())
    found = CliRunner().invoke(cli.app, ["reasoning", str(file), "--price", "2"])
    assert found.exit_code == 0
    assert found.stdout.splitlines()[0] in {"mixed", "worse", "insufficient"}
    for name in ("output tokens per answer", "USD per correct answer", "5 server starts"):
        assert name in found.stdout


def test_the_command_gives_json_without_numbers_it_does_not_trust(tmp_path: Path) -> None:
    file = write(tmp_path / "both.jsonl", some(40, {"fallback_used": True}, 0.9))
    found = json.loads(CliRunner().invoke(cli.app, ["reasoning", str(file), "--json"]).stdout)
    assert (found["verdict"], found["ratios"]) == ("not-exercised", None)


@pytest.mark.parametrize("option", [["--margin", "2"], ["--level", "95"], ["--prompt-price", "1"]])
def test_an_option_that_makes_no_sense_is_refused(tmp_path: Path, option: list[str]) -> None:
    file = write(tmp_path / "both.jsonl", both(3))
    found = CliRunner().invoke(cli.app, ["reasoning", str(file), *option])
    assert isinstance(found.exception, InputError)


# -- planted effects ------------------------------------------------------------------------------

TRUE_TOKENS, TRUE_RATE = 3.1, 0.95
SHARED, ONLY_ON, ONLY_OFF = 0.55, 0.175, 0.10  # +7.5 pp
TRUE_GAIN = ONLY_ON - ONLY_OFF


def planted(random: np.random.Generator, questions: int = 150) -> tuple[list[Answer], list[Answer]]:
    """Draw one study with known ratios: lognormal tokens that share their difficulty."""
    hard = random.normal(size=questions)
    on_tokens = (
        1000 * TRUE_TOKENS * np.exp(0.4 * hard + 0.3 * random.normal(size=questions) - 0.125)
    )
    off_tokens = 1000 * np.exp(0.3 * hard + 0.3 * random.normal(size=questions) - 0.09)
    cell = random.choice(
        4, size=questions, p=[SHARED, ONLY_ON, ONLY_OFF, 1 - SHARED - ONLY_ON - ONLY_OFF]
    )
    pace = 0.01 * np.exp(0.05 * random.normal(size=(2, questions)) - 0.00125)
    found: tuple[list[Answer], list[Answer]] = ([], [])
    for i in range(questions):
        for arm, tokens, right in (
            (0, on_tokens[i], cell[i] in (0, 1)),
            (1, off_tokens[i], cell[i] in (0, 2)),
        ):
            count = round(float(tokens))
            found[arm].append(
                Answer(
                    question=str(i),
                    arm="off" if arm else "on",
                    output_tokens=count,
                    reasoning_tokens=0 if arm else count // 2,
                    correct=bool(right),
                    latency=count * float(pace[arm, i]) * (TRUE_RATE if arm else 1.0),
                )
            )
    return found


def recovered(studies: int, seed: int) -> dict[str, float]:
    """Return how often intervals cover the plant, and verify a band whose edge it lies on."""
    random = np.random.default_rng(seed)
    truth = {
        "output_tokens_per_answer": TRUE_TOKENS,
        "tok_per_s": TRUE_RATE,
        "requests_per_s": TRUE_RATE / TRUE_TOKENS,
        "correct_per_s": (SHARED + ONLY_ON) / (SHARED + ONLY_OFF) * TRUE_RATE / TRUE_TOKENS,
    }
    covered, verified = (
        dict.fromkeys((*truth, "accuracy"), 0),
        dict.fromkeys((*truth, "accuracy"), 0),
    )
    for _ in range(studies):
        answer = reasoning.compare(*planted(random))
        for name, value in truth.items():
            found = answer["ratios"][name]
            covered[name] += found["low"] <= value <= found["high"]
            verified[name] += value <= found["low"] and found["high"] <= 2 * value
        found = answer["accuracy"]
        covered["accuracy"] += found["low"] <= TRUE_GAIN <= found["high"]
        verified["accuracy"] += found["low"] >= TRUE_GAIN and found["high"] <= TRUE_GAIN + 0.5
    return {
        **{f"{name} covered": count / studies for name, count in covered.items()},
        **{f"{name} verified": count / studies for name, count in verified.items()},
    }


def test_planted_effects_are_recovered() -> None:
    found = recovered(30, seed=1)
    for name, share in found.items():
        if name.endswith("covered"):
            assert share >= 1 - scipy_stats.binom.ppf(1 - 1e-6, 30, 0.05) / 30, name
        else:
            assert share <= scipy_stats.binom.ppf(1 - 1e-6, 30, 0.05) / 30, name


@pytest.mark.slow
def test_planted_effects_are_recovered_in_500_studies() -> None:
    found = recovered(500, seed=2)
    covered = {k: v for k, v in found.items() if k.endswith("covered")}
    verified = {k: v for k, v in found.items() if k.endswith("verified")}
    assert min(covered.values()) >= 0.93, covered
    assert max(verified.values()) <= 0.05, verified


def test_a_planted_gain_is_never_reported_with_a_nan() -> None:
    found = reasoning.compare(*planted(np.random.default_rng(3), questions=10))
    assert found["ratios"]["output_tokens_per_answer"]["low"] is None
    assert math.isfinite(found["ratios"]["output_tokens_per_answer"]["value"])
