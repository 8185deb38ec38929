"""The README is short, its map is the tree, and nothing in it is a leftover."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text("utf-8")


_NAME = re.compile(r"\.?[\w-]+/|[\w.][\w.-]*\.(md|yml|toml|cff|yaml)|\.gitignore|Makefile|LICENSE")


def _tracked() -> set[str]:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: which files belong is not known")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return {line.split("/")[0].strip('"') for line in listed.stdout.splitlines()}


def test_the_map_lists_exactly_the_top_level() -> None:
    block = re.search(r"## Map\n\n```\n(.*?)```", TEXT, re.DOTALL)
    assert block
    names: set[str] = set()
    for line in block.group(1).splitlines():
        # Names stand before the phrase, which two or more spaces or one after a name set off.
        names |= {
            word.rstrip("/")
            for word in re.findall(r"\S+", line)
            if _NAME.fullmatch(word) and not word.startswith("book/claims")
        }
    assert names == _tracked()


def test_it_is_at_most_120_lines() -> None:
    assert len(TEXT.splitlines()) <= 120


def test_the_first_screen_says_what_it_is_and_the_score_and_asks_nothing() -> None:
    screen = "\n".join(TEXT.splitlines()[:12])
    assert screen.startswith("# Assay\n")
    assert "<!-- score:begin -->" in screen
    assert "<picture>" in screen
    assert "pip install" not in screen


def test_no_placeholder_is_left() -> None:
    assert not re.findall(r"\b(?:TIME_\w+|DOWNLOAD|TODO|TBD|MAP)\b", TEXT)


def test_every_command_named_exists() -> None:
    block = re.search(r"## Commands\n\n```\n(.*?)```", TEXT, re.DOTALL)
    assert block
    source = (ROOT / "src" / "assay" / "cli.py").read_text("utf-8")
    defined = set(re.findall(r"@app\.command\([^)]*\)\ndef (\w+)", source))
    named = set(re.findall(r"^assay (\w+)", block.group(1), re.MULTILINE))
    assert named <= defined
    assert defined <= named, "a command the README does not name"


def test_no_tracked_text_names_a_registry_or_a_home() -> None:
    # Not the checkout's own place: a newcomer may clone to where ordinary paths begin alike.
    registry = re.compile(
        r"pypi\.org|files\.pythonhosted|registry\.npmjs|(?<![\w.])/(?:root|home/\w+|srv|work)/"
    )
    # These name such paths in order to refuse them.
    allowed = ("tests/", "src/assay/ledger/leaks.py")
    for name in subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines():
        if (
            name.startswith(allowed)
            or not (ROOT / name).is_file()
            or Path(name).suffix in (".parquet", ".png")
        ):
            continue
        found = registry.findall((ROOT / name).read_text("utf-8", errors="replace"))
        assert not found, f"{name}: {found}"


def test_every_command_named_in_prose_exists() -> None:
    source = (ROOT / "src" / "assay" / "cli.py").read_text("utf-8")
    defined = set(re.findall(r"@app\.command\([^)]*\)\ndef (\w+)", source))
    pages = [*ROOT.glob("*.md"), *(ROOT / "book").glob("*.md"), *ROOT.glob("notebooks/*.ipynb")]
    for page in pages:
        named = set(re.findall(r"`(?:\.venv/bin/)?assay ([a-z]+)", page.read_text("utf-8")))
        assert named <= defined, page.name
