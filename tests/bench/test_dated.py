"""Dated counts are read with the latest day they can mean."""

from __future__ import annotations

import datetime

import pytest

from assay.bench import dated
from assay.errors import InputError, RecordError

STARS = dated.counts("llama-cpp-stars")


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("2026", "2026-12-31"),
        ("2024-02", "2024-02-29"),
        ("2026-02", "2026-02-28"),
        ("2026-08-16", "2026-08-16"),
    ],
)
def test_a_date_means_its_last_day(text: str, day: str) -> None:
    assert dated.day(text).isoformat() == day


@pytest.mark.parametrize("text", ["", "soon", "2026-13", "2026-02-30"])
def test_what_is_no_date_is_refused_in_words(text: str) -> None:
    with pytest.raises(RecordError, match="is no date"):
        dated.day(text)


def test_counts_come_oldest_first() -> None:
    assert sorted(STARS, key=lambda one: one.date) == STARS
    assert len(STARS) >= 4


def test_stars_never_fall_between_two_records() -> None:
    values = [one.value for one in STARS]
    assert values == sorted(values)


def test_a_day_lies_between_the_last_count_before_and_the_first_after() -> None:
    before, after = dated.enclosing(STARS, datetime.date(2026, 8, 16))
    assert before.date < datetime.date(2026, 8, 16) < after.date
    assert before.value > 100_000


def test_a_count_of_the_day_itself_is_before() -> None:
    before, _ = dated.enclosing(STARS, STARS[0].date)
    assert before == STARS[0]


def test_without_a_count_on_both_sides_nothing_encloses() -> None:
    with pytest.raises(InputError, match="no counts on both sides"):
        dated.enclosing(STARS, datetime.date(2001, 1, 1))


def test_a_year_has_twelve_months() -> None:
    assert dated.months(datetime.date(2027, 1, 1), datetime.date(2026, 1, 1)) == pytest.approx(
        12, abs=0.02
    )


RECIPES = dated.recipes()


def test_recipes_come_oldest_first_and_grow_from_five() -> None:
    assert [one.date for one in RECIPES] == sorted(one.date for one in RECIPES)
    assert (RECIPES[0].nightly, RECIPES[-1].nightly) == (5, 21)


def test_no_more_recipes_measure_something_than_there_are() -> None:
    for one in RECIPES:
        assert max(one.performance, one.accuracy) <= one.nightly


def test_on_the_day_of_the_post_there_are_as_many_as_it_prints() -> None:
    # Luu 2026, section on nightly runs: 17 model-hardware recipes.
    last = [one for one in RECIPES if one.date <= datetime.date(2026, 7, 16)][-1]
    assert last.nightly == 17
