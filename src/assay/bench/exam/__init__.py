"""Exam: the same questions to one model with reasoning on and off, and a record of every answer.

Owns blocks of one server start each, resuming, and the facts that provenance and gates need. Does
not own what is asked of which arm (``paper``), a single request (``asking``), the questions
(``tasks``), or what the records show (``reasoning``).

Both arms of a block run on the same server, in an order drawn from the seed, with the same
questions, sampling, budget and number of questions in flight. A finished block is a file; a run
that was broken off continues after it.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import datetime
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.bench import provenance as machines
from assay.bench.engines import server
from assay.bench.engines.recipe import Recipe
from assay.bench.exam import asking, tasks
from assay.bench.exam.paper import SWITCHES, Paper, Switch
from assay.bench.reasoning import bodies
from assay.errors import InputError
from assay.ledger import records, store

__all__ = ["SWITCHES", "Held", "Paper", "Switch", "hold"]

Progress = Callable[[str], None]


@dataclasses.dataclass(frozen=True, slots=True)
class Held:
    """A finished exam.

    Parameters
    ----------
    file : Path
        One JSON line per question and arm, as ``answers`` reads them.
    provenance : Provenance
        Where and with what it was held.
    gates : tuple of Gate
        What must hold for its numbers to count.
    """

    file: Path
    provenance: records.Provenance
    gates: tuple[records.Gate, ...]


def hold(recipe: Recipe, paper: Paper, folder: Path, *, progress: Progress | None = None) -> Held:
    """Hold an exam, or what is left of it.

    Parameters
    ----------
    recipe : Recipe
        The server; it is started anew for every block.
    paper : Paper
        What is asked.
    folder : Path
        Receives one file a block, the merged records and the servers' logs. Blocks of the same
        paper and recipe found there are kept.
    progress : callable, optional
        Called with one line a block.

    Returns
    -------
    Held
        All blocks.

    Raises
    ------
    RunError
        When the server does not come to serve.
    InputError
        When the folder holds blocks of another exam.
    """
    folder.mkdir(parents=True, exist_ok=True)
    identity = store.digest(store.json_text([dataclasses.asdict(paper), *_named(recipe)]))
    held = []
    for block in range(paper.blocks):
        file = folder / f"block-{block}.json"
        if file.is_file():
            done = store.parse_json(store.read_text(file), where=store.shown(file))
            if done.get("exam") != identity:
                raise InputError(
                    "holds a block of another exam",
                    where=store.shown(file),
                    fix="name another folder, or delete this one",
                )
        else:
            done = {"exam": identity, **_block(recipe, paper, block, folder)}
            store.write(file, store.json_text(done))
        held.append(done)
        if progress is not None:
            right = {arm: _right(done["rows"], arm) for arm in ("on", "off")}
            progress(
                f"block {block + 1} of {paper.blocks}: {len(paper.of(block))} questions, "
                f"right with reasoning {right['on']}, without {right['off']}"
            )
    rows = [row for block in held for row in block["rows"]]
    merged = folder / "answers.jsonl"
    store.write(merged, "".join(_line(row) for row in rows))
    return Held(merged, _provenance(recipe, held), _gates(paper, held))


def _line(row: Mapping[str, Any]) -> str:
    """Return a row as one JSON line; what is unknown is left out."""
    known = {key: value for key, value in row.items() if value is not None}
    return json.dumps(known, ensure_ascii=False, separators=(",", ":")) + "\n"


def _named(recipe: Recipe) -> tuple[str, ...]:
    return (recipe.engine, recipe.version, recipe.model, *recipe.flags)


def _right(rows: Sequence[Mapping[str, Any]], arm: str) -> int:
    return sum(row["correct"] for row in rows if row["arm"] == arm)


def _block(recipe: Recipe, paper: Paper, block: int, folder: Path) -> dict[str, Any]:
    """Start a server, let both arms sit, and return their rows with what was seen meanwhile."""
    count = _counter(recipe)
    rows: list[dict[str, Any]] = []
    gained: dict[str, float | None] = {}
    with server.start(recipe, folder / f"server-{block}") as served:
        name = (served.models() or [recipe.model])[0]
        # Some questions of either arm first: the first requests of a process are slower, and so is
        # the first batch of each size.
        for arm in paper.order(block):
            ask = functools.partial(_answer, served.url, name, recipe, paper, arm=arm, count=count)
            with concurrent.futures.ThreadPoolExecutor(paper.concurrency) as pool:
                list(pool.map(ask, paper.of(block)[: 2 * paper.concurrency]))
        watch = machines.Watch(recipe.devices)
        started = _now()
        watch.begin()
        for arm in paper.order(block):
            before = served.counts()
            with concurrent.futures.ThreadPoolExecutor(paper.concurrency) as pool:
                asked = [
                    pool.submit(_answer, served.url, name, recipe, paper, question, arm, count)
                    for question in paper.of(block)
                ]
                found = [one.result() for one in asked]
            rows += [{**row, "block": f"{block}"} for row in found]
            after = served.counts(settled=True)
            gained[arm] = None if before is None or after is None else after.since(before).output
        seen = watch.end()
    return {
        "rows": rows,
        "server_output_tokens": gained,
        "started": started,
        "ended": _now(),
        "device": seen.device,
        "clocks": [seen.clock_low, seen.clock_high],
        "load_average": seen.load_average,
    }


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _counter(recipe: Recipe) -> Callable[[str], int] | None:
    """Return what counts the tokens of a text; None when there is no tokenizer to count with."""
    try:
        from transformers import AutoTokenizer
    except ImportError:
        return None
    try:
        # The server has fetched what it serves; nothing is fetched twice.
        tokenizer = AutoTokenizer.from_pretrained(
            recipe.tokenizer or recipe.model, local_files_only=True
        )
    except (OSError, ValueError):
        return None
    return lambda text: len(tokenizer(text, add_special_tokens=False)["input_ids"])


def _answer(
    url: str,
    name: str,
    recipe: Recipe,
    paper: Paper,
    question: tasks.Question,
    arm: str,
    count: Callable[[str], int] | None,
) -> dict[str, Any]:
    """Ask one question and return its row."""
    switch = SWITCHES[paper.switch]
    added, said = (switch.on, switch.say_on) if arm == "on" else (switch.off, switch.say_off)
    text = question.asked(paper.template) + said
    body: dict[str, object] = {
        "model": name,
        "messages": [{"role": "user", "content": text}],
        "temperature": paper.temperature,
        "max_tokens": paper.budget,
        "stream_options": {"include_usage": True},
        **added,
    }
    reply = asking.put(url, {k: v for k, v in body.items() if k not in recipe.unsupported})
    texts, _ = bodies.sort(reply.content, [reply.reasoning])
    answer, right = question.marked(texts.text)
    detail = reply.usage.get("completion_tokens_details") or {}
    row: dict[str, Any] = {
        "id": question.id,
        "arm": arm,
        "question": text,
        "reference": question.reference,
        "content": reply.content,
        "answer": answer,
        "correct": right,
        "finish_reason": reply.finish,
        "prompt_tokens": reply.usage.get("prompt_tokens"),
        "completion_tokens": reply.usage.get("completion_tokens"),
        "reasoning_tokens": detail.get("reasoning_tokens"),
        "max_tokens": paper.budget,
        "temperature": paper.temperature,
        "concurrency": paper.concurrency,
        "start_s": round(reply.start, 4),
        "end_s": round(reply.end, 4),
        "e2e_s": round(reply.end - reply.start, 4),
        "ttft_s": _since(reply.start, reply.first),
        "ttfa_s": _since(reply.start, reply.first_answer),
    }
    if reply.reasoning:
        row["reasoning"] = reply.reasoning
    if count is not None:
        row["reasoning_body_tokens"] = count(texts.reasoning)
        row["answer_body_tokens"] = count(texts.text)
    if reply.error:
        row["error"] = reply.error
    return row


def _since(start: float, moment: float | None) -> float | None:
    return None if moment is None else round(moment - start, 4)


# -- what the numbers rest on ---------------------------------------------------------------------


def _provenance(recipe: Recipe, held: Sequence[Mapping[str, Any]]) -> records.Provenance:
    clocks = [c for block in held for c in block["clocks"] if c is not None]
    return records.Provenance(
        device=" and ".join(sorted({block["device"] for block in held})),
        driver=None,
        clocks=f"{min(clocks) / 1e6:.0f} to {max(clocks) / 1e6:.0f} MHz" if clocks else None,
        engine=recipe.engine,
        engine_version=recipe.version,
        flags=tuple(Path(part).name if "/" in part else part for part in recipe.flags),
        packages=machines.packages(),
        commit=machines.commit(),
        started=min(block["started"] for block in held),
        ended=max(block["ended"] for block in held),
    )


def _gates(paper: Paper, held: Sequence[Mapping[str, Any]]) -> tuple[records.Gate, ...]:
    rows = [row for block in held for row in block["rows"]]
    failed = sum("error" in row for row in rows)
    cut = sum(row["finish_reason"] == "length" for row in rows)
    said = sum(row["completion_tokens"] or 0 for row in rows)
    counted = [n for block in held for n in block["server_output_tokens"].values()]
    totals = None if None in counted else round(sum(counted))
    orders = {tuple(paper.order(block)) for block in range(paper.blocks)}
    loads = [block["load_average"] for block in held if block["load_average"] is not None]
    busy = f"{min(loads):.1f} to {max(loads):.1f}" if loads else "unknown"
    return (
        records.Gate(
            id="all-completed",
            passed=failed == 0,
            says=f"{len(rows) - failed:,} of {len(rows):,} answers came back",
        ),
        records.Gate(
            id="nothing-cut",
            passed=cut == 0,
            says=f"{cut:,} of {len(rows):,} answers reached {paper.budget} tokens",
        ),
        records.Gate(
            id="tokens-agree",
            passed=totals == said,
            says=f"{said:,} tokens in the answers' usage, "
            + ("no counters to compare" if totals is None else f"{totals:,} in the counters"),
        ),
        records.Gate(
            id="arms-interleaved",
            passed=True,
            says=f"both arms on each of {len(held)} server starts, in {len(orders)} orders, "
            f"at a load average of {busy}",
        ),
    )
