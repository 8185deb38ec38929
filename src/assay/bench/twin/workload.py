"""Workload: what arrives, when, and how long it is.

Owns arrivals (burst, Poisson, closed loop, a trace), lengths (fixed, log-normal, a published
sample) and which requests share a prefix. Everything follows from a seed. Does not own the clock.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from assay.errors import InputError
from assay.ledger import store

__all__ = [
    "Ask",
    "Source",
    "asks",
    "burst",
    "closed_loop",
    "fixed",
    "lognormal",
    "open_loop",
    "poisson",
    "sample",
    "sharegpt",
    "stretched",
    "trace",
]

Lengths = Iterator[tuple[int, int]]
#: Token ids stay below this, so that the smallest vocabulary holds them.
_IDS = 4096
_FILLER = 7


@dataclass(frozen=True, slots=True)
class Ask:
    """One request.

    Parameters
    ----------
    number : int
        Its place in the workload, from 0.
    prompt, output : int
        Lengths [tok].
    arrival : float
        When it is sent [s]; a closed loop decides that itself.
    shared : int
        Leading tokens that are the same for the whole group [tok].
    group : int
        Which prefix that is.
    """

    number: int
    prompt: int
    output: int
    arrival: float = 0.0
    shared: int = 0
    group: int = 0

    def tokens(self) -> list[int]:
        """Return the prompt's token ids.

        Examples
        --------
        >>> a, b = Ask(1, 6, 1, shared=3), Ask(2, 6, 1, shared=3)
        >>> a.tokens()[:3] == b.tokens()[:3], a.tokens()[3:] == b.tokens()[3:]
        (True, False)
        """
        # Blocks are hashed with all that is before them, so two leading ids tell prompts apart.
        own = [*divmod(self.number, _IDS), *itertools.repeat(_FILLER, self.prompt)]
        if not self.shared:
            return own[: self.prompt]
        prefix = [*divmod(self.group, _IDS), *itertools.repeat(_FILLER + 1, self.shared)]
        return prefix[: self.shared] + own[: self.prompt - self.shared]


def fixed(prompt: int, output: int) -> Lengths:
    """Return the same lengths again and again."""
    return itertools.repeat((prompt, output))


def lognormal(prompt: float, output: float, *, sigma: float, most: int, seed: int) -> Lengths:
    """Return lengths whose logarithms are normal, of given medians.

    Parameters
    ----------
    prompt, output : float
        Medians [tok].
    sigma : float
        Standard deviation of the natural logarithm [1].
    most : int
        Longest prompt, and longest output [tok].
    seed : int
        Of the draw.
    """
    draw = random.Random(seed)

    def one(median: float) -> int:
        return max(1, min(most, round(median * draw.lognormvariate(0, sigma))))

    while True:
        yield one(prompt), one(output)


def sample(pairs: Sequence[tuple[int, int]], *, seed: int) -> Lengths:
    """Return pairs drawn with replacement."""
    if not pairs:
        raise InputError("there are no lengths to draw from")
    draw = random.Random(seed)
    while True:
        yield pairs[draw.randrange(len(pairs))]


def sharegpt(*, seed: int, most: int = 4096) -> Lengths:
    """Return lengths of ShareGPT conversations, from ``data/published/sharegpt_lengths.csv``.

    Parameters
    ----------
    seed : int
        Of the draw.
    most : int
        Longest prompt plus output that is drawn [tok].
    """
    rows = store.published("sharegpt_lengths")
    pairs = [(int(row["prompt"]), int(row["output"])) for row in rows]
    return sample([p for p in pairs if sum(p) <= most and min(p) > 0], seed=seed)


def stretched(pairs: Sequence[tuple[int, int]], prompt: float, output: float) -> Lengths:
    """Return pairs in their order, each length multiplied so that the means are those given.

    Parameters
    ----------
    pairs : sequence of (int, int)
        Prompt and output [tok].
    prompt, output : float
        Means to reach, up to rounding; no length falls below 1 [tok].

    Examples
    --------
    >>> list(stretched([(10, 5), (30, 15)], 40, 5))
    [(20, 2), (60, 8)]
    """
    if not pairs:
        raise InputError("there are no lengths to stretch")
    means = [sum(pair[k] for pair in pairs) / len(pairs) for k in range(2)]
    by = prompt / means[0], output / means[1]
    for one, two in pairs:
        yield max(1, round(one * by[0])), max(1, round(two * by[1]))


def burst() -> Iterator[float]:
    """Return arrivals that are all at 0 s."""
    return itertools.repeat(0.0)


def poisson(rate: float, *, seed: int) -> Iterator[float]:
    """Return arrivals of a Poisson process [s].

    Parameters
    ----------
    rate : float
        Mean arrivals a second [req/s].
    seed : int
        Of the draw.
    """
    if not (rate > 0 and math.isfinite(rate)):
        raise InputError(f"an arrival rate must be above 0 and finite, not {rate:g}")
    draw, now = random.Random(seed), 0.0
    while True:
        now += draw.expovariate(rate)
        yield now


def asks(
    count: int,
    lengths: Lengths,
    arrivals: Iterator[float] | None = None,
    *,
    shared: int = 0,
    groups: int = 1,
    seed: int = 0,
) -> Iterator[Ask]:
    """Return requests, one at a time.

    Parameters
    ----------
    count : int
        How many.
    lengths : iterator of (int, int)
        Prompt and output, the shared tokens not counted [tok].
    arrivals : iterator of float, optional
        When each is sent [s]; all at once when not given.
    shared : int
        Tokens of a prefix put before each prompt [tok].
    groups : int
        Different prefixes; each request draws one.
    seed : int
        Of that draw.
    """
    draw, times = random.Random(seed), arrivals or burst()
    for number in range(count):
        prompt, output = next(lengths)
        group = draw.randrange(groups) if shared else 0
        yield Ask(number, prompt + shared, output, next(times), shared, group)


def trace(rows: Iterable[dict[str, str]], *, where: str = "trace") -> Iterator[Ask]:
    """Return the requests of a table, as ``store.read_csv`` reads it.

    Parameters
    ----------
    rows : iterable of dict
        ``arrival_s``, ``prompt`` and ``output``, and if prefixes are shared ``shared`` and
        ``group``.
    where : str
        For messages.

    Raises
    ------
    InputError
        When a cell is missing or no number, or arrivals go back in time.
    """
    before = 0.0
    for number, row in enumerate(rows):
        try:
            found = Ask(
                number,
                int(row["prompt"]),
                int(row["output"]),
                float(row["arrival_s"]),
                int(row.get("shared") or 0),
                int(row.get("group") or 0),
            )
        except (KeyError, ValueError):
            raise InputError(
                "a row needs the numbers arrival_s, prompt and output",
                where=f"{where}, row {number + 1}",
            ) from None
        if not before <= found.arrival < math.inf or min(found.prompt, found.output) < 1:
            raise InputError(
                "arrivals must not go back in time, and lengths are at least 1",
                where=f"{where}, row {number + 1}",
            )
        before = found.arrival
        yield found


class Source:
    """Requests on their way to the engine.

    Parameters
    ----------
    stream : iterator of Ask
        In order of arrival.
    concurrency : int, optional
        Most requests in flight; a further one is sent when one is done. No limit when not given,
        and each is sent when it arrives.
    """

    def __init__(self, stream: Iterator[Ask], concurrency: int | None = None) -> None:
        self._stream = stream
        self._next = next(stream, None)
        self._free = concurrency
        self._ready: list[float] = []
        if concurrency is not None:
            self._ready = [0.0] * concurrency

    def next_time(self) -> float:
        """Return when the next request is sent [s]; infinite when that waits for another."""
        if self._next is None:
            return math.inf
        if self._free is None:
            return self._next.arrival
        return max(self._ready[0], self._next.arrival) if self._ready else math.inf

    def due(self, now: float) -> Iterator[tuple[Ask, float]]:
        """Return the requests sent until now, with their time [s]."""
        while self._next is not None and (when := self.next_time()) <= now:
            ask = self._next
            if self._free is not None:
                heapq.heappop(self._ready)
            self._next = next(self._stream, None)
            yield ask, when

    def done(self, now: float) -> None:
        """Take note that a request has finished."""
        if self._free is not None:
            heapq.heappush(self._ready, now)


def open_loop(stream: Iterable[Ask]) -> Source:
    """Return a source that sends each request when it arrives."""
    return Source(iter(stream))


def closed_loop(stream: Iterable[Ask], concurrency: int) -> Source:
    """Return a source that keeps so many requests in flight."""
    if concurrency < 1:
        raise InputError(f"a closed loop needs at least 1 request in flight, not {concurrency}")
    return Source(iter(stream), concurrency)
