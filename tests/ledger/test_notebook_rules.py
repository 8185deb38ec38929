"""The house style of notebooks: one notebook keeps every rule, one change breaks each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.ledger import notebook_rules, rulebook

Build = Callable[..., Any]
WORDS = "The words of this section explain what a reader should look for in the code below it. " * 9


def _code(text: str, *tags: str, **metadata: Any) -> dict[str, Any]:
    return {"cell_type": "code", "source": text, "metadata": {"tags": list(tags), **metadata}}


def _prose(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "source": text, "metadata": {}}


@pytest.fixture
def found(tmp_path: Path) -> Callable[..., list[tuple[str, str]]]:
    def check(content: object, *, source: bool = True) -> list[tuple[str, str]]:
        file = tmp_path / "a.ipynb"
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        problems = notebook_rules.check(file, source=source, claims={"first-token"})
        return [(p.rule, f"{p.where}: {p.what}") for p in problems]

    return check


def test_a_notebook_that_keeps_the_rules_passes(found: Build, notebook: Build) -> None:
    assert found(notebook()) == []


# Cells of the sound notebook: 0 title, 1 parameters, 2 set-up, 3 Claim to Evidence, 4 code,
# 5 prose, 6 figure, 7 Verdict, 8 record, 9 the last two sections.
PARAMETERS = 'claim_id: str = "first-token"  # the claim\nchunk: int = 2048  # tok'
FIGURE = {"figure": {"caption": "c", "name": "fig-a"}, "image": {"alt": "a"}}


def _parameters(text: str) -> dict[str, Any]:
    return _code(text, "parameters", "remove-cell")


LONG = _code("\n".join(f"a{i} = 1" for i in range(25)))
BROKEN: list[tuple[str, dict[int, Any], str]] = [
    ("N-01", {0: _prose(WORDS)}, "the first cell has no title"),
    ("N-01", {5: _prose(f"# Again\n{WORDS}")}, "cell 6: a second title"),
    ("N-01", {7: _prose(WORDS)}, "the sections are Claim, Method, Evidence, What would"),
    ("N-01", {5: _prose(f"## Aside\n{WORDS}")}, "Evidence, Aside, Verdict"),
    ("N-02", {5: None}, "no prose before the code"),
    ("N-03", {4: _code("\n".join(f"a{i} = 1" for i in range(26))), 5: _prose(WORDS)}, "26 lines"),
    ("N-03", {n: _prose("words " * 9) for n in range(20, 42)}, "32 cells"),
    ("N-04", {3: _prose("## Claim"), 5: _prose(""), 4: LONG}, "words of prose for"),
    ("N-05", {4: _code("def f():\n    return 1")}, "'def' in a notebook"),
    ("N-05", {4: _code("class A:\n    pass")}, "'class' in a notebook"),
    ("N-05", {4: _code("f = lambda x: x")}, "a named lambda"),
    ("N-05", {4: _code("try:\n    pass\nexcept ValueError:\n    pass")}, "'try' in a notebook"),
    ("N-05", {4: _code("%%time\nraise ValueError('bad result')")}, "line 1: magic '%%time'"),
    ("N-05", {4: _code("!pip list")}, "magic '!pip list'"),
    ("N-05", {4: _code("import json")}, "import outside the set-up cell"),
    ("N-06", {4: _code("a = 1\na = 2")}, "'a' is bound again (first cell 5, line 1)"),
    ("N-06", {4: _code("chunk = 1")}, "'chunk' is bound again (first cell 2, line 2)"),
    ("N-06", {4: _code("a = 1\na += 1")}, "'a' is bound again"),
    ("N-06", {4: _code("a, b = 1, 2\nfor c in (1, 2):\n    b = c")}, "'b' is bound again"),
    ("N-07", {4: _code("a = chunk * 3")}, "the literal number 3"),
    ("N-07", {4: _code("a = chunk * 0.25")}, "the literal number 0.25"),
    (
        "N-08",
        {4: {**_code("a = 1"), "outputs": [{"output_type": "stream", "text": "x"}]}},
        "has outputs",
    ),
    ("N-08", {4: {**_code("a = 1"), "execution_count": 3}}, "execution count"),
    ("N-08", {4: {**_code("a = 1"), "id": "c0"}}, "cell id 'c0' occurs twice"),
    ("N-08", {4: {**_code("a = 1"), "id": ""}}, "no cell id"),
    ("N-09", {4: _code('a = "/data/claims"')}, "the path '/data/claims'"),
    ("N-09", {4: _code('a = "../data"')}, "the path '../data'"),
    ("N-09", {4: _code("a = open(claim_id)")}, "open() reads a path"),
    ("N-09", {4: _code("a = pd.read_csv(claim_id)")}, "read_csv() reads a path"),
    ("N-10", {4: _code("# one\n# two\n# three\na = 1")}, "3 lines of comment"),
    ("N-11", {4: _code('Markdown("## Result")')}, "a heading from code"),
    ("N-12", {2: _code("from assay.ledger.store import claim\nfrom os import *")}, "imports names"),
    ("N-13", {1: _code(PARAMETERS, "remove-cell")}, "0 cells are tagged parameters"),
    ("N-13", {4: _parameters(PARAMETERS)}, "2 cells are tagged"),
    ("N-13", {1: _code("a0 = 1"), 4: _parameters(PARAMETERS)}, "is not first"),
    ("N-13", {1: _code(PARAMETERS, "parameters")}, "the parameters cell is shown"),
    ("N-13", {1: _parameters("flags = 'a=b'")}, "not a parameter"),
    ("N-13", {1: _parameters(PARAMETERS + "\na: int = 3")}, "'a' has no comment"),
    ("N-13", {1: _parameters(PARAMETERS + "\na: int = f()  # x")}, "no literal default"),
    ("N-13", {1: _parameters(PARAMETERS + "\na: int = 'x'  # x")}, "declared int"),
    (
        "N-13",
        {1: _parameters("\n".join(PARAMETERS.splitlines()[::-1]))},
        "the order is chunk, claim_id",
    ),
    (
        "N-13",
        {1: _parameters(PARAMETERS.replace("first-token", "gone"))},
        "the default claim 'gone' is unknown",
    ),
    ("N-15", {8: _code("store.save(claim)")}, "0 cells are tagged record"),
    ("N-15", {4: _code("a = 1", "record")}, "2 cells are tagged record"),
    ("N-15", {8: _code("a = 1"), 4: _code("b = 1", "record")}, "is not the last code cell"),
    ("N-16", {5: _prose(f"So the claim is disputed. {WORDS}")}, "the verdict word 'disputed'"),
    ("N-17", {5: _prose(f"It takes 10.74 GB of memory. {WORDS}")}, "the typed number '10.74 GB'"),
    ("N-18", {4: _code("a = 1", "remove_input")}, "tag 'remove_input'"),
    ("N-18", {4: _code("a = 1", "skip-execution")}, "tag 'skip-execution'"),
    ("N-18", {4: _code("a = 1", "raises-exception")}, "tag 'raises-exception'"),
    ("N-19", {4: _code("a = 1", execution={"timeout": -1})}, "metadata 'timeout'"),
    ("N-21", {5: _prose(f"{WORDS} FILL IN: why")}, "'FILL IN' is still there"),
    (
        "F-02",
        {6: _code("plot.strip(claim)", "hide-input")},
        "figure.caption, figure.name fig-…, image.alt",
    ),
    ("F-02", {6: _code("plot.strip(claim)", mystnb={**FIGURE, "image": {}})}, "has no image.alt"),
    (
        "F-02",
        {6: _code("plot.strip(claim)", mystnb={**FIGURE, "figure": {"caption": "c", "name": "a"}})},
        "figure.name fig-…",
    ),
    ("F-03", {4: _code("axes_.set_title(claim_id)")}, "'set_title'"),
    ("F-03", {4: _code("a = plot.frame(figsize=chunk)")}, "'figsize'"),
    ("F-03", {4: _code('a = "#d55e00"')}, "'#d55e00'"),
    ("F-03", {4: _code("plt.show()")}, "'plt'"),
    ("F-03", {4: _code("a = b.rcParams")}, "'rcParams'"),
    ("A002", {4: _code("a = (1")}, "the cell is not Python"),
    ("A004", {4: _code('api_key = "EXAMPLE-NOT-A-REAL-KEY"')}, "'api_key' is given a secret"),
    ("A005", {5: _prose(f"see C:\\Users\\jdoe\\x {WORDS}")}, "the home folder 'C:\\Users\\jdoe'"),
]


@pytest.mark.parametrize(
    ("rule", "changes", "words"), BROKEN, ids=[f"{r}-{w[:30]}" for r, _, w in BROKEN]
)
def test_one_change_breaks_one_rule(
    rule: str, changes: dict[int, Any], words: str, found: Build, notebook: Build
) -> None:
    problems = found(notebook(changes))
    about = [text for known, text in problems if known == rule]
    assert any(words in text for text in about), problems


ALLOWED = [
    ("N-06", _code("for a in (1, 2):\n    print(a)\nfor a in (1, 2):\n    print(a)")),
    ("N-06", _code("b = [a for a in (1, 2)]\nc = {a for a in (1, 2)}\n_ = 1\n_ = 2")),
    ("N-07", _code("a = chunk * 1000 + 0.01 - 2 + 1e9\nb = rng(seed=20261130)")),
    ("N-07", _code('a = f"{chunk:.3f}"\nb = True')),
    ("N-09", _code('a = store.read_json(claim_id)\nb = "tok/s"\nc = "data/models/a.json"')),
    ("F-03", _code('a = "#1 in the list"')),
]


@pytest.mark.parametrize(("rule", "cell"), ALLOWED)
def test_what_the_rules_allow_passes(
    rule: str, cell: dict[str, Any], found: Build, notebook: Build
) -> None:
    assert rule not in [known for known, _ in found(notebook({4: cell}))]


def test_numbers_outside_the_evidence_are_knobs(found: Build, notebook: Build) -> None:
    assert found(notebook({8: _code("store.save(claim, 3)", "record")})) == []


def test_headings_inside_fences_are_no_headings(found: Build, notebook: Build) -> None:
    text = f"# Title\n\n```{{glue:md}} verdict\n# not a title\n```\n{WORDS}"
    assert found(notebook({0: _prose(text)})) == []


def test_loosened_execution_is_found_at_any_depth(found: Build, notebook: Build) -> None:
    rules = found(notebook(execution={"allow_errors": True, "timeout": -1}))
    assert [rule for rule, _ in rules] == ["N-19", "N-19"]


def test_another_kernel_is_refused(found: Build, notebook: Build) -> None:
    content = notebook()
    content["metadata"]["kernelspec"]["name"] = "conda-env-mine"
    assert found(content)[0] == ("N-08", found(content)[0][1])
    assert "kernel 'conda-env-mine'" in found(content)[0][1]


# -- executed copies ------------------------------------------------------------------------------


def _executed(notebook: Build, output: object, **papermill: Any) -> dict[str, Any]:
    cell = {**_code("a = 1"), "outputs": [output], "execution_count": 1}
    content: dict[str, Any] = notebook({4: cell}, papermill=papermill)
    return content


def _stream(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text}


def test_an_executed_copy_may_have_outputs(found: Build, notebook: Build) -> None:
    assert found(_executed(notebook, _stream("ok")), source=False) == []


def test_a_source_with_papermills_metadata_is_still_a_source(found: Build, notebook: Build) -> None:
    assert "N-08" in [rule for rule, _ in found(_executed(notebook, _stream("ok")), source=True)]


def test_ten_megabytes_of_output_are_refused(found: Build, notebook: Build) -> None:
    content = _executed(notebook, _stream("x" * 10_000_000))
    assert found(content, source=False)[0][0] == "N-20"


# The four places where papermill leaves paths and secrets, and the colour codes of a traceback.
LEAKS = [
    {"input_path": "C:\\Users\\jdoe\\bench\\in.ipynb"},
    {"output_path": "/mnt/c/Users/jdoe/AppData/Local/Temp/out.ipynb"},
    {"parameters": {"hf_token": "EXAMPLE-NOT-A-REAL-TOKEN"}},
]


@pytest.mark.parametrize("papermill", LEAKS)
def test_papermills_metadata_leaks(
    papermill: dict[str, Any], found: Build, notebook: Build
) -> None:
    rules = found(_executed(notebook, _stream("ok"), **papermill), source=False)
    assert [rule for rule, _ in rules] in (["A004"], ["A005"])


def test_a_traceback_leaks_even_through_colour_codes(found: Build, notebook: Build) -> None:
    error = {
        "output_type": "error",
        "ename": "FileNotFoundError",
        "evalue": "",
        "traceback": ["\x1b[0;31mFileNotFoundError\x1b[0m: /ho\x1b[1mme/jdoe/exp"],
    }
    assert "/home/jdoe" in found(_executed(notebook, error), source=False)[0][1]


def test_a_leak_is_reported_without_repeating_the_secret(found: Build, notebook: Build) -> None:
    secret = "EXAMPLE-NOT-A-REAL-TOKEN"
    content = _executed(notebook, _stream("ok"), parameters={"hf_token": secret})
    assert secret not in str(found(content, source=False))


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens = 2048",
        'tokenizer = "meta-llama/Llama-2-7b"',
        "https://example.org/home/ada",
        "tokens: 32768",
        "the home page",
    ],
)
def test_ordinary_words_are_no_leak(text: str, found: Build, notebook: Build) -> None:
    assert found(_executed(notebook, _stream(text)), source=False) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"cells": [{"metadata": NaN}]}', "bare NaN"),
        ("<<<<<<< HEAD\n{}", "merge marker"),
        ("{}", "it has no cells"),
        ("", "not JSON"),
    ],
)
def test_what_is_no_notebook_is_one_problem(text: str, words: str, found: Build) -> None:
    [(rule, sentence)] = found(text)
    assert rule == "A002"
    assert words in sentence


def test_every_style_rule_can_be_broken() -> None:
    broken = {rule for rule, _, _ in BROKEN} | {"N-14", "N-20"}  # of claims, of executed copies
    assert {rule for rule in rulebook.RULES if rule[0] in "NF"} <= broken
