"""Files are touched, figures drawn and notebooks run in one room each."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "assay"
MODULES = sorted(SOURCE.rglob("*.py"))

# What opens a file outside the store, and why: locks and logs of processes are no records, a result
# file of hundreds of megabytes is read through a window, and Parquet has a writer of its own.
OPENS = {
    "bench/engines/process.py",
    "bench/engines/server.py",
    "bench/load/client.py",
    "bench/protocol/journal.py",
    "bench/results/stream.py",
    "bench/load/rows.py",
    "press/attempt.py",
    "press/runner.py",
}
_TOUCH = re.compile(
    r"(?<![\w.])open\(|\bos\.open\(|\.open\(\"[rwa]b?\"\)|\.(read|write)_(text|bytes)\(|(read|write)_table\("
)


def _name(module: Path) -> str:
    return module.relative_to(SOURCE).as_posix()


def _imports(module: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


def test_only_the_store_and_the_listed_few_open_files() -> None:
    touching = set()
    for module in MODULES:
        text = re.sub(r"store\.(read|write)_(text|bytes)\(", "", module.read_text("utf-8"))
        if _TOUCH.search(text) and not _name(module).startswith("ledger/store/"):
            touching.add(_name(module))
    assert touching == OPENS


def test_only_plot_draws() -> None:
    drawing = {_name(m) for m in MODULES if _imports(m) & {"matplotlib", "seaborn"}}
    assert drawing == {"press/plot.py"}


def test_only_the_press_runs_notebooks() -> None:
    running = {_name(m) for m in MODULES if _imports(m) & {"papermill", "nbformat", "nbclient"}}
    assert running
    assert all(name.startswith("press/") for name in running)


@pytest.mark.parametrize("module", MODULES, ids=_name)
def test_a_module_says_what_it_owns(module: Path) -> None:
    text = ast.get_docstring(ast.parse(module.read_text("utf-8"))) or ""
    assert text, "no module docstring"
    if module.name not in ("__init__.py", "__main__.py", "errors.py"):
        assert re.search(r"\b[Oo]wns?\b", text), "does not say what it owns"


@pytest.mark.parametrize("module", MODULES, ids=_name)
def test_no_module_is_a_drawer_for_anything(module: Path) -> None:
    assert module.stem not in {"utils", "util", "common", "misc", "helpers", "helper", "core"}
