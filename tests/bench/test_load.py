"""Load: what is asked of vLLM's client, in its own words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.bench import load, synthetic
from assay.bench.engines import server
from assay.errors import InputError


def arguments(asked: load.Load, **changes: Any) -> list[str]:
    made = synthetic.serve(words="/words")
    there = server.Server(made, "http://127.0.0.1:1", None, Path("log"), 0.0)
    return asked.arguments(there, **{"seed": 3, "result": Path("/r/x.json"), **changes})


def option(given: list[str], name: str) -> str:
    return given[given.index(f"--{name}") + 1]


def test_a_closed_loop_bounds_the_requests_in_flight() -> None:
    given = arguments(load.Load(requests=8, input_tokens=16, output_tokens=4, concurrency=2))
    assert option(given, "max-concurrency") == "2"
    assert option(given, "request-rate") == "inf"


def test_an_open_loop_sends_whatever_comes_back() -> None:
    given = arguments(load.Load(requests=8, input_tokens=16, output_tokens=4, rate=2.5))
    assert option(given, "request-rate") == "2.5"
    assert "--max-concurrency" not in given


def test_every_request_gets_the_length_it_asks_for() -> None:
    given = arguments(load.Load(requests=8, input_tokens=16, output_tokens=4, rate=1.0))
    assert "--ignore-eos" in given
    assert option(given, "random-output-len") == "4"
    assert option(given, "temperature") == "0"


def test_the_client_does_not_warm_up_with_a_prompt_of_the_run() -> None:
    given = arguments(load.Load(requests=8, input_tokens=16, output_tokens=4, rate=1.0))
    assert option(given, "num-warmups") == "0"
    assert option(given, "ready-check-timeout-sec") == "0"


def test_another_dataset_has_no_fixed_lengths() -> None:
    asked = load.Load(
        requests=4, input_tokens=8, output_tokens=8, rate=1.0, dataset="sharegpt",
        options={"dataset-path": "/data.json"},
    )  # fmt: skip
    assert asked.asked == (None, None)
    given = arguments(asked)
    assert option(given, "dataset-name") == "sharegpt"
    assert option(given, "dataset-path") == "/data.json"
    assert "--random-input-len" not in given


def test_shared_tokens_are_part_of_the_input() -> None:
    asked = load.Load(requests=1, input_tokens=8, output_tokens=2, rate=1.0, shared_tokens=64)
    assert asked.asked == (72, 2)


def test_a_warm_up_fills_the_loop() -> None:
    asked = load.Load(requests=64, input_tokens=8, output_tokens=2, concurrency=16)
    assert asked.warm().requests == 16
    assert asked.warm().input_tokens == 8


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"requests": 0}, "requests must be at least 1"),
        ({"output_tokens": 0}, "output_tokens must be at least 1"),
        ({"concurrency": None}, "neither concurrency nor rate"),
        ({"concurrency": 9}, "9 requests cannot be in flight of 8 in all"),
    ],
)
def test_a_load_that_asks_for_nothing_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        load.Load(**{"requests": 8, "input_tokens": 1, "output_tokens": 1, "concurrency": 1,
                     **changes})  # fmt: skip
