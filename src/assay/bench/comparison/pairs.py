"""Pairs: single figures with and without KV offload, as people quote them.

Owns what such a pair shows when there is no result file: whether the feature was exercised at
all, whether something else explains the gain, and which figures moved which way. Does not own
result files (``results``) or repeats (``comparison``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.bench.comparison import NOISE, Comparison, Verdict
from assay.bench.results.fields import Fields
from assay.bench.results.problems import Log
from assay.errors import InputError
from assay.ledger import store

__all__ = ["compare", "is_pairs"]

#: Sequences of full length the cache should hold before it pays to look elsewhere for room [1].
_ROOM = 2.0
_NO_REUSE = re.compile(r"random prompt|nothing to reuse|no reuse|unique prompt|no shared", re.I)
_HIGHER = re.compile(r"(tok|req|tokens|requests)(_per)?_s(ec)?$|throughput|goodput", re.I)
_LOWER = re.compile(r"ttft|itl|tpot|e2e|latency|_time|_ms$|_s$", re.I)
_PERCENTILE = re.compile(r"(?:^|_)(p\d{2}|median)(?:_|$)")


def is_pairs(path: Path) -> bool:
    """Say whether a file is a list of pairs, by its name's ending."""
    return path.suffix in (".yml", ".yaml")


def compare(path: Path) -> list[Comparison]:
    """Judge every pair of a file.

    Parameters
    ----------
    path : Path
        YAML with a list ``pairs``; each has an ``id`` and figures of ``baseline`` and ``offload``.

    Raises
    ------
    InputError
        When it is not such a list.
    """
    content, _ = store.read_yaml(path)
    pairs = content.get("pairs") if isinstance(content, dict) else None
    if not isinstance(pairs, list) or not all(isinstance(pair, dict) for pair in pairs):
        raise InputError(
            "has no list 'pairs'",
            where=str(path),
            fix="write pairs: [{id: one, baseline: {ttft_ms: 5}, offload: {ttft_ms: 4}}]",
        )
    return [_pair(pair) for pair in pairs]


def _pair(pair: Mapping[str, Any]) -> Comparison:
    log = Log()
    fields = Fields(dict(pair), log)
    verdict, reasons = _judged(fields)
    reasons += [p.message for p in log.problems]
    if log.failed:
        verdict = "insufficient"
    return Comparison(verdict, tuple(reasons), name=fields.text("id") or "")


def _judged(fields: Fields) -> tuple[Verdict, list[str]]:
    if fields.number("external_hit_tokens") == 0:
        return "not-exercised", [
            "no token came from the offloaded cache: what was to be tested did not happen"
        ]
    if _NO_REUSE.search(fields.text("note") or ""):
        return "not-exercised", [
            "the prompts share nothing, so a cache has nothing to give: the gain expected is zero"
        ]
    if fields.has("times_s"):
        return _calls(fields)
    change = _signed(fields.raw("ttft_change_pct"))
    if change is not None:
        return _stated(fields, change / 100)
    return _figures(fields)


def _signed(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e6 else None


def _stated(fields: Fields, change: float) -> tuple[Verdict, list[str]]:
    reasons = [f"TTFT {change * 100:+.0f} % as stated, without runs to test it"]
    held, longest = fields.number("baseline_kv_tokens"), fields.number("max_model_len")
    flying = fields.number("concurrency")
    if held and longest:
        room = held / longest
        words = f"the device holds {held:,.0f} tokens, {room:.1f} sequences of {longest:,.0f}"
        if flying is not None:
            words += f" for {flying:.0f} in flight"
        if room < _ROOM:
            words += ": too few to batch at all, with offload or without"
        reasons.append(words)
    if abs(change) <= NOISE:
        reasons.append(f"a single run varies by {NOISE * 100:.0f} %")
        return "insufficient", reasons
    return ("worse" if change > 0 else "better"), reasons


def _calls(fields: Fields) -> tuple[Verdict, list[str]]:
    """Judge calls in order by whether a repeated prefix beats one that is new."""
    times, prefixes = fields.sequence("times_s") or [], fields.sequence("prefixes") or []
    values = [t for t in times if isinstance(t, int | float) and not isinstance(t, bool) and t > 0]
    if len(values) != len(times) or len(times) != len(prefixes) or len(times) < 2:
        return "insufficient", ["times and prefixes are not two lists of equal length"]
    seen: set[str] = set()
    new: list[float] = []
    again: list[float] = []
    for number, (time, prefix) in enumerate(zip(values, map(str, prefixes), strict=True)):
        if number and prefix not in seen:
            new.append(float(time))
        elif number:
            again.append(float(time))
        seen.add(prefix)
    if not again:
        return "not-exercised", ["no prefix was sent twice"]
    if not new:
        return "insufficient", [
            "only the first call sent a new prefix, and it also warmed the server up: the two "
            "cannot be told apart"
        ]
    fastest, slowest = min(new), max(again)
    if fastest <= slowest * (1 + NOISE) or fastest <= min(again) * (1 + 2.5 * NOISE):
        return "insufficient", [
            f"no evidence of a cache: a prefix never seen before took {fastest:g} s and a repeated "
            f"one {min(again):g} to {slowest:g} s; the first call was slow because it warmed up"
        ]
    return "better", [
        f"repeated prefixes took at most {slowest:g} s and new ones at least {fastest:g} s"
    ]


def _figures(fields: Fields) -> tuple[Verdict, list[str]]:
    one, two = fields.part("baseline"), fields.part("offload")
    shared = [n for n in one.content if n in two.content]
    if not shared:
        missing = "offload" if one.content else "baseline"
        return "insufficient", [f"there are no figures of '{missing}' to set beside the other side"]
    better: list[str] = []
    worse: list[str] = []
    unheard: list[str] = []
    same: list[str] = []
    for name in shared:
        before, after = one.number(name), two.number(name)
        if not before or not after:
            continue
        change = after / before - 1
        words = f"{name} {change * 100:+.1f} %"
        upward = _direction(name)
        if name == "cold_over_warm":
            return _warm(before, after)
        if upward is None:
            continue
        if abs(change) <= NOISE:
            same.append(words)
        elif _PERCENTILE.search(name):
            unheard.append(words)
        else:
            (better if (change > 0) == upward else worse).append(words)
    reasons = [f"worse: {', '.join(worse)}"] if worse else []
    reasons += [f"better: {', '.join(better)}"] if better else []
    if unheard:
        reasons.append(f"not certified, the number of requests is not said: {', '.join(unheard)}")
    reasons.append("one figure a side: a direction only, without an interval")
    if better and worse:
        return "mixed", reasons
    if better or worse:
        return ("better" if better else "worse"), reasons
    if same:
        reasons.insert(
            0, f"within {NOISE * 100:.0f} %, what single runs vary by: {', '.join(same)}"
        )
    return "insufficient", reasons


def _warm(before: float, after: float) -> tuple[Verdict, list[str]]:
    gain = after / before
    if abs(gain - 1) <= NOISE:
        return "no-difference", [
            f"a warm prompt is {before:g} times faster without offload and {after:g} times with "
            "it: the device's own cache served both, and the gain of offload is 0"
        ]
    return ("better" if gain > 1 else "worse"), [
        f"of {after:g} times, {before:g} are the device's own cache: offload gives {gain:.2f} times"
    ]


def _direction(name: str) -> bool | None:
    """Say whether more of a figure is better; None when its name does not tell."""
    if _HIGHER.search(name):
        return True
    return False if _LOWER.search(name) else None
