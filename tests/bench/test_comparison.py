"""Two results say what they show, and no more."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from assay.bench import comparison, pairs
from assay.errors import InputError
from assay.ledger import store
from assay.physics import units
from assay.press import terminal

Content = dict[str, Any]
Write = Callable[..., Path]


def result(*, n: int = 1000, scale: float = 1.0, **changes: Any) -> Content:
    """Return a summary of `vllm bench serve`; ``scale`` makes it slower."""
    duration = 20.0 * scale
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


def test_a_side_without_a_usable_run_is_an_error(write: Write) -> None:
    failed = write("before", result(completed=0, failed=1000))
    with pytest.raises(InputError, match="not usable"):
        comparison.compare(failed, write("after", result()))


JUNK = st.sampled_from([None, True, "1", [], {}, 0, -1, 5, 1e-9, 1e14, float("nan"), "inf"])


@given(
    changes=st.tuples(
        *[st.dictionaries(st.sampled_from(sorted(result())), JUNK, max_size=5)] * 2,
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
