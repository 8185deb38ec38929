"""The studies: replayed from what is committed, and summed up as the page prints them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.bench import exhibits, outcome, study
from assay.bench.exam import Held, delays
from assay.errors import InputError
from assay.ledger import records, store

PROVENANCE = records.Provenance(
    device="test",
    driver=None,
    clocks=None,
    engine="test",
    engine_version="0",
    flags=(),
    packages={},
    commit="0",
    started="2026-01-01T00:00:00+00:00",
    ended="2026-01-01T00:00:01+00:00",
)


def _held(file: Path, rows: list[dict[str, object]]) -> Held:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Held(file, PROVENANCE, ())


def _rows(arm: str, right: list[bool], divergence: float) -> list[dict[str, object]]:
    n = len(right)
    extra = {"divergence": [divergence] * n, "same": [0.5] * n, "places": [10] * n}
    columns = {"id": [f"1-{i:04d}" for i in range(n)], "correct": [int(r) for r in right]}
    return [{"arm": arm, **columns, **({} if arm == "nothing" else extra)}]


def test_a_claim_without_a_measurement_is_answered_in_one_sentence() -> None:
    with pytest.raises(InputError, match="no measurement is committed to replay"):
        study.committed("wasi-nn-standard")


def test_an_arm_is_compared_question_by_question(tmp_path: Path) -> None:
    plain = [True] * 80 + [False] * 20
    coarse = [True] * 60 + [False] * 40
    held = _held(
        tmp_path / "rows.jsonl", [*_rows("nothing", plain, 0), *_rows("coarse", coarse, 0.25)]
    )
    (found,) = outcome.rounding_arms(held)
    assert (found.right, found.asked) == (60, 100)
    assert found.change == pytest.approx(-0.2)
    assert found.low < -0.2 < found.high < 0
    assert found.divergence == pytest.approx(0.25)


def test_an_arm_that_does_not_exist_is_refused_with_those_that_do(tmp_path: Path) -> None:
    held = _held(tmp_path / "rows.jsonl", _rows("nothing", [True], 0))
    with pytest.raises(InputError) as caught:
        outcome.rounding_arms(held, against="decode in 4 bit")
    assert "nothing" in str(caught.value)


def test_rows_are_told_apart_by_their_fields(tmp_path: Path) -> None:
    held = _held(tmp_path / "rows.jsonl", [{"arm": "nothing"}, {"codec": "zstd"}, {"codec": "lz4"}])
    assert [row["codec"] for row in study.rows(held, "codec")] == ["zstd", "lz4"]


def test_levels_are_compared_apart_and_together(tmp_path: Path) -> None:
    rows = [
        {
            "id": f"{level}-{number:04d}",
            "arm": arm,
            "block": str(number % 2),
            "content": "1</think>2" if arm == "on" else "2",
            "answer": "2",
            "correct": arm == "on" or level == 1,
            "completion_tokens": 10 * level + number % 3 if arm == "on" else 2 + number % 3,
            "finish_reason": "stop",
            "start_s": float(number),
            "end_s": number + (2.0 if arm == "on" else 1.0),
            "e2e_s": 2.0 if arm == "on" else 1.0,
        }
        for level in (1, 2, 3)
        for number in range(40)
        for arm in ("on", "off")
    ]
    found = exhibits.by_level(_held(tmp_path / "rows.jsonl", list(rows)), seed=1)
    table = exhibits.gains(found)
    assert [row["change, pp"] for row in table] == [0.0, 100.0, 100.0, 66.7]
    assert [row["ratio, %"] for row in exhibits.rates(found["all"])][1] < 100
    assert list(found) == ["level 1", "level 2", "level 3", "all"]
    gains = [found[name]["accuracy"]["difference"] for name in found]
    assert gains == pytest.approx([0.0, 1.0, 1.0, 2 / 3])
    points = exhibits.plane(found)
    assert points[0]["x"] < points[1]["x"] < points[2]["x"]
    assert all(point["x_low"] <= point["x"] <= point["x_high"] for point in points)


def _timed(ttft: float, ttfa: float | None, latency: float) -> list[dict[str, object]]:
    """Return rows of three server starts; a start slows everything by its number in per cent."""
    return [
        {
            "id": f"1-{number:04d}",
            "arm": arm,
            "block": f"{number % 3}",
            "content": "2",
            "correct": True,
            "ttft_s": ttft * (1 + number % 3 / 100),
            **({} if ttfa is None else {"ttfa_s": ttfa * (1 + number % 3 / 100)}),
            "e2e_s": latency * (1 + number % 3 / 100) * (2 if arm == "on" else 1),
        }
        for number in range(12)
        for arm in ("on", "off")
    ]


def test_the_answers_first_token_has_a_time_of_its_own(tmp_path: Path) -> None:
    held = _held(tmp_path / "rows.jsonl", _timed(0.1, 0.3, 0.4))
    first, answer, last = delays.delays(held)
    assert first.on is not None and answer.on is not None
    assert last.ratio is not None and last.on is not None
    assert (first.on.low, first.on.high) < (0.1 * 1.01, 0.1 * 1.03)
    assert first.on.value == pytest.approx(0.101, rel=1e-3)
    assert answer.on.value == pytest.approx(0.303, rel=1e-3)
    assert last.ratio.value == pytest.approx(2.0)
    assert [row["time to the"] for row in exhibits.times(held)] == [
        "first token",
        "first token of the answer",
        "last token",
    ]


def test_a_time_that_no_answer_has_is_not_shown(tmp_path: Path) -> None:
    held = _held(tmp_path / "rows.jsonl", _timed(0.1, None, 0.4))
    answer = delays.delays(held)[1]
    assert (answer.on, answer.ratio, answer.timed, answer.asked) == (None, None, (0, 0), (12, 12))
    assert exhibits.times(held)[1]["answers timed, with"] == "0 of 12"


def test_one_server_start_gives_a_time_and_no_interval(tmp_path: Path) -> None:
    rows = [{**row, "block": "0"} for row in _timed(0.1, 0.3, 0.4)]
    first = delays.delays(_held(tmp_path / "rows.jsonl", rows))[0]
    assert first.on is not None and first.on.n == 1 and first.ratio is None
    assert "to" not in exhibits.times(_held(tmp_path / "rows.jsonl", rows))[0]["with, ms"]


def test_arms_that_cannot_be_compared_have_a_page_of_dashes(tmp_path: Path) -> None:
    rows = [{**row, "content": "", "correct": False} for row in _timed(0.1, 0.3, 0.4)]
    found = exhibits.by_level(_held(tmp_path / "rows.jsonl", rows), seed=1)
    assert found["all"]["verdict"] == "censored"
    assert exhibits.gains(found)[-1]["change, pp"] is None
    assert exhibits.rates(found["all"]) == exhibits.plane(found) == []
    assert exhibits.said(found["all"]).startswith("censored (empty-answers: 12 of 12")
    claim = store.claim("reasoning-mode-overhead")
    held = _held(tmp_path / "rows.jsonl", rows)
    assert outcome.record_reasoning(claim, held, found["all"], parameters={}) == []


def test_questions_without_levels_are_compared_together(tmp_path: Path) -> None:
    rows = [{**row, "id": f"task-{row['id']}"} for row in _timed(0.1, 0.3, 0.4)]
    assert list(exhibits.by_level(_held(tmp_path / "rows.jsonl", rows), seed=1)) == ["all"]


def test_the_committed_exam_has_every_time_of_every_answer() -> None:
    for delay in delays.delays(study.committed("reasoning-mode-overhead")):
        assert delay.timed == delay.asked
        assert delay.ratio is not None and delay.ratio.low <= delay.ratio.value


@pytest.mark.parametrize("claim", ["reasoning-mode-overhead", "mix-quant-kvserve"])
def test_what_is_committed_passed_its_gates_and_has_at_least_500_questions(claim: str) -> None:
    held = study.committed(claim)
    assert all(gate.passed for gate in held.gates)
    names = [row["id"] for row in study.rows(held, "correct")]
    each = names if isinstance(names[0], str) else names[0]
    assert len(set(each)) >= 500
    assert held.file.stat().st_size < 500_000
    assert store.shown(held.file).startswith("data/evidence/")
