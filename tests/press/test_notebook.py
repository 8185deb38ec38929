"""A notebook is held to its rules before anything runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.errors import AssayError, InputError, RecordError
from assay.ledger import parameter
from assay.press import notebook

PARAMETERS = 'claim_id: str = "a"\nheads: int = 32  # query heads\nwarm: bool = True\n'


def cell(source: str, *, kind: str = "code", name: str = "", **metadata: Any) -> dict[str, Any]:
    made = {"cell_type": kind, "id": name or f"c{abs(hash(source))}", "metadata": metadata}
    made["source"] = source
    if kind == "code":
        made |= {"execution_count": None, "outputs": []}
    return made


def content(*cells: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"cells": list(cells), "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that writes a notebook ``n`` into a small project and reads it back."""
    monkeypatch.setenv("ASSAY_ROOT", str(tmp_path))
    (tmp_path / "notebooks").mkdir()

    def write(made: dict[str, Any] | str) -> notebook.Notebook:
        text = made if isinstance(made, str) else json.dumps(made)
        (tmp_path / "notebooks" / "n.ipynb").write_text(text)
        return notebook.read("n")

    return write


def parameters(source: str = PARAMETERS) -> dict[str, Any]:
    return cell(source, name="p", tags=["parameters"])


def test_names_types_defaults_and_comments_are_read(written: Any) -> None:
    read = written(content(cell("# T", kind="markdown"), parameters(), cell("heads")))
    heads = read.parameters["heads"]
    assert (heads.kind, heads.default, heads.help) == ("int", 32, "query heads")
    assert read.parameters_at == 1
    notebook.check_format(read)


def test_a_source_kept_as_lines_reads_like_one_text(written: Any) -> None:
    lines = parameters()
    lines["source"] = PARAMETERS.splitlines(keepends=True)
    assert list(written(content(lines)).parameters) == ["claim_id", "heads", "warm"]


def test_an_equals_sign_in_a_default_is_part_of_it() -> None:
    found = parameter.declared('claim_id: str = "a"\nflags: str = "a=b"  # c=d', "cell 1")
    assert (found["flags"].default, found["flags"].help) == ("a=b", "c=d")


def test_a_hash_in_a_default_is_not_a_comment() -> None:
    found = parameter.declared('claim_id: str = "a#b"', "cell 1")
    assert (found["claim_id"].default, found["claim_id"].help) == ("a#b", "")


REFUSED = {
    "no parameters cell": (content(cell("x = 1")), "no cell is tagged 'parameters'"),
    "no code at all": (content(cell("# T", kind="markdown")), "no cell is tagged"),
    "two parameters cells": (
        content(parameters(), cell("y: int = 1", tags=["parameters"])),
        "cells 1 and 2 are tagged 'parameters'",
    ),
    "code before the parameters": (content(cell("x = 1"), parameters()), "not the first code cell"),
    "markdown tagged parameters": (
        content(cell("# T", kind="markdown", tags=["parameters"]), cell("x = 1")),
        "not the first code cell",
    ),
    "allow_errors": (
        content(parameters(), execution={"allow_errors": True}),
        "'allow_errors' would change how strictly",
    ),
    "a timeout of its own": (content(parameters(), execution={"timeout": -1}), "'timeout' would"),
    "allow_errors on a cell": (
        content(parameters(), cell("1 / 0", nbclient={"allow_errors": True})),
        "cell 2: metadata 'allow_errors'",
    ),
    "raises-exception": (
        content(parameters(), cell("1 / 0", tags=["raises-exception"])),
        "cell 2: tag 'raises-exception' lets a failing cell pass",
    ),
    "skip-execution": (content(parameters(), cell("1", tags=["skip-execution"])), "skip-execution"),
    "an injected cell": (
        content(parameters(), cell('key = "x"', tags=["injected-parameters"])),
        "cell 2: the source holds a cell injected by an earlier run",
    ),
    "old format": ({**content(parameters()), "nbformat_minor": 4}, "format 4.4"),
    "one id twice": (content(parameters(), cell("1", name="p")), "cell 2: the cell has the id of"),
    "not a notebook": ({"a": 1}, "no list of cells"),
    "a list": ("[]", "no list of cells"),
    "a merge marker": ("{\n<<<<<<< HEAD\n}", "line 2: "),
    "unknown own metadata": (content(parameters(), assay={"alone": True}), "takes one field"),
    "exclusive in words": (content(parameters(), assay={"exclusive": "yes"}), "'yes'"),
    "no annotation": (content(parameters("claim_id = 'a'")), "line 1: not a parameter"),
    "code among parameters": (content(parameters(PARAMETERS + "import os")), "line 4: not a param"),
    "a computed default": (content(parameters(PARAMETERS + "x: int = 2 ** 9")), "no literal"),
    "no default": (content(parameters(PARAMETERS + "x: int")), "no literal default"),
    "default of another type": (content(parameters(PARAMETERS + "x: int = 1.5")), "declared int"),
    "a bool for an int": (content(parameters(PARAMETERS + "x: int = True")), "True is bool"),
    "infinite default": (content(parameters(PARAMETERS + "x: float = 1e999")), "must be finite"),
    "a list type": (content(parameters(PARAMETERS + "x: list = []")), "has type list"),
    "declared twice": (content(parameters(PARAMETERS + "heads: int = 1")), "declared twice"),
    "no claim_id": (content(parameters("x: int = 1")), "'claim_id' is not declared"),
    "a secret": (content(parameters(PARAMETERS + 'hf_token: str = ""')), "looks like a secret"),
    "a syntax error": (content(parameters("x: int = = 1")), "line 1: not Python"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_is_refused_in_one_sentence_with_its_place(written: Any, case: str) -> None:
    made, message = REFUSED[case]
    with pytest.raises(InputError) as caught:
        written(made)
    assert message in str(caught.value)
    assert str(caught.value).startswith("notebooks/n.ipynb")
    assert "\n" not in str(caught.value)


def test_bare_nan_in_metadata_is_refused(written: Any) -> None:
    # The saved notebook of a run with a NaN parameter: nteract/papermill, issue 864.
    made = json.dumps(content(parameters(), papermill={"parameters": {"x": float("nan")}}))
    with pytest.raises(InputError, match="bare NaN"):
        written(made)


def test_the_published_schema_is_applied_too(written: Any) -> None:
    broken = content(parameters())
    broken["cells"][0]["outputs"] = [{"output_type": "poem"}]
    with pytest.raises(InputError, match=r"notebooks/n\.ipynb: not a valid notebook"):
        notebook.check_format(written(broken))


def test_max_tokens_is_not_taken_for_a_secret() -> None:
    source = 'claim_id: str = "a"\nmax_tokens: int = 1\noutput_tokens: int = 2'
    assert len(parameter.declared(source, "cell 1")) == 3


# Values typed on a command line, and what papermill's own reading makes of them: nteract/papermill,
# issues 245, 537 and 630.
GIVEN = [
    ("bool", "false", False),
    ("bool", "False", False),
    ("bool", "true", True),
    ("int", "-3", -3),
    ("float", "1e5", 100000.0),
    ("float", "2", 2.0),
    ("str", "007", "007"),
    ("str", "false", "false"),
    ("str", "None", "None"),
    ("str", "1e5", "1e5"),
    ("str", "", ""),
    ("int | None", "None", None),
]


@pytest.mark.parametrize(("annotation", "text", "value"), GIVEN)
def test_text_is_typed_by_the_declaration(annotation: str, text: str, value: object) -> None:
    kind, _, optional = annotation.partition(" | ")
    made = parameter.Parameter("x", kind, bool(optional), None, "").parse(text)
    assert made == value
    assert type(made) is type(value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("bool", "1"),
        ("bool", "yes"),
        ("int", "1e5"),
        ("int", "1_000"),
        ("int", "007"),
        ("int", "1.0"),
        ("int", "None"),
        ("int", ""),
        ("float", "nan"),
        ("float", "inf"),
        ("float", "-Infinity"),
        ("float", "1e999"),
        ("float", "1_0.0"),
        ("float", "fast"),
    ],
)
def test_text_of_another_type_is_refused(kind: str, text: str) -> None:
    with pytest.raises(InputError, match=f"parameter 'x': '{text}' is not {kind}"):
        parameter.Parameter("x", kind, False, 0, "").parse(text)


KNOWN = parameter.declared(PARAMETERS + "rate: float = 1.0", "cell 1")


def test_a_run_has_defaults_then_the_claims_values_then_the_users() -> None:
    values = parameter.effective(
        KNOWN, "notebooks/n.ipynb", "b", {"heads": 8, "rate": 3}, {"heads": "4"}
    )
    assert values == {"claim_id": "b", "heads": 4, "warm": True, "rate": 3.0}


@pytest.mark.parametrize(
    ("given", "overrides", "kind", "message"),
    [
        ({"head": 8}, {}, RecordError, "data/claims/b.yml, parameters.head: notebooks/n.ipynb"),
        ({"heads": "8"}, {}, RecordError, "declared int, and '8' is str"),
        ({"heads": True}, {}, RecordError, "declared int, and True is bool"),
        ({"warm": 1}, {}, RecordError, "declared bool, and 1 is int"),
        ({"rate": float("nan")}, {}, RecordError, "must be finite"),
        ({"claim_id": "c"}, {}, RecordError, "claim_id is set by the runner"),
        ({}, {"head": "8"}, InputError, "-p head: notebooks/n.ipynb declares no parameter 'head'"),
        ({}, {"claim_id": "c"}, InputError, "name the claim instead"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(
    given: dict[str, object], overrides: dict[str, str], kind: type[AssayError], message: str
) -> None:
    with pytest.raises(kind) as caught:
        parameter.effective(KNOWN, "notebooks/n.ipynb", "b", given, overrides)
    assert message in str(caught.value)
    assert caught.value.exit_code == 2
