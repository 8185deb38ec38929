"""Paging: what reserving KV memory ahead, and paging it, leave empty.

Owns the closed forms of paging, and a small replay of a server under load that reserves memory by
one of four rules and counts, step by step, the slots that hold a token, wait for one, will never
hold one, or lie free in pieces nobody can use. Does not own lengths of requests (they are given)
nor vLLM's own block manager (``bench.blocks``), which gives the same shares. One slot holds the
keys and values of one token.

Rules, after Kwon et al., "Efficient Memory Management for Large Language Model Serving with
PagedAttention" (SOSP 2023), section 6.1: ``longest`` reserves the longest sequence the server
accepts, ``power`` the prompt and the next power of two above the output, ``oracle`` the exact
length, and ``paged`` a block when the last one is full.

Examples
--------
>>> waste(1000, 16)  # a sequence of 1,000 tokens in blocks of 16
0.007444168734491315
>>> length_at(0.04, 16)  # below this mean length, more than 4 % is empty
180.0
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from assay.errors import InputError

__all__ = ["RULES", "Shares", "length_at", "replay", "reserved", "tail", "waste"]

RULES = ("longest", "power", "oracle", "paged")


def tail(block: int) -> float:
    """Return the mean number of empty slots in a sequence's last block [tok].

    Parameters
    ----------
    block : int
        Slots a block.

    Notes
    -----
    (block - 1) / 2, when every remainder of the length by the block size is as likely.

    Examples
    --------
    >>> tail(16)
    7.5
    """
    if block < 1:
        raise InputError(f"a block of {block} slots", fix="give at least 1")
    return (block - 1) / 2


def waste(length: float, block: int) -> float:
    """Return the share of a paged sequence's slots that hold no token.

    Parameters
    ----------
    length : float
        Mean number of tokens that live sequences hold at a moment [tok].
    block : int
        Slots a block.

    Returns
    -------
    float
        Mean empty slots over mean slots, 0 to 1.

    Notes
    -----
    tail / (length + tail).

    Examples
    --------
    >>> round(waste(180, 16), 4), round(waste(180, 256), 4)
    (0.04, 0.4146)
    """
    if not length > 0:
        raise InputError(f"a mean length of {length:g} tok", fix="give a positive length")
    return tail(block) / (length + tail(block))


def length_at(limit: float, block: int) -> float:
    """Return the mean length at which the waste of paging equals a limit [tok].

    Parameters
    ----------
    limit : float
        Share of slots, above 0 and below 1.
    block : int
        Slots a block.

    Notes
    -----
    tail / limit - tail, from :func:`waste`. Shorter sequences waste more.

    Examples
    --------
    >>> length_at(0.04, 256)
    3060.0
    """
    if not 0 < limit < 1:
        raise InputError(f"a limit of {limit:g}", fix="give a share between 0 and 1")
    return tail(block) / limit - tail(block)


def reserved(rule: str, prompt: int, output: int, longest: int) -> int:
    """Return the slots a reservation rule sets aside for a request [tok].

    Parameters
    ----------
    rule : {"longest", "power", "oracle"}
        The rule.
    prompt, output : int
        Tokens of the request [tok].
    longest : int
        Longest sequence the server accepts [tok].

    Examples
    --------
    >>> [reserved(rule, 100, 25, 2048) for rule in ("longest", "power", "oracle")]
    [2048, 132, 125]
    """
    if rule == "longest":
        return longest
    if rule == "power":
        return min(longest, prompt + (1 << max(0, output - 1).bit_length()))
    if rule == "oracle":
        return prompt + output
    raise InputError(f"unknown rule '{rule}'", fix="use one of longest, power, oracle")


@dataclass(frozen=True, slots=True)
class Shares:
    """Where the slots of a pool are, on average over the steps of a loaded server.

    Parameters
    ----------
    tokens : float
        Hold a token.
    waiting : float
        Set aside for a token that will come.
    never : float
        Set aside and never used: the end of a reservation, or of a last block.
    outside : float
        Free, while requests wait that do not fit.
    sequences : float
        Mean number of live sequences.
    live_length : float
        Mean tokens of a live sequence [tok].
    """

    tokens: float
    waiting: float
    never: float
    outside: float
    sequences: float
    live_length: float

    @property
    def waste_held(self) -> float:
        """Share of the slots set aside that hold no token."""
        held = self.tokens + self.waiting + self.never
        return 1 - self.tokens / held if held else 0.0


@dataclass(slots=True)
class _Live:
    start: int
    size: int
    length: int
    last: int


class _Region:
    """A pool in one piece; a request gets the first hole that is large enough."""

    def __init__(self, slots: int, buddy: bool) -> None:
        self.buddy = buddy
        self.holes: list[tuple[int, int]] = [(0, slots)]  # start, size, in order

    def take(self, size: int) -> tuple[int, int] | None:
        size = 1 << max(0, size - 1).bit_length() if self.buddy else size
        for index, (start, room) in enumerate(self.holes):
            begin = -(-start // size) * size if self.buddy else start
            if begin + size > start + room:
                continue
            rest = [(start, begin - start), (begin + size, start + room - begin - size)]
            self.holes[index : index + 1] = [hole for hole in rest if hole[1]]
            return begin, size
        return None

    def give(self, start: int, size: int) -> None:
        merged: list[tuple[int, int]] = []
        for hole in sorted([*self.holes, (start, size)]):
            if merged and merged[-1][0] + merged[-1][1] == hole[0]:
                merged[-1] = (merged[-1][0], merged[-1][1] + hole[1])
            else:
                merged.append(hole)
        self.holes = merged


def replay(
    lengths: Sequence[tuple[int, int]],
    *,
    slots: int,
    rule: str,
    longest: int = 2048,
    block: int = 16,
    buddy: bool = False,
) -> Shares:
    """Serve requests in order from a pool that is always in demand, and count its slots.

    Parameters
    ----------
    lengths : sequence of (int, int)
        Prompt and output tokens of each request, in the order of arrival [tok].
    slots : int
        Tokens the pool can hold.
    rule : {"longest", "power", "oracle", "paged"}
        How memory is set aside.
    longest : int
        Longest sequence the server accepts [tok].
    block : int
        Slots a block, for ``paged``.
    buddy : bool
        Whether reservations are rounded up to a power of two and aligned to it, as a buddy
        allocator does; what rounding adds counts as outside.

    Returns
    -------
    Shares
        Averages over the steps in which some request waited, so that starting up and running dry
        do not count.

    Raises
    ------
    InputError
        When a request cannot fit, or an argument makes no sense.

    Notes
    -----
    A step gives every live sequence one token. A sequence that ends frees its memory at once.
    When ``paged`` runs out of blocks, the sequence that came last gives its memory back and starts
    again from its tokens so far, as vLLM does.
    """
    if rule not in RULES:
        raise InputError(f"unknown rule '{rule}'", fix=f"use one of {', '.join(RULES)}")
    for prompt, output in lengths:
        if prompt < 1 or output < 1 or prompt + output > min(longest, slots):
            raise InputError(f"a request of {prompt} + {output} tok in {slots} slots")
    return (
        _replay_paged(lengths, slots // block, block)
        if rule == "paged"
        else _replay_reserved(lengths, slots, rule, longest, buddy)
    )


def _replay_reserved(
    lengths: Sequence[tuple[int, int]], slots: int, rule: str, longest: int, buddy: bool
) -> Shares:
    region = _Region(slots, buddy)
    queue = deque(lengths)
    live: list[tuple[_Live, int]] = []
    steps = tokens = waiting = never = sequences = 0
    while queue:
        while queue:
            prompt, output = queue[0]
            asked = reserved(rule, prompt, output, longest)
            place = region.take(asked)
            if place is None:
                break
            queue.popleft()
            live.append((_Live(*place, prompt, prompt + output), asked))
        if not live:
            raise InputError(f"a reservation of {asked} slots does not fit in {slots}")
        if queue:
            steps += 1
            sequences += len(live)
            for one, asked in live:
                tokens += one.length
                waiting += one.last - one.length
                never += asked - one.last
        kept = []
        for one, asked in live:
            one.length += 1
            if one.length > one.last:
                region.give(one.start, one.size)
            else:
                kept.append((one, asked))
        live = kept
    return _shares(steps, slots, tokens, waiting, never, sequences)


def _replay_paged(lengths: Sequence[tuple[int, int]], blocks: int, block: int) -> Shares:
    queue = deque((prompt, prompt + output) for prompt, output in lengths)
    live: list[list[int]] = []  # tokens now, tokens at the end
    free = blocks
    steps = tokens = never = sequences = 0
    while queue:
        while queue and -(-queue[0][0] // block) <= free:
            length, last = queue.popleft()
            free -= -(-length // block)
            live.append([length, last])
        if queue:
            steps += 1
            sequences += len(live)
            held = sum(one[0] for one in live)
            tokens += held
            never += (blocks - free) * block - held
        index = 0
        while index < len(live):
            one = live[index]
            if one[0] == one[1]:
                free += -(-one[0] // block)
                live.pop(index)
                continue
            if one[0] % block == 0:
                while not free and len(live) - 1 > index:
                    length, last = live.pop()
                    free += -(-length // block)
                    queue.appendleft((length, last))
                if not free:
                    queue.appendleft((one[0], one[1]))
                    free += -(-one[0] // block)
                    live.pop(index)
                    break
                free -= 1
            one[0] += 1
            index += 1
    return _shares(steps, blocks * block, tokens, 0, never, sequences)


def _shares(
    steps: int, slots: int, tokens: int, waiting: int, never: int, sequences: int
) -> Shares:
    if not steps:
        raise InputError("all requests fit at once, so nothing ever waits", fix="give more")
    whole = steps * slots
    return Shares(
        tokens / whole,
        waiting / whole,
        never / whole,
        1 - (tokens + waiting + never) / whole,
        sequences / steps,
        tokens / sequences,
    )
