"""Long prompts on a processor: servers, loads, numbers, gates, and what enters the ledger."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from assay.bench import arrival, checkpoint, longprompt, machine, measurement, sweep, sweeps
from assay.bench.engines.counters import Counts
from assay.bench.protocol.window import Watched, Window
from assay.errors import InputError
from assay.ledger import judge, records, store
from assay.physics import parameters, roofline

CLAIM = store.claim(sweeps.CLAIM)
ARMS = ("budget-512", "budget-2048", sweep.UNCHUNKED)
# Slower with larger steps, as on the processor: per token and per pair of tokens [s].
COSTS = {"budget-512": (5e-5, 1.5e-9), "budget-2048": (6e-5, 1.5e-9), sweep.UNCHUNKED: (9e-5, 2e-9)}
PROVENANCE = records.Provenance(
    device="a processor",
    driver=None,
    clocks=None,
    engine="vLLM (CPU build)",
    engine_version="0",
    flags=(),
    packages={},
    commit="0",
    started="2026-01-01T00:00:00+00:00",
    ended="2026-01-01T00:00:01+00:00",
)


def _time(arm: str, length: int, block: int) -> float:
    linear, quadratic = COSTS[arm]
    return (linear * length + quadratic * length**2) * (1 + 0.001 * block)


def _window(arm: str, load: str, block: int, ttft: float, **change: Any) -> Window:
    among = load == sweep.AMONG
    asked, inputs, outputs = (3, None, None) if among else (1, 1000, 2)
    told: dict[str, Any] = {
        "block": block,
        "arm": arm,
        "load": load,
        "seed": block,
        "fresh": True,
        "first": True,
        "started": "2026-01-01T00:00:00+00:00",
        "ended": "2026-01-01T00:00:01+00:00",
        "duration": 10.0,
        "asked": asked,
        "completed": asked,
        "asked_input": inputs,
        "asked_output": outputs,
        "input_tokens": 1000,
        "output_tokens": 2,
        "chunks": 2,
        "concurrency": None if among else 1,
        "rate": 16.0 if among else None,
        "in_flight": 1,
        "arrivals": 16.0,
        "server": Counts(1000, 2, 0, 0, 0),
        "compiled": (),
        "busy": 0.1,
        "lateness": 0.0002,
        "sending": 0.0002,
        "watched": Watched(device="a processor", throttled=0.0, stolen=0.0),
        "values": {"ttft": ttft, "output_throughput": 2.0, "e2el": ttft, "ttft_p50": ttft},
        "samples": {"ttft": 1},
    }
    return Window(**{**told, **change})


def _rows(arm: str, block: int) -> list[dict[str, Any]]:
    gap = 0.1 if arm == "budget-512" else 0.9
    label = {"arm": arm, "load": sweep.AMONG, "block": block, "completed": True}
    short = {**label, "sent_s": 0.0, "ttft_s": 0.1, "itl_s": [0.05] * 19 + [gap] * 9 + [0.1] * 20}
    return [short, dict(short), {**label, "sent_s": 1.02, "ttft_s": 1.0, "itl_s": [0.05]}]


def _sweep(blocks: int = 5) -> sweep.Sweep:
    windows, requests = [], []
    for block in range(1, blocks + 1):
        for arm in ARMS:
            for n in longprompt.LENGTHS:
                windows.append(_window(arm, sweep.ALONE.format(n), block, _time(arm, n, block)))
            windows.append(_window(arm, sweep.AMONG, block, 0.4))
            requests += _rows(arm, block)
    keys = {(w.arm, w.load) for w in windows}
    tops: dict[tuple[str, str], tuple[float | None, str]] = dict.fromkeys(keys, (1e6, "as given"))
    return sweep.Sweep(tuple(windows), tuple(requests), tops, dict.fromkeys(ARMS, PROVENANCE))


def _failed(gates: list[records.Gate]) -> list[str]:
    return [gate.id for gate in gates if not gate.passed]


# -- what is run ----------------------------------------------------------------------------------


def test_attention_has_the_part_in_the_arithmetic_that_it_has_in_llama_8b() -> None:
    config = store.model("llama-3.1-8b").config
    keys = ("num_hidden_layers", "num_attention_heads", "hidden_size")
    layers, heads, hidden = (int(str(config[key])) for key in keys)
    counted = parameters.count(config)
    pair = roofline.attention_flops(layers, heads, hidden // heads) / 2
    theirs = 2 * (counted.multiplied - counted.head) / pair
    assert longprompt.crossing() == pytest.approx(theirs, rel=0.1)


def test_the_longest_prompt_fits_every_server() -> None:
    assert max(longprompt.LENGTHS) + 2 <= longprompt.SHAPE.longest
    assert longprompt.SCENE.arriving in longprompt.LENGTHS


def test_servers_differ_in_budget_and_chunking_only(tmp_path: Path) -> None:
    found = longprompt.arms(tmp_path)
    assert list(found) == [*(f"budget-{b}" for b in longprompt.BUDGETS), sweep.UNCHUNKED]
    whole = found.pop(sweep.UNCHUNKED)
    assert "--no-enable-chunked-prefill" in whole.command
    assert str(longprompt.SHAPE.longest) in whole.command
    commands = {tuple(recipe.command[:-1]) for recipe in found.values()}
    assert len(commands) == 1


def test_nothing_is_measured_on_a_machine_with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise AssertionError("measured")

    here = machine.discover(())
    device = machine.Device("A GPU", None, "", None, "1")
    monkeypatch.setattr(machine, "discover", lambda _: dataclasses.replace(here, devices=(device,)))
    monkeypatch.setattr(longprompt, "measure", refuse)
    monkeypatch.setattr(sweeps, "committed", _sweep)
    assert longprompt.study(CLAIM, measuring=True).arms == list(ARMS)


def test_another_claim_of_the_notebook_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "committed", _sweep)
    other = store.claim("prefix-cache-copy-on-write")
    assert longprompt.study(other, measuring=True).arms == list(ARMS)


# -- numbers and gates ----------------------------------------------------------------------------


def test_a_curve_has_one_value_a_length_and_start() -> None:
    curve = _sweep().curve("budget-512")
    assert tuple(curve) == longprompt.LENGTHS
    assert curve[1024] == [_time("budget-512", 1024, block) for block in range(1, 6)]


def test_the_interval_of_a_time_covers_its_starts_mean() -> None:
    found = _sweep().alone("budget-512")[4096]
    assert found.low < _time("budget-512", 4096, 3) < found.high


def test_unchunked_over_chunked_is_above_one_where_chunks_are_faster() -> None:
    found = _sweep().unchunked_over("budget-512", 32768)
    expected = _time(sweep.UNCHUNKED, 32768, 1) / _time("budget-512", 32768, 1)
    assert found.value == pytest.approx(expected)


def test_the_wait_of_others_is_read_from_the_rows() -> None:
    assert {one.gap for one in _sweep().among("budget-512")} == {0.1}
    assert {one.gap for one in _sweep().among("budget-2048")} == {0.9}


def test_a_run_without_fault_fails_no_gate() -> None:
    assert _failed(_sweep().gates("budget-512", 4096)) == []
    assert _failed(_sweep().gap_gates("budget-512")) == []
    assert _sweep().failures() == []


def test_four_starts_are_too_few() -> None:
    assert "cold-starts" in _failed(_sweep(4).gates("budget-512", 4096))


@pytest.mark.parametrize(
    ("change", "gate"),
    [
        ({"lateness": 0.003, "sending": 0.0}, "client-quick-enough"),
        ({"completed": 2}, "requests-completed"),
        ({"asked": 4, "completed": 4}, "decoders-decode"),
    ],
)
def test_a_disturbed_arrival_fails_its_gate(change: dict[str, Any], gate: str) -> None:
    found = _sweep()
    windows = [
        dataclasses.replace(w, **change)
        if (w.arm, w.load, w.block) == ("budget-512", sweep.AMONG, 2)
        else w
        for w in found.windows
    ]
    disturbed = dataclasses.replace(found, windows=tuple(windows))
    assert gate in _failed(disturbed.gap_gates("budget-512"))
    assert disturbed.failures()


def test_the_table_has_a_row_a_server_and_names_failed_gates() -> None:
    rows = _sweep(4).trade(32768)
    assert [row["server"] for row in rows] == ["budget 512", "budget 2,048", "unchunked"]
    assert {row["failed gates"] for row in rows} == {"cold-starts"}
    assert _sweep().trade(1024)[0]["failed gates"] == "none"


def test_the_prose_has_the_exponents_of_both_ends_beside_the_predicted_ones() -> None:
    predicted = [(float(n), 1e-4 * n**1.5) for n in longprompt.LENGTHS]
    words = _sweep().words("budget-512", predicted, counted=50_706.7)
    assert (words["short_predicted"], words["long_predicted"]) == ("1.50", "1.50")
    assert words["short_pair"] == "1,024 and 2,048"
    assert words["long_pair"] == "16,384 and 32,768"
    # 5e-5 over 1.5e-9, as the curve was made.
    assert (words["crossing"], words["counted"]) == ("33,000", "51,000")
    assert words["voided"] == "none"


def test_the_prose_names_the_numbers_that_failed_a_gate() -> None:
    found = _sweep()
    first = dataclasses.replace(found.windows[0], completed=0)
    broken = dataclasses.replace(found, windows=(first, *found.windows[1:]))
    words = broken.words(
        "budget-512", [(float(n), float(n)) for n in longprompt.LENGTHS], counted=1
    )
    assert words["voided"] == "1 (budget 512, 1,024 tokens)"


# -- the ledger -----------------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> sweep.Sweep:
    """A sweep whose files are kept, and a ledger that takes its evidence."""
    monkeypatch.setenv(store.STAGING, str(tmp_path))
    found = _sweep()
    names = []
    for name, text in (("requests.csv", "a\n"), ("windows.jsonl", sweeps.text(found))):
        store.write(tmp_path / "made" / name, text)
        names.append(store.keep_samples(CLAIM.id, tmp_path / "made" / name))
    return dataclasses.replace(found, files=tuple(names))


def test_every_very_long_prompt_is_recorded_with_its_gates(kept: sweep.Sweep) -> None:
    saved = sweeps.record(CLAIM, kept, least=8192, parameters={})
    times = [item for item in saved if item.assertion == "ttft-200ms"]
    assert len(times) == len(ARMS) * sum(n >= 8192 for n in longprompt.LENGTHS)
    assert {item.conditions["gpu"] for item in saved} == {"none"}
    assert all(item.provenance and item.samples and item.estimate.n == 5 for item in saved)


def test_no_number_of_a_processor_changes_a_verdict(
    kept: sweep.Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = sweeps.record(CLAIM, kept, least=8192, parameters={})
    monkeypatch.delenv(store.STAGING)  # the ledger as it is committed
    others = [item for item in store.live(CLAIM.id) if item.conditions["gpu"] != "none"]
    before, after = judge.judge(CLAIM, others), judge.judge(CLAIM, [*others, *saved])
    assert before.as_dict() == after.as_dict()


def test_another_claim_gets_nothing(kept: sweep.Sweep) -> None:
    other = store.claim("prefix-cache-copy-on-write")
    assert sweeps.record(other, kept, least=8192, parameters={}) == []


def test_windows_and_ceilings_come_back_as_they_were_written(tmp_path: Path) -> None:
    found = _sweep()
    store.write(tmp_path / "windows.jsonl", sweeps.text(found))
    windows, ceilings = sweeps.read(tmp_path / "windows.jsonl")
    again = dataclasses.replace(found, windows=windows)
    assert ceilings == dict(found.ceilings)
    for arm in found.arms:
        assert again.curve(arm) == found.curve(arm)
        assert again.gates(arm, 4096) == found.gates(arm, 4096)
        assert again.gap_gates(arm) == found.gap_gates(arm)


def test_without_a_committed_sweep_it_is_said_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store, "live", lambda _: [])
    with pytest.raises(InputError, match="no measurement on a processor is committed"):
        sweeps.committed()


def test_the_committed_sweep_is_whole_and_passes_its_gates() -> None:
    found = sweeps.committed()
    assert found.arms == [*(f"budget-{b}" for b in longprompt.BUDGETS), sweep.UNCHUNKED]
    for arm in found.arms:
        assert tuple(found.curve(arm)) == longprompt.LENGTHS
        assert len(found.among(arm)) == 5
        assert arm in found.provenance


# -- the real engine ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_real_engine_answers_alone_and_among_others(tmp_path: Path) -> None:
    model = checkpoint.make(longprompt.SHAPE)
    scene = arrival.Scene(decoders=2, prompt=16, answer=200, arriving=1536, rate=8.0)
    found = measurement.measure(
        {
            name: recipe
            for name, recipe in longprompt.arms(model, budgets=(256,), longest=2048).items()
        },
        longprompt.loads(model, tmp_path / "requests", lengths=(256, 512), scene=scene),
        name="long-prompt-test",
        blocks=1,
        place=tmp_path / "run",
    )
    assert {w.completed for w in found.windows} == {w.asked for w in found.windows} | {2, 3}
    among = [w for w in found.windows if w.load == sweep.AMONG]
    # Two of 16 tokens and one of 1,536, to the token: the server counts what was meant.
    assert {w.input_tokens for w in among} == {2 * 16 + 1536}
    assert {w.server.prompt for w in among if w.server} == {2 * 16 + 1536}
