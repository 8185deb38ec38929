"""Rates: claimed throughputs held against limits, publications and each other.

Owns reading a claimed rate's workload and admissible readings, and turning a comparison into
evidence of basis ``bound``, ``published`` or ``recomputed``. Does not own the limits
(``physics.readings``), the published table (``published``) or the verdict.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from assay.errors import RecordError
from assay.ledger import published, records, store
from assay.physics import accelerator, conditions, readings, units
from assay.physics import possible as limits
from assay.physics import rate as rates

__all__ = [
    "Load",
    "beside",
    "by_devices",
    "claimed",
    "limit_curve",
    "load",
    "orders",
    "possible",
    "read",
    "record_bounds",
    "record_orders",
    "record_published",
    "resembling",
]

Parameters = Mapping[str, bool | int | float | str]

# Claims name weights and activations; physics names 16-bit weights by their format.
_FORMATS = {"w16a16": "bf16"}
_LOAD = re.compile(r"^(\d+) in, (\d+) out, (?:batch ([\d/]+)|(\d+) requests?)$")


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """A workload as claims write it.

    Parameters
    ----------
    inputs, outputs : float
        Tokens of a request [tok].
    concurrency : float
        Requests in flight; the largest when several are named, which favours the claim.
    """

    inputs: float
    outputs: float
    concurrency: float


def load(words: object) -> Load:
    """Read a workload such as ``512 in, 128 out, batch 1/8/32``.

    Parameters
    ----------
    words : str
        The scope's ``workload``.

    Returns
    -------
    Load
        Lengths and concurrency.

    Raises
    ------
    RecordError
        When the words are of another form.

    Examples
    --------
    >>> load("512 in, 128 out, batch 1/8/32")
    Load(inputs=512.0, outputs=128.0, concurrency=32.0)
    """
    match = _LOAD.match(str(words))
    if not match:
        raise RecordError(
            f"workload '{words}' cannot be read",
            fix="write '512 in, 128 out, batch 1/8/32' or '512 in, 256 out, 50 requests'",
        )
    inputs, outputs, batches, requests = match.groups()
    largest = max(float(b) for b in (batches or requests).split("/"))
    return Load(float(inputs), float(outputs), largest)


def claimed(claim: records.Claim) -> list[records.Assertion]:
    """Return the assertions of a claim that are rates of tokens."""
    return [a for a in claim.assertions if a.metric.endswith("throughput") and a.unit == "tok/s"]


def read(
    assertion: records.Assertion, model: conditions.ModelFacts, card: accelerator.Accelerator
) -> list[readings.Reading]:
    """Hold a claimed rate against the device's limits under every admissible reading.

    Parameters
    ----------
    assertion : Assertion
        A rate in tok/s with a workload; precision and counting may be unstated.
    model : ModelFacts
        The model claimed.
    card : Accelerator
        The device claimed.

    Returns
    -------
    list of Reading
        One per combination of precision and counting that the scope admits, named as the scope
        names them.
    """
    return [
        dataclasses.replace(reading, precision=precision)
        for precision, counting in itertools.product(
            _admissible(assertion.scope.precision), _admissible(assertion.scope.counting)
        )
        for reading in readings.enumerate_readings(
            _rate(assertion), model, card, _conditions(assertion, precision, counting)
        )
    ]


def _conditions(
    assertion: records.Assertion, precision: str, counting: str
) -> conditions.Conditions:
    asked = load(assertion.scope.workload)
    return conditions.Conditions(
        gpus=int(str(assertion.scope.gpu_count)),
        inputs=asked.inputs,
        outputs=asked.outputs,
        concurrency=asked.concurrency,
        precision=_FORMATS.get(precision, precision),
        counting=counting,
    )


def _rate(assertion: records.Assertion) -> rates.Rate:
    value, unit = units.to_base(assertion.claimed[0], assertion.unit)
    return rates.Rate(value, unit, "throughput", per_gpu=False)


def by_devices(
    assertion: records.Assertion,
    model: conditions.ModelFacts,
    card: accelerator.Accelerator,
    counts: Sequence[int] = (1, 2, 4, 8),
) -> list[tuple[int, readings.Reading]]:
    """Hold a claimed rate against the limits of several numbers of devices.

    Parameters
    ----------
    assertion : Assertion
        A rate in tok/s with a workload; its own number of devices is set aside.
    model : ModelFacts
        The model claimed.
    card : Accelerator
        The device claimed.
    counts : sequence of int
        Numbers of devices; a tensor-parallel deployment halves and doubles.

    Returns
    -------
    list of (int, Reading)
        Every admissible reading for every number of devices, communication ignored.
    """
    return [
        (count, dataclasses.replace(reading, precision=precision))
        for count in counts
        for precision, counting in itertools.product(
            _admissible(assertion.scope.precision), _admissible(assertion.scope.counting)
        )
        for reading in readings.enumerate_readings(
            _rate(assertion),
            model,
            card,
            dataclasses.replace(_conditions(assertion, precision, counting), gpus=count),
        )
    ]


def limit_curve(
    assertion: records.Assertion,
    model: conditions.ModelFacts,
    card: accelerator.Accelerator,
    *,
    precision: str,
    batches: Sequence[int],
) -> list[tuple[float, float]]:
    """Return the limit on generated tokens against the requests in flight.

    Parameters
    ----------
    assertion : Assertion
        For its lengths and number of devices.
    model : ModelFacts
        The model claimed.
    card : Accelerator
        The device claimed.
    precision : str
        One number format, as scopes name it.
    batches : sequence of int
        Requests in flight.

    Returns
    -------
    list of (batch, tok/s)
        Points of the curve.
    """
    stated = _conditions(assertion, precision, "output")
    curve = []
    for batch in batches:
        here = dataclasses.replace(stated, concurrency=float(batch))
        [limit] = readings.enumerate_readings(_rate(assertion), model, card, here)
        if limit.ceiling is not None:
            curve.append((float(batch), limit.ceiling))
    return curve


def possible(
    assertion: records.Assertion,
    model: conditions.ModelFacts,
    card: accelerator.Accelerator,
    *,
    precision: str = "any",
) -> dict[str, Any]:
    """Judge a claimed rate and say what it would need; see ``physics.possible``.

    Parameters
    ----------
    assertion : Assertion
        A rate in tok/s with a workload.
    model : ModelFacts
        The model claimed.
    card : Accelerator
        The device claimed.
    precision : str
        One number format, or ``any``.
    """
    return limits.possible(_rate(assertion), model, card, _conditions(assertion, precision, "any"))


def _admissible(value: records.ScopeValue) -> tuple[str, ...]:
    return value.unstated if isinstance(value, records.Unstated) else (str(value),)


def _stated(assertion: records.Assertion) -> dict[str, str | int]:
    """Return the conditions under which every engine and release shares one limit."""
    scope = assertion.scope
    plain: dict[str, str | int] = {
        key: value
        for key in ("gpu", "gpu_count", "model", "workload")
        if not isinstance(value := getattr(scope, key), records.Unstated)
    }
    return {**plain, "engine": "any", "version": "any"}


def record_bounds(
    claim: records.Claim,
    judged: Iterable[tuple[records.Assertion, readings.Reading]],
    *,
    inputs: Sequence[str],
    parameters: Parameters,
) -> list[records.Evidence]:
    """Save one piece of evidence of basis ``bound`` per reading.

    Parameters
    ----------
    claim : Claim
        The claim.
    judged : iterable of (Assertion, Reading)
        As ``read`` returns them.
    inputs : sequence of str
        Files the limits depend on.
    parameters : mapping
        The notebook's parameters.

    Returns
    -------
    list of Evidence
        The interval of each is from zero to the limit; zero alone where the weights do not fit.
    """
    saved = []
    for assertion, reading in judged:
        top = reading.ceiling if reading.fits and reading.ceiling is not None else 0.0
        saved.append(
            store.found(
                claim,
                assertion.id,
                basis="bound",
                value=top,
                low=0.0,
                high=top,
                unit="tok/s",
                method=f"closed form, limited by {reading.limited_by}",
                finding=_bound_words(assertion, reading),
                parameters=parameters,
                inputs=inputs,
                conditions={
                    **_stated(assertion),
                    "precision": str(reading.precision),
                    "counting": str(reading.counting),
                },
            )
        )
    return saved


def _bound_words(assertion: records.Assertion, reading: readings.Reading) -> str:
    cards = "one card" if reading.gpus == 1 else f"{reading.gpus} cards"
    if not reading.fits:
        return f"In {reading.precision} the weights do not fit on {cards}."
    counted = {"output": "generated tokens", "total": "input and output tokens"}
    relation = "below" if reading.ratio > 1 else "not below"
    return (
        f"In {reading.precision}, counting {counted[str(reading.counting)]}, {cards} can make at "
        f"most {units.number(reading.ceiling or 0.0)} tok/s ({reading.limited_by}), which is "
        f"{relation} the claimed {units.number(assertion.claimed[0])}."
    )


def beside(
    rows: Iterable[published.Row], *, gpu: str, parameters: float, most_cards: int
) -> list[published.Row]:
    """Select published rates that may stand beside a claim about few cards.

    Parameters
    ----------
    rows : iterable of Row
        All published measurements.
    gpu : str
        Device id.
    parameters : float
        Model size [1]; rows within 10 % are taken.
    most_cards : int
        Rows of at most this many cards.

    Returns
    -------
    list of Row
        Rows of comparability A or A- with a rate per card, the fastest first. A decode-only or
        prefill-only rate is not the rate of a workload and is left out.
    """
    near = [
        row
        for row in rows
        if row.gpu == gpu
        and row.params is not None
        and abs(row.params * 1e9 / parameters - 1) < 0.1
        and row.gpu_count is not None
        and row.gpu_count <= most_cards
        and row.total_per_gpu is not None
        and row.comparability in ("A", "A-")
        and not row.metric.startswith(("decode", "prefill"))
    ]
    return sorted(near, key=lambda row: (-(row.total_per_gpu or 0.0), row.id))


def resembling(
    rows: Iterable[published.Row], value: float, *, gpu: str, parameters: float, most: int = 3
) -> list[tuple[published.Row, str, float]]:
    """Return the published deployments whose rate comes nearest to a claimed one.

    Parameters
    ----------
    rows : iterable of Row
        All published measurements.
    value : float
        The claimed rate [tok/s].
    gpu : str
        Device id; any number of devices.
    parameters : float
        Model size [1]; rows within 10 % are taken.
    most : int
        How many to return.

    Returns
    -------
    list of (Row, str, float)
        The row, which tokens it counts (``output`` or ``total``), and the rate of its whole
        deployment [tok/s], the nearest ratio first. A resemblance is an inference about what may
        have been run, never evidence.
    """
    found = []
    for row in rows:
        near = row.params is not None and abs(row.params * 1e9 / parameters - 1) < 0.1
        if row.gpu != gpu or not near or row.gpu_count is None or row.comparability == "C":
            continue
        for counting, each in (("output", row.output_per_gpu), ("total", row.total_per_gpu)):
            if each:
                found.append((row, counting, each * row.gpu_count))
    return sorted(found, key=lambda f: (abs(math.log(f[2] / value)), f[0].id))[:most]


def record_published(
    claim: records.Claim,
    assertions: Iterable[records.Assertion],
    rows: Sequence[published.Row],
    *,
    parameters: Parameters,
) -> list[records.Evidence]:
    """Save the largest published rate per card as evidence about each claimed rate.

    Parameters
    ----------
    claim : Claim
        The claim.
    assertions : iterable of Assertion
        Claimed rates for one card.
    rows : sequence of Row
        As ``beside`` returns them; nothing is saved when there are none.
    parameters : mapping
        The notebook's parameters.

    Returns
    -------
    list of Evidence
        The interval is from zero to the largest rate of any engine, input tokens added: it can
        speak against a larger claim and never against a smaller one.
    """
    if not rows:
        return []
    top, groups = rows[0].total_per_gpu or 0.0, published.independent(rows)
    words = (
        f"No published rate of such a card exceeds {units.number(top)} tok/s, input and output "
        f"tokens together ({len(rows)} rows of {groups} independent sources)."
    )
    return [
        store.found(
            claim,
            assertion.id,
            basis="published",
            value=top,
            low=0.0,
            high=top,
            unit="tok/s",
            n=groups,
            method="largest published rate per card; input added where only output is printed",
            finding=words,
            parameters=parameters,
            inputs=["data/published/measurements.csv"],
            conditions={**_stated(assertion), "precision": "any", "counting": "any"},
        )
        for assertion in assertions
    ]


def orders(claim: records.Claim) -> list[tuple[records.Assertion, float]]:
    """Return each claimed order with the smallest ratio between its neighbours.

    The values are the claim's own headline rates, so this is arithmetic on the source's numbers.
    """
    printed = {str(a.scope.engine): a.claimed[0] for a in claimed(claim) if a.headline}
    found = []
    for assertion in claim.assertions:
        names = assertion.value
        if (
            assertion.relation == "order"
            and isinstance(names, tuple)
            and set(names) <= set(printed)
        ):
            found.append(
                (
                    assertion,
                    min(printed[str(a)] / printed[str(b)] for a, b in itertools.pairwise(names)),
                )
            )
    return found


def record_orders(claim: records.Claim, *, parameters: Parameters) -> list[records.Evidence]:
    """Save the arithmetic on each claimed order as evidence of basis ``recomputed``."""
    return [
        store.found(
            claim,
            assertion.id,
            basis="recomputed",
            value=ratio,
            unit="1",
            method="smallest ratio between neighbours of the printed rates",
            finding=f"The smallest ratio between neighbours of the printed rates is "
            f"{units.number(ratio)}: the order {'holds' if ratio >= 1 else 'does not hold'} in the "
            "source's own numbers.",
            parameters=parameters,
            inputs=[f"data/claims/{claim.id}.yml"],
            conditions={},
        )
        for assertion, ratio in orders(claim)
    ]
