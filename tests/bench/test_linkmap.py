"""What is measured on a processor is shown, kept, and decides nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.bench import linkmap, linkstudy, throttled, tier
from assay.bench.load import rows
from assay.bench.load.rows import Row
from assay.bench.twin import tables
from assay.errors import InputError
from assay.ledger import judge, records, store

LINKS = tuple(f"link-{ratio:g}" for ratio in throttled.RATIOS)
ARMS = (tier.NONE, tier.WITHOUT, *LINKS)
#: Seconds a request takes; with a tier it is half as long over the fastest link.
TAKES = dict(zip(ARMS, (2.0, 1.0, 0.5, 1.0, 4.0), strict=True))
PACE = throttled.Pace(per_token=2e-4, per_step=8e-3)


def request(arm: str, block: int) -> Row:
    took = TAKES[arm] * (1 + 0.01 * block)
    return Row(True, 544, 8, 0.0, 0.0, took / 2, took, (took / 14,) * 7, "")


def seen(arm: str) -> records.Provenance:
    told = {"kv_connector_extra_config": {"link_bytes_per_s": PACE.link(throttled.link(arm) or 0)}}
    return records.Provenance(
        device="a processor",
        driver=None,
        clocks=None,
        engine="vLLM (CPU build)",
        engine_version="0.32.0",
        flags=("--kv-transfer-config", json.dumps(told)),
        packages={},
        commit="unknown",
        started="2026-11-30T22:00:00+00:00",
        ended="2026-11-30T22:15:00+00:00",
    )


@pytest.fixture
def study(tmp_path: Path) -> linkstudy.Study:
    """Give a study in which every load is alike."""
    labelled: list[tuple[dict[str, object], Row]] = []
    moved: list[dict[str, str | int | float]] = []
    said: list[dict[str, str | int | float]] = []
    for arm in ARMS:
        for load in throttled.asked():
            said.append({"arm": arm, "load": load, "output_rate": 8 / TAKES[arm], "ttft_s": 1.0})
            for block in range(1, 6):
                labels = {"block": block, "arm": arm, "load": load, "seed": 1}
                labelled.append((labels, request(arm, block)))
                moved.append(
                    {
                        "block": block,
                        "arm": arm,
                        "load": load,
                        "queried": 544,
                        "host": 272 if arm in LINKS else 0,
                        "transfers": 1,
                        "loaded": PACE.link(8.0) * 0.01,
                        "load_time": 0.03,
                        "output_throughput_failed": "",
                        "ttft_failed": "client-not-bottleneck" if arm == "link-8" else "",
                    }
                )
    rows.place(tmp_path / "samples.parquet", labelled)
    store.write(tmp_path / "moved.csv", tables.text(moved))
    store.write(tmp_path / "forecast.csv", tables.text(said))
    gate = records.Gate(id="tier-exercised", passed=True, says="used")
    return linkstudy.Study(
        str(tmp_path / "samples.parquet"),
        tmp_path / "moved.csv",
        tmp_path / "forecast.csv",
        {arm: seen(arm) for arm in LINKS},
        {(arm, load): (gate,) for arm in LINKS for load in throttled.asked()},
    )


def test_a_change_is_the_ratio_to_the_device_alone(study: linkstudy.Study) -> None:
    for change in linkmap.changes(study):
        assert change.rate.value == pytest.approx(TAKES[tier.WITHOUT] / TAKES[change.arm])
        assert change.ttft.value == pytest.approx(TAKES[change.arm] / TAKES[tier.WITHOUT])
        assert change.forecast_rate == pytest.approx(change.rate.value)
        assert change.rate.n == 5


def test_every_arm_but_the_one_compared_with_is_there_under_every_load(
    study: linkstudy.Study,
) -> None:
    found = {(change.arm, change.load) for change in linkmap.changes(study)}
    assert found == {(a, x) for a in ARMS if a != tier.WITHOUT for x in throttled.asked()}


def test_the_share_from_the_host_is_counted_by_the_server(study: linkstudy.Study) -> None:
    shares = {change.arm: change.host for change in linkmap.changes(study)}
    assert shares == {tier.NONE: 0.0, **dict.fromkeys(LINKS, 0.5)}


def test_a_change_is_void_when_a_gate_of_either_side_failed(study: linkstudy.Study) -> None:
    for change in linkmap.changes(study):
        assert change.failed == ("", "client-not-bottleneck" if change.arm == "link-8" else "")
        row = change.row()
        assert "void" not in str(row["throughput, %"])
        assert ("void" in str(row["TTFT, %"])) == (change.arm == "link-8")


def test_what_computing_costs_follows_from_the_links(study: linkstudy.Study) -> None:
    assert study.seconds_per_token == pytest.approx(PACE.per_token)
    assert study.speeds["link-1"] == pytest.approx(PACE.link(1.0))


def test_a_late_notice_is_what_is_left_of_the_time_of_a_fetch(study: linkstudy.Study) -> None:
    takes, late = linkmap.lateness(study)
    assert takes == pytest.approx(0.01, rel=1e-4)
    assert late == pytest.approx(0.02, rel=1e-4)


def test_a_failed_gate_is_told(study: linkstudy.Study) -> None:
    assert study.voided() == []
    bad = records.Gate(id="clocks-steady", passed=False, says="block 1: held down")
    study.gates["link-1", "warm-2"] = (bad,)  # type: ignore[index]
    assert study.voided() == ["link-1, warm-2: block 1: held down"]


@pytest.fixture
def others() -> list[records.Evidence]:
    """Give what the ledger holds of cards; asked before anything is staged."""
    return [e for e in store.live(linkstudy.CLAIM) if e.conditions["gpu"] != "none"]


@pytest.fixture
def saved(
    others: list[records.Evidence],
    study: linkstudy.Study,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> list[records.Evidence]:
    monkeypatch.setenv(store.STAGING, str(tmp_path / "staged"))
    return linkmap.record(store.claim(linkstudy.CLAIM), study, parameters={})


def test_a_processor_changes_no_verdict(
    others: list[records.Evidence], saved: list[records.Evidence]
) -> None:
    claim = store.claim(linkstudy.CLAIM)
    alone, beside = (judge.judge(claim, items) for items in (others, [*others, *saved]))
    assert alone == beside


def test_alone_it_is_out_of_scope(saved: list[records.Evidence]) -> None:
    claim = store.claim(linkstudy.CLAIM)
    (assertion,) = {item.assertion for item in saved}
    found = judge.decide(claim.assertion(assertion), saved)
    assert (found.status, found.reason) == ("open", "out-of-scope")


def test_each_measured_change_has_its_requests_and_a_prediction_beside_it(
    saved: list[records.Evidence],
) -> None:
    ran = [item for item in saved if item.basis == "measured"]
    said = [item for item in saved if item.basis == "simulated"]
    assert len(ran) == len(said) == len(LINKS) * len(throttled.asked())
    assert all(item.samples and item.gates and "No GPU evidence" in item.finding for item in ran)
    assert [item.conditions for item in ran] == [item.conditions for item in said]


def test_another_claim_gets_nothing(study: linkstudy.Study) -> None:
    other = store.claim("jarvislabs-cpu-offload")
    assert linkmap.record(other, study, parameters={}) == []


def test_a_flag_without_a_link_is_refused() -> None:
    with pytest.raises(InputError, match="state no link"):
        linkstudy._speed(("--port", "1"))


def test_what_is_committed_is_computed_again_from_its_requests(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept = [e for e in store.live(linkstudy.CLAIM) if e.conditions["gpu"] == linkstudy.HERE]
    study = linkstudy.committed()
    monkeypatch.setenv(store.STAGING, str(tmp_path))
    again = linkmap.record(store.claim(linkstudy.CLAIM), study, parameters={})
    assert again
    for item in again:
        same = [e for e in kept if (e.basis, e.conditions) == (item.basis, item.conditions)]
        assert item.estimate in [e.estimate for e in same]
        assert item.gates in [e.gates for e in same]


def test_a_committed_change_is_void_or_has_passed_all_gates() -> None:
    study = linkstudy.committed()
    for change in linkmap.changes(study):
        gates = study.gates.get((change.arm, change.load), ())
        assert bool(change.failed[0]) == any(not gate.passed for gate in gates)
