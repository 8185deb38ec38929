"""Comparison: what two results, or two folders of repeats, do and do not show.

Owns whether two sides may be compared at all, the changes with their intervals, and the verdict.
Does not own reading (``results``), the statistics (``ledger.stats``) or pairs of single figures
(``pairs``).

A run is one server start. With at least five on either side an interval decides; with fewer only
a direction is said, and only beyond what runs vary by anyway. A percentile that the sample does
not certify never makes a side better.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from assay.bench.results import reader
from assay.bench.results.table import METRICS, Figure, Run
from assay.errors import InputError
from assay.ledger import stats, store

__all__ = ["BAND", "NOISE", "Change", "Comparison", "Verdict", "compare", "compare_runs"]

Verdict = Literal[
    "better",
    "worse",
    "mixed",
    "no-difference",
    "insufficient",
    "not-comparable",
    "not-exercised",
]

#: Two sides are the same when the interval of their ratio lies within 5 % either way [1]: half of
#: what this project allows an interval of its own to span.
BAND = 1.05
#: What a single run may differ by for no reason [1]: two sides, each known to 5 %.
NOISE = 0.10
#: Token totals and lengths count as equal within [1].
_EQUAL = 0.02
#: A TTFT that differs by so many times while the latency does not is defined differently [1].
_REDEFINED = 5.0
#: And by so many times it is, whatever TPOT does [1].
_ABSURD = 20.0
#: Figures this small or large have no ratio worth a number, in any base unit.
_LEAST = 1e-12
#: Metrics with a say; a later one of a group is left out when an earlier one is there.
_VOTERS = (
    ("ttft",),
    ("tpot", "itl", "latency_per_token", "generation_time"),
    ("e2el",),
    ("output_rate", "total_rate", "request_rate"),
    ("decode_rate",),
    ("prefill_rate", "input_rate"),
    ("request_output_rate", "request_decode_rate"),
    ("goodput",),
)
#: Clients with one set of definitions; figures of others are never set beside them.
_FAMILIES = (("vllm bench serve", "SGLang bench_serving"),)
_SUFFIXES = (".json", ".jsonl", ".csv", ".md", ".txt")


@dataclass(frozen=True, slots=True)
class Change:
    """One figure, before and after.

    Parameters
    ----------
    metric, statistic : str
        As in ``results.table``.
    ratio : float
        After over before [1].
    low, high : float, optional
        Its 90 % interval, when both sides have repeats [1].
    before, after : float, optional
        In base units; None when the sample does not certify the statistic.
    says : str
        ``better``, ``worse``, ``same`` or ``unclear``.
    votes : bool
        Whether the verdict hears it.
    """

    metric: str
    statistic: str
    ratio: float
    low: float | None
    high: float | None
    before: float | None
    after: float | None
    says: str
    votes: bool

    @property
    def certified(self) -> bool:
        """Whether both samples certify the statistic."""
        return self.before is not None

    @property
    def name(self) -> str:
        """The figure in words."""
        word = self.metric.upper() if len(self.metric) <= 4 else self.metric.replace("_", " ")
        return word if self.statistic == "rate" else f"{self.statistic} {word}"

    @property
    def percent(self) -> str:
        """The change in words."""
        if self.ratio >= 2:
            return f"{self.ratio:.2f} times"
        return f"{(self.ratio - 1) * 100:+.1f} %"

    def as_dict(self) -> dict[str, Any]:
        """Return the change as JSON has it."""
        metric = METRICS[self.metric]
        return {
            "metric": self.metric,
            "statistic": self.statistic,
            "unit": metric.unit,
            "counting": metric.counting or None,
            "better": metric.better or None,
            "before": self.before,
            "after": self.after,
            "ratio": self.ratio,
            "change": self.ratio - 1,
            "low": self.low,
            "high": self.high,
            "certified": self.certified,
            "says": self.says,
            "votes": self.votes,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two sides show.

    Parameters
    ----------
    verdict : str
        One of `Verdict`.
    reasons : tuple of str
        Sentences, the decisive one first.
    changes : tuple of Change
        Empty when the sides are not comparable.
    conditions : tuple of dict
        The comparability table: ``condition``, ``before``, ``after``, ``status``.
    runs : tuple of int
        Usable runs of either side.
    name : str
        Which part of a suite, or which pair.
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    changes: tuple[Change, ...] = ()
    conditions: tuple[dict[str, Any], ...] = ()
    runs: tuple[int, int] = (0, 0)
    name: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON has it."""
        return {
            "name": self.name or None,
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "runs": {"before": self.runs[0], "after": self.runs[1]},
            "conditions": list(self.conditions),
            "deltas": [change.as_dict() for change in self.changes],
        }


@dataclass(slots=True)
class _Side:
    """The runs of one side and what is to be said about them."""

    shown: str
    runs: list[Run] = field(default_factory=list)
    digests: set[str] = field(default_factory=set)
    remarks: list[str] = field(default_factory=list)


# -- the door -------------------------------------------------------------------------------------


def compare(before: Path, after: Path, *, changed: Collection[str] = ()) -> list[Comparison]:
    """Compare two result files, or two folders of repeats.

    Parameters
    ----------
    before, after : Path
        A file with one or more runs, or a folder of such files.
    changed : collection of str
        Conditions that are the change under test, for example ``model``.

    Returns
    -------
    list of Comparison
        One for each workload that both sides have.

    Raises
    ------
    InputError
        When a side has no usable run.
    """
    one, two = _side(before), _side(after)
    remarks = (*one.remarks, *two.remarks)
    if one.digests & two.digests:
        same = "both sides are the same file: one run cannot differ from itself"
        return [Comparison("insufficient", (same, *remarks), runs=(len(one.runs), len(two.runs)))]
    first, second = _suites(one.runs), _suites(two.runs)
    if len(first) == 1 and len(second) == 1:
        (a,), (b,) = first.values(), second.values()
        return [compare_runs(a, b, changed=changed, remarks=remarks)]
    shared = [key for key in first if key in second]
    if not shared:
        reason = "the sides have no workload in common (test, concurrency, arrival rate)"
        return [Comparison("not-comparable", (reason, *remarks))]
    return [
        compare_runs(first[k], second[k], changed=changed, remarks=remarks, name=k) for k in shared
    ]


def _side(path: Path) -> _Side:
    side = _Side(str(path))
    folder = path.is_dir()
    files = (
        sorted(f for f in path.iterdir() if f.is_file() and f.suffix in _SUFFIXES)
        if folder
        else [path]
    )
    if not files:
        raise InputError("holds no result file", where=side.shown, fix="name a folder of repeats")
    sentences: list[str] = []
    for file in files:
        reading = reader.read(file)
        if reading.error is not None and folder:
            side.remarks.append(f"left out: {reading.error}")
            continue
        found = reader.sentences([reading])
        sentences += found
        side.remarks += [f"left out: {words}" for words in found]
        if reading.error is None:
            mark = store.digest(file)
            if mark in side.digests:
                side.remarks.append(f"{file} repeats another file byte for byte: counted once")
                continue
            side.digests.add(mark)
        side.runs += [run for run in reading.runs if run.usable]
    if not side.runs:
        what = sentences[0] if sentences else f"{side.shown}: holds no run that can be used"
        raise InputError(what)
    return side


def _suites(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Group runs by what they ran; repeats share a group."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        words = [str(run.facts.get("test") or "")]
        for name, word in (("concurrency", "concurrency"), ("asked_rate", "rate")):
            value = run.facts.get(name)
            words.append(f"{word} {value}" if value is not None else "")
        found.setdefault(", ".join(w for w in words if w) or "all", []).append(run)
    return found


def compare_runs(
    before: Sequence[Run],
    after: Sequence[Run],
    *,
    changed: Collection[str] = (),
    remarks: Sequence[str] = (),
    name: str = "",
) -> Comparison:
    """Compare the repeats of one workload.

    Parameters
    ----------
    before, after : sequence of Run
        Usable runs; each is one server start.
    changed : collection of str
        Conditions that are the change under test.
    remarks : sequence of str
        What else is to be said.
    name : str
        Which workload it is.
    """
    conditions = _conditions(before, after)
    runs = (len(before), len(after))
    changes = tuple(_changes(before, after))
    blocking = _blocking(conditions, before, after, changed) + _redefined(
        changes, _said("output_per_request", before)
    )
    if blocking:
        reasons = (*blocking, *_suspect(changes, before, after), *remarks)
        return Comparison("not-comparable", reasons, (), conditions, runs, name)
    hits = [run.facts.get("external_hit_tokens") for run in after]
    if all(hit == 0 for hit in hits):
        reason = "no token came from the offloaded cache: what was to be tested did not happen"
        return Comparison("not-exercised", (reason, *remarks), changes, conditions, runs, name)
    verdict, said = _verdict(changes, runs)
    if verdict == "better" and _seed_reused(before, after):
        verdict = "insufficient"
        said.insert(
            0,
            "both sides send the same prompts (same seed) and nothing says that the prefix cache "
            "was off or cold: the gain may be the cache's",
        )
    return Comparison(verdict, (*said, *remarks), changes, conditions, runs, name)


# -- may they be compared? ------------------------------------------------------------------------


def _conditions(before: Sequence[Run], after: Sequence[Run]) -> tuple[dict[str, Any], ...]:
    names = (
        "client",
        "model",
        "tokenizer",
        "dataset",
        "asked",
        "completed",
        "input_per_request",
        "output_per_request",
        "concurrency",
        "asked_rate",
        "seed",
        "gpus",
        "prefix_cache",
        "tokens",
    )
    found = []
    for name in names:
        one, two = _said(name, before), _said(name, after)
        if one is None or two is None:
            # A limit that only one side states is a difference, and not a gap in the record.
            only = name == "concurrency" and (one is None) != (two is None)
            status = "differs" if only else "unstated"
        else:
            status = "same" if _alike(one, two) else "differs"
        found.append({"condition": name, "before": one, "after": two, "status": status})
    return tuple(found)


def _said(name: str, runs: Sequence[Run]) -> Any:
    """Return what the runs of a side say about a condition; None when they do not."""
    if name == "client":
        families = [next((f[0] for f in _FAMILIES if r.format in f), r.format) for r in runs]
        return _one([family.replace("AIPerf per-request", "AIPerf") for family in families])
    if name == "prefix_cache":
        return _one([_cache(run) for run in runs])
    if name == "tokens":
        wrong = any(run.log.has("tokens.client-server") for run in runs)
        return "client and server disagree" if wrong else None
    values = [run.facts[name] for run in runs if name in run.facts]
    if not values:
        return None
    if all(isinstance(v, int | float) for v in values):
        mean = sum(values) / len(values)
        return mean if len(set(values)) > 1 else values[0]
    return _one([str(v) for v in values])


def _one(values: Sequence[Any]) -> Any:
    distinct = [v for v in dict.fromkeys(values) if v is not None]
    if not distinct:
        return None
    return distinct[0] if len(distinct) == 1 else ", ".join(str(v) for v in distinct)


def _cache(run: Run) -> str | None:
    if run.log.has("cache.identical-prompts"):
        return "prompts repeat"
    cached = run.facts.get("cached_tokens")
    return None if cached is None else "cold"


def _alike(one: Any, two: Any) -> bool:
    if isinstance(one, int | float) and isinstance(two, int | float):
        return abs(one - two) <= _EQUAL * max(abs(one), abs(two))
    return bool(one == two)


def _blocking(
    conditions: Sequence[dict[str, Any]],
    before: Sequence[Run],
    after: Sequence[Run],
    changed: Collection[str],
) -> list[str]:
    reasons = []
    free = {"seed", "gpus", "tokenizer", "prefix_cache", "tokens", *changed}
    for row in conditions:
        name = row["condition"]
        if row["status"] == "differs" and name not in free:
            reasons.append(
                f"{name.replace('_', ' ')} differs: {_text(row['before'])} before, "
                f"{_text(row['after'])} after"
            )
    for side, runs in (("before", before), ("after", after)):
        for run in runs:
            for problem in run.log.problems:
                if problem.rule == "tokens.client-server":
                    reasons.append(f"{side}: {problem.message}")
    warm = [any(_cache(run) == "prompts repeat" for run in runs) for runs in (before, after)]
    if warm[0] != warm[1] and "prefix_cache" not in changed:
        side = "before" if warm[0] else "after"
        reasons.append(f"only {side} do the prompts repeat, and a prefix cache answers them")
    return list(dict.fromkeys(reasons))


def _text(value: Any) -> str:
    if value is None:
        return "not stated"
    return f"{value:,.6g}" if isinstance(value, int | float) else str(value)


def _redefined(changes: Sequence[Change], tokens: float | None) -> list[str]:
    """Find a TTFT that changes while the latency it is part of does not."""
    found = {(c.metric, c.statistic): c for c in changes}
    ttft, tpot = found.get(("ttft", "mean")), found.get(("tpot", "mean"))
    if ttft is None or 1 / _REDEFINED < ttft.ratio < _REDEFINED:
        return []
    times = max(ttft.ratio, 1 / ttft.ratio)
    if tpot and abs(tpot.ratio - 1) > 0.05 and times < _ABSURD:
        return []  # the time may have moved from the first token to the others
    one, two = ttft.before or 0.0, ttft.after or 0.0
    whole, rate = found.get(("e2el", "mean")), found.get(("request_rate", "rate"))
    if whole is not None:
        moved = abs((whole.before or 0.0) - (whole.after or 0.0))
        unmoved = abs(whole.ratio - 1) <= 0.05 and moved <= abs(one - two) / 2
    elif tpot is not None and rate is not None and tokens is not None:
        # Without latencies: requests follow each other no faster, though each should be shorter.
        rest = (tpot.before or 0.0) * (tokens - 1)
        due = abs(math.log((one + rest) / (two + rest)))
        unmoved = due > _EQUAL and abs(math.log(rate.ratio)) < due / 2
    else:
        return []
    if not unmoved:
        return []
    return [
        f"mean TTFT differs {times:.0f} times while the latency does not: one client counts an "
        "empty first chunk as the first token"
    ]


def _suspect(changes: Sequence[Change], before: Sequence[Run], after: Sequence[Run]) -> list[str]:
    """Say what a difference between sides that are not comparable is worth."""
    warm = [any(_cache(run) == "prompts repeat" for run in runs) for runs in (before, after)]
    rate = next((c for c in changes if c.metric == "output_rate" and c.statistic == "rate"), None)
    if warm[0] == warm[1] or rate is None:
        return []
    return [
        f"the output rate differs by {rate.percent}: that is the cache, not the engine, and the "
        "same seed on one server is not a repeat"
    ]


def _seed_reused(before: Sequence[Run], after: Sequence[Run]) -> bool:
    seeds = [{run.facts.get("seed") for run in runs} - {None} for runs in (before, after)]
    cold = all(run.facts.get("cached_tokens") == 0 for run in (*before, *after))
    return bool(seeds[0] & seeds[1]) and not cold


# -- what changed? --------------------------------------------------------------------------------


def _changes(before: Sequence[Run], after: Sequence[Run]) -> list[Change]:
    voting = _voting(before, after)
    found: list[Change] = []
    level = 1 - (1 - stats.LEVEL) / max(1, len(voting))
    for key in before[0].figures:
        metric, statistic, per = key
        if per or statistic in ("std", "min", "max") or not METRICS[metric].better:
            continue
        pairs = [[run.figures.get(key) for run in runs] for runs in (before, after)]
        if any(f is None or not _LEAST < f.value < 1 / _LEAST for side in pairs for f in side):
            continue
        sides = [[f for f in side if f is not None] for side in pairs]
        found.append(_change(metric, statistic, sides, voting, level))
    return found


def _voting(before: Sequence[Run], after: Sequence[Run]) -> set[str]:
    """Return the metrics that count, one of each group, which all runs have."""
    runs = (*before, *after)
    chosen = set()
    for group in _VOTERS:
        for metric in group:
            if all(r.get(metric, "mean") or r.get(metric) for r in runs):
                chosen.add(metric)
                break
    return chosen


def _change(
    metric: str, statistic: str, sides: list[list[Figure]], voting: set[str], level: float
) -> Change:
    one, two = ([f.value for f in side] for side in sides)
    centres = [math.exp(sum(map(math.log, v)) / len(v)) for v in (one, two)]
    ratio = centres[1] / centres[0]
    low = high = None
    sure = all(f.certified for side in sides for f in side)
    says = "unclear"
    upward = METRICS[metric].better == "higher"
    if min(len(one), len(two)) >= 2:
        shown = stats.log_ratio(two, one, paired=False)
        low, high = shown.low, shown.high
    if min(len(one), len(two)) >= stats.BLOCKS and low is not None and high is not None:
        strict = stats.log_ratio(two, one, paired=False, level=level)
        if low >= 1 / BAND and high <= BAND:
            says = "same"
        elif strict.low > 1 or strict.high < 1:
            says = "better" if (strict.low > 1) == upward else "worse"
    elif abs(math.log(ratio)) > math.log1p(NOISE) or abs(ratio - 1) > NOISE:
        apart = min(two) > max(one) or max(two) < min(one)
        says = ("better" if (ratio > 1) == upward else "worse") if apart else "unclear"
    before, after = (centres[0], centres[1]) if sure else (None, None)
    votes = sure and metric in voting and statistic in ("mean", "rate", "p50", "p90", "p95", "p99")
    return Change(metric, statistic, ratio, low, high, before, after, says, votes)


# -- the verdict ----------------------------------------------------------------------------------


def _verdict(changes: Sequence[Change], runs: tuple[int, int]) -> tuple[Verdict, list[str]]:
    heard = [c for c in changes if c.votes]
    if not heard:
        return "insufficient", ["no figure is on both sides and certified"]
    better = [c for c in heard if c.says == "better"]
    worse = [c for c in heard if c.says == "worse"]
    blocks = min(runs) >= stats.BLOCKS
    reasons = _average_only(changes)
    tails = [c for c in changes if not c.certified and c.says == "worse"]
    reasons += [f"worse: {_listed(worse)}"] if worse else []
    reasons += [f"better: {_listed(better)}"] if better else []
    verdict: Verdict
    if better and (worse or (tails and not blocks)):
        verdict = "mixed"
    elif better or worse:
        verdict = "better" if better else "worse"
    elif blocks and all(c.says == "same" for c in heard):
        verdict = "no-difference"
        reasons.append(f"every interval lies within {(BAND - 1) * 100:.0f} % of no change")
    else:
        verdict = "insufficient"
        beyond = "the intervals" if blocks else f"{NOISE * 100:.0f} %, what single runs vary by"
        reasons.append(f"no certified figure changes beyond {beyond}")
    if not blocks:
        each = "one run" if min(runs) == 1 else f"{min(runs)} runs"
        reasons.append(
            f"{each} on a side: a direction only, with no interval that decides; "
            f"{stats.BLOCKS} server starts a side are needed"
        )
    short = [c for c in changes if not c.certified]
    if short:
        reasons.append(f"not certified, too few requests: {_listed(short)}")
    return verdict, reasons


def _average_only(changes: Sequence[Change]) -> list[str]:
    """Name metrics whose mean gets better while a tail does not."""
    found = []
    for metric in dict.fromkeys(c.metric for c in changes):
        own = {c.statistic: c for c in changes if c.metric == metric}
        mean, tail = own.get("mean"), own.get("p99") or own.get("p95") or own.get("p90")
        if mean is None or tail is None or mean.says != "better":
            continue
        upward = METRICS[metric].better == "higher"
        if (tail.ratio > 1) != upward:
            certain = "" if tail.certified else ", too few requests to certify it"
            found.append(
                f"{mean.name.removeprefix('mean ')} better on average only: {mean.name} "
                f"{mean.percent}, {tail.name} {tail.percent}{certain}"
            )
    return found


def _listed(changes: Sequence[Change]) -> str:
    return ", ".join(f"{c.name} {c.percent}" for c in changes)
