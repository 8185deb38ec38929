"""Claimed rates become evidence only in the direction their basis can speak."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from assay.errors import RecordError
from assay.ledger import facts, judge, published, rates, records, store

A100, LLAMA = "a100-sxm-80gb", "llama-2-70b"


@pytest.fixture(scope="module")
def claim() -> records.Claim:
    return store.claim("deploybase-a100-table")


@pytest.fixture
def staging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(store.STAGING, str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def limits() -> object:
    return facts.limits(store.model(LLAMA))


def test_a_workload_is_read_at_its_largest_batch() -> None:
    assert rates.load("512 in, 128 out, batch 1/8/32") == rates.Load(512, 128, 32)
    assert rates.load("512 in, 256 out, 1 request") == rates.Load(512, 256, 1)


@pytest.mark.parametrize(
    "words", ["n/a", "512/128", "512 in, 128 out", "many in, few out, batch 1"]
)
def test_a_workload_of_another_form_is_refused(words: str) -> None:
    with pytest.raises(RecordError, match="cannot be read"):
        rates.load(words)


def test_every_admissible_reading_is_judged_once(claim: records.Claim, limits: object) -> None:
    rate = claim.assertion("vllm-rate")
    found = rates.read(rate, limits, facts.device(store.hardware(A100)))  # type: ignore[arg-type]
    pairs = [(r.precision, r.counting) for r in found]
    precision, counting = rate.scope.precision, rate.scope.counting
    assert isinstance(precision, records.Unstated)
    assert isinstance(counting, records.Unstated)
    assert sorted(pairs) == sorted((p, c) for p in precision.unstated for c in counting.unstated)


def test_16_bit_weights_of_a_70b_model_do_not_fit_one_80_gb_card(
    claim: records.Claim, limits: object
) -> None:
    found = rates.read(
        claim.assertion("vllm-rate"),
        limits,  # type: ignore[arg-type]
        facts.device(store.hardware(A100)),
    )
    wide = [r for r in found if r.precision == "w16a16"]
    assert wide
    assert not any(r.fits for r in wide)


def test_a_bound_never_says_more_than_its_limit(
    claim: records.Claim, limits: object, staging: Path
) -> None:
    rate = claim.assertion("vllm-rate")
    judged = [
        (rate, r)
        for r in rates.read(rate, limits, facts.device(store.hardware(A100)))  # type: ignore[arg-type]
    ]
    saved = rates.record_bounds(claim, judged, inputs=[f"data/hardware/{A100}.yml"], parameters={})
    assert len(saved) == len(judged)
    for (_, reading), item in zip(judged, saved, strict=True):
        assert item.estimate.low == 0
        limit = reading.ceiling if reading.fits else 0
        assert item.estimate.high == pytest.approx(limit, rel=1e-11)
        outside = judge.position(item.estimate, rate.band, rate.unit) == "outside"
        beyond = not reading.fits or rate.band.low > reading.ceiling  # type: ignore[operator]
        assert outside == beyond


def test_published_rates_never_speak_against_a_smaller_claim(
    claim: records.Claim, staging: Path
) -> None:
    rows = rates.beside(published.measurements(), gpu=A100, parameters=68.98e9, most_cards=2)
    small = claim.assertion("llama-cpp-rate")
    [item] = rates.record_published(claim, [small], rows, parameters={})
    assert judge.position(item.estimate, small.band, small.unit) == "straddles"


def test_no_published_rows_means_no_evidence(claim: records.Claim, staging: Path) -> None:
    assert rates.record_published(claim, rates.claimed(claim), [], parameters={}) == []
    assert not list(staging.rglob("*.json"))


def test_rows_beside_a_claim_are_of_its_card_size_and_count() -> None:
    rows = rates.beside(published.measurements(), gpu=A100, parameters=68.98e9, most_cards=2)
    assert rows
    for row in rows:
        assert row.gpu == A100
        assert row.gpu_count is not None
        assert row.gpu_count <= 2
        assert row.comparability in ("A", "A-")
        assert not row.metric.startswith(("decode", "prefill"))
    totals = [row.total_per_gpu or 0 for row in rows]
    assert totals == sorted(totals, reverse=True)


def test_input_tokens_are_added_where_only_output_is_printed() -> None:
    # QServe README: TensorRT-LLM W4A16, 1024 in and 512 out, one A100, 358 tok/s generated.
    [row] = [r for r in published.measurements() if r.id == "qserve-a100-70b-tensorrt-llm-w4a16"]
    assert row.output_per_gpu == 358
    assert row.total_per_gpu == 358 * 3


def test_out_of_memory_is_a_state_and_not_a_rate() -> None:
    [row] = [r for r in published.measurements() if r.id == "qserve-a100-70b-tensorrt-llm-fp16"]
    assert row.state == "oom"
    assert row.value is None
    assert row.total_per_gpu is None


def test_copies_of_one_source_count_once() -> None:
    rows = [r for r in published.measurements() if r.id.startswith("qserve-a100-70b")]
    assert len(rows) > 1
    assert published.independent(rows) == 1


def test_an_order_is_checked_against_the_printed_rates(claim: records.Claim) -> None:
    ratios = {a.id: ratio for a, ratio in rates.orders(claim)}
    # 3,500 ÷ 4,500 and 2,800 ÷ 2,500, as printed in the table
    assert ratios["vllm-highest"] == pytest.approx(3500 / 4500)
    assert ratios["order-as-printed"] == pytest.approx(2800 / 2500)


def test_a_statement_without_a_value_decides_nothing(claim: records.Claim, staging: Path) -> None:
    saved = {e.assertion: e for e in published.record_statements(claim, parameters={})}
    unsettled = [s for s in published.statements(claim.id) if s.value is None]
    assert unsettled
    for said in unsettled:
        finding = judge.decide(claim.assertion(said.assertion), [saved[said.assertion]])
        assert (finding.status, finding.reason) == ("open", "inconclusive")


def test_every_statement_is_about_an_assertion_and_names_a_source() -> None:
    sources = store.sources()
    for row in store.published("statements"):
        assert store.claim(row["claim"]).assertion(row["assertion"])
        assert row["source"] in sources
        assert row["finding"].endswith(".")


def test_the_nearest_published_deployments_come_first() -> None:
    found = rates.resembling(published.measurements(), 3500, gpu=A100, parameters=68.98e9, most=5)
    gaps = [abs(math.log(total / 3500)) for _, _, total in found]
    assert gaps == sorted(gaps)
    # LMDeploy 0.2.0 documentation: 3,468 input and output tokens per second on four A100.
    [total] = [t for row, counting, t in found if (row.gpu_count, counting) == (4, "total")][:1]
    assert total == pytest.approx(3468, rel=0.001)


def test_a_resemblance_is_of_the_same_card_and_size() -> None:
    for row, _, _ in rates.resembling(
        published.measurements(), 2800, gpu=A100, parameters=68.98e9, most=10
    ):
        assert row.gpu == A100
        assert row.params == pytest.approx(69, rel=0.1)


def test_more_cards_never_close_a_reading(claim: records.Claim, limits: object) -> None:
    found = rates.by_devices(
        claim.assertion("tensorrt-llm-rate"),
        limits,  # type: ignore[arg-type]
        facts.device(store.hardware(A100)),
    )
    by_reading: dict[tuple[object, object], list[bool]] = {}
    for _, reading in found:
        key = (reading.precision, reading.counting)
        by_reading.setdefault(key, []).append(reading.possible)
    for opened in by_reading.values():
        assert opened == sorted(opened)
    assert not by_reading["w16a16", "total"][0]
    assert by_reading["w16a16", "total"][-1]
