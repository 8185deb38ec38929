"""An executed notebook keeps its results and loses what says whose machine ran it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.press import scrub

# The places in which papermill leaves traces: nteract/papermill, issues 271 and 416, pull 817.
NOTEBOOK: dict[str, Any] = {
    "metadata": {
        "papermill": {
            "input_path": "C:\\Users\\jdoe\\bench\\in.ipynb",
            "output_path": "/mnt/c/Users/jdoe/AppData/Local/Temp/out.ipynb",
            "parameters": {"folder": "/home/jdoe/runs"},
        }
    },
    "cells": [
        {"metadata": {"tags": ["injected-parameters"], "papermill": {"status": "completed"}},
         "source": 'folder = "/home/jdoe/runs"', "outputs": []},
        {"metadata": {"tags": []}, "source": "1", "outputs": [
            {"output_type": "error", "ename": "E", "evalue": "/Users/jdoe/model",
             "traceback": ["\x1b[0;31mE\x1b[0m: /ho\x1b[1mme/jdoe/exp/model"]},
            {"output_type": "display_data", "metadata": {},
             "data": {"image/png": "AAAA/home/jdoe/AAAA", "text/html": "<b>C:\\Users\\jdoe</b>"}},
        ]},
    ],
}  # fmt: skip


@pytest.fixture
def clean(tmp_path: Path) -> Callable[[str], str]:
    return scrub.scrubber(tmp_path / "project", tmp_path / "project" / "_build" / "x" / "evidence")


def test_the_owner_is_gone_from_all_places_and_pictures_stay_whole(
    clean: Callable[[str], str],
) -> None:
    cleaned = scrub.notebook(copy.deepcopy(NOTEBOOK), clean)
    picture = cleaned["cells"][1]["outputs"][1]["data"].pop("image/png")
    assert picture == "AAAA/home/jdoe/AAAA"
    assert "jdoe" not in json.dumps(cleaned)
    assert cleaned["cells"][0]["source"] == 'folder = "~/runs"'
    assert cleaned["cells"][1]["outputs"][0]["traceback"] == ["E: ~/exp/model"]
    assert cleaned["cells"][1]["outputs"][1]["data"]["text/html"] == "<b>~</b>"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("{root}/src/x.py", "src/x.py"),
        ("in {root}, twice: {root}", "in ., twice: ."),
        ("{root}-two/x", "{root}-two/x"),
        ("{root}/_build/x/evidence/a/b.json", "data/evidence/a/b.json"),
        ("/var/tmp/ipykernel_12/345.py:3", "<cell>:3"),
        ("https://example.org/home/page", "https://example.org/home/page"),
        ("the /home/ folder", "the /home/ folder"),
        ("1/2 of 40% at 3.5 tok/s", "1/2 of 40% at 3.5 tok/s"),
    ],
)
def test_paths_become_relative_and_the_rest_stays(
    clean: Callable[[str], str], tmp_path: Path, text: str, shown: str
) -> None:
    root = str(tmp_path / "project")
    assert clean(text.replace("{root}", root)) == shown.replace("{root}", root)


def test_secrets_of_the_environment_are_hidden_and_short_values_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_TOKEN", "abcdefgh-not-real")
    monkeypatch.setenv("USE_TOKEN", "true")
    clean = scrub.scrubber(tmp_path, tmp_path / "e")
    assert clean("abcdefgh-not-real is true") == "<hidden> is true"


def test_a_hostname_is_hidden_only_where_it_cannot_be_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "gpu-box-7")
    assert scrub.scrubber(tmp_path, tmp_path / "e")("on gpu-box-7.") == "on <host>."
    monkeypatch.setattr("socket.gethostname", lambda: "main")
    assert scrub.scrubber(tmp_path, tmp_path / "e")("the main result") == "the main result"


def test_a_long_output_is_scrubbed_in_linear_time(clean: Callable[[str], str]) -> None:
    # A quadratic pattern takes hours for this, a linear one a fraction of a second.
    for unit in ("x", "/", "\\", "a/", "~", "C:\\"):
        text = unit * 300_000
        assert len(clean(text)) == len(text)
