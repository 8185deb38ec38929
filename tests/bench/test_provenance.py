"""Provenance: what the machine did, through NVML or the kernel, and what it cost."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

from assay.bench import protocol, provenance, synthetic
from assay.bench.protocol.window import Watched, Window
from assay.errors import InputError


class Nvml(types.ModuleType):
    """A driver with one GPU that is held down by its power cap from the second look on."""

    NVMLError = type("NVMLError", (Exception,), {})
    NVML_CLOCK_SM = 1

    def __init__(self, *, counts_energy: bool = True) -> None:
        super().__init__("pynvml")
        self.counts_energy = counts_energy
        self.energy = itertools.count(1_000_000, 700_000)  # mJ
        self.looks = 0
        self.closed = 0

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None:
        self.closed += 1

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.1"

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index:
            raise self.NVMLError
        return index

    def nvmlDeviceGetName(self, _: int) -> str:
        return "NVIDIA A100-SXM4-80GB"

    def nvmlDeviceGetClockInfo(self, *_: int) -> int:
        return 1410 if self.looks < 2 else 1200  # MHz

    def nvmlDeviceGetPowerUsage(self, _: int) -> int:
        return 300_000  # mW

    def nvmlDeviceGetMemoryInfo(self, _: int) -> types.SimpleNamespace:
        return types.SimpleNamespace(used=2**30, total=80 * 2**30)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, _: int) -> int:
        self.looks += 1
        return 0x1 if self.looks < 2 else 0x4  # idle, then software power cap

    def nvmlDeviceGetTotalEnergyConsumption(self, _: int) -> int:
        if not self.counts_energy:
            raise self.NVMLError
        return next(self.energy)


def watch(monkeypatch: pytest.MonkeyPatch, driver: Nvml, devices: int = 1) -> Watched:
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    look = provenance.Watch(devices)
    look.begin()
    time.sleep(0.25)
    return look.end()


def test_a_gpu_is_watched_through_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Nvml()
    seen = watch(monkeypatch, driver)
    assert seen.device == "1 × NVIDIA A100-SXM4-80GB"
    assert (seen.clock_low, seen.clock_high) == (1200e6, 1410e6)
    assert seen.memory == 2**30
    assert seen.energy == 700.0
    assert seen.reasons == ("software power cap",)
    assert seen.throttled is not None
    assert 0.4 < seen.throttled < 1.0  # all looks but the first
    assert driver.closed == 1


def test_without_an_energy_counter_power_is_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watch(monkeypatch, Nvml(counts_energy=False))
    assert seen.power == pytest.approx(300.0)
    assert seen.energy is not None
    assert seen.energy >= 300.0 * 0.25


def test_an_idle_clock_is_not_a_throttled_one(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Nvml()
    driver.nvmlDeviceGetCurrentClocksThrottleReasons = lambda _: 0x1 | 0x2 | 0x10  # type: ignore[method-assign]
    assert watch(monkeypatch, driver).throttled == 0.0


def test_without_a_gpu_the_processor_is_watched() -> None:
    look = provenance.Watch(0)
    look.begin()
    time.sleep(0.15)
    seen = look.end()
    assert seen.device not in ("", "unknown")
    assert seen.throttled is not None
    assert seen.throttled >= 0.0


def test_a_gpu_that_is_not_there_leaves_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watch(monkeypatch, Nvml(), devices=2)
    assert "A100" not in seen.device


def test_a_watch_that_never_began_saw_nothing() -> None:
    assert provenance.Watch(0).end() == Watched()


def test_a_quota_that_stops_the_processor_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stops = iter([10.0, 10.5])
    monkeypatch.setattr(provenance, "_quota_stops", lambda: next(stops))
    look = provenance.Watch(0)
    look.begin()
    time.sleep(0.1)
    seen = look.end()
    assert seen.reasons == ("processor quota",)
    assert seen.throttled is not None
    assert seen.throttled > 0.02


@pytest.mark.parametrize(
    ("file", "text", "seconds"),
    [
        ("/sys/fs/cgroup/cpu.stat", "nr_throttled 3\nthrottled_usec 2500000\n", 2.5),
        ("/sys/fs/cgroup/cpu/cpu.stat", "nr_throttled 3\nthrottled_time 2500000000\n", 2.5),
    ],
)
def test_both_forms_of_a_quota_are_read(
    monkeypatch: pytest.MonkeyPatch, file: str, text: str, seconds: float
) -> None:
    monkeypatch.setattr(provenance, "_read", lambda name: text if name == file else "")
    assert provenance._quota_stops() == pytest.approx(seconds)


# -- records --------------------------------------------------------------------------------------


@pytest.fixture
def window(tmp_path: Path) -> Window:
    found = {
        "block": 1, "arm": "a", "load": "l", "seed": 1, "fresh": True, "first": True,
        "started": "2026-11-30T00:00:00+00:00", "ended": "2026-11-30T00:00:10+00:00",
        "duration": 10.0, "asked": 1, "completed": 1, "asked_input": 1, "asked_output": 500,
        "input_tokens": 1, "output_tokens": 500, "chunks": 500, "concurrency": 1, "rate": None,
        "in_flight": 1, "arrivals": None, "server": None, "compiled": [], "busy": 0.1,
        "lateness": 0.0, "sending": 0.0,
        "watched": dataclasses.asdict(Watched(device="A GPU", energy=1000.0)),
        "values": {}, "samples": {},
    }  # fmt: skip
    return Window.from_json(found)


def test_energy_per_token_counts_output_only(window: Window) -> None:
    assert provenance.joules_per_token([window, window]) == 2.0


def test_energy_that_is_unknown_once_is_unknown(window: Window) -> None:
    silent = dataclasses.replace(window, watched=Watched())
    assert provenance.joules_per_token([window, silent]) is None


def test_a_million_tokens_at_a_dollar_an_hour() -> None:
    # 1 USD/h at 1e6/3600 tok/s makes a million tokens an hour.
    assert provenance.usd_per_million_tokens(price=1.0, rate=1e6 / 3600) == pytest.approx(1.0)


@pytest.mark.parametrize(("price", "rate"), [(0.0, 1.0), (1.0, 0.0), (-1.0, 5.0)])
def test_a_price_and_a_rate_are_above_zero(price: float, rate: float) -> None:
    with pytest.raises(InputError, match="must be above 0"):
        provenance.usd_per_million_tokens(price=price, rate=rate)


def test_the_record_says_what_ran_and_when(window: Window) -> None:
    later = dataclasses.replace(window, ended="2026-11-30T01:00:00+00:00")
    found = provenance.provenance(synthetic.serve(), [window, later])
    assert found.engine == "synthetic"
    assert found.device == "A GPU"
    assert (found.started, found.ended) == (window.started, later.ended)
    assert found.packages["python"].count(".") == 2
    assert "--ttft" in found.flags


def test_no_folder_of_this_machine_gets_into_the_flags(window: Window, tmp_path: Path) -> None:
    made = dataclasses.replace(synthetic.serve(), command=("serve", str(tmp_path)))
    assert provenance.provenance(made, [window]).flags == (tmp_path.name,)


def git(folder: Path, *arguments: str) -> None:
    settings = ("-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *settings, *arguments], cwd=folder, check=True, capture_output=True)


def test_the_commit_tells_of_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_ROOT", str(tmp_path))
    assert provenance.commit() == "unknown"
    git(tmp_path, "init")
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-m", "one")
    clean = provenance.commit()
    assert len(clean) == 40
    (tmp_path / "a").write_text("2")
    assert provenance.commit() == f"{clean}+"


def test_a_plan_names_the_packages_it_holds_for() -> None:
    from assay.bench.load import Load

    asked = Load(requests=1, input_tokens=1, output_tokens=1, concurrency=1)
    plan = protocol.Plan(arms={"a": synthetic.serve()}, loads={"l": asked}, blocks=1, seed=0)
    assert plan.to_json()["packages"] == provenance.packages()
