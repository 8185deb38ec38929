"""The arrival of a long prompt: what is sent, and what the rows of those who wait show."""

from __future__ import annotations

import json
import string
from pathlib import Path

import pytest

from assay.bench import arrival, synthetic
from assay.bench.engines.server import Server
from assay.errors import InputError
from assay.ledger import store

SCENE = arrival.Scene(decoders=3, prompt=5, answer=40, arriving=200, rate=8.0)


def _checkpoint(folder: Path, words: int = 150) -> Path:
    letters = string.ascii_lowercase
    names = [f"\u0120{a}{b}" for a in letters for b in letters][:words]
    vocabulary = {name: i for i, name in enumerate([*names, "\u01201", "inside"])}
    text = json.dumps({"model": {"vocab": vocabulary}})
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    return folder


def _row(sent: float, ttft: float, gaps: list[float], *, done: bool = True) -> dict[str, object]:
    return {"completed": done, "sent_s": sent, "ttft_s": ttft, "itl_s": gaps}


def test_the_long_prompt_is_the_last_line_of_the_file(tmp_path: Path) -> None:
    load = arrival.load(SCENE, _checkpoint(tmp_path), tmp_path)
    text = store.read_text(Path(load.options["dataset-path"]))
    lines = [json.loads(line) for line in text.splitlines()]
    assert [len(line["prompt"].split()) for line in lines] == [5, 5, 5, 200]
    assert [line["output_tokens"] for line in lines] == [40, 40, 40, 2]


def test_only_words_that_are_one_token_are_sent(tmp_path: Path) -> None:
    load = arrival.load(SCENE, _checkpoint(tmp_path), tmp_path)
    words = store.read_text(Path(load.options["dataset-path"]))
    assert " 1 " not in words
    assert "inside" not in words


def test_the_same_scene_is_the_same_file(tmp_path: Path) -> None:
    first = arrival.load(SCENE, _checkpoint(tmp_path), tmp_path)
    assert arrival.load(SCENE, _checkpoint(tmp_path), tmp_path) == first


def test_the_client_keeps_the_order_and_adds_no_template(tmp_path: Path) -> None:
    load = arrival.load(SCENE, _checkpoint(tmp_path), tmp_path)
    recipe = synthetic.serve(synthetic.Behaviour())
    server = Server(recipe, "http://127.0.0.1:1", None, tmp_path / "log", 0.0)
    told = load.arguments(server, seed=0, result=tmp_path / "r.json")
    for switch in ("--skip-chat-template", "--disable-shuffle"):
        assert told[told.index(switch) + 1].startswith("--"), "a switch takes no value"
    assert told[told.index("--custom-output-len") + 1] == "-1"


def test_a_tokenizer_without_words_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="99 words are single tokens"):
        arrival.load(SCENE, _checkpoint(tmp_path, 99), tmp_path)


def test_the_gap_is_the_longest_wait_while_the_long_prompt_is_read() -> None:
    short = [_row(0.0, 0.1, [0.1] * 9 + [0.5, 0.4, 0.1]), _row(0.0, 0.1, [0.1] * 9 + [0.8, 0.2])]
    found = arrival.seen([*short, _row(1.0, 0.9, [0.1])])
    assert found is not None
    assert (found.gap, found.usual, found.ttft, found.decoding) == (0.8, 0.1, 0.9, 2)


def test_a_long_wait_before_or_after_the_prompt_does_not_count() -> None:
    short = _row(0.0, 0.1, [3.0, *[0.1] * 30, 3.0])
    found = arrival.seen([short, _row(4.05, 0.5, [0.1])])
    assert found is not None
    assert found.gap == pytest.approx(0.1)


def test_a_request_that_ended_too_early_is_not_counted_as_decoding() -> None:
    done = _row(0.0, 0.1, [0.1] * 9 + [0.3])
    found = arrival.seen([done, _row(1.0, 0.9, [0.1])])
    assert found is not None
    assert found.decoding == 0


@pytest.mark.parametrize("broken", [0, 1])
def test_a_failed_request_shows_nothing(broken: int) -> None:
    rows = [_row(0.0, 0.1, [0.1] * 20), _row(1.0, 0.5, [0.1])]
    rows[broken]["completed"] = False
    assert arrival.seen(rows) is None


def test_a_prompt_that_comes_to_nobody_shows_nothing() -> None:
    assert arrival.seen([_row(1.0, 0.5, [0.1])]) is None
    assert arrival.seen([_row(0.0, 0.1, [0.1]), _row(9.0, 0.5, [0.1])]) is None
