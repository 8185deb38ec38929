"""Asking: one question to an OpenAI-compatible server, streamed, with the times of its pieces.

Owns the request, the stream and when the answer proper began. Does not own which questions, arms or
servers (``exam``), nor what the record means (``answers``). It is no load generator: rates of an
exam are those of one client that keeps a fixed number of questions in flight.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assay.bench.reasoning import bodies

__all__ = ["Reply", "put"]

_PATIENCE = 300.0  # between two pieces of an answer [s]
_REASONING = ("reasoning", "reasoning_content")


@dataclasses.dataclass(frozen=True, slots=True)
class Reply:
    """What came back.

    Parameters
    ----------
    content, reasoning : str
        As the server split them; ``content`` may still hold tags.
    finish : str
        Finish reason; empty when there was none.
    usage : mapping
        As the server reports it; empty when it does not.
    start, end : float
        Sent and last piece received, on one monotonic clock [s].
    first, first_answer : float or None
        First piece with text, and first with text of the answer [s].
    error : str
        Why it failed; empty when it did not.
    """

    content: str
    reasoning: str
    finish: str
    usage: Mapping[str, Any]
    start: float
    end: float
    first: float | None
    first_answer: float | None
    error: str = ""


def put(url: str, body: Mapping[str, object]) -> Reply:
    """Send a chat completion request and follow its stream to the end.

    Parameters
    ----------
    url : str
        Of the server.
    body : mapping
        The request; streaming is added.

    Returns
    -------
    Reply
        Of a failed request too: ``error`` then says why.
    """
    start = time.monotonic()
    pieces: list[tuple[float, str, str]] = []
    finish, error, done = "", "", False
    usage: Mapping[str, Any] = {}
    try:
        for event in _events(url, {**body, "stream": True}):
            done = done or not event
            usage = event.get("usage") or usage
            for choice in event.get("choices") or ():
                finish = choice.get("finish_reason") or finish
                delta = choice.get("delta") or {}
                thought = next((delta[k] for k in _REASONING if delta.get(k)), "")
                pieces.append((time.monotonic(), thought, delta.get("content") or ""))
    except (OSError, http.client.HTTPException, ValueError) as failure:
        error = f"{type(failure).__name__}: {failure}"[:200]
    if not (error or done or finish):
        error = "the stream broke off"
    shown = [(at, thought, text) for at, thought, text in pieces if thought or text]
    return Reply(
        content="".join(text for _, _, text in shown),
        reasoning="".join(thought for _, thought, _ in shown),
        finish=finish,
        usage=usage,
        start=start,
        end=time.monotonic(),
        first=shown[0][0] if shown else None,
        first_answer=answer_began(shown),
        error=error,
    )


def answer_began(pieces: Sequence[tuple[float, str, str]]) -> float | None:
    """Return when the first text of the answer came.

    Parameters
    ----------
    pieces : sequence of (float, str, str)
        Time [s], reasoning and content of each piece.

    Returns
    -------
    float or None
        Time [s]; None when there is no answer. Where the server splits, it is the first content
        that is not blank; where it leaves the reasoning in the content, the first text behind it.

    Examples
    --------
    >>> answer_began([(1.0, "", "3+4=7"), (2.0, "", "</think>"), (3.0, "", "7")])
    3.0
    >>> answer_began([(1.0, "", "7")])
    1.0
    >>> answer_began([(1.0, "", "[THINK]7 ="), (2.0, "", "[/THINK] "), (3.0, "", "7")])
    3.0
    """
    whole = "".join(text for _, _, text in pieces)
    answer = bodies.sort(whole, [])[0].text
    if not answer:
        return None
    # An answer in one piece is the end of the text, whatever closes the reasoning before it.
    begin = max(0, whole.rfind(answer))
    seen = 0
    for at, _, text in pieces:
        seen += len(text)
        if seen > begin and text.strip():
            return at
    return None


def _events(url: str, body: Mapping[str, object]) -> Iterator[dict[str, Any]]:
    """Yield the events of one streamed answer; the one that says it is done is empty."""
    place = urllib.parse.urlsplit(url)
    kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
    with contextlib.closing(kind(place.netloc, timeout=_PATIENCE)) as connection:
        connection.request(
            "POST",
            f"{place.path.rstrip('/')}/v1/chat/completions",
            json.dumps(body),
            {"Content-Type": "application/json"},
        )
        response = connection.getresponse()
        if response.status != 200:
            said = response.read(2000).decode("utf-8", "replace")
            raise ValueError(f"status {response.status}: {' '.join(said.split())}")
        for line in response:
            text = line.decode("utf-8", "replace").strip()
            if text.startswith("data:"):
                data = text[5:].strip()
                event: dict[str, Any] = {} if data == "[DONE]" else json.loads(data)
                yield event
