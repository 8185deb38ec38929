"""Workloads follow from their seed, and a prefix is shared where it is said to be."""

from __future__ import annotations

import itertools
import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.bench.twin import workload as w
from assay.errors import InputError


@given(
    number=st.integers(0, 10**6),
    prompt=st.integers(1, 300),
    shared=st.integers(0, 300),
    group=st.integers(0, 10**4),
)
def test_a_prompt_has_its_length_and_small_ids(
    number: int, prompt: int, shared: int, group: int
) -> None:
    ask = w.Ask(number, prompt + shared, 1, shared=shared, group=group)
    tokens = ask.tokens()
    assert len(tokens) == prompt + shared
    assert all(0 <= token < 4096 for token in tokens)


def test_requests_of_one_group_share_their_prefix_and_nothing_more() -> None:
    one, two, other = (
        w.Ask(1, 40, 1, shared=16, group=3),
        w.Ask(2, 40, 1, shared=16, group=3),
        w.Ask(3, 40, 1, shared=16, group=4),
    )
    assert one.tokens()[:16] == two.tokens()[:16] != other.tokens()[:16]
    assert one.tokens()[16:18] != two.tokens()[16:18]


def test_a_poisson_process_has_its_rate_and_its_spread() -> None:
    times = list(itertools.islice(w.poisson(20, seed=1), 20000))
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert statistics.mean(gaps) == pytest.approx(0.05, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(0.05, rel=0.03)
    assert times == list(itertools.islice(w.poisson(20, seed=1), 20000))


def test_lognormal_lengths_have_their_median_and_their_bound() -> None:
    pairs = list(itertools.islice(w.lognormal(500, 100, sigma=0.6, most=900, seed=1), 5000))
    assert statistics.median(p for p, _ in pairs) == pytest.approx(500, rel=0.05)
    assert max(p for p, _ in pairs) == 900


def test_the_published_sample_keeps_its_bound() -> None:
    pairs = list(itertools.islice(w.sharegpt(seed=1, most=2048), 1000))
    assert len(set(pairs)) > 300
    assert all(p > 0 and o > 0 and p + o <= 2048 for p, o in pairs)


def test_an_open_loop_sends_each_request_when_it_arrives() -> None:
    source = w.open_loop(w.asks(3, w.fixed(8, 1), iter([0.0, 1.0, 2.0])))
    assert [a.number for a, _ in source.due(1.5)] == [0, 1]
    assert source.next_time() == 2.0
    assert [when for _, when in source.due(9.0)] == [2.0]
    assert source.next_time() == math.inf


def test_a_closed_loop_sends_the_next_one_when_one_is_done() -> None:
    source = w.closed_loop(w.asks(4, w.fixed(8, 1)), 2)
    assert [a.number for a, _ in source.due(0.0)] == [0, 1]
    assert source.next_time() == math.inf
    source.done(3.0)
    assert [(a.number, when) for a, when in source.due(3.0)] == [(2, 3.0)]


def test_a_trace_is_taken_as_it_is() -> None:
    rows = [
        {"arrival_s": "0", "prompt": "10", "output": "2"},
        {"arrival_s": "1.5", "prompt": "20", "output": "3", "shared": "16", "group": "1"},
    ]
    assert list(w.trace(rows)) == [w.Ask(0, 10, 2), w.Ask(1, 20, 3, 1.5, 16, 1)]


@pytest.mark.parametrize(
    "row",
    [
        {"arrival_s": "x", "prompt": "1", "output": "1"},
        {"prompt": "1", "output": "1"},
        {"arrival_s": "-1", "prompt": "1", "output": "1"},
        {"arrival_s": "0", "prompt": "0", "output": "1"},
        {"arrival_s": "inf", "prompt": "1", "output": "1"},
    ],
)
def test_a_broken_trace_names_its_row(row: dict[str, str]) -> None:
    with pytest.raises(InputError, match="row 1"):
        list(w.trace([row]))


def test_a_rate_or_a_concurrency_of_nothing_is_refused() -> None:
    with pytest.raises(InputError):
        next(w.poisson(0, seed=1))
    with pytest.raises(InputError):
        w.closed_loop([], 0)
    with pytest.raises(InputError):
        next(w.sample([], seed=1))


@given(
    pairs=st.lists(st.tuples(st.integers(1, 900), st.integers(1, 900)), min_size=1, max_size=50),
    prompt=st.floats(50, 500),
    output=st.floats(50, 500),
)
def test_stretched_lengths_keep_their_order_and_have_the_asked_means(
    pairs: list[tuple[int, int]], prompt: float, output: float
) -> None:
    found = list(w.stretched(pairs, prompt, output))
    assert len(found) == len(pairs)
    for k, mean in ((0, prompt), (1, output)):
        assert min(pair[k] for pair in found) >= 1
        # Each is rounded by half a token at most, unless it is raised to 1.
        assert statistics.mean(pair[k] for pair in found) == pytest.approx(mean, abs=1.01)
        ordered = sorted(range(len(pairs)), key=lambda n: pairs[n][k])
        assert [found[n][k] for n in ordered] == sorted(pair[k] for pair in found)


def test_nothing_cannot_be_stretched() -> None:
    with pytest.raises(InputError, match="no lengths to stretch"):
        list(w.stretched([], 10, 10))
