"""A load says what it does to the caches, and a tier that was not used is noticed."""

from __future__ import annotations

import math

import pytest

from assay.bench import tier
from assay.bench.load import Load
from assay.bench.tier import Kind, Moved
from assay.errors import InputError
from assay.ledger import records

SIZES = {"prefix": 512, "suffix": 32, "output": 8}
POOL = 4000
NAMES = {"reuse-0.5": 0, "reuse-2": 0, "none-2": 0, "warm-2": 7}
MEANT = {
    "reuse-0.5": Kind("reuse", 0.5, 512 / 544),
    "reuse-2": Kind("reuse", 2, 512 / 544),
    "none-2": Kind("none", 2, 0.0),
    "warm-2": Kind("warm", 2, 1.0),
}
#: A window of each kind in which the tier did what it is for.
USED = {
    "reuse-0.5": Moved(queried=1000, device=600, stored=1e6),
    "reuse-2": Moved(queried=1000, device=200, host=500, stored=1e6, loaded=1e6),
    "none-2": Moved(queried=1000, stored=1e6),
    "warm-2": Moved(queried=1000, host=990, loaded=1e6),
}


def loads() -> dict[str, Load]:
    return tier.loads(NAMES, pool=POOL, concurrency=2, **SIZES)


def failed(moved: Moved, load: str, arm: str = "on", speed: float = math.inf) -> set[str]:
    found = tier.gates([], {1: moved}, MEANT[load], arm=arm, speed=speed)
    return {gate.id for gate in found if not gate.passed}


@pytest.mark.parametrize(("name", "pressure"), [("reuse-0.5", 0.5), ("reuse-2", 2)])
def test_prefixes_keep_as_much_as_the_pressure_says(name: str, pressure: float) -> None:
    groups = int(loads()[name].options["prefix-repetition-num-prefixes"])
    assert groups * sum(SIZES.values()) / POOL == pytest.approx(pressure, rel=0.15)


@pytest.mark.parametrize("name", ["reuse-0.5", "reuse-2"])
def test_every_prefix_gets_as_many_requests(name: str) -> None:
    load = loads()[name]
    assert load.requests % int(load.options["prefix-repetition-num-prefixes"]) == 0


def test_a_warm_load_is_sent_once_before_with_the_same_prompts() -> None:
    load = loads()["warm-2"]
    assert load.warm().requests == load.requests
    assert load.warm().options["seed"] == load.options["seed"] == "7"


@pytest.mark.parametrize("name", NAMES)
def test_a_name_says_what_a_load_does(name: str) -> None:
    assert tier.kind(name, loads()[name]) == MEANT[name]


@pytest.mark.parametrize("name", ["burst", "reuse-high", "again-2"])
def test_another_name_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="is no load of a host tier"):
        tier.kind(name, loads()["none-2"])


@pytest.mark.parametrize("name", NAMES)
def test_a_tier_that_was_used_passes(name: str) -> None:
    assert failed(USED[name], name) == set()


@pytest.mark.parametrize("name", ["reuse-2", "warm-2"])
def test_a_tier_that_is_never_hit_fails(name: str) -> None:
    assert "tier-exercised" in failed(Moved(queried=1000, device=10, stored=1e6), name)


@pytest.mark.parametrize("name", ["reuse-0.5", "none-2"])
def test_a_tier_that_gets_nothing_fails(name: str) -> None:
    assert "tier-exercised" in failed(Moved(queried=1000), name)


@pytest.mark.parametrize("arm", [tier.WITHOUT, tier.NONE])
def test_an_arm_without_a_tier_must_not_fetch(arm: str) -> None:
    assert "tier-exercised" in failed(USED["reuse-2"], "reuse-2", arm)


def test_an_arm_without_a_cache_must_find_nothing() -> None:
    assert failed(Moved(), "reuse-2", tier.NONE) == set()
    assert failed(Moved(queried=1000, device=1), "reuse-2", tier.NONE) == {"prefix-cache"}


def test_a_device_that_was_not_emptied_fails() -> None:
    kept = Moved(queried=1000, device=500, host=490, stored=1e6)
    assert failed(kept, "warm-2") == {"prefix-cache"}


def test_prompts_that_share_more_than_intended_fail() -> None:
    assert failed(Moved(queried=1000, device=100, stored=1e6), "none-2") == {"prefix-cache"}


def test_a_link_that_is_faster_than_it_is_set_to_fails() -> None:
    moved = Moved(queried=1000, host=990, loaded=1e6, load_time=0.5, transfers=2)
    assert failed(moved, "warm-2", speed=2e6) == set()
    assert failed(moved, "warm-2", speed=1e6) == {"link-throttled"}


def test_a_window_without_counters_fails() -> None:
    found = tier.gates([], {}, MEANT["warm-2"], arm="on")
    assert not any(gate.passed for gate in found)


def test_the_first_block_that_fails_is_named() -> None:
    seen = {1: USED["warm-2"], 2: Moved(queried=1000)}
    found = {gate.id: gate.says for gate in tier.gates([], seen, MEANT["warm-2"], arm="on")}
    assert found["tier-exercised"].startswith("block 2: ")


def test_other_gates_stay_and_the_one_on_a_single_share_goes() -> None:
    plain = [
        records.Gate(id=name, passed=False, says="x") for name in ("prefix-cache", "clocks-steady")
    ]
    found = tier.gates(plain, {1: USED["warm-2"]}, MEANT["warm-2"], arm="on")
    assert [gate.id for gate in found if not gate.passed] == ["clocks-steady"]
