"""The kept tables are what the code makes now, as far as it can be checked here."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from assay.bench import private
from assay.bench.twin import steptime, tables, validate
from assay.errors import InputError
from assay.ledger import store

WHY_NOT = private.absent()
needs_engine = pytest.mark.skipif(bool(WHY_NOT), reason=f"{WHY_NOT}: the engine cannot be asked")

MAKE = """
import json, sys
from assay.bench.twin import tables
print("MADE " + json.dumps({name: tables.text(tables.make(name)) for name in sys.argv[1:]}))
"""


@pytest.mark.parametrize("row", tables.read("prefill")[::7])
def test_a_predicted_ttft_is_the_sum_of_its_chunks(row: dict[str, str]) -> None:
    tp, prompt, budget = (int(row[k]) for k in ("gpu_count", "prompt_tok", "budget_tok"))
    step = steptime.Roofline.of(store.model(row["model"]), store.hardware(row["gpu"]), tp=tp)
    total, done, steps = 0.0, 0, 0
    while done < prompt:
        chunk = min(budget, prompt - done)
        done += chunk
        steps += 1
        total += step(steptime.Work(chunk, 1, done, chunk * (done - (chunk - 1) / 2)))
    assert int(row["steps"]) == steps
    assert float(row["ttft_s"]) == pytest.approx(total, rel=1e-5)


def test_every_token_of_a_prompt_is_computed_once() -> None:
    assert all(row["computed_tok"] == row["prompt_tok"] for row in tables.read("prefill"))


def test_a_chunk_leaves_room_for_those_that_decode() -> None:
    for row in tables.read("interference"):
        assert int(row["largest_step_tok"]) == int(row["budget_tok"])
        chunk, decoders = int(row["largest_chunk_tok"]), int(row["decoders"])
        assert chunk == int(row["budget_tok"]) - decoders


def test_the_map_spans_pressure_and_reuse_and_both_links() -> None:
    rows = tables.read("offload")
    assert {float(r["pressure"]) for r in rows} == {0.5, 1, 2, 4}
    assert {float(r["reuse"]) for r in rows} >= {0, 0.9}
    assert len({r["link_b_per_s"] for r in rows}) == 2
    nothing = [r for r in rows if float(r["reuse"]) == 0]
    assert all(float(r["host_hits"]) == 0 for r in nothing)


def test_every_case_was_laid_beside_the_real_engine_and_is_identical() -> None:
    rows = tables.read("steps")
    assert [r["workload"] for r in rows] == [case.name for case in validate.CASES]
    assert {r["identical"] for r in rows} == {"yes"}


def test_every_load_was_timed_and_one_was_fitted() -> None:
    rows = tables.read("clock")
    assert [r["load"] for r in rows] == [case.name for case in validate.CLOCKS]
    assert [r["role"] for r in rows] == ["fitted"] + ["predicted"] * (len(rows) - 1)
    assert len(rows) > 12


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(InputError, match="no table 'unheard-of'"):
        tables.read("unheard-of")


@pytest.mark.engine
@needs_engine
def test_what_the_engine_answers_now_is_what_is_kept() -> None:
    names = ["budgets", "sharing"]
    done = subprocess.run(
        [sys.executable, "-c", MAKE, *names], capture_output=True, text=True, timeout=540
    )
    line = next((x for x in done.stdout.splitlines() if x.startswith("MADE ")), None)
    assert line is not None, done.stderr[-2000:]
    made = json.loads(line.removeprefix("MADE "))
    kept = {n: store.read_text(store.path("data", "twin", f"{n}.csv")) for n in names}
    assert made == kept
