"""The ceilings of physics.roofline."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import InputError
from assay.physics import roofline

# NVIDIA A100 data sheet: BF16 dense, memory bandwidth of the 80 GB SXM part.
A100_BF16, A100_BANDWIDTH = 312e12, 2039e9
# Parameters of Llama 3 70B, the figure the compute bound of a 70B model is usually quoted with.
P70 = 70.55e9


def test_a_70b_model_on_one_a100_processes_at_most_2211_tokens_a_second():
    assert round(roofline.compute_ceiling(A100_BF16, P70)) == 2211


def test_counting_attention_lowers_the_compute_ceiling():
    attention = roofline.attention_flops(80, 64, 128) * 576  # Llama 2 70B at 576 tokens
    assert roofline.compute_ceiling(A100_BF16, P70, attention) < roofline.compute_ceiling(
        A100_BF16, P70
    )


@pytest.mark.parametrize(("bits", "most"), [(4, 1850), (8, 925)])
def test_weight_reads_alone_bound_a_batch_of_32(bits, most):
    # The bounds for INT4 and INT8 on one A100, computed by hand: 32 * 2039 / (70.55 * bits / 8).
    weights = roofline.weight_bytes(P70, bits)
    got = roofline.decode_bandwidth_ceiling(A100_BANDWIDTH, weights, batch=32)
    assert got == pytest.approx(most, abs=1)


@pytest.mark.parametrize(("gb_s", "most"), [(1008, 215), (273, 58)])
def test_bytes_read_bound_a_single_stream(gb_s, most):
    # paiml/aprender issue 2846: a 7B Q4 model reads 4.68 GB a token.
    assert round(roofline.decode_bandwidth_ceiling(gb_s * 1e9, 4.68e9, batch=1)) == most


def test_kv_reads_lower_the_decode_ceiling_more_at_long_context():
    short, long = (
        roofline.decode_bandwidth_ceiling(
            A100_BANDWIDTH, 35e9, batch=32, kv_per_token=327680, context=context
        )
        for context in (128, 4096)
    )
    assert long < short


def test_a_16_bit_70b_model_does_not_fit_one_a100_and_needs_two():
    weights = roofline.weight_bytes(P70, 16)
    memory = 80 * 2**30
    room = roofline.fit(memory, weights, kv_per_token=0, longest=1, mean=1, overhead=0)
    assert not room.fits
    assert roofline.devices_to_hold(memory, weights) == 2


def test_the_number_of_sequences_that_fit_is_free_memory_over_kv_of_one():
    # Llama 2 70B: 327,680 B a token; 10 GiB hold exactly one sequence of 32,768.
    room = roofline.fit(
        80e9 + 10 * 2**30, 80e9, kv_per_token=327680, longest=32768, mean=32768, overhead=0
    )
    assert (room.fits, room.sequences) == (True, 1)


def test_stated_overhead_takes_memory_from_the_cache():
    free = [
        roofline.fit(80e9, 35e9, kv_per_token=1, longest=1, mean=1, overhead=o).free
        for o in (0, 4e9)
    ]
    assert free[0] - free[1] == 4e9


def test_a_mixture_reads_between_its_active_and_all_weights():
    assert roofline.touched_weights(60e9, 6e9, 1) == (6e9, 6e9)
    assert roofline.touched_weights(60e9, 6e9, 4) == (6e9, 24e9)
    assert roofline.touched_weights(60e9, 6e9, 64) == (6e9, 60e9)


def test_the_sparse_peak_halves_the_mfu():
    # 9,600 tok/s at 0.05 TFLOP on an H100 SXM, foundation-model-stack/fms-fsdp issue 89.
    achieved = 9600 * 0.05e12
    assert roofline.utilisation(achieved, 989.5e12) == pytest.approx(0.485, abs=5e-4)
    assert roofline.utilisation(achieved, 1979e12) == pytest.approx(0.243, abs=5e-4)


def test_h200_and_h100_have_different_ridge_points():
    # GindaChen/nsys-ai issue 577.
    assert roofline.ridge_point(989e12, 4.8e12) == pytest.approx(206.0, abs=0.05)
    assert roofline.ridge_point(989e12, 3.35e12) == pytest.approx(295.2, abs=0.05)


def test_half_of_an_even_mix_is_generated():
    # SemiAnalysisAI/InferenceX issue 293: 1,000 tok/s of 1024 in and 1024 out.
    assert roofline.output_share(1000, 1024, 1024) == 500


def test_a_single_request_pays_prefill_and_decode_in_turn():
    request = roofline.work(P70, inputs=2048, outputs=128)
    got = roofline.mixed_ceiling(
        request, flops=A100_BF16, bandwidth=A100_BANDWIDTH, weights=35e9, batch=1
    )
    expected = request.prefill_flops / A100_BF16 + request.steps * 35e9 / A100_BANDWIDTH
    assert 1 / got.requests == pytest.approx(expected)


def test_speculation_divides_the_steps_of_a_bandwidth_bound_request():
    rates = [
        roofline.mixed_ceiling(
            roofline.work(P70, inputs=0, outputs=1e5, tokens_per_step=k),
            flops=math.inf,
            bandwidth=A100_BANDWIDTH,
            weights=35e9,
            batch=8,
        ).requests
        for k in (1, 3)
    ]
    assert rates[1] / rates[0] == pytest.approx(3, rel=1e-3)


def test_a_cached_prompt_costs_no_arithmetic():
    whole = roofline.work(P70, inputs=1000, outputs=1)
    cached = roofline.work(P70, inputs=1000, outputs=1, cached=1.0)
    assert cached.prefill_flops == 0 < whole.prefill_flops


def test_causal_attention_over_a_cached_prefix_counts_only_the_new_rows():
    a = 4.0
    whole = roofline.work(1, inputs=10, outputs=1, attention=a).prefill_flops - 2 * 10
    half = roofline.work(1, inputs=10, outputs=1, attention=a, cached=0.5).prefill_flops - 2 * 5
    assert (whole, half) == (a * 50, a * 37.5)


@given(
    batch=st.floats(1, 1e4),
    inputs=st.floats(0, 1e5),
    outputs=st.floats(1, 1e5),
    bits=st.sampled_from([4, 8, 16]),
    kv=st.floats(0, 1e6),
    more=st.floats(1, 100),
)
def test_more_of_anything_never_lowers_the_ceiling(batch, inputs, outputs, bits, kv, more):
    request = roofline.work(P70, inputs=inputs, outputs=outputs)
    weights = roofline.weight_bytes(P70, bits)

    def ceiling(flops, bandwidth, batch):
        return roofline.mixed_ceiling(
            request,
            flops=flops,
            bandwidth=bandwidth,
            weights=weights,
            batch=batch,
            kv_per_token=kv,
        ).requests

    base = ceiling(A100_BF16, A100_BANDWIDTH, batch) * (1 - 1e-12)
    assert ceiling(A100_BF16 * more, A100_BANDWIDTH, batch) >= base
    assert ceiling(A100_BF16, A100_BANDWIDTH * more, batch) >= base
    assert ceiling(A100_BF16, A100_BANDWIDTH, batch * more) >= base


@given(batch=st.floats(1, 1e5), inputs=st.floats(0, 1e5), outputs=st.floats(2, 1e5))
def test_the_mix_never_beats_pure_decode_or_pure_arithmetic(batch, inputs, outputs):
    request = roofline.work(P70, inputs=inputs, outputs=outputs)
    weights = roofline.weight_bytes(P70, 8)
    made = roofline.mixed_ceiling(
        request, flops=A100_BF16, bandwidth=A100_BANDWIDTH, weights=weights, batch=batch
    ).requests
    decode = roofline.decode_bandwidth_ceiling(A100_BANDWIDTH, weights, batch=batch)
    assert made * (outputs - 1) <= decode * (1 + 1e-9)
    assert made * (inputs + outputs - 1) <= roofline.compute_ceiling(A100_BF16, P70) * (1 + 1e-9)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan])
def test_a_quantity_that_must_be_positive_is_refused(bad):
    with pytest.raises(InputError, match="above 0"):
        roofline.compute_ceiling(A100_BF16, bad)
