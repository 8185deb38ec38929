"""Blocks: what vLLM's own block manager leaves empty when it serves real lengths.

Owns feeding sequences of given lengths through the manager of an installed vLLM, without a model
and without the pool's memory, and counting what it hands out. Does not own the manager
(``manager``), the closed form it is held against (``physics.paging``) or a running engine
(``pool``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from assay.bench import manager, private
from assay.errors import InputError
from assay.ledger import records
from assay.physics.paging import Shares

__all__ = ["provenance", "replay"]


def provenance() -> records.Provenance:
    """Return which block manager was asked, for evidence that an engine derives.

    Returns
    -------
    Provenance
        Without device, commit or times: the same manager gives the same shares on every machine
        at any time, and so the same evidence file.

    Raises
    ------
    InputError
        When vLLM is not installed or of an unknown version.
    """
    private.quiet()
    _, version = private.version() or ("", "")
    return records.Provenance(
        device="none: block manager alone, without model and memory",
        driver=None,
        clocks=None,
        engine="vllm",
        engine_version=version.partition("+")[0],  # a local suffix names the build, not the code
        flags=("enable_caching=False",),
        packages={},
        commit="none: deterministic",
        started="none: deterministic",
        ended="none: deterministic",
    )


def replay(
    lengths: Sequence[tuple[int, int]], *, slots: int, block: int, longest: int = 2048
) -> Shares:
    """Serve requests in order from a pool that is always in demand, with vLLM's block manager.

    Parameters
    ----------
    lengths : sequence of (int, int)
        Prompt and output tokens of each request, in the order of arrival [tok].
    slots : int
        Tokens the pool can hold; the manager's null block comes on top.
    block : int
        Slots a block.
    longest : int
        Longest sequence the server accepts [tok].

    Returns
    -------
    Shares
        As :func:`assay.physics.paging.replay` counts them, with the manager's own blocks. The
        null block holds no token and is not counted.

    Raises
    ------
    InputError
        When vLLM is not installed or of an unknown version, or a request cannot fit.

    Notes
    -----
    The rules of serving are those of the pure replay: one token a step, and the youngest sequence
    starts again when the pool is full. Some 2 s for 2,000 requests.
    """
    if any(sum(pair) > min(longest, slots) for pair in lengths):
        raise InputError(f"a request does not fit in {slots} slots")
    blocks = manager.Manager(slots // block + 1, block, longest)
    queue = deque((str(i), prompt, prompt + output) for i, (prompt, output) in enumerate(lengths))
    live: list[list[int]] = []  # request, tokens now, tokens at the end
    steps = tokens = held = sequences = 0
    while queue:
        while queue and blocks.start(queue[0][0], queue[0][1]):
            name, length, last = queue.popleft()
            live.append([int(name), length, last])
        if queue:
            steps += 1
            sequences += len(live)
            tokens += sum(one[1] for one in live)
            held += blocks.held * block
        index = 0
        while index < len(live):
            name, length, last = str(live[index][0]), live[index][1], live[index][2]
            if length == last:
                blocks.stop(name)
                live.pop(index)
                continue
            while not blocks.extend(name):
                youngest = live.pop()
                blocks.stop(str(youngest[0]))
                queue.appendleft((str(youngest[0]), youngest[1], youngest[2]))
                if str(youngest[0]) == name:
                    break
            else:
                live[index][1] += 1
                index += 1
                continue
            break
    if not steps:
        raise InputError("all requests fit at once, so nothing ever waits", fix="give more")
    whole = steps * (slots // block) * block
    return Shares(
        tokens / whole,
        0.0,
        (held - tokens) / whole,
        1 - held / whole,
        sequences / steps,
        tokens / sequences,
    )
