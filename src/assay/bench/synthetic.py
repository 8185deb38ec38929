"""Synthetic: an OpenAI-compatible server whose TTFT, TPOT and token counts are known.

Owns the server, its failure modes, and a tokenizer in which a word is a token, so that client and
server must count alike. With a planted effect of reasoning it thinks as it is asked to, in lengths
and with grades that are known. It does no inference: it exists to prove that the client, the gates
and the protocol recover what is known, and refuse what is wrong. Does not own the client, or what
is planted (``planted``).

Started as a process: ``python -m assay.bench.synthetic --port 8000 --ttft 0.2 --tpot 0.02``.
Every token is due at a fixed time after the request's arrival, so delays do not add up.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import itertools
import json
import operator
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from assay.bench.engines import counters, recipe
from assay.bench.exam import planted
from assay.ledger import store

__all__ = ["COUNTS", "MODES", "Behaviour", "serve", "tokenizer"]

Mode = Literal[
    "ok",
    "errors",  # a share of the requests is answered 500
    "refuse",  # every request is answered 503
    "drop",  # a share of the connections breaks in mid-answer
    "role-chunk",  # the first chunk comes at once and holds no text
    "wrong-usage",  # answers report twice the tokens that were sent
    "no-usage",  # answers report no tokens
    "miscount",  # the counters count twice
    "short",  # half the tokens asked for
    "warm-cache",  # the counters say that every prompt was in the prefix cache
    "compile",  # logs a compilation at every request
    "serial",  # one request at a time
]
MODES: tuple[Mode, ...] = Mode.__args__  # type: ignore[attr-defined]

COUNTS = counters.Names(
    prompt="synthetic:prompt_tokens_total",
    output="synthetic:generation_tokens_total",
    queried="synthetic:prefix_queries_total",
    hit="synthetic:prefix_hits_total",
    preempted="synthetic:preemptions_total",
)

_WORDS = 12_000  # tokens in the vocabulary; `vllm bench latency` needs 10,000
_COMPILED = "torch.compile takes 1.0 s in total"
_FIELD = operator.itemgetter(0)  # of a piece of an answer: where its word comes


@dataclasses.dataclass(frozen=True, slots=True)
class Behaviour:
    """What the server does.

    Parameters
    ----------
    ttft : float
        From a request's arrival to its first chunk with text [s].
    tpot : float
        Between tokens after the first [s].
    bundle : int
        Tokens in a chunk [tok].
    mode : str
        One of :data:`MODES`.
    share : float
        Share of requests that ``errors`` and ``drop`` concern [1].
    seed : int
        Which requests those are.
    ready_delay : float
        From the start until it answers at all [s].
    effect : str
        An effect of reasoning, as ``planted.Effect.text`` writes it: chats about sums are then
        answered with its lengths and grades. Without it every answer has the length asked for.
    """

    ttft: float = 0.2
    tpot: float = 0.02
    bundle: int = 1
    mode: Mode = "ok"
    share: float = 0.2
    seed: int = 0
    ready_delay: float = 0.0
    effect: str = ""


def serve(behaviour: Behaviour | None = None, *, words: str = "") -> recipe.Recipe:
    """Return how to start the server as an engine.

    Parameters
    ----------
    behaviour : Behaviour or None
        What it does.
    words : str
        Folder of its tokenizer, as :func:`tokenizer` wrote it; empty when no client needs one.

    Examples
    --------
    >>> serve(Behaviour(tpot=0.01)).engine
    'synthetic'
    """
    chosen = behaviour or Behaviour()
    command = [sys.executable, "-m", "assay.bench.synthetic", "--port", recipe.PORT]
    for field in dataclasses.fields(Behaviour):
        command += [f"--{field.name.replace('_', '-')}", str(getattr(chosen, field.name))]
    return recipe.Recipe(
        engine="synthetic",
        version="1",
        model="synthetic",
        tokenizer=words,
        weights_kind="random",
        command=tuple(command),
        counts=COUNTS,
        prefix_cache="off",
        compiles=r"torch\.compile takes",
        devices=0,
    )


def tokenizer(folder: Path) -> Path:
    """Write a tokenizer in which a word is a token, and return its folder.

    Parameters
    ----------
    folder : Path
        Made when missing.
    """
    vocabulary = {f"w{number}": number for number in range(_WORDS)}
    content: dict[str, object] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "w0"},
    }
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "w0", "eos_token": "w1"}
    store.write(folder / "tokenizer.json", store.json_text(content))
    store.write(folder / "tokenizer_config.json", store.json_text(settings))
    return folder


# -- the server -----------------------------------------------------------------------------------


class _Server:
    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.random = random.Random(behaviour.seed)
        self.totals = dict.fromkeys(dataclasses.astuple(COUNTS), 0)
        self.turn = asyncio.Semaphore(1 if behaviour.mode == "serial" else 10**9)
        self.effect = planted.Effect.read(behaviour.effect) if behaviour.effect else None

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return whether the connection stays open."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        arrived = time.perf_counter()
        method, path, _ = head.split("\r\n", 1)[0].split(" ")
        length = 0
        for line in head.split("\r\n"):
            if line.lower().startswith("content-length:"):
                length = int(line.partition(":")[2])
        body = await reader.readexactly(length)
        if method == "GET" and path == "/health":
            return _plain(writer, 200, "")
        if method == "GET" and path == "/metrics":
            return _plain(writer, 200, "".join(f"{k} {v}\n" for k, v in self.totals.items()))
        if method == "GET" and path == "/v1/models":
            return _plain(writer, 200, json.dumps({"data": [{"id": "synthetic"}]}))
        if method == "POST" and path in ("/v1/completions", "/v1/chat/completions"):
            async with self.turn:
                if self.behaviour.mode == "serial":
                    arrived = time.perf_counter()
                return await self._generate(writer, path, json.loads(body), arrived)
        return _plain(writer, 404, "")

    async def _generate(
        self, writer: asyncio.StreamWriter, path: str, asked: dict[str, Any], arrived: float
    ) -> bool:
        how = self.behaviour
        chosen = self.random.random() < how.share
        if how.mode == "refuse":
            return _plain(writer, 503, "refused")
        if how.mode == "errors" and chosen:
            return _plain(writer, 500, "failed on purpose")
        if how.mode == "compile":
            print(_COMPILED, flush=True)
        tokens = int(asked.get("max_tokens") or asked.get("max_completion_tokens") or 16)
        if how.mode == "short":
            tokens = max(1, tokens // 2)
        inputs = _count(asked)
        chat = path.endswith("chat/completions")
        pieces = [("content", f"w{2 + place % 7}") for place in range(tokens)]
        usage: dict[str, Any] = {"prompt_tokens": inputs, "completion_tokens": tokens}
        finish = ""
        if chat and self.effect is not None:
            said = _reply(self.effect, asked, tokens)
            pieces = [("", "")] * said.hidden
            pieces += [("reasoning_content", word) for word in said.reasoning]
            pieces += [("content", word) for word in said.content]
            usage, finish = said.usage(self.effect, inputs), said.finish
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        if how.mode == "role-chunk":
            _event(writer, _choice(chat, "", role=True))
        sent = 0
        while sent < len(pieces):
            field, bundle = next(itertools.groupby(pieces[sent : sent + how.bundle], _FIELD))
            words = [word for _, word in bundle]
            many = len(words)
            # The first chunk is due at the TTFT, and each later one with its last token.
            last = sent + many - 1 if sent else 0
            delay = arrived + how.ttft + last * how.tpot - time.perf_counter()
            if delay > 0:
                await asyncio.sleep(delay)
            if how.mode == "drop" and chosen and sent:
                writer.transport.abort()
                return False
            if field:
                _event(writer, _choice(chat, "".join(f"{word} " for word in words), field=field))
            sent += many
            self._add(COUNTS.output, many)
        if finish:
            ended = {"index": 0, "delta": {}, "finish_reason": finish}
            _event(writer, {"choices": [ended]})
        self._add(COUNTS.prompt, inputs)
        self.totals[COUNTS.queried] += inputs
        self.totals[COUNTS.hit] += inputs if how.mode == "warm-cache" else 0
        if how.mode != "no-usage":
            usage["completion_tokens"] *= 2 if how.mode == "wrong-usage" else 1
            _event(writer, {"choices": [], "usage": usage})
        _write(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    def _add(self, name: str, tokens: int) -> None:
        self.totals[name] += 2 * tokens if self.behaviour.mode == "miscount" else tokens


def _reply(effect: planted.Effect, asked: dict[str, Any], budget: int) -> planted.Reply:
    """Return what the planted model says; the switch is Qwen3's, and on unless turned off."""
    settings = asked.get("chat_template_kwargs") or {}
    text = f"{asked['messages'][-1]['content']}"
    return planted.reply(
        effect, text, thinking=bool(settings.get("enable_thinking", True)), budget=budget
    )


def _choice(chat: bool, text: str, *, role: bool = False, field: str = "content") -> dict[str, Any]:
    if chat:
        delta = {"role": "assistant", "content": ""} if role else {field: text}
        return {"choices": [{"index": 0, "delta": delta}]}
    return {"choices": [{"index": 0, "text": text}]}


def _count(asked: dict[str, Any]) -> int:
    """Return the words of a prompt, or the number of token ids it was given as."""
    prompt = asked.get("prompt")
    if isinstance(prompt, str):
        return len(prompt.split())
    if isinstance(prompt, list):
        return len(prompt)
    said = [message.get("content", "") for message in asked.get("messages", [])]
    parts = [part for each in said for part in (each if isinstance(each, list) else [each])]
    texts = [part.get("text", "") if isinstance(part, dict) else str(part) for part in parts]
    return sum(len(text.split()) for text in texts)


def _event(writer: asyncio.StreamWriter, content: dict[str, Any]) -> None:
    _write(writer, b"data: " + json.dumps(content).encode() + b"\n\n")


def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


def _plain(writer: asyncio.StreamWriter, status: int, body: str) -> bool:
    data = body.encode()
    head = f"HTTP/1.1 {status} Status\r\nContent-Length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)
    return True


async def _run(port: int, behaviour: Behaviour) -> None:
    await asyncio.sleep(behaviour.ready_delay)
    server = _Server(behaviour)
    listener = await asyncio.start_server(
        server.connection, "127.0.0.1", port, limit=2**24, backlog=1024
    )
    async with listener:
        await listener.serve_forever()


def main(arguments: Sequence[str]) -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(prog="assay.bench.synthetic")
    parser.add_argument("--port", type=int, required=True)
    for field in dataclasses.fields(Behaviour):
        parser.add_argument(
            f"--{field.name.replace('_', '-')}",
            type=type(field.default),
            default=field.default,
            choices=MODES if field.name == "mode" else None,
        )
    given = vars(parser.parse_args(arguments))
    asyncio.run(_run(given.pop("port"), Behaviour(**given)))


if __name__ == "__main__":
    main(sys.argv[1:])
