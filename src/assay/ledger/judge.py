"""Judge: claim and evidence in, verdict out.

Owns the one pure function that decides. Does not read files, know the clock, or print. The rule,
per assertion:

1. Evidence counts when it is in scope, not withdrawn, and every gate passed. A measurement is of
   one thing: it never holds for any value, and what it leaves out meets no stated value.
2. Its interval votes: inside the band *verify*, disjoint from it *dispute*, otherwise nothing. A
   vote needs a basis the assertion lets decide, five blocks when measured, and two independent
   sources when published (one published counterexample suffices against a claim of generality).
3. Where the scope says ``unstated`` and lists the admissible readings, every reading is judged on
   its own: all must agree, otherwise the assertion is undecidable as stated and the survivors are
   named. Where it lists none, only evidence that holds for any value can decide.
4. Votes both ways decide nothing.

Words
-----
``verified``, ``disputed``, or ``open`` with one of ``not-run``, ``out-of-scope``, ``inconclusive``,
``undecidable-as-stated``. A claim is disputed when a headline assertion is, verified when all its
headline assertions are, else open.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from typing import Literal

from assay.errors import RecordError
from assay.ledger.records import (
    BASES,
    SCOPE_KEYS,
    Assertion,
    Band,
    Basis,
    Claim,
    Estimate,
    Evidence,
    Unstated,
    misfit,
)
from assay.physics import units

__all__ = [
    "MIN_BLOCKS",
    "MIN_SOURCES",
    "Finding",
    "Position",
    "Reason",
    "Status",
    "Verdict",
    "decide",
    "judge",
    "position",
]

Status = Literal["verified", "disputed", "open"]
Reason = Literal["", "not-run", "out-of-scope", "inconclusive", "undecidable-as-stated"]
Position = Literal["inside", "outside", "straddles"]
Vote = Literal["verify", "dispute", "none"]

MIN_BLOCKS = 5  # server starts behind a measured number
MIN_SOURCES = 2  # independent sources behind a published one

# A claim over "any" of these is a claim of generality.
_GENERAL_KEYS = ("gpu", "model", "engine", "workload")


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """The verdict on one assertion.

    Parameters
    ----------
    id : str
        Assertion id.
    status, reason, basis : str
        The word, why it is open, and the deciding bases joined by ``+``.
    claimed : float or list
        The claimed value as printed.
    low, high : float or None
        Interval found [unit]; ``None`` is unknown or unbounded.
    unit : str
        Printed unit of the assertion.
    headline : bool
        Whether the assertion decides the claim.
    says : tuple of str
        What the evidence says, one sentence each.
    readings : tuple of str
        Surviving readings when the scope is unstated.
    """

    id: str
    status: Status
    reason: Reason
    basis: str
    claimed: object
    low: float | None
    high: float | None
    unit: str
    headline: bool
    says: tuple[str, ...]
    readings: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """Return the published fields."""
        return {
            "id": self.id,
            "status": self.status,
            "basis": self.basis,
            "reason": self.reason,
            "claimed": self.claimed,
            "low": self.low,
            "high": self.high,
            "unit": self.unit,
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one claim."""

    claim: str
    status: Status
    reason: Reason
    findings: tuple[Finding, ...]

    @property
    def basis(self) -> str:
        """Bases that decided the headline assertions, joined by ``+``."""
        deciding = {
            basis
            for finding in self.findings
            if finding.headline and finding.status == self.status and finding.basis
            for basis in finding.basis.split("+")
        }
        return "+".join(basis for basis in BASES if basis in deciding)

    def as_dict(self) -> dict[str, object]:
        """Return the published fields."""
        return {
            "claim": self.claim,
            "status": self.status,
            "assertions": [finding.as_dict() for finding in self.findings],
        }


def position(estimate: Estimate, band: Band, unit: str) -> Position:
    """Place an estimate's interval against a band.

    Parameters
    ----------
    estimate : Estimate
        Interval in base units; an open end is unbounded.
    band : Band
        Closed interval [unit]; an open end is unbounded.
    unit : str
        Printed unit of the band.

    Returns
    -------
    {"inside", "outside", "straddles"}
        An interval that meets the band in a single point from outside straddles it.

    Examples
    --------
    >>> band = Band(low=10, high=20, why="as printed")
    >>> position(Estimate(value=12, low=11, high=13, unit="s", n=5, method="90 %"), band, "s")
    'inside'
    """
    infinity = float("inf")
    low = -infinity if estimate.low is None else estimate.low
    high = infinity if estimate.high is None else estimate.high
    floor = -infinity if band.low is None else units.to_base(band.low, unit)[0]
    ceiling = infinity if band.high is None else units.to_base(band.high, unit)[0]
    if low >= floor and high <= ceiling:
        return "inside"
    if high < floor or low > ceiling:
        return "outside"
    return "straddles"


def decide(assertion: Assertion, evidence: Iterable[Evidence]) -> Finding:
    """Judge one assertion.

    Parameters
    ----------
    assertion : Assertion
        With its band, scope and deciding bases.
    evidence : iterable of Evidence
        All live evidence of this assertion; order does not matter.

    Returns
    -------
    Finding
        Status, reason, deciding bases and the interval found in the assertion's unit.
    """
    given = sorted(evidence, key=_rank)
    matching = [e for e in given if _in_scope(assertion, e)]
    if not matching:
        reason: Reason = "out-of-scope" if _able(assertion, given) else "not-run"
        return _finding(assertion, "open", reason, [], given)

    decisions: dict[str, tuple[Vote, list[Evidence]]] = {}
    for reading in _readings(assertion):
        here = [e for e in matching if _holds_for(e, reading)]
        decisions[_name(reading)] = _settle(assertion, here)
    votes = [vote for vote, _ in decisions.values()]
    voters = _unique(e for _, behind in decisions.values() for e in behind)
    if all(vote == "verify" for vote in votes):
        return _finding(assertion, "verified", "", voters, _covering(decisions.values(), voters))
    if all(vote == "dispute" for vote in votes):
        return _finding(assertion, "disputed", "", voters, _covering(decisions.values(), voters))

    if len(decisions) > 1 and any(vote != "none" for vote in votes):
        survivors = tuple(name for name, (vote, _) in decisions.items() if vote != "dispute")
        return _finding(assertion, "open", "undecidable-as-stated", [], matching, survivors)
    return _finding(assertion, "open", _why_open(assertion, matching), [], matching)


def judge(claim: Claim, evidence: Iterable[Evidence]) -> Verdict:
    """Judge a claim: the one function from evidence to verdict.

    Parameters
    ----------
    claim : Claim
        The claim with its assertions.
    evidence : iterable of Evidence
        All live evidence of the claim.

    Returns
    -------
    Verdict
        Disputed when a headline assertion is, verified when all are, else open with the reason of
        the first open headline assertion.

    Raises
    ------
    RecordError
        When evidence is about another claim, an unknown assertion or another quantity.
    """
    by_assertion: dict[str, list[Evidence]] = {a.id: [] for a in claim.assertions}
    for item in evidence:
        flaw = misfit(claim, item)
        if flaw:
            raise RecordError(
                flaw.sentence, where=f"claim {claim.id}", fix="judge the claim it is about"
            )
        by_assertion[item.assertion].append(item)
    findings = tuple(decide(a, by_assertion[a.id]) for a in claim.assertions)
    headline = [f for f in findings if f.headline]
    if any(f.status == "disputed" for f in headline):
        return Verdict(claim.id, "disputed", "", findings)
    if all(f.status == "verified" for f in headline):
        return Verdict(claim.id, "verified", "", findings)
    reason: Reason = next(f.reason for f in headline if f.status == "open")
    return Verdict(claim.id, "open", reason, findings)


# -- one piece of evidence ------------------------------------------------------------------------


def _scope(assertion: Assertion) -> Mapping[str, object]:
    return {key: getattr(assertion.scope, key) for key in SCOPE_KEYS}


def _for_all(item: Evidence, key: str) -> bool:
    """Whether the evidence holds for every value of the key; a measurement is of one."""
    return item.basis != "measured" and item.conditions[key] in ("any", "n/a")


def _in_scope(assertion: Assertion, item: Evidence) -> bool:
    """Whether every stated value is met; an admissible reading is one of those listed.

    A claim over any GPU is about GPUs: what ran on none of them does not meet it.
    """
    for key, wanted in _scope(assertion).items():
        if (key, wanted, item.conditions[key]) == ("gpu", "any", "none"):
            return False
        if wanted in ("n/a", "any", "unstated") or _for_all(item, key):
            continue
        given = str(item.conditions[key])
        if given not in (wanted.unstated if isinstance(wanted, Unstated) else (str(wanted),)):
            return False
    return True


def _readings(assertion: Assertion) -> list[dict[str, str]]:
    """Every combination of admissible readings; one empty reading when all is stated."""
    listed = {k: v.unstated for k, v in _scope(assertion).items() if isinstance(v, Unstated)}
    return [
        dict(zip(listed, values, strict=True)) for values in itertools.product(*listed.values())
    ]


def _holds_for(item: Evidence, reading: Mapping[str, str]) -> bool:
    return all(_for_all(item, key) or str(item.conditions[key]) == v for key, v in reading.items())


def _fixes(assertion: Assertion, item: Evidence, word: str) -> bool:
    """Whether the evidence holds only for one value of something the scope gives this word."""
    scope = _scope(assertion)
    return any(scope[key] == word and not _for_all(item, key) for key in SCOPE_KEYS)


def _is_general(assertion: Assertion) -> bool:
    return any(getattr(assertion.scope, key) == "any" for key in _GENERAL_KEYS)


def _is_void(item: Evidence) -> bool:
    """Whether a gate failed: then the number says nothing."""
    return not all(gate.passed for gate in item.gates)


def _vote(assertion: Assertion, item: Evidence) -> Vote:
    if _is_void(item) or _fixes(assertion, item, "unstated"):
        return "none"
    if item.basis == "measured" and item.estimate.n < MIN_BLOCKS:
        return "none"
    where = position(item.estimate, assertion.band, assertion.unit)
    agreed = item.basis != "published" or item.estimate.n >= MIN_SOURCES
    if where == "inside" and item.basis in assertion.decided_by.verify and agreed:
        # One instance, however exact, never proves a claim made for every value.
        return "none" if _fixes(assertion, item, "any") else "verify"
    if where == "outside" and item.basis in assertion.decided_by.dispute:
        return "dispute" if agreed or _is_general(assertion) else "none"
    return "none"


# -- many pieces ----------------------------------------------------------------------------------


def _settle(assertion: Assertion, here: list[Evidence]) -> tuple[Vote, list[Evidence]]:
    """Return the common vote of the evidence for one reading, and who cast it."""
    cast: dict[Vote, list[Evidence]] = {"verify": [], "dispute": [], "none": []}
    for item in here:
        cast[_vote(assertion, item)].append(item)
    if cast["verify"] and not cast["dispute"]:
        return "verify", cast["verify"]
    if cast["dispute"] and not cast["verify"]:
        return "dispute", cast["dispute"]
    return "none", []


def _covering(
    decisions: Iterable[tuple[Vote, list[Evidence]]], voters: list[Evidence]
) -> list[Evidence]:
    """Return the voters of the strongest basis that decided every reading, else all voters.

    A limit may refute some readings and a publication all of them; only the latter's interval
    speaks for the assertion as a whole.
    """
    behind = [{e.basis for e in votes} for _, votes in decisions]
    everywhere = [basis for basis in BASES if all(basis in bases for bases in behind)]
    return [e for e in voters if e.basis == everywhere[0]] if everywhere else voters


def _rank(item: Evidence) -> tuple[int, float, str]:
    """Order evidence by strength of basis, then the kindest to a large claim first."""
    high = float("inf") if item.estimate.high is None else item.estimate.high
    return BASES.index(item.basis), -high, item.model_dump_json()


def _able(assertion: Assertion, items: list[Evidence]) -> list[Evidence]:
    """Return the evidence whose basis can settle the assertion either way."""
    deciding = {*assertion.decided_by.verify, *assertion.decided_by.dispute}
    return [e for e in items if e.basis in deciding and e.basis != "bound"]


def _why_open(assertion: Assertion, matching: list[Evidence]) -> Reason:
    able = _able(assertion, matching)
    if able and all(_fixes(assertion, e, "unstated") for e in able):
        return "undecidable-as-stated"
    return "inconclusive" if able else "not-run"


def _finding(
    assertion: Assertion,
    status: Status,
    reason: Reason,
    voters: list[Evidence],
    shown: list[Evidence],
    readings: tuple[str, ...] = (),
) -> Finding:
    bases = {e.basis for e in voters}
    low, high = _interval(assertion, shown)
    claimed: object = assertion.value
    if isinstance(claimed, tuple):
        claimed = list(claimed)
    return Finding(
        id=assertion.id,
        status=status,
        reason=reason,
        basis="+".join(basis for basis in BASES if basis in bases),
        claimed=claimed,
        low=low,
        high=high,
        unit=assertion.unit,
        headline=assertion.headline,
        says=tuple(dict.fromkeys(e.finding for e in [*shown, *voters])),
        readings=readings,
    )


def _interval(assertion: Assertion, shown: list[Evidence]) -> tuple[float | None, float | None]:
    """Return the hull of the strongest basis' intervals, in the printed unit."""
    real = [e for e in shown if e.basis != "simulated" and not _is_void(e)]
    if not real:
        return None, None
    strongest: Basis = min((e.basis for e in real), key=BASES.index)
    same = [e.estimate for e in real if e.basis == strongest]
    lows = [e.low for e in same]
    highs = [e.high for e in same]
    low = None if None in lows else min(x for x in lows if x is not None)
    high = None if None in highs else max(x for x in highs if x is not None)
    return (
        None if low is None else _tidy(units.from_base(low, assertion.unit)),
        None if high is None else _tidy(units.from_base(high, assertion.unit)),
    )


def _tidy(value: float) -> float:
    """Round to 12 significant digits, as in evidence; a whole number stays as it is."""
    return value if value.is_integer() else float(f"{value:.12g}")


def _name(reading: Mapping[str, str]) -> str:
    return ", ".join(f"{key} {value}" for key, value in reading.items())


def _unique(items: Iterable[Evidence]) -> list[Evidence]:
    kept: list[Evidence] = []
    for item in items:
        if item not in kept:
            kept.append(item)
    return kept
