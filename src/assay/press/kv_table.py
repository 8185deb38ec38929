"""KV table: the KV cache of every architecture, as the book prints it.

Owns the printed form of the committed comparison: families, columns, and what marks a right and a
wrong figure. Does not own the comparison (``bench.agreement``) or any figure in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from assay.bench import agreement
from assay.bench.agreement import Row
from assay.physics import units
from assay.press import show

__all__ = ["FAMILIES", "family", "text"]

# Title and one sentence each, in the order of the page.
FAMILIES = {
    "Full attention": "Every layer keeps every token.",
    "Latent attention (MLA)": "Every layer keeps one compressed vector for all heads.",
    "Sliding windows and chunks": (
        "Some layers keep the last tokens only: the cache grows by less, on top of a part that has "
        "stopped growing."
    ),
    "States": (
        "Some layers keep a constant state and no tokens: the cache grows by less, on top of a "
        "part that never grows."
    ),
    "Not answered by the engine": (
        "vLLM has no answer on a CPU, so nothing here says which figure is right."
    ),
}

_DIGITS = 2  # of the factor between a wrong figure and the oracle's


def family(row: Row) -> str:
    """Return the family a model's layers belong to, one of :data:`FAMILIES`.

    Parameters
    ----------
    row : Row
        Of the comparison.
    """
    if row.oracle is None:
        return "Not answered by the engine"
    for word, name in (
        ("linear", "States"),
        ("sliding", "Sliding windows and chunks"),
        ("chunked", "Sliding windows and chunks"),
        ("mla", "Latent attention (MLA)"),
    ):
        if word in row.layers:
            return name
    return "Full attention"


def text(rows: Sequence[Row] | None = None) -> str:
    """Return the printed part of the page: a summary, then one table a family.

    Parameters
    ----------
    rows : sequence of Row, optional
        The comparison; the committed one by default.

    Returns
    -------
    str
        MyST Markdown.
    """
    given = agreement.committed() if rows is None else list(rows)
    parts = [] if rows is not None else [show.table(agreement.summary()).text]
    for name, says in FAMILIES.items():
        members = [row for row in given if family(row) == name]
        if members:
            printed = show.table([_cells(row, name) for row in members]).text
            parts.append(f"## {name}\n\n{says} {_size(members)}\n\n{printed}")
    notes = [f"- {row.model}: {_sentence(row.why)}" for row in given if row.why]
    if notes:
        parts.append("## Where the figures differ\n\n" + "\n".join(notes))
    return "\n\n".join(parts) + "\n"


def _size(members: Sequence[Row]) -> str:
    kinds = len({row.model_type for row in members})
    return f"*{len(members)} models of {kinds} architectures; bytes per token at 16 bits.*"


def _cells(row: Row, name: str) -> dict[str, object]:
    """Return one model's cells; what differs with the length stands below our figure."""
    ours = [_mark(row.ours, row.oracle)]
    if name in ("Sliding windows and chunks", "States"):
        ours.append(f"growth\u00a0{_mark(row.ours_growth, row.oracle_growth)}")
        ours.append(
            f"constant\u00a0{_mark(row.ours_bounded, row.oracle_bounded, bytes_each=False)}"
        )
    return {
        "model": _lines([row.model, row.layers or row.model_type]),
        "assay kv": _lines(ours),
        "vLLM": _plain(row.oracle),
        "LMCache": _mark(row.lmcache, row.oracle),
        "GPU_poor": _mark(row.gpu_poor, row.oracle),
    }


def _lines(parts: Sequence[str]) -> show.Markdown:
    """Return one cell of several lines, all but the first in small letters."""
    return show.Markdown("<br>".join([parts[0], *(f"<small>{x}</small>" for x in parts[1:])]))


def _plain(value: int | None) -> str:
    return "—" if value is None else f"{value:,}"


def _mark(found: int | None, right: int | None, *, bytes_each: bool = True) -> str:
    """Return a figure with a sign for right or wrong, and how far off it is."""
    if found is None:
        return "—"
    printed = f"{found:,}" if bytes_each else f"{found / 1e6:,.2f}\u00a0MB"
    if right is None:
        return printed
    # A figure, its sign and its factor must not part at the end of a line.
    if found == right:
        return f"{printed}\u00a0{show.GLYPHS['verified']}"
    far = f"\u00a0{_factor(found / right)}×" if right else ""
    return f"{printed}\u00a0{show.GLYPHS['disputed']}{far}"


def _factor(ratio: float) -> str:
    """Return how far off a figure is; a wrong one never reads as once the right one."""
    short = units.number(ratio, digits=_DIGITS)
    return units.number(ratio, digits=2 * _DIGITS) if short == "1" else short


def _sentence(words: str) -> str:
    return words if words.endswith(".") else f"{words}."
