"""Published: third parties' measurements as typed rows.

Owns reading ``data/published`` into numbers, putting rates of different counting and different
numbers of devices beside each other, and counting independent sources. Does not own verdicts: a
published number corroborates or contradicts, it never measures.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence

from assay.errors import RecordError
from assay.ledger import records, store
from assay.physics import units

__all__ = [
    "Row",
    "Statement",
    "independent",
    "measurements",
    "record_statements",
    "statements",
]


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One published measurement.

    Parameters
    ----------
    id, group, source : str
        Row id; the group whose rows are not independent of each other; source id.
    engine, model, precision, gpu : str
        As in the table; empty when unstated.
    params : float or None
        Parameters [10**9].
    gpu_count : int or None
        Devices of the deployment.
    inputs, outputs, concurrency : float or None
        Lengths [tok] and requests in flight; ``None`` when a data set or unstated.
    workload, metric, counting, per, state, comparability : str
        As in the table.
    value : float or None
        In base units; ``None`` when the state is not ``ok``.
    unit : str
        Base unit.
    """

    id: str
    group: str
    source: str
    engine: str
    model: str
    precision: str
    gpu: str
    params: float | None
    gpu_count: int | None
    inputs: float | None
    outputs: float | None
    workload: str
    concurrency: float | None
    metric: str
    counting: str
    per: str
    state: str
    comparability: str
    value: float | None
    unit: str

    @property
    def total_per_gpu(self) -> float | None:
        """Input and output tokens per second and device [tok/s]; ``None`` when not derivable.

        Where a source prints output tokens only, the input tokens are added from the lengths it
        states: the reading most generous to whoever quotes the larger number.
        """
        rate = self._per_gpu()
        if rate is None:
            return None
        if self.counting == "total":
            return rate
        if self.counting == "output" and self.inputs and self.outputs:
            return rate * (self.inputs + self.outputs) / self.outputs
        return None

    @property
    def output_per_gpu(self) -> float | None:
        """Generated tokens per second and device [tok/s]; ``None`` when not derivable."""
        rate = self._per_gpu()
        if rate is None:
            return None
        if self.counting == "output":
            return rate
        if self.counting == "total" and self.inputs and self.outputs:
            return rate * self.outputs / (self.inputs + self.outputs)
        return None

    @property
    def load(self) -> str:
        """Lengths as ``512/128``, or the name of the data set."""
        if self.inputs and self.outputs and not self.workload:
            return f"{self.inputs:.0f}/{self.outputs:.0f}"
        return self.workload or "lengths unstated"

    def _per_gpu(self) -> float | None:
        if self.state != "ok" or self.value is None or not self.unit.startswith("tok/s"):
            return None
        if self.per == "gpu":
            return self.value
        return self.value / self.gpu_count if self.per == "deployment" and self.gpu_count else None


@dataclasses.dataclass(frozen=True, slots=True)
class Statement:
    """What a document was found to state, for an assertion.

    Parameters
    ----------
    claim, assertion : str
        What it is about.
    value : float or None
        1 when the statement holds, 0 when it does not, or the number the document gives [unit];
        ``None`` when what was read does not settle it.
    unit : str
        Printed unit.
    source, locator, finding : str
        Where it was read, and one sentence saying what was read.
    """

    claim: str
    assertion: str
    value: float | None
    unit: str
    source: str
    locator: str
    finding: str


def measurements() -> list[Row]:
    """Return all published measurements as typed rows.

    Raises
    ------
    RecordError
        When a cell that should be a number is not.
    """
    return [_row(cells) for cells in store.published("measurements")]


def _row(cells: dict[str, str]) -> Row:
    number = functools.partial(_number, cells)
    value, unit = number("value"), units.base_of(cells["unit"] or "1")
    if value is not None:
        value = units.to_base(value, cells["unit"] or "1")[0]
    count = number("gpu_count")
    return Row(
        id=cells["row"],
        group=cells["group"],
        source=cells["source"],
        engine=cells["engine"],
        model=cells["model"],
        precision=cells["precision"],
        gpu=cells["gpu"],
        params=number("params_b"),
        gpu_count=None if count is None else int(count),
        inputs=number("input_tokens"),
        outputs=number("output_tokens"),
        workload=cells["workload"],
        concurrency=number("concurrency"),
        metric=cells["metric"],
        counting=cells["counting"],
        per=cells["per"],
        state=cells["state"],
        comparability=cells["comparability"],
        value=value,
        unit=unit,
    )


def _number(cells: dict[str, str], column: str) -> float | None:
    text = cells[column]
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise RecordError(
            f"'{text}' is not a number",
            where=f"data/published/measurements.csv, row {cells['row']}, {column}",
            fix="write a plain number or leave the cell empty",
        ) from None


def independent(rows: Iterable[Row]) -> int:
    """Return how many source groups stand behind rows: copies of one source count once."""
    return len({row.group for row in rows})


def statements(claim: str) -> Sequence[Statement]:
    """Return what documents were found to state about a claim's assertions."""
    return [
        Statement(
            claim=row["claim"],
            assertion=row["assertion"],
            value=float(row["value"]) if row["value"] else None,
            unit=row["unit"],
            source=row["source"],
            locator=row["locator"],
            finding=row["finding"],
        )
        for row in store.published("statements")
        if row["claim"] == claim
    ]


def record_statements(
    claim: records.Claim, *, parameters: Mapping[str, bool | int | float | str]
) -> list[records.Evidence]:
    """Save what documents state about a claim as evidence of basis ``documented``.

    Parameters
    ----------
    claim : Claim
        The claim.
    parameters : mapping
        The notebook's parameters.

    Returns
    -------
    list of Evidence
        One per row of ``data/published/statements.csv``.
    """
    saved = []
    for said in statements(claim.id):
        scope = claim.assertion(said.assertion).scope
        stated: dict[str, str | int] = {
            key: value
            for key in records.SCOPE_KEYS
            if isinstance(value := getattr(scope, key), str | int) and value != "n/a"
        }
        unit = units.base_of(said.unit)
        value = None if said.value is None else units.to_base(said.value, said.unit)[0]
        saved.append(
            store.found(
                claim,
                said.assertion,
                basis="documented",
                value=0.5 if value is None else value,
                low=0.0 if value is None else value,  # unsettled: it may or may not hold
                high=1.0 if value is None else value,
                unit=unit,
                method=f"{said.source}: {said.locator}",
                finding=said.finding,
                parameters=parameters,
                inputs=["data/published/statements.csv"],
                conditions=stated,
            )
        )
    return saved
