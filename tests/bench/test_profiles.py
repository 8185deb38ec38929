"""What a notebook would run on a GPU is known, and how long it takes, before it starts."""

from __future__ import annotations

import pytest

from assay.bench import load, profiles
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


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(InputError, match="no profile 'some'"):
        profiles.chunked_prefill("some", "m")
