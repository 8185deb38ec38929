"""Units: the one border where a printed number becomes a base number."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import InputError
from assay.physics import units

# (printed, unit, base value, base unit, where the number can be read)
GOLDEN = [
    (1, "kB", 1e3, "B", "SI brochure 9th ed., table 7: kilo is 10^3"),
    (1, "GB", 1e9, "B", "SI brochure 9th ed., table 7: giga is 10^9"),
    (1, "TB", 1e12, "B", "SI brochure 9th ed., table 7: tera is 10^12"),
    (1, "KiB", 1024, "B", "IEC 80000-13: kibi is 2^10"),
    (1, "MiB", 1048576, "B", "IEC 80000-13: mebi is 2^20"),
    (1, "GiB", 1073741824, "B", "IEC 80000-13: gibi is 2^30"),
    (1, "TiB", 1099511627776, "B", "IEC 80000-13: tebi is 2^40"),
    (1, "min", 60, "s", "SI brochure 9th ed., table 8"),
    (1, "h", 3600, "s", "SI brochure 9th ed., table 8"),
    (81559, "MiB", 85520809984, "B", "nvidia-smi's total of an H100: 79.65 GiB, 85.52 GB"),
    (10, "GiB", 10737418240, "B", "2 · 80 · 8 · 128 · 2 B · 32,768: a 70B Llama's cache, fp16"),
    (3.35, "TB/s", 3.35e12, "B/s", "NVIDIA H100 SXM data sheet, memory bandwidth"),
    (989.5, "TFLOP/s", 989.5e12, "FLOP/s", "NVIDIA H100 SXM data sheet, dense BF16"),
    (1410, "MHz", 1.41e9, "1/s", "NVIDIA A100 data sheet, boost clock"),
    (200, "ms", 0.2, "s", "SI brochure: milli is 10^-3"),
    (5.4, "%", 0.054, "1", "per cent is 10^-2"),
    (7.5, "pp", 0.075, "1", "a difference of two shares"),
    (2, "x", 2, "1", "a ratio"),
    (60, "tok/min", 1, "tok/s", "60 a minute is 1 a second"),
    (1, "GB/s/GPU", 1e9, "B/s/GPU", "per device"),
]


@pytest.mark.parametrize(("printed", "unit", "value", "base", "source"), GOLDEN)
def test_golden_conversions(
    printed: float, unit: str, value: float, base: str, source: str
) -> None:
    assert units.to_base(printed, unit) == (value, base), source
    assert units.from_base(value, unit) == printed, source


def test_kib_is_not_kb_and_gib_is_not_gb() -> None:
    assert units.to_base(1, "KiB")[0] / units.to_base(1, "kB")[0] == 1.024
    assert units.to_base(1, "GiB")[0] / units.to_base(1, "GB")[0] == 1.073741824


@pytest.mark.parametrize(
    ("printed", "unit", "value"),
    # Each product of the two binary floats is off in its last place.
    [(1.005, "kB", 1005), (1.001, "GB", 1001e6), (2.01, "GB", 201e7), (8.2, "TB", 82e11)],
)
def test_a_printed_decimal_converts_to_the_decimal_a_person_expects(
    printed: float, unit: str, value: float
) -> None:
    assert units.to_base(printed, unit)[0] == value


@pytest.mark.parametrize("unit", sorted(units.ATOMS))
def test_every_atom_has_itself_or_another_atom_as_base(unit: str) -> None:
    base = units.base_of(unit)
    assert units.base_of(base) == base
    assert units.to_base(1, base)[0] == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [("tok/s/GPU", "tok/GPU/s"), ("MHz", "1/s"), ("s/s", "1"), ("GB/GB", "1"), ("1/MHz", "s")],
)
def test_two_spellings_of_one_dimension_have_one_base(one: str, other: str) -> None:
    assert units.base_of(one) == units.base_of(other)


@pytest.mark.parametrize(
    ("one", "other"), [("GB", "GB/s"), ("tok/s", "req/s"), ("W", "J"), ("tok/s", "tok/s/GPU")]
)
def test_different_dimensions_have_different_bases(one: str, other: str) -> None:
    assert units.base_of(one) != units.base_of(other)


# What is answered to each misspelling; two words where the writer must choose.
ALIASES = {
    "tps": "tok/s",
    "t/s": "tok/s",
    "tokens/s": "tok/s",
    "token/s": "tok/s",
    "tokens/sec": "tok/s",
    "tokens/second": "tok/s",
    "tok/sec": "tok/s",
    "tok/s/gpu": "tok/s/GPU",
    "qps": "req/s",
    "rps": "req/s",
    "requests/s": "req/s",
    "KB": "kB or KiB",
    "KB/token": "kB/tok or KiB/tok",
    "Gb": "GB or GiB",
    "gb": "GB or GiB",
    "Mb": "MB or MiB",
    "GBps": "GB/s",
    "TFLOPS": "TFLOP/s",
    "TFLOPs": "TFLOP/s",
    "TOPS": "TFLOP/s",
    "sec": "s",
    "seconds": "s",
    "µs": "us",
    "μs": "us",
    "percent": "%",
    "times": "x",
    "×": "x",
    "X": "x",
}


@pytest.mark.parametrize("alias", ALIASES)
def test_a_misspelling_is_refused_with_the_word_to_use(alias: str) -> None:
    with pytest.raises(InputError) as caught:
        units.parse(alias)
    assert caught.value.what == f"unknown unit '{alias}'"
    assert caught.value.fix == f"write {ALIASES[alias]}"


@pytest.mark.parametrize("alias", sorted(units._MISSPELT))
def test_every_misspelling_is_answered_with_units_that_exist(alias: str) -> None:
    assert alias not in units.ATOMS
    for word in units._MISSPELT[alias]:
        assert units.parse(word)


@pytest.mark.parametrize(
    "unit", ["", "/", "tok/", "/s", "tok//s", "furlong", "GB ", "tok·s", "1e3"]
)
def test_any_other_word_is_refused_with_the_list(unit: str) -> None:
    with pytest.raises(InputError, match=r"unknown unit .*use one of 1, x, %"):
        units.parse(unit)


# -- numbers with a unit --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("22.5 GiB", (22.5, "GiB")),
        ("3,500 tok/s", (3500.0, "tok/s")),
        ("3500tok/s", (3500.0, "tok/s")),
        ("  3500  tok / s ", (3500.0, "tok/s")),
        ("1e5 tok/s", (100000.0, "tok/s")),
        (".5 GB", (0.5, "GB")),
        ("-3 %", (-3.0, "%")),
        ("+3 x", (3.0, "x")),
        ("1,234,567.5 B", (1234567.5, "B")),
    ],
)
def test_a_quantity_is_a_number_and_a_unit(words: str, value: tuple[float, str]) -> None:
    assert units.quantity(words) == value


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("", "does not begin with a number"),
        ("GB", "does not begin with a number"),
        ("e5 tok/s", "does not begin with a number"),
        ("+ GB", "does not begin with a number"),
        ("nan GB", "does not begin with a number"),
        ("inf GB", "does not begin with a number"),
        ("12,5 GB", "does not begin with a number"),  # a decimal comma is not guessed at
        ("1,23,456 GB", "does not begin with a number"),
        ("1.2.3 GB", "does not begin with a number"),
        ("1_000 tok/s", "does not begin with a number"),
        ("3500", "has no unit"),
        ("1e999 GB", "too large"),
        ("3500 tps", "write tok/s"),
        ("3.5k tok/s", "unknown unit 'k tok/s'"),
        ("10 GB 20 GB", "unknown unit 'GB 20 GB'"),
    ],
)
def test_what_is_no_quantity_is_refused_in_one_sentence(words: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        units.quantity(words)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=30))
def test_any_text_is_a_quantity_or_a_clear_refusal(words: str) -> None:
    try:
        value, unit = units.quantity(words)
    except InputError:
        return
    assert math.isfinite(value)
    assert units.parse(unit)


# -- properties -----------------------------------------------------------------------------------

names = st.sampled_from([*units.ATOMS, "GB/s", "tok/s/GPU", "tok/min", "B/tok"])
decimals = st.decimals(-(10**9), 10**9, places=6, allow_nan=False).map(float)


@given(decimals, names)
def test_a_round_trip_returns_the_printed_number(value: float, unit: str) -> None:
    there = units.to_base(value, unit)[0]
    assert units.from_base(there, unit) == pytest.approx(value, rel=1e-15, abs=0)


@given(st.integers(0, 2**43), st.sampled_from(["B", "kB", "GB", "KiB", "GiB", "TiB"]))
def test_whole_bytes_survive_the_round_trip_exactly(count: int, unit: str) -> None:
    assert units.to_base(units.from_base(count, unit), unit)[0] == count


@given(decimals, decimals, names)
def test_conversion_keeps_the_order(one: float, other: float, unit: str) -> None:
    low, high = sorted((one, other))
    assert units.to_base(low, unit)[0] <= units.to_base(high, unit)[0]


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_an_open_end_stays_open(value: float) -> None:
    assert units.to_base(value, "GB")[0] == value
    assert units.from_base(value, "GB") == value


def test_a_number_beyond_the_range_of_floats_is_refused() -> None:
    with pytest.raises(InputError, match="too large"):
        units.to_base(1e300, "TB/s")


# -- as text --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-0.0, "0"),
        (10737418240, "10,737,418,240"),
        (2211.3, "2,211"),
        (999.96, "1,000"),
        (100.04, "100"),
        (7.5, "7.5"),
        (0.054, "0.054"),
        (0.0123456, "0.01235"),
        (0.00001234, "1.234e-05"),
        (-3.14159, "-3.142"),
        (math.inf, "∞"),
        (-math.inf, "-∞"),
        (math.nan, "unknown"),
    ],
)
def test_numbers_as_text(value: float, text: str) -> None:
    assert units.number(value) == text


@given(st.integers(-(10**15) + 1, 10**15 - 1))
def test_a_whole_number_is_written_in_full(value: int) -> None:
    assert int(units.number(value).replace(",", "")) == value


@given(st.floats(1e-9, 1e14))
def test_a_number_as_text_is_right_to_four_digits(value: float) -> None:
    assert float(units.number(value).replace(",", "")) == pytest.approx(value, rel=6e-4)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((10737418240, "B", "GiB"), "10.00 GiB"),
        ((10737418240, "B", "GB"), "10.74 GB"),
        ((0.2, "s", "ms"), "200 ms"),
        ((200, "ms", "s"), "0.2 s"),
        ((200, "ms", ""), "200 ms"),
        ((0.054, "1", "%"), "5.4%"),
        ((2.4, "1", "x"), "2.4×"),
        ((3500, "tok/s", ""), "3,500 tok/s"),
        ((1, "1", ""), "1"),
    ],
)
def test_a_value_is_shown_with_its_unit(arguments: tuple[float, str, str], text: str) -> None:
    value, unit, display = arguments
    assert units.text(value, unit, display=display) == text


def test_a_size_is_not_shown_as_a_rate() -> None:
    with pytest.raises(InputError, match="cannot show B as GB/s"):
        units.text(1, "B", display="GB/s")
