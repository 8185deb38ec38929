"""The page "Is this number possible?", clicked through in a headless Chromium as a reader would."""

from __future__ import annotations

import functools
import http.server
import json
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from assay import cli
from assay.physics import roofline, units

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "book" / "possible.md"
NARROW, WIDE = 390, 1280  # CSS px: a phone, a laptop
WORD = "#possible-answer .possible-word"
TOC = "format: jb-book\nroot: index\nchapters:\n  - file: possible\n"
QUESTION = (
    "?rate=120+tok%2Fs&model=llama-3.1-70b&gpu=h100-sxm-80gb&gpus=1&concurrency=1&precision=fp8"
)


def test_the_example_on_the_page_is_what_the_formula_gives():
    # NVIDIA A100 datasheet: 312 TFLOP/s in BF16, dense; Llama 3 70B has 70.55e9 parameters.
    text = PAGE.read_text(encoding="utf-8")
    assert f"**{units.number(roofline.compute_ceiling(312e12, 70.55e9))} tok/s**" in text


def test_every_field_has_a_label():
    text = PAGE.read_text(encoding="utf-8")
    fields = re.findall(r'<(?:input|select) id="([^"]+)"', text)
    assert len(fields) == 14
    assert sorted(fields) == sorted(re.findall(r'<label for="([^"]+)"', text))


# -- in the browser -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a book of this one page with the project's settings; warnings are errors."""
    copy = tmp_path_factory.mktemp("possible")
    shutil.copytree(ROOT / "book", copy / "book", ignore=shutil.ignore_patterns("claims", "*.md"))
    shutil.copy(PAGE, copy / "book")
    (copy / "book" / "index.md").write_text("# Book\n", encoding="utf-8")
    (copy / "_toc.yml").write_text(TOC, encoding="utf-8")
    shutil.copy(ROOT / "_config.yml", copy)
    order = [str(Path(sys.executable).with_name("jupyter-book")), "build", str(copy / "book"), "-W"]
    order += ["--path-output", str(copy), "--toc", str(copy / "_toc.yml")]
    done = subprocess.run(
        [*order, "--config", str(copy / "_config.yml")],
        cwd=copy,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    return copy / "_build" / "html"


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Keep requests out of the test's output."""


@pytest.fixture(scope="module")
def address(html: Path) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(_Quiet, directory=str(html))
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/possible.html"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def opened(chromium: Any, address: str) -> Iterator[Callable[..., Any]]:
    """Open the page; at the end, no script may have failed and no other host been asked."""
    contexts, problems, asked = [], [], []

    def open_(
        query: str = "", *, at: str = address, width: int = WIDE, scheme: str = "light"
    ) -> Any:
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, locale="en-US"
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
        page.on("request", lambda request: asked.append(request.url))
        page.goto(at + query)
        page.wait_for_selector(WORD)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert problems == []
    assert {urlsplit(url).hostname for url in asked} <= {"127.0.0.1", None}


def word(page: Any) -> str:
    return str(page.inner_text(WORD))


def becomes(page: Any, text: str) -> None:
    page.wait_for_function(
        "text => document.querySelector('#possible-answer').innerText.includes(text)", arg=text
    )


@pytest.mark.browser
def test_the_page_opens_with_an_answered_question(opened):
    page = opened()
    answer = page.inner_text("#possible-answer")
    assert "depends" in word(page)
    assert "Counting output tokens: impossible in every precision." in answer
    assert page.locator("#possible-readings tbody tr").count() == 12


@pytest.mark.browser
def test_the_answer_follows_as_one_types(opened):
    page = opened()
    page.fill("#possible-rate", "20000 tok/s")
    becomes(page, "impossible\n")
    page.fill("#possible-rate", "40 tok/s")
    page.select_option("#possible-precision", "w4a16")
    becomes(page, "○ possible")
    assert page.locator("#possible-readings tbody tr").count() == 2
    assert "suspect" in page.inner_text("#possible-notes").lower()


@pytest.mark.browser
def test_a_rate_per_user_is_shown_as_typed_and_as_meant(opened):
    page = opened()
    page.fill("#possible-rate", "200 tok/s/user")
    becomes(page, "allows 200 tok/s/user (5 ms per token)")


@pytest.mark.browser
def test_a_permalink_carries_every_input(opened, address):
    page = opened(QUESTION)
    page.fill("#possible-output", "256")
    page.click("#possible-form summary")
    page.fill("#possible-tokens_per_step", "1.5")
    page.select_option("#possible-model", "other")
    page.fill("#possible-size", "671e9:37e9")
    page.fill("#possible-gpus", "16")
    page.wait_for_url("**gpus=16**")
    link = str(page.evaluate("document.querySelector('#possible-permalink').href"))
    assert link == page.url
    again = opened("?" + urlsplit(link).query)
    texts = ("#possible-answer", "#possible-readings", "#possible-notes", "#possible-command")
    for part in texts:
        assert again.text_content(part) == page.text_content(part)
    assert again.input_value("#possible-size") == "671e9:37e9"
    assert again.is_visible("#possible-tokens_per_step")


@pytest.mark.browser
@pytest.mark.parametrize(
    "query",
    [
        "",
        QUESTION,
        "?rate=20+ms+TPOT&model=70B&gpu=h200-sxm-141gb&output=100&kv_bits=8",
        "?rate=150+ms+TTFT&model=qwen3-8b&gpu=l4&input=8192&gpus=1&overhead=2&cached=0.5",
        "?rate=3868+GB%2Fs&gpu=rtx-4090&gpus=1",
    ],
    ids=["start", "one-user", "tpot", "ttft", "copy"],
)
def test_the_command_shown_gives_the_same_readings(opened, query):
    page = opened(query)
    words = shlex.split(page.text_content("#possible-command"))
    done = CliRunner().invoke(cli.app, [*words[1:], "--json"])
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    rows = page.locator("#possible-readings tbody tr").evaluate_all(
        "rows => rows.map(r => r.dataset.possible === 'true')"
    )
    assert rows == [r["possible"] for r in answer["readings"]]
    assert word(page).endswith(answer["status"])


@pytest.mark.browser
def test_the_form_is_filled_by_keyboard_alone(opened):
    page = opened()
    page.focus("#possible-rate")
    page.keyboard.press("Control+A")
    page.keyboard.type("50 tok/s")
    reached = []
    for _ in range(8):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id"))
    fields = ("model", "gpu", "gpus", "input", "output", "concurrency", "precision", "counting")
    assert reached == [f"possible-{name}" for name in fields]
    page.keyboard.type("output")
    becomes(page, "5 of 6 readings allow 50 tok/s")  # BF16 does not fit on one card
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # the summary of "More conditions"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "possible-tokens_per_step"


@pytest.mark.browser
@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("rate", "fast", "does not begin with a number"),
        ("rate", "150 ms", "is a time of what?"),
        ("gpus", "0", "How many: must be at least 1"),
        ("gpus", "1.5", "How many: must be a whole number"),
    ],
)
def test_bad_input_is_one_sentence_at_its_field(opened, field, value, says):
    page = opened()
    page.fill(f"#possible-{field}", value)
    page.wait_for_selector("#possible-error:not([hidden])")
    assert says in page.inner_text("#possible-error")
    assert page.get_attribute(f"#possible-{field}", "aria-invalid") == "true"
    assert page.evaluate("'stale' in document.querySelector('#possible-result').dataset")
    page.fill(f"#possible-{field}", "3500 tok/s" if field == "rate" else "1")
    page.wait_for_selector("#possible-error", state="hidden")
    assert page.get_attribute(f"#possible-{field}", "aria-invalid") is None


@pytest.mark.browser
def test_the_answer_is_announced(opened):
    page = opened()
    region = page.locator("#possible-answer")
    assert region.get_attribute("aria-live") == "polite"
    assert page.get_attribute("#possible-error", "role") == "alert"


@pytest.mark.browser
def test_a_phone_shows_all_of_it_without_scrolling_sideways(opened):
    page = opened(width=NARROW)
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW
    for part in ("#possible-form", "#possible-answer", "#possible-readings", "#possible-beside"):
        wider = page.evaluate(
            "s => [...document.querySelectorAll(s + ', ' + s + ' *')]"
            ".filter(e => e.getBoundingClientRect().right > innerWidth + 1).length",
            part,
        )
        assert wider == 0, part
    heights = page.locator("#possible-form input:visible, #possible-form select").evaluate_all(
        "fields => fields.map(f => f.offsetHeight)"
    )
    assert min(heights) >= 24  # CSS px, WCAG 2.2 target size


CONTRAST = """
() => {
  const shade = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const found = shade(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll('#possible-form *, #possible-result *')]
    .filter((e) => e.checkVisibility() &&
      [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()))
    .map((e) => {
      const [a, b] = [light(shade(getComputedStyle(e).color)), light(ground(e))];
      return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.outerHTML.slice(0, 80)];
    })
    .filter(([ratio]) => ratio < 4.5);
}
"""


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_word_can_be_read_in_both_themes(opened, scheme):
    page = opened(QUESTION, scheme=scheme)
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    assert page.evaluate(CONTRAST) == []


@pytest.mark.browser
def test_the_page_works_from_a_folder_without_a_server(opened, html):
    page = opened(at=(html / "possible.html").as_uri())
    assert "depends" in word(page)
