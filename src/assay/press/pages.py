"""Pages: everything that is printed from the ledger.

Owns the printed copies of executed notebooks and claim records under ``book/claims/``
(git-ignored), the scoreboard, and the two committed texts that must stay current: ``_toc.yml``
and the score and picture in the README. Does not own prose (``book/``), cards (``show``), the
tables of KV caches (``kv_table``) and of engines here (``lineup_table``), or verdicts (``judge``).

An executed copy is edited in exactly three places: its first heading becomes the claim's title with
the verdict's glyph, the injected-parameters cell is hidden, and figure names gain the claim's id,
because one notebook is printed for several claims.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.errors import RunError
from assay.ledger import judge, records, store
from assay.press import kv_table, lineup_table, show

__all__ = [
    "GROUPS",
    "build",
    "ledger_page",
    "picture_mark",
    "print_pages",
    "readme_text",
    "score",
    "scoreboard_rows",
    "scoreboard_table",
    "toc_text",
    "verdicts",
]

# Reading order of the sidebar: caption and the increments of the brief it gathers.
GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("KV cache", ("3",)),
    ("Throughput", ("5",)),
    ("Scheduling and offload", ("2", "C")),
    ("Reasoning and disaggregation", ("4",)),
    ("Ecosystem", ("1", "6", "A", "B", "warnings")),
)

_READ = ("how-to-read", "possible", "method")
_REFERENCE = ("kv-table", "engines-here", "glossary", "corrections", "status")


def verdicts() -> dict[str, judge.Verdict]:
    """Return every claim's verdict, computed from the ledger now."""
    return {c.id: judge.judge(c, store.live(c.id)) for c in store.claims()}


def score(judged: Mapping[str, judge.Verdict]) -> str:
    """Return the score in one line.

    Examples
    --------
    ``17 claims · 1 ✔ verified · 1 ✘ disputed · 15 ○ open``
    """
    words: list[str] = [v.status for v in judged.values()]
    counts = " · ".join(f"{words.count(w)} {show.GLYPHS[w]} {w}" for w in show.GLYPHS)
    return f"{len(words)} claims · {counts}"


def _grouped(claims: Sequence[records.Claim]) -> list[tuple[str, list[records.Claim]]]:
    order = {increment: (i, j) for i, (_, g) in enumerate(GROUPS) for j, increment in enumerate(g)}
    ranked = sorted(claims, key=lambda c: (order[c.increment], c.id))
    return [
        (caption, [c for c in ranked if c.increment in increments])
        for caption, increments in GROUPS
    ]


def toc_text(claims: Sequence[records.Claim], judged: Mapping[str, judge.Verdict]) -> str:
    """Return the content ``_toc.yml`` should have: reading order with verdict glyphs."""
    lines = [
        "# Printed by `assay book`; the order and the glyphs come from the ledger.",
        "format: jb-book",
        "root: index",
        "parts:",
        "  - caption: Read first",
        "    chapters:",
        *[f"      - file: {page}" for page in _READ],
    ]
    for caption, members in _grouped(claims):
        if not members:
            continue
        lines += [f"  - caption: {caption}", "    chapters:"]
        for claim in members:
            title = f"{show.GLYPHS[judged[claim.id].status]} {claim.title}"
            lines += [
                f"      - file: claims/{claim.id}",
                f"        title: {json.dumps(title, ensure_ascii=False)}",
            ]
    lines += [
        "  - caption: Reference",
        "    chapters:",
        *[f"      - file: {page}" for page in _REFERENCE],
    ]
    return "\n".join(lines) + "\n"


# -- pages of claims ------------------------------------------------------------------------------


def print_pages(*, only_ledger: bool = False) -> list[Path]:
    """Print every page the book needs and the texts that must stay current.

    Parameters
    ----------
    only_ledger : bool
        Ignore executed notebooks and print every claim from its record and evidence alone.

    Returns
    -------
    list of Path
        The files whose content changed.
    """
    claims = store.claims()
    judged = verdicts()
    folder = store.path("book", "claims")
    wanted: dict[Path, str] = {}
    for claim in claims:
        copy = store.path("_build", "executed", f"{claim.id}.ipynb")
        if copy.is_file() and not only_ledger:
            wanted[folder / f"{claim.id}.ipynb"] = _notebook_page(claim, judged[claim.id], copy)
        else:
            wanted[folder / f"{claim.id}.md"] = ledger_page(claim, judged[claim.id])
    wanted[folder / "_scoreboard.md"] = scoreboard_table(claims, judged)
    wanted[folder / "_status.md"] = _status_table(claims)
    wanted[folder / "_kv_table.md"] = kv_table.text()
    wanted[folder / "_engines_here.md"] = lineup_table.text()
    wanted[store.path("_toc.yml")] = toc_text(claims, judged)
    readme = store.path("README.md")
    if readme.is_file():
        wanted[readme] = readme_text(store.read_text(readme), judged)
    changed = [file for file, text in wanted.items() if store.write(file, text)]
    for stale in folder.glob("*"):
        if stale.suffix in (".md", ".ipynb") and stale not in wanted:
            stale.unlink()
    changed += _pictures(claims, judged)
    return changed


def _heading(claim: records.Claim, verdict: judge.Verdict) -> str:
    return f"# {show.GLYPHS[verdict.status]} {claim.title}"


def _notebook_page(claim: records.Claim, verdict: judge.Verdict, copy: Path) -> str:
    book: dict[str, Any] = store.read_json(copy)
    first = next(c for c in book["cells"] if c["cell_type"] == "markdown")
    source = first["source"] if isinstance(first["source"], str) else "".join(first["source"])
    first["source"] = re.sub(
        r"^# .*$", lambda _: _heading(claim, verdict), source, count=1, flags=re.MULTILINE
    )
    for cell in book["cells"]:
        tags = cell["metadata"].get("tags", [])
        if "injected-parameters" in tags:
            cell["metadata"]["tags"] = [*tags, "remove-cell"]
        figure = cell["metadata"].get("mystnb", {}).get("figure")
        if figure:
            figure["name"] = f"{claim.id}-{figure['name']}"
    return store.json_text(book)


def ledger_page(claim: records.Claim, verdict: judge.Verdict) -> str:
    """Return a claim's page printed from its record and evidence alone.

    Parameters
    ----------
    claim : Claim
        The record.
    verdict : Verdict
        As judged now.

    Returns
    -------
    str
        MyST Markdown with the same sections as a notebook's page.
    """
    exists = store.path("notebooks", f"{claim.notebook}.ipynb").is_file()
    if exists:
        method = (
            f"The notebook [`{claim.notebook}`](source:notebooks/{claim.notebook}.ipynb) "
            "derives this page. It was not executed for this build; the evidence below is the "
            "ledger's own.\n\n```\n" + show.command(claim) + "\n```"
        )
    else:
        method = (
            f"The notebook that will settle this claim, `{claim.notebook}`, is not written yet. "
            "What it must show is declared below, before any evidence: the value, the band that "
            "still counts as agreement, and the observation that would refute it."
        )
    parts = [
        _heading(claim, verdict),
        show.card(claim, verdict).text,
        "## Claim",
        show.quotation(claim).text,
        "## Method",
        method,
        "## Evidence",
        show.evidence(claim, store.evidence(claim.id)).text,
        "## Verdict",
        show.assertions(claim, verdict).text,
        "## What would change this",
        show.scope(claim).text,
    ]
    return "\n\n".join(parts) + "\n"


# -- scoreboard -----------------------------------------------------------------------------------


def _lead(claim: records.Claim, verdict: judge.Verdict) -> judge.Finding:
    heads = [f for f in verdict.findings if f.headline]
    numeric = [f for f in heads if not isinstance(f.claimed, bool)] or heads
    return next((f for f in numeric if f.status == verdict.status), numeric[0])


def scoreboard_table(claims: Sequence[records.Claim], judged: Mapping[str, judge.Verdict]) -> str:
    """Return the scoreboard: every claim with glyph, word, numbers, basis and GPU evidence."""
    blocks = [f"**{score(judged)}**\n"]
    for caption, members in _grouped(claims):
        rows = []
        for claim in members:
            verdict = judged[claim.id]
            lead = _lead(claim, verdict)
            assertion = claim.assertion(lead.id)
            rows.append(
                {
                    "verdict": f"{show.GLYPHS[verdict.status]} "
                    + show.verdict_words(verdict.status, verdict.reason),
                    "claim": _link(claim, claim.title),
                    "claimed": show.claimed(assertion),
                    "found": show.found(assertion, lead),
                    "basis": verdict.basis.replace("+", ", ") or "—",
                    "GPU evidence": show.gpu_evidence(store.live(claim.id)),
                }
            )
        if rows:
            blocks.append(f":::{{rubric}} {caption}\n:::\n\n{show.table(rows).text}\n")
    return "\n".join(blocks)


def _link(claim: records.Claim, words: str) -> show.Markdown:
    return show.Markdown(f"{{doc}}`{words} </claims/{claim.id}>`")


def scoreboard_rows(
    claims: Sequence[records.Claim], judged: Mapping[str, judge.Verdict]
) -> list[dict[str, Any]]:
    """Return found ÷ claimed per claim, for the picture; claims without a number are left out."""
    rows = []
    for _, members in _grouped(claims):
        for claim in members:
            verdict = judged[claim.id]
            lead = _lead(claim, verdict)
            claimed = claim.assertion(lead.id).claimed
            if isinstance(lead.claimed, bool | list) or claimed[0] <= 0:
                continue
            row: dict[str, Any] = {
                "label": claim.id,
                "glyph": show.GLYPHS[verdict.status],
                "low": _ratio(lead.low, claimed[1]),
                "high": _ratio(lead.high, claimed[0]),
                "limit": lead.low == 0,
            }
            rows.append(row)
    return rows


def _ratio(found: float | None, claimed: float) -> float | None:
    return None if found is None or found <= 0 else found / claimed


def picture_mark(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the comment by which a committed picture says which numbers it draws."""
    return f"<!-- ledger {store.digest(store.json_text(rows))[:16]} -->"


def _pictures(claims: Sequence[records.Claim], judged: Mapping[str, judge.Verdict]) -> list[Path]:
    """Draw the scoreboard, light and dark, unless the committed pictures show these numbers."""
    rows = scoreboard_rows(claims, judged)
    mark = picture_mark(rows)
    drawn = []
    for scheme in ("light", "dark"):
        file = store.path("book", "_static", f"scoreboard-{scheme}.svg")
        if file.is_file() and store.read_text(file).rstrip().endswith(mark):
            continue
        from assay.press import plot

        file.parent.mkdir(parents=True, exist_ok=True)
        plot.save(plot.scoreboard(rows, dark=scheme == "dark"), file)
        store.write(file, f"{store.read_text(file).rstrip()}\n{mark}\n")
        drawn.append(file)
    return drawn


_MARKS = re.compile(r"(<!-- (\w+):begin -->\n).*?(<!-- \2:end -->)", re.DOTALL)


def readme_text(text: str, judged: Mapping[str, judge.Verdict]) -> str:
    """Return the README with its printed score current.

    Parameters
    ----------
    text : str
        The README; the parts between ``<!-- score:begin -->`` and ``<!-- score:end -->`` are ours.
    judged : mapping of str to Verdict
        All verdicts.
    """
    printed = {"score": f"**{score(judged)}**"}

    def fill(match: re.Match[str]) -> str:
        words = printed.get(match.group(2))
        return match.group(0) if words is None else f"{match.group(1)}{words}\n{match.group(3)}"

    return _MARKS.sub(fill, text)


def _short(lines: Sequence[str]) -> str:
    if not lines:
        return "nothing was printed"
    plain = re.sub(r"\x1b\[[0-9;]*m", "", lines[0]).replace(f"{store.root()}/", "").strip()
    return f"{plain} (and {len(lines) - 1} more)" if len(lines) > 1 else plain


def _status_table(claims: Sequence[records.Claim]) -> str:
    """Return how each page of this build came about: executed when, for how long, with what."""
    rows = []
    for claim in claims:
        file = store.path("_build", "executed", f"{claim.id}.json")
        if file.is_file():
            run = store.read_json(file)
            state, seconds = "executed", f"{run['seconds']:.0f} s"
        else:
            exists = store.path("notebooks", f"{claim.notebook}.ipynb").is_file()
            state, seconds = (
                ("replayed from the ledger" if exists else "notebook not written yet"),
                "—",
            )
        rows.append(
            {
                "claim": _link(claim, claim.id),
                "notebook": f"`{claim.notebook}`",
                "page": state,
                "run time": seconds,
            }
        )
    return show.table(rows).text + "\n"


# -- the book -------------------------------------------------------------------------------------


def build(*, strict: bool = True) -> Path:
    """Build the HTML with Jupyter Book from a clean slate.

    Parameters
    ----------
    strict : bool
        Treat every warning as an error.

    Returns
    -------
    Path
        ``_build/html/index.html``.

    Raises
    ------
    RunError
        When Jupyter Book fails, with the last lines it printed.
    """
    # Incremental builds keep old sidebars, so only a clean build is published.
    shutil.rmtree(store.path("_build", "html"), ignore_errors=True)
    shutil.rmtree(store.path("_build", ".doctrees"), ignore_errors=True)
    order = [
        str(Path(sys.executable).with_name("jupyter-book")),
        "build",
        str(store.path("book")),
        "--path-output",
        str(store.root()),
        "--toc",
        str(store.path("_toc.yml")),
        "--config",
        str(store.path("_config.yml")),
        "-n",
        "--keep-going",
        *(["-W"] if strict else []),
    ]
    log = store.path("_build", "book.log")
    done = subprocess.run(
        order,
        cwd=store.root(),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONWARNINGS": "ignore", "NO_COLOR": "1"},
    )
    store.write(log, done.stdout + done.stderr)
    page = store.path("_build", "html", "index.html")
    if done.returncode or not page.is_file():
        printed = (done.stdout + done.stderr).splitlines()
        lines = [x for x in printed if "WARNING" in x or "ERROR" in x] or printed[-1:]
        raise RunError(
            f"the book did not build: {_short(lines)}",
            where="_build/book.log",
            fix="mend the page it names",
        )
    return page
