"""Rows: one request each, as vLLM's client saw it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from assay.bench.load import rows
from assay.bench.protocol import window
from assay.errors import InputError


def detailed(**changes: Any) -> dict[str, Any]:
    """A detailed file of ``vllm bench serve`` 0.32 with two requests, of which one failed."""
    return {
        "duration": 2.0,
        "start_times": [100.0, 100.5],
        "queue_times": [0.0, 0.25],
        "ttfts": [0.1, 0.0],
        "itls": [[0.02, 0.02, 0.02], []],
        "latencies": [0.16, 0.0],
        "input_lens": [8, 8],
        "output_lens": [4, 0],
        "errors": ["", "Traceback\nConnectionResetError: gone"],
        **changes,
    }


def test_a_failed_request_has_no_times() -> None:
    good, bad = rows.parse(detailed())
    assert (good.ttft_s, good.latency_s, good.completed) == (0.1, 0.16, True)
    assert (bad.ttft_s, bad.latency_s, bad.itl_s, bad.completed) == (None, None, (), False)
    assert bad.error == "ConnectionResetError: gone"


def test_times_are_counted_from_the_first_request() -> None:
    assert [row.sent_s for row in rows.parse(detailed())] == [0.0, 0.5]


def test_tpot_leaves_the_first_token_out() -> None:
    good, _ = rows.parse(detailed())
    assert good.tpot_s == pytest.approx(0.02)


def test_one_output_token_has_no_tpot() -> None:
    (row,) = rows.parse(
        detailed(
            start_times=[0.0], queue_times=[0.0], ttfts=[0.1], itls=[[]], latencies=[0.1],
            input_lens=[8], output_lens=[1], errors=[""],
        )
    )  # fmt: skip
    assert row.tpot_s is None
    values, samples = window.values([row], 1.0)
    assert values["tpot"] is None
    assert samples["tpot"] == 0


def test_a_summary_is_refused() -> None:
    with pytest.raises(InputError, match="no start_times"):
        list(rows.parse({"duration": 1.0}))


def test_values_are_those_of_the_client() -> None:
    values, samples = window.values(list(rows.parse(detailed())), 2.0)
    assert values["output_throughput"] == 4 / 2.0
    assert values["total_throughput"] == (4 + 8) / 2.0
    assert values["request_throughput"] == 1 / 2.0
    assert values["ttft"] == 0.1
    assert samples == {"ttft": 1, "tpot": 1, "itl": 1, "e2el": 1}


def test_nothing_completed_is_no_data_and_not_zero() -> None:
    failed = [row for row in rows.parse(detailed()) if not row.completed]
    values, _ = window.values(failed, 2.0)
    assert set(values.values()) == {None}


def test_rows_survive_the_trip_through_parquet(tmp_path: Path) -> None:
    labels = {"block": 1, "arm": "a", "load": "l", "seed": 7}
    rows.place(tmp_path / "rows.parquet", [(labels, row) for row in rows.parse(detailed())])
    first, second = rows.read(tmp_path / "rows.parquet")
    assert first["itl_s"] == [0.02, 0.02, 0.02]
    assert (first["seed"], first["ttft_s"]) == (7, 0.1)
    assert second["ttft_s"] is None
    assert [file.name for file in tmp_path.iterdir()] == ["rows.parquet"]


def test_equal_rows_make_equal_files(tmp_path: Path) -> None:
    labels = {"block": 1, "arm": "a", "load": "l", "seed": 7}
    for name in ("one", "two"):
        rows.place(tmp_path / name, [(labels, row) for row in rows.parse(detailed())])
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_arrivals_of_one_moment_have_no_rate() -> None:
    assert rows.arrivals([1.0, 1.0]) == math.inf


def test_the_peak_counts_an_end_before_a_start_of_the_same_moment() -> None:
    assert rows.peak([0.0, 1.0], [1.0, 2.0]) == 1
