"""Before every run the device forgets, and only windows are written down."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.bench import checkpoint, reset, synthetic, throttled, tier
from assay.bench.load import Load
from assay.bench.load.client import Outcome
from assay.bench.protocol.plan import Plan, number
from assay.errors import RunError
from assay.ledger import store

PREFIXES = "prefix-repetition-num-prefixes"


class Told:
    """A server that counts what it is asked, and forgets at the second request."""

    def __init__(self, refuses: int = 0) -> None:
        self.refuses, self.asked, self.host = refuses, list[str](), 0

    def answer(self, method: str, path: str) -> str:
        self.asked.append(f"{method} {path}")
        if path == "/metrics":
            return f'vllm:external_prefix_cache_hits_total{{engine="0"}} {self.host}\n'
        self.refuses -= 1
        return json.dumps({"success": self.refuses < 0})


@pytest.fixture
def told() -> Iterator[tuple[Told, Any]]:
    known = Told()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = known.answer(self.command, self.path).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listener.serve_forever, daemon=True)
    thread.start()
    recipe = plan().arms["on"]
    yield known, SimpleNamespace(url=f"http://127.0.0.1:{listener.server_port}", recipe=recipe)
    listener.shutdown()
    listener.server_close()
    thread.join()


def plan() -> Plan:
    loads = tier.loads(
        {"reuse-2": 0, "warm-2": 7},
        pool=4000,
        prefix=512,
        suffix=32,
        output=8,
        concurrency=2,
    )
    return Plan(arms={"on": synthetic.serve()}, loads=loads, blocks=1, seed=0)


class Inner:
    """Takes a load and lets the server fetch ten tokens."""

    def __init__(self, known: Told) -> None:
        self.known, self.loads = known, list[Load]()

    def run(
        self, load: Load, server: object, *, seed: int, on_window: Callable[[bool], None]
    ) -> Outcome:
        self.loads.append(load)
        self.known.asked.append("run")
        self.known.host += 10
        return Outcome((), 1.0, "", "", 0.0, 0.0, 0.0)


def send(told: tuple[Told, Any], folder: Path, name: str, *, warm_up: bool = False) -> Inner:
    known, server = told
    inner, chosen = Inner(known), plan()
    seed = chosen.prompts(1, name)
    load = chosen.loads[name]
    with reset.Emptied(chosen, folder, inner) as emptied:
        emptied.run(
            load.warm() if warm_up else load,
            server,
            seed=number(seed, "warm-up") if warm_up else seed,
            on_window=lambda _: None,
        )
    return inner


def test_the_device_forgets_before_a_run(told: tuple[Told, Any], tmp_path: Path) -> None:
    send(told, tmp_path, "reuse-2")
    asked = told[0].asked
    assert asked.index("POST /reset_prefix_cache") < asked.index("run")
    assert asked.count("POST /reset_prefix_cache") == 1


def test_it_is_asked_again_while_blocks_are_under_way(
    told: tuple[Told, Any], tmp_path: Path
) -> None:
    told[0].refuses = 2
    send(told, tmp_path, "reuse-2")
    assert told[0].asked.count("POST /reset_prefix_cache") == 3


def test_a_device_that_never_forgets_ends_the_run(
    told: tuple[Told, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reset, "_LIMIT", 0.0)
    told[0].refuses = 1000
    with pytest.raises(RunError, match="could not be emptied"):
        send(told, tmp_path, "reuse-2")


def test_what_moved_in_a_window_is_kept(told: tuple[Told, Any], tmp_path: Path) -> None:
    send(told, tmp_path, "warm-2")
    kept = store.read_json(tmp_path / "moved" / "0001-on-warm-2.json")
    assert kept["host"] == 10


def test_a_warm_up_is_no_window(told: tuple[Told, Any], tmp_path: Path) -> None:
    send(told, tmp_path, "warm-2", warm_up=True)
    assert not (tmp_path / "moved").exists()


def test_a_warm_up_of_few_requests_has_one_prefix(told: tuple[Told, Any], tmp_path: Path) -> None:
    (sent,) = send(told, tmp_path, "reuse-2", warm_up=True).loads
    assert sent.requests == 2 and sent.options[PREFIXES] == "1"
    (sent,) = send(told, tmp_path, "reuse-2").loads
    assert int(sent.options[PREFIXES]) > 2


@pytest.mark.engine
@pytest.mark.slow
def test_a_real_engine_fetches_what_its_device_forgot(tmp_path: Path) -> None:
    pytest.importorskip("vllm")
    servers = throttled.arms(
        str(checkpoint.make(throttled.SHAPE)), throttled.Pace(per_token=2e-4, per_step=1e-2)
    )
    arms = {name: servers[name] for name in (tier.WITHOUT, "link-8")}
    asked = {"warm-2": throttled.asked()["warm-2"]}
    found = reset.measure(arms, asked, name="test", blocks=1, place=tmp_path)
    without, with_tier = (found.moved[1, arm, "warm-2"] for arm in arms)
    assert without.device == without.host == 0
    assert with_tier.device == 0
    assert with_tier.host > 0.9 * with_tier.queried
    speed = throttled.Pace(per_token=2e-4, per_step=1e-2).link(8)
    for arm in arms:
        gates = found.gates("output_throughput", arm=arm, load="warm-2", speed=speed)
        own = {gate.id: gate.passed for gate in gates}
        assert own["tier-exercised"] and own["prefix-cache"] and own["link-throttled"]
