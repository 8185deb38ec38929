"""nano-vLLM's scheduler is asked only when it is the known one, and counted as it should be.

The checkout is not part of the project. A stand-in with the same interface shows that the counting
is right; the committed answers are held against the closed form and the replay.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import pytest

from assay.bench import nano, nano_scheduler, waste
from assay.errors import InputError
from assay.ledger import judge, store
from assay.physics import paging

ANSWERS = nano.answers()
SLOTS = 15_700  # Kwon et al., SOSP 2023, table 1


@pytest.mark.parametrize("block", nano.BLOCKS)
def test_its_scheduler_agrees_with_the_replay(block: int) -> None:
    replay = paging.replay(waste.lengths(), slots=SLOTS, rule="paged", block=block)
    # Both admit in order and give back the youngest; they differ in when a prefill takes a step.
    assert ANSWERS[block].waste == pytest.approx(replay.waste_held, rel=0.02)
    assert ANSWERS[block].live_length == pytest.approx(replay.live_length, rel=0.02)


@pytest.mark.parametrize("block", nano.BLOCKS)
def test_its_scheduler_agrees_with_the_closed_form(block: int) -> None:
    expected = paging.waste(ANSWERS[block].live_length, block)
    assert ANSWERS[block].waste == pytest.approx(expected, rel=0.05)


def test_every_request_was_served() -> None:
    assert {one.requests for one in ANSWERS.values()} == {len(waste.lengths())}


def test_larger_blocks_leave_more_empty_and_hold_fewer_sequences() -> None:
    ordered = [ANSWERS[block] for block in sorted(ANSWERS)]
    assert [one.waste for one in ordered] == sorted(one.waste for one in ordered)
    assert [one.sequences for one in ordered] == sorted(
        (one.sequences for one in ordered), reverse=True
    )


def test_answers_read_back_as_they_are_written() -> None:
    committed = store.path("data", "published", "nano_vllm_scheduler.csv").read_text("utf-8")
    assert nano.text(list(ANSWERS.values())) == committed


def test_another_checkout_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "nanovllm").mkdir()
    (tmp_path / "nanovllm" / "config.py").write_text("class Config: ...\n", "utf-8")
    with pytest.raises(InputError, match=f"is not nano-vLLM at {nano_scheduler.COMMIT}"):
        nano_scheduler.ask(tmp_path, [(1, 1)])


def test_defaults_that_are_no_literals_are_left_out() -> None:
    assert nano_scheduler.defaults(
        "class C:\n    a: int = 1\n    b: object = object()\n    c: str\n"
    ) == {"a": 1}


class Scheduler:
    """Serves one sequence at a time, one token a step, in blocks of four."""

    def __init__(self, lengths: list[int]) -> None:
        self.waiting = deque(Sequence(n) for n in lengths)
        self.running: deque[Sequence] = deque()

    def is_finished(self) -> bool:
        return not self.waiting and not self.running

    def schedule(self) -> tuple[list[Any], bool]:
        if not self.running:
            self.running.append(self.waiting.popleft())
            self.running[0].grow()
            return list(self.running), True
        return list(self.running), False

    def postprocess(self, chosen: list[Any], tokens: list[int], prefill: bool) -> None:
        for one in chosen:
            one.left -= 1
            one.tokens += 1
            one.grow()
            if one.left == 0:
                self.running.clear()


class Sequence:
    def __init__(self, output: int) -> None:
        self.tokens, self.left = 3, output
        self.block_table: list[int] = []

    def __len__(self) -> int:
        return self.tokens

    def grow(self) -> None:
        while len(self.block_table) * 4 < self.tokens:
            self.block_table.append(0)


def test_slots_and_tokens_are_counted_in_decode_steps_with_requests_waiting() -> None:
    found = nano_scheduler._serve(Scheduler([3, 3]), 4, 2)
    # The first sequence decodes at 4 and 5 tokens while the second waits: 9 tokens in 4 + 8 slots.
    # The second decodes with nobody waiting and does not count.
    assert (found.steps, found.preempted) == (2, 0)
    assert found.waste == pytest.approx(1 - 9 / 12)
    assert found.live_length == pytest.approx(4.5)


def test_when_nothing_waits_there_is_nothing_to_say() -> None:
    with pytest.raises(InputError, match="nothing ever waits"):
        nano_scheduler._serve(Scheduler([3]), 4, 1)


def test_the_statement_about_waste_falls_at_its_block_and_would_hold_at_a_small_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(store.STAGING, str(tmp_path))
    claim = store.claim("nano-vllm-size")
    shares = {
        block: paging.replay(waste.lengths(), slots=SLOTS, rule="paged", block=block)
        for block in (16, 256)
    }
    words = {}
    for block, share in shares.items():
        items = nano.record_waste(
            claim, "paged-waste", shares=share, block=block, limit=0.04, parameters={}
        )
        assert [bool(item.provenance) for item in items] == [False, True]
        words[block] = judge.decide(claim.assertion("paged-waste"), items).status
    assert words == {16: "verified", 256: "disputed"}


def test_provenance_names_the_commit_and_no_time() -> None:
    who = nano.provenance()
    assert who.engine_version == nano_scheduler.COMMIT
    assert who.started == who.ended == "none: deterministic"


def test_the_commit_is_the_one_the_claim_is_about() -> None:
    scopes = {one.scope.version for one in store.claim("nano-vllm-size").assertions}
    assert scopes == {nano_scheduler.COMMIT}
