"""Engines side by side: the committed samples, and what they are held against."""

from __future__ import annotations

from collections import Counter

import pytest

from assay.bench import lineup
from assay.errors import InputError
from assay.ledger import store
from assay.press import lineup_table

SAMPLES = store.published("engines_here")


def test_at_least_two_engines_served_the_same_blocks() -> None:
    counted = Counter((r["subject"], r["quantity"]) for r in SAMPLES if r["subject"] != "roof")
    assert len({engine for engine, _ in counted}) >= 2
    assert set(counted.values()) == {lineup.BLOCKS}


def test_no_engine_is_above_the_roof() -> None:
    for line in lineup.lines():
        assert 0 < line.share <= 1, f"{line.engine}, {line.quantity}"


def test_every_sample_says_machine_versions_flags_commit_start_and_load() -> None:
    for row in SAMPLES:
        for key in ("machine", "packages", "commit", "started", "flags", "load_average"):
            assert row[key], f"{row['subject']}, {row['quantity']}: {key}"


def test_samples_read_back_as_they_were_written() -> None:
    file = store.path("data", "published", "engines_here.csv")
    assert lineup.text(SAMPLES) == store.read_text(file)


def test_the_roof_is_the_better_of_both_looks() -> None:
    seen = [float(r["value"]) for r in SAMPLES if r["quantity"] == "copy_bandwidth"]
    assert len(seen) == 2
    assert lineup.best_roof(SAMPLES).bandwidth == max(seen)


def test_a_time_is_a_share_of_the_roof_the_other_way_round_than_a_rate() -> None:
    rate = lineup.Line("e", "1", "output_throughput", "tok/s", (5.0, 4.0, 9.0), 10.0)
    time = lineup.Line("e", "1", "tpot", "s", (0.2, 0.4, 0.3), 0.15)
    assert (rate.middle, rate.share) == (5.0, 0.5)
    assert (time.middle, time.share) == (pytest.approx(0.3), pytest.approx(0.5))


def test_one_engine_alone_is_no_lineup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineup.checkpoint, "make", lambda shape: store.root())
    monkeypatch.setattr(lineup, "engines", lambda model: {})
    with pytest.raises(InputError, match="two are needed"):
        lineup.run()


def test_the_page_names_every_engine_and_says_how_loaded_the_machine_was() -> None:
    text = lineup_table.text()
    for line in lineup.lines():
        assert f"{line.engine} {line.version}" in text
    assert "load average" in text
