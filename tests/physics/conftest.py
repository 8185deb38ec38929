"""Model shapes for the tests of this room, read from ``cases/models.json`` and expanded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

_WORDS = {
    "S": "sliding_attention",
    "F": "full_attention",
    "L": "linear_attention",
    "M": "mamba",
    "A": "attention",
    "H": "hybrid",
}


def _runs(text: str) -> list[str]:
    found = []
    for run in text.split():
        digits = run.rstrip("SFLMAH") if run[-1].isalpha() else ""
        if run[-1] in _WORDS and digits.isdigit():
            found += [_WORDS[run[-1]]] * int(digits)
    return found


def _blocks(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for run in text.split():
        count, _, group = run.partition("g")
        if group:
            found += [{"attention": {"no_op": False, "n_heads_in_group": int(group)}}] * int(count)
        else:
            found += [{"attention": {"no_op": True, "n_heads_in_group": None}}] * int(run[:-1])
    return found


def _expanded(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    found = {}
    for key, inner in value.items():
        if key in ("layer_types", "layers_block_type"):
            found[key] = _runs(inner)
        elif key == "block_configs":
            found[key] = _blocks(inner)
        else:
            found[key] = _expanded(inner)
    return found


class _Shapes(dict[str, dict[str, Any]]):
    def __repr__(self) -> str:  # hypothesis prints arguments, and all shapes are 40 kB
        return f"{len(self)} shapes"


def _models() -> list[dict[str, Any]]:
    text = (Path(__file__).parent / "cases" / "models.json").read_text(encoding="utf-8")
    return [{**row, "config": _expanded(row["config"])} for row in json.loads(text)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once a shape: ``known_shape`` all, ``mistaken`` with a known wrong figure."""
    chosen = {
        "known_shape": lambda row: True,
        "growing": lambda row: bool(row["all"]),
        "mistaken": lambda row: row["wrong"] is not None and row["status"] != "refused",
    }
    for name, keep in chosen.items():
        if name in metafunc.fixturenames:
            rows = [row for row in _models() if keep(row)]
            metafunc.parametrize(name, rows, ids=[row["name"] for row in rows])


@pytest.fixture(scope="session")
def configs() -> dict[str, dict[str, Any]]:
    """Every configuration by name. Tests copy before they change one."""
    return _Shapes((row["name"], row["config"]) for row in _models())
