"""Everything printed follows from the ledger, and what is committed of it is current."""

from __future__ import annotations

import pytest
import yaml

from assay.ledger import judge, records, store
from assay.press import pages, show


@pytest.fixture(scope="module")
def claims() -> list[records.Claim]:
    return store.claims()


@pytest.fixture(scope="module")
def judged() -> dict[str, judge.Verdict]:
    return pages.verdicts()


def test_every_increment_has_a_place_in_the_sidebar(claims: list[records.Claim]) -> None:
    placed = [increment for _, group in pages.GROUPS for increment in group]
    assert len(placed) == len(set(placed))
    assert {c.increment for c in claims} <= set(placed)


def test_the_committed_contents_are_current(
    claims: list[records.Claim], judged: dict[str, judge.Verdict]
) -> None:
    assert store.read_text(store.path("_toc.yml")) == pages.toc_text(claims, judged)


def test_the_contents_list_every_claim_once_with_its_glyph(
    claims: list[records.Claim], judged: dict[str, judge.Verdict]
) -> None:
    toc = yaml.safe_load(pages.toc_text(claims, judged))
    chapters = [c for part in toc["parts"] for c in part["chapters"] if "title" in c]
    assert sorted(c["file"] for c in chapters) == sorted(f"claims/{c.id}" for c in claims)
    for chapter in chapters:
        glyph = show.GLYPHS[judged[chapter["file"].removeprefix("claims/")].status]
        assert chapter["title"].startswith(f"{glyph} ")


def test_the_readme_score_is_current(judged: dict[str, judge.Verdict]) -> None:
    text = store.read_text(store.path("README.md"))
    assert pages.readme_text(text, judged) == text
    assert pages.score(judged) in text


def test_the_readme_pictures_show_the_ledgers_numbers(
    claims: list[records.Claim], judged: dict[str, judge.Verdict]
) -> None:
    mark = pages.picture_mark(pages.scoreboard_rows(claims, judged))
    for scheme in ("light", "dark"):
        picture = store.path("book", "_static", f"scoreboard-{scheme}.svg")
        assert store.read_text(picture).rstrip().endswith(mark)


def test_the_score_counts_every_claim_once(judged: dict[str, judge.Verdict]) -> None:
    words = pages.score(judged).split(" · ")
    assert int(words[0].split()[0]) == sum(int(w.split()[0]) for w in words[1:])


def test_a_page_from_the_ledger_has_the_sections_of_every_page(
    claims: list[records.Claim], judged: dict[str, judge.Verdict]
) -> None:
    text = pages.ledger_page(claims[0], judged[claims[0].id])
    heads = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert heads == ["Claim", "Method", "Evidence", "Verdict", "What would change this"]


def test_a_page_without_a_notebook_says_so(
    claims: list[records.Claim], judged: dict[str, judge.Verdict]
) -> None:
    unwritten = claims[0].model_copy(update={"notebook": "never_written"})
    assert "is not written yet" in pages.ledger_page(unwritten, judged[unwritten.id])
    assert "is not written yet" not in pages.ledger_page(claims[0], judged[claims[0].id])


def test_the_scoreboard_says_for_every_claim_whether_gpu_evidence_exists(
    claims: list[records.Claim], judged: dict[str, judge.Verdict]
) -> None:
    rows = [line for line in pages.scoreboard_table(claims, judged).splitlines() if "{doc}" in line]
    assert len(rows) == len(claims)
    for row in rows:
        last = row.strip("| ").split(" | ")[-1]
        assert last == "none yet" or last.startswith("measured on ")


def test_the_readme_keeps_what_people_wrote() -> None:
    text = "before\n<!-- score:begin -->\nold\n<!-- score:end -->\nafter <!-- other:begin -->\n"
    printed = pages.readme_text(text, {})
    assert printed.startswith("before\n<!-- score:begin -->\n**0 claims")
    assert printed.endswith("after <!-- other:begin -->\n")
