"""Conditions: whether two sides may be compared at all.

Owns the comparability table, what blocks a comparison, runs that are no repeats of one another, and
what is to be borne in mind. Does not own the changes (``comparison_changes``) or what else explains
them (``comparison_causes``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from assay.bench.comparison.changes import Change
from assay.bench.results.table import Run

__all__ = ["blocking", "cache", "conditions", "remarks", "said"]

#: Token totals and lengths count as equal within [1].
_EQUAL = 0.02
#: And vary between repeats, which draw their own answers, by no more than [1].
_REPEATED = 0.10
#: Clients with one set of definitions; figures of others are never set beside them.
_FAMILIES = (("vllm bench serve", "SGLang bench_serving"),)
_NAMES = (
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
    "hardware",
    "gpus",
    "engine",
    "engine_version",
    "settings",
    "prefix_cache",
    "tokens",
)
#: Of interest only where a file states it.
_OPTIONAL = frozenset({"hardware", "engine", "engine_version", "settings"})
#: What may differ without being named as the change under test: it is what is mostly tested, or
#: another rule looks at it.
_FREE = frozenset(
    {"seed", "tokenizer", "engine", "engine_version", "settings", "prefix_cache", "tokens"}
)
#: What has to be the same in all runs of one side for them to be repeats.
_CONSTANT = ("client", "model", "dataset", "hardware", "gpus", "engine", "engine_version")
_AMOUNTS = ("asked", "completed", "input_per_request", "output_per_request")


def conditions(before: Sequence[Run], after: Sequence[Run]) -> tuple[dict[str, Any], ...]:
    """Return the comparability table: ``condition``, ``before``, ``after``, ``status``.

    Parameters
    ----------
    before, after : sequence of Run
        Usable runs of one workload.
    """
    found = []
    for name in _NAMES:
        one, two = said(name, before), said(name, after)
        if one is None and two is None and name in _OPTIONAL:
            continue
        if one is None or two is None:
            # A limit that only one side states is a difference, and not a gap in the record.
            only = name == "concurrency" and (one is None) != (two is None)
            status = "differs" if only else "unstated"
        else:
            status = "same" if _alike(one, two) else "differs"
        found.append({"condition": name, "before": one, "after": two, "status": status})
    return tuple(found)


def said(name: str, runs: Sequence[Run]) -> Any:
    """Return what the runs of a side say about a condition; None when they do not.

    Parameters
    ----------
    name : str
        A condition.
    runs : sequence of Run
        Of one side.
    """
    if name == "client":
        return _one([_client(run) for run in runs])
    if name == "prefix_cache":
        return _one([cache(run) for run in runs])
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


def _client(run: Run) -> str:
    family = next((f[0] for f in _FAMILIES if run.format in f), run.format)
    return "AIPerf" if family.startswith("AIPerf") else family


def _one(values: Sequence[Any]) -> Any:
    distinct = [v for v in dict.fromkeys(values) if v is not None]
    if not distinct:
        return None
    return distinct[0] if len(distinct) == 1 else ", ".join(str(v) for v in distinct)


def cache(run: Run) -> str | None:
    """Return what is known about a prefix cache: ``prompts repeat``, ``off``, ``cold`` or None.

    Parameters
    ----------
    run : Run
        Usable.
    """
    if run.log.has("cache.identical-prompts"):
        return "prompts repeat"
    if run.facts.get("prefix_cache") == "off":
        return "off"
    cached = run.facts.get("cached_tokens")
    return None if cached is None else "cold"


def _alike(one: Any, two: Any) -> bool:
    if isinstance(one, int | float) and isinstance(two, int | float):
        return abs(one - two) <= _EQUAL * max(abs(one), abs(two))
    return bool(one == two)


def blocking(
    table: Sequence[Mapping[str, Any]],
    before: Sequence[Run],
    after: Sequence[Run],
    changed: Collection[str],
) -> list[str]:
    """Return why two sides cannot be compared; nothing when they can.

    Parameters
    ----------
    table : sequence of mapping
        As `conditions` returns it.
    before, after : sequence of Run
        Usable runs of one workload.
    changed : collection of str
        Conditions that are the change under test.
    """
    reasons = _uneven("before", before) + _uneven("after", after)
    free = {*_FREE, *changed}
    if _timed(before, after):
        free.add("completed")
    for row in table:
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
    warm = [any(cache(run) == "prompts repeat" for run in runs) for runs in (before, after)]
    if warm[0] != warm[1] and "prefix_cache" not in changed:
        side = "before" if warm[0] else "after"
        reasons.append(f"only {side} do the prompts repeat, and a prefix cache answers them")
    return list(dict.fromkeys(reasons))


def _uneven(side: str, runs: Sequence[Run]) -> list[str]:
    """Name what differs between runs that are taken for repeats of one another."""
    found = []
    for name in _CONSTANT:
        told = [_client(r) if name == "client" else r.facts.get(name) for r in runs]
        distinct = list(dict.fromkeys(str(v) for v in told if v is not None))
        if len(distinct) > 1:
            found.append((name, ", ".join(distinct[:4])))
    if len({cache(run) == "prompts repeat" for run in runs}) > 1:
        found.append(("prompts", "repeated in some runs only"))
    for name in _AMOUNTS:
        amounts = [run.facts[name] for run in runs if name in run.facts]
        if name == "completed" and _timed(runs, runs):
            continue
        if amounts and max(amounts) > (1 + _REPEATED) * min(amounts):
            found.append((name, f"{_text(min(amounts))} to {_text(max(amounts))}"))
    return [
        f"the runs {side} are no repeats of one another: {name.replace('_', ' ')} {values}"
        for name, values in found
    ]


def _timed(before: Sequence[Run], after: Sequence[Run]) -> bool:
    """Say whether runs were ended by a clock and not by a number of requests."""
    runs = (*before, *after)
    spans = [run.facts.get("duration") for run in runs]
    if any("asked" in run.facts for run in runs) or any(span is None for span in spans):
        return False
    known = [span for span in spans if span is not None]
    return len(runs) > 1 and max(known) <= (1 + _EQUAL) * min(known)


def _text(value: Any) -> str:
    if value is None:
        return "not stated"
    return f"{value:,.6g}" if isinstance(value, int | float) else str(value)


def remarks(
    table: Sequence[Mapping[str, Any]], changes: Sequence[Change], runs: Sequence[Run]
) -> list[str]:
    """Return what is to be borne in mind about sides that are comparable.

    Parameters
    ----------
    table : sequence of mapping
        As `conditions` returns it.
    changes : sequence of Change
        Of both sides.
    runs : sequence of Run
        Of both sides.
    """
    found = []
    rows = {row["condition"]: row for row in table}
    if rows["tokenizer"]["status"] == "differs":
        found.append(
            f"tokenizer differs ({_text(rows['tokenizer']['before'])} before, "
            f"{_text(rows['tokenizer']['after'])} after): tokens compare only if both split text "
            "alike"
        )
    gpus = rows["gpus"]
    rate = next((c for c in changes if c.metric == "output_rate" and c.statistic == "rate"), None)
    if gpus["status"] == "differs" and rate is not None and gpus["before"] and gpus["after"]:
        each = rate.ratio * gpus["before"] / gpus["after"]
        found.append(
            f"rates are of the whole deployment, {_text(gpus['before'])} GPUs before and "
            f"{_text(gpus['after'])} after: per GPU the output rate changes by "
            f"{(each - 1) * 100:+.1f} %"
        )
    for rule in ("load.impossible", "load.above-asked", "load.not-kept"):
        told = next((p for run in runs for p in run.log.problems if p.rule == rule), None)
        if told is not None:
            found.append(f"bear in mind: {told.message}")
    return found
