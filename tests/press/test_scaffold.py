"""A draft is complete in form, carries what was given, and cannot pass for a claim."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest
import yaml

from assay.errors import InputError
from assay.ledger import records, rules, store
from assay.ledger.rulebook import OPEN_PLACE
from assay.press import scaffold

GIVEN = {"title": 'Ten times: "as fast"', "increment": "C", "notebook": "turbo_gain"}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a project with nothing in it but its sources."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "sources.yml").write_text("{}\n", encoding="utf-8")
    monkeypatch.setenv("ASSAY_ROOT", str(tmp_path))
    return tmp_path


def test_a_draft_has_every_field_of_a_claim_and_no_other() -> None:
    draft = yaml.safe_load(scaffold.claim(GIVEN))
    assert set(draft) | {"id"} == set(records.Claim.model_fields)
    assert set(draft["assertions"][0]) == set(records.Assertion.model_fields)
    assert set(draft["assertions"][0]["scope"]) == set(records.SCOPE_KEYS)


def test_what_is_given_is_written_as_it_is() -> None:
    draft = yaml.safe_load(scaffold.claim(GIVEN))
    assert {name: draft[name] for name in GIVEN} == GIVEN
    assert draft["quote"].startswith(OPEN_PLACE)


def test_a_draft_fails_the_check_at_each_open_place(root: Path) -> None:
    file, _ = scaffold.new("turbo-gain", GIVEN)
    content = file.read_text(encoding="utf-8")
    found = [p for p in rules.check([file]) if p.rule == "C011"]
    assert len(found) == content.count(OPEN_PLACE)
    assert all("line" in p.where for p in found)


def test_a_filled_draft_passes_the_check_for_open_places(root: Path) -> None:
    file, _ = scaffold.new("turbo-gain", GIVEN)
    file.write_text(file.read_text(encoding="utf-8").replace(OPEN_PLACE, "x"), encoding="utf-8")
    assert not [p for p in rules.check([file]) if p.rule == "C011"]


def test_a_drafted_notebook_keeps_the_rules_of_form_and_names_its_open_places(root: Path) -> None:
    _, page = scaffold.new("turbo-gain", GIVEN)
    nbformat.validate(nbformat.read(page, as_version=4))
    found = rules.check([page])
    # What is left is to write: prose, and headings that are questions.
    assert {p.rule for p in found} <= {"N-21", "N-04", "N-01"}
    marked = [
        c for c in json.loads(page.read_text())["cells"] if OPEN_PLACE in "".join(c["source"])
    ]
    assert sum(p.rule == "N-21" for p in found) == len(marked) > 0


def test_a_notebook_that_is_there_is_left_as_it_is(root: Path) -> None:
    page = store.path("notebooks", "turbo_gain.ipynb")
    page.parent.mkdir()
    page.write_text("mine", encoding="utf-8")
    assert [f.name for f in scaffold.new("turbo-gain", GIVEN)] == ["turbo-gain.yml"]
    assert page.read_text(encoding="utf-8") == "mine"


def test_a_claim_that_is_there_is_refused_and_left_as_it_is(root: Path) -> None:
    file, *_ = scaffold.new("turbo-gain", {})
    before = file.read_bytes()
    with pytest.raises(InputError, match="the claim exists"):
        scaffold.new("turbo-gain", GIVEN)
    assert file.read_bytes() == before


@pytest.mark.parametrize("claim_id", ["", "Turbo", "a b", "../x", "a--b", "-a", "a.yml", "é"])
def test_an_id_that_is_none_is_refused(root: Path, claim_id: str) -> None:
    with pytest.raises(InputError, match="is no id"):
        scaffold.new(claim_id, {})
    assert not store.path("data", "claims").exists()


@pytest.mark.parametrize("name", ["turbo-gain", "../x", "A", "a.ipynb"])
def test_a_name_that_is_no_notebooks_is_refused_before_anything_is_written(
    root: Path, name: str
) -> None:
    with pytest.raises(InputError, match="is no notebook's name"):
        scaffold.new("turbo-gain", {"notebook": name})
    assert not store.path("data", "claims").exists()
