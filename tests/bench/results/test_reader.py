"""Text that is no result is refused in one sentence, and no text crashes the reader."""

from __future__ import annotations

import bz2
import copy
import gzip
import json
import lzma
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from assay.bench.results import documents, metrics, problems, reader
from assay.cli import app
from assay.ledger import store
from assay.press import terminal

Ask = Callable[..., Any]
Build = Callable[..., dict[str, Any]]
Shapes = dict[str, Any]


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "file.unreadable"),
        (b" \n\t ", "file.unreadable"),
        (b"\x1f\x8b\x08\x00", "file.unreadable"),
        (b"benchmarks: [", "file.not-json"),
        (b"benchmarks: {}\n", "file.unknown-format"),
        (b"INFO: done\n{}", "file.not-json"),
        (b"\xff\xfe{\x00}\x00", "file.unreadable"),
        (b"{", "file.not-json"),
        (b'{"completed": 1,', "file.not-json"),
        (b'{"completed": [1, 2', "file.not-json"),
        (b'{"completed": "unfinished', "file.not-json"),
        (b'{"completed": 1, "duration": 1} tail', "file.not-json"),
        (b'{"a": 1,}', "file.not-json"),
        (b"[" * 100_000 + b"]" * 100_000, "file.not-json"),
        (b"[" * 100_000, "file.not-json"),
        (b'{"completed": ' + b"9" * 5000 + b"}", "file.not-json"),
        (b'{"a": "\xff"}', "file.not-json"),
        (b"hello", "file.not-json"),
        (b"[]", "file.unknown-format"),
        (b"[1, 2]", "file.unknown-format"),
        (b"{}", "file.unknown-format"),
        (b"3.5", "file.unknown-format"),
        (b'{"benchmarks": []}', "file.unknown-format"),
        (b"a,b,c\n1,2,3\n", "file.unknown-format"),
        (b"| a | b |\n", "file.unknown-format"),
    ],
)
def test_text_that_is_no_result_is_refused(ask: Ask, content: bytes, rule: str) -> None:
    answer = ask(content)
    assert answer.rules == [rule]
    assert not answer.usable
    assert answer.rows == []
    assert len(answer.sentences) == 1


def test_a_syntax_error_is_given_with_its_place(ask: Ask) -> None:
    answer = ask('{\n "completed": 3,\n "duration" 4\n}')
    assert "line 3" in answer.sentences[0]


def test_an_unresolved_merge_is_named(ask: Ask) -> None:
    assert "merge marker" in ask('{\n<<<<<<< HEAD\n"a": 1}').sentences[0]


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    reading = reader.read(tmp_path / "none.json")
    assert reader.sentences([reading]) == [
        f"{tmp_path / 'none.json'}: no such file; check the name"
    ]


def test_a_second_run_that_fails_takes_nothing_from_the_first(ask: Ask, vllm_result: Build) -> None:
    good, bad = vllm_result(detail=False), vllm_result(failed=tuple(range(8)), detail=False)
    answer = ask(f"{json.dumps(good)}\n{json.dumps(bad)}")
    assert [row["run"] for row in answer.rows] == [1]
    assert not answer.usable
    assert "run 2" in answer.sentences[0]


def test_a_large_document_is_read_like_a_small_one(
    vllm_result: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps(vllm_result()).encode()
    whole = next(documents.documents(text, "x")).value
    monkeypatch.setattr(documents, "WHOLE", 64)
    pieces = next(documents.documents(text, "x")).value
    assert json.loads(json.dumps(pieces, default=list)) == whole


@given(
    value=st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(10**20), 10**20)
        | st.text(max_size=20)
        | st.floats(allow_nan=False),
        lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=40,
    ),
    indent=st.sampled_from([None, 1]),
    size=st.sampled_from([8, 64, documents.WHOLE]),
)
def test_taking_a_document_apart_changes_nothing(value: Any, indent: int | None, size: int) -> None:
    text = json.dumps(value, indent=indent).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "WHOLE", size)
        found = next(documents.documents(text, "x")).value
    back = json.loads(json.dumps(found, default=list))
    # A packed list of numbers holds floats; 1 and 1.0 are the same measurement.
    assert back == json.loads(json.dumps(value)) or _close(back, value)


def _close(one: Any, two: Any) -> bool:
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(_close, one, two))
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(_close(one[k], two[k]) for k in one)
    if isinstance(one, int | float) and isinstance(two, int | float):
        return float(one) == float(two)
    return bool(one == two)


SCALAR = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([0, 1, -1, 10**400, "inf", "[/red]", "\x1b[31m", "1e5", 1e308, -0.0, 5e-324])
)
LISTS = st.lists(SCALAR, max_size=4) | st.lists(st.floats(0, 1), max_size=9)
JUNK = (
    SCALAR
    | LISTS
    | st.lists(LISTS, max_size=3)
    | st.dictionaries(st.text(max_size=6), SCALAR | LISTS, max_size=3)
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """List the paths of everything inside a value."""
    keys = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    return [p for key in keys for p in ((*path, key), *places(value[key], (*path, key)))]


def checked(text: bytes, name: str = "result.json") -> None:
    """Hold an answer to what is true of every answer."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / name
        file.write_bytes(text)
        reading = reader.read(file)
    answer = reader.answer([reading])
    store.json_text(answer)  # strict JSON: no NaN and no Infinity
    terminal.results(answer)
    bad = [number for number, run in enumerate(reading.runs, 1) if not run.usable]
    assert not {row["run"] for row in answer["rows"]} & set(bad)
    assert bool(reader.sentences([reading])) == (not answer["usable"])
    if not answer["files"][0]["usable"]:
        assert answer["rows"] == answer["columns"] == answer["notes"] == []
        assert any(p["severity"] == "error" for p in answer["problems"])
    known = {column["name"] for column in answer["columns"]} | {"file", "run", "format"}
    for row in answer["rows"]:
        assert set(row) <= known
        assert all(v >= 0 for v in row.values() if isinstance(v, int | float))
    assert {p["rule"] for p in answer["problems"]} <= set(problems.RULES)


@given(data=st.data())
def test_mutated_results_are_answered_or_refused(shapes: Shapes, data: st.DataObject) -> None:
    content = copy.deepcopy(shapes[data.draw(st.sampled_from(sorted(shapes)))])
    for _ in range(data.draw(st.integers(1, 4))):
        path = data.draw(st.sampled_from(places(content) or [()]))
        if not path:
            content = data.draw(JUNK)
            break
        inner = content
        for key in path[:-1]:
            inner = inner[key]
        if data.draw(st.booleans()):
            inner[path[-1]] = data.draw(JUNK)
        elif isinstance(inner, dict):
            del inner[path[-1]]
        else:
            inner.append(data.draw(JUNK))
    checked(json.dumps(content).encode())


@pytest.mark.parametrize("name", ["ttft_s", "e2e_s", "output_tokens"])
def test_a_time_too_small_to_divide_by_is_answered(shapes: Shapes, name: str) -> None:
    content = copy.deepcopy(shapes["hidden"])
    content["requests"][0][name] = 5e-324
    checked(json.dumps(content).encode())


@given(data=st.data())
def test_damaged_text_is_answered_or_refused(shapes: Shapes, data: st.DataObject) -> None:
    text = bytearray(json.dumps(shapes[data.draw(st.sampled_from(sorted(shapes)))]).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        kind = data.draw(st.sampled_from(["cut", "put", "flip", "repeat"]))
        if kind == "cut":
            del text[at : at + data.draw(st.sampled_from([1, 20, 10**6]))]
        elif kind == "put":
            text[at:at] = data.draw(st.sampled_from([b'"', b"\\", b"NaN", b"]", b"{", b",", b"-"]))
        elif kind == "flip" and at < len(text):
            text[at] = data.draw(st.integers(0, 255))
        else:
            text += text[: data.draw(st.integers(0, 400))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "WHOLE", data.draw(st.sampled_from([32, documents.WHOLE])))
        checked(bytes(text))


@given(
    rows=st.lists(st.lists(st.text(max_size=6) | st.floats().map(str), max_size=5), max_size=5),
    head=st.sampled_from(
        [
            "prompt_tokens,generation_tokens,ttft,generation_time",
            "n_prompt,n_gen,avg_ns,avg_ts",
            "| test | t/s | model |",
        ]
    ),
)
def test_tables_are_answered_or_refused(rows: list[list[str]], head: str) -> None:
    mark = "|" if head.startswith("|") else ","
    text = "\n".join([head, *(mark.join(row) for row in rows)])
    checked(text.encode("utf-8", "replace"), "table.csv")


@given(data=st.data())
def test_damaged_tables_are_answered_or_refused(
    tables: dict[str, str], data: st.DataObject
) -> None:
    text = tables[data.draw(st.sampled_from(sorted(tables)))]
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(text)))
        end = min(len(text), at + data.draw(st.sampled_from([0, 1, 8, 60])))
        put = data.draw(
            st.sampled_from(
                ["", ",", "\n", '"', "'", ";", ")", "nan", "-1", "1e400", "[1, 2]", "é"]
            )
            | st.text(max_size=4)
            | st.floats().map(str)
        )
        text = text[:at] + put + text[end:]
    checked(text.encode("utf-8", "replace"), data.draw(st.sampled_from(["x.csv", "x.sql", "x"])))


@given(data=st.data())
def test_damaged_packing_is_answered_or_refused(shapes: Shapes, data: st.DataObject) -> None:
    content = shapes[data.draw(st.sampled_from(sorted(shapes)))]
    pack = data.draw(st.sampled_from([gzip.compress, bz2.compress, lzma.compress]))
    text = bytearray(pack(json.dumps(content).encode()))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        kind = data.draw(st.sampled_from(["cut", "flip", "repeat", "end"]))
        if kind == "flip":
            text[at] = data.draw(st.integers(0, 255))
        elif kind == "cut" and len(text) > 8:
            del text[at : at + data.draw(st.sampled_from([1, 20, 10**6]))]
            text = text or bytearray(b"\x1f\x8b")
        elif kind == "repeat":
            text += text[: data.draw(st.integers(0, 60))]
        else:
            text += b"junk"
    checked(bytes(text), "result.json.gz")


@given(data=st.data())
def test_mutated_yaml_is_answered_or_refused(shapes: Shapes, data: st.DataObject) -> None:
    content = copy.deepcopy(shapes["guidellm"])
    for _ in range(data.draw(st.integers(0, 3))):
        *path, last = data.draw(st.sampled_from(places(content)))
        inner = content
        for key in path:
            inner = inner[key]
        inner[last] = data.draw(st.none() | st.booleans() | st.integers() | st.text(max_size=5))
        if not places(content):
            return
    text = yaml.safe_dump(content)
    at = data.draw(st.integers(0, len(text)))
    text = (
        text[:at] + data.draw(st.sampled_from(["", ":", "\n", "- ", "&a ", "*a", "["])) + text[at:]
    )
    checked(text.encode(), "report.yaml")


@pytest.mark.parametrize(("failed", "code"), [(0, 0), (1, 0), (8, 2)])
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_exit_code_says_whether_the_file_is_usable(
    tmp_path: Path, vllm_result: Build, failed: int, code: int, options: list[str]
) -> None:
    file = tmp_path / "result.json"
    file.write_text(json.dumps(vllm_result(failed=tuple(range(failed)))))
    done = CliRunner().invoke(app, ["read", str(file), *options])
    assert done.exit_code == code
    assert len(done.stderr.splitlines()) == (1 if code else 0)
    if options:
        assert json.loads(done.stdout)["usable"] == (code == 0)


def test_several_files_make_one_table(tmp_path: Path, shapes: Shapes) -> None:
    files = []
    for number, name in enumerate(("vllm", "guidellm", "llama-bench")):
        files.append(tmp_path / f"{number}.json")
        files[-1].write_text(json.dumps(shapes[name]))
    done = CliRunner().invoke(app, ["read", *map(str, files), "--json"])
    answer = json.loads(done.stdout)
    assert [row["file"] for row in answer["rows"]] == [str(files[i]) for i in (0, 1, 2, 2, 2)]
    assert CliRunner().invoke(app, ["read", *map(str, files)]).exit_code == 0


def test_every_metric_and_fact_is_in_a_known_unit() -> None:
    from assay.physics import units

    for metric in metrics.METRICS.values():
        assert units.base_of(metric.unit) == metric.unit
    for unit, _ in metrics.FACTS.values():
        assert not unit or units.base_of(unit) == unit
