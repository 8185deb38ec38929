"""Records: the shape of everything the ledger holds.

Owns the schemas of claims, sources, hardware, models, evidence and withdrawals, and the checks
that need no other file. Does not own reading (``store``) or deciding (``judge``).

Nothing that affects a verdict has a default: a missing value is an error, ``null`` is written out.
Unknown fields are errors. Types are strict, so the YAML traps (``off`` is a boolean, ``1e5`` is
text, ``1.10`` is a number) are refused rather than converted. Every failed check carries a kind
(``unknown-field``, ``missing-field``, ``type``, ``unit``, ``band``, ``duplicate`` or ``value``),
by which ``rules`` finds the permanent rule id.

Evidence schema history
-----------------------
1 : 2026-11-30, first.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Final, Literal, Self, get_args

import pydantic
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from assay.errors import InputError
from assay.ledger import metric as metrics
from assay.physics import units

__all__ = [
    "BASES",
    "EVIDENCE_SCHEMA",
    "MAY_DISPUTE",
    "MAY_VERIFY",
    "SCOPE_KEYS",
    "Assertion",
    "Band",
    "Basis",
    "Claim",
    "DecidedBy",
    "Estimate",
    "Evidence",
    "Fact",
    "FileDigest",
    "Flaw",
    "FlawKind",
    "Gate",
    "Hardware",
    "Model",
    "Provenance",
    "Record",
    "Source",
    "Unstated",
    "Withdrawal",
    "flaws",
    "misfit",
]

EVIDENCE_SCHEMA: Final = 1

Basis = Literal[
    "measured", "derived", "recomputed", "documented", "bound", "published", "simulated"
]
BASES: tuple[Basis, ...] = get_args(Basis)

# The contract's table: which bases may ever verify or dispute anything.
MAY_VERIFY: frozenset[Basis] = frozenset(
    {"derived", "recomputed", "documented", "published", "measured"}
)
MAY_DISPUTE: frozenset[Basis] = frozenset(
    {"derived", "recomputed", "documented", "published", "measured", "bound"}
)

Relation = Literal["equals", "about", "at_least", "at_most", "between", "ratio", "order", "exists"]

# Three words with a fixed meaning in a scope:
#   any       the claim is made for every value: one counterexample refutes it
#   unstated  the value matters and the source does not give it
#   n/a       the value does not enter
_SCOPE_WORDS = ("any", "unstated", "n/a")
SCOPE_KEYS = (
    "gpu",
    "gpu_count",
    "model",
    "precision",
    "engine",
    "version",
    "workload",
    "counting",
)

_SLUG = r"^[a-z0-9]+([-.][a-z0-9]+)*$"
Slug = Annotated[str, StringConstraints(pattern=_SLUG, max_length=80)]
Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Date = Annotated[
    str, StringConstraints(pattern=r"^\d{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?$")
]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]


FlawKind = Literal["unknown-field", "missing-field", "type", "unit", "band", "duplicate", "value"]


def _flaw(kind: FlawKind, field: str, sentence: str) -> PydanticCustomError:
    """Return the error a validator raises for a broken contract of one field of its record."""
    return PydanticCustomError(kind, "{sentence}", {"sentence": sentence, "field": field})


def _base_of(unit: str) -> str:
    try:
        return units.base_of(unit)
    except InputError as error:
        raise _flaw("unit", "unit", str(error)) from None


class Record(BaseModel):
    """Base of all records: frozen, strict, no unknown fields."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Band(Record):
    """The interval of values that the claim, fairly read, still covers.

    ``low`` and ``high`` are in the assertion's printed unit; ``None`` is open on that side.
    """

    low: Number | None
    high: Number | None
    why: Text

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low is None and self.high is None:
            raise _flaw("band", "low", "a band needs at least one end")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise _flaw("band", "low", f"band low {self.low:g} is above high {self.high:g}")
        return self


class Unstated(Record):
    """A scope value the source does not give, with the readings that are admissible."""

    unstated: Annotated[tuple[str, ...], Field(min_length=2, strict=False)]

    @field_validator("unstated")
    @classmethod
    def _distinct(cls, readings: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(readings)) != len(readings):
            raise _flaw("duplicate", "", "admissible readings must differ from each other")
        for reading in readings:
            if not reading.strip() or reading in _SCOPE_WORDS:
                raise _flaw(
                    "value", "", f"'{reading}' is not an admissible reading; name one value"
                )
        return readings


ScopeValue = Unstated | int | str


class Scope(Record):
    """The conditions a claim is made for; every key is written out."""

    gpu: ScopeValue
    gpu_count: ScopeValue
    model: ScopeValue
    precision: ScopeValue
    engine: ScopeValue
    version: ScopeValue
    workload: ScopeValue
    counting: ScopeValue

    @field_validator("*")
    @classmethod
    def _not_empty(cls, value: ScopeValue) -> ScopeValue:
        if isinstance(value, str) and not value.strip():
            raise _flaw("value", "", "write any, unstated or n/a instead of an empty value")
        return value


class DecidedBy(Record):
    """Which bases may verify the assertion and which may dispute it."""

    verify: Annotated[tuple[Basis, ...], Field(strict=False)]
    dispute: Annotated[tuple[Basis, ...], Field(strict=False)]

    @model_validator(mode="after")
    def _within_contract(self) -> Self:
        for basis in self.verify:
            if basis not in MAY_VERIFY:
                raise _flaw("value", "verify", f"basis '{basis}' may never verify")
        for basis in self.dispute:
            if basis not in MAY_DISPUTE:
                raise _flaw("value", "dispute", f"basis '{basis}' may never dispute")
        if not self.verify and not self.dispute:
            raise _flaw("value", "", "some basis must be able to decide the assertion")
        return self


class Assertion(Record):
    """One checkable sentence of a claim."""

    id: Slug
    says: Text
    metric: Text
    relation: Relation
    value: (
        bool
        | Number
        | Annotated[tuple[Number, Number], Field(strict=False)]
        | Annotated[tuple[str, ...], Field(strict=False, min_length=2)]
    )
    unit: Text
    band: Band
    scope: Scope
    decided_by: DecidedBy
    falsifier: Text
    headline: bool

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        quantity = metrics.METRICS.get(self.metric)
        if quantity is None:
            raise _flaw(
                "value",
                "metric",
                f"unknown metric '{self.metric}'; use one of {', '.join(metrics.METRICS)}",
            )
        if _base_of(self.unit) != quantity.unit:
            raise _flaw(
                "unit",
                "unit",
                f"unit '{self.unit}' does not measure {self.metric}; "
                f"write a unit of {quantity.unit}, for example {quantity.display}",
            )
        self._check_value()
        self._check_band()
        return self

    def _check_value(self) -> None:
        value = self.value
        names = isinstance(value, tuple) and isinstance(value[0], str)
        pair = isinstance(value, tuple) and not names
        point = not isinstance(value, bool | tuple)
        fits, wanted = {
            "exists": (isinstance(value, bool), "value true or false"),
            "order": (names, "a list of names, the first leading"),
            "between": (pair, "two numbers [low, high]"),
            "ratio": (pair or point, "one number, or two [low, high]"),
        }.get(self.relation, (point, "one number"))
        if not fits:
            raise _flaw("value", "value", f"relation '{self.relation}' takes {wanted}")
        low, high = self.claimed
        if low > high:
            raise _flaw("value", "value", f"value low {low:g} is above high {high:g}")

    def _check_band(self) -> None:
        band = self.band
        for value in self.claimed:
            if not _covers(band, value):
                raise _flaw(
                    "band", "band", f"the band {_ends(band)} excludes its own value {value:g}"
                )
        if self.relation == "at_least" and (band.low is None or band.high is not None):
            raise _flaw("band", "band", "relation 'at_least' takes a band open above: high: null")
        if self.relation == "at_most" and (band.high is None or band.low is not None):
            raise _flaw("band", "band", "relation 'at_most' takes a band open below: low: null")
        # A band that covers both answers could never be disputed.
        if self.relation == "exists" and _covers(band, 1 - self.claimed[0]):
            raise _flaw("band", "band", f"the band {_ends(band)} covers both yes (1) and no (0)")

    @property
    def claimed(self) -> tuple[float, float]:
        """The claimed value as an interval [printed unit]; a point has equal ends."""
        if isinstance(self.value, bool):
            return float(self.value), float(self.value)
        if isinstance(self.value, tuple):
            if isinstance(self.value[0], str):  # an order: the smallest ratio is at least 1
                return 1.0, 1.0
            return float(self.value[0]), float(self.value[1])
        return float(self.value), float(self.value)


class Claim(Record):
    """One published claim: who said it, in which words, and what it asserts."""

    id: Slug
    title: Text
    increment: Literal["1", "2", "3", "4", "5", "6", "A", "B", "C", "warnings"]
    quote: Text
    quote_en: Text
    source: Slug
    locator: Text
    notebook: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
    parameters: dict[str, bool | int | Number | str]
    assertions: Annotated[tuple[Assertion, ...], Field(min_length=1, strict=False)]

    @model_validator(mode="after")
    def _assertions(self) -> Self:
        seen: set[str] = set()
        for assertion in self.assertions:
            if assertion.id in seen:
                raise _flaw("duplicate", "assertions", f"duplicate assertion id '{assertion.id}'")
            seen.add(assertion.id)
        if not any(assertion.headline for assertion in self.assertions):
            raise _flaw("value", "assertions", "at least one assertion must be a headline")
        return self

    def assertion(self, assertion_id: str) -> Assertion:
        """Return the assertion of this id; ``KeyError`` when there is none."""
        for assertion in self.assertions:
            if assertion.id == assertion_id:
                return assertion
        raise KeyError(assertion_id)


class Source(Record):
    """Who said it, where it can be read, and how much of it was read here."""

    producer: Text
    title: Text
    citation: Text
    url: Text | None
    archived_url: Text | None
    date_published: Date | None
    date_accessed: Date | None
    license: Text | None
    access: Literal["read", "partly-read", "secondary", "not-read"]


class Fact(Record):
    """One stated quantity of a device, with its source."""

    quantity: Literal["memory", "memory_bandwidth", "cache", "peak", "interconnect", "tdp"]
    dtype: Text | None
    density: Literal["dense", "sparse-halved"] | None
    value: Number
    unit: Text
    source: Slug
    locator: Text
    note: str | None

    @model_validator(mode="after")
    def _unit(self) -> Self:
        wanted = {
            "memory": "B",
            "cache": "B",
            "memory_bandwidth": "B/s",
            "peak": "FLOP/s",
            "interconnect": "B/s",
            "tdp": "W",
        }[self.quantity]
        if _base_of(self.unit) != wanted:
            raise _flaw(
                "unit", "unit", f"unit '{self.unit}' does not measure {self.quantity} [{wanted}]"
            )
        if self.value <= 0:
            raise _flaw("value", "value", f"{self.quantity} must be positive")
        if self.quantity == "peak" and (self.dtype is None or self.density is None):
            raise _flaw("value", "dtype", "a peak names its dtype and says dense or sparse")
        return self


class Hardware(Record):
    """One device: the names drivers print for it and the facts sources state."""

    id: Slug
    title: Text
    kind: Literal["gpu", "tpu", "cpu"]
    vendor: Text
    names: Annotated[tuple[str, ...], Field(strict=False)]
    memory_kind: Literal["dedicated", "unified"]
    facts: Annotated[tuple[Fact, ...], Field(min_length=1, strict=False)]


class Model(Record):
    """One model's published configuration, as facts."""

    id: Slug
    title: Text
    source: Slug
    locator: Text
    parameters: Annotated[int, Field(gt=0)]
    active_parameters: Annotated[int, Field(gt=0)] | None
    parameters_locator: Text
    native_context: Annotated[int, Field(gt=0)] | None
    config: dict[str, object]


class Estimate(Record):
    """A number with its interval, in base units; ``None`` is unbounded on that side."""

    value: Number
    low: Number | None
    high: Number | None
    unit: Text
    n: Annotated[int, Field(ge=1)]
    method: Text

    @model_validator(mode="after")
    def _base_units(self) -> Self:
        base = _base_of(self.unit)
        if base != self.unit:
            raise _flaw("unit", "unit", f"evidence is in base units: write {base}, not {self.unit}")
        low = self.value if self.low is None else self.low
        high = self.value if self.high is None else self.high
        if not low <= self.value <= high:
            raise _flaw("value", "value", f"estimate {self.value:g} lies outside its interval")
        return self


class Gate(Record):
    """A precondition of a number: when it fails, the number is void."""

    id: Slug
    passed: bool
    says: Text


class FileDigest(Record):
    """A file the number depends on, by content."""

    path: Text
    sha256: Digest


class Provenance(Record):
    """Where and how a number was measured."""

    device: Text
    driver: Text | None
    clocks: Text | None
    engine: Text
    engine_version: Text
    flags: Annotated[tuple[str, ...], Field(strict=False)]
    packages: dict[str, str]
    commit: Text
    started: Text
    ended: Text


class Evidence(Record):
    """What a notebook found about one assertion, under one reading of its scope."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    claim: Slug
    assertion: Slug
    basis: Basis
    estimate: Estimate
    conditions: dict[str, str | int]
    finding: Text
    gates: Annotated[tuple[Gate, ...], Field(strict=False)]
    inputs: Annotated[tuple[FileDigest, ...], Field(strict=False)]
    notebook: FileDigest
    parameters: dict[str, bool | int | Number | str]
    provenance: Provenance | None
    samples: FileDigest | None

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", populate_by_name=True)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        for key in self.conditions:
            if key not in SCOPE_KEYS:
                raise _flaw(
                    "value", "conditions", f"unknown condition '{key}'; use {', '.join(SCOPE_KEYS)}"
                )
        for key in SCOPE_KEYS:
            if key not in self.conditions:
                raise _flaw(
                    "value", "conditions", f"missing condition '{key}'; write its value, any or n/a"
                )
        if self.basis == "measured":
            if self.provenance is None or self.samples is None:
                raise _flaw(
                    "value", "basis", "measured evidence carries provenance and raw samples"
                )
            if not self.gates:
                raise _flaw("value", "gates", "measured evidence carries its gates")
            for key, value in self.conditions.items():
                if value == "any":
                    raise _flaw(
                        "value",
                        "conditions",
                        f"a measurement has one {key}; write it instead of any",
                    )
        return self


class Withdrawal(Record):
    """Why a piece of evidence no longer counts; the evidence itself stays."""

    evidence: Text
    date: Date
    why: Text


def misfit(claim: Claim, item: Evidence) -> Flaw | None:
    """Return why a piece of evidence cannot be about a claim, if it cannot.

    Parameters
    ----------
    claim : Claim
        The claim it names.
    item : Evidence
        The evidence.

    Returns
    -------
    Flaw or None
        Of kind ``value`` for an unknown assertion, ``unit`` for another quantity.
    """
    known = {assertion.id: assertion for assertion in claim.assertions}
    if item.claim != claim.id:
        return Flaw("claim", "value", f"evidence for claim '{item.claim}', not '{claim.id}'")
    if item.assertion not in known:
        return Flaw(
            "assertion",
            "value",
            f"evidence for unknown assertion '{item.assertion}'; use one of {', '.join(known)}",
        )
    wanted = units.base_of(known[item.assertion].unit)
    if item.estimate.unit != wanted:
        return Flaw(
            "estimate.unit",
            "unit",
            f"'{item.estimate.unit}' does not measure {known[item.assertion].metric} [{wanted}]",
        )
    return None


def _covers(band: Band, value: float) -> bool:
    above_low = band.low is None or value >= band.low
    return above_low and (band.high is None or value <= band.high)


def _ends(band: Band) -> str:
    low = "-∞" if band.low is None else f"{band.low:g}"
    high = "∞" if band.high is None else f"{band.high:g}"
    return f"[{low}, {high}]"


@dataclasses.dataclass(frozen=True, slots=True)
class Flaw:
    """One failed check of a record.

    Parameters
    ----------
    field : str
        Path such as ``assertions[1].unit``.
    kind : str
        Which sort of check failed.
    sentence : str
        What is wrong, in plain words.
    """

    field: str
    kind: FlawKind
    sentence: str


def flaws(error: pydantic.ValidationError) -> list[Flaw]:
    """Return every failed check of a validation, one per field.

    Parameters
    ----------
    error : pydantic.ValidationError
        As raised by any record.

    Returns
    -------
    list of Flaw
        In the order of the record's fields.
    """
    found: dict[str, Flaw] = {}
    for problem in error.errors(include_url=False):
        flaw = _explain(_field(problem["loc"]), problem)
        # A union reports every branch it tried: a broken contract says more than a wrong type.
        if flaw.field not in found or (found[flaw.field].kind == "type" and flaw.kind != "type"):
            found[flaw.field] = flaw
    return [
        flaw
        for field, flaw in found.items()
        if flaw.kind != "type" or not any(o.startswith((f"{field}.", f"{field}[")) for o in found)
    ]


def _field(place: tuple[int | str, ...]) -> str:
    field = ""
    for part in place:
        if isinstance(part, int):
            field += f"[{part}]"
        elif part.startswith("tuple["):
            return field  # which item of which branch is of no use to a reader
        elif part not in _BRANCH_NAMES and not part.startswith(_BRANCH_STARTS):
            field += f".{part}" if field else part
    return field


# How pydantic names the branches of a union inside an error's place.
_BRANCH_NAMES = frozenset({"bool", "float", "int", "str", "Unstated"})
_BRANCH_STARTS = ("constrained-", "function-", "tagged-")
_KINDS: tuple[FlawKind, ...] = get_args(FlawKind)


def _explain(field: str, problem: ErrorDetails) -> Flaw:
    kind, message = problem["type"], problem["msg"]
    name = field.rpartition(".")[2]
    if kind == "extra_forbidden":
        return Flaw(field, "unknown-field", f"unknown field '{name}'")
    if kind == "missing":
        return Flaw(field, "missing-field", f"missing field '{name}'")
    for known in _KINDS:
        if kind == known:
            part = problem["ctx"]["field"]
            return Flaw(f"{field}.{part}" if field and part else field or part, known, message)
    wanted = f"{message[0].lower()}{message[1:]}"
    given = problem["input"]
    if isinstance(given, float) and not math.isfinite(given):
        return Flaw(field, "type", f"{given} is no value: write a finite number")
    if kind == "string_pattern_mismatch" and problem["ctx"]["pattern"] == _SLUG:
        wanted = "an id is lower case, digits, hyphens and points"
    elif kind.endswith("_type"):  # of a union pydantic names only the branch it tried first
        if "scope." in field and not field.endswith("]"):
            wanted = "write text, a whole number, or {unstated: [one reading, another]}"
        elif name == "value" and "bool" in problem["loc"]:
            wanted = "write a number, two numbers, true or false, or a list of names"
        elif "bool" in problem["loc"]:
            wanted = "write text, a number, true or false"
    return Flaw(field, "type", f"{_trap(given)}: {wanted}")


def _trap(given: object) -> str:
    """Say how YAML read a value that was probably meant otherwise."""
    if isinstance(given, bool):
        return f"read as the boolean {str(given).lower()} (quote it if a word is meant)"
    if isinstance(given, int | float):
        return f"read as the number {given} (quote it if text is meant, as in '1.10')"
    if isinstance(given, str) and _looks_numeric(given):
        return f"'{given}' is read as text (write 100000, or 1.0e+5 with a point and a sign)"
    if given is None:
        return "read as null, no value"
    shown = repr(given)
    return f"{shown if len(shown) < 60 else shown[:57] + '...'} cannot be used here"


def _looks_numeric(given: str) -> bool:
    try:
        float(given)
    except ValueError:
        return False
    return True
