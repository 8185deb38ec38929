"""The printed KV table holds every row of the comparison, once, and marks what is wrong."""

from __future__ import annotations

import dataclasses

import pytest

from assay.bench import agreement
from assay.press import kv_table, show

ROWS = agreement.committed()
ROW = next(row for row in ROWS if row.model == "llama-2-70b")


def table_of(row: agreement.Row) -> list[str]:
    line = next(x for x in kv_table.text([row]).splitlines() if x.startswith(f"| {row.model}<br>"))
    return [cell.strip().replace("\u00a0", " ") for cell in line.strip("|").split("|")]


def test_every_model_is_printed_once() -> None:
    text = kv_table.text()
    for row in ROWS:
        assert text.count(f"| {row.model}<br>") == 1


def test_the_families_are_those_that_occur() -> None:
    assert {kv_table.family(row) for row in ROWS} == set(kv_table.FAMILIES)


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("llama-2-70b", "Full attention"),
        ("deepseek-v2", "Latent attention (MLA)"),
        ("gemma3-27b", "Sliding windows and chunks"),
        ("llama4 (class default)", "Sliding windows and chunks"),
        ("granite4", "States"),
        ("glm-5.2", "Not answered by the engine"),
    ],
)
def test_a_model_stands_with_its_kind(model: str, family: str) -> None:
    assert kv_table.family(next(row for row in ROWS if row.model == model)) == family


def test_a_figure_that_equals_the_engines_is_marked_right() -> None:
    assert table_of(ROW)[1:4] == ["327,680 ✔", "327,680", "327,680 ✔"]


def test_a_wrong_figure_says_how_far_off_it_is() -> None:
    assert table_of(ROW)[4] == "2,621,440 ✘ 8×"
    assert table_of(dataclasses.replace(ROW, ours=163_840))[1] == "163,840 ✘ 0.5×"


def test_a_figure_that_is_nearly_right_does_not_read_as_right() -> None:
    assert table_of(dataclasses.replace(ROW, ours=327_600))[1] == "327,600 ✘ 0.9998×"


def test_a_calculator_without_an_answer_is_neither_right_nor_wrong() -> None:
    assert table_of(dataclasses.replace(ROW, lmcache=None))[3] == "—"


def test_without_the_engines_answer_nothing_is_marked() -> None:
    silent = dataclasses.replace(ROW, oracle=None, why="no class")
    text = kv_table.text([silent])
    assert not any(glyph in text for glyph in show.GLYPHS.values())
    assert f"- {ROW.model}: no class." in text


def test_only_families_with_a_bounded_part_print_it() -> None:
    windows = next(row for row in ROWS if row.model == "gemma3-27b")
    printed = table_of(windows)[1]
    assert "<small>growth 81,920 ✔</small>" in printed
    assert "<small>constant 436.21 MB ✔</small>" in printed
    assert "growth" not in table_of(ROW)[1]
