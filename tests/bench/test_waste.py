"""Evidence of waste says what the replays and the engine's block manager say, and no more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.bench import blocks, private, waste
from assay.errors import InputError
from assay.ledger import judge, records, store
from assay.physics import paging
from assay.physics.paging import Shares

WHY_NOT = private.absent()
SLOTS = 15_700  # Kwon et al., SOSP 2023, table 1: an A100 of 40 GB serving OPT-13B
LENGTHS = waste.lengths()


@pytest.fixture
def claim() -> records.Claim:
    return store.claim("paged-attention-waste")


@pytest.fixture
def staging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Evidence goes to a folder of its own."""
    monkeypatch.setenv(store.STAGING, str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    def serve(lengths: list[tuple[int, int]], **options: object) -> Shares:
        return paging.replay(lengths, slots=SLOTS, **options)  # type: ignore[arg-type]

    short = [pair for pair in LENGTHS if sum(pair) < 180] * 10
    return {
        "reserved": {r: serve(LENGTHS, rule=r, buddy=True) for r in ("longest", "power", "oracle")},
        "paged": {b: serve(LENGTHS, rule="paged", block=b) for b in (16, 256)},
        "short": serve(short, rule="paged", block=16),
        "block": 16,
        "parameters": {"block_size": 16},
    }


def by_assertion(items: list[records.Evidence]) -> dict[str, list[records.Evidence]]:
    kept: dict[str, list[records.Evidence]] = {}
    for item in items:
        kept.setdefault(item.assertion, []).append(item)
    return kept


def test_reservation_is_one_interval_over_its_rules(
    claim: records.Claim, found: dict[str, Any], staging: Path
) -> None:
    before = by_assertion(waste.record_replays(claim, **found))["waste-before"]
    assert len(before) == 1
    # Kwon et al., section 1: 20.4 to 38.2 % of the memory holds tokens; within 6 points.
    assert before[0].estimate.low == pytest.approx(1 - 0.382, abs=0.06)
    assert before[0].estimate.high == pytest.approx(1 - 0.204, abs=0.06)


def test_the_default_block_is_judged_apart_from_every_block(
    claim: records.Claim, found: dict[str, Any], staging: Path
) -> None:
    items = waste.record_replays(claim, **found)
    verdicts = {f.id: f.status for f in judge.judge(claim, items).findings}
    assert verdicts["waste-before"] == "verified"
    assert verdicts["waste-after"] == "verified"
    assert verdicts["waste-after-any"] == "disputed"


def test_a_claim_without_these_assertions_gets_no_evidence(
    found: dict[str, Any], staging: Path
) -> None:
    other = store.claim("paging-numbers-unverified")
    assert waste.record_replays(other, **found) == []
    assert waste.record_gain(other, parameters={}) == []
    asked = {"sizes": [16], "slots": SLOTS, "longest": 2048, "block": 16, "parameters": {}}
    assert waste.record_manager(other, LENGTHS[:1], **asked) == []
    assert not list(staging.iterdir())


def test_the_published_gain_of_one_source_decides_nothing(staging: Path) -> None:
    claim = store.claim("paging-utilisation-gain")
    items = waste.record_gain(claim, parameters={})
    assert [(e.estimate.low, e.estimate.high, e.estimate.n) for e in items] == [(2, 4, 1)]
    gain = {f.id: f for f in judge.judge(claim, items).findings}["throughput-ratio"]
    assert (gain.status, gain.reason) == ("open", "inconclusive")


def test_committed_answers_of_the_manager_are_the_replays() -> None:
    answers = waste.answers("paged-attention-waste")
    assert set(answers) == {8, 16, 32, 64, 128, 256}
    for block, share in answers.items():
        ours = paging.replay(LENGTHS[:300], slots=SLOTS, rule="paged", block=block)
        assert share == pytest.approx(ours.waste_held, rel=1e-11)


def test_answers_of_a_manager_that_nobody_asked_are_missed_in_words() -> None:
    with pytest.raises(InputError, match="no block manager was asked for spheron-h100-table"):
        waste.answers("spheron-h100-table")


def test_without_an_engine_nothing_is_asked(
    claim: records.Claim, staging: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private, "version", lambda: None)
    asked = {"sizes": [16], "slots": SLOTS, "longest": 2048, "block": 16, "parameters": {}}
    assert waste.record_manager(claim, LENGTHS[:10], **asked) == []
    with pytest.raises(InputError, match="vLLM is not installed"):
        blocks.provenance()


@pytest.mark.parametrize("number", ["0.32.0", "0.32.0+cu129"])
def test_the_provenance_of_an_answer_is_the_same_everywhere(
    number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private, "version", lambda: ("vllm", number))
    said = blocks.provenance()
    assert (said.engine, said.engine_version) == ("vllm", "0.32.0")
    assert said.packages == {}
    assert said.started == said.ended == said.commit == "none: deterministic"


@pytest.mark.engine
@pytest.mark.skipif(bool(WHY_NOT), reason=f"{WHY_NOT}: no manager to ask")
def test_the_installed_manager_answers_as_committed(tmp_path: Path) -> None:
    code = (
        "from assay.bench import waste; from assay.ledger import store\n"
        "kept = waste.record_manager(store.claim('paged-attention-waste'), waste.lengths()[:300],\n"
        "    sizes=[256], slots=15_700, longest=2048, block=16, parameters={})\n"
        "print('ANSWER', kept[0].estimate.value)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, store.STAGING: str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer = float(done.stdout.rpartition("ANSWER")[2])
    assert answer == pytest.approx(waste.answers("paged-attention-waste")[256])
