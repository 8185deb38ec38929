"""Arrival: one long prompt reaches a server that is answering others.

Owns the requests as a file for the client, and what the client's rows show: how long those who
were being answered waited for their next token, and when the long prompt got its first. Does not
own sending (``client``), server starts (``protocol``) or what is concluded.

All requests come from one client, ``vllm bench serve`` with its dataset ``custom``: the short ones
evenly spaced, the long one last. Rows are in the order of sending, so the last one is the long one.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.bench.load import Load
from assay.errors import InputError
from assay.ledger import store

__all__ = ["Scene", "Seen", "load", "seen"]

# Gaps of a gamma distribution of this shape differ by a thousandth. Infinity would be even, but
# the client writes it into its result, which is then no JSON.
_EVEN = 1e6
_SPACE = "\u0120"  # how a byte-level tokenizer writes the space before a word


@dataclasses.dataclass(frozen=True, slots=True)
class Scene:
    """Who is there.

    Parameters
    ----------
    decoders : int
        Requests that are being answered when the long prompt comes [req].
    prompt, answer : int
        Of each of them [tok].
    arriving : int
        Length of the long prompt [tok].
    rate : float
        At which all of them are sent, evenly [req/s].
    seed : int
        Of the words.
    """

    decoders: int
    prompt: int
    answer: int
    arriving: int
    rate: float
    seed: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """What one run showed.

    Parameters
    ----------
    gap : float
        Longest wait of any decoding request for its next token while the long prompt was read [s].
    usual : float
        Median wait of the same requests before the long prompt came [s].
    ttft : float
        Of the long prompt [s].
    decoding : int
        Requests that had a token before the long prompt was sent and another one after its first.
    """

    gap: float
    usual: float
    ttft: float
    decoding: int


def load(scene: Scene, checkpoint: Path, folder: Path) -> Load:
    """Write the requests and return the load that sends them.

    Parameters
    ----------
    scene : Scene
        Who is there.
    checkpoint : Path
        Folder of the model, for its tokenizer.
    folder : Path
        Receives the file of requests; its name follows from what is in it.

    Returns
    -------
    Load
        Its warm-up sends the same requests: there is no prefix cache that would know them, and
        every shape of step occurs once before it counts.

    Raises
    ------
    InputError
        When the tokenizer has too few words.
    """
    words = _words(checkpoint)
    chance = random.Random(scene.seed)
    sizes = [(scene.prompt, scene.answer)] * scene.decoders + [(scene.arriving, 2)]
    lines = [
        json.dumps({"prompt": _text(words, prompt, chance), "output_tokens": answer})
        for prompt, answer in sizes
    ]
    text = "\n".join(lines) + "\n"
    file = folder / f"arrival-{store.digest(text)[:12]}.jsonl"
    store.write(file, text)
    return Load(
        requests=len(sizes),
        input_tokens=scene.arriving,
        output_tokens=scene.answer,
        rate=scene.rate,
        burstiness=_EVEN,
        warmup=len(sizes),
        dataset="custom",
        options={
            "dataset-path": str(file),
            "custom-output-len": "-1",  # each line says its own
            # Two switches without a value: names and values alternate on the command line.
            "skip-chat-template": "--disable-shuffle",
        },
    )


def _words(checkpoint: Path) -> list[str]:
    """Return words that are one token each when a space comes before them."""
    content = store.read_json(checkpoint / "tokenizer.json")
    found = sorted(
        token.removeprefix(_SPACE)
        for token in content["model"]["vocab"]
        if token.startswith(_SPACE) and token[1:].isascii() and token[1:].isalpha()
    )
    if len(found) < 100:
        raise InputError(
            f"{len(found)} words are single tokens, and prompts need 100",
            where=store.shown(checkpoint),
            fix="use a model with a byte-level tokenizer",
        )
    return found


def _text(words: Sequence[str], tokens: int, chance: random.Random) -> str:
    return "".join(f" {chance.choice(words)}" for _ in range(tokens))


def seen(rows: Sequence[Mapping[str, Any]]) -> Seen | None:
    """Return what one run showed, or None when a request failed.

    Parameters
    ----------
    rows : sequence of mapping
        Of one run, in the order of sending, as :func:`assay.bench.load.rows.read` returns them.

    Examples
    --------
    >>> short = {"completed": True, "sent_s": 0.0, "ttft_s": 0.1, "itl_s": [0.1] * 9 + [0.7, 0.1]}
    >>> long = {"completed": True, "sent_s": 1.0, "ttft_s": 0.65, "itl_s": [0.1]}
    >>> seen([short, long])
    Seen(gap=0.7, usual=0.1, ttft=0.65, decoding=1)
    """
    if len(rows) < 2 or not all(row["completed"] for row in rows):
        return None
    *short, long = rows
    begins = float(long["sent_s"])
    ends = begins + float(long["ttft_s"])
    during, before, decoding = [], [], 0
    for row in short:
        first = float(row["sent_s"]) + float(row["ttft_s"])
        moments = list(itertools.accumulate(row["itl_s"], initial=first))
        decoding += moments[0] <= begins and moments[-1] >= ends
        for gap, (left, right) in zip(row["itl_s"], itertools.pairwise(moments), strict=True):
            if right <= begins:
                before.append(gap)
            elif left < ends:
                during.append(gap)
    if not during or not before:
        return None
    return Seen(max(during), statistics.median(before), float(long["ttft_s"]), decoding)
