"""Problems: what can be wrong with a result file, each with a permanent rule id.

Owns the rule ids and their severities. Does not own the checks. An ``error`` makes a run unusable
and none of its numbers is shown; a ``warning`` takes away or replaces some figures; a ``note``
changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["RULES", "Log", "Problem"]

Severity = Literal["error", "warning", "note"]

#: rule id -> (severity, what it means). Ids are never reused.
RULES: dict[str, tuple[Severity, str]] = {
    "file.unreadable": ("error", "the file is missing, empty, damaged, too long or not text"),
    "file.not-json": ("error", "the text is not JSON, YAML, CSV, SQL or a Markdown table"),
    "file.unknown-format": ("error", "no known benchmark writes such a file"),
    "file.duplicate-key": ("warning", "one object names a key twice"),
    "number.type": ("warning", "a number is written as text, a list or a truth value"),
    "number.not-finite": ("warning", "NaN or Infinity where only an asked rate may be infinite"),
    "number.huge": ("warning", "a number no benchmark can measure"),
    "number.negative": ("error", "a time, count or rate below zero"),
    "data.none": ("error", "nothing in the run is a measurement"),
    "data.summary-only": ("warning", "there is no per-request data to recompute figures from"),
    "rows.lengths": ("warning", "per-request lists differ in length and cannot be paired"),
    "rows.disagree": ("warning", "a stated figure is not what the per-request data give"),
    "requests.unknown": ("error", "how many requests completed is not known"),
    "requests.none": ("error", "no request completed"),
    "requests.few": ("error", "fewer than half of the requests completed"),
    "requests.failed": ("warning", "some requests failed or were never sent"),
    "requests.more-than-asked": ("error", "more requests completed than were asked"),
    "tokens.none": ("error", "requests completed and not one output token was counted"),
    "tokens.client-server": ("warning", "client and server count different tokens"),
    "tokens.lengths-differ": ("warning", "delivered lengths are not the asked ones"),
    "tokens.cached-exceeds-prompt": ("error", "more tokens came from the cache than were sent"),
    "tokens.sum": ("error", "a stated total is not the sum of its parts"),
    "ttft.zero": ("warning", "a first token at 0 s is a missing value"),
    "e2el.zero": ("warning", "a latency of 0 s is a missing value"),
    "ttft.no-stream": ("warning", "the first token comes with the last: nothing was streamed"),
    "ttft.hidden-tokens": ("warning", "most tokens came before the first counted chunk"),
    "tpot.one-token": ("warning", "one output token has no time per output token"),
    "itl.contains-ttft": ("warning", "the first gap is the time to the first token"),
    "itl.chunks": ("warning", "gaps are between chunks of several tokens"),
    "second-token.bundled": ("warning", "first and second token arrive in one bundle"),
    "rate.inconsistent": ("warning", "a stated rate is not its total over the duration"),
    "rate.peak-below-mean": ("warning", "a peak cannot be below the mean"),
    "rate.combined": ("note", "prompt and generated tokens in one rate: neither is meant"),
    "rate.two": ("note", "two rates with different tokens and times"),
    "rate.not-a-speed": ("warning", "a stated rate contradicts tokens over time"),
    "order.percentiles": ("warning", "statistics of one metric are out of order"),
    "order.duration": ("warning", "a latency is longer than the whole run"),
    "order.ttft": ("warning", "the first token comes after the last"),
    "order.parts": ("warning", "a latency is far from TTFT plus its tokens' time"),
    "load.impossible": ("warning", "more requests in flight than were allowed or completed"),
    "load.above-asked": ("warning", "requests came faster than they were sent"),
    "load.not-kept": ("note", "requests came slower than they were sent: latencies hold a queue"),
    "speculation.inconsistent": ("warning", "accepted, drafted and stated acceptance disagree"),
    "units.mixed": ("warning", "times are not in the stated unit"),
    "cache.identical-prompts": ("warning", "prompts repeat and a prefix cache serves them"),
    "run.warm-up": ("note", "the run warmed a server up; it is no repeat"),
    "run.cancelled": ("warning", "the run was cancelled before its end"),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Parameters
    ----------
    rule : str
        A key of `RULES`.
    message : str
        One sentence: what, with which values, and what follows.
    """

    rule: str
    message: str

    @property
    def severity(self) -> Severity:
        """``error``, ``warning`` or ``note``."""
        return RULES[self.rule][0]


class Log:
    """The problems of one run, in the order they were found, each said once."""

    __slots__ = ("problems",)

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def add(self, rule: str, message: str) -> None:
        """Record a problem.

        Examples
        --------
        >>> log = Log()
        >>> log.add("requests.none", "0 of 4 requests completed")
        >>> log.failed
        True
        """
        found = Problem(rule, message)
        if found not in self.problems:
            self.problems.append(found)

    def has(self, rule: str) -> bool:
        """Say whether a rule was broken."""
        return any(p.rule == rule for p in self.problems)

    @property
    def failed(self) -> bool:
        """Whether the run is unusable."""
        return any(p.severity == "error" for p in self.problems)
