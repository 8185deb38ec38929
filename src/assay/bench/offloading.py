"""Offloading: published effects of KV offloading, the source's own arithmetic, and predictions.

Owns pairing published runs with and without a host tier, what the ten printed numbers imply about
each other, the twin's map, and recording all of it. Does not own the twin, the sums (`physics`) or
verdicts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from assay.bench.twin import tables
from assay.errors import DerivationError
from assay.ledger import matched, published, records, store
from assay.ledger import metric as metrics
from assay.physics import queueing, units

__all__ = [
    "Effect",
    "Waiting",
    "agreed",
    "bursts",
    "curve",
    "effects",
    "printed",
    "record",
    "record_arithmetic",
    "record_effects",
    "record_predictions",
    "record_waiting",
    "waiting",
]

Parameters = Mapping[str, bool | int | float | str]
_INPUT = "data/published/measurements.csv"
#: How an arm with a host tier and the one without begin in the table.
_ARMS = (
    ("LMCache CPU", "baseline"),
    ("CPU offload", "baseline"),
    ("KV offload on", "KV offload off"),
    ("native CPU offload", "no offload"),
)
#: The printed values of the source, by assertion: metric and base unit.
_PRINTED = {
    "throughput-percentage": ("output_throughput", "tok/s"),
    "ttft-percentage": ("ttft", "s"),
    "tpot-percentage": ("tpot", "s"),
    "itl-percentage": ("itl", "s"),
}
_GENERAL = "cpu-offload-general"
#: What must be the same besides what makes a match.
_ALIKE = ("statistic", "input_tokens", "output_tokens", "cached_share")
_PRESSED = "llmd-h100-32b-kv-above-hbm"  # the one source that says which side of memory it is on


@dataclasses.dataclass(frozen=True, slots=True)
class Effect:
    """One published run with a host tier against the same without.

    Parameters
    ----------
    match : Match
        The two rows.
    change : tuple of float
        Relative change: value, and its ends by the rounding of the printed numbers [1].
    counting : str
        ``output`` where the change is that of output tokens; empty for latencies and where the
        source does not say what it counts.
    """

    match: matched.Match
    change: tuple[float, float, float]
    counting: str

    @property
    def label(self) -> str:
        """Model, card and workload, for a figure."""
        card = self.match.card.replace(" 24GB", "")
        lengths = f"{self.match.above.inputs:.0f} tokens, " if self.match.above.inputs else ""
        special = self.match.arm.partition("with ")[2]
        words = f"{self.match.model}, {card}: {lengths}{self.match.above.workload}"
        return f"{words}, {special}" if special else words

    @property
    def under_pressure(self) -> bool:
        """Whether the source says that the cache exceeds the card's memory and prompts share."""
        return self.match.above.id.startswith(_PRESSED)


def effects(metric: str) -> list[Effect]:
    """Return the published effects of a host tier on throughput or TTFT.

    Parameters
    ----------
    metric : str
        ``throughput`` (output tokens, or all tokens of requests of equal lengths, whose change is
        the same) or ``ttft``.

    Returns
    -------
    list of Effect
        From the largest loss to the largest gain of the value.
    """
    names = ("output_throughput", "total_throughput", "throughput")
    cells = {c["row"]: c for c in store.published("measurements") if c["claim"] == _GENERAL}
    found = []
    for name in names if metric == "throughput" else (metric,):
        for above, below in _ARMS:
            for match in matched.matches(name, above=above, below=below):
                one, other = (cells.get(row.id) for row in (match.above, match.below))
                if one is None or other is None or any(one[k] != other[k] for k in _ALIKE):
                    continue
                value, low, high = match.ratio
                found.append(Effect(match, (value - 1, low - 1, high - 1), _counting(match)))
    # A run that prints both rates counts once.
    output = {(e.match.above.source, e.match.name) for e in found if _plain(e) == "output"}
    kept = [
        e
        for e in found
        if _plain(e) != "total" or (e.match.above.source, e.match.name) not in output
    ]
    return sorted(kept, key=lambda e: e.change[0])


def _plain(effect: Effect) -> str:
    return effect.match.above.counting


def _counting(match: matched.Match) -> str:
    row = match.above
    fixed = row.counting == "total" and row.inputs is not None and row.outputs is not None
    return "output" if row.counting == "output" or fixed else ""


def record(
    claim: records.Claim, found: Sequence[Waiting], *, prompt: int, parameters: Parameters
) -> list[records.Evidence]:
    """Save everything that bears on this claim: the source's own numbers, or published effects.

    Parameters
    ----------
    claim : Claim
        One of the two that share the notebook.
    found : sequence of Waiting
        From :func:`waiting`.
    prompt : int
        Length a prompt was taken to have [tok].
    parameters : mapping
        The notebook's.
    """
    if claim.id == _GENERAL:
        return record_effects(claim, parameters=parameters)
    saved = record_arithmetic(claim, parameters=parameters)
    return [*saved, record_waiting(claim, found, prompt=prompt, parameters=parameters)]


def record_effects(claim: records.Claim, *, parameters: Parameters) -> list[records.Evidence]:
    """Save published effects under the general assertions, and those under pressure once more."""
    saved = []
    for metric, assertion in (("throughput", "throughput-improves"), ("ttft", "ttft-improves")):
        for effect in effects(metric):
            if metric == "throughput" and not effect.counting:
                continue
            saved.append(_save(claim, assertion, effect, {}, parameters))
            if metric == "throughput" and effect.under_pressure:
                name = "throughput-improves-under-pressure"
                workload = {"workload": str(claim.assertion(name).scope.workload)}
                saved.append(_save(claim, name, effect, workload, parameters))
    return saved


def _save(
    claim: records.Claim,
    assertion: str,
    effect: Effect,
    instead: Mapping[str, str],
    parameters: Parameters,
) -> records.Evidence:
    row, (value, low, high) = effect.match.above, effect.change
    what = "TTFT" if assertion.startswith("ttft") else "throughput"
    return store.found(
        claim,
        assertion,
        basis="published",
        value=value,
        low=low,
        high=high,
        unit="1",
        method=f"{row.id} against {effect.match.below.id}; interval: rounding as printed",
        finding=f"{row.source}: {what} {value:+.1%} with a host tier ({effect.label}).",
        parameters=parameters,
        inputs=[_INPUT],
        conditions={
            "gpu": row.gpu or "unstated",
            "gpu_count": row.gpu_count or "unstated",
            "model": row.model or effect.match.model,
            "precision": row.precision or "unstated",
            "engine": row.engine or "unstated",
            "version": "unstated",
            "workload": row.workload,
            **({} if what == "TTFT" else {"counting": effect.counting}),
            **instead,
        },
    )


def _printed(metric: str) -> tuple[float, float]:
    rows = {
        row.id: row.value
        for row in published.measurements()
        if row.source == "jarvislabs-vllm-techniques" and row.metric == metric
    }
    pair = [next((v for i, v in rows.items() if i.endswith(e)), None) for e in _ENDS]
    if pair[0] is None or pair[1] is None:
        raise DerivationError(f"the source's {metric} is not in the table")
    return pair[0], pair[1]


_ENDS = ("-baseline", "-offload")


def printed() -> list[dict[str, str | float]]:
    """Return the source's printed pairs: metric, both values with their unit, and the change."""
    rows: list[dict[str, str | float]] = []
    for assertion, (metric, _) in _PRINTED.items():
        before, after = _printed(metric)
        ends = [_shown(x, assertion) for x in (before, after)]
        change = queueing.change(before, after)
        title = metrics.named(metric).title
        rows.append({"metric": title, "before": ends[0], "after": ends[1], "change": change})
    return rows


def _shown(value: float, assertion: str) -> str:
    unit = _PRINTED[assertion][1]
    return units.text(value, unit, display="ms" if unit == "s" else "", digits=5)


def bursts() -> list[published.Row]:
    """Return published mean TTFTs of bursts of 1,000 prompts of similar lengths [s]."""
    cells = {c["row"]: c for c in store.published("measurements") if c["claim"] == _GENERAL}
    return [
        row
        for row in published.measurements()
        if row.id in cells
        and cells[row.id]["load"].startswith("burst of 1000")
        and cells[row.id]["comparability"] in ("A", "A-")
        and row.metric == "ttft"
    ]


def record_arithmetic(claim: records.Claim, *, parameters: Parameters) -> list[records.Evidence]:
    """Save the percentages that follow from the source's printed values."""
    saved = []
    for assertion, (metric, _) in _PRINTED.items():
        before, after = _printed(metric)
        value = queueing.change(before, after)
        ends = [_shown(x, assertion) for x in (before, after)]
        saved.append(
            store.found(
                claim,
                assertion,
                basis="recomputed",
                value=value,
                unit="1",
                method="after over before, less one, of the printed values",
                finding=f"{ends[0]} to {ends[1]} is {value:+.2%}.",
                parameters=parameters,
                inputs=[_INPUT],
                conditions={},
            )
        )
    return saved


@dataclasses.dataclass(frozen=True, slots=True)
class Waiting:
    """What one column of the source's numbers implies.

    Parameters
    ----------
    arm : str
        ``before`` or ``after``.
    ttft, tpot : float
        As printed [s].
    at_once : float
        Requests answered at once, by Little's law [1].
    prompt : float
        Length at which prefill alone would take the TTFT, at the speed assumed [tok].
    waiting : float
        Share of TTFT that a prompt of the assumed length spends waiting [1].
    """

    arm: str
    ttft: float
    tpot: float
    at_once: float
    prompt: float
    waiting: float


def waiting(*, input_rate: float, prompt: int) -> list[Waiting]:
    """Return what the printed numbers imply about the queue, before and after.

    Parameters
    ----------
    input_rate : float
        Speed at which the server is taken to read prompts [tok/s].
    prompt : int
        Length a prompt is taken to have [tok].
    """
    found = []
    for place, arm in enumerate(("before", "after")):
        rate, ttft, tpot = (_printed(m)[place] for m in ("output_throughput", "ttft", "tpot"))
        found.append(
            Waiting(
                arm,
                ttft,
                tpot,
                queueing.decoding_at_once(rate, tpot),
                queueing.prefill_needed(ttft, input_rate),
                queueing.share_waiting(ttft, prompt / input_rate),
            )
        )
    return found


def record_waiting(
    claim: records.Claim, found: Sequence[Waiting], *, prompt: int, parameters: Parameters
) -> records.Evidence:
    """Save whether TTFT is prefill or waiting."""
    least = min(one.waiting for one in found)
    shown = " and ".join(f"{one.at_once:.0f}" for one in found)
    return store.found(
        claim,
        "ttft-is-prefill",
        basis="recomputed",
        value=float(least < 0.5),
        unit="1",
        method="Little's law on the printed rate and TPOT; prefill at the speed assumed",
        finding=f"About {shown} requests are answered at once, and a prompt of {prompt:,} tokens "
        f"waits for {least:.0%} of its TTFT or more: what fell is the queue.",
        parameters=parameters,
        inputs=[_INPUT],
        conditions={"engine": "vllm"},
    )


def record_predictions(claim: records.Claim, *, parameters: Parameters) -> list[records.Evidence]:
    """Save the map's largest predicted gain and loss, as what they are: they decide nothing."""
    columns = {"throughput-improves": "output_rate", "ttft-improves": "ttft_s"}
    rows = tables.read("offload")
    saved = []
    for assertion, column in columns.items() if claim.id == _GENERAL else ():
        without = _WITHOUT[column]
        changes = [(queueing.change(float(r[without]), float(r[column])), r) for r in rows]
        for value, row in (max(changes, key=_first), min(changes, key=_first)):
            link = units.text(float(row["link_b_per_s"]), "B/s", display="GB/s")
            load = f"KV pressure {row['pressure']}, reuse {row['reuse']}, link {link}"
            count = {"counting": "output"} if column == "output_rate" else {}
            saved.append(
                store.found(
                    claim,
                    assertion,
                    basis="simulated",
                    value=value,
                    unit="1",
                    method="vLLM's scheduler and offloading connector on a modelled clock",
                    finding=f"Predicted: {value:+.1%} with a host tier ({load}).",
                    parameters=parameters,
                    inputs=["data/twin/offload.csv"],
                    conditions={
                        "gpu": row["gpu"],
                        "gpu_count": 1,
                        "model": row["model"],
                        "precision": "w16a16",
                        "engine": "vllm",
                        "version": tables.read("budgets")[0]["version"],
                        "workload": load,
                        **count,
                    },
                )
            )
    return saved


def _first(pair: tuple[float, Mapping[str, str]]) -> float:
    return pair[0]


_WITHOUT = {"output_rate": "output_rate_without", "ttft_s": "ttft_without_s"}


def agreed() -> dict[str, str]:
    """Return what a page says of the twin with a tier beside a really running engine, by name."""
    rows = [row for row in tables.read("steps") if "host" in row["workload"]]
    steps, tokens = (sum(int(row[name]) for row in rows) for name in ("steps", "host_hits_tok"))
    return {
        "host_cases": str(len(rows)),
        "host_same": str(sum(row["identical"] == "yes" for row in rows)),
        "host_steps": f"{steps:,}",
        "host_tokens": f"{tokens:,}",
    }


def curve(column: str, *, reuse: float, link: float) -> list[tuple[float, float]]:
    """Return a predicted relative change against KV pressure [1], [1].

    Parameters
    ----------
    column : str
        ``output_rate`` or ``ttft_s``.
    reuse : float
        Share of each prompt that comes back [1].
    link : float
        Speed of the link [B/s].
    """
    without = _WITHOUT[column]
    return [
        (float(row["pressure"]), queueing.change(float(row[without]), float(row[column])))
        for row in tables.read("offload")
        if float(row["reuse"]) == reuse and float(row["link_b_per_s"]) == link
    ]
