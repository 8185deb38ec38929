"""The twin's step log is the real engine's, step for step."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from assay.bench import checkpoint, private
from assay.bench.twin import validate
from assay.errors import RunError
from assay.ledger import store

WHY_NOT = private.absent()
needs_engine = pytest.mark.skipif(bool(WHY_NOT), reason=f"{WHY_NOT}: no engine to lay it beside")
QUICK = ("burst with preemption", "without chunks", "host tier, evicted prefixes")

# vLLM changes its process for good, so both sides run in others.
AGREE = """
import json, sys
from pathlib import Path
from assay.bench import checkpoint
from assay.bench.twin import validate
names, folder = sys.argv[1].split(";"), Path(sys.argv[2])
cases = [c for c in validate.CASES if c.name in names]
made = checkpoint.make(folder=folder)
for found in (validate.agree(c, made) for c in cases):
    print("FOUND", json.dumps([found.name, found.steps, found.preemptions, found.external,
                               found.identical]), flush=True)
"""


def agree(names: tuple[str, ...], folder: Path) -> dict[str, list[object]]:
    import json

    done = subprocess.run(
        [sys.executable, "-c", AGREE, ";".join(names), str(folder)],
        capture_output=True,
        text=True,
        timeout=1800,
    )
    rows = [
        json.loads(line.removeprefix("FOUND "))
        for line in done.stdout.splitlines()
        if line.startswith("FOUND ")
    ]
    assert len(rows) == len(names), done.stderr[-2000:]
    return {row[0]: row[1:] for row in rows}


def test_there_are_a_dozen_different_cases() -> None:
    assert len({case.name for case in validate.CASES}) == len(validate.CASES) >= 12
    assert {case.budget for case in validate.CASES} >= {128, 512, 1024, 2048}
    assert {case.chunked for case in validate.CASES} == {True, False}
    assert {case.prefix_caching for case in validate.CASES} == {True, False}
    assert any(case.host_blocks for case in validate.CASES)


@pytest.mark.engine
@needs_engine
def test_each_step_of_the_twin_is_that_of_the_real_engine(tmp_path: Path) -> None:
    found = agree(QUICK, tmp_path)
    assert all(identical for *_, identical in found.values()), found
    assert found["burst with preemption"][1] != 0
    assert found["host tier, evicted prefixes"][2] != 0


@pytest.mark.engine
@pytest.mark.slow
@needs_engine
def test_each_step_is_the_same_in_all_cases(tmp_path: Path) -> None:
    names = tuple(case.name for case in validate.CASES)
    found = agree(names, tmp_path)
    assert [name for name, (*_, identical) in found.items() if not identical] == []


@pytest.mark.engine
@needs_engine
def test_an_engine_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    store.write(tmp_path / "config.json", store.json_text(checkpoint.SMALL.config()))
    with pytest.raises(RunError, match=r"did not finish 'few at once' in 0\.5 s"):
        validate.real(_few(), tmp_path, in_steps=True, seconds=0.5)


@pytest.mark.engine
@needs_engine
def test_an_engine_without_a_model_says_why_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"did not serve 'few at once'.*config\.json"):
        validate.real(_few(), tmp_path, in_steps=True, seconds=120)


def _few() -> validate.Case:
    return next(case for case in validate.CASES if case.name == "few at once")
