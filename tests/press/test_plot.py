"""Figures follow one grammar and come out the same every time."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import pytest

mpl.use("agg")
import matplotlib.pyplot as plt

from assay.ledger import store
from assay.press import plot


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=PendingDeprecationWarning)
        yield
    plt.close("all")


def _strip() -> plt.Axes:
    claim = store.claim("kv-cache-formula")
    sized = [a for a in claim.assertions if a.metric == "kv_bytes"]
    return plot.strip(sized, store.live(claim.id), labels={a.id: a.id for a in sized})


def test_the_claim_is_a_hollow_vermillion_diamond() -> None:
    diamonds = [line for line in _strip().lines if line.get_marker() == "D"]
    assert diamonds
    assert {line.get_markeredgecolor() for line in diamonds} == {plot.CLAIM}
    assert {line.get_markerfacecolor() for line in diamonds} == {"white"}


def test_evidence_is_a_filled_blue_circle() -> None:
    circles = [line for line in _strip().lines if line.get_marker() == "o"]
    assert circles
    assert {line.get_markerfacecolor() for line in circles} == {plot.EVIDENCE}


def test_an_axis_names_quantity_and_unit() -> None:
    assert _strip().get_xlabel().endswith("[GB]")


def test_ticks_of_a_narrow_axis_differ_from_each_other() -> None:
    axes = _strip()
    axes.figure.canvas.draw()
    labels = [t.get_text() for t in axes.get_xticklabels() if t.get_text()]
    assert len(set(labels)) == len(labels)


def test_the_same_figure_is_the_same_file(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        plot.save(_strip(), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_a_saved_figure_carries_no_date(tmp_path: Path) -> None:
    plot.save(_strip(), tmp_path / "a.svg")
    assert "<dc:date>" not in (tmp_path / "a.svg").read_text()


def test_an_impossible_reading_is_hatched_and_a_possible_one_open() -> None:
    axes = plot.readings(
        [
            {"row": "a", "reading": "x", "ratio": 2.0, "possible": False},
            {"row": "a", "reading": "y", "ratio": 0.5, "possible": True},
        ],
        rows="row",
        columns="reading",
    )
    assert [bool(patch.get_hatch()) for patch in axes.patches] == [True, False]


def test_a_reading_that_does_not_fit_shows_no_ratio() -> None:
    axes = plot.readings(
        [{"row": "a", "reading": "x", "ratio": float("inf"), "possible": False}],
        rows="row",
        columns="reading",
    )
    assert [text.get_text() for text in axes.texts] == ["does\nnot fit"]


def test_extrapolation_is_dashed() -> None:
    axes = plot.sweep(
        {"line": [(1, 1), (2, 2), (4, 4)]}, x_label="n [1]", metric="ttft", solid_until=2
    )
    assert [line.get_linestyle() for line in axes.lines] == ["-", "--"]


def test_a_sweep_draws_claims_and_publications_differently() -> None:
    axes = plot.sweep(
        {"line": [(1, 1), (2, 2)]},
        x_label="n [1]",
        metric="ttft",
        points=[("claimed", 1, 1)],
        seen=[("published", 2, 2)],
    )
    assert [line.get_marker() for line in axes.lines] == ["None", "s", "D"]


def test_a_limit_line_is_dotted_or_dashed_grey_and_the_paper_above_it_is_hatched() -> None:
    axes = plot.roofline({"bf16": [(1, 10), (2, 20)]}, metric="output_throughput")
    assert axes.lines[0].get_color() == plot.LIMIT
    assert any(collection.get_hatch() for collection in axes.collections)


def test_labels_at_the_same_place_are_moved_apart() -> None:
    axes = plot.roofline({"a": [(1, 10), (2, 20)], "b": [(1, 5), (2, 20)]}, metric="ttft")
    ends = [t for t in axes.texts if t.get_text() in ("a", "b")]
    assert len({t.xyann for t in ends}) == 2  # type: ignore[attr-defined]


def test_a_tornado_puts_the_widest_swing_on_top() -> None:
    axes = plot.sensitivity(10, [("small", 9, 11), ("large", 1, 20)], metric="kv_bytes")
    assert [t.get_text() for t in axes.get_yticklabels()] == ["small", "large"]


def test_the_scoreboard_marks_the_claim_at_one() -> None:
    axes = plot.scoreboard([{"label": "a", "glyph": "✔", "low": 1.0, "high": 1.0, "limit": False}])
    diamonds = [line for line in axes.lines if line.get_marker() == "D"]
    assert [list(line.get_xdata()) for line in diamonds] == [[1]]
    assert axes.get_xscale() == "log"


def test_the_scoreboard_draws_nothing_for_a_claim_without_evidence() -> None:
    axes = plot.scoreboard([{"label": "a", "glyph": "○", "low": None, "high": None}])
    assert not [line for line in axes.lines if line.get_marker() in ("o", "|")]


def test_compare_draws_claims_and_publications_differently() -> None:
    axes = plot.compare(
        [
            {"label": "claimed", "value": 10.0, "kind": "claim"},
            {"label": "published", "value": 5.0, "low": 4.0, "high": 6.0},
        ],
        metric="throughput",
        claim=10,
        limit=12,
    )
    assert {line.get_marker() for line in axes.lines} >= {"D", "s"}


def test_a_point_without_one_coordinate_becomes_a_tick_at_the_edge_of_the_other() -> None:
    axes = plot.scatter(
        [
            {"x": 2.0, "y": 5.0, "y_low": 4.0, "y_high": 6.0, "kind": "evidence"},
            {"x": 3.1, "y": 7.5, "kind": "claim"},
            {"x": None, "y": -10.0},
            {"x": 20.0, "y": None},
        ],
        x_label="tokens per answer [x]",
        metric="accuracy_change",
        log_x=True,
    )
    ticks = {line.get_marker(): line for line in axes.lines if line.get_marker() in (1, 2)}
    assert list(ticks[1].get_xdata()) == [axes.get_xlim()[0]]
    assert list(ticks[2].get_ydata()) == [axes.get_ylim()[0]]
    assert {line.get_marker() for line in axes.lines} >= {"o", "D"}


def test_an_axis_is_named_by_a_metric_or_by_words_with_their_unit() -> None:
    line = {"a": [(1.0, 1.0), (2.0, 2.0)]}
    assert plot.sweep(line, x_label="n [1]", metric="least time [ms]").get_ylabel() == (
        "least time [ms]"
    )
    assert "time to first token" in plot.sweep(line, x_label="n [1]", metric="ttft").get_ylabel()


def test_ticks_of_a_short_logarithmic_axis_are_plain_numbers() -> None:
    curves = {"a": [(1.0, 2.0), (10.0, 60.0)]}
    axes = plot.sweep(curves, x_label="length [tok]", metric="kv_ratio", log_y=True)
    axes.figure.canvas.draw()
    every = [*axes.get_yticklabels(), *axes.get_yticklabels(minor=True)]
    printed = {t.get_text() for t in every if t.get_text()}
    assert {"2", "5", "10", "20", "50"} <= printed
    assert not any("\\" in words or "^" in words for words in printed)


def test_compare_shows_losses_as_well_as_gains() -> None:
    axes = plot.compare(
        [{"label": "gain", "value": 21.0}, {"label": "loss", "value": -41.0}],
        metric="throughput_change",
    )
    assert axes.get_xlim()[0] < -41


def test_a_long_label_is_wrapped_and_not_given_the_figure() -> None:
    axes = plot.compare([{"label": "word " * 20, "value": 1.0}], metric="throughput")
    [label] = axes.get_yticklabels()
    assert "\n" in label.get_text()


def test_a_prediction_that_holds_lies_on_the_diagonal_inside_the_band() -> None:
    points = [
        {"x": 10.0, "y": 10.0, "kind": "evidence"},
        {"x": 10.0, "y": 90.0, "kind": "published"},
    ]
    axes = plot.agreement(points, metric="ttft", near=0.1)
    diagonal = axes.lines[0]
    assert list(diagonal.get_xdata()) == list(diagonal.get_ydata())
    [band] = axes.collections
    good, bad = (band.get_paths()[0].contains_point((p["x"], p["y"])) for p in points)
    assert good
    assert not bad


def test_both_axes_of_an_agreement_are_alike() -> None:
    points = [
        {"x": 1.0, "y": 100.0, "kind": "evidence"},
        {"x": 5000.0, "y": 40.0, "kind": "evidence"},
    ]
    axes = plot.agreement(points, metric="TTFT [ms]", near=0.1)
    assert axes.get_xlim() == axes.get_ylim()
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert axes.get_ylabel() == "predicted TTFT [ms]"
