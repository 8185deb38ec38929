"""Step times are above the physical floor, grow with the work, and a fit gives back its costs."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest

from assay.bench.twin.steptime import Fitted, Roofline, Table, Work, experts_chosen
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


def test_one_token_reads_the_experts_it_is_sent_to_and_many_tokens_read_all() -> None:
    record = store.model("qwen3-235b-a22b")
    model = Roofline.of(record, H100, tp=8, share_of_bandwidth=1, fixed=0)
    model = dataclasses.replace(model, exchange=0.0)
    head = record.config["vocab_size"], record.config["hidden_size"]
    assert record.active_parameters is not None
    table = int(str(head[0])) * int(str(head[1]))  # its own input table, in no token's share
    least = 2 * (record.active_parameters + table) / 8 / 3.35e12
    assert model(Work(1, 1, 0, 0)) == pytest.approx(least, rel=1e-9)
    bandwidth_only = dataclasses.replace(model, flops=math.inf)
    most = 2 * record.parameters / 8 / 3.35e12
    assert bandwidth_only(Work(10_000, 1, 0, 0)) == pytest.approx(most, rel=1e-9)


@pytest.mark.parametrize("tokens", [1, 4, 40])
def test_the_experts_read_are_those_that_tokens_drawn_evenly_would_be_sent_to(tokens: int) -> None:
    record = store.model("mixtral-8x7b")
    model = dataclasses.replace(Roofline.of(record, H100, fixed=0), flops=math.inf)
    draw, seen, tries = random.Random(0), 0, 4000
    for _ in range(tries):
        seen += len({e for _ in range(tokens) for e in draw.sample(range(8), 2)})
    expected = model.weights - model.experts * (1 - seen / tries / 8)
    took = model(Work(tokens, 1, 0, 0)) * model.bandwidth * model.share_of_bandwidth
    assert took == pytest.approx(expected, rel=0.01)


def test_a_configuration_that_hides_its_experts_is_refused() -> None:
    with pytest.raises(InputError, match="how many experts"):
        experts_chosen({"num_experts": 8})


def test_eight_bits_halve_the_weights_and_want_a_card_that_has_them() -> None:
    half, whole = (Roofline.of(SMALL, H100, bits=bits) for bits in (8, 16))
    assert half.weights == whole.weights / 2
    assert half.flops == pytest.approx(2 * whole.flops, rel=1e-3)
    with pytest.raises(InputError, match="8-bit peak"):
        Roofline.of(SMALL, A100, bits=8)


def test_a_peak_that_accumulates_in_sixteen_bits_is_not_taken() -> None:
    card = store.hardware("rtx-4090")
    stated = {
        dtype: [f.value * 1e12 for f in card.facts if (f.quantity, f.dtype) == ("peak", dtype)]
        for dtype in ("bf16", "fp16")
    }
    taken = Roofline.of(SMALL, card).flops
    assert taken == max(stated["bf16"]) < max(stated["fp16"])


def test_a_fit_gives_back_the_costs_it_was_made_from() -> None:
    true = Fitted(0.004, 1e-4, 2e-4, 1e-7, 1e-8)
    draw = random.Random(0)
    steps = [
        Work(
            draw.randrange(1, 500),
            draw.randrange(1, 50),
            pairs=5e4 + 1e6 * draw.random(),
            decoded=draw.randrange(50000),
        )
        for _ in range(200)
    ]
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
