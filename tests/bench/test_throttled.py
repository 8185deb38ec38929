"""A link's ratio is what it says, and the servers differ in nothing but the cache."""

from __future__ import annotations

import json

import pytest

from assay.bench import forecast, throttled, tier
from assay.bench.throttled import Pace
from assay.physics import kv

PACE = Pace(per_token=2e-4, per_step=8e-3)


@pytest.mark.parametrize("ratio", [0.25, 1.0, 8.0])
def test_at_one_a_block_takes_as_long_to_fetch_as_to_compute(ratio: float) -> None:
    block = throttled.BLOCK * throttled.per_token_bytes()
    fetched, computed = block / PACE.link(ratio), throttled.BLOCK * PACE.per_token
    assert computed / fetched == pytest.approx(ratio)


def test_the_bytes_of_a_token_are_those_of_the_closed_form() -> None:
    found = kv.report(throttled.SHAPE.config())
    assert found.all_layers_bytes_per_token == throttled.per_token_bytes()


def test_the_pool_holds_what_is_in_flight_and_not_all_prefixes() -> None:
    pool = (throttled.BLOCKS - 1) * throttled.BLOCK
    for name, load in throttled.asked().items():
        assert throttled.IN_FLIGHT * (load.input_tokens + load.output_tokens) < pool
        assert tier.kind(name, load).pressure in (0.5, 2, 4)
    assert pool >= throttled.LONGEST


@pytest.fixture
def servers() -> dict[str, tuple[str, ...]]:
    pytest.importorskip("vllm")
    return {name: arm.command for name, arm in throttled.arms("m", PACE).items()}


def test_a_link_is_set_as_its_arm_says(servers: dict[str, tuple[str, ...]]) -> None:
    for ratio in throttled.RATIOS:
        told = json.loads(servers[f"link-{ratio:g}"][-1])["kv_connector_extra_config"]
        assert told["link_bytes_per_s"] == pytest.approx(PACE.link(ratio), rel=0.005)


def test_the_servers_differ_in_the_cache_only(servers: dict[str, tuple[str, ...]]) -> None:
    off = servers[tier.WITHOUT]
    for name in (name for name in servers if throttled.link(name)):
        assert servers[name][: len(off)] == off
    swapped = ["--enable-prefix-caching" if "no-enable" in x else x for x in servers[tier.NONE]]
    assert swapped == list(off)


def test_a_forecast_sends_what_the_client_sends() -> None:
    for name, load in throttled.asked().items():
        asks = list(forecast._asks(name, load, 0))
        laps = 2 if name.startswith("warm") else 1
        assert len(asks) == laps * load.requests
        assert {(ask.prompt, ask.output) for ask in asks} == {
            (load.input_tokens, load.output_tokens)
        }


def test_a_warm_load_has_the_same_prompts_twice_and_later() -> None:
    load = throttled.asked()["warm-2"]
    asks = list(forecast._asks("warm-2", load, 0))
    first, second = asks[: load.requests], asks[load.requests :]
    assert [ask.tokens() for ask in first] == [ask.tokens() for ask in second]
    assert max(ask.arrival for ask in first) < min(ask.arrival for ask in second)
