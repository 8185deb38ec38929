"""Pairs of published rows that differ in one arm: found by what they share, with their rounding."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.ledger import matched, store

ARMS = {"above": "thinking", "below": "non-thinking"}


def test_the_published_pair_of_rates_is_found_once_with_both_its_rows() -> None:
    (found,) = matched.matches("request_throughput", **ARMS)
    # AMD's blog of 2025-07-24: 0.97 and 14.61 req/s over the same 128 multiplications.
    assert (found.above.value, found.below.value) == (0.97, 14.61)
    assert found.ratio[0] == pytest.approx(0.97 / 14.61)
    assert found.ratio[1:] == pytest.approx((0.965 / 14.615, 0.975 / 14.605))


def test_counts_of_tokens_are_exact() -> None:
    (found,) = matched.matches("generated_tokens", **ARMS)
    assert found.ratio == pytest.approx((468429 / 27346,) * 3)


def test_published_changes_run_from_minus_24_to_plus_50_points() -> None:
    # Synaptiq 2026: 72.8 without and 48.9 with reasoning; Qwen3 report: 31.0 and 81.4 on AIME24.
    changes = sorted(m.difference[0] for m in matched.matches("accuracy", **ARMS))
    assert changes[0] == pytest.approx(-0.239)
    assert changes[-1] == pytest.approx(0.504)


def test_a_change_computed_from_two_rows_agrees_with_the_one_in_the_table() -> None:
    rows = {row["row"]: row for row in store.published("measurements")}
    for found in matched.matches("accuracy", **ARMS):
        name = found.above.id.removesuffix("-thinking") + "-change"
        if name in rows:
            assert 100 * found.difference[0] == pytest.approx(float(rows[name]["value"]))


def test_rows_of_different_workloads_are_never_paired() -> None:
    for found in matched.matches("accuracy", **ARMS):
        assert found.above.workload == found.below.workload
        assert found.above.source == found.below.source


def test_what_is_special_about_an_arm_is_part_of_its_name() -> None:
    names = [m.name for m in matched.matches("accuracy", **ARMS) if m.above.group == "synaptiq"]
    assert len(set(names)) == 2
    assert any("without a budget" in name for name in names)


def test_a_stated_tolerance_takes_the_place_of_rounding() -> None:
    found = matched.matches(
        "request_throughput", above="prefill and decode", below="two colocated replicas"
    )
    # The report states 1.16 % between two runs of one arm.
    assert all(m.spread[0] == pytest.approx(0.0116 * (m.above.value or 0)) for m in found)
    assert {m.ratio[0] > 1 for m in found} == {True, False}


def test_no_such_arm_gives_no_pair() -> None:
    assert matched.matches("accuracy", above="levitating", below="non-thinking") == []


def test_a_pair_becomes_evidence_of_what_the_claim_asks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ASSAY_STAGING", str(tmp_path))
    claim = store.claim("reasoning-mode-overhead")
    (pair,) = matched.matches("request_throughput", **ARMS)
    (saved,) = matched.record(
        claim,
        "throughput-general",
        [(pair, pair.ratio)],
        counting="requests",
        finding="{name}: {value} ({source}).",
        parameters={},
    )
    assert saved.basis == "published"
    assert saved.conditions["counting"] == "requests"
    assert saved.conditions["gpu"] == "mi300x"
    assert saved.finding.startswith("Qwen3-8B, 128 multiplications: 6.6")
    assert saved.estimate.low is not None
    assert saved.estimate.low < saved.estimate.value
