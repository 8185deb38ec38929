"""Binding: what Assay adds to the book while Sphinx builds it.

Owns the Sphinx extension: MathJax from an installed package, the way from a page back to the
notebook and the command that made it, the machine-readable verdict of a page, the feed of changes,
and the removal of scripts that would ask another host. Does not own what a page says (``pages``,
``show``), and decides nothing: every verdict comes from ``judge``.

Notes
-----
The verdict is published as schema.org ``ClaimReview`` (https://schema.org/ClaimReview), the changes
as an Atom feed (RFC 4287).
"""

from __future__ import annotations

import functools
import html
import importlib.util
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from assay.errors import AssayError, InputError
from assay.ledger import judge, store
from assay.press import show

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx
    from sphinx.config import Config

    from assay.ledger import records

__all__ = ["claim_review", "feed", "image_size", "mathjax_folder", "setup", "source_link"]

_PAGES = "claims/"
_FEED = "atom.xml"

# What a browser asks for to set a formula; the package's other parts (menus, speech, SVG) are not
# used and stay out of the book.
_MATHJAX_PARTS = (
    ("es5/tex-mml-chtml.js", "mathjax"),
    ("es5/input/tex/extensions", "mathjax/input/tex/extensions"),
    ("es5/output/chtml/fonts/woff-v2", "mathjax/output/chtml/fonts/woff-v2"),
    ("LICENSE", "mathjax"),
)

# schema.org wants a number beside the word. An open verdict has none.
_RATING = {"verified": 5, "disputed": 1}


# -- what a page is given -------------------------------------------------------------------------


def source_link(path: str, *, repository: str, branch: str) -> str:
    """Return the address of a file's source.

    Parameters
    ----------
    path : str
        Below the project's root.
    repository, branch : str
        As in ``_config.yml``.

    Examples
    --------
    >>> source_link("data/sources.yml", repository="https://example.org/assay/", branch="main")
    'https://example.org/assay/blob/main/data/sources.yml'
    """
    return f"{repository.rstrip('/')}/blob/{branch}/{path}"


def claim_review(
    claim: records.Claim,
    verdict: judge.Verdict,
    source: records.Source,
    *,
    url: str,
    author: str,
    date: str,
) -> dict[str, object]:
    """Return the verdict of a claim as a schema.org ``ClaimReview``.

    Parameters
    ----------
    claim, verdict, source : Claim, Verdict, Source
        What was said, what was found, and who said it.
    url : str
        Address of the claim's page.
    author : str
        Who publishes the review.
    date : str
        Day the verdict last changed, ``YYYY-MM-DD``; empty when it is not recorded yet.

    Returns
    -------
    dict
        JSON-LD. An open verdict carries its reason and no rating value.
    """
    words = verdict.status if not verdict.reason else f"{verdict.status} ({verdict.reason})"
    rating: dict[str, object] = {"@type": "Rating", "alternateName": words}
    if verdict.status in _RATING:
        rating |= {"ratingValue": _RATING[verdict.status], "bestRating": 5, "worstRating": 1}
    said: dict[str, object] = {
        "@type": "Claim",
        "author": {"@type": "Organization", "name": source.producer},
    }
    if source.date_published:
        said["datePublished"] = source.date_published
    if source.url:
        said["appearance"] = {"@type": "CreativeWork", "url": source.url, "name": source.title}
    review: dict[str, object] = {
        "@context": "https://schema.org",
        "@type": "ClaimReview",
        "url": url,
        "claimReviewed": claim.title,
        "itemReviewed": said,
        "reviewRating": rating,
        "author": {"@type": "Organization", "name": author},
    }
    if date:
        review["datePublished"] = date
    return review


def feed(rows: Sequence[Mapping[str, str]], *, base: str, title: str, author: str) -> str:
    """Return the Atom feed of verdict changes, newest first.

    Parameters
    ----------
    rows : sequence of mapping
        The ledger's history, oldest first: date, claim, assertion, from, to, cause.
    base : str
        Address of the book, with a slash at its end.
    title, author : str
        Of the book.

    Returns
    -------
    str
        XML text.

    Raises
    ------
    InputError
        When there is no change to tell: a feed needs the date of its last one.
    """
    if not rows:
        raise InputError("the history is empty", fix="run assay judge first")

    def tell(number: int, row: Mapping[str, str]) -> str:
        page = f"{base}{_PAGES}{row['claim']}.html"
        change = f"{row['from']} → {row['to']}" if row["from"] else row["to"]
        # The row's number never changes, since the history only grows.
        return (
            f"<entry><id>{_xml(page)}#change-{number}</id>"
            f"<title>{_xml(row['claim'])}, {_xml(row['assertion'])}: {_xml(change)}</title>"
            f"<updated>{_xml(row['date'])}T00:00:00Z</updated>"
            f'<link href="{_xml(page)}"/><summary>{_xml(row["cause"])}</summary></entry>\n'
        )

    entries = "".join(tell(n, row) for n, row in reversed(list(enumerate(rows, 1))))
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom">\n'
        f"<id>{_xml(base)}</id><title>{_xml(title)}: changes of verdict</title>\n"
        f"<updated>{_xml(max(row['date'] for row in rows))}T00:00:00Z</updated>\n"
        f"<author><name>{_xml(author)}</name></author>\n"
        f'<link rel="self" href="{_xml(base)}{_FEED}"/><link href="{_xml(base)}"/>\n'
        f"{entries}</feed>\n"
    )


def mathjax_folder() -> Path:
    """Return the folder of the installed MathJax.

    Raises
    ------
    InputError
        When the package that ships it is not installed.
    """
    found = importlib.util.find_spec("mathjax")
    for place in (found.submodule_search_locations or []) if found else []:
        folder = Path(place) / "static" / "mathjax"
        if (folder / _MATHJAX_PARTS[0][0]).is_file():
            return folder
    raise InputError(
        "MathJax is not installed, so formulas would show as raw TeX",
        fix="pip install django-static-mathjax, or make setup",
    )


def image_size(svg: str) -> tuple[int, int] | None:
    """Return the size a browser gives an SVG picture [CSS px], or nothing when it states none.

    Parameters
    ----------
    svg : str
        The picture's text, with ``width`` and ``height`` in pt (matplotlib) or px.

    Examples
    --------
    >>> image_size('<svg width="72pt" height="36pt" viewBox="0 0 72 36">')
    (96, 48)
    """
    root = re.search(r"<svg\b[^>]*>", svg)
    found = {}
    for side in ("width", "height"):
        stated = re.search(rf'\b{side}="([\d.]+)(pt|px)?"', root.group()) if root else None
        if stated is None:
            return None
        # CSS: 1 pt is 1/72 in, 1 px is 1/96 in.
        found[side] = round(float(stated[1]) * (96 / 72 if stated[2] == "pt" else 1))
    return found["width"], found["height"]


def _xml(text: str) -> str:
    return html.escape(text, quote=True)


# -- what Sphinx calls ----------------------------------------------------------------------------


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the extension to Sphinx.

    Parameters
    ----------
    app : Sphinx
        The application that loads the extension.

    Returns
    -------
    dict
        Sphinx's extension metadata.
    """
    app.connect("config-inited", _settle_addresses)
    app.connect("builder-inited", _forget)
    app.connect("doctree-read", _add_rerun)
    app.connect("doctree-read", _reserve_room)
    app.connect("doctree-resolved", _drop_thebe, priority=900)
    # After the theme has filled its header (priority 501).
    app.connect("html-page-context", _complete_page, priority=900)
    app.connect("build-finished", _finish)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


def _plainly(error: AssayError) -> Exception:
    """Return the error as one that Sphinx prints without a traceback."""
    from sphinx.errors import ExtensionError

    return ExtensionError(str(error))


def _settle_addresses(_: Sphinx, config: Config) -> None:
    """Derive every address from the two that ``_config.yml`` states: of the book, of its source."""
    base = str(config.html_baseurl)
    if not base.endswith("/"):
        problem = f"baseurl '{base}' has no slash at its end"
        raise _plainly(InputError(problem, where="_config.yml", fix="add it"))
    config.ogp_site_url = base
    config.notfound_urls_prefix = urlsplit(base).path
    # [text](source:data/sources.yml) in a page leads to the file in the repository.
    config.myst_url_schemes = {
        **dict.fromkeys(("http", "https", "mailto")),
        "source": {"url": _source(config, "{{path}}")},
    }


@functools.lru_cache(maxsize=1)
def _verdicts() -> dict[str, tuple[records.Claim, judge.Verdict]]:
    return {c.id: (c, judge.judge(c, store.live(c.id))) for c in store.claims()}


def _forget(_: Sphinx) -> None:
    """Drop the verdicts of an earlier build in this process."""
    _verdicts.cache_clear()


def _claim_of(page: str) -> tuple[records.Claim, judge.Verdict] | None:
    if not page.startswith(_PAGES):
        return None
    try:
        return _verdicts().get(page.removeprefix(_PAGES))
    except AssayError as error:
        raise _plainly(error) from None


def _source(config: Config, path: str) -> str:
    options = config.html_theme_options
    return source_link(
        path, repository=options["repository_url"], branch=options["repository_branch"]
    )


def _notebook_link(app: Sphinx, notebook: str) -> str:
    """Return where a notebook's source is, or nothing while it is not written."""
    path = f"notebooks/{notebook}.ipynb"
    return _source(app.config, path) if store.path(path).is_file() else ""


def _add_rerun(app: Sphinx, doctree: nodes.document) -> None:
    """End a claim's page with its source notebook and the command that runs it again."""
    from docutils import nodes

    found = _claim_of(app.env.docname)
    if found is None:
        return
    claim, _ = found
    link = _notebook_link(app, claim.notebook)
    order = show.command(claim)
    if not link or order in doctree.astext():
        return
    box = nodes.admonition(classes=["rerun"])
    box += nodes.title(text="Run it again")
    name = nodes.literal(text=f"notebooks/{claim.notebook}.ipynb")
    box += nodes.paragraph(
        "",
        "",
        nodes.Text("This page is printed from "),
        nodes.reference("", "", name, refuri=link, internal=False),
        nodes.Text(". In a checkout, this executes it for this claim:"),
    )
    shown = nodes.literal_block(text=order, classes=["rerun-command"])
    shown["language"] = "console"
    box += shown
    last = doctree.children[-1] if doctree.children else doctree
    (last if isinstance(last, nodes.section) else doctree).append(box)


def _reserve_room(app: Sphinx, doctree: nodes.document) -> None:
    """State each figure's size, so that the text below does not jump when it arrives."""
    from docutils import nodes

    for image in doctree.findall(nodes.image):
        file = Path(app.srcdir) / image["uri"]
        if "width" in image or file.suffix != ".svg" or not file.is_file():
            continue
        size = image_size(store.read_text(file))
        if size:
            image["width"], image["height"] = map(str, size)


def _drop_thebe(_: Sphinx, doctree: nodes.document, _name: str) -> None:
    """Remove sphinx-thebe's settings, which name somebody else's repository."""
    from docutils import nodes

    for raw in list(doctree.findall(nodes.raw)):
        if "x-thebe-config" in raw.astext() or "kernelName =" in raw.astext():
            raw.parent.remove(raw)


def _complete_page(
    app: Sphinx, page: str, _template: str, context: dict[str, Any], _doctree: object
) -> None:
    """Remove what asks other hosts; add the feed, the verdict as data, and the rerun button."""
    for kind in ("script_files", "css_files"):
        context[kind] = [asset for asset in context.get(kind, []) if not _is_thebe(asset)]
    added = []
    base = app.config.html_baseurl
    if store.history():
        added.append(
            f'<link rel="alternate" type="application/atom+xml" title="Changes of verdict" '
            f'href="{_xml(base)}{_FEED}"/>'
        )
    found = _claim_of(page)
    if found is not None:
        claim, verdict = found
        added.append(_as_data(app, page, claim, verdict))
        _add_button(context, _notebook_link(app, claim.notebook))
    # docutils writes the size as a style, which would not shrink in proportion on a narrow page.
    context["body"] = re.sub(
        r'(<img [^>]*?)style="width: (\d+)px; height: (\d+)px;"',
        r'\1width="\2" height="\3"',
        context.get("body", ""),
    )
    context["metatags"] = "\n".join([context.get("metatags", ""), *added])


def _is_thebe(asset: object) -> bool:
    """Recognise sphinx-thebe's files, which load a script from elsewhere and define it twice."""
    attributes: Mapping[str, object] = getattr(asset, "attributes", {})
    return "thebe" in str(getattr(asset, "filename", asset)).lower() or "THEBE" in str(
        attributes.get("body", "")
    )


def _as_data(app: Sphinx, page: str, claim: records.Claim, verdict: judge.Verdict) -> str:
    try:
        source = store.sources()[claim.source]
        changes = [row["date"] for row in store.history() if row["claim"] == claim.id]
    except (AssayError, KeyError) as error:
        problem = f"claim {claim.id} names unknown source {error}"
        raise _plainly(error if isinstance(error, AssayError) else InputError(problem)) from None
    review = claim_review(
        claim,
        verdict,
        source,
        url=f"{app.config.html_baseurl}{page}.html",
        author=app.config.author,
        date=changes[-1] if changes else "",
    )
    text = json.dumps(review, ensure_ascii=False).replace("<", "\\u003c")
    return f'<script type="application/ld+json">{text}</script>'


def _add_button(context: dict[str, Any], link: str) -> None:
    if link:
        context.setdefault("header_buttons", []).insert(
            0,
            {
                "type": "link",
                "url": link,
                "text": "",
                "icon": "fas fa-rotate-right",
                "tooltip": "Rerun: the source notebook",
                "label": "rerun-button",
            },
        )


def _finish(app: Sphinx, error: Exception | None) -> None:
    """Put MathJax and the feed beside the pages."""
    if error is not None or app.builder.format != "html":
        return
    from sphinx.util.fileutil import copy_asset

    out = Path(app.outdir)
    try:
        folder = mathjax_folder()
        for part, target in _MATHJAX_PARTS:
            copy_asset(folder / part, out / target)
        rows = store.history()
        if rows:
            config = app.config
            text = feed(
                rows, base=config.html_baseurl, title=config.html_title, author=config.author
            )
            store.write(out / _FEED, text)
    except AssayError as problem:
        raise _plainly(problem) from None
