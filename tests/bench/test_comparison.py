"""Two results say what they show, and no more."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from assay.bench import comparison
from assay.bench.comparison import pairs
from assay.bench.results import vllm
from assay.errors import InputError
from assay.ledger import store
from assay.physics import units
from assay.press import terminal

Content = dict[str, Any]
Write = Callable[..., Path]


def result(*, n: int = 1000, scale: float = 1.0, **changes: Any) -> Content:
    """Return a summary of `vllm bench serve`; ``scale`` makes it slower."""
    duration = 170.0 * scale
    content: Content = {
        "backend": "openai",
        "model_id": "example-org/small-8b",
        "num_prompts": n,
        "request_rate": "inf",
        "max_concurrency": 16,
        "duration": duration,
        "completed": n,
        "failed": 0,
        "total_input_tokens": 128 * n,
        "total_output_tokens": 128 * n,
        "output_throughput": 128 * n / duration,
        "mean_ttft_ms": 100.0 * scale,
        "p99_ttft_ms": 200.0 * scale,
        "mean_tpot_ms": 20.0 * scale,
        "p99_tpot_ms": 30.0 * scale,
        "mean_e2el_ms": 2640.0 * scale,
    }
    return {**content, **changes}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write one result as a file, or several as a folder of repeats."""

    def build(name: str, content: Content | Sequence[Content]) -> Path:
        if isinstance(content, dict):
            file = tmp_path / f"{name}.json"
            file.write_text(json.dumps(content))
            return file
        folder = tmp_path / name
        folder.mkdir()
        for number, item in enumerate(content):
            (folder / f"{number}.json").write_text(json.dumps(item))
        return folder

    return build


@pytest.fixture
def against(write: Write) -> Callable[..., comparison.Comparison]:
    """Compare two contents, or two lists of repeats."""

    def run(before: Any, after: Any, **options: Any) -> comparison.Comparison:
        (found,) = comparison.compare(write("before", before), write("after", after), **options)
        return found

    return run


Against = Callable[..., comparison.Comparison]


def repeats(scale: float = 1.0, n: int = 5) -> list[Content]:
    """Return repeats that differ by 2 %."""
    return [result(scale=scale * (1 + 0.01 * (i - n // 2) / max(1, n // 2))) for i in range(n)]


# -- one run a side -------------------------------------------------------------------------------


def test_chunked_prefill_makes_ttft_better_on_average_only(against: Against) -> None:
    # vllm-project/vllm pull 33743: 16 prompts, one run a side.
    shared = {"n": 16, "total_input_tokens": 16368, "total_output_tokens": 5600}
    before = result(**shared, duration=20.38, output_throughput=274.83, mean_ttft_ms=3974.59)
    before |= {"p99_ttft_ms": 4218.85, "mean_tpot_ms": 46.97, "p99_tpot_ms": 55.5}
    before |= {"mean_itl_ms": 46.97, "p99_itl_ms": 47.8}
    after = result(**shared, duration=20.87, output_throughput=268.31, mean_ttft_ms=2633.55)
    after |= {"p99_ttft_ms": 4610.48, "mean_tpot_ms": 51.78, "p99_tpot_ms": 57.57}
    after |= {"mean_itl_ms": 51.78, "p99_itl_ms": 258.31}
    for content in (before, after):
        del content["mean_e2el_ms"]
    found = against(before, after)
    assert found.verdict == "mixed"
    assert found.reasons[0].startswith(
        "TTFT better on average only: mean TTFT -33.7 %, p99 TTFT +9.3 %"
    )
    changes = {c.name: c for c in found.changes}
    assert changes["p99 ITL"].ratio == pytest.approx(5.40, abs=0.01)
    assert changes["mean TPOT"].percent == "+10.2 %"
    assert changes["output rate"].percent == "-2.4 %"
    assert not changes["p99 TTFT"].certified
    assert changes["p99 TTFT"].before is None


def test_one_run_within_noise_is_insufficient_and_not_equal(against: Against) -> None:
    assert against(result(), result(scale=0.95)).verdict == "insufficient"


def test_one_run_beyond_noise_is_a_direction_with_its_limit_said(against: Against) -> None:
    found = against(result(), result(scale=0.7))
    assert found.verdict == "better"
    assert any("no interval" in reason for reason in found.reasons)
    assert all(change.low is None for change in found.changes)


def test_one_run_is_never_better_by_a_percentile_it_cannot_certify(against: Against) -> None:
    found = against(result(n=100), result(n=100, p99_ttft_ms=110.0, p99_tpot_ms=21.0))
    assert found.verdict == "insufficient"
    assert not any(change.votes for change in found.changes if change.statistic == "p99")


def test_a_certified_percentile_has_a_say(against: Against) -> None:
    found = against(result(), result(p99_ttft_ms=110.0))
    assert found.verdict == "better"


def test_a_slower_run_is_worse(against: Against) -> None:
    assert against(result(), result(scale=1.5)).verdict == "worse"


def test_a_file_against_itself_shows_nothing(write: Write) -> None:
    file = write("one", result())
    (found,) = comparison.compare(file, file)
    assert found.verdict == "insufficient"


# -- repeats --------------------------------------------------------------------------------------


def test_five_starts_that_differ_clearly_are_better(against: Against) -> None:
    found = against(repeats(), repeats(0.8))
    assert found.verdict == "better"
    rate = next(c for c in found.changes if c.metric == "output_rate")
    assert rate.ratio == pytest.approx(1.25, rel=0.01)
    assert rate.low is not None
    assert rate.high is not None
    assert 1 < rate.low < rate.ratio < rate.high


def test_five_equal_starts_are_no_difference(against: Against) -> None:
    assert against(repeats(), repeats(1.001)).verdict == "no-difference"


def test_five_scattered_starts_are_insufficient(against: Against) -> None:
    wild = [result(scale=s) for s in (0.6, 0.8, 1.0, 1.2, 1.5)]
    assert against(wild, [result(scale=s) for s in (0.7, 0.75, 1.1, 1.3, 1.4)]).verdict == (
        "insufficient"
    )


def test_two_starts_have_an_interval_that_decides_nothing(against: Against) -> None:
    found = against(repeats(n=3), repeats(0.97, n=3))
    assert found.verdict == "insufficient"
    assert all(change.low is not None for change in found.changes)


def test_copies_of_one_file_are_one_repeat(against: Against) -> None:
    found = against([result()] * 5, [result(scale=0.7)] * 5)
    assert found.runs == (1, 1)
    assert any("byte for byte" in reason for reason in found.reasons)


def test_a_repeat_that_cannot_be_used_is_said_to_be_left_out(against: Against) -> None:
    bad = result(completed=0, failed=1000)
    found = against([*repeats(), bad], repeats(0.8))
    assert found.runs == (5, 5)
    assert any("left out" in reason for reason in found.reasons)


# -- comparable? ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"model_id": "example-org/other"}, "model"),
        ({"num_prompts": 500, "completed": 500}, "completed"),
        ({"total_input_tokens": 256_000}, "input per request"),
        ({"total_output_tokens": 64_000, "output_throughput": 3200.0}, "output per request"),
        ({"max_concurrency": 32}, "concurrency"),
        ({"max_concurrency": None}, "concurrency"),
        ({"request_rate": 4.0}, "asked rate"),
        ({"server_prompt_tokens_total": 656_000}, "client counts"),
    ],
)
def test_unequal_work_is_not_comparable(against: Against, change: Content, word: str) -> None:
    found = against(result(), result(scale=0.7) | change)
    assert found.verdict == "not-comparable"
    assert found.changes == ()
    assert any(word in reason for reason in found.reasons)


def test_what_is_under_test_may_differ(against: Against) -> None:
    quick = result(scale=0.7, model_id="example-org/small-8b-fp8")
    assert against(result(), quick, changed=["model"]).verdict == "better"


def test_a_prefix_cache_is_not_an_engine(against: Against) -> None:
    # vllm-project/vllm pull 10753: the same prompt a thousand times, 19,455 against 12,262 tok/s.
    before = result(seed=0, output_throughput=12262.4, duration=128000 / 12262.4)
    after = result(seed=0, output_throughput=19454.72, duration=128000 / 19454.72)
    found = against(before, after | {"note": "every prompt identical, prefix caching on"})
    assert found.verdict == "not-comparable"
    assert any("+58.7 %" in reason and "cache" in reason for reason in found.reasons)


def test_the_same_seed_does_not_show_a_gain(against: Against) -> None:
    found = against(result(seed=0), result(seed=0, scale=0.6))
    assert found.verdict == "insufficient"
    assert "same seed" in found.reasons[0]


def test_the_same_seed_on_a_cold_cache_does(against: Against) -> None:
    cold = {"seed": 0, "cached_tokens": 0}
    assert against(result(**cold), result(**cold, scale=0.6)).verdict == "better"


def test_an_empty_first_chunk_is_another_definition(against: Against) -> None:
    # vllm-project/vllm issue 3759: TTFT 0.005 s against 0.214 s at equal TPOT and latency.
    found = against(
        result(mean_ttft_ms=214.0, p99_ttft_ms=300.0), result(mean_ttft_ms=5.0, p99_ttft_ms=6.0)
    )
    assert found.verdict == "not-comparable"
    assert any("first chunk" in reason for reason in found.reasons)


def test_an_empty_first_chunk_shows_without_latencies(against: Against) -> None:
    before = result(mean_ttft_ms=400.0, p99_ttft_ms=500.0)
    after = result(mean_ttft_ms=5.0, p99_ttft_ms=6.0)
    for content in (before, after):
        del content["mean_e2el_ms"]
    assert against(before, after).verdict == "not-comparable"


def test_a_ttft_that_shortens_the_latency_is_real(against: Against) -> None:
    before = result(mean_ttft_ms=1000.0, p99_ttft_ms=1100.0, mean_e2el_ms=3540.0)
    after = result(mean_ttft_ms=100.0, p99_ttft_ms=110.0, mean_e2el_ms=2640.0, duration=15.0)
    del before["output_throughput"], after["output_throughput"]
    assert against(before, after).verdict == "better"


def test_clients_with_other_definitions_are_not_comparable(against: Against) -> None:
    aiperf = {
        "request_count": {"unit": "requests", "avg": 1000.0},
        "time_to_first_token": {"unit": "ms", "avg": 50.0},
    }
    found = against(result(), aiperf)
    assert found.verdict == "not-comparable"


def test_an_offload_without_hits_was_not_exercised(against: Against) -> None:
    found = against(result(), result(scale=0.7, external_hit_tokens=0))
    assert found.verdict == "not-exercised"


def test_every_test_of_a_suite_has_its_own_verdict(write: Write) -> None:
    def suite(decode: float) -> list[Content]:
        kinds = ((512, 0, 4918.36), (0, 128, decode))
        return [{"n_prompt": p, "n_gen": g, "avg_ts": rate} for p, g, rate in kinds]

    sides = [write(name, {"x": 0}) for name in ("before", "after")]
    for side, rate in zip(sides, (165.76, 300.0), strict=True):
        side.write_text(json.dumps(suite(rate)))
    found = {c.name: c.verdict for c in comparison.compare(*sides)}
    assert found == {"pp512": "insufficient", "tg128": "better"}


# -- one and the same run -------------------------------------------------------------------------


def test_the_same_run_in_another_file_shows_nothing(tmp_path: Path) -> None:
    sides = tmp_path / "before.json", tmp_path / "after.json.gz"
    sides[0].write_text(json.dumps(result(), indent=2))
    sides[1].write_bytes(gzip.compress(json.dumps(result()).encode()))
    (found,) = comparison.compare(*sides)
    assert found.verdict == "insufficient"
    assert "same run" in found.reasons[0]


def test_a_repeat_that_is_the_other_side_s_shows_nothing(against: Against) -> None:
    after = repeats(0.8)
    assert against([*repeats(), after[0] | {"note": "kept"}], after).verdict == "insufficient"


def test_swapping_the_sides_swaps_the_verdict(tmp_path: Path, write: Write) -> None:
    swapped = {"better": "worse", "worse": "better"}
    slow = result(n=16, mean_ttft_ms=400.0, p99_ttft_ms=220.0)
    for number, (one, two) in enumerate(
        [
            (result(), result(scale=0.7)),
            (repeats(), repeats(0.8)),
            (repeats(), repeats(1.001)),
            (result(n=16), slow),
            (result(), result(model_id="other")),
        ]
    ):
        sides = write(f"one{number}", one), write(f"two{number}", two)
        (there,), (back,) = comparison.compare(*sides), comparison.compare(*sides[::-1])
        assert back.verdict == swapped.get(there.verdict, there.verdict)


# -- folders --------------------------------------------------------------------------------------


def aiperf(ttft: float, n: int = 800) -> dict[str, str]:
    """Return the files that AIPerf writes of one run."""
    report = {
        "request_count": {"unit": "requests", "avg": n},
        "request_latency": {"unit": "ms", "avg": ttft + 400.0},
        "time_to_first_token": {"unit": "ms", "avg": ttft},
    }
    record = {
        "metadata": {"benchmark_phase": "profiling"},
        "metrics": {
            "time_to_first_token": {"value": ttft, "unit": "ms"},
            "request_latency": {"value": ttft + 400.0, "unit": "ms"},
            "output_sequence_length": {"value": 21, "unit": "tokens"},
        },
    }
    head = "Metric,avg,min\n"
    return {
        "profile_export_aiperf.json": json.dumps(report),
        "profile_export_aiperf.csv": f"{head}Request Latency (ms),{ttft + 400:.2f},\n"
        f"Time to First Token (ms),{ttft:.2f},\n\nMetric,Value\nRequest Count,{n}\n",
        "profile_export.jsonl": (json.dumps(record) + "\n") * n,
        "inputs.json": json.dumps({"data": []}),
    }


def test_the_forms_of_one_report_are_one_run(tmp_path: Path) -> None:
    for name, ttft in (("before", 300.0), ("after", 100.0)):
        folder = tmp_path / name / "run"
        folder.mkdir(parents=True)
        for file, text in aiperf(ttft).items():
            (folder / file).write_text(text)
    (found,) = comparison.compare(tmp_path / "before", tmp_path / "after")
    assert found.runs == (1, 1)
    assert found.verdict == "better"
    assert sum("counted once" in reason for reason in found.reasons) == 4
    assert any("inputs.json" in reason for reason in found.reasons)


def test_a_sweep_s_warm_up_and_summary_are_no_repeats(tmp_path: Path) -> None:
    for name, scale in (("before", 1.0), ("after", 0.7)):
        folder = tmp_path / name
        folder.mkdir()
        runs = [result(scale=scale * (1 + 0.01 * i), run_number=i) for i in range(5)]
        for run in runs:
            (folder / f"run={run['run_number']}.json").write_text(json.dumps(run))
        (folder / "summary.json").write_text(json.dumps(runs))
        (folder / "warmup.json").write_text(json.dumps(result(scale=9.0, run_number=-1)))
    (found,) = comparison.compare(tmp_path / "before", tmp_path / "after")
    assert found.runs == (5, 5)
    assert found.verdict == "better"


@pytest.mark.parametrize(
    ("odd", "word"),
    [
        ({"model_id": "example-org/other"}, "model"),
        ({"total_output_tokens": 64_000, "output_throughput": 376.5}, "output per request"),
        ({"total_input_tokens": 512_000}, "input per request"),
        ({"gpus": 8}, "gpus"),
        ({"note": "every prompt identical, prefix caching on"}, "prompts"),
    ],
)
def test_runs_of_one_side_that_are_no_repeats_are_not_averaged(
    against: Against, odd: Content, word: str
) -> None:
    side = [run | {"gpus": 1} for run in repeats()]
    mixed = [*side[:4], side[4] | odd]
    found = against(mixed, [run | {"duration": run["duration"] * 1.001} for run in mixed])
    assert found.verdict == "not-comparable"
    assert any("no repeats" in reason and word in reason for reason in found.reasons)


def test_tools_mixed_in_a_folder_are_not_averaged(tmp_path: Path) -> None:
    for name in ("before", "after"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "one.json").write_text(json.dumps(result(seed=len(name), max_concurrency=None)))
        (folder / "two.json").write_text(aiperf(100.0 + len(name))["profile_export_aiperf.json"])
    found = comparison.compare(tmp_path / "before", tmp_path / "after")
    assert {c.verdict for c in found} <= {"not-comparable", "insufficient"}


def test_a_folder_that_links_to_itself_is_read_once(write: Write) -> None:
    before, after = write("before", repeats()), write("after", repeats(0.8))
    (before / "loop").symlink_to(before, target_is_directory=True)
    (found,) = comparison.compare(before, after)
    assert found.runs == (5, 5)


def test_an_empty_folder_is_one_sentence(tmp_path: Path, write: Write) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no result file"):
        comparison.compare(tmp_path / "empty", write("after", result()))


# -- what is under test ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpus", "gpu_name"])
def test_other_hardware_is_another_question(against: Against, name: str) -> None:
    found = against(result(**{name: "1"}), result(scale=0.7, **{name: "2"}))
    assert found.verdict == "not-comparable"


def test_more_gpus_are_told_per_gpu_as_well(against: Against) -> None:
    found = against(result(gpus=1), result(scale=0.7, gpus=2), changed=["gpus"])
    assert found.verdict == "better"
    assert any("per GPU the output rate changes by -28.6 %" in reason for reason in found.reasons)


def test_speculation_without_an_accepted_token_was_not_exercised(against: Against) -> None:
    drafted = {"spec_decode_draft_tokens": 500, "spec_decode_accepted_tokens": 0}
    found = against(result(), result(scale=0.7, **drafted))
    assert found.verdict == "not-exercised"
    assert "no drafted token" in found.reasons[0]


def test_an_offload_without_hits_in_metadata_was_not_exercised() -> None:
    for sides in ((None, "0"), ("0", None)):
        runs = [result(scale=s) for s in (1.0, 0.7)]
        for run, hits in zip(runs, sides, strict=True):
            run |= {} if hits is None else {"external_hit_tokens": hits}
        assert comparison.compare_runs(*[[vllm.serving(run)] for run in runs]).verdict == (
            "not-exercised"
        )


def test_the_same_seed_shows_no_loss_either(against: Against) -> None:
    assert against(result(seed=0), result(seed=0, scale=1.6)).verdict == "insufficient"


@pytest.mark.parametrize("off", [{"note": "prefix caching off"}, {"prefix_caching": "False"}])
def test_the_same_seed_with_the_cache_off_does(against: Against, off: Content) -> None:
    assert against(result(seed=0, **off), result(seed=0, scale=0.6, **off)).verdict == "better"


def test_a_metric_of_one_side_is_named_and_not_compared(against: Against) -> None:
    after = result(scale=0.7)
    del after["mean_tpot_ms"], after["p99_tpot_ms"]
    found = against(result(), after)
    assert "tpot" not in {change.metric for change in found.changes}
    assert any("only before has TPOT" in reason for reason in found.reasons)


def test_five_runs_against_one_are_one_run(against: Against) -> None:
    found = against(repeats(), result(scale=0.7))
    assert found.runs == (5, 1)
    assert any("one run on a side" in reason for reason in found.reasons)
    assert all(change.low is None for change in found.changes)


def test_more_requests_in_the_same_time_are_a_gain(against: Against) -> None:
    # GuideLLM runs for a number of seconds and states no number of requests.
    def report(n: int, latency: float) -> Content:
        return {
            "benchmarks": [
                {
                    "duration": 60.0,
                    "config": {"strategy": {"type_": "concurrent", "streams": 16}},
                    "metrics": {
                        "request_totals": {"successful": n, "errored": 0, "incomplete": 16},
                        "request_latency": {"successful": {"mean": latency, "count": n}},
                        "output_token_count": {"successful": {"mean": 64.0}},
                    },
                }
            ]
        }

    assert against(report(800, 1.2), report(1200, 0.8)).verdict == "better"


def test_a_suite_of_settings_is_no_set_of_repeats(write: Write) -> None:
    def suite(rates: Sequence[float]) -> list[Content]:
        return [
            {"n_prompt": 0, "n_gen": 128, "avg_ts": rate, "n_gpu_layers": layers}
            for layers, rate in zip((10, 20, 30), rates, strict=True)
        ]

    sides = [write(name, {"x": 0}) for name in ("before", "after")]
    for side, rates in zip(sides, ((10, 20, 30), (10.1, 20.1, 60)), strict=True):
        side.write_text(json.dumps(suite(rates)))
    found = {c.name: c.verdict for c in comparison.compare(*sides)}
    assert found["tg128, ngl 30"] == "better"
    assert found["tg128, ngl 10"] == "insufficient"


def test_what_only_one_side_ran_is_named(write: Write) -> None:
    sides = [write(name, {"x": 0}) for name in ("before", "after")]
    tests = [{"n_prompt": p, "n_gen": 0, "avg_ts": 100.0 + p} for p in (128, 256, 512)]
    sides[0].write_text(json.dumps(tests))
    sides[1].write_text(json.dumps([t | {"avg_ts": 400.0} for t in tests[:2]]))
    found = comparison.compare(*sides)
    assert [c.name for c in found] == ["pp128", "pp256"]
    assert any("only before has pp512" in reason for reason in found[0].reasons)


def test_a_side_without_a_usable_run_is_an_error(write: Write) -> None:
    failed = write("before", result(completed=0, failed=1000))
    with pytest.raises(InputError, match="not usable"):
        comparison.compare(failed, write("after", result()))


OTHERS = [
    "cached_tokens",
    "external_hit_tokens",
    "gpus",
    "note",
    "run_number",
    "seed",
    "spec_decode_acceptance_length",
    "spec_decode_acceptance_rate",
    "spec_decode_accepted_tokens",
    "spec_decode_draft_tokens",
]
JUNK = st.sampled_from([None, True, "1", [], {}, 0, -1, 5, 1e-9, 1e14, float("nan"), "inf"])


@given(
    changes=st.tuples(
        *[st.dictionaries(st.sampled_from([*sorted(result()), *OTHERS]), JUNK, max_size=5)] * 2,
    )
)
def test_any_two_results_have_a_verdict_or_a_reason(changes: tuple[Content, Content]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sides = [Path(folder) / name for name in ("before.json", "after.json")]
        for side, change in zip(sides, changes, strict=True):
            side.write_text(json.dumps(result() | change))
        try:
            found = comparison.compare(*sides)
        except InputError as error:
            assert "before.json" in str(error) or "after.json" in str(error)
            return
    assert {c.verdict for c in found} <= set(get_args(comparison.Verdict))
    assert all(c.reasons for c in found)
    store.json_text([c.as_dict() for c in found])
    terminal.comparisons(found)


def test_an_answer_is_plain_json_in_base_units(against: Against) -> None:
    content = against(repeats(), repeats(0.8)).as_dict()
    assert json.loads(json.dumps(content)) == content
    assert {units.base_of(d["unit"]) for d in content["deltas"]} == {
        d["unit"] for d in content["deltas"]
    }


# -- pairs ----------------------------------------------------------------------------------------

PAIRS: list[tuple[Content, str, str]] = [
    (
        {"baseline": {"cold_over_warm": 25}, "offload": {"cold_over_warm": 25}},
        "no-difference",
        "gain of offload is 0",
    ),
    (
        {"baseline_kv_tokens": 18144, "max_model_len": 18144, "ttft_change_pct": 27},
        "worse",
        "TTFT +27 %",
    ),
    (
        {"baseline_kv_tokens": 87584, "max_model_len": 32000, "ttft_change_pct": -70},
        "better",
        "TTFT -70 %",
    ),
    (
        {
            "baseline": {"warm_ttft_s": 2.824, "query_ttft_s": 2.822},
            "offload": {"warm_ttft_s": 2.856, "query_ttft_s": 2.856},
            "external_hit_tokens": 0,
        },
        "not-exercised",
        "did not happen",
    ),
    (
        {
            "baseline": {
                "req_s": 1.2433,
                "out_tok_s": 441.87,
                "ttft_p50_ms": 71940.7,
                "itl_avg_ms": 65.17,
            },
            "offload": {
                "req_s": 1.6075,
                "out_tok_s": 571.3,
                "ttft_p50_ms": 6993.33,
                "itl_avg_ms": 134.63,
            },
        },
        "mixed",
        "itl_avg_ms +106.6 %",
    ),
    (
        {"baseline": {"mean_ttft_ms": 43.85}, "note": "random prompts, nothing to reuse"},
        "not-exercised",
        "zero",
    ),
    (
        {"times_s": [15.15, 1.27, 1.55, 1.28], "prefixes": ["A", "A", "B", "B"]},
        "insufficient",
        "no evidence of a cache",
    ),
    (
        {"times_s": [15.15, 1.27, 9.8, 1.28], "prefixes": ["A", "A", "B", "B"]},
        "better",
        "new ones at least 9.8 s",
    ),
    ({"times_s": [15.15, 1.27], "prefixes": ["A", "A"]}, "insufficient", "warmed the server up"),
    ({"baseline": {"ttft_ms": 5}}, "insufficient", "offload"),
    ({"baseline": {"ttft_ms": -5}, "offload": {"ttft_ms": 1}}, "insufficient", "below zero"),
    ({}, "insufficient", "no figures"),
]


@pytest.mark.parametrize(("pair", "verdict", "words"), PAIRS)
def test_a_pair_says_what_it_shows(tmp_path: Path, pair: Content, verdict: str, words: str) -> None:
    # LMCache issues 1241, 1741, 2334 and pull 997; sglang pull 19746; omlx issue 1803.
    file = tmp_path / "pairs.yaml"
    file.write_text(yaml.safe_dump({"pairs": [{"id": "one", **pair}]}))
    (found,) = pairs.compare(file)
    assert found.name == "one"
    assert found.verdict == verdict
    assert any(words in reason for reason in found.reasons)


def test_a_file_without_pairs_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "pairs.yaml"
    file.write_text("pairs: 3\n")
    with pytest.raises(InputError, match="no list"):
        pairs.compare(file)
