"""A run either succeeds whole or changes nothing, and says which."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from assay.errors import InputError, RecordError
from assay.ledger import store
from assay.press import runner, worker

CLAIM = """\
title: A claim for tests
increment: "1"
quote: 一
quote_en: one
source: nobody
locator: nowhere
notebook: {notebook}
parameters: {parameters}
assertions:
  - id: value
    says: The value is 1.
    metric: output_throughput
    relation: about
    value: 1
    unit: tok/s
    band: {{low: 0.5, high: 1.5, why: a test}}
    scope: {{gpu: any, gpu_count: any, model: any, precision: any, engine: any,
      version: any, workload: any, counting: any}}
    decided_by: {{verify: [recomputed], dispute: [recomputed]}}
    falsifier: Another value.
    headline: true
"""

PARAMETERS = 'claim_id: str = "good"\nvalue: float = 1.0  # tok/s\npause: float = 0.0  # s'

SAVE = """\
from assay.ledger import records, store
evidence = records.Evidence(
    schema=1, claim=claim_id, assertion="value", basis="recomputed",
    estimate=records.Estimate(
        value=value, low=None, high=None, unit="tok/s", n=1, method="typed"),
    conditions={key: "any" for key in records.SCOPE_KEYS},
    finding="It is so.", gates=(), inputs=(),
    notebook=records.FileDigest(path="notebooks/n.ipynb", sha256="0" * 64),
    parameters={}, provenance=None, samples=None)
store.save(evidence)
"""

PAUSE = """\
import os, pathlib, subprocess, sys, time
if pause:
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    pathlib.Path("pids").write_text(f"{os.getppid()} {os.getpid()} {child.pid}")
    time.sleep(pause)
"""

LEAK = """\
import os, pathlib, socket
print(pathlib.Path.home() / "secret-model", "/home/somebody/bench", os.getcwd())
print("\\x1b[31m/home/\\x1b[0msomebody/x", os.environ["FAKE_API_KEY"])
store.save(evidence)
"""

NOTEBOOKS: dict[str, list[str]] = {
    "good": [SAVE],
    "leaky": [SAVE, LEAK],
    "cell_error": [SAVE, "raise ValueError('bad\\nresult')"],
    "swallowed": [SAVE, "%%time\nraise ValueError('bad result')", "1"],
    "thread": [
        SAVE,
        "import threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start()\nt.join()",
    ],
    "left_early": [SAVE, "raise SystemExit(0)", "1"],
    "killed": [SAVE, "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "1"],
    "no_record": ["1 + 1"],
    "other_claim": [SAVE, SAVE.replace("claim=claim_id", 'claim="good"')],
    "too_large": [SAVE, "from IPython.display import HTML\nHTML('x' * 11_000_000)"],
    "endless": [SAVE, "import time\nwhile True:\n    print('x' * 20_000)\n    time.sleep(0.001)"],
}


def write_notebook(root: Path, name: str, cells: list[str], **metadata: Any) -> None:
    code = [
        {"cell_type": "code", "id": f"c{i}", "execution_count": None, "outputs": [],
         "metadata": {"tags": ["parameters"]} if i == 0 else {}, "source": source}
        for i, source in enumerate([PARAMETERS, *cells])
    ]  # fmt: skip
    title = {"cell_type": "markdown", "id": "title", "metadata": {}, "source": "# A question"}
    content = {"cells": [title, *code], "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    (root / "notebooks" / f"{name}.ipynb").write_text(json.dumps(content))


def write_claim(root: Path, claim: str, notebook: str = "", parameters: str = "{}") -> None:
    text = CLAIM.format(notebook=notebook or claim.replace("-", "_"), parameters=parameters)
    (root / "data" / "claims" / f"{claim}.yml").write_text(text)


def make_project(root: Path) -> Path:
    for folder in ("data/claims", "data/hardware", "data/models", "notebooks"):
        (root / folder).mkdir(parents=True)
    (root / "data" / "sources.yml").write_text("{}\n")
    return root


def ledger(root: Path) -> dict[str, bytes]:
    files = [*root.glob("data/evidence/*/*"), *root.glob("_build/executed/*")]
    return {file.relative_to(root).as_posix(): file.read_bytes() for file in files}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the claim ``good``."""
    root = make_project(tmp_path / "pro{ject} 一")  # papermill formats paths; spaces are common
    monkeypatch.setenv("ASSAY_ROOT", str(root))
    write_notebook(root, "good", [SAVE, PAUSE])
    write_claim(root, "good")
    return root


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """One run of all of ``NOTEBOOKS`` in one project, and its outcomes by claim."""
    root = make_project(tmp_path_factory.mktemp("batch"))
    for name, cells in NOTEBOOKS.items():
        write_notebook(root, name, cells)
        write_claim(root, name.replace("_", "-"))
    write_claim(root, "future")
    events: list[runner.Event] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_ROOT", str(root))
        patch.setenv("FAKE_API_KEY", "sk-not-a-real-key")
        outcomes = runner.run(jobs=2, on_event=events.append)
        yield {"root": root, "events": events, **{o.claim: o for o in outcomes}}


def test_a_success_leaves_copy_evidence_and_record(batch: dict[str, Any]) -> None:
    root = batch["root"]
    assert batch["good"].state == "done", batch["good"].message
    assert [file.name for file in root.glob("data/evidence/good/*")]
    record = json.loads((root / "_build/executed/good.json").read_text())
    assert record["parameters"] == {"claim_id": "good", "value": 1, "pause": 0}
    executed = json.loads((root / "_build/executed/good.ipynb").read_text())
    assert [cell["execution_count"] for cell in executed["cells"] if "outputs" in cell] == [1, 2, 3]


def test_a_claim_without_a_notebook_is_not_a_failure(batch: dict[str, Any]) -> None:
    assert batch["future"].state == "not-written"


FAILURES = {
    "cell-error": "notebooks/cell_error.ipynb, cell 4: ValueError: bad / result",
    "swallowed": "notebooks/swallowed.ipynb, cell 4: ValueError: bad result",
    "thread": "cell 4: an error was swallowed: ZeroDivisionError: division by zero",
    "left-early": "notebooks/left_early.ipynb, cell 4: SystemExit: 0",
    "killed": "notebooks/killed.ipynb, cell 4: the kernel died (killed by SIGKILL",
    "no-record": "notebooks/no_record.ipynb: saved no evidence for no-record",
    "other-claim": "saved evidence for 'good' in a run of other-claim",
    "too-large": "cell 4: output of 11.0 MB is above the limit of 10 MB",
    "endless": "notebooks/endless.ipynb, cell 4: output of 1",
}


@pytest.mark.parametrize("claim", FAILURES)
def test_a_failure_is_one_sentence_with_its_cell_and_keeps_nothing(
    batch: dict[str, Any], claim: str
) -> None:
    outcome = batch[claim]
    assert outcome.state == "failed"
    assert FAILURES[claim] in outcome.message
    assert "\n" not in outcome.message
    assert not [path for path in ledger(batch["root"]) if claim in path]


def test_failures_make_the_exit_code_one(batch: dict[str, Any]) -> None:
    assert runner.exit_code([batch["good"], batch["killed"]]) == 1
    assert runner.exit_code([batch["good"], batch["future"]]) == 0


def test_every_claim_ends_once_and_cells_count_up_to_the_source(batch: dict[str, Any]) -> None:
    ends = [event.claim for event in batch["events"] if event.kind == "end"]
    assert sorted(ends) == sorted([*(n.replace("_", "-") for n in NOTEBOOKS), "future"])
    cells = [e.cell for e in batch["events"] if e.kind == "cell" and e.claim == "good"]
    assert cells == [1, 2, 2, 3]  # the injected cell counts as the one it follows


def test_a_failed_notebook_is_kept_aside_as_far_as_it_came(batch: dict[str, Any]) -> None:
    failed = json.loads((batch["root"] / "_build/failed/cell-error.ipynb").read_text())
    assert failed["cells"][-1]["outputs"][0]["ename"] == "ValueError"


def test_nothing_is_left_in_staging(batch: dict[str, Any]) -> None:
    assert not list((batch["root"] / "_build" / "staging").iterdir())


def test_an_executed_copy_does_not_say_whose_machine_ran_it(batch: dict[str, Any]) -> None:
    executed = json.loads((batch["root"] / "_build/executed/leaky.ipynb").read_text())
    assert "papermill" not in json.dumps(executed)
    text = "".join(str(cell.get("outputs")) for cell in executed["cells"])
    for trace in (str(batch["root"]), str(Path.home()), "somebody", "sk-not-a", "\\x1b"):
        assert trace not in text
    assert text.count("~/") == 3
    assert "data/evidence/leaky/value.recomputed." in text  # staging is where nobody will find it


def test_messages_do_not_either(batch: dict[str, Any]) -> None:
    said = " ".join(o.message for o in batch.values() if isinstance(o, runner.Outcome))
    assert str(batch["root"]) not in said


def test_nothing_is_run_again_until_an_input_changes(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [o.state for o in runner.run()] == ["done"]
    before = ledger(project)
    with monkeypatch.context() as patch:
        patch.setattr(runner, "_execute", lambda *_: pytest.fail("ran again"))
        assert [o.state for o in runner.run()] == ["unchanged"]
    needed = [
        lambda: runner._plan([], {}, True, None, None),
        lambda: runner._plan([], {"value": "1.25"}, False, None, None),
    ]
    assert [len(plan()[1]) for plan in needed] == [1, 1]
    (evidence,) = project.glob("data/evidence/good/*.json")
    changes = {
        "notebooks/good.ipynb": "\n",
        "data/claims/good.yml": "# a comment\n",
        "data/sources.yml": "# a comment\n",
        "data/hardware/new.yml": "x",
        "data/evidence/good/value.withdrawn.yml": "x",
        f"data/evidence/good/{evidence.name}": " ",
        "_build/executed/good.ipynb": " ",
        "_build/executed/good.json": "}",
    }
    for name, addition in changes.items():
        file = project / name
        old = file.read_bytes() if file.exists() else None
        file.write_bytes((old or b"") + addition.encode())
        assert len(runner._plan([], {}, False, None, None)[1]) == 1, name
        file.unlink() if old is None else file.write_bytes(old)
    assert ledger(project) == before
    assert [o.state for o in runner.run()] == ["unchanged"]


def test_running_again_gives_the_same_bytes(project: Path) -> None:
    runner.run()
    before = ledger(project)
    assert [o.state for o in runner.run(["good"], force=True)] == ["done"]
    after = ledger(project)
    assert {n: b for n, b in after.items() if not n.endswith("good.json")} == {
        n: b for n, b in before.items() if not n.endswith("good.json")
    }


def test_finding_nothing_to_do_imports_no_notebook_machinery(project: Path) -> None:
    (project / "notebooks" / "good.ipynb").unlink()
    code = (
        "import sys; from assay.press import runner; print(runner.run()[0].state); "
        "print({'papermill', 'nbformat', 'IPython', 'jupyter_client', 'rich'} & set(sys.modules))"
    )
    assert child(code).communicate(timeout=60)[0] == "not-written\nset()\n"


def test_a_cell_above_its_limit_fails_and_the_earlier_result_stays(sleeper: Path) -> None:
    project = sleeper
    runner.run()
    before = ledger(project)
    (outcome,) = runner.run(overrides={"pause": "600"}, cell_limit=3)
    assert "notebooks/good.ipynb, cell 3: ran longer than the limit of 3 s" in outcome.message
    assert ledger(project) == before
    assert gone(project)


def test_a_run_above_its_limit_fails_and_its_processes_end(sleeper: Path) -> None:
    project = sleeper
    (outcome,) = runner.run(overrides={"pause": "600"}, run_limit=5)
    assert "the run took longer than its limit of 5 s" in outcome.message
    assert not ledger(project)
    assert gone(project)


@pytest.fixture
def sleeper(project: Path) -> Path:
    """The same project with a notebook that sleeps in its first cell when asked to."""
    write_notebook(project, "good", [PAUSE, SAVE])
    return project


def child(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for(condition: Any, what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.1)


def gone(root: Path) -> bool:
    """Whether worker, kernel and a process the notebook started have all ended."""
    pids = root / "pids"
    for pid in map(int, pids.read_text().split() if pids.exists() else []):
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                return False
    return True


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143), (signal.SIGINT, -2)]
)
def test_a_run_that_is_stopped_loses_nothing_and_leaves_nothing(
    project: Path, number: signal.Signals, status: int
) -> None:
    kept = project / "data/evidence/good/kept.txt"
    kept.parent.mkdir(parents=True)
    kept.write_text("evidence of an earlier day")
    before = ledger(project)
    process = child("from assay.press import runner; runner.run(overrides={'pause': '600'})")
    pids = project / "pids"
    wait_for(lambda: pids.exists() and len(pids.read_text().split()) == 3, "the cell")
    assert list(project.glob("_build/staging/*/evidence/good/*.json"))  # it dies in the middle
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == status
    wait_for(lambda: gone(project), "the processes to end")
    assert ledger(project) == before
    if number != signal.SIGKILL:  # then nobody is left to clear it, and the next run does
        assert not list(project.glob("_build/staging/*"))
    if number == signal.SIGKILL:
        assert [o.state for o in runner.run()] == ["done"]
        assert not list(project.glob("_build/staging/*"))


def test_two_runs_at_once_are_refused(project: Path) -> None:
    (project / "_build").mkdir()
    with (project / "_build" / "run.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="another assay run is at work here"):
            runner.run()


def test_measuring_notebooks_wait_until_the_machine_is_theirs(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_notebook(project, "aa", [SAVE], assay={"exclusive": True})
    for claim in ("aa", "ab"):
        write_claim(project, claim, "aa")
    waves: list[tuple[int, list[str]]] = []

    def wave(jobs: list[Any], width: int, *_: Any) -> list[runner.Outcome]:
        waves.append((width, [job.claim for job in jobs]))
        return []

    monkeypatch.setattr(runner, "_wave", wave)
    runner.run(jobs=4)
    assert waves == [(4, ["good"]), (1, ["aa"]), (1, ["ab"])]


@pytest.mark.parametrize("name", ["good", "good.ipynb", "notebooks/good.ipynb"])
def test_a_notebook_can_be_named_as_a_file(project: Path, name: str) -> None:
    assert [job.claim for job in runner._plan([name], {}, False, None, None)[1]] == ["good"]


def test_an_unknown_name_is_refused_with_its_neighbour(project: Path) -> None:
    with pytest.raises(InputError, match=r"called 'goood'; did you mean good\?"):
        runner.run(["goood"])


def test_a_notebook_that_no_claim_uses_is_refused(project: Path) -> None:
    write_notebook(project, "lonely", [SAVE])
    with pytest.raises(InputError, match="no claim uses notebook 'lonely'"):
        runner.run(["lonely"])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [("{speed: 1}", "declares no parameter 'speed'"), ("{value: fast}", "declared float")],
)
def test_a_wrong_parameter_stops_everything_before_a_kernel_starts(
    project: Path, monkeypatch: pytest.MonkeyPatch, parameters: str, message: str
) -> None:
    monkeypatch.setattr(runner, "_execute", lambda *_: pytest.fail("something ran"))
    write_claim(project, "other", "good", parameters)
    with pytest.raises(RecordError, match=message):
        runner.run()


def test_strings_reach_the_notebook_as_they_are() -> None:
    from papermill import translators

    for text in ("a=b", 'say "no"', "back\\slash", "two\nlines", "一 {x}", "007", "false"):
        code = translators.PythonTranslator.codify({"x": text})
        scope: dict[str, Any] = {}
        exec(code, scope)
        assert scope["x"] == text


def test_not_a_number_in_an_output_is_found_in_its_cell() -> None:
    cells = [{"outputs": []}, {"outputs": [{"data": {"application/json": {"x": float("inf")}}}]}]
    assert worker._not_finite({"cells": cells}) == 1
    assert worker._not_finite({"cells": cells[:1]}) is None


def test_the_output_limit_is_the_one_messages_name() -> None:
    assert worker._too_large(worker.OUTPUT_LIMIT + 1).endswith("the limit of 10 MB")


def test_the_staging_folder_is_not_the_callers(project: Path) -> None:
    assert store.STAGING not in os.environ


def test_measuring_is_asked_of_those_notebooks_that_can_and_has_the_machine_alone(
    project: Path,
) -> None:
    write_notebook(project, "able", [SAVE])
    file = project / "notebooks" / "able.ipynb"
    book = json.loads(file.read_text())
    book["cells"][1]["source"] += "\nmeasure: bool = False  # measure here"
    file.write_text(json.dumps(book))
    write_claim(project, "able")
    _, jobs = runner._plan([], {}, True, None, None, measure=True)
    alone = {job.claim: (job.alone, job.parameters.get("measure")) for job in jobs}
    assert alone == {"able": (True, True), "good": (False, None)}
    _, jobs = runner._plan([], {}, True, None, None)
    assert not any(job.alone for job in jobs)
