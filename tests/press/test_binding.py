"""The Sphinx extension and the book's settings, without building the book."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jupyter_book
import pytest
import yaml

from assay.errors import InputError
from assay.ledger import judge, records
from assay.press import binding

ROOT = Path(__file__).resolve().parents[2]
ATOM = "{http://www.w3.org/2005/Atom}"

CLAIM = records.Claim.model_construct(id="some-claim", title="A number < another", source="who")
SOURCE = records.Source(
    producer="Somebody",
    title="A page",
    citation="Somebody (2026), A page",
    url="https://example.org/page",
    archived_url=None,
    date_published="2026-05-01",
    date_accessed=None,
    license=None,
    access="read",
)


def review(status: judge.Status, reason: judge.Reason = "") -> dict[str, Any]:
    verdict = judge.Verdict("some-claim", status, reason, ())
    return binding.claim_review(
        CLAIM, verdict, SOURCE, url="https://example.org/c.html", author="Us", date="2026-11-30"
    )


# -- settings -------------------------------------------------------------------------------------

# Jupyter Book's own list of keys; what stands below these is passed on and checked by Sphinx.
PASSED_ON = {("sphinx", "config"), ("sphinx", "local_extensions")}


def unknown_keys(
    config: dict[str, Any], known: dict[str, Any], at: tuple[str, ...] = ()
) -> list[str]:
    found = []
    for key, value in config.items():
        here = (*at, key)
        if key not in known:
            found.append(".".join(here))
        elif isinstance(value, dict) and here not in PASSED_ON:
            found += unknown_keys(value, known[key] or {}, here)
    return found


def known_keys() -> dict[str, Any]:
    file = Path(jupyter_book.__file__).with_name("default_config.yml")
    return dict(yaml.safe_load(file.read_text("utf-8")))


def settings() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "_config.yml").read_text("utf-8")))


def test_jupyter_book_knows_every_key_of_the_config() -> None:
    assert unknown_keys(settings(), known_keys()) == []


def test_a_misspelt_key_is_found() -> None:
    config = settings() | {"exclude_pattern": []}
    config["html"] = config["html"] | {"base_url": "x"}
    assert unknown_keys(config, known_keys()) == ["html.base_url", "exclude_pattern"]


def test_notebooks_are_not_executed_by_the_book() -> None:
    assert settings()["execute"]["execute_notebooks"] == "off"


def test_the_address_of_the_repository_is_written_once() -> None:
    text = (ROOT / "_config.yml").read_text("utf-8")
    assert text.count(settings()["repository"]["url"]) == 1


def test_the_stylesheet_is_the_only_one() -> None:
    # Jupyter Book links every stylesheet and script below book/_static into every page.
    found = [f.name for s in ("*.css", "*.js") for f in (ROOT / "book" / "_static").rglob(s)]
    assert found == ["book.css"]


# -- colours --------------------------------------------------------------------------------------


def luminance(colour: str) -> float:
    # WCAG 2.2, relative luminance.
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    a, b = sorted((luminance(one), luminance(other)), reverse=True)
    return (a + 0.05) / (b + 0.05)


# Text and page of pydata-sphinx-theme 0.16.1, light and dark.
THEME = {"light": ("#222832", "#ffffff"), "dark": ("#ced6dd", "#14181e")}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("word", ["verified", "disputed", "open", "takeaway"])
def test_a_card_can_be_read(scheme: str, word: str) -> None:
    css = (ROOT / "book" / "_static" / "book.css").read_text("utf-8")
    values = re.findall(rf"--assay-{word}(-ground)?: (#[0-9a-f]{{6}});", css)
    mark, ground = (v for _, v in values[:2]) if scheme == "light" else (v for _, v in values[2:])
    text, page = THEME[scheme]
    assert contrast(text, ground) >= 4.5  # WCAG AA, text
    assert contrast(mark, page) >= 3  # WCAG AA, graphics


# -- MathJax --------------------------------------------------------------------------------------


def test_every_part_of_mathjax_that_the_book_needs_is_installed() -> None:
    folder = binding.mathjax_folder()
    assert all((folder / part).exists() for part, _ in binding._MATHJAX_PARTS)


def test_a_missing_mathjax_is_said_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(InputError, match="pip install"):
        binding.mathjax_folder()


# -- verdicts as data -----------------------------------------------------------------------------


def test_a_decided_claim_has_a_rating() -> None:
    assert review("verified")["reviewRating"]["ratingValue"] == 5
    assert review("disputed")["reviewRating"]["ratingValue"] == 1


def test_an_open_claim_has_words_and_no_rating() -> None:
    assert review("open", "not-run")["reviewRating"] == {
        "@type": "Rating",
        "alternateName": "open (not-run)",
    }


def test_an_unpublished_source_leaves_out_its_address() -> None:
    silent = SOURCE.model_copy(update={"url": None, "date_published": None})
    verdict = judge.Verdict("some-claim", "open", "not-run", ())
    data = binding.claim_review(CLAIM, verdict, silent, url="u", author="Us", date="")
    assert data["itemReviewed"] == {
        "@type": "Claim",
        "author": {"@type": "Organization", "name": "Somebody"},
    }
    assert "datePublished" not in data


# -- the feed -------------------------------------------------------------------------------------

FIRST = {"date": "2026-11-29", "from": "", "to": "open (not-run)", "cause": "new"}
THEN = {"date": "2026-11-30", "from": "open (not-run)", "to": "verified", "cause": "a & b"}
ROWS = [{"claim": "a", "assertion": "x", **row} for row in (FIRST, THEN)]


def feed(rows: list[dict[str, str]]) -> ElementTree.Element:
    text = binding.feed(rows, base="https://example.org/b/", title="Assay", author="Us")
    return ElementTree.fromstring(text)


def test_the_newest_change_comes_first() -> None:
    titles = [entry.findtext(f"{ATOM}title") for entry in feed(ROWS).findall(f"{ATOM}entry")]
    assert titles == ["a, x: open (not-run) → verified", "a, x: open (not-run)"]


def test_an_entry_keeps_its_id_when_the_history_grows() -> None:
    before = feed(ROWS[:1]).find(f"{ATOM}entry")
    after = feed(ROWS).findall(f"{ATOM}entry")[-1]
    assert before is not None
    assert before.findtext(f"{ATOM}id") == after.findtext(f"{ATOM}id")


def test_the_feed_has_what_a_reader_program_requires() -> None:
    root = feed(ROWS)
    for name in ("id", "title", "updated", "author"):  # RFC 4287, 4.1.1
        assert root.find(f"{ATOM}{name}") is not None, name
    assert root.findtext(f"{ATOM}updated") == "2026-11-30T00:00:00Z"


def test_an_empty_history_has_no_feed() -> None:
    with pytest.raises(InputError, match="history is empty"):
        feed([])


# -- figures --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("svg", "size"),
    [
        ('<svg height="136.8pt" width="518.4pt">', (691, 182)),  # 7.2 x 1.9 in
        ('<?xml version="1.0"?>\n<svg\n width="10px" height="20">', (10, 20)),
        ('<svg viewBox="0 0 1 1">', None),
        ('<svg width="100%" height="20">', None),
        ("not a picture", None),
    ],
)
def test_a_figure_keeps_the_room_it_states(svg: str, size: tuple[int, int] | None) -> None:
    assert binding.image_size(svg) == size
