"""WebAssembly is timed in a fresh process, or refused in words where its runtime is missing."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from assay.bench import wasm
from assay.errors import InputError, RunError

STEPS = {"compile": 0.001, "first_instance": 0.0001, "instance": 1e-5, "after": 0.02}


class Done:
    def __init__(self, code: int, out: str, err: str = "") -> None:
        self.returncode, self.stdout, self.stderr = code, out, err


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wasm, "version", lambda: "50.0.1")


def _answer(monkeypatch: pytest.MonkeyPatch, done: Done) -> None:
    def run(*_: Any, **__: Any) -> Done:
        return done

    monkeypatch.setattr(subprocess, "run", run)


def test_without_the_runtime_nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wasm, "version", lambda: "")
    with pytest.raises(InputError, match="wasmtime is not installed"):
        wasm.seconds()


def test_every_named_step_is_returned(monkeypatch: pytest.MonkeyPatch, installed: None) -> None:
    _answer(monkeypatch, Done(0, json.dumps(STEPS)))
    assert set(wasm.seconds()) == set(wasm.QUANTITIES)


def test_what_follows_the_first_answer_is_no_part_of_the_start(
    monkeypatch: pytest.MonkeyPatch, installed: None
) -> None:
    _answer(monkeypatch, Done(0, json.dumps(STEPS | {"after": 1e6})))
    assert wasm.seconds()["process"] < 0


def test_a_process_that_fails_is_told_by_its_last_line(
    monkeypatch: pytest.MonkeyPatch, installed: None
) -> None:
    _answer(monkeypatch, Done(1, "", "Traceback\nOSError: no code memory\n"))
    with pytest.raises(RunError, match="no code memory"):
        wasm.seconds()


@pytest.mark.skipif(bool(wasm.absent()), reason=wasm.absent() or "installed")
def test_the_runtime_itself_answers() -> None:
    assert wasm.seconds()["instance"] > 0
