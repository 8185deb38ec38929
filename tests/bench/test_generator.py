"""Generator: vLLM's client does without what a server does not support."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from assay.bench.load import generator


class Session:
    """An HTTP session that remembers what was posted."""

    def __init__(self) -> None:
        self.posted: dict[str, Any] = {}

    def post(self, **given: Any) -> str:
        self.posted = given
        return "answer"


def posted(*unsupported: str) -> dict[str, Any]:
    session = Session()
    answer = generator._Without(session, unsupported).post(
        url="/v1", json={"prompt": "a", "ignore_eos": True}, headers={"A": "b"}
    )
    assert answer == "answer"
    return session.posted


def test_a_field_that_the_server_refuses_is_left_out() -> None:
    assert posted("ignore_eos") == {"url": "/v1", "json": {"prompt": "a"}, "headers": {"A": "b"}}


def test_a_server_that_loses_connections_is_asked_to_close_each() -> None:
    found = posted("keep-alive")
    assert found["headers"] == {"A": "b", "Connection": "close"}
    assert found["json"] == {"prompt": "a", "ignore_eos": True}


class Stream:
    """An answer that arrives in the given pieces."""

    status = 200

    def __init__(self, pieces: list[bytes]) -> None:
        self.content, self._pieces = self, pieces

    async def iter_any(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


def messages(*pieces: bytes, unsupported: str = "usage-chunk") -> list[Any]:
    """What vLLM's client reads from an answer that arrives in pieces."""

    class Streams:
        @contextlib.asynccontextmanager
        async def post(self, **_: Any) -> AsyncIterator[Stream]:
            yield Stream(list(pieces))

    async def read() -> str:
        text = b""
        async with generator._Without(Streams(), [unsupported]).post(json={}) as answer:
            assert answer.status == 200
            async for data in answer.content.iter_any():
                text += data
        return text.decode()

    lines = [line.removeprefix("data: ") for line in asyncio.run(read()).splitlines() if line]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def chunk(text: str, **more: Any) -> dict[str, Any]:
    return {"choices": [{"text": text}], **more}


def sent(*chunks: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in chunks)


USAGE = {"completion_tokens": 2, "prompt_tokens": 3}


def test_usage_in_a_last_chunk_without_a_token_comes_alone() -> None:
    text = sent(chunk("a"), chunk("b"), chunk("", usage=USAGE)) + b"data: [DONE]\n\n"
    expected = [chunk("a"), chunk("b"), {"choices": [], "usage": USAGE}, "[DONE]"]
    assert messages(text) == expected
    assert messages(text[:30], text[30:-40], text[-40:]) == expected  # wherever it is cut
    assert messages(text, unsupported="nothing") == [
        chunk("a"), chunk("b"), chunk("", usage=USAGE), "[DONE]"
    ]  # fmt: skip


def test_usage_in_a_last_chunk_with_a_token_comes_after_it() -> None:
    assert messages(sent(chunk("a"), chunk("b", usage=USAGE))) == [
        chunk("a"), chunk("b"), {"choices": [], "usage": USAGE}
    ]  # fmt: skip


def test_usage_that_comes_alone_is_left_as_it_is() -> None:
    told = {"choices": [], "usage": USAGE}
    assert messages(sent(chunk("a", usage=None), told)) == [chunk("a", usage=None), told]
