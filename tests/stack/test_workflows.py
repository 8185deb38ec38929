"""The GitHub workflows are valid, and the GPU runners do only what main tells them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = sorted(FOLDER.glob("*.yml"))
BIN = Path(sys.executable).parent


def load(path: Path) -> dict[str, Any]:
    # BaseLoader: to YAML 1.1 the key `on` is the truth value.
    loaded = yaml.load(path.read_text("utf-8"), Loader=yaml.BaseLoader)
    assert isinstance(loaded, dict)
    return loaded


def steps(workflow: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for job in workflow["jobs"].values():
        yield from job["steps"]


def test_the_four_workflows_are_there() -> None:
    assert [path.stem for path in WORKFLOWS] == ["ci", "engines", "gpu", "publish"]


@pytest.mark.parametrize(
    "command",
    [
        ["check-jsonschema", "--builtin-schema", "vendor.github-workflows", *map(str, WORKFLOWS)],
        ["zizmor", "--offline", "--strict-collection", "--no-progress", str(FOLDER)],
    ],
    ids=["schema", "zizmor"],
)
def test_a_checker_finds_nothing(command: list[str]) -> None:
    done = subprocess.run(
        [str(BIN / command[0]), *command[1:]], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_starts_with_no_permission(path: Path) -> None:
    assert load(path)["permissions"] == {}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_is_pinned_to_a_commit(path: Path) -> None:
    used = [step["uses"] for step in steps(load(path)) if "uses" in step]
    assert used
    assert [name for name in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", name)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_no_checkout_keeps_its_credentials(path: Path) -> None:
    kept = [
        step
        for step in steps(load(path))
        if step.get("uses", "").startswith("actions/checkout@")
        and step.get("with", {}).get("persist-credentials") != "false"
    ]
    assert kept == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_an_expression_reaches_a_script_only_through_its_environment(path: Path) -> None:
    assert [step["run"] for step in steps(load(path)) if "${{" in step.get("run", "")] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_job_has_a_time_limit(path: Path) -> None:
    assert [name for name, job in load(path)["jobs"].items() if "timeout-minutes" not in job] == []


def test_a_gpu_runner_works_only_on_a_schedule_or_on_request() -> None:
    assert set(load(FOLDER / "gpu.yml")["on"]) == {"schedule", "workflow_dispatch"}


def test_the_gpu_job_runs_on_main_behind_a_reviewer_and_can_only_read() -> None:
    job = load(FOLDER / "gpu.yml")["jobs"]["run"]
    assert "refs/heads/main" in job["if"]
    assert job["environment"] == "gpu"
    assert job["permissions"] == {"contents": "read"}
    assert job["runs-on"]["group"] == "gpu-ephemeral"


def test_what_a_gpu_run_may_be_asked_is_a_choice() -> None:
    inputs = load(FOLDER / "gpu.yml")["on"]["workflow_dispatch"]["inputs"]
    assert {name: said["type"] for name, said in inputs.items()} == {
        "accelerator": "choice",
        "notebook": "choice",
    }


def test_gpu_evidence_is_checked_on_a_hosted_machine() -> None:
    job = load(FOLDER / "gpu.yml")["jobs"]["check"]
    assert job["runs-on"] == "ubuntu-24.04"
    assert any("assay check data/" in step.get("run", "") for step in job["steps"])


def test_only_the_hosted_deploy_job_may_write() -> None:
    writers = {
        (path.stem, name): job["runs-on"]
        for path in WORKFLOWS
        for name, job in load(path)["jobs"].items()
        if "write" in job.get("permissions", {}).values()
    }
    assert writers == {("publish", "deploy"): "ubuntu-24.04"}
