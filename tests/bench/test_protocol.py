"""Protocol: blocks are fresh, interleaved, finished or not there, and never mixed."""

from __future__ import annotations

import dataclasses
import importlib.util
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

from assay.bench import load, measurement, protocol, synthetic
from assay.bench.engines import server
from assay.bench.load import rows
from assay.bench.load.client import Outcome
from assay.bench.protocol import window
from assay.errors import InputError, RecordError, RunError
from assay.ledger import store

HERE = Path(__file__).parent


def _stand_in() -> ModuleType:
    spec = importlib.util.spec_from_file_location("stand_in", HERE / "stand_in.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["stand_in"] = module
    spec.loader.exec_module(module)
    return module


stand_in = _stand_in()


def table(windows: list[window.Window]) -> list[tuple[Any, ...]]:
    """What a plan fixes of a result, times left out."""
    return [
        (w.block, w.arm, w.load, w.seed, w.completed, w.input_tokens, w.output_tokens, w.chunks)
        for w in windows
    ]


@pytest.fixture(scope="module")
def told() -> list[protocol.Progress]:
    """What the finished run told while it was at work."""
    return []


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory, told: list[protocol.Progress]
) -> tuple[Path, list[window.Window]]:
    folder = tmp_path_factory.mktemp("run")
    client = stand_in.StandIn()
    return folder, protocol.run(stand_in.plan(2), folder, drive=client, tell=told.append)


@pytest.fixture
def copy(finished: tuple[Path, list[window.Window]], tmp_path: Path) -> Path:
    """A copy of the finished run's folder, to be spoilt."""
    return Path(shutil.copytree(finished[0], tmp_path / "copy"))


def test_every_block_starts_every_arm_once_and_runs_every_load(
    finished: tuple[Path, list[window.Window]],
) -> None:
    _, windows = finished
    seen = sorted((w.block, w.arm, w.load) for w in windows)
    assert seen == [(b, a, n) for b in (1, 2) for a in ("quick", "slow") for n in ("few", "many")]
    assert all(w.fresh and w.first for w in windows)


def test_client_and_server_count_alike(finished: tuple[Path, list[window.Window]]) -> None:
    for found in finished[1]:
        assert found.server is not None
        assert (found.server.prompt, found.server.output) == (
            found.input_tokens,
            found.output_tokens,
        )


def test_a_finished_run_is_not_run_again(finished: tuple[Path, list[window.Window]]) -> None:
    folder, windows = finished
    client = stand_in.StandIn()
    assert protocol.run(stand_in.plan(2), folder, drive=client) == windows
    assert client.seeds == []


def test_windows_survive_the_trip_through_their_record(
    finished: tuple[Path, list[window.Window]],
) -> None:
    folder, windows = finished
    assert protocol.windows(folder) == windows


def test_the_rows_of_a_block_lie_beside_its_record(
    finished: tuple[Path, list[window.Window]],
) -> None:
    kept = rows.read(finished[0] / "blocks" / "0001.parquet")
    assert len(kept) == 2 * (2 + 4)
    assert {row["arm"] for row in kept} == {"quick", "slow"}
    assert all(row["ttft_s"] > 0 for row in kept)


def test_another_plan_is_refused_in_the_same_folder(
    finished: tuple[Path, list[window.Window]],
) -> None:
    with pytest.raises(InputError, match=r"another plan was begun here \(blocks, seed differs\)"):
        protocol.run(stand_in.plan(3, seed=1), finished[0], drive=stand_in.StandIn())


def test_changed_rows_are_refused(copy: Path) -> None:
    kept = copy / "blocks" / "0001.parquet"
    kept.write_bytes(kept.read_bytes() + b" ")
    with pytest.raises(RecordError, match="its requests are missing or were changed"):
        protocol.run(stand_in.plan(2), copy, drive=stand_in.StandIn())


def test_blocks_without_a_plan_are_refused(copy: Path) -> None:
    (copy / "plan.json").unlink()
    with pytest.raises(InputError, match="finished blocks without their plan"):
        protocol.run(stand_in.plan(2), copy, drive=stand_in.StandIn())


def test_two_processes_do_not_measure_in_one_folder(tmp_path: Path) -> None:
    class Nosy:
        def run(self, *_: object, **__: object) -> Outcome:
            protocol.run(stand_in.plan(1), tmp_path, drive=stand_in.StandIn())
            raise AssertionError("not refused")

    with pytest.raises(InputError, match="another process measures in this folder"):
        protocol.run(stand_in.plan(1), tmp_path, drive=Nosy())


def test_the_order_is_random_and_recorded_by_its_seed() -> None:
    plan = stand_in.plan(200)
    orders = [plan.order(block) for block in range(1, 201)]
    assert orders == [stand_in.plan(200).order(block) for block in range(1, 201)]
    first = sum(order[0][0] == "quick" for order in orders)
    assert 70 < first < 130  # 6.6 standard deviations around 100 would be 54 to 146
    assert orders != [stand_in.plan(200, seed=1).order(block) for block in range(1, 201)]


def test_prompts_differ_between_blocks_and_loads_and_not_between_arms(
    finished: tuple[Path, list[window.Window]],
) -> None:
    seeds = {(w.block, w.load): set() for w in finished[1]}  # type: ignore[var-annotated]
    for found in finished[1]:
        seeds[found.block, found.load].add(found.seed)
    assert all(len(each) == 1 for each in seeds.values())
    assert len(set.union(*seeds.values())) == len(seeds)


def test_a_warm_up_has_prompts_of_its_own(tmp_path: Path) -> None:
    client = stand_in.StandIn()
    asked = load.Load(requests=2, input_tokens=3, output_tokens=2, concurrency=1)
    quick = synthetic.serve(synthetic.Behaviour(ttft=0.0, tpot=0.0))
    plan = protocol.Plan(arms={"a": quick}, loads={"l": asked}, blocks=1, seed=0)
    windows = protocol.run(plan, tmp_path, drive=client)
    assert len(client.seeds) == len(set(client.seeds)) == 2
    assert windows[0].server is not None
    assert windows[0].server.output == 4  # the warm-up's tokens are not counted


@pytest.mark.usefixtures("finished")
def test_progress_tells_the_time_left_once_a_block_is_done(told: list[protocol.Progress]) -> None:
    assert told[0].remaining is None
    assert told[-1].remaining is not None
    assert 0 < told[-1].remaining < 60
    assert str(told[0]).startswith("block 1 of 2: starting synthetic")


def test_a_block_whose_engine_fails_never_happened(tmp_path: Path) -> None:
    broken = dataclasses.replace(
        synthetic.serve(), command=(sys.executable, "-c", "raise ValueError('no')")
    )
    asked = load.Load(requests=1, input_tokens=1, output_tokens=1, concurrency=1)
    plan = protocol.Plan(arms={"a": broken}, loads={"l": asked}, blocks=1, seed=0)
    with pytest.raises(RunError, match="crashed"):
        protocol.run(plan, tmp_path, drive=stand_in.StandIn())
    assert protocol.windows(tmp_path) == []


# -- killed at random -----------------------------------------------------------------------------


def _killed(folder: Path, blocks: int, times: int, chance: random.Random) -> int:
    """Kill a run at random moments until it has been killed so often or is done; count orphans."""
    orphans = kills = 0
    while kills < times:
        work = subprocess.Popen(
            [sys.executable, str(HERE / "stand_in.py"), str(folder), str(blocks)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            work.wait(timeout=chance.uniform(0.3, 1.5))
        except subprocess.TimeoutExpired:
            tree = psutil.Process(work.pid).children(recursive=True)
            work.kill()
            kills += 1
            orphans += _left(tree)
        status = work.wait()
        assert_whole(folder)
        if status == 0:
            break
        assert status == -9
    return orphans


def _left(tree: list[psutil.Process], within: float = 10.0) -> int:
    """Count the processes that still run after a time; one that init has yet to reap has ended."""
    until = time.monotonic() + within
    while running := [process for process in tree if _runs(process)]:
        if time.monotonic() > until:
            break
        time.sleep(0.02)
    return len(running)


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def assert_whole(folder: Path) -> None:
    """Every record that is there is a whole one, and nothing else is taken for one."""
    for file in (folder / "blocks").glob("[0-9]*.json"):
        assert store.read_json(file)["schema"] == 1
    protocol.windows(folder)


def _resumes(tmp_path: Path, blocks: int, times: int) -> None:
    seed = 20261130
    assert _killed(tmp_path / "killed", blocks, times, random.Random(seed)) == 0
    resumed = protocol.run(stand_in.plan(blocks), tmp_path / "killed", drive=stand_in.StandIn())
    straight = protocol.run(stand_in.plan(blocks), tmp_path / "straight", drive=stand_in.StandIn())
    assert table(resumed) == table(straight)
    left = {file.name for file in (tmp_path / "killed").iterdir()}
    assert left == {"plan.json", "lock", "blocks"}


def test_a_run_killed_at_random_moments_gives_the_same_table(tmp_path: Path) -> None:
    _resumes(tmp_path, blocks=3, times=4)


@pytest.mark.slow
def test_a_run_killed_thirty_times_gives_the_same_table(tmp_path: Path) -> None:
    _resumes(tmp_path, blocks=16, times=30)


# -- measure --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> measurement.Measurement:
    # Long gaps, so that a busy machine's delays do not drown the difference.
    arms = {
        name: synthetic.serve(synthetic.Behaviour(ttft=0.02, tpot=gap))
        for name, gap in (("quick", 0.02), ("slow", 0.04))
    }
    return measurement.measure(
        arms,
        {"many": stand_in.plan(5).loads["many"]},
        name="test",
        place=tmp_path_factory.mktemp("measured"),
        drive=stand_in.StandIn(),
        ceiling=1e6,
    )


def test_measure_finds_the_known_ratio(measured: measurement.Measurement) -> None:
    # 5 gaps of 20 ms against 5 of 40 ms, both after 20 ms: 220 ms to 120 ms.
    found = measured.ratio("e2el", "slow", "quick", load="many")
    assert found.unit == "1"
    assert found.low is not None and found.high is not None
    assert 1.3 < found.value < 2.2
    assert found.low <= found.value <= found.high


def test_measure_passes_every_gate_on_an_honest_server(measured: measurement.Measurement) -> None:
    found = measured.gates("output_throughput", arm="quick", load="many")
    held_by_this_machine = {"clocks-steady", "client-not-bottleneck"}
    assert [g for g in found if not g.passed and g.id not in held_by_this_machine] == []


def test_measure_fills_what_the_ledger_asks_for(
    measured: measurement.Measurement, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_ROOT", str(tmp_path))
    given = measured.record("tpot", claim_id="a-claim", arm="quick", load="many")
    kept = store.path(*given["samples"].split("/"))
    assert len(rows.read(kept)) == 5 * 2 * 4
    assert given["samples"].startswith("data/evidence/a-claim/samples-")
    assert given["unit"] == "s/tok" or given["unit"] == "s"
    assert given["n"] == 5
    assert given["provenance"].engine == "synthetic"


def test_a_name_is_needed_where_there_are_several(measured: measurement.Measurement) -> None:
    with pytest.raises(InputError, match="use one of quick, slow"):
        measured.estimate("ttft")


def test_an_unknown_metric_is_named(measured: measurement.Measurement) -> None:
    with pytest.raises(InputError, match="unknown metric 'speed'"):
        measured.estimate("speed", arm="quick", load="many")


def test_two_loads_of_one_name_are_refused(tmp_path: Path) -> None:
    asked = load.Load(requests=1, input_tokens=1, output_tokens=1, concurrency=1)
    with pytest.raises(InputError, match="two loads have one name"):
        measurement.measure({"a": synthetic.serve()}, [asked, asked], name="x", place=tmp_path)


def test_an_address_cannot_be_a_block(tmp_path: Path) -> None:
    from assay.bench.engines import openai

    with server.start(synthetic.serve(), tmp_path / "theirs") as theirs:
        there = openai.at(
            theirs.url, model="synthetic", tokenizer="t", counts=synthetic.COUNTS, devices=0
        )
        asked = load.Load(requests=1, input_tokens=1, output_tokens=1, concurrency=1)
        found = measurement.measure(
            {"a": there},
            [asked],
            name="x",
            place=tmp_path / "run",
            drive=stand_in.StandIn(),
            blocks=2,
        )
    gates = {gate.id: gate for gate in found.gates("output_throughput")}
    assert not gates["cold-starts"].passed
    assert "not started afresh" in gates["cold-starts"].says


def test_a_folder_of_a_run_lies_below_the_build_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_ROOT", str(tmp_path))
    assert measurement.folder("x") == tmp_path / "_build" / "runs" / "x"
