"""Rivals: published measurements of one producer that differ in the engine, or in the card, alone.

Owns pairing such rows, the ratio of each pair, how often the first leads, and saving the pairs as
evidence. Does not own the rows (``published``), pairs of other arms (``matched``) or verdicts.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from assay.errors import DerivationError
from assay.ledger import matched, published, rates, records, store
from assay.physics import units

__all__ = [
    "Pair",
    "cards",
    "engines",
    "gains",
    "lead_table",
    "leads",
    "printed",
    "record",
    "record_impossible",
    "record_mix",
    "record_printed",
    "record_unreached",
    "record_unscaled",
    "together",
    "widest",
]

Cells = Mapping[str, str]
Parameters = Mapping[str, bool | int | float | str]

# A client counts the tokens it got, so two arms over the same prompts differ in the last digits;
# the widest such difference in the table is 0.9 %.
_SAME_LENGTH = 0.02
_SHARED = ("group", "source", "arm", "model", "precision", "workload", "load", "concurrency")
_MEASURE = ("metric", "statistic", "counting", "per", "kv_dtype", "gpu_count", "cached_share")
# One rate a pair: generated tokens where they are printed, else requests over the same prompts.
_RATES = ("output_throughput", "request_throughput")


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """Two published rates of one producer, or a ratio that the producer printed.

    Parameters
    ----------
    name : str
        Model, card and load, for a label.
    group, source : str
        Who measured, and where it is printed.
    ratio, low, high : float
        First over second, with the rounding of what was printed [1].
    conditions : mapping
        What both rows share, in the words of scopes; an engine or a card that differs is ``any``.
    rows : tuple of str
        Row ids behind it.
    """

    name: str
    group: str
    source: str
    ratio: float
    low: float
    high: float
    conditions: Mapping[str, str | int]
    rows: tuple[str, ...]


def engines(first: str, second: str, *, metric: str = "") -> list[Pair]:
    """Pair rows of two engines on the same host, with the same model and prompts.

    Parameters
    ----------
    first, second : str
        Engines as the table names them.
    metric : str
        A latency such as ``ttft``; throughput when empty, with the ratios that a producer printed
        without the two rates.

    Returns
    -------
    list of Pair
        First over second, in the order of the table.

    Examples
    --------
    >>> found = engines("SGLang", "vLLM")
    >>> [pair.name for pair in found if pair.ratio > 2.9]
    ['llama-3-70b, 8×a100, data set 2']
    """
    wanted = (metric,) if metric else _RATES
    rows = [c for c in _evidence() if c["metric"] in wanted]
    found = [
        _pair(a, b)
        for a in rows
        for b in rows
        if (a["engine"], b["engine"]) == (first, second)
        and a["gpu"] == b["gpu"]
        and _alike(a, b)
        and not (a["metric"] == "request_throughput" and _also(a, _RATES[0], rows))
    ]
    return found if metric else [*found, *_printed_ratios(first, second)]


def cards(first: str, second: str) -> list[Pair]:
    """Pair rates of one engine and release on as many cards of two kinds.

    Parameters
    ----------
    first, second : str
        How the device ids begin, for example ``a100`` and ``h100``; 80 GB cards only.

    Returns
    -------
    list of Pair
        First over second, in the order of the table. Form factors may differ; the names say so.

    Examples
    --------
    >>> all(pair.ratio < 1 for pair in cards("a100", "h100"))
    True
    """
    metrics = (*_RATES, "decode_throughput", "prefill_throughput")
    rows = [c for c in _evidence() if c["metric"] in metrics and c["gpu"].endswith("80gb")]
    return [
        _pair(a, b)
        for a in rows
        for b in rows
        if a["gpu"].startswith(first)
        and b["gpu"].startswith(second)
        and all(a[key] == b[key] for key in ("engine", "engine_version"))
        and _alike(a, b)
    ]


def _evidence() -> list[Cells]:
    return [c for c in store.published("measurements") if c["role"] == "evidence" and c["value"]]


def _alike(a: Cells, b: Cells) -> bool:
    lengths = [(a[key], b[key]) for key in ("input_tokens", "output_tokens")]
    return all(a[key] == b[key] for key in (*_SHARED, *_MEASURE)) and all(
        x == y or (x and y and abs(float(x) / float(y) - 1) < _SAME_LENGTH) for x, y in lengths
    )


def _also(cells: Cells, metric: str, rows: Iterable[Cells]) -> bool:
    same = ("engine", "gpu", "gpu_count", *_SHARED)
    return any(c["metric"] == metric and all(c[k] == cells[k] for k in same) for c in rows)


def _pair(a: Cells, b: Cells) -> Pair:
    (x, dx), (y, dy) = matched.printed(a), matched.printed(b)
    return Pair(
        name=_name(a, b),
        group=a["group"],
        source=a["source"],
        ratio=x / y,
        low=(x - dx) / (y + dy),
        high=(x + dx) / (y - dy),
        conditions=_conditions(a, b),
        rows=(a["row"], b["row"]),
    )


def _printed_ratios(first: str, second: str) -> list[Pair]:
    found = []
    for cells in _evidence():
        baseline = cells["arm"].startswith(second) and cells["arm"].endswith("is the baseline")
        if cells["metric"] == "throughput_ratio" and cells["engine"] == first and baseline:
            ratio, give = matched.printed(cells)
            found.append(
                Pair(
                    name=_name(cells, cells),
                    group=cells["group"],
                    source=cells["source"],
                    ratio=ratio,
                    low=ratio - give,
                    high=ratio + give,
                    conditions={**_conditions(cells, cells), "engine": "any"},
                    rows=(cells["row"],),
                )
            )
    return found


def _card(cells: Cells) -> str:
    kind, _, rest = cells["gpu"].partition("-")
    plain = kind if rest.startswith("sxm") else f"{kind} {rest.partition('-')[0]}"
    return plain if cells["gpu_count"] == "1" else f"{cells['gpu_count']}×{plain}"


def _name(a: Cells, b: Cells) -> str:
    card = _card(a) if a["gpu"] == b["gpu"] else f"{_card(a)}/{_card(b)}"
    engine = [a["engine"]] if a["gpu"] != b["gpu"] else []
    load = a["workload"].removesuffix(" of the post") or a["metric"].removesuffix("_throughput")
    if load == "sharegpt":  # the usual one: bursts, unless said otherwise
        load = "" if a["load"].startswith("burst") else f"{a['concurrency']} in flight"
    elif not a["workload"] and a["input_tokens"] and a["output_tokens"]:
        load = f"{a['input_tokens']}/{a['output_tokens']}"
    return ", ".join(part for part in (*engine, a["model"], card, load) if part)


def _conditions(a: Cells, b: Cells) -> dict[str, str | int]:
    return {
        "gpu": a["gpu"] if a["gpu"] == b["gpu"] else "any",
        "gpu_count": int(a["gpu_count"]) if a["gpu_count"] else "unstated",
        "model": a["model"],
        "precision": a["precision"] or "unstated",
        "engine": a["engine"] if a["engine"] == b["engine"] else f"{a['engine']}, {b['engine']}",
        "version": f"{a['engine_version']}, {b['engine_version']}",
        "workload": f"{a['workload'] or 'fixed lengths'}, {a['load'] or a['concurrency']}",
        "counting": "output" if a["counting"] in ("output", "requests") else a["counting"],
    }


def leads(pairs: Sequence[Pair], *, level: float = 0.95) -> tuple[int, float, float, float]:
    """Return how often the first of a pair leads: count, share, and Wilson's interval.

    Parameters
    ----------
    pairs : sequence of Pair
        At least one.
    level : float
        Nominal coverage [1].

    Returns
    -------
    tuple of (int, float, float, float)
        Pairs with a ratio above 1; their share; lower and upper end [1].

    Raises
    ------
    DerivationError
        When there is no pair.

    Notes
    -----
    Wilson (1927), Journal of the American Statistical Association 22, 209-212. Pairs count as
    independent draws, which pairs of one producer are not: the interval is too narrow rather than
    too wide.

    Examples
    --------
    >>> count, share, low, high = leads(engines("vLLM", "SGLang", metric="ttft"))
    >>> count, round(share, 2), round(low, 2), round(high, 2)
    (10, 0.59, 0.36, 0.78)
    """
    from scipy import stats

    if not pairs:
        raise DerivationError("no pair to count", fix="name engines that share a host")
    ahead = sum(pair.ratio > 1 for pair in pairs)
    span = stats.binomtest(ahead, len(pairs)).proportion_ci(level, method="wilson")
    return ahead, ahead / len(pairs), float(span.low), float(span.high)


def lead_table(pairs: Sequence[Pair], by: Callable[[Pair], str]) -> list[dict[str, str | int]]:
    """Return one row per group: pairs, leads, share with its interval, median and extremes.

    Parameters
    ----------
    pairs : sequence of Pair
        To be grouped.
    by : callable
        Names the group of a pair.

    Returns
    -------
    list of dict
        In order of first appearance.
    """
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(by(pair), []).append(pair)
    rows: list[dict[str, str | int]] = []
    for name, members in groups.items():
        ahead, share, low, high = leads(members)
        found = [member.ratio for member in members]
        rows.append(
            {
                "group": name,
                "pairs": len(members),
                "first leads": ahead,
                "share": f"{share:.0%}, {low:.0%} to {high:.0%}",
                "median ratio": f"{statistics.median(found):.2f}×",
                "range": f"{min(found):.2f} to {max(found):.2f}×",
            }
        )
    return rows


def record(
    claim: records.Claim,
    assertion: str,
    pairs: Sequence[Pair],
    *,
    finding: str,
    parameters: Parameters,
    model: str = "",
) -> list[records.Evidence]:
    """Save pairs as evidence of basis ``published``, one each.

    Parameters
    ----------
    claim : Claim
        The claim.
    assertion : str
        A ratio.
    pairs : sequence of Pair
        As :func:`engines` or :func:`cards` returns them.
    finding : str
        Sentence with ``{name}``, ``{ratio}``, ``{inverse}`` and ``{source}``.
    parameters : mapping
        The notebook's parameters.
    model : str
        Scope's name for the models of the pairs, when it names a kind; their own when empty.
    """
    scope = claim.assertion(assertion).scope
    saved = []
    for pair in pairs:
        place = {**pair.conditions, **({"model": model} if model else {})}
        inside = {k: v for k, v in place.items() if getattr(scope, k) != "n/a"}
        saved.append(
            store.found(
                claim,
                assertion,
                basis="published",
                value=pair.ratio,
                low=pair.low,
                high=pair.high,
                unit="1",
                method=f"{' over '.join(pair.rows)}; interval: rounding as printed",
                finding=finding.format(
                    name=pair.name,
                    ratio=f"{pair.ratio:.2f}×",
                    inverse=f"{1 / pair.ratio:.2f}×",
                    source=pair.source,
                ),
                parameters=parameters,
                inputs=["data/published/measurements.csv"],
                conditions=inside,
            )
        )
    return saved


def record_mix(
    claim: records.Claim,
    assertion: str,
    pairs: Sequence[Pair],
    *,
    parameters: Parameters,
) -> list[records.Evidence]:
    """Save what one card does against another at any mix of prompt and output.

    Parameters
    ----------
    claim : Claim
        The claim.
    assertion : str
        A ratio of throughputs.
    pairs : sequence of Pair
        Prefill and decode rates of the same runs, one stream at a time.
    parameters : mapping
        The notebook's parameters.

    Returns
    -------
    list of Evidence
        One per pair of cards, from the smaller to the larger of the two ratios.

    Notes
    -----
    One stream takes i/p + o/d seconds for i input and o output tokens. The ratio of two such times
    lies between p'/p and d'/d whatever i and o, and so do the ratios of output and of total rates.
    """
    by_cards: dict[tuple[str, ...], list[Pair]] = {}
    for pair in pairs:
        by_cards.setdefault(tuple(r.rpartition("-")[0] for r in pair.rows), []).append(pair)
    saved = []
    for found in by_cards.values():
        if len(found) != 2:
            continue
        low, high = min(p.low for p in found), max(p.high for p in found)
        first = found[0]
        place: dict[str, str | int] = {
            **first.conditions,
            "model": str(claim.assertion(assertion).scope.model),
            "counting": "any",
        }
        scope = claim.assertion(assertion).scope
        saved.append(
            store.found(
                claim,
                assertion,
                basis="published",
                value=(low + high) / 2,
                low=low,
                high=high,
                unit="1",
                method=f"{' and '.join(r for p in found for r in p.rows)}: between the two ratios",
                finding=f"{first.name.rpartition(', ')[0]}: the first reaches {low:.2f} to "
                f"{high:.2f} of the second's rate at any mix of input and output, one stream at a "
                f"time ({first.source}).",
                parameters=parameters,
                inputs=["data/published/measurements.csv"],
                conditions={k: v for k, v in place.items() if getattr(scope, k) != "n/a"},
            )
        )
    return saved


def printed(first: records.Claim, second: records.Claim) -> list[tuple[str, float, float]]:
    """Return the engines in both claims with the rates that each prints [tok/s].

    Examples
    --------
    >>> [a / b > 1 for _, a, b in printed(
    ...     store.claim("deploybase-a100-table"), store.claim("spheron-h100-table"))]
    [True, True, True]
    """
    tables = [
        {str(a.scope.engine): a.claimed[0] for a in rates.claimed(claim) if a.headline}
        for claim in (first, second)
    ]
    return [(name, rate, tables[1][name]) for name, rate in tables[0].items() if name in tables[1]]


def record_printed(
    claim: records.Claim,
    assertion: str,
    rows: Sequence[tuple[str, float, float]],
    *,
    parameters: Parameters,
) -> records.Evidence:
    """Save whether the first printed rate of every engine is the larger one.

    Parameters
    ----------
    claim : Claim
        The claim.
    assertion : str
        The statement that it is.
    rows : sequence of (str, float, float)
        As :func:`printed` returns them.
    parameters : mapping
        The notebook's parameters.
    """
    ratios = {name: first / second for name, first, second in rows}
    words = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
    return store.found(
        claim,
        assertion,
        basis="recomputed",
        value=float(min(ratios.values()) > 1),
        unit="1",
        method="first printed rate over the second, per engine",
        finding=f"The printed rates divide to {words}, without regard to their conditions.",
        parameters=parameters,
        inputs=["data/claims/deploybase-a100-table.yml", "data/claims/spheron-h100-table.yml"],
        conditions={},
    )


def gains(
    curves: Mapping[str, Sequence[tuple[float, float]]], first: str, second: str
) -> list[float]:
    """Return how much higher the second card's limits are, at equal format and batch [1].

    Parameters
    ----------
    curves : mapping of str to sequence of (batch, rate)
        Limits, named by card and number format as in ``a100, w8a8``.
    first, second : str
        Cards as the names begin.

    Examples
    --------
    >>> gains({"a, bf16": [(1, 2.0)], "b, bf16": [(1, 3.0)]}, "a", "b")
    [1.5]
    """
    return [
        after / before
        for name, curve in curves.items()
        if name.startswith(f"{first}, ")
        for (_, before), (_, after) in zip(
            curve, curves[name.replace(first, second, 1)], strict=True
        )
    ]


def record_impossible(
    claim: records.Claim,
    assertion: str,
    judged: Iterable[tuple[records.Assertion, bool]],
    *,
    inputs: Sequence[str],
    parameters: Parameters,
) -> list[records.Evidence]:
    """Save that a rate is above its limit under its own conditions, so no condition explains it.

    Parameters
    ----------
    claim : Claim
        The claim.
    assertion : str
        A statement that the conditions explain the rates.
    judged : iterable of (Assertion, bool)
        Each printed rate, and whether any admissible reading allows it.
    inputs : sequence of str
        Files the limits depend on.
    parameters : mapping
        The notebook's parameters.

    Returns
    -------
    list of Evidence
        One per rate that nothing allows. A rate that some reading allows says nothing here.
    """
    place = _as_scoped(claim.assertion(assertion))
    return [
        store.found(
            claim,
            assertion,
            basis="bound",
            value=0.0,
            unit="1",
            method="closed form, every admissible number format and counting rule",
            finding=f"{rate.scope.engine}'s printed {units.number(rate.claimed[0])} tok/s is above "
            "the limit of one such card at its own lengths and batch, under every number format "
            "and counting rule, so a difference in lengths and batch cannot be the reason.",
            parameters=parameters,
            inputs=inputs,
            conditions=place,
        )
        for rate, allowed in judged
        if not allowed
    ]


def record_unreached(
    claim: records.Claim,
    assertion: str,
    rows: Sequence[tuple[str, float, float]],
    near: Sequence[published.Row],
    *,
    parameters: Parameters,
) -> list[records.Evidence]:
    """Save that no published rate of the first card comes near the rates printed for it.

    Parameters
    ----------
    claim : Claim
        The claim.
    assertion : str
        A statement that the conditions explain the printed rates.
    rows : sequence of (str, float, float)
        As :func:`printed` returns them.
    near : sequence of Row
        As :func:`assay.ledger.rates.beside` returns them, the fastest first.
    parameters : mapping
        The notebook's parameters.

    Returns
    -------
    list of Evidence
        None when one printed rate has been reached.
    """
    rated = [first for _, first, _ in rows]
    top = (near[0].total_per_gpu or 0.0) if near else math.inf
    if min(rated) <= top:
        return []
    groups = published.independent(near)
    return [
        store.found(
            claim,
            assertion,
            basis="published",
            value=0.0,
            unit="1",
            n=groups,
            method="smallest printed rate against the largest published rate per card",
            finding=f"The printed rates are {min(rated) / top:.1f} to {max(rated) / top:.1f} times "
            f"the largest published rate of such a card, {units.number(top)} tok/s with input "
            f"tokens counted, at any load ({len(near)} rows of {groups} independent sources), so "
            "lengths and batch do not explain them.",
            parameters=parameters,
            inputs=["data/published/measurements.csv"],
            conditions=_as_scoped(claim.assertion(assertion)),
        )
    ]


def _as_scoped(assertion: records.Assertion) -> dict[str, str | int]:
    return {
        key: value
        for key in records.SCOPE_KEYS
        if isinstance(value := getattr(assertion.scope, key), str | int) and value != "n/a"
    }


def record_unscaled(
    claim: records.Claim, assertion: str, *, parameters: Parameters
) -> records.Evidence:
    """Save that a number is printed without unit, scale or rule, so that it excludes nothing.

    Parameters
    ----------
    claim : Claim
        The claim.
    assertion : str
        A score without unit.
    parameters : mapping
        The notebook's parameters.
    """
    asked = claim.assertion(assertion)
    return store.found(
        claim,
        assertion,
        basis="documented",
        value=asked.claimed[0],
        low=None,
        high=None,
        unit=units.base_of(asked.unit),
        method=f"{claim.source}: {claim.locator}",
        finding="The number stands without unit, scale or rule of scoring, and its source was not "
        "found: any difference between the engines agrees with it.",
        parameters=parameters,
        inputs=[f"data/claims/{claim.id}.yml"],
        conditions=dict.fromkeys(
            (key for key in records.SCOPE_KEYS if getattr(asked.scope, key) != "n/a"), "unstated"
        ),
    )


def widest(pairs: Iterable[Pair]) -> list[Pair]:
    """Return pairs by ratio, the largest first."""
    return sorted(pairs, key=lambda pair: (-pair.ratio, pair.name))


def together(first: Sequence[Pair], second: Sequence[Pair]) -> list[tuple[Pair, Pair]]:
    """Return pairs of two metrics over the same model, cards and load."""
    return [(a, b) for a, b in itertools.product(first, second) if a.name == b.name]
