"""The submission checker: every kind of mistake has its permanent rule, and all are found."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.ledger import judge, rulebook, rules, store

Build = Callable[..., Any]


def _found(*paths: Path) -> list[str]:
    return [p.rule for p in rules.check(paths)]


def _settle() -> None:
    verdicts = [judge.judge(claim, store.live(claim.id)) for claim in store.claims()]
    store.write_verdicts(verdicts, date="2026-11-30", cause="test")


@pytest.fixture
def sound(project: Any, evidence: Build) -> Any:
    """A project without a problem: claim, source, notebook, evidence, verdicts."""
    made_by = store.digest(project.root / "notebooks/first_token.ipynb")
    inputs = [{"path": "data/sources.yml", "sha256": store.digest(store.path("data/sources.yml"))}]
    store.save(evidence(notebook__sha256=made_by, inputs=inputs))
    _settle()
    return project


def test_a_sound_project_passes(sound: Any) -> None:
    assert rules.check([sound.root]) == []
    assert rules.report([]) == "passed: 0 errors, 0 warnings, 0 notes"


def test_a_data_folder_is_checked_without_the_notebooks(sound: Any) -> None:
    sound.write("notebooks/first_token.ipynb", "not a notebook")
    assert "A002" not in _found(sound.root / "data")
    assert "A002" in _found(sound.root)


def _claim(old: str, new: str) -> Callable[[Any], None]:
    def change(project: Any) -> None:
        text = project.read("data/claims/first-token.yml")
        assert old in text
        project.write("data/claims/first-token.yml", text.replace(old, new, 1))

    return change


DEVICE: dict[str, Any] = {
    "title": "A card",
    "kind": "gpu",
    "vendor": "V",
    "names": ["Card 80GB"],
    "memory_kind": "dedicated",
    "facts": [
        {
            "quantity": "memory",
            "dtype": None,
            "density": None,
            "value": 80,
            "unit": "GB",
            "source": "somebody-2026",
            "locator": "table",
            "note": None,
        }
    ],
}


def _device(**fact: str) -> dict[str, Any]:
    return {**DEVICE, "facts": [{**DEVICE["facts"][0], **fact}]}


WITHDRAWN = "data/evidence/first-token/a.withdrawn.yml"
WITHDRAWAL = {"evidence": "none.json", "date": "2026-11-30", "why": "a slip"}
MODEL: dict[str, Any] = {
    "title": "A model",
    "source": "somebody-2026",
    "locator": "config.json",
    "parameters": 7,
    "active_parameters": None,
    "parameters_locator": "card",
    "native_context": 4096,
    "config": {},
}


def _write(name: str, content: object) -> Callable[[Any], None]:
    return lambda project: project.write(name, content)


def _append(name: str, text: str) -> Callable[[Any], None]:
    return lambda project: project.write(name, project.read(name) + text)


def _evidence_file(project: Any) -> Path:
    [file] = (project.root / "data/evidence").rglob("*.json")
    return file


def _edit_evidence(project: Any) -> None:
    file = _evidence_file(project)
    file.write_text(file.read_text().replace("It takes 150 ms.", "It takes 15 ms."))


def _save_evidence(project: Any, change: Callable[[dict[str, Any]], None]) -> None:
    """Write evidence that the store itself would refuse, under its right name."""
    file = _evidence_file(project)
    content = json.loads(file.read_text())
    change(content)
    text = store.json_text(content)
    name = f"{content['assertion']}.{content['basis']}.{store.digest(text)[:12]}.json"
    file.unlink()
    project.write(f"data/evidence/{content['claim']}/{name}", text)


def _field(name: str, value: object) -> Callable[[Any], None]:
    def change(content: dict[str, Any]) -> None:
        *path, last = name.split(".")
        place = content
        for part in path:
            place = place[part]
        place[last] = value

    return lambda project: _save_evidence(project, change)


MISTAKES: list[tuple[str, Callable[[Any], Any], str]] = [
    ("C001", _claim("title:", "colour: red\ntitle:"), "unknown field 'colour'"),
    ("C001", _claim("title:", "id: x\ntitle:"), "unknown field 'id'"),
    ("C002", _claim("locator: page 1\n", ""), "missing field 'locator'"),
    ("C003", _claim("value: 150", "value: 1e5"), "'1e5' is read as text"),
    ("C003", _claim("version: n/a", "version: 1.10"), "read as the number 1.1"),
    ("C004", _claim("metric: ttft", "metric: speed"), "unknown metric 'speed'"),
    ("C005", _claim("unit: ms", "unit: GB"), "unit 'GB' does not measure ttft"),
    ("C005", _claim("unit: ms", "unit: msec"), "unknown unit 'msec'"),
    ("C006", _claim("value: 150", "value: 500"), "excludes its own value 500"),
    ("A002", _claim("headline: true", "headline: on"), "'on' is read as true"),
    ("A002", _claim("value: 150", "value: 12:30"), "'12:30' is read as 750"),
    ("A002", _claim("title:", "<<<<<<< HEAD\ntitle:"), "unresolved merge marker"),
    ("A002", _write("data/claims/first-token.yml", ""), "is empty"),
    ("A003", _claim("title:", "title: x\ntitle:"), "duplicate key 'title'"),
    ("A004", _claim("page 1", "'token: \"hf_abcdefghijklmnopqrstuv\"'"), "secret"),
    ("A005", _claim("page 1", "see /home/ada/notes.md"), "the home folder '/home/ada'"),
    ("A006", _write("data/claims/readme.txt", "x"), "name it readme.yml"),
    ("C009", _claim("source: somebody-2026", "source: nobody-2026"), "unknown source"),
    ("C010", _claim("notebook: first_token", "notebook: second"), "not written yet"),
    ("C011", _claim("page 1", "'FILL IN: where'"), "'FILL IN' is still there"),
    ("N-14", _claim("chunk: 2048", "chunks: 2048"), "declares no parameter 'chunks'; use one of"),
    ("N-14", _claim("chunk: 2048", "chunk: '2048'"), "declared int"),
    ("N-14", _claim("chunk: 2048", "claim_id: x"), "set by the runner"),
    ("S001", _append("data/sources.yml", "  colour: red\n"), "unknown field 'colour'"),
    ("S005", _append("data/sources.yml", "Some Body: {}\n"), "source id 'Some Body'"),
    ("S003", _write("data/sources.yml", "- a\n"), "is not a mapping"),
    ("H008", _write("data/hardware/card.yml", _device(source="x")), "unknown source 'x'"),
    ("H005", _write("data/hardware/card.yml", _device(unit="W")), "does not measure memory"),
    ("H001", _write("data/hardware/card.yml", {**DEVICE, "colour": 1}), "unknown field 'colour'"),
    ("M008", _write("data/models/m.json", {**MODEL, "source": "x"}), "unknown source 'x'"),
    ("M003", _write("data/models/m.json", {**MODEL, "parameters": "7B"}), "'7B' cannot be used"),
    ("A002", _write("data/models/m.json", '{"title": NaN}'), "bare NaN"),
    ("A003", _write("data/models/m.json", '{"title": 1, "title": 2}'), "duplicate key"),
    ("D-10", _write("data/published/t.csv", "a,B b\n1,2\n"), "column 'B b'"),
    ("D-10", _write("data/published/t.csv", "a,b\n1,NaN\n"), "'NaN' for a missing value"),
    ("D-10", _write("data/published/t.csv", "a,b\n1\n"), "row does not fit the header"),
    ("D-11", _write("data/published/t.csv", "a,b\n1,2"), "line ends"),
    ("A002", _write("data/published/t.csv", "<<<<<<< HEAD\na,b\n"), "merge marker"),
    ("E008", _edit_evidence, "the content does not match the name"),
    ("E006", _field("claim", "gone"), "unknown claim 'gone'"),
    ("E007", _field("assertion", "slow"), "unknown assertion 'slow'; use one of fast"),
    ("E005", _field("estimate.unit", "B"), "'B' does not measure ttft"),
    ("E005", _field("estimate.unit", "ms"), "write s, not ms"),
    ("E004", _field("estimate.value", 9), "9 lies outside its interval"),
    ("E001", _field("colour", "red"), "unknown field 'colour'"),
    ("E003", _field("gates", "none"), "gates"),
    ("E010", _field("inputs", [{"path": "data/none.csv", "sha256": "0" * 64}]), "no input"),
    ("E011", _append("data/sources.yml", "# a remark\n"), "input 'data/sources.yml' has changed"),
    ("E009", _append("notebooks/first_token.ipynb", "\n"), "has changed since"),
    ("E012", _write("data/evidence/first-token/notes.txt", "x"), "no evidence names this file"),
    ("A005", _field("finding", "read /Users/ada/run.log"), "the home folder '/Users/ada'"),
    ("A004", _field("parameters.api_key", "0123456789abcdef"), "'api_key' holds a secret"),
    ("W005", _write(WITHDRAWN, WITHDRAWAL), "withdraws unknown evidence 'none.json'"),
    ("W002", _write(WITHDRAWN, {"evidence": "none.json"}), "missing field 'date'"),
    ("V001", _append("data/verdicts.csv", "x\n"), "is stale"),
    ("V001", lambda project: (project.root / "data/verdicts.csv").unlink(), "is missing"),
    ("V002", _write("data/history.csv", "date,claim\n2026-11-30,x\n"), "the header is not"),
]


@pytest.mark.parametrize(
    ("rule", "mistake", "words"), MISTAKES, ids=[f"{r}-{w}" for r, _, w in MISTAKES]
)
def test_a_mistake_is_found_under_its_rule(
    sound: Any, rule: str, mistake: Callable[[Any], Any], words: str
) -> None:
    mistake(sound)
    problems = rules.check([sound.root])
    about = [p for p in problems if p.rule == rule]
    assert about, rules.report(problems)
    assert words in rules.report(about)
    assert rules.exit_code(problems) == (2 if any(p.severity == "error" for p in problems) else 0)


@pytest.mark.parametrize(
    ("rule", "mistake", "words"), MISTAKES[:26], ids=[f"{r}-{w}" for r, _, w in MISTAKES[:26]]
)
def test_a_problem_is_one_sentence_with_place_and_advice(
    sound: Any, rule: str, mistake: Callable[[Any], Any], words: str
) -> None:
    mistake(sound)
    for problem in rules.check([sound.root / "data"]):
        assert problem.where.startswith("data/")
        assert problem.what
        assert problem.fix
        assert "\n" not in str(problem)


def test_a_claim_names_file_line_and_field(sound: Any) -> None:
    _claim("unit: ms", "unit: GB")(sound)
    text = sound.read("data/claims/first-token.yml").splitlines()
    line = next(n for n, words in enumerate(text, 1) if "unit: GB" in words)
    [problem] = [p for p in rules.check([sound.root / "data"]) if p.rule == "C005"]
    assert problem.where == f"data/claims/first-token.yml, line {line}, assertions[0].unit"


def test_all_problems_of_a_file_are_found_at_once(sound: Any) -> None:
    for old, new in (
        ("title:", "colour: red\ntitle:"),
        ("unit: ms", "unit: tps"),
        ("headline: true", "headline: off"),
        ("locator: page 1\n", ""),
    ):
        _claim(old, new)(sound)
    found = set(_found(sound.root / "data/claims/first-token.yml"))
    assert {"C001", "C002", "A002"} <= found


def test_ids_that_differ_by_suffix_or_case_are_one_id(sound: Any, claim_fields: Build) -> None:
    sound.write("data/claims/first-token.yaml", claim_fields())
    sound.write("data/claims/First-Token.yml", claim_fields())
    found = [p for p in rules.check([sound.root]) if p.rule in ("C008", "A006", "C003")]
    assert [p.rule for p in found].count("C008") == 2
    assert {"A006", "C003"} <= {p.rule for p in found}


def test_an_assertion_id_twice_is_found(sound: Any, claim_fields: Build) -> None:
    fields = claim_fields()
    fields["assertions"] = fields["assertions"] * 2
    text = json.dumps(fields, ensure_ascii=False)  # JSON is YAML, without the anchors of a dumper
    sound.write("data/claims/first-token.yml", text)
    [problem] = [p for p in rules.check([sound.root]) if p.rule == "C007"]
    assert problem.what == "duplicate assertion id 'fast'"


def test_a_driver_name_belongs_to_one_device(sound: Any) -> None:
    sound.write("data/hardware/card.yml", DEVICE)
    sound.write("data/hardware/other.yml", {**DEVICE, "names": ["CARD 80gb"]})
    [problem] = [p for p in rules.check([sound.root]) if p.rule == "H007"]
    assert "is a name of card too" in problem.what


def test_an_unused_source_is_a_warning_until_something_names_it(sound: Any) -> None:
    source = sound.read("data/sources.yml").replace("somebody-2026:", "nobody-2026:")
    _append("data/sources.yml", source)(sound)
    [problem] = [p for p in rules.check([sound.root]) if p.rule == "S006"]
    assert (problem.severity, problem.what) == ("warning", "source 'nobody-2026' is not used")
    sound.write("data/published/t.csv", "source,value\nnobody-2026,1\n")
    assert "S006" not in _found(sound.root)


def test_evidence_of_an_older_notebook_is_one_warning_a_claim(sound: Any, evidence: Build) -> None:
    made_by = store.digest(sound.root / "notebooks/first_token.ipynb")
    for precision in ("fp8", "fp16"):
        store.save(evidence(notebook__sha256=made_by, conditions__precision=precision))
    _append("notebooks/first_token.ipynb", "\n")(sound)
    [problem] = [p for p in rules.check([sound.root]) if p.rule == "E009"]
    assert problem.where == "data/evidence/first-token"
    assert problem.what.endswith("has changed since 3 pieces were made")


def test_a_note_alone_passes(sound: Any) -> None:
    _claim("notebook: first_token", "notebook: second")(sound)
    problems = [p for p in rules.check([sound.root / "data/claims"])]
    assert [p.severity for p in problems] == ["note"]
    assert rules.exit_code(problems) == 0
    assert rules.report(problems).endswith("passed: 0 errors, 0 warnings, 1 notes")


def test_a_broken_claim_does_not_hide_another(sound: Any, claim_fields: Build) -> None:
    _claim("unit: ms", "unit: GB")(sound)
    sound.write("data/claims/second.yml", claim_fields(source="nobody-2026"))
    assert {"C005", "C009"} <= set(_found(sound.root / "data"))


def test_a_submission_outside_the_project_leans_on_it(
    sound: Any, tmp_path: Path, claim_fields: Build, evidence: Build
) -> None:
    made_by = store.digest(sound.root / "notebooks/first_token.ipynb")
    sent = tmp_path / "sent"
    (sent / "claims").mkdir(parents=True)
    (sent / "claims/second.yml").write_text(json.dumps(claim_fields(), ensure_ascii=False))
    item = evidence(notebook__sha256=made_by, conditions__precision="fp8")
    folder = sent / "evidence/first-token"
    folder.mkdir(parents=True)
    text = store.json_text(item.model_dump(mode="json", by_alias=True))
    (folder / store.evidence_name(item)).write_text(text)
    assert rules.check([sent]) == []
    (folder / "fast.derived.000000000000.json").write_text(text)
    assert _found(sent) == ["E008"]


@pytest.mark.parametrize(
    ("name", "content", "rule"),
    [
        ("none.yml", None, "A001"),
        ("a.yml", b"a: \xff", "A001"),
        ("a.md", b"# text", "A006"),
        ("a.json", b"{}", "A006"),
        ("a.yml", b"", "A002"),
        ("a.yml", b"- 1\n", "A006"),
        ("a.csv", b"a,a\n1,2\n", "D-10"),
        ("a.ipynb", b"{}", "A002"),
        ("a.ipynb", b"[]", "A002"),
        ("a.ipynb", b'{"cells": [1, null]}', "A002"),
    ],
)
def test_a_file_named_alone_is_checked_by_what_it_is(
    sound: Any, tmp_path: Path, name: str, content: bytes | None, rule: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert _found(tmp_path / name) == [rule]


def test_a_claim_that_lies_elsewhere_is_recognised(
    sound: Any, tmp_path: Path, claim_fields: Build
) -> None:
    file = tmp_path / "mine.yml"
    file.write_text(json.dumps(claim_fields(source="nobody-2026"), ensure_ascii=False))
    assert _found(file) == ["C009"]


def test_an_empty_folder_is_no_pass(sound: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    problems = rules.check([tmp_path / "empty"])
    assert [p.rule for p in problems] == ["A006"]
    assert rules.exit_code(problems) == 2


def test_what_a_killed_writer_left_is_not_checked(sound: Any) -> None:
    sound.write("data/evidence/first-token/.writing-x", "{")
    sound.write("data/claims/.first.yml", "{")
    assert rules.check([sound.root]) == []


def test_naming_a_path_twice_reports_once(sound: Any) -> None:
    _claim("unit: ms", "unit: GB")(sound)
    assert _found(sound.root, sound.root / "data") == _found(sound.root)


def test_checking_changes_nothing(sound: Any) -> None:
    before = {f: f.read_bytes() for f in sound.root.rglob("*") if f.is_file()}
    rules.check([sound.root])
    assert before == {f: f.read_bytes() for f in sound.root.rglob("*") if f.is_file()}


# -- the rulebook ---------------------------------------------------------------------------------


def test_every_rule_that_code_can_raise_is_in_the_book() -> None:
    room = Path(rules.__file__).parent
    names = ("rules.py", "notebook_rules.py", "leaks.py")
    raised = set(re.findall(r'"([A-Z]-?\d{2,3})"', "".join((room / n).read_text() for n in names)))
    assert raised <= set(rulebook.RULES)
    unraised = set(rulebook.RULES) - raised
    # The shared rules of records are raised by letter and number.
    assert {rule for rule in unraised if not re.fullmatch(r"[CEHMSW]00[1-7]", rule)} == {
        "C008",
        "H006",
        "M006",
    } - raised


@pytest.mark.parametrize("rule", sorted(rulebook.RULES))
def test_a_rule_is_a_sentence_with_one_severity(rule: str) -> None:
    severity, sentence = rulebook.RULES[rule]
    assert severity in ("error", "warning", "note")
    assert sentence
    assert not sentence.endswith(".")
    assert rulebook.problem(rule, "a", "b", "c").severity == severity
