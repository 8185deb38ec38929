"""The house has the rooms that the design names, and the Makefile is a menu."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
ROOMS = {"book", "notebooks", "data", "src", "tests", "requirements", ".github", ".ci"}
PAGES = {"README.md", "CONTRIBUTING.md", "DECISIONS.md", "CHANGELOG.md", "CITATION.cff", "LICENSE"}
SETTINGS = {"_config.yml", "_toc.yml", "environment.yml", "pyproject.toml", "Makefile"}
HIDDEN = {".gitignore", ".pre-commit-config.yaml"}
#: Rooms that may be empty, and then git does not know them.
OPTIONAL = {"benchmarks"}


def recipes() -> dict[str, list[str]]:
    """Recipe lines by target, as make reads them: a continued line is one."""
    text = re.sub(r"\\\n", " ", (ROOT / "Makefile").read_text("utf-8"))
    found: dict[str, list[str]] = {}
    target = ""
    for line in text.splitlines():
        if match := re.match(r"([a-z]+):", line):
            target = match[1]
            found[target] = []
        elif line.startswith("\t"):
            found[target].append(line.strip())
    return found


def test_the_top_level_is_the_one_the_design_names() -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: which files belong is not known")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    names = {line.split("/")[0].strip('"') for line in listed.stdout.splitlines()}
    assert names - OPTIONAL == ROOMS | PAGES | SETTINGS | HIDDEN


def test_the_menu_offers_what_the_readme_promises() -> None:
    assert {"setup", "run", "book", "test", "check", "toc", "lock"} <= recipes().keys()


def test_a_recipe_has_at_most_three_lines() -> None:
    assert {target: lines for target, lines in recipes().items() if len(lines) > 3} == {}


@pytest.mark.parametrize("target", ["run", "book", "check", "toc", "lock"])
def test_a_target_fills_the_environment_first(target: str) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert re.search(rf"^{target}: setup\b", makefile, re.MULTILINE)


def test_the_tests_run_after_the_checks() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert re.search(r"^test: check\b", makefile, re.MULTILINE)


def test_the_hooks_before_a_commit_download_nothing() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    assert {hook["language"] for hook in config["repos"][0]["hooks"]} == {"system"}


def test_ci_runs_the_two_commands_of_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    assert re.search(r"^make test\b", script, re.MULTILINE)
    assert re.search(r"^make book\b", script, re.MULTILINE)
