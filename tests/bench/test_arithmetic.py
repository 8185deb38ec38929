"""Arithmetic questions: drawn from a seed, solved in steps, and graded as a reader would."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.bench.exam import arithmetic
from assay.errors import InputError

SEEDS = st.integers(0, 2**32)


@given(SEEDS)
def test_a_seed_gives_the_same_questions_every_time(seed: int) -> None:
    assert arithmetic.questions(9, seed=seed) == arithmetic.questions(9, seed=seed)


@given(SEEDS)
def test_a_level_has_its_number_of_terms_and_no_running_total_is_negative(seed: int) -> None:
    for question in arithmetic.questions(12, seed=seed):
        totals = [sum(question.terms[:n]) for n in range(1, len(question.terms) + 1)]
        assert len(question.terms) == arithmetic.LEVELS[question.level]
        assert min(totals) >= 0


@given(SEEDS)
def test_what_is_asked_is_never_trained_on(seed: int) -> None:
    exam = {q.expression for q in arithmetic.questions(60, seed=seed)}
    course = arithmetic.questions(200, seed=seed, part="course", repeat=True)
    assert exam.isdisjoint(q.expression for q in course)


def test_no_expression_comes_twice_in_an_exam() -> None:
    found = arithmetic.questions(600, seed=1)
    assert len({q.expression for q in found}) == 600


def test_more_questions_than_a_level_has_are_refused_in_one_sentence() -> None:
    with pytest.raises(InputError, match="no further question of level 1"):
        arithmetic.questions(5000, seed=1, levels=(1,))


@given(SEEDS)
def test_every_step_of_a_scratchpad_is_right_and_the_last_gives_the_result(seed: int) -> None:
    for question in arithmetic.questions(6, seed=seed):
        steps = [step.split("=") for step in arithmetic.scratchpad(question).split(";")]
        # eval is safe here: the text is made of digits and signs that this test just drew.
        assert all(eval(left) == int(right) for left, right in steps)
        assert int(steps[-1][1]) == question.result


@given(SEEDS)
def test_a_right_answer_is_graded_right_and_its_neighbour_wrong(seed: int) -> None:
    for question in arithmetic.questions(6, seed=seed):
        assert arithmetic.grade(question, str(question.result))
        assert not arithmetic.grade(question, str(question.result + 1))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("42", "42"),
        ("The result is **1,234**.", "1234"),
        ("12+30=42\n\nFinal: 42.", "42"),
        ("\N{MINUS SIGN}7", "-7"),
        ("I do not know", None),
        ("", None),
    ],
)
def test_the_last_number_of_an_answer_stands(text: str, answer: str | None) -> None:
    assert arithmetic.read(text) == answer
