"""The built book, read as a reader's browser reads it.

The pages are printed and built once per session, in a copy of the project, from whatever the ledger
and the executed notebooks hold.
"""

from __future__ import annotations

import functools
import http.server
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import pytest
from bs4 import BeautifulSoup, Tag

from assay.ledger import judge, records, store
from assay.press import show

ROOT = Path(__file__).resolve().parents[2]
# Chromium's own errands would look like requests of the page.
NARROW, WIDE = 390, 1280  # CSS px: a phone, a laptop

pytestmark = pytest.mark.book


# -- the book, once -------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Print and build the book in a copy of the project; return the folder of its pages."""
    copy = tmp_path_factory.mktemp("book")
    for name in ("data", "notebooks"):
        (copy / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "book", copy / "book", ignore=shutil.ignore_patterns("claims"))
    shutil.copy(ROOT / "_config.yml", copy)
    if (ROOT / "_build" / "executed").is_dir():
        shutil.copytree(ROOT / "_build" / "executed", copy / "_build" / "executed")
    done = subprocess.run(
        [sys.executable, "-m", "assay", "book"],
        cwd=copy,
        env={**os.environ, "ASSAY_ROOT": str(copy)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"assay book: {done.stderr.strip() or done.stdout.strip()}")
    return copy / "_build" / "html"


@pytest.fixture(scope="session")
def pages(html: Path) -> dict[str, BeautifulSoup]:
    """Return every page by its path below the book."""
    return {
        file.relative_to(html).as_posix(): BeautifulSoup(file.read_text("utf-8"), "html.parser")
        for file in sorted(html.rglob("*.html"))
        if "_static" not in file.relative_to(html).parts
    }


def article(page: BeautifulSoup) -> Tag | None:
    return page.select_one("article.bd-article")


def written(pages: dict[str, BeautifulSoup]) -> dict[str, Tag]:
    """Return the articles of the pages that somebody wrote or printed."""
    return {name: body for name, page in pages.items() if (body := article(page)) is not None}


@functools.cache
def verdict(claim_id: str) -> judge.Verdict:
    return judge.judge(store.claim(claim_id), store.live(claim_id))


# -- what a page may ask for ----------------------------------------------------------------------


def test_no_page_asks_another_host(pages: dict[str, BeautifulSoup]) -> None:
    asked = {
        (name, address)
        for name, page in pages.items()
        for selector, attribute in (
            ("script[src]", "src"),
            (
                "link[rel~=stylesheet], link[rel~=icon], link[rel~=preload], link[rel~=preconnect]",
                "href",
            ),
            ("img[src], iframe[src], source[src], video[src], audio[src], embed[src]", "src"),
        )
        for element in page.select(selector)
        if urlsplit(address := str(element[attribute])).netloc
    }
    assert not asked


def test_no_script_names_a_place_to_load_code_from(pages: dict[str, BeautifulSoup]) -> None:
    for name, page in pages.items():
        for script in page.select("script:not([src]):not([type$='json'])"):
            found = re.findall(r"https?://[^\s\"'`]+", script.get_text())
            assert not found, f"{name}: {found}"


def test_no_stylesheet_asks_another_host(html: Path) -> None:
    for file in html.rglob("*.css"):
        found = re.findall(
            r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)\"']+", file.read_text("utf-8")
        )
        assert not found, f"{file.relative_to(html)}: {found}"


def test_every_internal_link_leads_somewhere(html: Path, pages: dict[str, BeautifulSoup]) -> None:
    ids = {name: {str(e["id"]) for e in page.select("[id]")} for name, page in pages.items()}
    broken = []
    for name, page in pages.items():
        if name == "404.html":  # its links are absolute, for a visitor at an unknown depth
            continue
        for link in page.select("a[href]"):
            address = urlsplit(str(link["href"]))
            if address.scheme or address.netloc:
                continue
            target = (html / name).parent / unquote(address.path) if address.path else html / name
            if not target.resolve().is_file():
                broken.append(f"{name} → {link['href']}")
                continue
            key = target.resolve().relative_to(html.resolve()).as_posix()
            fragment = unquote(address.fragment)
            if fragment and key in ids and fragment not in ids[key]:
                broken.append(f"{name} → {link['href']}")
    assert not broken


# -- what a page must hold ------------------------------------------------------------------------


def test_every_claim_has_a_page_and_a_place_in_the_sidebar(pages: dict[str, BeautifulSoup]) -> None:
    entries = {
        urlsplit(str(link["href"])).path: link.get_text(strip=True)
        for link in pages["index.html"].select(".bd-sidebar-primary nav a[href]")
    }
    for claim_id in store.claim_ids():
        name = f"claims/{claim_id}.html"
        assert name in pages, f"no page for {claim_id}"
        assert name in entries, f"{claim_id} is not in the sidebar"
        assert entries[name].startswith(show.GLYPHS[verdict(claim_id).status]), claim_id


def test_the_scoreboard_links_every_claim(pages: dict[str, BeautifulSoup]) -> None:
    linked = {str(a["href"]) for a in pages["index.html"].select(".scoreboard td a[href]")}
    assert linked == {f"claims/{claim_id}.html" for claim_id in store.claim_ids()}


def test_every_claim_page_opens_with_the_card_of_its_verdict(
    pages: dict[str, BeautifulSoup],
) -> None:
    for claim_id in store.claim_ids():
        body = written(pages)[f"claims/{claim_id}.html"]
        status = verdict(claim_id).status
        card = body.select_one(".admonition.verdict")
        assert card is not None, f"{claim_id} has no card"
        assert f"verdict-{status}" in card["class"], claim_id
        title = card.select_one(".admonition-title")
        assert title is not None and title.get_text().startswith(show.GLYPHS[status]), claim_id


def test_every_claim_page_carries_its_verdict_as_data(pages: dict[str, BeautifulSoup]) -> None:
    for claim_id in store.claim_ids():
        scripts = pages[f"claims/{claim_id}.html"].select("script[type='application/ld+json']")
        assert len(scripts) == 1, claim_id
        review = json.loads(scripts[0].get_text())
        assert review["@type"] == "ClaimReview"
        assert review["reviewRating"]["alternateName"].split(" ")[0] == verdict(claim_id).status
        assert review["url"].endswith(f"/claims/{claim_id}.html")


def test_every_page_with_a_notebook_leads_back_to_it_and_shows_the_command(
    pages: dict[str, BeautifulSoup],
) -> None:
    for claim in store.claims():
        if not store.path("notebooks", f"{claim.notebook}.ipynb").is_file():
            continue
        page = pages[f"claims/{claim.id}.html"]
        links = [str(a["href"]) for a in page.select("a[href]")]
        assert any(a.endswith(f"/notebooks/{claim.notebook}.ipynb") for a in links), claim.id
        assert show.command(claim) in page.get_text(), claim.id


def test_the_feed_tells_every_recorded_change(html: Path) -> None:
    rows = store.history()
    if not rows:
        assert not (html / "atom.xml").exists()
        return
    entries = ElementTree.parse(html / "atom.xml").findall("{http://www.w3.org/2005/Atom}entry")
    ids = [entry.findtext("{http://www.w3.org/2005/Atom}id") for entry in entries]
    assert len(ids) == len(rows)
    assert len(set(ids)) == len(ids)


def test_the_sitemap_lists_every_claim(html: Path) -> None:
    listed = (html / "sitemap.xml").read_text("utf-8")
    assert all(f"/claims/{claim_id}.html<" in listed for claim_id in store.claim_ids())


# -- how a page is made ---------------------------------------------------------------------------


def test_headings_descend_without_a_gap(pages: dict[str, BeautifulSoup]) -> None:
    for name, body in written(pages).items():
        levels = [int(h.name[1]) for h in body.select("h1, h2, h3, h4, h5, h6")]
        assert levels and levels[0] == 1 and levels.count(1) == 1, name
        assert all(b <= a + 1 for a, b in itertools.pairwise(levels)), name


def test_no_id_stands_twice_on_a_page(pages: dict[str, BeautifulSoup]) -> None:
    for name, body in written(pages).items():
        twice = [
            key for key, n in Counter(str(e["id"]) for e in body.select("[id]")).items() if n > 1
        ]
        assert not twice, f"{name}: {twice}"


def test_every_picture_has_a_text(pages: dict[str, BeautifulSoup]) -> None:
    for name, body in written(pages).items():
        for image in body.select("img"):
            text = str(image.get("alt", "")).strip()
            assert text and not text.endswith((".svg", ".png")), f"{name}: {image['src']}"


def test_every_figure_states_its_size_so_that_the_text_does_not_jump(
    pages: dict[str, BeautifulSoup],
) -> None:
    for name, body in written(pages).items():
        for image in body.select("img[src$='.svg']"):
            assert image.get("width") and image.get("height"), f"{name}: {image['src']}"


def test_no_markup_leaks_into_the_text(pages: dict[str, BeautifulSoup]) -> None:
    leaks = re.compile(r":::|\{(?:glue|doc|term|lang=|include|admonition)|\]\(|\*\*")
    for name, body in written(pages).items():
        for code in body.select("pre, code"):
            code.extract()
        found = leaks.search(body.get_text())
        assert found is None, f"{name}: …{body.get_text()[found.start() - 40 : found.end() + 40]}…"


def test_the_methods_table_of_bases_is_the_one_the_judge_uses(
    pages: dict[str, BeautifulSoup],
) -> None:
    table = next(
        t for t in written(pages)["method.html"].select("table") if "may dispute" in t.get_text()
    )
    rows = [[td.get_text(strip=True) for td in tr.select("td")] for tr in table.select("tbody tr")]
    assert {row[0] for row in rows} == set(records.BASES)
    assert {row[0] for row in rows if row[2].startswith("yes")} == records.MAY_VERIFY
    assert {row[0] for row in rows if row[3].startswith("yes")} == records.MAY_DISPUTE


# -- in a browser ---------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def address(html: Path) -> Iterator[str]:
    """Serve the book on this machine; return its address."""

    class Silent(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Silent, directory=str(html))
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join(timeout=10)


def samples(pages: dict[str, BeautifulSoup]) -> list[str]:
    """Return the pages a browser visits: all prose, and the claims' pages that differ in kind."""
    # The page for lost readers expects the book at its published address.
    prose = [name for name in written(pages) if "/" not in name and name != "404.html"]
    claims = [name for name in pages if name.startswith("claims/")]
    executed = [n for n in claims if pages[n].select_one("div.cell")]
    return [*prose, *(executed or claims[:1])[:6], *claims[-1:]]


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_a_visit_is_quiet_fits_and_asks_nobody_else(
    chromium: object, address: str, pages: dict[str, BeautifulSoup], width: int, scheme: str
) -> None:
    context = chromium.new_context(  # type: ignore[attr-defined]
        viewport={"width": width, "height": 900}, color_scheme=scheme
    )
    tab = context.new_page()
    asked: list[str] = []
    said: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.on("console", lambda line: said.append(line.text) if line.type == "error" else None)
    tab.on("pageerror", lambda error: said.append(str(error)))
    for name in samples(pages):
        asked.clear(), said.clear()
        tab.goto(address + name, wait_until="load")
        tab.wait_for_timeout(150)
        outside = [url for url in asked if not url.startswith((address, "data:", "blob:"))]
        assert not outside, f"{name} asks {outside}"
        assert not said, f"{name}: {said}"
        over = tab.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert over <= 0, f"{name} is {over} px too wide at {width} px"
        assert tab.evaluate("document.documentElement.dataset.theme") == scheme
    context.close()


@pytest.mark.browser
def test_formulas_are_set(chromium: object, address: str, pages: dict[str, BeautifulSoup]) -> None:
    tab = chromium.new_page()  # type: ignore[attr-defined]
    tab.goto(address + "method.html")
    tab.wait_for_selector("mjx-container", timeout=20_000)
    written_formulas = len(written(pages)["method.html"].select(".math"))
    tab.wait_for_function(
        f"document.querySelectorAll('mjx-container').length >= {written_formulas}", timeout=20_000
    )
    assert tab.locator("mjx-merror, [data-mjx-error]").count() == 0
    tab.close()


@pytest.mark.browser
def test_figures_are_white_paper_in_the_dark(
    chromium: object, address: str, pages: dict[str, BeautifulSoup]
) -> None:
    tab = chromium.new_page(color_scheme="dark")  # type: ignore[attr-defined]
    seen = 0
    for name in samples(pages):
        tab.goto(address + name)
        styles = tab.evaluate(
            "[...document.querySelectorAll('.bd-article :is(div.cell_output, figure) img')]"
            ".map(e => getComputedStyle(e)).map(s => [s.backgroundColor, s.filter])"
        )
        assert all(style == ["rgb(255, 255, 255)", "none"] for style in styles), f"{name}: {styles}"
        seen += len(styles)
    assert seen
    tab.close()


@pytest.mark.browser
def test_cards_and_tables_do_not_sit_on_a_pale_slab_in_the_dark(
    chromium: object, address: str, pages: dict[str, BeautifulSoup]
) -> None:
    tab = chromium.new_page(color_scheme="dark")  # type: ignore[attr-defined]
    for name in samples(pages):
        tab.goto(address + name)
        pale = tab.evaluate(
            """() => [...document.querySelectorAll('.bd-article :is(.admonition, .admonition-title,'
                   + 'table, td, th, .text_html, .text_markdown, pre)')]
               .map(e => [e.className || e.tagName, getComputedStyle(e).backgroundColor])
               .filter(([_, c]) => { const [r, g, b, alpha = 1] = c.match(/[0-9.]+/g).map(Number);
                 return alpha > 0.3 && Math.min(r, g, b) > 150 })"""
        )
        assert not pale, f"{name}: {pale}"
    tab.close()


@pytest.mark.browser
def test_the_scoreboard_is_readable_on_a_phone(
    chromium: object, address: str, pages: dict[str, BeautifulSoup]
) -> None:
    tab = chromium.new_page(viewport={"width": NARROW, "height": 900})  # type: ignore[attr-defined]
    tab.goto(address + "index.html")
    beyond = tab.evaluate(
        "[...document.querySelectorAll('.scoreboard td, .scoreboard td a')]"
        ".filter(e => e.getBoundingClientRect().right > window.innerWidth).length"
    )
    assert beyond == 0
    labels = tab.evaluate(
        "[...document.querySelector('.scoreboard tbody tr').children].slice(2)"
        ".map(e => getComputedStyle(e, '::before').content.replaceAll('\"', ''))"
    )
    heads = [
        th.get_text(strip=True)
        for th in pages["index.html"].select_one(".scoreboard thead").select("th")
    ]  # type: ignore[union-attr]
    assert labels == heads[2:]
    tab.close()


@pytest.mark.browser
def test_what_the_keyboard_reaches_is_outlined(chromium: object, address: str) -> None:
    tab = chromium.new_page()  # type: ignore[attr-defined]
    tab.goto(address + "index.html")
    for _ in range(6):
        tab.keyboard.press("Tab")
        width = tab.evaluate("parseFloat(getComputedStyle(document.activeElement).outlineWidth)")
        assert width >= 2
    tab.close()
