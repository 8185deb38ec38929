"""The judge as a truth table.

What is expected is written out here from the contract, not computed by the code under test:
the words of the table below, the positions of intervals by hand.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import RecordError
from assay.ledger import judge, records

Build = Callable[..., Any]
NEVER, EITHER = ("open", "not-run"), ("open", "inconclusive")

# basis and blocks or sources -> what an interval inside, outside and across the band decides.
CONTRACT = {
    ("derived", 1): (("verified", ""), ("disputed", ""), EITHER),
    ("recomputed", 1): (("verified", ""), ("disputed", ""), EITHER),
    ("documented", 1): (("verified", ""), ("disputed", ""), EITHER),
    ("bound", 1): (NEVER, ("disputed", ""), NEVER),
    ("published", 1): (EITHER, EITHER, EITHER),
    ("published", 2): (("verified", ""), ("disputed", ""), EITHER),
    ("simulated", 9): (NEVER, NEVER, NEVER),
    ("measured", 4): (EITHER, EITHER, EITHER),
    ("measured", 5): (("verified", ""), ("disputed", ""), EITHER),
}

# Where an interval [low, high] lies against a band; None is open on that side.
CLOSED = [  # band [100, 200]
    ((120, 150), "inside"),
    ((150, 150), "inside"),
    ((100, 150), "inside"),  # touches the lower edge from inside
    ((150, 200), "inside"),
    ((100, 200), "inside"),
    ((100, 100), "inside"),  # a point on the edge
    ((200, 200), "inside"),
    ((50, 90), "outside"),
    ((250, 300), "outside"),
    ((99, 99), "outside"),
    ((201, 201), "outside"),
    ((None, 90), "outside"),
    ((250, None), "outside"),
    ((50, 100), "straddles"),  # touches the lower edge from outside
    ((200, 250), "straddles"),
    ((None, 100), "straddles"),
    ((200, None), "straddles"),
    ((50, 150), "straddles"),
    ((150, 250), "straddles"),
    ((50, 250), "straddles"),
    ((None, 150), "straddles"),
    ((150, None), "straddles"),
    ((None, None), "straddles"),
]
OPEN_ABOVE = [  # band [100, -]
    ((100, 100), "inside"),
    ((100, None), "inside"),
    ((150, 10_000), "inside"),
    ((50, 99), "outside"),
    ((None, 99), "outside"),
    ((99, 99), "outside"),
    ((None, 100), "straddles"),
    ((50, 100), "straddles"),
    ((50, None), "straddles"),
    ((None, None), "straddles"),
]
OPEN_BELOW = [  # band [-, 200]
    ((200, 200), "inside"),
    ((None, 200), "inside"),
    ((-5, 10), "inside"),
    ((201, 300), "outside"),
    ((201, None), "outside"),
    ((200, None), "straddles"),
    ((200, 300), "straddles"),
    ((None, 300), "straddles"),
    ((None, None), "straddles"),
]
HOLDS = [((1, 1), "inside"), ((0, 0), "outside"), ((0, 1), "straddles")]
FAILS = [((0, 0), "inside"), ((1, 1), "outside"), ((0, 1), "straddles")]
ORDER = [  # the smallest ratio between neighbours is at least 1
    ((1, 1), "inside"),
    ((1.5, 2), "inside"),
    ((0.5, 0.9), "outside"),
    ((0.9, 1), "straddles"),
    ((0.9, 1.1), "straddles"),
]

RATE = {"metric": "ttft", "unit": "s"}  # printed in base units, so that the table reads plainly
BAND = {"low": 100, "high": 200, "why": "w"}
ABOVE, BELOW = {**BAND, "high": None}, {**BAND, "low": None}
WORD = {"metric": "statement", "unit": "1"}
RELATIONS: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "equals": ({**RATE, "value": 150, "band": BAND}, CLOSED),
    "about": ({**RATE, "value": 150, "band": BAND}, CLOSED),
    "between": ({**RATE, "value": [120, 180], "band": BAND}, CLOSED),
    "ratio": ({"metric": "speedup", "unit": "x", "value": 150, "band": BAND}, CLOSED),
    "at_least": ({**RATE, "value": 110, "band": ABOVE}, OPEN_ABOVE),
    "at_most": ({**RATE, "value": 190, "band": BELOW}, OPEN_BELOW),
    "exists": ({**WORD, "value": True, "band": {"low": 1, "high": 1, "why": "w"}}, HOLDS),
    "order": (
        {
            "metric": "rank",
            "unit": "x",
            "value": ["a", "b"],
            "band": {"low": 1, "high": None, "why": "w"},
        },
        ORDER,
    ),
}
# An order and a count of yes have their own intervals; a claim that something does NOT hold too.
CASES = [
    pytest.param(relation, fields, ends, where, key, id=f"{key[0]}{key[1]}-{relation}-{ends}")
    for relation, (fields, positions) in RELATIONS.items()
    for ends, where in positions
    for key in CONTRACT
] + [
    pytest.param(
        "exists",
        {**WORD, "value": False, "band": {"low": 0, "high": 0, "why": "w"}},
        ends,
        where,
        key,
        id=f"{key[0]}{key[1]}-denied-{ends}",
    )
    for ends, where in FAILS
    for key in CONTRACT
]


def _estimate(ends: tuple[float | None, float | None], unit: str, n: int) -> dict[str, Any]:
    low, high = ends
    value = next((end for end in ends if end is not None), 150)
    return {"value": value, "low": low, "high": high, "unit": unit, "n": n, "method": "m"}


@pytest.mark.parametrize(("relation", "fields", "ends", "where", "key"), CASES)
def test_every_basis_relation_and_position_decides_as_the_contract_says(
    relation: str,
    fields: dict[str, Any],
    ends: tuple[float | None, float | None],
    where: str,
    key: tuple[str, int],
    assertion: Build,
    evidence: Build,
) -> None:
    basis, n = key
    unit = {"s": "s", "x": "1", "1": "1"}[fields["unit"]]
    claimed = assertion(relation=relation, **fields)
    item = evidence(basis=basis, estimate=_estimate(ends, unit, n))
    expected = dict(zip(("inside", "outside", "straddles"), CONTRACT[key], strict=True))[where]
    found = judge.decide(claimed, [item])
    assert (found.status, found.reason) == expected
    assert found.basis == ("" if found.status == "open" else basis)


@pytest.mark.parametrize("basis", records.BASES)
def test_a_basis_that_is_not_listed_decides_nothing(
    basis: str, assertion: Build, evidence: Build
) -> None:
    others = [b for b in records.BASES if b not in (basis, "simulated", "bound")]
    claimed = assertion(decided_by={"verify": others, "dispute": others})
    for value in (0.15, 9.0):
        item = evidence(
            basis=basis, estimate=_estimate((value, value), "s", 9), claim="first-token"
        )
        found = judge.decide(claimed, [item])
        assert (found.status, found.reason) == ("open", "not-run")


def test_a_basis_listed_only_for_dispute_never_verifies(assertion: Build, evidence: Build) -> None:
    claimed = assertion(decided_by={"verify": [], "dispute": ["published"]})
    inside = evidence(basis="published", estimate=_estimate((0.15, 0.15), "s", 3))
    outside = evidence(basis="published", estimate=_estimate((9, 9), "s", 3))
    assert judge.decide(claimed, [inside]).reason == "inconclusive"
    assert judge.decide(claimed, [outside]).status == "disputed"


def test_no_evidence_is_not_run(assertion: Build) -> None:
    found = judge.decide(assertion(), [])
    assert (found.status, found.reason, found.low, found.high) == ("open", "not-run", None, None)


def test_a_failed_gate_voids_the_number_and_its_interval(assertion: Build, evidence: Build) -> None:
    gates = [
        {"id": "complete", "passed": True, "says": "s"},
        {"id": "throttle", "passed": False, "says": "s"},
    ]
    for value in (0.15, 9.0):
        item = evidence(basis="measured", gates=gates, estimate=_estimate((value, value), "s", 9))
        found = judge.decide(assertion(), [item])
        assert (found.status, found.reason) == ("open", "inconclusive")
        assert (found.low, found.high) == (None, None)


# -- scope ----------------------------------------------------------------------------------------

# scope of one key, condition of the evidence, basis -> word and reason when the number fits.
STATED = {
    ("h100", "h100", "measured"): ("verified", ""),
    ("h100", "a100", "measured"): ("open", "out-of-scope"),
    ("h100", "n/a", "measured"): ("open", "out-of-scope"),  # a CPU run is no GPU evidence
    ("h100", "any", "derived"): ("verified", ""),
    ("h100", "n/a", "derived"): ("verified", ""),
    ("h100", "unstated", "published"): ("open", "out-of-scope"),
    ("any", "h100", "measured"): ("open", "inconclusive"),  # one instance proves no rule
    ("any", "h100", "derived"): ("open", "inconclusive"),
    ("any", "any", "derived"): ("verified", ""),
    ("any", "n/a", "derived"): ("verified", ""),
    ("unstated", "h100", "measured"): ("open", "undecidable-as-stated"),
    ("unstated", "h100", "published"): ("open", "undecidable-as-stated"),
    ("unstated", "any", "published"): ("verified", ""),
    ("unstated", "n/a", "derived"): ("verified", ""),
    ("unstated", "n/a", "measured"): ("open", "undecidable-as-stated"),
    ("n/a", "h100", "measured"): ("verified", ""),
    ("n/a", "n/a", "measured"): ("verified", ""),
}


@pytest.mark.parametrize(("scope", "condition", "basis"), STATED)
@pytest.mark.parametrize("key", records.SCOPE_KEYS)
def test_scope_against_conditions(
    key: str, scope: str, condition: str, basis: str, assertion: Build, evidence: Build
) -> None:
    item = evidence(
        basis=basis,
        estimate=_estimate((0.15, 0.15), "s", 9),
        **{f"conditions__{key}": condition},
    )
    found = judge.decide(assertion(**{f"scope__{key}": scope}), [item])
    assert (found.status, found.reason) == STATED[scope, condition, basis]


@pytest.mark.parametrize(
    ("scope", "word"), [("any", "out-of-scope"), ("h100", "out-of-scope"), ("n/a", "")]
)
def test_a_processor_is_not_any_gpu(
    scope: str, word: str, assertion: Build, evidence: Build
) -> None:
    item = evidence(
        basis="measured", estimate=_estimate((9.0, 9.0), "s", 9), conditions__gpu="none"
    )
    found = judge.decide(assertion(scope__gpu=scope), [item])
    assert (found.status, found.reason) == (("disputed", "") if not word else ("open", word))


def test_a_count_matches_whether_written_as_number_or_text(
    assertion: Build, evidence: Build
) -> None:
    item = evidence(conditions__gpu_count="8")
    assert judge.decide(assertion(scope__gpu_count=8), [item]).status == "verified"


TWO = {"unstated": ["output", "total"]}
READINGS = [
    # (condition, value) of each piece of evidence -> word, reason, surviving readings
    ([("output", 0.15), ("total", 0.15)], ("verified", "", ())),
    ([("output", 9.0), ("total", 9.0)], ("disputed", "", ())),
    (
        [("output", 0.15), ("total", 9.0)],
        ("open", "undecidable-as-stated", ("counting output",)),
    ),
    ([("output", 9.0)], ("open", "undecidable-as-stated", ("counting total",))),
    (
        [("output", 0.15)],
        ("open", "undecidable-as-stated", ("counting output", "counting total")),
    ),
    ([("any", 0.15)], ("verified", "", ())),
    ([("n/a", 9.0)], ("disputed", "", ())),
    ([("requests", 9.0)], ("open", "out-of-scope", ())),
    ([("unstated", 9.0)], ("open", "out-of-scope", ())),
]


@pytest.mark.parametrize(("pieces", "expected"), READINGS)
def test_every_admissible_reading_must_agree(
    pieces: list[tuple[str, float]],
    expected: tuple[str, str, tuple[str, ...]],
    assertion: Build,
    evidence: Build,
) -> None:
    items = [
        evidence(conditions__counting=word, estimate=_estimate((value, value), "s", 1))
        for word, value in pieces
    ]
    found = judge.decide(assertion(scope__counting=TWO), items)
    assert (found.status, found.reason, found.readings) == expected


def test_two_unstated_keys_are_judged_in_every_combination(
    assertion: Build, evidence: Build
) -> None:
    claimed = assertion(scope__counting=TWO, scope__precision={"unstated": ["fp16", "fp8"]})
    item = evidence(
        conditions__counting="output",
        conditions__precision="fp8",
        estimate=_estimate((9, 9), "s", 1),
    )
    found = judge.decide(claimed, [item])
    assert len(found.readings) == 3
    assert "precision fp8, counting output" not in found.readings


# -- many pieces ----------------------------------------------------------------------------------


def test_votes_both_ways_decide_nothing(assertion: Build, evidence: Build) -> None:
    items = [
        evidence(basis="measured", estimate=_estimate((0.15, 0.15), "s", 5)),
        evidence(basis="bound", estimate=_estimate((None, 0.05), "s", 1)),
    ]
    found = judge.decide(assertion(), items)
    assert (found.status, found.reason) == ("open", "inconclusive")


def test_an_undecided_piece_does_not_spoil_a_decided_one(assertion: Build, evidence: Build) -> None:
    items = [
        evidence(basis="measured", estimate=_estimate((0.05, 0.15), "s", 5)),
        evidence(basis="derived", estimate=_estimate((0.15, 0.15), "s", 1)),
    ]
    found = judge.decide(assertion(), items)
    assert (found.status, found.basis) == ("verified", "derived")


def test_bases_that_dispute_together_are_named_together(assertion: Build, evidence: Build) -> None:
    items = [
        evidence(basis="published", estimate=_estimate((9, 9), "s", 2)),
        evidence(basis="bound", estimate=_estimate((8, None), "s", 1)),
    ]
    assert judge.decide(assertion(), items).basis == "bound+published"


@pytest.mark.parametrize("key", ["gpu", "model", "engine", "workload"])
def test_one_published_counterexample_refutes_a_claim_of_generality(
    key: str, assertion: Build, evidence: Build
) -> None:
    item = evidence(
        basis="published",
        estimate=_estimate((9, 9), "s", 1),
        **{f"conditions__{key}": "one"},
    )
    general, particular = (
        assertion(**{f"scope__{key}": "any"}),
        assertion(**{f"scope__{key}": "one"}),
    )
    assert judge.decide(general, [item]).status == "disputed"
    assert judge.decide(particular, [item]).reason == "inconclusive"


def test_out_of_scope_needs_evidence_that_could_have_decided(
    assertion: Build, evidence: Build
) -> None:
    claimed = assertion(scope__gpu="h100")
    for basis, reason in (("simulated", "not-run"), ("published", "out-of-scope")):
        item = evidence(basis=basis, conditions__gpu="a100", estimate=_estimate((9, 9), "s", 9))
        assert judge.decide(claimed, [item]).reason == reason


def test_the_interval_is_the_hull_of_the_strongest_basis_in_printed_units(
    assertion: Build, evidence: Build
) -> None:
    items = [
        evidence(basis="measured", estimate=_estimate((0.11, 0.12), "s", 5)),
        evidence(basis="measured", estimate=_estimate((0.13, 0.19), "s", 5)),
        evidence(basis="derived", estimate=_estimate((0.18, 0.18), "s", 1)),
        evidence(basis="simulated", estimate=_estimate((0.0, 9.0), "s", 1)),
    ]
    found = judge.decide(assertion(), items)
    assert (found.low, found.high, found.unit) == (110, 190, "ms")


def test_edges_are_compared_as_decimals_not_as_binary_noise(
    assertion: Build, evidence: Build
) -> None:
    # In binary floating point 2.01 * 1e9 is 2009999999.9999998.
    band = {"low": 2.01, "high": 2.01, "why": "w"}
    claimed = assertion(metric="weight_bytes", unit="GB", value=2.01, band=band)
    item = evidence(estimate=_estimate((2_010_000_000, 2_010_000_000), "B", 1))
    assert judge.decide(claimed, [item]).status == "verified"


def test_a_byte_count_one_byte_over_the_edge_is_outside(assertion: Build, evidence: Build) -> None:
    claimed = assertion(
        metric="weight_bytes", unit="TB", value=1.2, band={"low": 1.1, "high": 1.2, "why": "w"}
    )
    over = 1_200_000_000_001
    item = evidence(estimate=_estimate((over, over), "B", 1))
    assert judge.decide(claimed, [item]).status == "disputed"


# -- whole claims ---------------------------------------------------------------------------------

V, D, O = "verified", "disputed", "open"  # noqa: E741
CLAIMS = [
    # (headline?, word) of each assertion -> word of the claim
    ([(True, V)], V),
    ([(True, V), (True, V)], V),
    ([(True, V), (True, D)], D),
    ([(True, O), (True, D)], D),
    ([(True, V), (True, O)], O),
    ([(True, V), (False, D)], V),
    ([(True, V), (False, O)], V),
    ([(True, O), (False, V)], O),
]


@pytest.mark.parametrize(("parts", "expected"), CLAIMS)
def test_a_claim_follows_its_headline_assertions(
    parts: list[tuple[bool, str]],
    expected: str,
    claim: Build,
    assertion_fields: Build,
    evidence: Build,
) -> None:
    value = {V: 0.15, D: 9.0}
    whole = claim(
        assertions=[
            assertion_fields(id=f"a{i}", headline=headline) for i, (headline, _) in enumerate(parts)
        ]
    )
    items = [
        evidence(assertion=f"a{i}", estimate=_estimate((value[word], value[word]), "s", 1))
        for i, (_, word) in enumerate(parts)
        if word in value
    ]
    verdict = judge.judge(whole, items)
    assert verdict.status == expected
    assert [f.status for f in verdict.findings] == [word for _, word in parts]
    assert bool(verdict.reason) == (expected == O)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"assertion": "slow"}, "unknown assertion 'slow'; use one of fast"),
        ({"claim": "other"}, "evidence for claim 'other'"),
        ({"estimate__unit": "B"}, "'B' does not measure ttft"),
    ],
)
def test_evidence_about_something_else_is_refused(
    changes: dict[str, Any], words: str, claim: Build, evidence: Build
) -> None:
    with pytest.raises(RecordError, match=words):
        judge.judge(claim(), [evidence(**changes)])


# -- properties -----------------------------------------------------------------------------------

ends = st.tuples(
    st.none() | st.floats(0, 0.4, allow_nan=False), st.none() | st.floats(0, 0.4, allow_nan=False)
).map(lambda pair: pair if None in pair else tuple(sorted(pair)))  # type: ignore[type-var]
pieces = st.fixed_dictionaries(
    {
        "basis": st.sampled_from(records.BASES),
        "ends": ends,
        "n": st.integers(1, 9),
        "gpu": st.sampled_from(["h100", "a100", "n/a", "unstated"]),
        "passed": st.booleans(),
    }
)
scopes = st.sampled_from(["h100", "any", "unstated", "n/a", {"unstated": ["h100", "a100"]}])


def _item(evidence: Build, piece: dict[str, Any]) -> records.Evidence:
    built: records.Evidence = evidence(
        basis=piece["basis"],
        estimate=_estimate(piece["ends"], "s", piece["n"])
        | {"value": next((e for e in piece["ends"] if e is not None), 0.15)},
        conditions__gpu=piece["gpu"],
        gates=[{"id": "g", "passed": piece["passed"], "says": "s"}],
    )
    return built


@given(items=st.lists(pieces, max_size=6), scope=scopes, seed=st.integers(0, 99))
def test_the_order_of_evidence_does_not_matter(
    items: list[dict[str, Any]], scope: Any, seed: int, assertion: Build, evidence: Build
) -> None:
    built = [_item(evidence, piece) for piece in items]
    mixed = random.Random(seed).sample(built, len(built))
    claimed = assertion(scope__gpu=scope)
    assert judge.decide(claimed, built) == judge.decide(claimed, mixed)


@given(items=st.lists(pieces, max_size=5), scope=scopes)
def test_simulated_failed_and_out_of_scope_evidence_never_changes_a_word(
    items: list[dict[str, Any]], scope: Any, assertion: Build, evidence: Build
) -> None:
    claimed = assertion(scope__gpu=scope, scope__engine="vllm")
    built = [
        _item(evidence, piece).model_copy(
            update={"conditions": {**evidence().conditions, "gpu": piece["gpu"], "engine": "vllm"}}
        )
        for piece in items
    ]
    useless = [
        _item(
            evidence, {"basis": "simulated", "ends": (9, 9), "n": 9, "gpu": "n/a", "passed": True}
        ),
        evidence(conditions__engine="sglang", estimate=_estimate((9, 9), "s", 9)),
        evidence(
            conditions__engine="vllm",
            estimate=_estimate((9, 9), "s", 9),
            gates=[{"id": "g", "passed": False, "says": "s"}],
        ),
    ]
    alone, crowded = judge.decide(claimed, built), judge.decide(claimed, built + useless)
    assert crowded.status == alone.status
    assert crowded.basis == alone.basis
    assert judge.decide(claimed, useless).status == "open"


@given(pair=ends)
def test_position_never_calls_one_interval_two_things(
    pair: tuple[float | None, float | None],
) -> None:
    band = records.Band(low=100, high=200, why="w")
    value = next((end for end in pair if end is not None), 0.15)
    estimate = records.Estimate(value=value, low=pair[0], high=pair[1], unit="s", n=1, method="m")
    low, high = (pair[0] or 0) if pair[0] is not None else -1, pair[1] if pair[1] is not None else 1
    middle_in = any(0.1 <= x <= 0.2 for x in (low, high, (low + high) / 2))
    where = judge.position(estimate, band, "ms")
    if where == "outside":
        assert not middle_in
    if where == "inside":
        assert None not in pair
        assert middle_in
