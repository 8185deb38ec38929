"""The exam: both arms ask the same, every answer is kept, and a broken-off exam goes on.

The server is a stub with a planted effect: with reasoning on it writes its steps and is right, with
reasoning off it answers at once and is wrong on every second question.
"""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from assay.bench import exam, reasoning
from assay.bench.engines.recipe import Recipe
from assay.bench.exam import arithmetic, asking
from assay.errors import InputError

QUESTIONS = tuple(arithmetic.questions(40, seed=5))
PAPER = exam.Paper(QUESTIONS, template="{expression}", blocks=2, concurrency=4, budget=100)
BROKEN = "break off"
BY_TEXT = {q.expression: (i, q) for i, q in enumerate(QUESTIONS)}


class _Stub(BaseHTTPRequestHandler):
    asked: list[dict[str, Any]]

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._send(b'{"data": [{"id": "stub"}]}', "application/json")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)  # type: ignore[attr-defined]
        if body["messages"][0]["content"] == BROKEN:
            piece = json.dumps({"choices": [{"delta": {"content": "1"}}]})
            self._send(f"data: {piece}\n\n".encode(), "text/event-stream")
            return
        number, question = BY_TEXT[body["messages"][0]["content"]]
        if body["chat_template_kwargs"]["enable_thinking"]:
            steps = arithmetic.scratchpad(question)
            pieces = [*steps.replace(";", "; ").split(" "), "</think>", str(question.result)]
        else:
            pieces = [str(question.result + number % 2)]
        events = [{"choices": [{"delta": {"content": piece}}]} for piece in pieces]
        events.append({"choices": [{"delta": {}, "finish_reason": "stop"}]})
        usage = {"prompt_tokens": 5, "completion_tokens": len(pieces)}
        events.append({"choices": [], "usage": usage})
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        self._send(text.encode(), "text/event-stream")

    def _send(self, content: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def recipe() -> Iterator[Recipe]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Stub)
    server.asked = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield Recipe(
        engine="stub",
        version="0",
        model="stub",
        url=f"http://127.0.0.1:{server.server_port}",
        ready="/v1/models",
        metrics="",
        devices=0,
    )
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_planted_effect_is_found_in_the_records(recipe: Recipe, tmp_path: Path) -> None:
    held = exam.hold(recipe, PAPER, tmp_path)
    on, off = reasoning.load(held.file)
    found = reasoning.compare(on, off)
    assert found["accuracy"]["on"] == 1.0
    assert found["accuracy"]["off"] == 0.5
    assert found["accuracy"]["low"] > 0.25
    # The stub writes one piece a step, the closing tag and the result; a step less than terms.
    steps = sum(arithmetic.LEVELS[q.level] - 1 + 2 for q in QUESTIONS)
    assert found["ratios"]["output_tokens_per_answer"]["value"] == pytest.approx(steps / 40)


def test_both_arms_are_asked_the_same_with_the_same_budget(recipe: Recipe, tmp_path: Path) -> None:
    held = exam.hold(recipe, PAPER, tmp_path)
    rows = [json.loads(line) for line in held.file.read_text().splitlines()]
    arms = {arm: [r for r in rows if r["arm"] == arm] for arm in ("on", "off")}
    key = ("id", "question", "reference", "max_tokens", "temperature", "concurrency")
    same = [{tuple(r[k] for k in key) for r in arms[arm]} for arm in ("on", "off")]
    assert same[0] == same[1]
    assert len(rows) == 2 * len(QUESTIONS)


def test_a_finished_block_is_not_asked_again(recipe: Recipe, tmp_path: Path) -> None:
    first = exam.hold(recipe, PAPER, tmp_path)
    before = first.file.read_text()
    (tmp_path / "block-1.json").unlink()
    said: list[str] = []
    again = exam.hold(recipe, PAPER, tmp_path, progress=said.append)
    rows = [json.loads(line) for line in again.file.read_text().splitlines()]
    kept = [json.loads(line) for line in before.splitlines()]
    assert [r for r in rows if r["block"] == "0"] == [r for r in kept if r["block"] == "0"]
    assert len(said) == 2


def test_a_folder_of_another_exam_is_refused(recipe: Recipe, tmp_path: Path) -> None:
    exam.hold(recipe, PAPER, tmp_path)
    with pytest.raises(InputError, match="another exam"):
        exam.hold(recipe, dataclasses.replace(PAPER, budget=50), tmp_path)


def test_the_answer_begins_behind_the_closing_tag(recipe: Recipe, tmp_path: Path) -> None:
    held = exam.hold(recipe, PAPER, tmp_path)
    rows = [json.loads(line) for line in held.file.read_text().splitlines()]
    assert all(r["ttft_s"] <= r["ttfa_s"] <= r["e2e_s"] + 1e-3 for r in rows)
    assert all(r["ttft_s"] == r["ttfa_s"] for r in rows if r["arm"] == "off")


def test_a_stream_that_breaks_off_is_a_failed_request(recipe: Recipe, tmp_path: Path) -> None:
    held = exam.hold(recipe, PAPER, tmp_path)
    assert not any("error" in json.loads(line) for line in held.file.read_text().splitlines())
    reply = asking.put(recipe.url, {"messages": [{"content": BROKEN}], "model": "stub"})
    assert (reply.error, reply.content) == ("the stream broke off", "1")


def test_gates_say_when_answers_were_cut_or_nothing_counts_along(
    recipe: Recipe, tmp_path: Path
) -> None:
    held = exam.hold(recipe, PAPER, tmp_path)
    passed = {gate.id: gate.passed for gate in held.gates}
    assert passed == {
        "all-completed": True,
        "nothing-cut": True,
        "tokens-agree": False,  # the stub has no counters
        "arms-interleaved": True,
    }


def test_a_server_that_refuses_leaves_a_row_that_says_why(recipe: Recipe) -> None:
    reply = asking.put(recipe.url.rsplit(":", 1)[0] + ":9", {"model": "stub"})
    assert reply.error
    assert reply.first is None


@pytest.mark.parametrize("change", [{"switch": "magic"}, {"blocks": 0}, {"budget": 0}])
def test_an_exam_that_cannot_be_held_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        dataclasses.replace(PAPER, **change)


def test_the_order_of_the_arms_is_drawn_and_both_orders_occur() -> None:
    paper = dataclasses.replace(PAPER, blocks=10)
    orders = [tuple(paper.order(block)) for block in range(10)]
    assert set(orders) == {("on", "off"), ("off", "on")}
    assert orders == [tuple(paper.order(block)) for block in range(10)]
