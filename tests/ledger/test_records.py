"""The records: nothing is guessed, and every refusal is one plain sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pydantic
import pytest

from assay.ledger import records

Build = Callable[..., Any]


def _models() -> Iterator[type[records.Record]]:
    waiting = [records.Record]
    while waiting:
        for model in waiting.pop().__subclasses__():
            waiting.append(model)
            yield model


MODELS = sorted(_models(), key=lambda m: m.__name__)


@pytest.mark.parametrize("model", MODELS)
def test_no_field_has_a_default(model: type[records.Record]) -> None:
    assert [name for name, field in model.model_fields.items() if not field.is_required()] == []


@pytest.mark.parametrize("model", MODELS)
def test_records_are_frozen_strict_and_closed(model: type[records.Record]) -> None:
    config = model.model_config
    assert (config["frozen"], config["strict"], config["extra"]) == (True, True, "forbid")


def test_the_introspection_finds_the_records() -> None:
    assert {records.Claim, records.Evidence, records.Band} <= set(MODELS)


def _flaws(model: type[records.Record], fields: dict[str, Any]) -> list[records.Flaw]:
    with pytest.raises(pydantic.ValidationError) as caught:
        model.model_validate(fields)
    return records.flaws(caught.value)


BAND = {"low": 100, "high": 200, "why": "w"}
ASSERTIONS = [
    ({"metric": "speed"}, "metric", "value", "unknown metric 'speed'; use one of "),
    ({"unit": "GB"}, "unit", "unit", "unit 'GB' does not measure ttft; write a unit of s"),
    ({"unit": "tps"}, "unit", "unit", "unknown unit 'tps'; write tok/s"),
    ({"value": 500}, "band", "band", "the band [100, 200] excludes its own value 500"),
    ({"value": 99}, "band", "band", "the band [100, 200] excludes its own value 99"),
    (
        {"relation": "between", "value": [150, 250]},
        "band",
        "band",
        "the band [100, 200] excludes its own value 250",
    ),
    ({"relation": "between", "value": [180, 120]}, "value", "value", "low 180 is above high 120"),
    ({"relation": "between"}, "value", "value", "takes two numbers [low, high]"),
    ({"relation": "exists"}, "value", "value", "takes value true or false"),
    ({"relation": "order"}, "value", "value", "takes a list of names"),
    ({"relation": "about", "value": [1, 2]}, "value", "value", "takes one number"),
    ({"relation": "about", "value": True}, "value", "value", "takes one number"),
    ({"relation": "at_least"}, "band", "band", "takes a band open above: high: null"),
    ({"relation": "at_most"}, "band", "band", "takes a band open below: low: null"),
    (
        {
            "relation": "exists",
            "value": True,
            "metric": "statement",
            "unit": "1",
            "band": {"low": 0, "high": 1, "why": "w"},
        },
        "band",
        "band",
        "covers both yes (1) and no (0)",
    ),
    ({"band": {**BAND, "low": 300}}, "band.low", "band", "band low 300 is above high 200"),
    ({"band": {"low": None, "high": None, "why": "w"}}, "band.low", "band", "at least one end"),
    ({"band__why": ""}, "band.why", "type", "at least 1 character"),
    ({"band__low": "100"}, "band.low", "type", "'100' is read as text"),
    ({"value": "1e5"}, "value", "type", "'1e5' is read as text (write 100000, or 1.0e+5"),
    ({"value": None}, "value", "type", "read as null, no value: write a number"),
    ({"value": [1, 2, 3]}, "value", "type", "[1, 2, 3] cannot be used here: write a number"),
    ({"value": float("nan")}, "value", "type", "finite number"),
    ({"headline": "off"}, "headline", "type", "'off' cannot be used here"),
    ({"headline": 1}, "headline", "type", "read as the number 1"),
    ({"relation": "aboot"}, "relation", "type", "'aboot' cannot be used here"),
    ({"id": "Fast One"}, "id", "type", "an id is lower case, digits, hyphens and points"),
    ({"scope__version": 1.1}, "scope.version", "type", "read as the number 1.1 (quote it"),
    ({"scope__gpu": False}, "scope.gpu", "type", "read as the boolean false (quote it"),
    ({"scope__gpu": " "}, "scope.gpu", "value", "write any, unstated or n/a"),
    ({"scope__gpu": {"unstated": ["a"]}}, "scope.gpu.unstated", "type", "at least 2 items"),
    ({"scope__gpu": {"unstated": ["a", "a"]}}, "scope.gpu.unstated", "duplicate", "must differ"),
    (
        {"scope__gpu": {"unstated": ["a", "any"]}},
        "scope.gpu.unstated",
        "value",
        "'any' is not an admissible reading",
    ),
    (
        {"scope__gpu": {"unstated": [1, "b"]}},
        "scope.gpu.unstated[0]",
        "type",
        "read as the number 1 (quote it",
    ),
    (
        {"decided_by__verify": ["simulated"]},
        "decided_by.verify",
        "value",
        "basis 'simulated' may never verify",
    ),
    ({"decided_by__verify": ["bound"]}, "decided_by.verify", "value", "'bound' may never verify"),
    (
        {"decided_by__dispute": ["simulated"]},
        "decided_by.dispute",
        "value",
        "'simulated' may never dispute",
    ),
    (
        {"decided_by": {"verify": [], "dispute": []}},
        "decided_by",
        "value",
        "some basis must be able to decide",
    ),
    ({"colour": "red"}, "colour", "unknown-field", "unknown field 'colour'"),
]


@pytest.mark.parametrize(("changes", "field", "kind", "words"), ASSERTIONS)
def test_a_broken_assertion_is_refused_by_field_and_kind(
    changes: dict[str, Any], field: str, kind: str, words: str, assertion_fields: Build
) -> None:
    [flaw] = _flaws(records.Assertion, assertion_fields(**changes))
    assert (flaw.field, flaw.kind) == (field, kind)
    assert words in flaw.sentence
    assert "\n" not in flaw.sentence


@pytest.mark.parametrize("field", sorted(records.Assertion.model_fields))
def test_every_field_of_an_assertion_is_required(field: str, assertion_fields: Build) -> None:
    fields = assertion_fields()
    del fields[field]
    assert _flaws(records.Assertion, fields) == [
        records.Flaw(field, "missing-field", f"missing field '{field}'")
    ]


def test_all_flaws_are_collected_in_order(assertion_fields: Build) -> None:
    fields = assertion_fields(headline="off", relation="aboot", band__low="x", colour=1)
    del fields["says"]
    assert [f.field for f in _flaws(records.Assertion, fields)] == [
        "says",
        "relation",
        "band.low",
        "headline",
        "colour",
    ]


def _claim_flaws(claim_fields: Build, **changes: Any) -> list[records.Flaw]:
    return _flaws(records.Claim, {"id": "first-token", **claim_fields(**changes)})


def test_an_assertion_id_occurs_once(claim_fields: Build, assertion_fields: Build) -> None:
    [flaw] = _claim_flaws(claim_fields, assertions=[assertion_fields(), assertion_fields()])
    assert (flaw.field, flaw.kind) == ("assertions", "duplicate")
    assert flaw.sentence == "duplicate assertion id 'fast'"


def test_a_claim_has_a_headline(claim_fields: Build, assertion_fields: Build) -> None:
    [flaw] = _claim_flaws(claim_fields, assertions=[assertion_fields(headline=False)])
    assert flaw.sentence == "at least one assertion must be a headline"


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"increment": 5}, "increment", "read as the number 5 (quote it"),
        ({"notebook": "First.ipynb"}, "notebook", "should match pattern"),
        ({"parameters": {"rate": float("inf")}}, "parameters.rate", "finite number"),
        ({"parameters": {"rate": None}}, "parameters.rate", "read as null"),
        ({"parameters": {"interval": [1]}}, "parameters.interval", "cannot be used here"),
        ({"assertions": []}, "assertions", "at least 1 item"),
        ({"quote": "  "}, "quote", "at least 1 character"),
    ],
)
def test_a_broken_claim_is_refused(
    changes: dict[str, Any], field: str, words: str, claim_fields: Build
) -> None:
    [flaw] = _claim_flaws(claim_fields, **changes)
    assert flaw.field == field
    assert words in flaw.sentence


def test_types_of_parameters_are_kept(claim: Build) -> None:
    given = {"a": True, "b": 1, "c": 1.0, "d": "off"}
    kept = claim(parameters=given).parameters
    assert {k: type(v) for k, v in kept.items()} == {k: type(v) for k, v in given.items()}


EVIDENCE = [
    ({"estimate__unit": "ms"}, "estimate.unit", "unit", "write s, not ms"),
    ({"estimate__unit": "tps"}, "estimate.unit", "unit", "write tok/s"),
    ({"estimate__value": 0.2}, "estimate.value", "value", "0.2 lies outside its interval"),
    ({"estimate__low": 0.2, "estimate__high": 0.1}, "estimate.value", "value", "outside"),
    ({"estimate__n": 0}, "estimate.n", "type", "greater than or equal to 1"),
    ({"schema": 2}, "schema", "type", "should be 1"),
    ({"conditions": {}}, "conditions", "value", "missing condition 'gpu'"),
    ({"conditions__colour": "red"}, "conditions", "value", "unknown condition 'colour'"),
    ({"notebook__sha256": "abc"}, "notebook.sha256", "type", "should match pattern"),
    ({"basis": "guessed"}, "basis", "type", "'guessed' cannot be used here"),
]


@pytest.mark.parametrize(("changes", "field", "kind", "words"), EVIDENCE)
def test_broken_evidence_is_refused_by_field_and_kind(
    changes: dict[str, Any], field: str, kind: str, words: str, evidence_fields: Build
) -> None:
    flaw = _flaws(records.Evidence, evidence_fields(**changes))[0]
    assert (flaw.field, flaw.kind) == (field, kind)
    assert words in flaw.sentence


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"provenance": None}, "carries provenance and raw samples"),
        ({"samples": None}, "carries provenance and raw samples"),
        ({"gates": []}, "carries its gates"),
    ],
)
def test_a_measurement_carries_provenance_samples_and_gates(
    changes: dict[str, Any], words: str, evidence_fields: Build
) -> None:
    fields = {**evidence_fields(basis="measured"), **changes}
    [flaw] = _flaws(records.Evidence, fields)
    assert words in flaw.sentence


def test_a_measurement_is_of_one_thing(evidence_fields: Build) -> None:
    fields = evidence_fields(basis="measured", conditions__gpu="any")
    [flaw] = _flaws(records.Evidence, fields)
    assert flaw.sentence == "a measurement has one gpu; write it instead of any"


FACT = {
    "quantity": "peak",
    "dtype": "bf16",
    "density": "dense",
    "value": 312,
    "unit": "TFLOP/s",
    "source": "nvidia-a100",
    "locator": "table",
    "note": None,
}


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"density": None}, "dtype", "a peak names its dtype and says dense or sparse"),
        ({"dtype": None}, "dtype", "a peak names its dtype"),
        ({"unit": "GB"}, "unit", "does not measure peak [FLOP/s]"),
        ({"unit": "TFLOPS"}, "unit", "write TFLOP/s"),
        ({"value": 0}, "value", "peak must be positive"),
        ({"value": "312"}, "value", "'312' is read as text"),
    ],
)
def test_a_broken_fact_is_refused(changes: dict[str, Any], field: str, words: str) -> None:
    [flaw] = _flaws(records.Fact, {**FACT, **changes})
    assert flaw.field == field
    assert words in flaw.sentence


@pytest.mark.parametrize("date", ["2026-13", "2026-00-01", "2026-11-31x", "26", "2026-1-1"])
def test_a_date_is_a_day_a_month_or_a_year(date: str) -> None:
    [flaw] = _flaws(records.Withdrawal, {"evidence": "a", "date": date, "why": "w"})
    assert flaw.field == "date"


def test_the_contract_of_bases_is_the_designs() -> None:
    # basis -> may verify, may dispute: the table of the design, copied by hand.
    table = {
        "derived": (True, True),
        "recomputed": (True, True),
        "bound": (False, True),
        "documented": (True, True),
        "published": (True, True),
        "simulated": (False, False),
        "measured": (True, True),
    }
    assert set(table) == set(records.BASES)
    for basis, (verify, dispute) in table.items():
        assert (basis in records.MAY_VERIFY, basis in records.MAY_DISPUTE) == (verify, dispute)
