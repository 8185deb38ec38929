"""Transfer of a KV cache: floors on links, when coding pays, codecs that lose nothing, rounding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from assay.bench import transfer
from assay.errors import DerivationError
from assay.ledger import facts, store
from assay.physics import kv

SIZES = st.floats(1.0, 1e12)
RATIOS = st.floats(1.01, 100.0)


def test_the_links_are_those_of_their_standards() -> None:
    # PCI-SIG: 31.5 and 63 GB/s for 16 lanes; IEEE 802.3: the name's Gbit/s; NVIDIA's H100 data
    # sheet prints 900 GB/s of NVLink for both directions together.
    gigabytes = {name: round(rate / 1e9, 1) for name, rate in transfer.LINKS.items()}
    assert gigabytes == {
        "25 GbE": 3.1,
        "100 GbE": 12.5,
        "PCIe 4.0 x16": 31.5,
        "400 GbE": 50.0,
        "PCIe 5.0 x16": 63.0,
        "NVLink 4": 450.0,
    }
    printed = [
        fact.value
        for fact in store.hardware("h100-sxm-80gb").facts
        if fact.quantity == "interconnect"
    ]
    assert printed == [2 * transfer.LINKS["NVLink 4"] / 1e9]


def test_a_prompt_of_llama_3_1_8b_takes_the_known_time_over_100_gigabit() -> None:
    # 131,072 B per token in 16 bit (32 layers x 2 x 8 heads x 128 x 2 B): 8,192 tokens are 1 GiB.
    config = store.model("llama-3.1-8b").config
    size = kv.report(config, tokens=8192, kv_dtype="bf16").bytes_at["all_layers"]
    assert size == 2**30
    assert transfer.seconds(size, "100 GbE") == pytest.approx(2**30 / 12.5e9)
    assert facts.limits(store.model("llama-3.1-8b")).kv_per_token == 131072


@given(SIZES, RATIOS)
def test_compressing_divides_the_time_by_the_ratio(size: float, ratio: float) -> None:
    plain = transfer.seconds(size, "25 GbE")
    assert transfer.seconds(size, "25 GbE", ratio=ratio) == pytest.approx(plain / ratio)


@given(RATIOS, st.sampled_from(sorted(transfer.LINKS)))
def test_at_the_least_codec_rate_coding_and_sending_take_as_long_as_sending(
    ratio: float, link: str
) -> None:
    rate = transfer.least_codec_rate(link, ratio)
    both = 1.0 / rate + transfer.seconds(1.0, link, ratio=ratio)
    assert both == pytest.approx(transfer.seconds(1.0, link))


@pytest.mark.parametrize("ratio", [1.0, 0.5, float("nan")])
def test_a_codec_that_saves_nothing_never_pays(ratio: float) -> None:
    with pytest.raises(DerivationError, match="saves nothing"):
        transfer.least_codec_rate("25 GbE", ratio)


@pytest.mark.parametrize(("size", "link"), [(0.0, "25 GbE"), (1.0, "40 GbE")])
def test_no_size_and_an_unknown_link_are_refused(size: float, link: str) -> None:
    with pytest.raises(DerivationError):
        transfer.seconds(size, link)


@given(
    st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=3),
    st.sampled_from(sorted(transfer.CODECS)),
    st.booleans(),
)
def test_every_codec_gives_back_every_cache(halves: list[bytes], codec: str, planes: bool) -> None:
    caches = [half * 2 for half in halves]
    made = transfer.encode(caches, codec, planes=planes)  # raises when one does not come back
    assert made.plain == sum(map(len, caches))


def test_separated_bytes_code_smaller_where_exponents_repeat() -> None:
    drawn = np.random.default_rng(0).normal(size=20000).astype(np.float32)
    cache = (drawn.view(np.uint32) >> 16).astype(np.uint16).tobytes()  # brain floats
    whole = transfer.encode([cache], "zstd", planes=False)
    apart = transfer.encode([cache], "zstd", planes=True)
    assert apart.ratio > whole.ratio > 1


@given(
    arrays.arrays(
        np.float32, (4, 32), elements=st.floats(-1e3, 1e3, width=32, allow_subnormal=False)
    ),
    st.integers(2, 8),
)
def test_rounding_is_off_by_at_most_half_a_step(values: np.ndarray, bits: int) -> None:
    restored, stored = transfer.rounded(values, bits=bits, group=16)
    grouped = values.reshape(4, 2, 16)
    step = (grouped.max(-1) - grouped.min(-1)) / (2**bits - 1)
    off = np.abs(restored - values).reshape(4, 2, 16).max(-1)
    assert (off <= step / 2 + 1e-3).all()
    assert stored == bits + 2


@pytest.mark.parametrize(("bits", "group"), [(1, 32), (9, 32), (8, 5), (8, 0)])
def test_widths_and_groups_that_do_not_fit_are_refused(bits: int, group: int) -> None:
    with pytest.raises(DerivationError):
        transfer.rounded(np.zeros((2, 32), np.float32), bits=bits, group=group)
