"""Tasks: sums from a seed, and tasks of the evaluation harness with its own filters and metric."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from assay.bench import exam, exhibits, study, synthetic
from assay.bench.exam import arithmetic, planted, tasks
from assay.errors import InputError

#: The prompt, filters and metric of the harness's own gsm8k, version 3, over questions made here.
YAML = """
task: {name}
dataset_path: json
dataset_kwargs:
  data_files: {{test: {data}}}
output_type: generate_until
test_split: test
doc_to_text: "Question: {{{{question}}}}\\nAnswer:"
doc_to_target: "{{{{answer}}}}"
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
    ignore_case: true
    ignore_punctuation: false
    regexes_to_ignore: [",", "\\\\$", "(?s).*#### ", "\\\\.$"]
generation_kwargs:
  until: ["Question:"]
filter_list:
  - name: strict-match
    filter:
      - {{function: regex, regex_pattern: "#### (\\\\-?[0-9\\\\.\\\\,]+)"}}
      - {{function: take_first}}
  - name: flexible-extract
    filter:
      - {{function: regex, group_select: -1, regex_pattern: "(-?[$0-9.,]{{2,}})|(-?[0-9]+)"}}
      - {{function: take_first}}
metadata: {{version: 3.0}}
"""


def test_the_generated_sums_are_a_task_like_any_other() -> None:
    assert tasks.questions("arithmetic", 5, seed=3) == arithmetic.questions(5, seed=3)
    (found,) = tasks.questions("arithmetic", 1, seed=3)
    assert found.marked(f"So the result is **{found.reference}**.") == (found.reference, True)
    assert found.marked("I cannot tell.") == (None, False)


@pytest.mark.parametrize("task", ["gsm8k", "lm-eval:", "lm_eval:gsm8k", ""])
def test_a_task_that_nobody_knows_is_refused(task: str) -> None:
    with pytest.raises(InputError, match="use arithmetic, or lm-eval:NAME"):
        tasks.questions(task, 1, seed=0)


def test_the_small_model_is_asked_sums_only() -> None:
    with pytest.raises(InputError, match="name an instruct model"):
        study.reasoning("reasoning-mode-overhead", measure=True, task="lm-eval:gsm8k")


def test_a_harness_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(InputError, match=r"harness is not installed.*extra 'tasks'"):
        tasks.questions("lm-eval:not-asked-before", 1, seed=0)


# -- with the harness -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("lm_eval", reason="needs the evaluation harness: install the extra 'tasks'")
    folder = tmp_path_factory.mktemp("task")
    sums = arithmetic.questions(40, seed=11)
    rows = [
        {"question": f"Ann has {q.expression} pears. How many?", "answer": f"So.\n#### {q.result}"}
        for q in sums
    ]
    (folder / "pears.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = folder / "pears.yaml"
    file.write_text(YAML.format(name="pears", data=folder / "pears.jsonl"))
    return f"lm-eval:{file}"


def test_a_task_of_the_harness_asks_and_grades_as_it_says(task: str) -> None:
    found = tasks.questions(task, 20, seed=1)
    assert len({question.id for question in found}) == 20
    for question in found:
        right = question.reference.rpartition("#### ")[2]
        asked = question.asked("{expression}")
        assert asked.startswith("Question: Ann has ") and asked.endswith("How many?\nAnswer:")
        assert question.marked(f"We add them up.\nThe answer is **${right}**.") == (
            f"${right}",
            True,
        )
        assert question.marked(f"It is {int(right) + 1}")[1] is False
        assert question.marked("I cannot tell") == (None, False)


def test_an_exam_on_a_task_is_graded_by_the_harness(task: str, tmp_path: Path) -> None:
    effect = planted.Effect(seed=3)
    behaviour = synthetic.Behaviour(ttft=0.002, tpot=2e-5, bundle=64, effect=effect.text())
    paper = exam.Paper(tuple(tasks.questions(task, 30, seed=1)), blocks=1, budget=4096)
    held = exam.hold(synthetic.serve(behaviour), paper, tmp_path)
    rows = [json.loads(line) for line in held.file.read_text().splitlines()]
    assert len(rows) == 60
    for row in rows:
        thinking = row["arm"] == "on"
        said = planted.reply(effect, row["question"], thinking=thinking, budget=4096)
        assert row["correct"] == (said.content[-1] == row["reference"].rpartition("#### ")[2])
    found = exhibits.by_level(held, seed=1)
    assert list(found) == ["all"]
    assert found["all"]["accuracy"]["questions"] == 30


def test_the_same_seed_draws_the_same_questions_of_a_task(task: str) -> None:
    draws = [tasks.questions(task, 10, seed=seed) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
