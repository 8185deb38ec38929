"""What a reader sees says the verdict in words and never leaves a number without its unit."""

from __future__ import annotations

import dataclasses

import pytest

from assay.ledger import judge, records, store
from assay.press import show


@pytest.fixture(scope="module")
def kv_claim() -> records.Claim:
    return store.claim("kv-cache-formula")


@pytest.fixture(scope="module")
def table_claim() -> records.Claim:
    return store.claim("deploybase-a100-table")


def _finding(**changes: object) -> judge.Finding:
    fields: dict[str, object] = {
        "id": "x",
        "status": "disputed",
        "reason": "",
        "basis": "measured",
        "claimed": 10.74,
        "low": 1.0,
        "high": 2.0,
        "unit": "GB",
        "headline": True,
        "says": (),
        "readings": (),
    }
    return judge.Finding(**{**fields, **changes})  # type: ignore[arg-type]


def test_every_status_has_a_glyph_of_its_own() -> None:
    assert set(show.GLYPHS) == {"verified", "disputed", "open"}
    assert len(set(show.GLYPHS.values())) == len(show.GLYPHS)


def test_an_open_verdict_says_why() -> None:
    assert show.verdict_words("open", "undecidable-as-stated") == "open (undecidable as stated)"


def test_a_size_is_shown_in_the_claims_unit(kv_claim: records.Claim) -> None:
    size = kv_claim.assertion("llama-2-70b-32k")
    assert show.claimed(size) == "about 10.74 GB"
    found = _finding(status="verified", low=10.73741824, high=10.73741824)
    assert show.found(size, found) == "10.74 GB"


def test_a_limit_is_called_at_most(table_claim: records.Claim) -> None:
    rate = table_claim.assertion("vllm-rate")
    finding = _finding(low=0.0, high=925.0, unit="tok/s", basis="bound")
    assert show.found(rate, finding) == "at most 925 tok/s"


def test_nothing_found_is_a_dash_and_not_zero(table_claim: records.Claim) -> None:
    finding = _finding(status="open", reason="not-run", low=None, high=None)
    assert show.found(table_claim.assertion("vllm-rate"), finding) == "—"


def test_a_disputed_rate_says_by_how_much_it_is_overstated(table_claim: records.Claim) -> None:
    finding = _finding(low=0.0, high=875.0, unit="tok/s", basis="bound")
    assert show.effect(table_claim.assertion("vllm-rate"), finding) == "overstated at least 4×"


def test_an_understated_value_says_so(kv_claim: records.Claim) -> None:
    finding = _finding(low=21.48, high=21.48)
    assert show.effect(kv_claim.assertion("llama-2-70b-32k"), finding) == "understated 2×"


def test_a_verified_value_has_no_effect_words(kv_claim: records.Claim) -> None:
    finding = _finding(status="verified")
    assert show.effect(kv_claim.assertion("llama-2-70b-32k"), finding) == ""


def test_the_card_names_word_numbers_basis_and_gpu_evidence(kv_claim: records.Claim) -> None:
    verdict = judge.judge(kv_claim, store.live(kv_claim.id))
    card = show.card(kv_claim, verdict).text
    assert f"verdict-{verdict.status}" in card
    assert show.GLYPHS[verdict.status] in card
    assert "10.74 GB" in card
    for term in ("claimed", "found", "basis", "source", "GPU evidence"):
        assert f"\n{term}\n: " in card


def test_the_card_of_a_disputed_claim_says_what_holds_instead(table_claim: records.Claim) -> None:
    verdict = judge.judge(table_claim, store.live(table_claim.id))
    assert verdict.status == "disputed"
    assert "\nwhat holds instead\n: " in show.card(table_claim, verdict).text


def test_the_card_of_a_claim_without_evidence_finds_nothing(table_claim: records.Claim) -> None:
    card = show.card(table_claim, judge.judge(table_claim, [])).text
    assert "verdict-open" in card
    assert "what holds instead" not in card


def test_a_quote_keeps_its_language_and_its_lines(table_claim: records.Claim) -> None:
    text = show.quotation(table_claim).text
    assert '<p lang="zh-Hans">' in text
    assert text.count("<br>") == len(table_claim.quote.splitlines()) - 1


def test_a_quote_cannot_smuggle_markup(table_claim: records.Claim) -> None:
    evil = table_claim.model_copy(update={"quote": "<script>alert(1)</script>"})
    assert "<script>" not in show.quotation(evil).text


def test_the_scope_lists_admissible_readings_as_unstated(table_claim: records.Claim) -> None:
    assert "counting (output or total)" in show.scope(table_claim).text


def test_a_table_escapes_what_would_be_markup() -> None:
    text = show.table([{"a": "x|y", "b": "<b>", "c": "$5$"}]).text
    assert "x\\|y" in text
    assert "\\<b>" in text
    assert "\\$5\\$" in text


def test_a_table_aligns_numbers_and_groups_thousands() -> None:
    text = show.table([{"name": "a", "value": 1234567}]).text
    assert "|---|---:|" in text
    assert "1,234,567" in text


def test_an_empty_table_says_so() -> None:
    assert "Nothing to show" in show.table([]).text


def test_gpu_evidence_needs_a_measurement_with_a_driver(kv_claim: records.Claim) -> None:
    derived = store.live(kv_claim.id)
    assert show.gpu_evidence(derived) == "none yet"
    provenance = records.Provenance(
        device="NVIDIA H200",
        driver="580.1",
        clocks=None,
        engine="vllm",
        engine_version="0.33.0",
        flags=(),
        packages={},
        commit="abc",
        started="2026-11-30T10:00:00Z",
        ended="2026-11-30T11:00:00Z",
    )
    measured = derived[0].model_copy(update={"basis": "measured", "provenance": provenance})
    assert show.gpu_evidence([measured]) == "measured on NVIDIA H200"
    on_cpu = measured.model_copy(
        update={"provenance": provenance.model_copy(update={"driver": None, "device": "EPYC"})}
    )
    assert show.gpu_evidence([on_cpu]) == "none yet"


def test_needs_are_said_in_words() -> None:
    least = {"devices_by_counting": {"output": 8, "total": 1, "requests": None}}
    assert show.needs(least) == (
        "8 cards if it counts generated tokens, 1 card if it counts all tokens, "
        "no number of cards if it counts requests"
    )


def test_a_finding_is_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        _finding().status = "verified"  # type: ignore[misc]
