"""The page "Is this number possible?" reckons as Python does: the same scripts, run under node."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from assay.errors import InputError
from assay.ledger import facts, store
from assay.physics import precision, units
from assay.physics.accelerator import Accelerator
from assay.physics.conditions import Conditions, ModelFacts
from assay.physics.possible import possible
from assay.physics.rate import Rate, parse_rate
from assay.press import calculator

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE.parents[1] / "book" / "_extra" / "possible"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed: the port is not run")

CASES = 2000
SEED = 20260101
TOLERANCE = 1e-9

# One of every way to write a rate, and of every way to write it wrong.
WORDS = (
    "3,500 tok/s", "3500 tokens/s", "1000 tokens per second per GPU", "1000 tok/s/GPU", "8.6 req/s",
    "12 requests/s", "50 tok/s/user", "50 tok/s per stream", "20 ms/tok", "0.02 s/tok TPOT",
    "20 ms TPOT", "20 ms ITL", "150 ms TTFT", "TTFT 1.5 s", "3868.374 GB/s", "1.2 TB/s", "46 % MFU",
    "0.46 x MFU", "100 tps", "5 qps", "4,000 tok/s per node", "1e4 tok/s", ".5 req/s", "2 tok/min",
    "150 ms", "3500", "fast", "", "0 tok/s", "-3 tok/s", "3.500,0 tok/s", "3500 furlongs/s",
    "80 GB", "46 %", "12,5 tok/s", "3 GPU/s", "50 req/s/user", "5 GiB/s/GPU",
)  # fmt: skip
SIZES = (
    "70.55e9", "70B", "70 b", "671e9:37e9", "46.7B:12.9B", "1.5T", "4.68 GB", "140 GiB", "8x7B",
    "30B-A3B", "70", "", "7B:9B", "llama", "1e30",
)  # fmt: skip

# What a metric of the table of published rates is, and what it counts.
RATES = {
    "output_throughput": "output",
    "decode_throughput": "output",
    "total_throughput": "total",
    "prefill_throughput": "total",
    "request_throughput": "requests",
    "throughput": "any",
}
TIMES = {"ttft": "ttft", "tpot": "tpot", "itl": "tpot"}
KV_BITS = {"bf16": 16.0, "fp8": 8.0, "int4": 4.0}

Case = tuple[Rate, ModelFacts | None, str, dict[str, Any]]


def _models() -> list[ModelFacts]:
    bare = [
        ModelFacts(70.55e9),
        ModelFacts(671e9, active=37e9),
        ModelFacts(None, weights_read=4.68e9),
        # Llama 3.1 70B with attention arithmetic: 4 * 80 layers * 64 heads * 128.
        ModelFacts(70.55e9, kv_per_token=327_680, attention=2_621_440.0),
    ]
    return [*(facts.limits(store.model(name)) for name in store.model_ids()), *bare]


def _grid() -> list[Case]:
    """Return cases over every device, with conditions stated and not."""
    chance = random.Random(SEED)
    models, devices = _models(), store.hardware_ids()
    formats = ["any", "any", "int4", *precision.PRECISIONS]
    kinds = [
        ("tok/s", "throughput", 0.0, 6.0),
        ("req/s", "throughput", -3.0, 3.0),
        ("s", "tpot", -4.0, 0.0),
        ("s", "ttft", -4.0, 1.0),
        ("B/s", "bandwidth", 9.0, 14.0),
        ("1", "mfu", -2.0, 0.5),
    ]
    found: list[Case] = []
    for number in range(CASES):
        unit, metric, low, high = chance.choices(kinds, weights=(10, 4, 3, 3, 1, 1))[0]
        counted = {"tok/s": ("any", "output", "total"), "req/s": ("any", "requests")}
        stated = {
            "gpus": chance.choice((None, 1, 1, 2, 3, 8, 72)),
            "inputs": chance.choice((None, 0, 1, 128, 512.5, 8192, 100_000)),
            "outputs": chance.choice((None, 1, 2, 128, 1000.5, 32_768)),
            "concurrency": chance.choice((None, 1, 8, 32, 1024)),
            "precision": chance.choice(formats),
            "counting": chance.choice(counted.get(unit, ("any",))),
            "tokens_per_step": chance.choice((1.0, 1.0, 2.5)),
            "cached": chance.choice((0.0, 0.0, 0.5, 1.0)),
            "kv_bits": chance.choice((None, 8.0, 16.0)),
            "overhead": chance.choice((0.0, 0.0, 4e9)),
        }
        rate = Rate(10 ** chance.uniform(low, high), unit, metric, chance.random() < 0.2)
        needless = metric in ("bandwidth", "mfu")
        model = None if needless else chance.choice(models)
        found.append((rate, model, devices[number % len(devices)], stated))
    return found


def _table() -> list[Case]:
    """Return every published row whose device and model are known."""
    found: list[Case] = []
    for row in store.published("measurements"):
        metric = row["metric"]
        if not (row["value"] and row["gpu"] and row["model"]) or metric not in {**RATES, **TIMES}:
            continue
        value, unit = units.to_base(float(row["value"]), row["unit"].removesuffix("/GPU"))
        number = {
            column: float(row[column]) if row[column] else None
            for column in ("gpu_count", "input_tokens", "output_tokens", "concurrency")
        }
        stated = {
            "gpus": int(number["gpu_count"]) if number["gpu_count"] else None,
            "inputs": number["input_tokens"],
            "outputs": number["output_tokens"],
            "concurrency": number["concurrency"],
            "precision": row["precision"] if row["format"] == "int4" else row["format"] or "any",
            "counting": RATES.get(metric, "any"),
            "cached": float(row["cached_share"] or 0),
            "kv_bits": KV_BITS.get(row["kv_dtype"]),
        }
        if stated["precision"] not in ("any", "int4", *precision.PRECISIONS):
            stated["precision"] = "w4a16"  # gptq and awq: 4-bit weights only
        rate = Rate(value, unit, TIMES.get(metric, "throughput"), row["per"] == "gpu")
        model = facts.limits(store.model(row["model"]))
        found.append((rate, model, row["gpu"], stated))
    return found


def _node(**given: Any) -> dict[str, Any]:
    asked = {"data": calculator.data(), "cases": [], "rates": [], "sizes": [], **given}
    assert NODE is not None
    done = subprocess.run(
        [NODE, str(HERE / "calculator.cjs"), str(SCRIPTS)],
        input=json.dumps(asked, allow_nan=False),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _answers(cases: list[Case]) -> list[dict[str, Any]]:
    asked = [
        {
            "rate": dataclasses.asdict(rate),
            "model": None if model is None else dataclasses.asdict(model),
            "device": device,
            "stated": stated,
        }
        for rate, model, device, stated in cases
    ]
    answers: list[dict[str, Any]] = _node(cases=asked)["cases"]
    return answers


def _different(ours: Any, theirs: Any, where: str = "") -> list[str]:
    """Return the places where two answers differ, numbers by more than the tolerance."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if ours.keys() != theirs.keys():
            return [f"{where}: {sorted(ours)} / {sorted(theirs)}"]
        return [d for key in ours for d in _different(ours[key], theirs[key], f"{where}.{key}")]
    if isinstance(ours, list | tuple) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            return [f"{where}: {len(ours)} / {len(theirs)} entries"]
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [d for i, (a, b) in pairs for d in _different(a, b, f"{where}[{i}]")]
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (ours, theirs))
    same = math.isclose(ours, theirs, rel_tol=TOLERANCE) if numbers else ours == theirs
    return [] if same else [f"{where}: {ours!r} / {theirs!r}"]


@functools.cache
def _card(device: str) -> Accelerator:
    return facts.device(store.hardware(device))


def _python(case: Case) -> dict[str, Any]:
    rate, model, device, stated = case
    return possible(rate, model, _card(device), Conditions(**stated))


@needs_node
@pytest.mark.parametrize("cases", [_grid, _table], ids=["grid", "published"])
def test_the_page_answers_as_python_does(cases):
    asked = cases()
    found = [
        (case, difference)
        for case, theirs in zip(asked, _answers(asked), strict=True)
        if (difference := _different(_python(case), theirs))
    ]
    assert len(asked) >= 150
    assert found[:3] == []


def test_the_grid_meets_every_status_limit_and_device():
    answers = [(case, _python(case)) for case in _grid()]
    assert len(answers) == CASES
    assert {a["status"] for _, a in answers} == {"impossible", "possible", "depends"}
    limits = {r["limited_by"] for _, a in answers for r in a["readings"]}
    assert limits == {"memory", "bandwidth", "compute"}
    assert {case[2] for case, _ in answers} == set(store.hardware_ids())
    assert any("suspect" in line for _, a in answers for line in a["warnings"])


@needs_node
def test_the_page_reads_a_rate_as_python_does():
    for words, theirs in zip(WORDS, _node(rates=list(WORDS))["rates"], strict=True):
        try:
            ours = dataclasses.asdict(parse_rate(words))
        except InputError:
            assert "error" in theirs, words
        else:
            assert _different(ours, theirs, words) == []


@needs_node
def test_the_page_reads_a_size_as_python_does():
    def never(words: str) -> dict[str, object]:
        raise InputError(f"{words} names no file")

    for words, theirs in zip(SIZES, _node(sizes=list(SIZES))["sizes"], strict=True):
        try:
            ours = dataclasses.asdict(facts.limits_of(words, never))
        except InputError:
            assert "error" in theirs, words
        else:
            assert _different(ours, theirs, words) == []


@needs_node
def test_conditions_that_no_run_can_have_are_refused():
    rate = dataclasses.asdict(Rate(1.0, "tok/s", "throughput", False))
    wrong = [{"gpus": 0}, {"outputs": 0.5}, {"cached": 2}, {"counting": "requests"}, {"inputs": -1}]
    cases = [
        {"rate": rate, "model": dataclasses.asdict(ModelFacts(7e9)), "device": "l4", "stated": s}
        for s in wrong
    ]
    assert all("error" in answer for answer in _node(cases=cases)["cases"])


def test_the_printed_data_is_every_record_and_valid_json():
    text = calculator.script()
    body = text.removeprefix('<script type="application/json" id="possible-data">')
    printed = json.loads(body.removesuffix("</script>"))
    assert [d["id"] for d in printed["hardware"]] == store.hardware_ids()
    assert [m["id"] for m in printed["models"]] == store.model_ids()
    assert "</" not in body.removesuffix("</script>")


def test_published_rates_beside_an_answer_name_their_source():
    printed = calculator.data()
    rows, sources = printed["published"], printed["sources"]
    assert len(rows) > 100
    assert {row["source"] for row in rows} == set(sources)
    assert all(row["total"] or row["output"] for row in rows)
    assert all(source["title"] for source in sources.values())
