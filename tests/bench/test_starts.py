"""Starts are taken in random order, kept one by one, and put under the statement they bear on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.bench import coldness, starts
from assay.errors import InputError, RunError
from assay.ledger import judge, records, store

SECONDS = {"vllm-eager": 20.0, "transformers": 8.0, "wasmtime": 1e-5}


@pytest.fixture
def claim() -> records.Claim:
    return store.claim("wasm-cold-start")


@pytest.fixture
def staging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(store.STAGING, str(tmp_path / "staged"))
    return tmp_path


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, int]]]:
    """Engines that start at once; the fixture's value lists what was started."""
    order: list[tuple[str, int]] = []

    def start(arm: str, block: int, place: Path) -> list[starts.Row]:
        order.append((arm, block))
        quantity = "instance" if arm == "wasmtime" else starts.FIRST
        return [
            {
                "subject": {"wasmtime": "Wasmtime"}.get(arm, "vLLM (CPU build)"),
                "version": "1.0",
                "arm": arm,
                "block": str(block),
                "started": f"2026-11-30T22:0{block}:00+00:00",
                "quantity": quantity,
                "seconds": f"{SECONDS[arm] * (1 + block / 100):.6g}",
                "load_average": "0.50",
            }
        ]

    monkeypatch.setattr(starts, "_start", start)
    yield order


def _measured(place: Path, **options: int) -> Path:
    return starts.measure(place, arms=tuple(SECONDS), tell=lambda _: None, **options)


def test_every_engine_starts_as_often_in_an_order_of_its_own(
    tmp_path: Path, started: list[tuple[str, int]]
) -> None:
    _measured(tmp_path)
    assert sorted(started) == sorted((arm, b) for arm in SECONDS for b in range(1, 6))
    blocks = {tuple(arm for arm, n in started if n == b) for b in range(1, 6)}
    assert len(blocks) > 1


def test_the_order_follows_from_the_seed(tmp_path: Path, started: list[tuple[str, int]]) -> None:
    _measured(tmp_path / "a", seed=1)
    _measured(tmp_path / "b", seed=1)
    half = len(started) // 2
    assert started[:half] == started[half:]


def test_a_run_that_was_broken_off_goes_on(
    tmp_path: Path, started: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _measured(tmp_path, blocks=2)
    before = len(started)
    file = _measured(tmp_path, blocks=3)
    assert len(started) - before == len(SECONDS)
    assert len(store.read_csv(file)) == 3 * len(SECONDS)


def test_starts_before_a_failure_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(arm: str, block: int, place: Path) -> list[starts.Row]:
        if block == 2:
            raise RunError("crashed", where="vLLM")
        return [
            dict.fromkeys(
                ("subject", "version", "started", "quantity", "seconds", "load_average"), "1"
            )
            | {"arm": arm, "block": str(block)}
        ]

    monkeypatch.setattr(starts, "_start", fail)
    with pytest.raises(RunError, match="crashed"):
        starts.measure(tmp_path, arms=("transformers",), tell=lambda _: None)
    assert len(store.read_csv(tmp_path / "starts.csv")) == 1


def test_an_unknown_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown arm 'ollama'"):
        starts.measure(tmp_path, arms=("ollama",))


def test_what_is_not_installed_is_not_started_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starts, "_is_installed", lambda name: name == "vllm")
    monkeypatch.setattr(starts.wasm, "version", lambda: "")
    assert starts.installed() == ("vllm-eager",)


def test_one_start_alone_has_no_interval(tmp_path: Path, started: list[tuple[str, int]]) -> None:
    assert starts.spread(store.read_csv(_measured(tmp_path, blocks=1))) == {}


def test_the_mean_lies_in_its_interval(tmp_path: Path, started: list[tuple[str, int]]) -> None:
    for mean in starts.spread(store.read_csv(_measured(tmp_path))).values():
        assert mean.low < mean.value < mean.high
        assert mean.n == 5


def test_where_nothing_was_measured_there_are_no_rows() -> None:
    assert starts.committed("nano-vllm-size") == []
    assert starts.table([]) == []


# -- what they say --------------------------------------------------------------------------------


def test_an_engine_started_on_a_processor_says_nothing_about_one_on_a_gpu(
    claim: records.Claim, staging: Path, started: list[tuple[str, int]]
) -> None:
    items = coldness.record_measured(claim, _measured(staging), parameters={})
    engines = [item for item in items if item.assertion == "engine-minutes"]
    assert len(engines) == 2
    found = judge.decide(claim.assertion("engine-minutes"), engines)
    assert (found.status, found.reason) == ("open", "out-of-scope")


def test_instances_in_wasmtime_say_nothing_about_spinkube(
    claim: records.Claim, staging: Path, started: list[tuple[str, int]]
) -> None:
    items = coldness.record_measured(claim, _measured(staging), parameters={})
    wasm = [item for item in items if item.assertion == "spinkube-microseconds"]
    found = judge.decide(claim.assertion("spinkube-microseconds"), wasm)
    assert len(wasm) == 1
    assert (found.status, found.reason) == ("open", "out-of-scope")


def test_where_starts_were_measured_is_told_with_day_and_load(
    claim: records.Claim, staging: Path, started: list[tuple[str, int]]
) -> None:
    file = _measured(staging)
    coldness.record_measured(claim, file, parameters={})
    said = coldness.where(claim.id, store.read_csv(file))
    assert "on 2026-11-30, at a load average of 0.5 to 0.5" in said
    assert "Nothing is committed yet" in coldness.where(claim.id, [])


def test_fewer_than_five_starts_decide_nothing(
    claim: records.Claim, staging: Path, started: list[tuple[str, int]]
) -> None:
    items = coldness.record_measured(claim, _measured(staging, blocks=4), parameters={})
    engines = [item for item in items if item.assertion == "engine-minutes"]
    assert not any(gate.passed for item in engines for gate in item.gates[:1])
    assert judge.decide(claim.assertion("engine-minutes"), engines).status == "open"


def test_published_starts_go_under_the_statement_they_are_about(
    claim: records.Claim, staging: Path
) -> None:
    items = coldness.record_published(claim, parameters={})
    wasm = {i.conditions["engine"] for i in items if i.assertion == "spinkube-microseconds"}
    engines = {i.conditions["engine"] for i in items if i.assertion == "engine-minutes"}
    assert wasm == {"spinkube", "spin", "hybridserve", "runwasi"}
    assert {"vllm", "ollama", "transformers"} <= engines
    assert not wasm & engines


def test_waking_a_sleeping_process_is_no_cold_start(claim: records.Claim, staging: Path) -> None:
    # llm-d, pull request 2492: 4.0 s for a process that was there before.
    items = coldness.record_published(claim, parameters={})
    assert 4.0 not in {item.estimate.value for item in items}


def test_a_claim_without_these_statements_is_given_nothing(staging: Path) -> None:
    other = store.claim("wasi-nn-standard")
    assert coldness.record_published(other, parameters={}) == []


def test_a_printed_range_keeps_its_ends_and_a_figure_its_rounding() -> None:
    rows = {row["row"]: row for row in store.published("measurements")}
    value, low, high = coldness.printed(rows["waas-spinkube-cold-start"])
    assert (low, high) == pytest.approx((0.005, 0.020))
    assert value == pytest.approx(0.010)
    value, low, high = coldness.printed(rows["vllm-20264-cold-start"])
    assert (value, low, high) == pytest.approx((59.0, 58.5, 59.5))


def test_points_of_the_figure_come_fastest_first(
    claim: records.Claim, tmp_path: Path, started: list[tuple[str, int]]
) -> None:
    points = coldness.figure(claim, store.read_csv(_measured(tmp_path)))
    values = [float(str(point["value"])) for point in points]
    assert values == sorted(values)
    assert points[0]["label"] == "a Wasm instance, here"
