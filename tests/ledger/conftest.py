"""A small project and the parts it is made of."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from assay.ledger import records, store

SCOPE = dict.fromkeys(records.SCOPE_KEYS, "n/a")
DECIDED_BY = {
    "verify": ["derived", "recomputed", "documented", "published", "measured"],
    "dispute": ["derived", "recomputed", "documented", "published", "measured", "bound"],
}
ASSERTION: dict[str, Any] = {
    "id": "fast",
    "says": "The first token comes after about 150 ms.",
    "metric": "ttft",
    "relation": "about",
    "value": 150,
    "unit": "ms",
    "band": {"low": 100, "high": 200, "why": "as printed"},
    "scope": SCOPE,
    "decided_by": DECIDED_BY,
    "falsifier": "It comes later.",
    "headline": True,
}
CLAIM: dict[str, Any] = {
    "title": "The first token is fast",
    "increment": "C",
    "quote": "首个 token 约 150 ms",
    "quote_en": "the first token takes about 150 ms",
    "source": "somebody-2026",
    "locator": "page 1",
    "notebook": "first_token",
    "parameters": {"chunk": 2048},
    "assertions": [ASSERTION],
}
SOURCE: dict[str, Any] = {
    "producer": "Somebody",
    "title": "A post",
    "citation": "Somebody, A post, 2026",
    "url": "https://example.org/post",
    "archived_url": None,
    "date_published": "2026-01",
    "date_accessed": "2026-11-30",
    "license": None,
    "access": "read",
}
EVIDENCE: dict[str, Any] = {
    "schema": 1,
    "claim": "first-token",
    "assertion": "fast",
    "basis": "derived",
    "estimate": {
        "value": 0.15,
        "low": 0.15,
        "high": 0.15,
        "unit": "s",
        "n": 1,
        "method": "closed form",
    },
    "conditions": SCOPE,
    "finding": "It takes 150 ms.",
    "gates": [],
    "inputs": [],
    "notebook": {"path": "notebooks/first_token.ipynb", "sha256": "0" * 64},
    "parameters": {"claim_id": "first-token", "chunk": 2048},
    "provenance": None,
    "samples": None,
}
PROVENANCE: dict[str, Any] = {
    "device": "CPU",
    "driver": None,
    "clocks": None,
    "engine": "vllm",
    "engine_version": "0.32.0",
    "flags": [],
    "packages": {},
    "commit": "abc",
    "started": "2026-11-30T10:00:00Z",
    "ended": "2026-11-30T10:05:00Z",
}


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return a deep copy with fields changed; ``a__b`` names the field b inside a."""
    result = copy.deepcopy(base)
    for name, value in changes.items():
        place = result
        *path, last = name.split("__")
        for part in path:
            place = place[part]
        place[last] = value
    return result


@pytest.fixture(scope="session")
def assertion_fields() -> Callable[..., dict[str, Any]]:
    return lambda **changes: _merged(ASSERTION, changes)


@pytest.fixture(scope="session")
def claim_fields() -> Callable[..., dict[str, Any]]:
    return lambda **changes: _merged(CLAIM, changes)


@pytest.fixture(scope="session")
def evidence_fields() -> Callable[..., dict[str, Any]]:
    def build(**changes: Any) -> dict[str, Any]:
        fields = _merged(EVIDENCE, changes)
        if fields["basis"] == "measured":
            fields["provenance"] = fields["provenance"] or PROVENANCE
            fields["samples"] = fields["samples"] or {"path": "data/rows.csv", "sha256": "1" * 64}
            fields["gates"] = fields["gates"] or [
                {"id": "complete", "passed": True, "says": "All requests completed."}
            ]
        return fields

    return build


@pytest.fixture(scope="session")
def assertion(assertion_fields: Callable[..., dict[str, Any]]) -> Callable[..., records.Assertion]:
    return lambda **changes: records.Assertion.model_validate(assertion_fields(**changes))


@pytest.fixture(scope="session")
def claim(claim_fields: Callable[..., dict[str, Any]]) -> Callable[..., records.Claim]:
    return lambda **changes: records.Claim.model_validate(
        {"id": "first-token", **claim_fields(**changes)}
    )


@pytest.fixture(scope="session")
def evidence(evidence_fields: Callable[..., dict[str, Any]]) -> Callable[..., records.Evidence]:
    return lambda **changes: records.Evidence.model_validate(evidence_fields(**changes))


def code(text: str, *tags: str, **metadata: Any) -> dict[str, Any]:
    """Return a code cell."""
    return {"cell_type": "code", "source": text, "metadata": {"tags": list(tags), **metadata}}


def prose(text: str) -> dict[str, Any]:
    """Return a Markdown cell."""
    return {"cell_type": "markdown", "source": text, "metadata": {}}


def _notebook(cells: list[dict[str, Any]], **metadata: Any) -> dict[str, Any]:
    built = []
    for number, cell in enumerate(cells):
        own = {"outputs": [], "execution_count": None} if cell["cell_type"] == "code" else {}
        built.append({"id": f"c{number}", **own, **cell})
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"kernelspec": kernel, **metadata},
        "cells": built,
    }


PARAMETERS = 'claim_id: str = "first-token"  # the claim\nchunk: int = 2048  # tok, one step'
FIGURE = {
    "mystnb": {
        "figure": {"caption": "The estimate lies inside the band.", "name": "fig-strip"},
        "image": {"alt": "150 ms inside 100 to 200 ms"},
    }
}
WORDS = "The words of this section explain what a reader should look for in the code below it."
CELLS: list[dict[str, Any]] = [
    prose(f"# When does the first token come?\n\n{WORDS}"),
    code(PARAMETERS, "parameters", "remove-cell"),
    code("from assay.ledger import store\nfrom assay.press import plot", "hide-input"),
    prose(f"## Claim\n\n{WORDS}\n\n## Method\n\n{WORDS}\n\n## Evidence\n\n{WORDS}"),
    code("claim = store.claim(claim_id)\nseconds = chunk / 1000"),
    prose(f"{WORDS}"),
    code("plot.strip(claim, seconds)", "hide-input", **FIGURE),
    prose(f"## Verdict\n\n{WORDS}"),
    code("store.save(claim)", "record"),
    prose(f"## What would change this\n\n{WORDS}\n\n## References\n\n{WORDS}"),
]


@pytest.fixture(scope="session")
def notebook() -> Callable[..., dict[str, Any]]:
    """Build a notebook that keeps every rule, with some cells replaced by number."""

    def build(
        changes: dict[int, dict[str, Any] | None] | None = None, **metadata: Any
    ) -> dict[str, Any]:
        cells = {**dict(enumerate(copy.deepcopy(CELLS))), **(changes or {})}
        return _notebook([cells[n] for n in sorted(cells) if cells[n] is not None], **metadata)

    return build


class Project:
    """A project in a temporary folder, with short ways to write its files."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, name: str, content: object) -> Path:
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            file.write_text(content, encoding="utf-8")
        elif file.suffix in (".yml", ".yaml"):
            file.write_text(yaml.safe_dump(content, allow_unicode=True, sort_keys=False))
        else:
            file.write_text(json.dumps(content))
        return file

    def read(self, name: str) -> str:
        return (self.root / name).read_text(encoding="utf-8")

    def evidence(self) -> list[str]:
        return sorted(p.name for p in (self.root / "data/evidence").rglob("*.json"))


@pytest.fixture
def project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notebook: Callable[..., dict[str, Any]]
) -> Project:
    """One claim, its source and its notebook; no evidence yet."""
    built = Project(tmp_path / "project")
    built.write("data/claims/first-token.yml", CLAIM)
    built.write("data/sources.yml", {"somebody-2026": SOURCE})
    built.write("notebooks/first_token.ipynb", notebook())
    monkeypatch.setenv("ASSAY_ROOT", str(built.root))
    monkeypatch.delenv(store.STAGING, raising=False)
    return built
