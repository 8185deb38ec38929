"""Link map: the measured effect of a host tier over links of chosen speed, on a processor.

Owns the changes that the study shows, what a page says of them, and recording them where they
decide nothing. Does not own the study (``linkstudy``) or measuring it (``throttled``).

The claim's general statements are made for any GPU, and a processor is none. Its changes are kept
beside the statement about KV demand above *GPU memory*, of which they are out of scope by their
workload, so that nothing measured here can vote on any.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.bench import linkstudy, throttled, tier
from assay.bench.linkstudy import METRICS, Study
from assay.bench.load import rows
from assay.bench.tier import Kind
from assay.ledger import records, stats, store
from assay.physics import units

__all__ = ["Change", "changes", "lateness", "record", "said"]

_ASSERTION = "throughput-improves-under-pressure"

Parameters = Mapping[str, bool | int | float | str]
Cell = tuple[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One arm against the device's cache alone, under one load.

    Parameters
    ----------
    arm, load : str
        Which.
    kind : Kind
        What the load does.
    rate, ttft : Interval
        Output rate and mean TTFT over those without a tier [1].
    host : float
        Share of prompt tokens fetched from the host [1].
    forecast_rate, forecast_ttft : float
        The twin's [1].
    failed : tuple of str
        Gates that failed, of the rate and of TTFT; a change of which one failed is void.
    """

    arm: str
    load: str
    kind: Kind
    rate: stats.Interval
    ttft: stats.Interval
    host: float
    forecast_rate: float
    forecast_ttft: float
    failed: tuple[str, str]

    @property
    def words(self) -> str:
        """The arm in words."""
        ratio = throttled.link(self.arm)
        return "no cache" if ratio is None else f"link {ratio:g}x"

    @property
    def drawn(self) -> bool:
        """Whether its rate belongs in a figure: there is a tier, and no gate failed."""
        return throttled.link(self.arm) is not None and not self.failed[0]

    def row(self) -> dict[str, str | float]:
        """Return it for a table, changes in percent."""
        return {
            "KV demand, what comes back": self._load,
            "arm": self.words,
            "from the host, %": round(100 * self.host),
            "throughput, %": _spoken(self.rate, self.failed[0]),
            "predicted, %": _percent(self.forecast_rate),
            "TTFT, %": _spoken(self.ttft, self.failed[1]),
            "TTFT predicted, %": _percent(self.forecast_ttft),
        }

    @property
    def _load(self) -> str:
        return self.kind.words.removeprefix("KV demand ").replace(" the pool", "")

    def mark(self, metric: str = "rate") -> dict[str, str | float]:
        """Return it for a figure, in percent."""
        found = self.rate if metric == "rate" else self.ttft
        ends = {
            name: 100 * (x - 1)
            for name, x in (("value", found.value), ("low", found.low), ("high", found.high))
        }
        return {"label": f"{self._load}: {self.words}", "kind": "evidence", **ends}


def _spoken(found: stats.Interval, failed: str) -> str:
    value, low, high = map(_percent, (found.value, found.low, found.high))
    return f"{value} ({low} to {high}){', void' if failed else ''}"


def _percent(ratio: float) -> str:
    return f"{round(100 * (ratio - 1)):+d}"


def changes(found: Study) -> list[Change]:
    """Return every arm against the device's cache alone, load by load.

    Parameters
    ----------
    found : Study
        From :func:`assay.bench.linkstudy.study`.
    """
    values = _blocks(found)
    host, failed = _host(found), _failed(found)
    told = {(r["arm"], r["load"]): r for r in store.read_csv(found.forecast)}
    result = []
    for load, asked in throttled.asked().items():
        for arm in (tier.NONE, *(f"link-{ratio:g}" for ratio in throttled.RATIOS)):
            above, below = values[arm, load], values[tier.WITHOUT, load]
            rate, ttft = (stats.log_ratio(above[m], below[m], level=stats.LEVEL) for m in METRICS)
            faster, later = (
                float(told[arm, load][name]) / float(told[tier.WITHOUT, load][name])
                for name in ("output_rate", "ttft_s")
            )
            meant = tier.kind(load, asked)
            # A ratio is void when either of its sides is.
            sides = zip(failed[arm, load], failed[tier.WITHOUT, load], strict=True)
            of_rate, of_ttft = (" ".join(dict.fromkeys(f"{a} {b}".split())) for a, b in sides)
            result.append(
                Change(
                    arm=arm,
                    load=load,
                    kind=meant,
                    rate=rate,
                    ttft=ttft,
                    host=host[arm, load],
                    forecast_rate=faster,
                    forecast_ttft=later,
                    failed=(of_rate, of_ttft),
                )
            )
    return result


def _blocks(found: Study) -> dict[Cell, dict[str, list[float]]]:
    """Return output rate and mean TTFT of each block, from the requests."""
    windows: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for row in rows.read(store.path(found.samples)):
        windows.setdefault((row["arm"], row["load"], row["block"]), []).append(row)
    values: dict[Cell, dict[str, list[float]]] = {}
    for (arm, load, _), asked in sorted(windows.items()):
        done = [row for row in asked if row["completed"]]
        span = max(r["sent_s"] + r["latency_s"] for r in done) - min(r["sent_s"] for r in done)
        kept = values.setdefault((arm, load), {name: [] for name in METRICS})
        kept["output_throughput"].append(sum(row["output_tokens"] for row in done) / span)
        kept["ttft"].append(sum(row["ttft_s"] for row in done) / len(done))
    return values


def _host(found: Study) -> dict[Cell, float]:
    """Return the share of prompt tokens that came from the host, over all blocks."""
    sums: dict[Cell, list[float]] = {}
    for row in store.read_csv(found.moved):
        pair = sums.setdefault((row["arm"], row["load"]), [0.0, 0.0])
        pair[0] += float(row["host"])
        pair[1] += float(row["queried"])
    return {cell: host / queried if queried else 0.0 for cell, (host, queried) in sums.items()}


def _failed(found: Study) -> dict[Cell, list[str]]:
    """Return the gates that failed, of the rate and of TTFT."""
    return {
        (row["arm"], row["load"]): [row[f"{name}_failed"] for name in METRICS]
        for row in store.read_csv(found.moved)
    }


def lateness(found: Study) -> tuple[float, float]:
    """Return what a fetch takes on the fastest link, and how much later it is noticed [s].

    Parameters
    ----------
    found : Study
        From :func:`assay.bench.linkstudy.study`.
    """
    arm = max(found.speeds, key=lambda name: found.speeds[name])
    own = [row for row in store.read_csv(found.moved) if row["arm"] == arm]
    count, taken = (sum(float(row[name]) for row in own) for name in ("transfers", "load_time"))
    carried = sum(float(row["loaded"]) for row in own) / found.speeds[arm]
    return carried / count, (taken - carried) / count


def said(found: Study) -> dict[str, str]:
    """Return what a page says of the study, by name.

    Parameters
    ----------
    found : Study
        From :func:`assay.bench.linkstudy.study`.
    """
    fetch, late = lateness(found)
    shown = changes(found)
    clear = [c for c in shown if not c.failed[0] and (c.rate.low > 1 or c.rate.high < 1)]
    same = [c for c in clear if (c.forecast_rate - 1) * (c.rate.value - 1) > 0]
    void = {name for c in shown for failed in c.failed for name in failed.split()}
    seen = next(iter(found.provenance.values()))
    return {
        "here_device": f"{seen.device}, {seen.packages.get('cores', 'unknown')} cores",
        "here_version": seen.engine_version,
        "here_token": units.text(found.seconds_per_token, "s", display="ms", digits=2),
        "here_fetch": units.text(fetch, "s", display="ms", digits=2),
        "here_late": units.text(late, "s", display="ms", digits=2),
        "here_clear": str(len(clear)),
        "here_same": str(len(same)),
        "here_void": ", ".join(sorted(void)) or "none",
    }


# -- the ledger -----------------------------------------------------------------------------------


def record(claim: records.Claim, found: Study, *, parameters: Parameters) -> list[records.Evidence]:
    """Save the changes of throughput with a tier, measured and predicted, as out of scope.

    Parameters
    ----------
    claim : Claim
        The general claim; another one gets nothing.
    found : Study
        From :func:`assay.bench.linkstudy.study`.
    parameters : mapping
        The notebook's.
    """
    if claim.id != linkstudy.CLAIM:
        return []
    moved, told = (_kept(claim.id, file) for file in (found.moved, found.forecast))
    saved = []
    for change in changes(found):
        ratio = throttled.link(change.arm)
        gates = found.gates.get((change.arm, change.load))
        if ratio is None or gates is None:
            continue
        seen = found.provenance[change.arm]
        place: dict[str, str | int] = {
            "gpu": linkstudy.HERE,
            "gpu_count": 0,
            "model": "llama-shaped, random weights",
            "precision": "w16a16",
            "engine": seen.engine,
            "version": seen.engine_version,
            "workload": linkstudy.workload(change.arm, change.load),
            "counting": "output",
        }
        words = f"on a CPU ({change.kind.words}, link {ratio:g}x as fast as computing)"
        saved.append(
            store.found(
                claim,
                _ASSERTION,
                basis="measured",
                value=change.rate.value - 1,
                low=change.rate.low - 1,
                high=change.rate.high - 1,
                n=change.rate.n,
                unit="1",
                method=f"{change.rate.method}, {change.rate.level:.0%}, over {change.rate.n} "
                "server starts",
                finding=f"Throughput {change.rate.value - 1:+.1%} with a host tier {words}; "
                f"{change.host:.0%} of prompt tokens came from the host. No GPU evidence.",
                parameters=parameters,
                inputs=[moved],
                conditions=place,
                gates=gates,
                provenance=seen,
                samples=found.samples,
            )
        )
        saved.append(
            store.found(
                claim,
                _ASSERTION,
                basis="simulated",
                value=change.forecast_rate - 1,
                unit="1",
                method="vLLM's scheduler and offloading connector on a clock with the pace of the "
                "same machine",
                finding=f"Predicted: {change.forecast_rate - 1:+.1%} {words}.",
                parameters=parameters,
                inputs=[told],
                conditions=place,
            )
        )
    return saved


def _kept(claim_id: str, file: Path) -> str:
    """Return where a table is kept beside the evidence, and keep it there if it is fresh."""
    if file.parent == store.path("data", "evidence", claim_id):
        return f"data/evidence/{claim_id}/{file.name}"
    return store.keep_samples(claim_id, file)
