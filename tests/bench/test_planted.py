"""A planted effect of reasoning comes back: over HTTP exactly, and in 500 studies within intervals.

The server, the client, the grader and the comparison are the real ones; only the model is not. It
says what ``planted`` says, so every count and grade is known before a question is asked.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from scipy import stats as scipy_stats

from assay.bench import exam, reasoning, synthetic
from assay.bench.exam import arithmetic, planted
from assay.bench.reasoning import transcripts
from assay.bench.reasoning.answers import Answer

QUICK = synthetic.Behaviour(ttft=0.002, tpot=2e-5, bundle=64)
BUDGET = 4096
EFFECT = planted.Effect(seed=5)
#: What does not depend on a clock.
COUNTED = (
    *("id", "arm", "answer", "correct", "finish_reason", "max_tokens"),
    *("prompt_tokens", "completion_tokens", "reasoning_tokens"),
)


def asked(folder: Path, effect: planted.Effect, questions: int = 60, **changes: Any) -> list[Any]:
    """Hold an exam over HTTP; return its rows."""
    behaviour = dataclasses.replace(QUICK, effect=effect.text())
    words = synthetic.tokenizer(folder / "words")
    paper = exam.Paper(
        tuple(arithmetic.questions(questions, seed=5)),
        **{"blocks": 1, "concurrency": 8, "budget": BUDGET, **changes},
    )
    held = exam.hold(synthetic.serve(behaviour, words=str(words)), paper, folder / "exam")
    assert {g.id: g.passed for g in held.gates}["tokens-agree"]
    return [json.loads(line) for line in held.file.read_text().splitlines()]


def drawn(effect: planted.Effect, questions: int = 60, seed: int = 5) -> list[dict[str, Any]]:
    return planted.rows(effect, arithmetic.questions(questions, seed=seed), budget=BUDGET)


def compared(rows: list[dict[str, Any]], **settings: Any) -> dict[str, Any]:
    found = [transcripts.parse(row, where="test") for row in rows]
    arms: dict[Any, list[Answer]] = {"on": [], "off": []}
    for answer in found:
        arms[answer.arm].append(answer)
    return reasoning.compare(arms["on"], arms["off"], **settings)


@pytest.mark.parametrize(
    "effect",
    [
        EFFECT,
        dataclasses.replace(EFFECT, shown="tags"),
        dataclasses.replace(EFFECT, shown="hidden"),
        dataclasses.replace(EFFECT, counted=False),
        dataclasses.replace(EFFECT, empty=0.5),
    ],
    ids=["field", "tags", "hidden", "not counted", "half empty"],
)
def test_an_exam_over_http_records_what_was_planted(tmp_path: Path, effect: planted.Effect) -> None:
    rows = asked(tmp_path, effect)
    known = {(row["id"], row["arm"]): row for row in drawn(effect)}
    assert len(rows) == len(known) == 120
    for row in rows:
        plan = known[row["id"], row["arm"]]
        assert [row.get(key) for key in COUNTED] == [plan.get(key) for key in COUNTED]
        shown = plan["reasoning_tokens"] if effect.shown == "tags" else plan.get("reasoning", "")
        words = shown if isinstance(shown, int) else len(shown.split())
        assert row["reasoning_body_tokens"] == words
    found, wanted = compared(rows), compared(list(known.values()))
    for part in ("verdict", "accuracy", "bounds"):
        assert found[part] == wanted[part]
    cost = "output_tokens_per_answer"
    assert (found["ratios"] or {}).get(cost) == (wanted["ratios"] or {}).get(cost)


def test_an_effect_over_http_is_inside_its_interval(tmp_path: Path) -> None:
    found = compared(asked(tmp_path, EFFECT, 150, blocks=2), level=0.99)
    cost, gain = found["ratios"]["output_tokens_per_answer"], found["accuracy"]
    assert cost["low"] <= EFFECT.ratio <= cost["high"]
    assert gain["low"] <= EFFECT.gain <= gain["high"]
    assert found["rates"]["server_starts"] == 2
    assert found["identity"]["residual"] == pytest.approx(0, abs=1e-9)


def test_a_server_that_ignores_the_switch_is_found_out(tmp_path: Path) -> None:
    effect = dataclasses.replace(EFFECT, ignored=True)
    found = compared(asked(tmp_path, effect, 40))
    assert found["verdict"] == "not-exercised"
    assert found["reasons"][0].startswith("flag-ignored: 40 of 40")


def test_a_budget_that_leaves_half_the_answers_empty_gives_bounds_over_http(
    tmp_path: Path,
) -> None:
    effect = dataclasses.replace(EFFECT, empty=0.5)
    rows = asked(tmp_path, effect, 40)
    found = compared(rows)
    empty = sum(not row["content"] for row in rows)
    assert found["verdict"] == "censored"
    assert found["arms"]["on"]["empty"] == empty > 10
    low, high = found["bounds"]["accuracy_difference"]
    assert low <= effect.gain <= high


def test_an_answer_depends_on_seed_question_and_arm_alone() -> None:
    once, again = drawn(EFFECT), drawn(EFFECT)
    assert once == again
    assert drawn(dataclasses.replace(EFFECT, seed=6)) != once
    backwards = planted.rows(EFFECT, arithmetic.questions(60, seed=5)[::-1], budget=BUDGET)
    assert sorted(map(str, backwards)) == sorted(map(str, once))


def test_an_answer_longer_than_its_budget_is_cut() -> None:
    for shown in ("field", "tags", "hidden"):
        effect = dataclasses.replace(EFFECT, shown=shown)
        for thinking in (True, False):
            found = planted.reply(effect, "What is 3+4?", thinking=thinking, budget=10)
            assert (found.tokens, found.finish) == (10, "length")


def test_the_planted_means_are_the_means() -> None:
    # 100 seeds of 60 questions: the mean of 6,000 draws lies within four of its errors.
    rows = [row for seed in range(100) for row in drawn(dataclasses.replace(EFFECT, seed=seed))]
    for arm, mean, share in (
        ("on", EFFECT.tokens * EFFECT.ratio, EFFECT.both + EFFECT.only_on),
        ("off", EFFECT.tokens, EFFECT.both + EFFECT.only_off),
    ):
        own = [row for row in rows if row["arm"] == arm]
        tokens = [row["completion_tokens"] for row in own]
        right = sum(row["correct"] for row in own) / len(own)
        assert sum(tokens) / len(own) == pytest.approx(mean, rel=4 * 0.48 / len(own) ** 0.5 + 2e-3)
        assert right == pytest.approx(share, abs=4 * 0.5 / len(own) ** 0.5)


def recovered(studies: int, *, first: int) -> dict[str, float]:
    """Return how often intervals cover the plant, and verify a band whose edge it lies on."""
    counts = dict.fromkeys(
        [f"{name} {what}" for name in ("tokens", "gain") for what in ("covered", "verified")], 0
    )
    for seed in range(first, first + studies):
        found = compared(drawn(dataclasses.replace(EFFECT, seed=seed), 150))
        cost, gain = found["ratios"]["output_tokens_per_answer"], found["accuracy"]
        for name, interval, truth, wide in (
            ("tokens", cost, EFFECT.ratio, EFFECT.ratio),
            ("gain", gain, EFFECT.gain, 0.5),
        ):
            low, high = interval["low"], interval["high"]
            counts[f"{name} covered"] += low <= truth <= high
            # The truth is the band's edge, where a false word is likeliest.
            counts[f"{name} verified"] += truth <= low and high <= truth + wide
    return {name: count / studies for name, count in counts.items()}


def test_planted_effects_are_recovered() -> None:
    most = scipy_stats.binom.ppf(1 - 1e-6, 30, 0.05) / 20
    found = recovered(20, first=10_000)
    assert min(found["tokens covered"], found["gain covered"]) >= 1 - most
    assert max(found["tokens verified"], found["gain verified"]) <= most


@pytest.mark.slow
def test_planted_effects_are_recovered_in_500_studies() -> None:
    found = recovered(500, first=0)
    assert min(found["tokens covered"], found["gain covered"]) >= 0.93, found
    assert max(found["tokens verified"], found["gain verified"]) <= 0.05, found
