"""The processor's own roof, and what it allows a model under a load."""

from __future__ import annotations

import pytest

from assay.bench import roof
from assay.bench.checkpoint import SMALL
from assay.bench.load import Load
from assay.errors import InputError

LOAD = Load(requests=4, input_tokens=512, output_tokens=128, concurrency=2)
ROOF = roof.Roof(10e9, {"bf16": 100e9, "fp32": 40e9}, 1)


def test_copy_and_matrix_products_are_measured_on_every_kind() -> None:
    pytest.importorskip("torch")
    found = roof.measure(repeats=1, size=2**20, side=32)
    assert found.bandwidth > 0
    assert set(found.flops) == {"bf16", "fp32"}
    assert min(found.flops.values()) > 0


def test_a_decode_step_reads_the_weights_once() -> None:
    found = roof.limits(ROOF, SMALL.config(), LOAD)
    assert found.weights == 2 * found.parameters
    assert found.tpot == pytest.approx(found.weights / 10e9)


def test_a_prompt_costs_at_most_two_operations_a_parameter_and_token() -> None:
    found = roof.limits(ROOF, SMALL.config(), LOAD)
    assert 0 < found.ttft <= 2 * found.parameters * 512 / 100e9


def test_twice_the_roof_is_twice_the_limit() -> None:
    double = roof.Roof(20e9, {"bf16": 200e9}, 1)
    first = roof.limits(ROOF, SMALL.config(), LOAD)
    second = roof.limits(double, SMALL.config(), LOAD)
    assert second.output_throughput == pytest.approx(2 * first.output_throughput)
    assert second.tpot == pytest.approx(first.tpot / 2)


def test_lengths_of_a_data_set_have_no_limit() -> None:
    asked = Load(requests=4, input_tokens=1, output_tokens=1, concurrency=2, dataset="sharegpt")
    with pytest.raises(InputError, match="no fixed lengths"):
        roof.limits(ROOF, SMALL.config(), asked)
