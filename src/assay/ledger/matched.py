"""Matched: pairs of published measurements that differ in one arm only.

Owns finding such pairs in ``data/published``, their ratio and difference with the rounding of what
was printed, and saving them as evidence of basis ``published``. Does not own the rows
(``published``) or verdicts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from assay.errors import DerivationError
from assay.ledger import metric as metrics
from assay.ledger import published, records, store
from assay.physics import units

__all__ = ["Match", "matches", "printed", "product", "record"]

_SAME = ("group", "source", "engine", "gpu_stated", "model_stated", "workload", "load")


@dataclasses.dataclass(frozen=True, slots=True)
class Match:
    """Two rows of one source: the same model, card, workload and load, another arm.

    Parameters
    ----------
    above, below : Row
        The two arms, in the order in which ratio and difference are taken.
    model, card, arm : str
        As printed; the card is empty when unstated, the arm when it adds nothing to the name asked
        for.
    spread : tuple of float
        How far either value may be off by the rounding of its printed digits, or by the tolerance
        the table states [base unit].
    """

    above: published.Row
    below: published.Row
    model: str
    card: str
    arm: str
    spread: tuple[float, float]

    @property
    def name(self) -> str:
        """Model, workload and what is special about the arm, for a label."""
        parts = (self.model, self.above.workload or "workload unstated", self.arm)
        return ", ".join(part for part in parts if part)

    @property
    def difference(self) -> tuple[float, float, float]:
        """First minus second: value, lowest and highest [base unit]."""
        first, second = _values(self)
        give = sum(self.spread)
        return first - second, first - second - give, first - second + give

    @property
    def ratio(self) -> tuple[float, float, float]:
        """First over second: value, lowest and highest [1]."""
        first, second = _values(self)
        up, down = self.spread
        if second - down <= 0:
            raise DerivationError(f"{self.below.id} may be 0, so nothing is relative to it")
        return first / second, (first - up) / (second + down), (first + up) / (second - down)


def _values(match: Match) -> tuple[float, float]:
    first, second = match.above.value, match.below.value
    if first is None or second is None:
        raise DerivationError(f"{match.above.id} or {match.below.id} has no value")
    return first, second


def matches(metric: str, *, above: str, below: str) -> list[Match]:
    """Return the pairs of rows of a metric whose arms are named so.

    Parameters
    ----------
    metric : str
        Of both rows.
    above, below : str
        How the arm begins in the table, for example ``thinking`` and ``non-thinking``. A source
        with several such arms gives several pairs.

    Returns
    -------
    list of Match
        In the order of the table.

    Examples
    --------
    >>> found = matches("request_throughput", above="thinking", below="non-thinking")
    >>> [f"{match.ratio[0]:.3f}" for match in found]
    ['0.066']
    """
    cells = [c for c in store.published("measurements") if c["metric"] == metric]
    rows = {row.id: row for row in published.measurements()}
    upper = [c for c in cells if c["arm"].startswith(above)]
    lower = [c for c in cells if c["arm"].startswith(below)]
    return [
        Match(
            rows[a["row"]],
            rows[b["row"]],
            model=a["model_stated"],
            card=a["gpu_stated"],
            arm=a["arm"].removeprefix(above).strip(" ,"),
            spread=(_off(a), _off(b)),
        )
        for a in upper
        for b in lower
        if all(a[key] == b[key] for key in _SAME)
    ]


def printed(cells: Mapping[str, str]) -> tuple[float, float]:
    """Return a cell's value and how far it may be off by what was printed [base unit].

    Parameters
    ----------
    cells : mapping
        A row of the table of measurements, as text.

    Returns
    -------
    tuple of float
        The value, and half a unit of its last printed digit or the tolerance the table states.
    """
    value, _ = units.to_base(float(cells["value"]), cells["unit"] or "1")
    return value, _off(cells)


def _off(cells: Mapping[str, str]) -> float:
    text = cells["value"]
    value, _ = units.to_base(float(text), cells["unit"] or "1")
    if cells["tolerance"]:
        return abs(value) * float(cells["tolerance"])
    if "." not in text and cells["metric"] == "generated_tokens":
        return 0.0  # a count is exact
    step = 10.0 ** -len(text.partition(".")[2])
    return units.to_base(step / 2, cells["unit"] or "1")[0]


def product(
    first: tuple[float, float, float], second: tuple[float, float, float]
) -> tuple[float, float, float]:
    """Return the product of two positive intervals: value, lowest, highest.

    Examples
    --------
    >>> product((2.0, 1.0, 3.0), (10.0, 10.0, 10.0))
    (20.0, 10.0, 30.0)
    """
    return first[0] * second[0], first[1] * second[1], first[2] * second[2]


def record(
    claim: records.Claim,
    assertion: str,
    found: Sequence[tuple[Match, tuple[float, float, float]]],
    *,
    finding: str,
    parameters: Mapping[str, bool | int | float | str],
    counting: str = "",
) -> list[records.Evidence]:
    """Save pairs as evidence of basis ``published``, one each.

    Parameters
    ----------
    claim : Claim
        The claim.
    assertion : str
        Assertion id; its metric is what the intervals are of.
    found : sequence of (Match, interval)
        Value, lowest and highest [base unit].
    finding : str
        Sentence with ``{name}``, ``{value}`` (as printed, with its unit) and ``{source}``.
    parameters : mapping
        The notebook's parameters.
    counting : str
        What the rate counts; empty where the assertion says it does not enter.

    Returns
    -------
    list of Evidence
        In the order given.
    """
    asked = claim.assertion(assertion)
    unit = asked.unit
    saved = []
    for match, (value, low, high) in found:
        row = match.above
        shown = units.from_base(value, unit)
        sign = "+" if shown > 0 and metrics.named(asked.metric).id.endswith("_change") else ""
        conditions: dict[str, str | int] = {
            "gpu": row.gpu or match.card or "unstated",
            "gpu_count": row.gpu_count or "unstated",
            "model": row.model or match.model,
            "precision": row.precision or "unstated",
            "engine": row.engine or "unstated",
            "version": "unstated",
            "workload": row.workload or row.load,
            **({"counting": counting} if counting else {}),
        }
        inside = {k: v for k, v in conditions.items() if getattr(asked.scope, k) != "n/a"}
        saved.append(
            store.found(
                claim,
                assertion,
                basis="published",
                value=value,
                low=low,
                high=high,
                unit=units.base_of(unit),
                method=f"{row.id} against {match.below.id}; interval: rounding as printed",
                finding=finding.format(
                    name=match.name,
                    value=f"{sign}{units.number(shown)} {unit}",
                    source=row.source,
                ),
                parameters=parameters,
                inputs=["data/published/measurements.csv"],
                conditions=inside,
            )
        )
    return saved
