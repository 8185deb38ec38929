"""Gates: what must hold of every window before its number counts.

Owns the gates, their permanent ids and their limits. Does not own statistics or verdicts: a failed
gate voids the number, and says why.

====================== ===============================================================
id                     passes when
====================== ===============================================================
requests-completed     every request was answered in full
load-delivered         lengths, requests in flight and arrival rate are those asked for
tokens-agree           client and server count the same input and output tokens
prefix-cache           prompts shared as much work as intended
no-compilation         the engine compiled nothing in the window
client-not-bottleneck  the client had time to spare
clocks-steady          heat, power or a quota held no clock down
below-physical-bound   the rate is one that the hardware allows
enough-samples         no percentile rests on too few requests
cold-starts            every block is a fresh server process, and there are enough blocks
====================== ===============================================================
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Sequence

from assay.bench.protocol.window import Window
from assay.ledger import records
from assay.physics import units

__all__ = ["FLOORS", "IDS", "Intent", "check"]

# Least number of requests for which a 95 % confidence interval of the percentile has both its ends
# in the sample, with room to spare at the upper one.
FLOORS = {50: 11, 90: 64, 95: 130, 99: 662}

_BLOCKS = 5  # least number of server starts behind a verdict
_LENGTH = 0.01  # lengths may differ by this share: tokenizers split a text again differently
_RATE = 0.05  # and an arrival rate by this share, more for few requests
_TOKENS = 0.001  # totals of client and server, which should be equal
_CACHE = 0.01  # share of prompt tokens found in the prefix cache
_BUSY = 0.85  # share of one core; the client is one thread, above this it queues its own events
_ADDED = 0.02  # of a latency may be the client's own delay
_THROTTLED = 0.02  # share of the window
_STOLEN = 0.05  # share of processor time


@dataclasses.dataclass(frozen=True, slots=True)
class Intent:
    """What the measurement is meant to be.

    Parameters
    ----------
    metrics : tuple of str
        Values that are asked for, by name of ``window.VALUES``.
    ceiling : float or None
        Most output tokens a second that the hardware allows [tok/s]; None when unknown.
    ceiling_why : str
        How it was derived, or why it is unknown.
    cached_share : float
        Share of prompt tokens that should be found in the prefix cache [1].
    prefix_cache : {"on", "off", "unknown"}
        By flag of the engine.
    counted_by_server : bool
        Whether the engine publishes counters.
    """

    metrics: tuple[str, ...]
    ceiling: float | None
    ceiling_why: str
    cached_share: float = 0.0
    prefix_cache: str = "unknown"
    counted_by_server: bool = True


def check(windows: Sequence[Window], intent: Intent) -> list[records.Gate]:
    """Judge all windows of one arm and load.

    Parameters
    ----------
    windows : sequence of Window
        One a block.
    intent : Intent
        What they are meant to be.

    Returns
    -------
    list of Gate
        All gates, in the order of the table; ``says`` names the first block that fails.
    """
    return [
        *(_each(name, rule, windows, intent) for name, rule in _RULES.items()),
        _samples(windows, intent),
        _starts(windows),
    ]


_Said = tuple[bool, str]


def _each(
    name: str,
    rule: Callable[[Window, Intent], _Said],
    windows: Sequence[Window],
    intent: Intent,
) -> records.Gate:
    said = [(window, *rule(window, intent)) for window in windows]
    for window, passed, words in said:
        if not passed:
            return records.Gate(id=name, passed=False, says=f"block {window.block}: {words}")
    if not said:
        return records.Gate(id=name, passed=False, says="nothing was measured")
    return records.Gate(id=name, passed=True, says=said[-1][2])


def _completed(window: Window, _: Intent) -> _Said:
    words = f"{window.completed} of {window.asked} requests completed"
    return window.completed == window.asked, words


def _delivered(window: Window, _: Intent) -> _Said:
    """Compare lengths with all requests asked, so that this fails for lengths alone."""
    for kind, asked, got in (
        ("input", window.asked_input, window.input_tokens),
        ("output", window.asked_output, window.output_tokens),
    ):
        if asked is not None and window.asked:
            wanted = asked * window.completed / window.asked
            if abs(got - wanted) > _LENGTH * wanted:
                return False, f"{got:,} {kind} tokens delivered, {wanted:,.0f} asked for"
    if window.concurrency is not None and window.rate is None:
        wanted = min(window.concurrency, window.asked)
        if window.in_flight < wanted:
            return False, f"{window.in_flight} requests in flight at most, {wanted} asked for"
    if window.rate is not None and math.isfinite(window.rate) and window.arrivals is not None:
        room = max(_RATE, 3 / max(window.asked, 1))  # the ends of a Poisson stream are random
        if abs(window.arrivals / window.rate - 1) > room:
            return (
                False,
                f"{window.arrivals:.4g} req/s were sent, {window.rate:g} req/s asked for",
            )
    loop = f"{window.in_flight} in flight"
    if window.arrivals is not None and math.isfinite(window.arrivals):
        loop += f", {window.arrivals:.3g} req/s sent"
    return True, f"{window.input_tokens:,} input and {window.output_tokens:,} output tokens, {loop}"


def _agree(window: Window, intent: Intent) -> _Said:
    server = window.server
    if server is not None and server.prompt is not None and server.output is not None:
        for kind, client, counted in (
            ("input", window.input_tokens, server.prompt),
            ("output", window.output_tokens, server.output),
        ):
            if abs(client - counted) > _TOKENS * max(counted, 1):
                return (
                    False,
                    f"{client:,} {kind} tokens by the client, {counted:,.0f} by the server",
                )
        return True, (
            f"client and server both count {window.input_tokens:,} input and "
            f"{window.output_tokens:,} output tokens"
        )
    if intent.counted_by_server:
        return False, "the server's counters cannot be read"
    # Without counters the server's count is the usage in its answers; the chunks are the client's.
    # Some engines open or close an answer with a chunk that holds no token.
    if not window.output_tokens <= window.chunks <= window.output_tokens + window.completed:
        return False, (
            f"the answers report {window.output_tokens:,} output tokens in {window.chunks:,} "
            "chunks, and the server has no counters"
        )
    return True, (
        f"the answers report {window.output_tokens:,} output tokens, one a chunk; "
        "the server has no counters"
    )


def _cache(window: Window, intent: Intent) -> _Said:
    if not window.first:
        return False, "the same prompts had been sent to this server before"
    server = window.server
    if server is None or server.hit is None or not server.queried:
        if intent.prefix_cache == "off" and not intent.cached_share:
            if server is not None and server.hit:
                return False, f"{server.hit:,.0f} tokens were found in a cache that is off"
            return True, "the prefix cache is off, and prompts are distinct"
        return False, "the engine does not tell how much of the prompts it had cached"
    share = server.hit / server.queried
    words = f"{share:.1%} of prompt tokens were cached, {intent.cached_share:.1%} intended"
    return abs(share - intent.cached_share) <= _CACHE, words


def _compilation(window: Window, _: Intent) -> _Said:
    if window.compiled is None:
        return False, "the engine's log cannot be read"
    if window.compiled:
        return False, f"{len(window.compiled)} log lines tell of one: {window.compiled[0][:120]}"
    return True, "the engine's log tells of none in the window"


def _client(window: Window, intent: Intent) -> _Said:
    if window.busy is None or window.lateness is None or window.sending is None:
        return False, "how busy the client was is unknown"
    if window.busy > _BUSY:
        return False, f"the client used {window.busy:.0%} of a core, and it is one thread"
    added = window.lateness + window.sending
    for name in intent.metrics:
        span, words = _span(window, name)
        if span is None:
            return False, f"there is no {words}"
        if added > _ADDED * span:
            return False, f"the client adds {added * 1e3:.3g} ms to {words} of {span * 1e3:.4g} ms"
    return True, (
        f"the client used {window.busy:.0%} of a core and adds {added * 1e3:.3g} ms to a request"
    )


def _span(window: Window, metric: str) -> tuple[float | None, str]:
    """Return the time on which the client's delay of one request acts, and what it is."""
    ttft, whole = window.values.get("ttft"), window.values.get("e2el")
    if metric.startswith("ttft"):
        return ttft, "a TTFT"
    if metric.startswith("itl"):
        return window.values.get("itl"), "an ITL"
    if metric.startswith(
        "tpot"
    ):  # both ends of the decode shift; their difference is spread over it
        return (None if ttft is None or whole is None else whole - ttft), "a decode"
    return whole, "a request"


def _clocks(window: Window, _: Intent) -> _Said:
    seen = window.watched
    if seen.throttled is None:
        return False, "whether clocks were held down cannot be read"
    if seen.throttled > _THROTTLED:
        why = f" ({', '.join(seen.reasons)})" if seen.reasons else ""
        return False, f"held down in {seen.throttled:.0%} of the window{why}"
    if seen.stolen is not None and seen.stolen > _STOLEN:
        return False, f"other tenants of the host took {seen.stolen:.0%} of processor time"
    return True, f"held down in {seen.throttled:.1%} of the window on {seen.device}"


def _possible(window: Window, intent: Intent) -> _Said:
    rate = window.values.get("output_throughput")
    if intent.ceiling is None:
        return False, f"no ceiling is known: {intent.ceiling_why}"
    if rate is None:
        return False, "there is no rate"
    words = (
        f"{units.number(rate)} output tok/s against a ceiling of "
        f"{units.number(intent.ceiling)} tok/s ({intent.ceiling_why})"
    )
    return rate <= intent.ceiling, words


_RULES: dict[str, Callable[[Window, Intent], _Said]] = {
    "requests-completed": _completed,
    "load-delivered": _delivered,
    "tokens-agree": _agree,
    "prefix-cache": _cache,
    "no-compilation": _compilation,
    "client-not-bottleneck": _client,
    "clocks-steady": _clocks,
    "below-physical-bound": _possible,
}
IDS = (*_RULES, "enough-samples", "cold-starts")


def _samples(windows: Sequence[Window], intent: Intent) -> records.Gate:
    """Count over all blocks: the percentile of each block is not what is certified."""
    asked = [
        (match[1], int(match[2]))
        for name in intent.metrics
        if (match := re.fullmatch(r"(\w+)_p(\d+)", name))
    ]
    for latency, share in asked:
        have = sum(window.samples.get(latency, 0) for window in windows)
        need = FLOORS.get(share, math.inf)
        if have < need:
            return records.Gate(
                id="enough-samples",
                passed=False,
                says=f"{latency} p{share} rests on {have} requests, it needs {need:g}",
            )
    if not windows:
        return records.Gate(id="enough-samples", passed=False, says="nothing was measured")
    words = ", ".join(f"{latency} p{share}" for latency, share in asked)
    says = f"{words}: enough requests" if asked else "means only; no percentile is asked for"
    return records.Gate(id="enough-samples", passed=True, says=says)


def _starts(windows: Sequence[Window]) -> records.Gate:
    blocks = {window.block for window in windows}
    words = f"{len(blocks)} server starts"
    stale = [window.block for window in windows if not window.fresh]
    if stale:
        words = f"block {stale[0]} was not started afresh, so blocks are not independent"
    elif len(blocks) < _BLOCKS:
        words = f"{len(blocks)} server starts, a verdict needs {_BLOCKS}"
    return records.Gate(id="cold-starts", passed=not stale and len(blocks) >= _BLOCKS, says=words)
