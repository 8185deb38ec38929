"""Plot: every figure of the book, in one palette and one grammar.

Owns colours, sizes, marks and the charts: ``strip``, ``compare``, ``sweep``, ``scatter``,
``roofline``, ``sensitivity``, ``readings`` (a map of what a rate could mean) and ``scoreboard``. It
is the only module that imports matplotlib or seaborn. Does not own numbers: it draws what it is
given and never computes a result.

The grammar is the same everywhere: the claim is a hollow vermillion diamond, evidence a filled
blue circle with its interval, a physical limit a dotted grey line hatched on its impossible side. A
third party's measurement is a green square. Extrapolation is dashed.
"""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from assay.ledger import metric as metrics
from assay.physics import units

if TYPE_CHECKING:
    from assay.ledger import records

__all__ = [
    "CLAIM",
    "EVIDENCE",
    "INK",
    "LIMIT",
    "agreement",
    "compare",
    "readings",
    "roofline",
    "save",
    "scatter",
    "scoreboard",
    "sensitivity",
    "strip",
    "sweep",
    "theme",
]

CLAIM = "#d55e00"
EVIDENCE = "#0173b2"
LIMIT = "#767676"
OTHER = "#029e73"
FURTHER = "#cc78bc"
INK = "#222222"
_SERIES = ((EVIDENCE, "o", "-"), (OTHER, "s", "-."), (FURTHER, "^", (0, (6, 2))))
_WIDTH = 7.2


def theme() -> None:
    """Set the house theme, and SVG without dates where a notebook is running."""
    sns.set_theme(context="notebook", style="ticks", font_scale=0.9)
    mpl.rcParams.update(
        {
            "figure.facecolor": "white",
            "savefig.facecolor": "white",
            "axes.grid": True,
            "axes.grid.axis": "x",
            "axes.axisbelow": True,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.edgecolor": INK,
            "axes.labelcolor": INK,
            "text.color": INK,
            "xtick.color": INK,
            "ytick.color": INK,
            "grid.color": "#e6e6e6",
            "lines.linewidth": 2,
            "hatch.linewidth": 0.5,
            "font.family": "DejaVu Sans",
            "svg.fonttype": "path",
            "svg.hashsalt": "assay",
        }
    )
    try:
        from IPython import get_ipython
        from matplotlib_inline.backend_inline import set_matplotlib_formats
    except ImportError:
        return
    if get_ipython() is not None:
        set_matplotlib_formats("svg", metadata={"Date": None})  # type: ignore[no-untyped-call]


def save(axes: Axes, file: Path) -> None:
    """Write the figure of ``axes`` to an SVG file that is the same every time."""
    axes.figure.savefig(file, format="svg", bbox_inches="tight", metadata={"Date": None})  # type: ignore[union-attr]
    plt.close(axes.figure)  # type: ignore[arg-type]


def _axes(rows: float, *, floor: float = 1.9) -> Axes:
    theme()
    _, axes = plt.subplots(figsize=(_WIDTH, max(floor, rows)))
    return axes


def _label(metric: str, display: str = "", *, width: int = 200) -> str:
    """Return an axis label: of a metric by its id, or the words given when they carry a unit."""
    if metric.endswith("]"):
        return textwrap.fill(metric, width)
    known = metrics.named(metric)
    return textwrap.fill(f"{known.title} [{display or known.display}]", width)


def _ticks(axes: Axes) -> None:
    """Write a linear axis' ticks with just the decimals that their spacing needs."""
    step = abs(float(axes.get_xticks()[1] - axes.get_xticks()[0]))
    decimals = max(0, -math.floor(math.log10(step) + 1e-9)) if step else 0
    if decimals and round(step * 10**decimals, 6) != round(step * 10**decimals):
        decimals += 1
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.{decimals}f}"))


def _spread(axes: Axes, marks: Sequence[tuple[str, float, float]], *, side: str) -> None:
    """Label marks at one side, moving labels apart where they would overlap."""
    axes.figure.canvas.draw()
    last = -math.inf
    for text, x, y in sorted(marks, key=lambda m: m[2]):
        at = float(axes.transData.transform((x, y))[1])
        place = max(at, last + 13)
        last = place
        _direct(axes, x, y, text, side=side, rise=(place - at) * 72 / axes.figure.dpi)


def _number(value: float, *, digits: int = 4) -> str:
    """Write a number with a minus sign that is seen beside a line."""
    return ("−" if value < 0 else "") + units.number(abs(value), digits=digits)


def _plain(value: float, _: object = None) -> str:
    return _number(value, digits=3)


def _log(axes: Axes, *, ratio: bool = False) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda v, _: f"{_number(v, digits=3)}×" if ratio else _plain(v))
    )
    axes.xaxis.set_minor_formatter(NullFormatter())
    low, high = axes.get_xlim()
    if high / max(low, 1e-300) > 300:
        axes.xaxis.set_major_locator(LogLocator(numticks=12))


def _direct(
    axes: Axes, x: float, y: float, text: str, *, side: str = "right", rise: float = 0.0
) -> None:
    """Label a mark directly, in ink, with a white halo; ``rise`` is in points."""
    from matplotlib import patheffects

    offset: tuple[float, float] = (7, rise) if side == "right" else (-7, rise)
    align = "left" if side == "right" else "right"
    if side == "above":
        offset, align = (0, 8), "center"
    axes.annotate(
        text,
        (x, y),
        xytext=offset,
        textcoords="offset points",
        ha=align,
        va="center" if side != "above" else "bottom",
        fontsize=8.5,
        color=INK,
        path_effects=[patheffects.withStroke(linewidth=2.5, foreground="white")],
    )


def _diamond(axes: Axes, x: float, y: float) -> None:
    axes.plot(
        x, y, marker="D", ms=8, mfc="white", mec=CLAIM, mew=2, ls="none", zorder=5, clip_on=False
    )


def strip(
    assertions: Sequence[records.Assertion],
    evidence: Iterable[records.Evidence],
    *,
    labels: Mapping[str, str],
    log: bool = False,
) -> Axes:
    """Draw claims, their bands and the evidence about them on one axis.

    Parameters
    ----------
    assertions : sequence of Assertion
        Rows, top to bottom; all of one base unit.
    evidence : iterable of Evidence
        Drawn by basis: bounds as limits, publications as squares, the rest as circles.
    labels : mapping of str to str
        Row label by assertion id.
    log : bool
        Logarithmic axis.

    Returns
    -------
    Axes
        The figure's axes.
    """
    unit = assertions[0].unit
    axes = _axes(0.62 * len(assertions) + 0.9)
    found = list(evidence)
    for row, assertion in enumerate(reversed(list(assertions))):
        low, high = assertion.claimed
        _band(axes, assertion, row)
        for value in dict.fromkeys((low, high)):
            _diamond(axes, value, row)
        _direct(axes, high, row, f"claimed {_number(high)}", side="above")
        mine = [e for e in found if e.assertion == assertion.id]
        _limits(axes, [e for e in mine if e.basis == "bound"], unit, row)
        for item in mine:
            if item.basis != "bound":
                _interval(axes, item, unit, row - 0.18)
    axes.set_yticks(range(len(assertions)), [labels[a.id] for a in reversed(list(assertions))])
    axes.set_ylim(-0.6, len(assertions) - 0.25)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    if log:
        _log(axes)
    else:
        axes.margins(x=0.12)
        _ticks(axes)
    axes.set_xlabel(_label(assertions[0].metric, unit))
    return axes


def _band(axes: Axes, assertion: records.Assertion, row: float) -> None:
    ends = [end for end in (assertion.band.low, assertion.band.high) if end is not None]
    if len(ends) == 1:
        axes.plot([ends[0], ends[0]], [row - 0.3, row + 0.3], color=CLAIM, ls="--", lw=1)
    else:
        axes.fill_between(ends, row - 0.3, row + 0.3, color=CLAIM, alpha=0.12, lw=0)


def _limits(axes: Axes, bounds: list[records.Evidence], unit: str, row: float) -> None:
    highs = [e.estimate.high for e in bounds if e.estimate.high is not None]
    if not highs:
        return
    edge = units.from_base(max(highs), unit)
    axes.plot([edge, edge], [row - 0.36, row + 0.36], color=LIMIT, ls=":", lw=2, zorder=4)
    _direct(axes, edge, row - 0.28, f"limit {_number(edge)}", side="left")


def _interval(axes: Axes, item: records.Evidence, unit: str, y: float) -> None:
    colour, marker = (OTHER, "s") if item.basis == "published" else (EVIDENCE, "o")
    middle = units.from_base(item.estimate.value, unit)
    ends = [
        middle if end is None else units.from_base(end, unit)
        for end in (item.estimate.low, item.estimate.high)
    ]
    axes.plot(ends, [y, y], color=colour, lw=2, solid_capstyle="butt", zorder=4)
    axes.plot(middle, y, marker=marker, ms=7, color=colour, ls="none", zorder=5)
    exact = ends[0] == ends[1]
    words = "exact" if exact and item.basis == "derived" else item.basis
    _direct(axes, ends[1], y, f"{_number(middle)} ({words})")


def compare(
    rows: Sequence[Mapping[str, Any]],
    *,
    metric: str,
    display: str = "",
    claim: float | None = None,
    limit: float | None = None,
    log: bool = False,
) -> Axes:
    """Draw one dot with its interval per row, against the claim and the limit.

    Parameters
    ----------
    rows : sequence of mapping
        ``label``, ``value`` [display unit], optional ``low`` and ``high``, optional ``kind``
        (``evidence``, ``published`` or ``claim``).
    metric : str
        Names the axis.
    display : str
        Printed unit of the values; the metric's own by default.
    claim, limit : float, optional
        Vertical marks [display unit].
    log : bool
        Logarithmic axis.

    Returns
    -------
    Axes
        The figure's axes.
    """
    names = [textwrap.fill(str(row["label"]), 44) for row in reversed(list(rows))]
    tallest = max(name.count("\n") + 1 for name in names)
    axes = _axes((0.36 if tallest == 1 else 0.26 * tallest) * len(rows) + 1.0)
    for y, row in enumerate(reversed(list(rows))):
        kind = row.get("kind", "published")
        if kind == "claim":
            _diamond(axes, row["value"], y)
        else:
            colour, marker = (EVIDENCE, "o") if kind == "evidence" else (OTHER, "s")
            ends = (row.get("low", row["value"]), row.get("high", row["value"]))
            axes.plot(ends, (y, y), color=colour, lw=2)
            axes.plot(row["value"], y, marker=marker, ms=6, color=colour, ls="none")
        # Away from zero, so that no label lies on the line there.
        end, side = ("low", "left") if row["value"] < 0 else ("high", "right")
        _direct(axes, row.get(end, row["value"]), y, _number(row["value"]), side=side)
    if log:
        _log(axes)
    elif min(float(row.get("low", row["value"])) for row in rows) >= 0:
        axes.set_xlim(left=0)
        axes.xaxis.set_major_formatter(FuncFormatter(_plain))
    else:
        axes.axvline(0, color=INK, lw=0.8, zorder=1)
        axes.xaxis.set_major_formatter(FuncFormatter(_plain))
    _vertical(axes, claim, limit)
    axes.margins(x=0.12)
    axes.set_yticks(range(len(rows)), names, fontsize=8.5 if tallest > 1 else None)
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(_label(metric, display))
    return axes


def _vertical(axes: Axes, claim: float | None, limit: float | None) -> None:
    top = axes.get_xaxis_transform()
    if limit is not None:
        axes.axvline(limit, color=LIMIT, ls=":", lw=2, zorder=1)
        axes.text(limit, 1.0, f" limit {_number(limit)}", transform=top, fontsize=8.5)
    if claim is not None:
        axes.axvline(claim, color=CLAIM, ls="--", lw=1.2, zorder=1)
        axes.text(claim, 1.0, f" claimed {_number(claim)}", transform=top, fontsize=8.5)


def sweep(
    curves: Mapping[str, Sequence[tuple[float, float]]],
    *,
    x_label: str,
    metric: str,
    display: str = "",
    points: Sequence[tuple[str, float, float]] = (),
    seen: Sequence[tuple[str, float, float]] = (),
    solid_until: float | None = None,
    log_x: bool = False,
    log_y: bool = False,
) -> Axes:
    """Draw curves over a swept quantity with the claim's points on top.

    Parameters
    ----------
    curves : mapping of str to sequence of (x, y)
        At most three named curves; labelled directly at their end.
    x_label : str
        Lower-case quantity with its unit in brackets.
    metric, display : str
        Name the vertical axis.
    points : sequence of (label, x, y)
        Claims, drawn as diamonds.
    seen : sequence of (label, x, y)
        Published values, drawn as squares.
    solid_until : float, optional
        Beyond this x a curve is extrapolation and dashed.
    log_x, log_y : bool
        Logarithmic axes.

    Returns
    -------
    Axes
        The figure's axes.
    """
    axes = _axes(3.6)
    axes.grid(axis="y")
    for (name, curve), (colour, _, dash) in zip(curves.items(), _SERIES, strict=False):
        solid = [p for p in curve if solid_until is None or p[0] <= solid_until]
        beyond = [p for p in curve if solid_until is not None and p[0] >= solid_until]
        axes.plot(*zip(*solid, strict=True), color=colour, ls=dash)
        if len(beyond) > 1:
            axes.plot(*zip(*beyond, strict=True), color=colour, ls="--")
        _direct(axes, curve[-1][0], curve[-1][1], name)
    if log_x:
        axes.set_xscale("log", base=2)
    if log_y:
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        if high / low < 300:  # below two and a half decades, powers of ten alone are too few
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
    axes.xaxis.set_major_formatter(FuncFormatter(_plain))
    axes.yaxis.set_major_formatter(FuncFormatter(_plain))
    axes.yaxis.set_minor_formatter(NullFormatter())
    for label, x, y in seen:
        axes.plot(x, y, marker="s", ms=6, color=OTHER, ls="none", zorder=5)
        _direct(axes, x, y, label)
    for label, x, y in points:
        _diamond(axes, x, y)
        _direct(axes, x, y, label, side="left")
    axes.set_xlabel(x_label)
    axes.set_ylabel(_label(metric, display, width=34))
    axes.margins(x=0.14)
    return axes


def agreement(points: Sequence[Mapping[str, Any]], *, metric: str, near: float) -> Axes:
    """Draw what was predicted against what was measured, both logarithmic, about the diagonal.

    Parameters
    ----------
    points : sequence of mapping
        ``x`` measured and ``y`` predicted; ``kind`` is ``evidence`` or ``published``.
    metric : str
        Names both axes: a metric, or words with their unit in brackets.
    near : float
        Relative error within which the band about the diagonal lies [1].

    Returns
    -------
    Axes
        The figure's axes.
    """
    axes = _axes(4.6)
    axes.grid(axis="both")
    ends = [p[key] for p in points for key in ("x", "y")]
    low, high = min(ends) / 2, max(ends) * 2
    axes.fill_between(
        (low, high),
        (low * (1 - near), high * (1 - near)),
        (low * (1 + near), high * (1 + near)),
        color=CLAIM,
        alpha=0.25,
        lw=0,
    )
    axes.plot((low, high), (low, high), color=LIMIT, lw=1, zorder=1)
    for point in points:
        colour, marker = (EVIDENCE, "o") if point["kind"] == "evidence" else (OTHER, "s")
        axes.plot(
            point["x"],
            point["y"],
            marker=marker,
            ms=6,
            color=colour,
            ls="none",
            alpha=0.8,
            zorder=3,
        )
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(_plain))
        axis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(f"measured {_label(metric)}")
    axes.set_ylabel(f"predicted {_label(metric)}")
    return axes


def scatter(
    points: Sequence[Mapping[str, Any]],
    *,
    x_label: str,
    metric: str,
    display: str = "",
    log_x: bool = False,
) -> Axes:
    """Draw one quantity against another, with intervals; what lacks one of them lies at the edge.

    Parameters
    ----------
    points : sequence of mapping
        ``x`` and ``y`` [as the axes say], either ``None`` when unknown: such a point becomes a
        tick at the edge of the axis that it has. Optional ``label``, ``x_low``, ``x_high``,
        ``y_low``, ``y_high`` and ``kind`` (``published``, ``evidence`` or ``claim``).
    x_label : str
        Lower-case quantity with its unit in brackets.
    metric, display : str
        Name the vertical axis.
    log_x : bool
        Logarithmic horizontal axis, for ratios.

    Returns
    -------
    Axes
        The figure's axes; a line at no change where the vertical axis spans it.
    """
    axes = _axes(3.9)
    axes.grid(axis="both")
    if log_x:
        axes.set_xscale("log")
    both = [p for p in points if p["x"] is not None and p["y"] is not None]
    for point in both:
        _cross(axes, point)
        if point.get("label"):
            _direct(axes, point["x"], point["y"], str(point["label"]))
    axes.margins(x=0.22, y=0.16)
    known = [p["y"] for p in points if p["y"] is not None]
    if known and min(known) < 0 < max(known):
        axes.axhline(0, color=LIMIT, lw=1, zorder=0)
    spread = [p["x"] for p in points if p["x"] is not None]
    axes.set_xlim(*_room(spread, log=log_x))
    axes.set_ylim(*_room(known, log=False))
    left, bottom = axes.get_xlim()[0], axes.get_ylim()[0]
    for point in points:
        colour, _ = _look(point)
        if point["x"] is None:
            axes.plot(left, point["y"], marker=1, ms=14, mew=2, color=colour, ls="none")
        elif point["y"] is None:
            axes.plot(point["x"], bottom, marker=2, ms=14, mew=2, color=colour, ls="none")
            if point.get("label"):
                _direct(axes, point["x"], bottom, str(point["label"]), rise=9)
    for marker in axes.lines:
        marker.set_clip_on(False)
    axes.xaxis.set_major_formatter(FuncFormatter(_plain))
    if log_x:
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(_plain))
    axes.set_xlabel(x_label)
    axes.set_ylabel(_label(metric, display, width=34))
    return axes


def _look(point: Mapping[str, Any]) -> tuple[str, str]:
    kinds = {"evidence": (EVIDENCE, "o"), "claim": (CLAIM, "D")}
    return kinds.get(str(point.get("kind", "published")), (OTHER, "s"))


def _cross(axes: Axes, point: Mapping[str, Any]) -> None:
    """Draw a point with the intervals it has in either direction."""
    x, y = point["x"], point["y"]
    if point.get("kind") == "claim":
        _diamond(axes, x, y)
        return
    colour, marker = _look(point)
    axes.plot((point.get("x_low", x), point.get("x_high", x)), (y, y), color=colour, lw=2)
    axes.plot((x, x), (point.get("y_low", y), point.get("y_high", y)), color=colour, lw=2)
    axes.plot(x, y, marker=marker, ms=7, color=colour, ls="none", zorder=5)


def _room(values: Sequence[float], *, log: bool) -> tuple[float, float]:
    """Return limits with a margin on both sides."""
    low, high = min(values), max(values)
    if log:
        return low / 1.6, high * 2.2
    give = 0.14 * ((high - low) or 1.0)
    return low - give, high + give


def roofline(
    ceilings: Mapping[str, Sequence[tuple[float, float]]],
    *,
    metric: str,
    points: Sequence[tuple[str, float, float, str]] = (),
) -> Axes:
    """Draw ceilings against batch size, with claims and published points below or above them.

    Parameters
    ----------
    ceilings : mapping of str to sequence of (batch, rate)
        One line per precision; rates in base units.
    metric : str
        Names the vertical axis.
    points : sequence of (label, batch, rate, kind)
        ``kind`` is ``claim`` or ``published``.

    Returns
    -------
    Axes
        The figure's axes; above the highest ceiling the paper is hatched as impossible.
    """
    axes = _axes(4.0)
    axes.grid(axis="y")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    dashes = (":", "-.", (0, (3, 1, 1, 1, 1, 1)), (0, (1, 3)))
    curves = list(ceilings.items())
    top = max(rate for _, curve in curves for _, rate in curve)
    tallest = max([top, *(rate for _, _, rate, _ in points)]) * 2.2
    ends: list[tuple[str, float, float]] = []
    for (name, curve), dash in zip(curves, itertools.cycle(dashes), strict=False):
        axes.plot(*zip(*curve, strict=True), color=LIMIT, ls=dash, lw=2)
        ends.append((name, *curve[-1]))
    best = _upper_hull([curve for _, curve in curves])
    xs, ys = zip(*best, strict=True)
    axes.fill_between(
        xs, ys, tallest, facecolor="none", edgecolor="#c8c8c8", hatch="////", lw=0, zorder=0
    )
    axes.text(
        xs[0] * 1.1,
        tallest / 1.5,
        "impossible at every precision",
        fontsize=8.5,
        va="top",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
    )
    for _, x, y, kind in points:
        if kind == "claim":
            _diamond(axes, x, y)
        else:
            axes.plot(x, y, marker="s", ms=6, color=OTHER, ls="none", zorder=5)
    axes.set_ylim(top=tallest)
    axes.xaxis.set_major_formatter(FuncFormatter(_plain))
    axes.yaxis.set_major_formatter(FuncFormatter(_plain))
    axes.set_xlabel("sequences decoded together [1]")
    axes.set_ylabel(_label(metric, width=34))
    axes.margins(x=0.14)
    _spread(axes, ends, side="right")
    half = max(xs) / 2
    for side in ("left", "right"):
        there = [(t, x, y) for t, x, y, _ in points if (side == "left") == (x > half)]
        _spread(axes, there, side=side)
    return axes


def _upper_hull(curves: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[float, float]]:
    best: dict[float, float] = {}
    for curve in curves:
        for x, y in curve:
            best[x] = max(best.get(x, y), y)
    return sorted(best.items())


def sensitivity(
    base: float, rows: Sequence[tuple[str, float, float]], *, metric: str, display: str = ""
) -> Axes:
    """Draw how far each input moves the answer (a tornado).

    Parameters
    ----------
    base : float
        The answer [display unit].
    rows : sequence of (label, low, high)
        The answer at either end of one input [display unit].
    metric, display : str
        Name the axis.

    Returns
    -------
    Axes
        The figure's axes, widest swing on top.
    """
    axes = _axes(0.45 * len(rows) + 1.0)
    ordered = sorted(rows, key=lambda r: abs(r[2] - r[1]))
    for y, (_, low, high) in enumerate(ordered):
        axes.plot([low, high], [y, y], color=EVIDENCE, lw=9, solid_capstyle="butt", alpha=0.55)
        for value, side in ((min(low, high), "left"), (max(low, high), "right")):
            if value != base:
                _direct(axes, value, y, _number(value), side=side)
    axes.axvline(base, color=EVIDENCE, lw=1.5)
    axes.text(base, 1.0, f" {_number(base)}", transform=axes.get_xaxis_transform(), fontsize=8.5)
    axes.set_yticks(range(len(ordered)), [label for label, _, _ in ordered])
    axes.set_ylim(-0.7, len(ordered) - 0.3)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(FuncFormatter(_plain))
    axes.margins(x=0.18)
    axes.set_xlabel(_label(metric, display))
    return axes


def readings(
    cells: Sequence[Mapping[str, Any]], *, rows: str, columns: str, title: str = "claimed ÷ ceiling"
) -> Axes:
    """Draw a map of readings: claimed ÷ ceiling, possible ones open, impossible ones hatched.

    Parameters
    ----------
    cells : sequence of mapping
        One reading each: the two keys named by ``rows`` and ``columns``, ``ratio`` (claimed ÷
        ceiling, infinite when the model does not fit) and ``possible``.
    rows, columns : str
        Keys of the two axes, in order of appearance.
    title : str
        What the printed numbers are.

    Returns
    -------
    Axes
        The figure's axes.
    """
    down = list(dict.fromkeys(str(c[rows]) for c in cells))
    across = list(dict.fromkeys(str(c[columns]) for c in cells))
    axes = _axes(0.52 * len(down) + 1.3)
    axes.grid(visible=False)
    for cell in cells:
        x, y = across.index(str(cell[columns])), down.index(str(cell[rows]))
        fits = cell["ratio"] != float("inf")
        axes.add_patch(
            mpl.patches.Rectangle(
                (x - 0.46, y - 0.42),
                0.92,
                0.84,
                facecolor="white" if cell["possible"] else "#eeeeee",
                edgecolor=EVIDENCE if cell["possible"] else "#bdbdbd",
                hatch="" if cell["possible"] else "////",
                lw=2 if cell["possible"] else 0.8,
            )
        )
        axes.text(
            x,
            y,
            f"{_number(cell['ratio'], digits=2)}×" if fits else "does\nnot fit",
            ha="center",
            va="center",
            fontsize=8.5,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2},
        )
    axes.set_xlim(-0.6, len(across) - 0.4)
    axes.set_ylim(len(down) - 0.4, -0.6)
    axes.set_xticks(range(len(across)), across)
    axes.set_yticks(range(len(down)), down)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xlabel(f"{columns}: {title}; open cells are possible [×]")
    axes.set_ylabel("")
    return axes


def scoreboard(rows: Sequence[Mapping[str, Any]], *, dark: bool = False) -> Axes:
    """Draw found ÷ claimed for every claim on one logarithmic axis.

    Parameters
    ----------
    rows : sequence of mapping
        ``label``, ``glyph``, and either ``low`` and ``high`` (found ÷ claimed; ``None`` unbounded)
        with ``limit`` true for an upper limit, or neither when there is nothing to draw yet with
        ``note`` saying why.
    dark : bool
        Dark paper, for the README's dark scheme.

    Returns
    -------
    Axes
        The figure's axes; the claim is the diamond at 1×.
    """
    axes = _axes(0.34 * len(rows) + 1.1)
    ink, paper = ("#e6e6e6", "#121212") if dark else (INK, "white")
    axes.set_xscale("log")
    ends = [e for r in rows for e in (r.get("low"), r.get("high")) if e]
    left, right = min([0.5, *ends]) / 1.6, max([2.0, *ends]) * 1.6
    for y, row in enumerate(reversed(list(rows))):
        axes.plot(1, y, marker="D", ms=6, mfc=paper, mec=CLAIM, mew=1.6, ls="none", zorder=3)
        low, high = row.get("low"), row.get("high")
        if row.get("limit") and high:
            axes.plot([left, high], [y, y], color=LIMIT, lw=1.6, ls=":")
            axes.plot(high, y, marker="|", ms=11, mew=2.4, color=LIMIT, ls="none", zorder=4)
        elif low is not None or high is not None:
            a, b = low or left, high or right
            axes.plot([a, b], [y, y], color=EVIDENCE, lw=2)
            axes.plot((a * b) ** 0.5, y, marker="o", ms=6, color=EVIDENCE, ls="none", zorder=4)
    axes.axvline(1, color=CLAIM, lw=1, ls="--", zorder=0)
    axes.set_xlim(left, right)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{_number(v, digits=2)}×"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks(range(len(rows)), [f"{r['label']}  {r['glyph']}" for r in reversed(list(rows))])
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("found ÷ claimed [×]")
    if dark:
        axes.figure.set_facecolor(paper)
        axes.set_facecolor(paper)
        axes.grid(color="#333333")
        for item in (axes.xaxis.label, *axes.get_xticklabels(), *axes.get_yticklabels()):
            item.set_color(ink)
        axes.tick_params(colors=ink)
        axes.spines["bottom"].set_color(ink)
    return axes
