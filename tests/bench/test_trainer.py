"""The trainer: a loadable checkpoint with a switch, the same bits every time, cached by its course.

A course of two steps is trained here: whether a full course learns is a measurement, not a test.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from assay.bench import checkpoint, phases, trainer
from assay.bench.exam import arithmetic

pytest.importorskip("torch")
pytest.importorskip("transformers")

SHAPE = checkpoint.Shape(
    layers=1,
    hidden=32,
    intermediate=32,
    heads=1,
    kv_heads=1,
    head_dim=32,
    vocabulary=32,
    longest=256,
)
COURSE = trainer.Course(shape=SHAPE, steps=2, rows=2, length=96)
QUESTION = arithmetic.Question("2-0000", 2, (17, 4, -12, 8))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trainer.train(COURSE, folder=tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def model(folder: Path) -> phases.Model:
    return phases.open_model(folder)


def test_a_course_trained_before_is_not_trained_again(folder: Path) -> None:
    before = (folder / "model.safetensors").stat().st_mtime_ns
    again = trainer.train(COURSE, folder=folder.parent)
    assert again == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before


def test_the_same_course_gives_the_same_bits(folder: Path, tmp_path: Path) -> None:
    other = trainer.train(COURSE, folder=tmp_path)
    name = "model.safetensors"
    assert (other / name).read_bytes() == (folder / name).read_bytes()


def test_another_seed_gives_another_folder_and_other_weights(folder: Path, tmp_path: Path) -> None:
    other = trainer.train(dataclasses.replace(COURSE, seed=1), folder=tmp_path)
    assert other.name != folder.name
    assert (other / "model.safetensors").read_bytes() != (folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize("thinking", [True, False])
def test_the_template_makes_the_prompt_that_was_trained_on(
    model: phases.Model, thinking: bool
) -> None:
    made = model.tokenizer.apply_chat_template(
        [{"role": "user", "content": QUESTION.expression}],
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=thinking,
    )
    assert made == trainer.prompt(QUESTION, thinking=thinking)


def test_the_tokenizer_gives_a_text_back_and_keeps_the_tags(model: phases.Model) -> None:
    text = trainer.prompt(QUESTION, thinking=False) + "17"
    ids = model.tokenizer(text, add_special_tokens=False)["input_ids"]
    assert ids == trainer._ids(text)
    kept = model.tokenizer.decode(ids, skip_special_tokens=True)
    assert kept == "17+4-12+8=<think></think>17"


def test_only_what_is_answered_is_a_target() -> None:
    inputs, targets = next(trainer._rows(COURSE))
    start = trainer.VOCABULARY.index("<|im_start|>")
    ends = trainer.VOCABULARY.index("</think>")
    # A position whose next token belongs to the question teaches nothing.
    asked = 0
    for row_in, row_out in zip(inputs.tolist(), targets.tolist(), strict=True):
        inside = False
        for at, token in enumerate(row_in[:-1]):
            inside = token == start or (inside and row_in[at] != trainer._ids("=")[0])
            if inside:
                asked += 1
                assert row_out[at] == trainer._IGNORED
    assert asked > 0
    assert (targets == ends).any()


def test_every_step_of_training_is_reported_at_its_end() -> None:
    seen: list[Any] = []
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        trainer.train(
            dataclasses.replace(COURSE, seed=2),
            folder=Path(place),
            progress=lambda *said: seen.append(said),
        )
    assert [said[:2] for said in seen] == [(2, 2)]


def test_rounding_to_many_bits_changes_little_and_to_few_much(model: phases.Model) -> None:
    asked = arithmetic.questions(3, seed=3)
    arms = (phases.Arm("8", prefill=8, decode=8), phases.Arm("2", prefill=2, decode=2))
    rows = [r for r in phases.rows(model, asked, arms=arms) if "divergence" in r]
    mean = {a.name: sum(r["divergence"] for r in rows if r["arm"] == a.name) for a in arms}
    assert 0 <= mean["8"] < mean["2"]


def test_an_arm_that_rounds_nothing_is_the_model_itself(model: phases.Model) -> None:
    asked = arithmetic.questions(3, seed=3)
    rows = [r for r in phases.rows(model, asked, arms=(phases.Arm("same"),)) if r["arm"] == "same"]
    assert all(abs(r["divergence"]) < 1e-6 and r["same"] == 1.0 for r in rows)


def test_a_cache_has_a_row_for_every_token_and_two_bytes_a_number(model: phases.Model) -> None:
    (cache,) = phases.caches(model, arithmetic.questions(1, seed=4))
    layers, both, tokens, heads, width = cache.shape
    assert (layers, both, heads, width) == (1, 2, 1, 32)
    assert tokens >= 6
    assert cache.element_size() == 2
