"""How a time grows with a length: exponents and parts are those of the curve that made it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.bench import slope
from assay.errors import DerivationError

LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768)


def _curve(fixed: float, linear: float, quadratic: float, *, starts: int = 5) -> slope.Curve:
    """Return exact times, each start a percent slower than the one before."""
    return {
        n: [(fixed + linear * n + quadratic * n * n) * 1.01**i for i in range(starts)]
        for n in LENGTHS
    }


def test_growth_in_proportion_has_exponent_one_and_with_the_square_two() -> None:
    assert all(x.value == pytest.approx(1) for x in slope.exponents(_curve(0, 1, 0)).values())
    assert all(x.value == pytest.approx(2) for x in slope.exponents(_curve(0, 0, 1)).values())


def test_a_start_that_is_slower_throughout_has_the_same_exponents() -> None:
    for found in slope.exponents(_curve(0.01, 1e-5, 1e-9)).values():
        assert found.high - found.low < 1e-9


def test_exponents_rise_towards_two_where_attention_takes_over() -> None:
    values = [x.value for x in slope.exponents(_curve(0, 1e-5, 1e-9)).values()]
    assert values == sorted(values)
    assert 1 < values[0] < values[-1] < 2


@given(st.floats(0, 1), st.floats(1e-6, 1e-3), st.floats(1e-11, 1e-7), st.integers(2, 6))
def test_the_parts_are_those_that_made_the_curve(
    fixed: float, linear: float, quadratic: float, starts: int
) -> None:
    found = slope.parts(_curve(fixed, linear, quadratic, starts=starts))
    assert found.error < 1e-6
    mean = sum(1.01**i for i in range(starts)) / starts
    longest = LENGTHS[-1]
    whole = (fixed + linear * longest + quadratic * longest**2) * mean
    again = found.fixed.value + found.linear.value * longest + found.quadratic.value * longest**2
    assert again == pytest.approx(whole, rel=1e-6)


def test_the_crossing_is_where_both_parts_are_equal() -> None:
    assert slope.parts(_curve(0.1, 1e-5, 1e-9)).crossing == pytest.approx(1e4)


def test_there_is_no_crossing_without_a_quadratic_part() -> None:
    curve = {n: [math.sqrt(n), math.sqrt(n)] for n in LENGTHS}
    assert slope.parts(curve).crossing is None


def test_no_part_is_below_zero() -> None:
    curve = {n: [n**2.5, n**2.5] for n in LENGTHS}
    found = slope.parts(curve)
    assert min(x.value for x in (found.fixed, found.linear, found.quadratic)) >= 0


def test_three_lengths_do_not_show_a_shape() -> None:
    with pytest.raises(DerivationError, match="3 lengths, the shape needs 4"):
        slope.parts({n: [1.0, 1.0] for n in LENGTHS[:3]})


def test_a_length_that_misses_a_start_is_refused() -> None:
    with pytest.raises(DerivationError, match="not every length"):
        slope.exponents({1: [1.0, 1.0], 2: [2.0]})
