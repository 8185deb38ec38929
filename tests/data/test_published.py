"""The table of published measurements: typed, closed in vocabulary, and held against the hardware.

What each column means is written in ``data/published/columns.yml``; these tests hold the table
against it. The ceilings are recomputed for every row whose device and model are known, and the rows
beyond them must be exactly those that ``over_the_ceiling.yml`` explains.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any

import pytest

from assay.ledger import facts, metric, store
from assay.physics import readings, units
from assay.physics.conditions import Conditions
from assay.physics.rate import Rate

ROWS = store.published("measurements")
ID = re.compile(r"[a-z0-9]+([-.][a-z0-9]+)*")
DATE = re.compile(r"\d{4}(-\d{2}(-\d{2})?)?")
NUMBERS = ("value", "value_low", "value_high")

# What a metric counts when it is read as a rate that hardware limits.
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


def _sidecar(name: str) -> Any:
    content, _ = store.read_yaml(store.path("data", "published", name))
    return content


COLUMNS: dict[str, dict[str, Any]] = _sidecar("columns.yml")["columns"]
EXTRA: dict[str, dict[str, str]] = _sidecar("columns.yml")["metrics"]
BEYOND: dict[str, list[dict[str, Any]]] = _sidecar("over_the_ceiling.yml")


def _explained(kind: str) -> set[str]:
    return {row for entry in BEYOND[kind] for row in entry["rows"]}


def _number(text: str) -> float | None:
    return float(text) if text else None


def _fits_type(column: str, text: str) -> bool:
    kind = COLUMNS[column]["type"]
    if kind == "choice":
        return text in COLUMNS[COLUMNS[column].get("values_of", column)]["values"]
    if kind == "integer":
        return text.isdigit() and int(text) > 0
    if kind == "number":
        return re.fullmatch(r"-?\d+(\.\d+)?", text) is not None
    if kind == "date":
        return DATE.fullmatch(text) is not None
    if kind == "id":
        return ID.fullmatch(text.replace("_", "-")) is not None
    return text == text.strip()


def test_the_table_has_exactly_the_documented_columns() -> None:
    header = store.path("data", "published", "measurements.csv").read_text("utf-8").split("\n")[0]
    assert header.split(",") == list(COLUMNS)


@pytest.mark.parametrize("column", COLUMNS)
def test_every_cell_has_the_type_of_its_column(column: str) -> None:
    needed = COLUMNS[column]["needed"]
    wrong = [
        (row["row"], row[column])
        for row in ROWS
        if (row[column] or needed) and not _fits_type(column, row[column])
    ]
    assert not wrong


def test_rows_are_unique_and_sorted_by_id() -> None:
    ids = [row["row"] for row in ROWS]
    assert ids == sorted(set(ids))


def test_the_file_is_plain_utf8_with_newlines_only() -> None:
    raw = store.path("data", "published", "measurements.csv").read_bytes()
    assert b"\r" not in raw
    assert raw.endswith(b"\n")
    raw.decode("utf-8")


def test_a_row_has_a_figure_a_range_or_a_reason_for_neither() -> None:
    for row in ROWS:
        figures = [bool(row[name]) for name in NUMBERS]
        if row["state"] == "oom":
            assert not any(figures), row["row"]
        else:
            assert figures in ([True, False, False], [False, True, True]), row["row"]


def test_ranges_have_their_ends_in_order() -> None:
    for row in ROWS:
        if row["value_low"]:
            assert float(row["value_low"]) < float(row["value_high"]), row["row"]


def test_values_read_off_figures_carry_a_tolerance_or_a_printed_label() -> None:
    for row in ROWS:
        if row["read_from"] == "figure" and not row["tolerance"]:
            assert row["source"] == "nanoflow-readme", f"{row['row']}: bar labels are printed there"


def test_units_are_known_and_measure_the_metric() -> None:
    for row in ROWS:
        name = row["metric"]
        wanted = EXTRA[name]["unit"] if name in EXTRA else metric.named(name).unit
        per_gpu = "/GPU" if row["per"] == "gpu" and row["unit"].endswith("/GPU") else ""
        expected = units.base_of(wanted.removesuffix("/GPU")) + per_gpu
        assert units.base_of(row["unit"]) == expected, row["row"]


def test_rates_per_card_say_so_in_their_unit() -> None:
    for row in ROWS:
        if row["metric"] in RATES:
            assert (row["per"] == "gpu") == row["unit"].endswith("/GPU"), row["row"]


def test_extra_metrics_do_not_shadow_those_of_the_list() -> None:
    assert not set(EXTRA) & set(metric.METRICS)


def test_the_counting_agrees_with_the_metric() -> None:
    counts = RATES | {"prefill_throughput": "input", "throughput": "unstated"}
    for row in ROWS:
        if row["metric"] in counts:
            assert row["counting"] == counts[row["metric"]], row["row"]


def test_duplicates_point_to_a_row_of_the_same_group_and_value() -> None:
    by_id = {row["row"]: row for row in ROWS}
    copies = [row for row in ROWS if row["duplicate_of"]]
    assert copies
    for row in copies:
        original = by_id[row["duplicate_of"]]
        assert original["group"] == row["group"]
        assert original["value"] == row["value"]
        assert not original["duplicate_of"]


def test_a_source_belongs_to_one_group_unless_it_collects_submissions() -> None:
    groups: dict[str, set[str]] = {}
    for row in ROWS:
        groups.setdefault(row["source"], set()).add(row["group"])
    shared = [source for source, names in groups.items() if len(names) > 1]
    assert shared == ["mlperf-inference-4.1"]


def test_claims_and_copies_have_no_comparability_and_evidence_has() -> None:
    for row in ROWS:
        assert (row["role"] in ("claim", "copy")) == (not row["comparability"]), row["row"]


def test_no_row_repeats_another_without_saying_so() -> None:
    told_apart = [c for c in COLUMNS if c not in ("row", "note", "locator", "duplicate_of")]
    originals = [row for row in ROWS if row["value"] and not row["duplicate_of"]]
    seen = Counter(tuple(row[c] for c in told_apart) for row in originals)
    assert [key for key, n in seen.items() if n > 1] == []


def test_sources_devices_models_and_claims_exist() -> None:
    known = {
        "source": set(store.sources()),
        "gpu": set(store.hardware_ids()),
        "model": set(store.model_ids()),
        "claim": set(store.claim_ids()),
    }
    unknown = {
        column: sorted({row[column] for row in ROWS if row[column]} - ids)
        for column, ids in known.items()
    }
    assert unknown == {column: [] for column in known}


def test_differences_equal_their_two_rows() -> None:
    by_id = {row["row"]: row for row in ROWS}
    pairs = [row for row in ROWS if row["metric"] == "accuracy_change"]
    assert len(pairs) == 26  # the Qwen3 technical report, tables 11 to 22
    for row in pairs:
        stem = row["row"].removesuffix("-change")
        on, off = (float(by_id[f"{stem}-{arm}"]["value"]) for arm in ("thinking", "non-thinking"))
        assert math.isclose(on - off, float(row["value"]), abs_tol=1e-9), row["row"]


def test_kv_blocks_follow_the_closed_form_except_the_one_that_says_so() -> None:
    differing = set()
    blocks = [row for row in ROWS if row["metric"] == "kv_block_bytes" and row["model"]]
    assert len(blocks) >= 10
    for row in blocks:
        per_token = facts.limits(store.model(row["model"])).kv_per_token
        assert per_token is not None, row["row"]
        expected = 16 * per_token / int(row["gpu_count"]) / 2**20
        if not math.isclose(expected, float(row["value"]), rel_tol=float(row["tolerance"])):
            differing.add(row["row"])
    assert differing == {"vllm-offload-post-block-qwen3-8b"}


# -- ceilings -------------------------------------------------------------------------------------


def _checkable(row: dict[str, str]) -> bool:
    known = row["value"] and row["gpu"] and row["model"]
    return bool(known) and row["metric"] in RATES.keys() | TIMES.keys()


def _precision(row: dict[str, str]) -> str:
    return row["precision"] if row["format"] == "int4" else row["format"] or "any"


def _possible(row: dict[str, str], *, cached: float) -> bool:
    """Tell whether some admissible reading allows a row, its tolerance given away."""
    value, unit = units.to_base(float(row["value"]), row["unit"].removesuffix("/GPU"))
    slack = _number(row["tolerance"]) or 0.0
    kind = TIMES.get(row["metric"], "throughput")
    value *= 1 - slack if kind == "throughput" else 1 + slack
    stated = Conditions(
        gpus=int(row["gpu_count"]) if row["gpu_count"] else None,
        inputs=_number(row["input_tokens"]),
        outputs=_number(row["output_tokens"]),
        concurrency=_number(row["concurrency"]),
        precision=_precision(row),
        counting=RATES.get(row["metric"], "any"),
        cached=cached,
        kv_bits=KV_BITS.get(row["kv_dtype"]),
    )
    judged = readings.enumerate_readings(
        Rate(value, unit, kind, row["per"] == "gpu"),
        facts.limits(store.model(row["model"])),
        facts.device(store.hardware(row["gpu"])),
        stated,
    )
    return any(reading.possible for reading in judged)


CHECKED = [row for row in ROWS if _checkable(row)]


def test_most_rates_and_times_can_be_held_against_their_ceiling() -> None:
    rates = [row for row in ROWS if row["metric"] in RATES.keys() | TIMES.keys() and row["value"]]
    assert len(CHECKED) > 0.9 * len(rates)


def test_the_rows_beyond_their_ceiling_are_the_explained_ones() -> None:
    cached = {row["row"]: _number(row["cached_share"]) or 0.0 for row in CHECKED}
    beyond = {row["row"] for row in CHECKED if not _possible(row, cached=cached[row["row"]])}
    through_cache = {
        row["row"]
        for row in CHECKED
        if cached[row["row"]] and row["row"] not in beyond and not _possible(row, cached=0.0)
    }
    assert beyond == _explained("impossible")
    assert through_cache == _explained("possible_through_cache")


def test_no_credible_row_is_called_impossible() -> None:
    credible = {row["row"] for row in ROWS if row["comparability"] in ("A", "A-", "B")}
    assert not credible & _explained("impossible")


def test_every_explanation_is_a_sentence() -> None:
    for entries in BEYOND.values():
        for entry in entries:
            assert entry["why"].strip().endswith("."), entry["rows"]


def test_a_model_that_did_not_fit_is_out_of_memory_by_arithmetic() -> None:
    failed = [row for row in ROWS if row["state"] == "oom"]
    assert failed
    for row in failed:
        judged = readings.enumerate_readings(
            Rate(1e-9, "tok/s", "throughput", False),
            facts.limits(store.model(row["model"])),
            facts.device(store.hardware(row["gpu"])),
            Conditions(gpus=int(row["gpu_count"]), precision=_precision(row)),
        )
        assert not any(reading.fits for reading in judged), row["row"]
