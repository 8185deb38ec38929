"""Little's law and what follows from it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import InputError
from assay.physics import queueing


def test_the_printed_pairs_of_the_offload_claim_give_its_percentages() -> None:
    # Brief of 2026-08-16, increment 2: pairs and percentages as printed.
    pairs = {(783.09, 825.77): 5.4, (78994, 66509): -15.8, (155.28, 148.79): -4.2}
    for (before, after), printed in pairs.items():
        assert 100 * queueing.change(before, after) == pytest.approx(printed, abs=0.06)


def test_littles_law_holds_for_tokens_of_a_simulated_server() -> None:
    draw = random.Random(1)
    # Twelve servers, each busy all the time with tokens of random length.
    spans = [[draw.uniform(0.05, 0.15) for _ in range(5000)] for _ in range(12)]
    window = min(sum(each) for each in spans)
    tokens, busy = 0, 0.0
    for each in spans:
        now = 0.0
        for span in each:
            if now + span > window:
                break
            now += span
            tokens += 1
            busy += span
    assert queueing.decoding_at_once(tokens / window, busy / tokens) == pytest.approx(12, rel=0.01)


@given(st.floats(1e-3, 1e4), st.floats(1, 1e6))
def test_a_prompt_as_long_as_the_ttft_needs_waits_for_nothing(ttft: float, rate: float) -> None:
    prompt = queueing.prefill_needed(ttft, rate)
    assert queueing.share_waiting(ttft, prompt / rate) == pytest.approx(0, abs=1e-9)


@given(st.floats(1e-3, 1e4), st.floats(0, 1e5))
def test_the_share_of_waiting_is_a_share(ttft: float, prefill: float) -> None:
    assert 0 <= queueing.share_waiting(ttft, prefill) <= 1


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_nothing_follows_from_what_is_not_above_zero(value: float) -> None:
    with pytest.raises(InputError):
        queueing.change(value, 1)
    with pytest.raises(InputError):
        queueing.decoding_at_once(1, value)
    with pytest.raises(InputError):
        queueing.share_waiting(value, 1)
