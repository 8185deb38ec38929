"""The store: nothing half written, nothing lost, and errors that say where."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import AssayError, InputError, RecordError
from assay.ledger import judge, records, store

Build = Callable[..., Any]

# -- writing --------------------------------------------------------------------------------------

_WRITER = """
import sys, itertools
from pathlib import Path
from assay.ledger import store
file = Path(sys.argv[1])
print("ready", flush=True)
for letter in itertools.cycle("ab"):
    store.write(file, letter * 3_000_000)
"""


def test_a_writer_killed_in_the_middle_leaves_one_whole_version(tmp_path: Path) -> None:
    file = tmp_path / "data.json"
    store.write(file, "a" * 3_000_000)
    for pause in (0.02, 0.05, 0.09):
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(file)], stdout=subprocess.PIPE, text=True
        )
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            time.sleep(pause)
        finally:
            writer.send_signal(signal.SIGKILL)
            writer.communicate(timeout=30)
        content = file.read_text()
        assert len(content) == 3_000_000
        assert set(content) in ({"a"}, {"b"})


def test_what_a_killed_writer_leaves_is_no_evidence(
    project: Any, evidence: Build, claim: Build
) -> None:
    file = store.save(evidence())
    (file.parent / ".writing-xyz").write_text("{")
    (file.parent / ".half.derived.json").write_text("{")
    assert list(store.evidence("first-token")) == [file.name]


def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.csv"
    store.write(file, "old\n")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(InputError, match=r"cannot be written \(No space left on device\)"):
        store.write(file, "new\n")
    assert [p.name for p in tmp_path.iterdir()] == ["a.csv"]
    assert file.read_text() == "old\n"


def test_writing_the_same_text_touches_nothing(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    assert store.write(file, "x\n")
    os.utime(file, (1, 1))
    assert not store.write(file, "x\n")
    assert file.stat().st_mtime == 1


def test_other_line_ends_are_another_content(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"x\r\n")
    assert store.write(file, "x\n")
    assert file.read_bytes() == b"x\n"


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_canonical_text_is_a_fixed_point(value: Any) -> None:
    text = store.json_text(value)
    assert store.json_text(json.loads(text)) == text


@given(st.integers(0, 2**53 - 1))
def test_a_whole_number_is_never_rounded(value: int) -> None:
    assert json.loads(store.json_text(float(value))) == value


def test_canonical_text_is_sorted_rounded_and_ends_in_a_newline() -> None:
    assert store.json_text({"b": 0.1 + 0.2, "a": 2.0}) == '{\n  "a": 2,\n  "b": 0.3\n}\n'


def test_nan_is_never_written() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        store.json_text(float("nan"))


# -- evidence -------------------------------------------------------------------------------------


def test_the_name_is_assertion_basis_and_hash_of_the_content(project: Any, evidence: Build) -> None:
    file = store.save(evidence())
    assertion, basis, digest, suffix = file.name.split(".")
    assert (assertion, basis, suffix) == ("fast", "derived", "json")
    assert store.digest(file).startswith(digest)
    assert store.evidence_name(evidence()) == file.name


def test_what_is_saved_is_what_is_read(project: Any, evidence: Build) -> None:
    item = evidence()
    store.save(item)
    assert store.live("first-token") == [item]


def test_deriving_again_writes_the_same_file(project: Any, evidence: Build) -> None:
    noisy = evidence(estimate__value=0.1 + 0.2, estimate__low=0.3, estimate__high=0.31)
    plain = evidence(estimate__value=0.3, estimate__low=0.3, estimate__high=0.31)
    first = store.save(noisy)
    before = first.read_bytes()
    assert store.save(plain) == first
    assert first.read_bytes() == before
    assert project.evidence() == [first.name]


def test_a_derivation_with_another_result_takes_the_place_of_the_old(
    project: Any, evidence: Build
) -> None:
    store.save(evidence())
    new = store.save(evidence(finding="It takes 150 ms, computed anew."))
    assert project.evidence() == [new.name]


def test_a_derivation_under_other_conditions_is_another_piece(
    project: Any, evidence: Build
) -> None:
    store.save(evidence())
    store.save(evidence(conditions__precision="fp8"))
    assert len(project.evidence()) == 2


def test_a_measurement_is_never_replaced(project: Any, evidence: Build) -> None:
    store.save(evidence(basis="measured"))
    store.save(evidence(basis="measured", finding="Another day, another number."))
    assert len(project.evidence()) == 2


def test_withdrawn_evidence_stays_when_it_is_derived_anew(project: Any, evidence: Build) -> None:
    wrong = store.save(evidence())
    record = {"evidence": wrong.name, "date": "2026-11-30", "why": "an arithmetic slip"}
    project.write("data/evidence/first-token/one.withdrawn.yml", record)
    right = store.save(evidence(finding="Mended."))
    assert project.evidence() == sorted([wrong.name, right.name])
    assert [item.finding for item in store.live("first-token")] == ["Mended."]


def test_a_withdrawal_of_nothing_is_refused(project: Any, evidence: Build) -> None:
    store.save(evidence())
    for name in ("none.json", "../../sources.yml"):
        record = {"evidence": name, "date": "2026-11-30", "why": "a slip"}
        project.write("data/evidence/first-token/one.withdrawn.yml", record)
        with pytest.raises(RecordError, match=r"one\.withdrawn\.yml, line 1.*unknown evidence"):
            store.live("first-token")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"assertion": "slow"}, "unknown assertion 'slow'"),
        ({"claim": "other"}, "unknown claim 'other'"),
        ({"estimate__unit": "B"}, "'B' does not measure ttft"),
    ],
)
def test_evidence_about_nothing_known_is_not_saved(
    project: Any, evidence: Build, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(AssayError, match=words):
        store.save(evidence(**changes))
    assert project.evidence() == []


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text.replace("150 ms", "15 ms"),
        lambda text: text.replace('"n": 1', '"n": 7'),
        lambda text: text.replace("\n", "\r\n  "),
        lambda text: text + "\n",
    ],
)
def test_evidence_edited_by_hand_is_refused(
    project: Any, evidence: Build, edit: Callable[[str], str]
) -> None:
    file = store.save(evidence())
    file.write_text(edit(file.read_text()), newline="")
    with pytest.raises(RecordError, match="content does not match the name"):
        store.evidence("first-token")


def test_evidence_in_the_folder_of_another_claim_is_refused(
    project: Any, evidence: Build, claim_fields: Build
) -> None:
    file = store.save(evidence())
    project.write("data/claims/other.yml", claim_fields())
    (project.root / "data/evidence/other").mkdir()
    file.rename(project.root / "data/evidence/other" / file.name)
    with pytest.raises(RecordError, match="lies in the folder of another"):
        store.evidence("other")


def test_evidence_of_no_claim_is_found(project: Any, evidence: Build) -> None:
    project.write("data/evidence/gone/a.json", "{}")
    assert [p.name for p in store.stray_evidence()] == ["gone"]


# -- staging and promotion ------------------------------------------------------------------------


@pytest.fixture
def staged(project: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    staging = tmp_path / "staging"
    monkeypatch.setenv(store.STAGING, str(staging))
    return staging


def _promote(staging: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.delenv(store.STAGING)
    return [file.name for file in store.promote(staging, "first-token")]


def test_a_running_notebook_writes_nothing_into_the_ledger(
    project: Any, staged: Path, evidence: Build
) -> None:
    store.save(evidence())
    assert project.evidence() == []
    assert store.live("first-token") == [evidence()]


def test_a_running_notebook_sees_other_claims_as_the_ledger_has_them(
    project: Any,
    evidence: Build,
    claim_fields: Build,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store.save(evidence())
    project.write("data/claims/other.yml", claim_fields())
    monkeypatch.setenv(store.STAGING, str(tmp_path / "staging"))
    store.save(evidence(claim="other"))
    assert store.live("first-token") == [evidence()]


def test_promotion_replaces_what_the_run_no_longer_says(
    project: Any, evidence: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provenance = evidence(basis="measured").provenance.model_dump()
    gone = store.save(evidence(basis="recomputed"))
    measured = store.save(evidence(basis="measured"))
    asked = evidence(conditions__engine="vllm", provenance=provenance, basis="documented")
    kept = store.save(asked)
    monkeypatch.setenv(store.STAGING, str(tmp_path / "staging"))
    store.save(evidence(finding="Anew."))
    # The running notebook already sees what the ledger will hold.
    seen = sorted(store.evidence("first-token"))
    [fresh] = _promote(tmp_path / "staging", monkeypatch)
    assert project.evidence() == seen == sorted([fresh, measured.name, kept.name])
    assert gone.name not in seen


def test_evidence_with_provenance_yields_to_its_own_kind(
    project: Any, evidence: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provenance = evidence(basis="measured").provenance.model_dump()
    old = store.save(evidence(provenance=provenance))
    monkeypatch.setenv(store.STAGING, str(tmp_path / "staging"))
    store.save(evidence(provenance=provenance, finding="A newer engine says the same."))
    [fresh] = _promote(tmp_path / "staging", monkeypatch)
    assert project.evidence() == [fresh] != [old.name]


def test_promotion_refuses_evidence_of_another_claim_and_changes_nothing(
    project: Any,
    evidence: Build,
    claim_fields: Build,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = store.save(evidence())
    project.write("data/claims/other.yml", claim_fields())
    monkeypatch.setenv(store.STAGING, str(tmp_path / "staging"))
    store.save(evidence(finding="Anew."))
    store.save(evidence(claim="other"))
    with pytest.raises(RecordError, match="evidence for claim 'other'"):
        _promote(tmp_path / "staging", monkeypatch)
    assert project.evidence() == [kept.name]


def test_promoting_twice_changes_nothing(
    project: Any, staged: Path, evidence: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(evidence())
    first = _promote(staged, monkeypatch)
    assert [file.name for file in store.promote(staged, "first-token")] == first
    assert project.evidence() == first


def test_found_fills_in_what_does_not_enter_and_says_what_is_wrong(project: Any) -> None:
    owner = store.claim("first-token")
    arguments: dict[str, Any] = {
        "basis": "derived",
        "value": 0.15,
        "unit": "s",
        "method": "closed form",
        "finding": "It takes 150 ms.",
        "parameters": {},
        "inputs": ["data/sources.yml"],
        "conditions": {},
    }
    item = store.found(owner, "fast", **arguments)
    assert set(item.conditions.values()) == {"n/a"}
    assert store.live("first-token") == [item]
    with pytest.raises(InputError, match="cannot be read"):
        store.found(owner, "fast", **{**arguments, "inputs": ["data/none.csv"]})
    with pytest.raises(RecordError, match=r"first-token, fast, .*unit: .*write s, not ms"):
        store.found(owner, "fast", **{**arguments, "unit": "ms"})


# -- verdicts and history -------------------------------------------------------------------------


def _verdicts() -> list[judge.Verdict]:
    return [judge.judge(claim, store.live(claim.id)) for claim in store.claims()]


def _write(date: str, cause: str) -> list[dict[str, str]]:
    return store.write_verdicts(_verdicts(), date=date, cause=cause)


def test_history_grows_only_when_a_verdict_changes(project: Any, evidence: Build) -> None:
    [first] = _write("2026-11-30", "first")
    assert (first["from"], first["to"]) == ("", "open (not-run)")
    assert _write("2026-12-01", "nothing new") == []
    store.save(evidence())
    [second] = _write("2026-12-02", "derived")
    assert (second["from"], second["to"]) == ("open (not-run)", "verified")
    assert store.history() == [first, second]
    assert not store.verdicts_stale(_verdicts())


def test_history_keeps_its_past_byte_for_byte(project: Any, evidence: Build) -> None:
    _write("2026-11-30", "first")
    file = project.root / "data/history.csv"
    past = file.read_text().replace("first\n", '"first, by hand"')  # and no newline at the end
    file.write_text(past)
    store.save(evidence())
    _write("2026-12-02", "derived")
    assert file.read_text() == (
        past + "\n2026-12-02,first-token,fast,open (not-run),verified,derived\n"
    )


def test_a_removed_claim_is_recorded_once(project: Any) -> None:
    _write("2026-11-30", "first")
    (project.root / "data/claims/first-token.yml").unlink()
    [gone] = _write("2026-12-01", "withdrawn")
    assert gone["to"] == "removed"
    assert _write("2026-12-02", "again") == []


def test_a_history_with_other_columns_is_refused(project: Any) -> None:
    project.write("data/history.csv", "date,claim\n2026-11-30,x\n")
    with pytest.raises(InputError, match=r"history\.csv, line 1: the header is not date,claim,"):
        store.history()


def test_verdicts_are_one_row_per_assertion_in_printed_units(project: Any, evidence: Build) -> None:
    store.save(evidence())
    header, row = store.verdicts_text(_verdicts()).splitlines()
    assert header == (
        "claim,claim_status,assertion,headline,status,reason,basis,claimed,low,high,unit"
    )
    assert row == "first-token,verified,fast,true,verified,,derived,150,150,150,ms"


# -- reading: what is wrong, where, and what to do ------------------------------------------------

TRAPS = [
    ("value: off", "line 1, value: 'off' is read as false; write false, or quote it"),
    ("value: Yes", "line 1, value: 'Yes' is read as true; write true, or quote it"),
    ("a: 1\nvalue: 12:30", "line 2, value: '12:30' is read as 750; quote it"),
    ("value: 1:30.5", "'1:30.5' is read as 90.5; quote it"),
    ("value: 017", "'017' is read as 15; quote it"),
    ("value:", "line 1, value: has no value; write null"),
    ("on: 1", "line 1: key 'on' is not read as text; quote it"),
    ("2026: 1", "line 1: key '2026' is not read as text; quote it"),
    ("? [a]\n: 1", "a key is a list or a mapping"),
    ("a: 1\nb: 2\na: 3", "line 3: duplicate key 'a'; keep one of the two"),
    ("a: {b: 1, b: 2}", "line 1, a: duplicate key 'b'"),
    ("a: &x 1\nb: *x", "anchors are not allowed"),
    ("a: &x [*x]", "anchors are not allowed"),
    ("a: {<<: {b: 1}}", "merge keys are not allowed"),
    ("a: !!python/object:os.system {}", "tag 'python/object:os.system' is not allowed"),
    ("a: !!set {b, c}", "tag 'set' is not allowed"),
    ("a: !!int abc", "invalid literal"),
    ("a: " + "9" * 5000, "write it plainly"),
    ("a: 1\n---\nb: 2", "not YAML: but found another document"),
    ("a: [1", "line 2: not YAML: "),
    ("a: \x07", "not YAML: "),
    ("[" * 5000, "not YAML: "),
    ("<<<<<<< HEAD\na: 1\n=======", "line 1: unresolved merge marker '<<<<<<< HEAD'"),
    ("", "is empty; write the record"),
    ("# nothing\n", "is empty"),
]


@pytest.mark.parametrize(("text", "words"), TRAPS)
def test_yaml_that_means_something_else_is_refused_in_one_sentence(
    tmp_path: Path, text: str, words: str
) -> None:
    file = tmp_path / "a.yml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        store.read_yaml(file)
    assert "a.yml" in str(caught.value)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


# What PyYAML reads as written stays readable: n is "n", not false; 1e5 is text, refused by types.
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("n", "n"),
        ("0780", "0780"),
        ("1e5", "1e5"),
        ("1.10", 1.1),
        ("2026-11-30", "2026-11-30"),
        ("true", True),
        ("null", None),
        ("~", None),
        ('"off"', "off"),
        ("0", 0),
        ("-7", -7),
    ],
)
def test_plain_values_are_read_as_pyyaml_reads_them(
    tmp_path: Path, text: str, value: object
) -> None:
    file = tmp_path / "a.yml"
    file.write_text(f"key: {text}\n")
    assert store.read_yaml(file)[0] == {"key": value}


def test_all_errors_of_a_yaml_file_are_collected(tmp_path: Path) -> None:
    file = tmp_path / "a.yml"
    file.write_text("a: off\nb: 12:30\na: 1\n")
    _, lines, errors = store.examine_yaml(file)
    assert [error.where.partition(", ")[2] for error in errors] == [
        "line 1, a",
        "line 2, b",
        "line 3",
    ]
    assert lines["b"] == 2


def test_changing_a_read_yaml_value_does_not_change_the_next_reading(tmp_path: Path) -> None:
    file = tmp_path / "a.yml"
    file.write_text("a: [1]\n")
    store.read_yaml(file)[0]["a"].append(2)
    assert store.read_yaml(file)[0] == {"a": [1]}


@pytest.mark.parametrize("read", [store.read_json, store.read_yaml, store.read_csv])
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda file: None, "no such file"),
        (lambda file: file.mkdir(), "is a folder"),
        (lambda file: file.write_bytes(b"a: \xff"), "is not UTF-8 text (byte 3)"),
        (lambda file: file.write_text("<<<<<<< HEAD\n"), "unresolved merge marker"),
    ],
)
def test_every_reader_says_why_a_file_cannot_be_read(
    tmp_path: Path, read: Callable[[Path], Any], make: Callable[[Path], Any], words: str
) -> None:
    file = tmp_path / "a.dat"
    make(file)
    with pytest.raises(InputError) as caught:
        read(file)
    assert words in str(caught.value)


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert store.read_json(file) == {"a": 1}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": NaN}', "not JSON: bare NaN"),
        ('{"a": -Infinity}', "not JSON: bare -Infinity"),
        ('{"a": 1,\n}', "line 2: not JSON"),
        ('{"a": 1, "a": 2}', "duplicate key 'a'"),
        ("", "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("9" * 5000, "not JSON"),
    ],
)
def test_json_that_is_not_strict_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "a.json"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        store.read_json(file)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1\n", "line 2: row does not fit the header"),
        ("a,b\n1,2,3\n", "line 2: row does not fit the header"),
        ("a,a\n1,2\n", "column 'a' appears twice"),
        ("", "is empty"),
        ('a,b\n"1,2\n', "not CSV"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "a.csv"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        store.read_csv(file)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("first-token.yml", "unit: ms", "unit: GB", r"line \d+, assertions\[0\]\.unit: unit 'GB'"),
        ("first-token.yml", "unit: ms", "unit: tps", "unknown unit 'tps'; write tok/s"),
        ("first-token.yml", "value: 150", "value: 1e5", r"'1e5' is read as text"),
        (
            "first-token.yml",
            "value: 150",
            "value: 500",
            r"line \d+, assertions\[0\]\.band: the band",
        ),
        (
            "first-token.yml",
            "version: n/a",
            "version: 1.10",
            r"scope\.version: read as the number 1.1",
        ),
        ("first-token.yml", "locator:", "page:", "unknown field 'page'"),
        ("first-token.yml", "title:", "id: x\ntitle:", r"line 1, id: unknown field 'id'"),
        (
            "first-token.yml",
            "title:",
            "colour: x\ntitle:",
            r"line 1, colour: unknown field 'colour'",
        ),
    ],
)
def test_a_broken_claim_is_named_by_file_line_and_field(
    project: Any, name: str, old: str, new: str, words: str
) -> None:
    file = project.root / "data/claims" / name
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    with pytest.raises(AssayError, match=rf"data/claims/{name}.*{words}"):
        store.claims()


def test_a_claim_under_another_suffix_is_not_silently_left_out(project: Any) -> None:
    project.write("data/claims/second.yaml", "title: x")
    with pytest.raises(RecordError, match=r"name it second\.yml"):
        store.claim_ids()


def test_an_unknown_id_is_answered_with_the_nearest(project: Any) -> None:
    with pytest.raises(InputError, match="unknown claim 'first-tokens'; did you mean first-token"):
        store.claim("first-tokens")


def test_a_root_that_does_not_exist_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_ROOT", "nowhere/at/all")
    with pytest.raises(InputError, match="no folder 'nowhere/at/all'"):
        store.root()


def test_every_public_name_exists() -> None:
    assert all(hasattr(store, name) for name in store.__all__)
    assert all(hasattr(records, name) for name in records.__all__)
