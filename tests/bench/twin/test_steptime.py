"""Step times are above the physical floor, grow with the work, and a fit gives back its costs."""

from __future__ import annotations

import dataclasses
import random

import pytest

from assay.bench.twin.steptime import Fitted, Roofline, Table, Work
from assay.errors import InputError
from assay.ledger import published, store
from assay.physics import roofline

SMALL = store.model("llama-3.1-8b")
LARGE = store.model("llama-3.1-70b")
H100 = store.hardware("h100-sxm-80gb")
A100 = store.hardware("a100-sxm-80gb")
ROWS = {row.id: row for row in published.measurements()}


def prefill(tokens: int) -> Work:
    return Work(tokens=tokens, sequences=1, context=tokens, pairs=tokens * (tokens + 1) / 2)


def test_a_decode_step_is_never_below_the_floor_of_the_card() -> None:
    model = Roofline.of(SMALL, H100)
    for batch in (1, 8, 64):
        work = Work(tokens=batch, sequences=batch, context=1000 * batch, pairs=1000.0 * batch)
        floor = roofline.step_floor(
            3.35e12, model.weights, batch=batch, kv_per_token=131072, context=1000
        )
        assert model(work) > floor


@pytest.mark.parametrize("field", ["tokens", "context", "pairs"])
def test_more_of_anything_never_takes_less_time(field: str) -> None:
    model = Roofline.of(LARGE, A100, tp=4)
    work = prefill(500)
    for factor in (2, 10, 1000):
        more = dataclasses.replace(work, **{field: getattr(work, field) * factor})
        assert model(more) >= model(work)


def test_shares_of_one_and_no_overhead_are_the_roofline_itself() -> None:
    model = Roofline.of(SMALL, H100, share_of_peak=1, share_of_bandwidth=1, fixed=0)
    assert model(Work(1, 1, 0, 0)) == pytest.approx(2 * SMALL.parameters / 3.35e12)


@pytest.mark.parametrize(
    ("row", "tokens"),
    [
        ("vllm-offload-post-h100-8b-ttft-20000", 20000),
        ("vllm-offload-post-h100-8b-ttft-50000", 50000),
        ("vllm-offload-post-h100-8b-ttft-100000", 100000),
    ],
)
def test_published_prefills_that_set_no_constant_are_met_within_a_fifth(
    row: str, tokens: int
) -> None:
    model = Roofline.of(SMALL, H100)
    assert model(prefill(tokens)) == pytest.approx(ROWS[row].value, rel=0.2)


def test_four_cards_are_faster_than_one_but_not_four_times() -> None:
    one, four = (Roofline.of(LARGE, A100, tp=tp)(prefill(4096)) for tp in (1, 4))
    assert one / 4 < four < one


def test_a_mixture_of_experts_is_refused() -> None:
    with pytest.raises(InputError, match="mixture of experts"):
        Roofline.of(store.model("mixtral-8x7b"), H100)


def test_a_fit_gives_back_the_costs_it_was_made_from() -> None:
    true = Fitted(0.004, 1e-4, 2e-4, 1e-7, 1e-8)
    draw = random.Random(0)
    steps = [
        Work(draw.randrange(1, 500), draw.randrange(1, 50), draw.randrange(50000), draw.random())
        for _ in range(200)
    ]
    steps = [dataclasses.replace(w, pairs=w.pairs * 1e6) for w in steps]
    found = Fitted.to([(w, true(w)) for w in steps])
    assert [found(w) for w in steps] == pytest.approx([true(w) for w in steps], rel=1e-6)


def test_a_fit_is_not_moved_by_a_step_in_which_the_machine_did_something_else() -> None:
    steps = [(Work(n, 1), 0.01 + 0.001 * n) for n in range(1, 60)]
    steps[10] = (steps[10][0], 5.0)
    assert Fitted.to(steps)(Work(100, 1)) == pytest.approx(0.11, rel=0.01)


def test_no_cost_of_a_fit_is_below_zero() -> None:
    steps = [(Work(n, n), 0.1 - 0.0001 * n) for n in range(1, 60)]
    assert min(dataclasses.astuple(Fitted.to(steps))) >= 0


def test_a_fit_of_too_few_steps_is_refused() -> None:
    with pytest.raises(InputError, match="at least five"):
        Fitted.to([(Work(1, 1), 0.1)] * 4)


def test_a_table_goes_through_its_points_and_straight_on() -> None:
    table = Table((1, 100, 200), (0.01, 0.02, 0.05))
    assert [table(Work(n)) for n in (1, 100, 200, 300)] == pytest.approx([0.01, 0.02, 0.05, 0.08])


@pytest.mark.parametrize(
    ("tokens", "seconds"), [((1,), (1,)), ((2, 1), (1, 1)), ((1, 2), (1, -1)), ((1, 2), (1,))]
)
def test_a_table_out_of_order_is_refused(
    tokens: tuple[float, ...], seconds: tuple[float, ...]
) -> None:
    with pytest.raises(InputError):
        Table(tokens, seconds)
