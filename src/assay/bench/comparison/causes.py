"""Causes: what explains a change besides the change under test.

Owns another definition of the first token, a warm prefix cache, prompts that both sides share, and
a feature that was never used. Does not own whether sides are comparable
(``comparison_conditions``).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from assay.bench.comparison.changes import Change
from assay.bench.comparison.conditions import cache, said
from assay.bench.results.table import Run

__all__ = ["redefined", "seed_reused", "suspect", "unexercised"]

#: Rates count as equal within [1].
_EQUAL = 0.02
#: A TTFT that differs by so many times while the latency does not is defined differently [1].
_REDEFINED = 5.0
#: And by so many times it is, whatever TPOT does [1].
_ABSURD = 20.0


def redefined(changes: Sequence[Change], before: Sequence[Run]) -> list[str]:
    """Find a TTFT that changes while the latency it is part of does not.

    Parameters
    ----------
    changes : sequence of Change
        Of both sides.
    before : sequence of Run
        Usable runs, for the tokens of a request.
    """
    tokens = said("output_per_request", before)
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


def suspect(changes: Sequence[Change], before: Sequence[Run], after: Sequence[Run]) -> list[str]:
    """Say what a difference between sides that are not comparable is worth.

    Parameters
    ----------
    changes : sequence of Change
        Of both sides.
    before, after : sequence of Run
        Usable runs.
    """
    warm = [any(cache(run) == "prompts repeat" for run in runs) for runs in (before, after)]
    rate = next((c for c in changes if c.metric == "output_rate" and c.statistic == "rate"), None)
    if warm[0] == warm[1] or rate is None:
        return []
    return [
        f"the output rate differs by {rate.percent}: that is the cache, not the engine, and the "
        "same seed on one server is not a repeat"
    ]


def seed_reused(before: Sequence[Run], after: Sequence[Run], changed: Collection[str]) -> bool:
    """Say whether both sides send the same prompts and a cache may have answered one of them.

    Parameters
    ----------
    before, after : sequence of Run
        Usable runs.
    changed : collection of str
        Conditions that are the change under test.
    """
    seeds = [{run.facts.get("seed") for run in runs} - {None} for runs in (before, after)]
    cold = all(
        run.facts.get("cached_tokens") == 0 or run.facts.get("prefix_cache") == "off"
        for run in (*before, *after)
    )
    named = {"prefix_cache", "seed"} & set(changed)
    return bool(seeds[0] & seeds[1]) and not cold and not named


def unexercised(before: Sequence[Run], after: Sequence[Run], changed: Collection[str]) -> list[str]:
    """Return why the feature under test was never used; nothing when it was, or is not told.

    Parameters
    ----------
    before, after : sequence of Run
        Usable runs.
    changed : collection of str
        Conditions that are the change under test.
    """
    features = [
        (_hits, "no token came from the offloaded cache"),
        (_accepted, "no drafted token was accepted"),
    ]
    if "prefix_cache" in changed:
        features.append((_cached, "no token came from the prefix cache"))
    found = []
    for told, words in features:
        one, two = ([told(run) for run in runs] for runs in (before, after))
        # The side that states the feature is the one with it; both may.
        own = two if any(v is not None for v in two) else one
        if own and all(v == 0 for v in own):
            found.append(f"{words}: what was to be tested did not happen")
    return found


def _hits(run: Run) -> float | None:
    return run.facts.get("external_hit_tokens")


def _cached(run: Run) -> float | None:
    return run.facts.get("cached_tokens")


def _accepted(run: Run) -> float | None:
    """Return the share of drafted tokens accepted, or tokens a step beyond its own one."""
    length = run.facts.get("acceptance_length")
    return run.facts.get("acceptance_rate", None if length is None else length - 1)
