"""Gates: each one is failed by exactly the window it is about."""

from __future__ import annotations

import dataclasses
import math

import pytest

from assay.bench import gates
from assay.bench.engines.counters import Counts
from assay.bench.protocol.window import Watched, Window
from assay.ledger import stats

GOOD = Window(
    block=1,
    arm="a",
    load="l",
    seed=1,
    fresh=True,
    first=True,
    started="2026-11-30T00:00:00+00:00",
    ended="2026-11-30T00:00:10+00:00",
    duration=10.0,
    asked=100,
    completed=100,
    asked_input=12_800,
    asked_output=6_400,
    input_tokens=12_800,
    output_tokens=6_400,
    chunks=6_400,
    concurrency=4,
    rate=None,
    in_flight=4,
    arrivals=10.0,
    server=Counts(12_800, 6_400, 12_800, 0, 0),
    compiled=(),
    busy=0.2,
    lateness=0.0002,
    sending=0.0003,
    watched=Watched(device="A GPU", throttled=0.0, stolen=0.0),
    values={"output_throughput": 640.0, "ttft": 0.1, "tpot": 0.01, "itl": 0.01, "e2el": 0.73},
    samples={"ttft": 100, "tpot": 100, "itl": 100, "e2el": 100},
)
INTENT = gates.Intent(
    metrics=("output_throughput",), ceiling=1000.0, ceiling_why="as given", prefix_cache="on"
)


def blocks(window: Window, count: int = 5) -> list[Window]:
    return [dataclasses.replace(window, block=block) for block in range(1, count + 1)]


def failed(windows: list[Window], intent: gates.Intent = INTENT) -> list[str]:
    return [gate.id for gate in gates.check(windows, intent) if not gate.passed]


def test_the_ids_are_the_permanent_ones() -> None:
    # An id is in the ledger's evidence for good: a change here is a new gate, not a new name.
    assert gates.IDS == (
        "requests-completed",
        "load-delivered",
        "tokens-agree",
        "prefix-cache",
        "no-compilation",
        "client-not-bottleneck",
        "clocks-steady",
        "below-physical-bound",
        "enough-samples",
        "cold-starts",
    )
    assert tuple(gate.id for gate in gates.check(blocks(GOOD), INTENT)) == gates.IDS


def test_a_good_run_fails_none() -> None:
    assert failed(blocks(GOOD)) == []


BAD = [
    (
        "requests-completed",
        # The failed request's tokens are missing on both sides.
        {
            "completed": 99,
            "input_tokens": 12_672,
            "output_tokens": 6_336,
            "chunks": 6_336,
            "server": Counts(12_672, 6_336, 12_672, 0, 0),
        },
        "99 of 100 requests completed",
    ),
    (
        "load-delivered",
        # The answers ended early, and client and server agree about it.
        {"output_tokens": 3_200, "chunks": 3_200, "server": Counts(12_800, 3_200, 12_800, 0, 0)},
        "3,200 output tokens delivered, 6,400 asked for",
    ),
    (
        "load-delivered",
        # vllm-project/vllm issues 10847: 10,000 input tokens asked for, 5,827 sent.
        {"input_tokens": 7_450, "server": Counts(7_450, 6_400, 7_450, 0, 0)},
        "7,450 input tokens delivered, 12,800 asked for",
    ),
    ("load-delivered", {"in_flight": 3}, "3 requests in flight at most, 4 asked for"),
    (
        "load-delivered",
        {"concurrency": None, "rate": 12.0, "arrivals": 10.0},
        "10 req/s were sent, 12 req/s asked for",
    ),
    ("tokens-agree", {"server": Counts(12_800, 12_800, 12_800, 0, 0)}, "12,800 by the server"),
    ("tokens-agree", {"server": Counts(51_280, 6_400, 51_280, 0, 0)}, "51,280 by the server"),
    (
        "prefix-cache",
        {"server": Counts(12_800, 6_400, 12_800, 6_400, 0)},
        "50.0% of prompt tokens were cached, 0.0% intended",
    ),
    ("prefix-cache", {"first": False}, "the same prompts had been sent to this server before"),
    (
        "no-compilation",
        {"compiled": ("torch.compile takes 12.0 s in total",)},
        "1 log lines tell of one: torch.compile takes 12.0 s",
    ),
    ("no-compilation", {"compiled": None}, "log cannot be read"),
    ("client-not-bottleneck", {"busy": 0.97}, "the client used 97% of a core"),
    ("client-not-bottleneck", {"lateness": 0.02}, "the client adds 20.3 ms to a request of 730 ms"),
    ("client-not-bottleneck", {"sending": None}, "how busy the client was is unknown"),
    (
        "clocks-steady",
        {"watched": Watched(device="A GPU", throttled=0.3, reasons=("software power cap",))},
        "held down in 30% of the window (software power cap)",
    ),
    (
        "clocks-steady",
        {"watched": Watched(device="A CPU", throttled=0.0, stolen=0.2)},
        "other tenants of the host took 20% of processor time",
    ),
    ("clocks-steady", {"watched": Watched()}, "cannot be read"),
    (
        "below-physical-bound",
        {"values": {**GOOD.values, "output_throughput": 1001.0}},
        "1,001 output tok/s against a ceiling of 1,000 tok/s",
    ),
    ("cold-starts", {"fresh": False}, "block 3 was not started afresh"),
]


@pytest.mark.parametrize(("gate", "change", "says"), BAD)
def test_a_bad_block_fails_exactly_its_gate(
    gate: str, change: dict[str, object], says: str
) -> None:
    windows = blocks(GOOD)
    windows[2] = dataclasses.replace(windows[2], **change)  # type: ignore[arg-type]
    found = [each for each in gates.check(windows, INTENT) if not each.passed]
    assert [each.id for each in found] == [gate]
    assert says in found[0].says
    assert "block 3" in found[0].says


def test_every_gate_is_failed_by_some_case() -> None:
    elsewhere = {"enough-samples"}
    assert {gate for gate, _, _ in BAD} | elsewhere == set(gates.IDS)


@pytest.mark.parametrize(("share", "floor"), sorted(gates.FLOORS.items()))
def test_a_percentile_needs_its_number_of_requests(share: int, floor: int) -> None:
    asked = dataclasses.replace(INTENT, metrics=(f"ttft_p{share}",))
    per_block = -(-floor // 5)
    enough = dataclasses.replace(GOOD, samples={"ttft": per_block})
    few = dataclasses.replace(GOOD, samples={"ttft": (floor - 1) // 5})
    assert failed(blocks(enough), asked) == []
    assert failed(blocks(few), asked) == ["enough-samples"]


def test_the_floors_are_those_of_the_statistics() -> None:
    assert {share: stats.percentile_floor(share / 100) for share in gates.FLOORS} == gates.FLOORS


def test_a_percentile_without_a_floor_is_never_enough() -> None:
    asked = dataclasses.replace(INTENT, metrics=("ttft_p999",))
    many = dataclasses.replace(GOOD, samples={"ttft": 10**6})
    assert failed(blocks(many), asked) == ["enough-samples"]


def test_four_blocks_are_too_few() -> None:
    assert failed(blocks(GOOD, 4)) == ["cold-starts"]


def test_nothing_measured_passes_no_gate() -> None:
    assert failed([]) == list(gates.IDS)


def test_an_unknown_ceiling_is_no_ceiling() -> None:
    unknown = dataclasses.replace(INTENT, ceiling=None, ceiling_why="no known device")
    assert failed(blocks(GOOD), unknown) == ["below-physical-bound"]


def test_a_cache_that_is_meant_to_be_warm_must_be() -> None:
    warm = dataclasses.replace(INTENT, cached_share=0.5)
    assert failed(blocks(GOOD), warm) == ["prefix-cache"]
    half = dataclasses.replace(GOOD, server=Counts(12_800, 6_400, 12_800, 6_400, 0))
    assert failed(blocks(half), warm) == []


def test_a_cache_that_does_not_tell_passes_only_when_it_is_off() -> None:
    silent = dataclasses.replace(GOOD, server=Counts(12_800, 6_400, None, None, None))
    off = dataclasses.replace(INTENT, prefix_cache="off")
    assert failed(blocks(silent), off) == []
    assert failed(blocks(silent), INTENT) == ["prefix-cache"]


def test_without_counters_chunks_are_the_second_count() -> None:
    bare = dataclasses.replace(INTENT, counted_by_server=False, prefix_cache="off")
    silent = dataclasses.replace(GOOD, server=None)
    assert failed(blocks(silent), bare) == []
    assert failed(blocks(dataclasses.replace(silent, chunks=800)), bare) == ["tokens-agree"]
    lost = dataclasses.replace(INTENT, prefix_cache="off")
    assert failed(blocks(silent), lost) == ["tokens-agree"]


def test_the_client_is_judged_against_what_is_asked() -> None:
    # 5 ms of the client's own are 0.7 % of a request and 5 % of a TTFT.
    slow = blocks(dataclasses.replace(GOOD, sending=0.005))
    assert failed(slow) == []
    ttft = dataclasses.replace(INTENT, metrics=("ttft",))
    assert failed(slow, ttft) == ["client-not-bottleneck"]
    tpot = dataclasses.replace(INTENT, metrics=("tpot",))
    assert failed(slow, tpot) == []


def test_all_requests_at_once_have_no_rate_to_miss() -> None:
    burst = dataclasses.replace(GOOD, concurrency=None, rate=math.inf, arrivals=None)
    assert failed(blocks(burst)) == []
