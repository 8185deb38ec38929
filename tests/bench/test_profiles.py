"""What a notebook would run on a GPU is known, and how long it takes, before it starts."""

from __future__ import annotations

import pytest

from assay.bench import load, profiles, tier
from assay.errors import InputError

PLANS = (profiles.chunked_prefill, profiles.cpu_offload)


@pytest.mark.parametrize("plan", PLANS)
def test_quick_takes_ten_minutes_and_full_an_hour_at_most(plan: object) -> None:
    assert plan("quick", "m").minutes <= 10  # type: ignore[operator]
    assert plan("full", "m").minutes <= 60  # type: ignore[operator]


@pytest.mark.parametrize("plan", PLANS)
def test_a_full_plan_has_the_five_starts_that_a_verdict_needs(plan: object) -> None:
    assert plan("full", "m").blocks >= 5  # type: ignore[operator]


@pytest.mark.parametrize("plan", PLANS)
def test_every_load_is_one_the_client_takes(plan: object) -> None:
    found = plan("full", "m")  # type: ignore[operator]
    loads = {name: load.Load(**told) for name, told in found.loads.items()}
    assert loads.keys() == found.seconds.keys()
    assert len(found.rows()) == len(found.arms) * len(loads)


def test_the_arms_of_an_offload_run_differ_in_the_tier_only() -> None:
    arms = profiles.cpu_offload("full", "m").arms
    assert arms["on"].flags[: len(arms["off"].flags)] == arms["off"].flags
    assert "--kv-offloading-size" in arms["on"].flags
    assert arms["on"].prefix_cache == arms["off"].prefix_cache


def test_only_the_full_offload_run_has_a_server_without_a_cache() -> None:
    quick, full = (profiles.cpu_offload(name, "m").arms for name in ("quick", "full"))
    assert full.keys() - quick.keys() == {tier.NONE}
    assert [name for name, arm in full.items() if not arm.prefix_cache] == [tier.NONE]


def test_an_offload_run_has_pressure_below_and_above_one_and_a_warm_host() -> None:
    for name in ("quick", "full"):
        plan = profiles.cpu_offload(name, "m")
        kinds = [tier.kind(n, load.Load(**told)) for n, told in plan.loads.items()]
        reused = [kind.pressure for kind in kinds if kind.name == "reuse"]
        assert min(reused) < 1 < max(reused)
        assert "warm" in {kind.name for kind in kinds}


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(InputError, match="no profile 'some'"):
        profiles.chunked_prefill("some", "m")
