"""Table: the normalised records, one row a run, every column with its unit.

Owns runs, their figures, and when a percentile is certified. Output, total (input + output) and
request rates are different columns, and so are a rate of the whole deployment and one per GPU.
Does not own the list of metrics (``metrics``), reading or checking.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.bench.results.metrics import FACTS, METRICS
from assay.bench.results.problems import Log
from assay.ledger import stats

__all__ = ["Figure", "Run", "certified", "columns", "floor", "row", "uncertified"]

#: Order of statistics in a table.
_ORDER = ("mean", "rate", "std", "min", "p50", "p75", "p90", "p95", "p99", "max")


def certified(statistic: str, samples: int | None) -> bool:
    """Say whether a statistic may be read as one of the population.

    Examples
    --------
    >>> certified("p99", 661), certified("p99", 662), certified("mean", None)
    (False, True, True)
    """
    needed = floor(statistic)
    return needed == 0 or (samples is not None and samples >= needed)


@functools.cache
def floor(statistic: str) -> int:
    """Return the fewest requests that certify a statistic; 0 for what is no percentile.

    Examples
    --------
    >>> floor("p99"), floor("max")
    (662, 0)
    """
    percent = _percent(statistic)
    return stats.percentile_floor(percent / 100) if percent else 0


def _percent(statistic: str) -> float | None:
    match = re.fullmatch(r"p(\d{1,2}(?:\.\d{1,6})?)", statistic)
    return float(match[1]) if match else None


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a run.

    Parameters
    ----------
    metric : str
        A key of `METRICS`.
    statistic : str
        ``mean``, ``p99``, ``std``, ..., or ``rate`` for what is one number of the whole run.
    value : float
        In the metric's unit.
    per : str
        What a rate is divided by, when it is not the whole deployment.
    samples : int, optional
        Independent samples behind it, which are requests.
    recomputed : bool
        True when it comes from per-request data or totals and not from a stated figure.
    """

    metric: str
    statistic: str
    value: float
    per: str = ""
    samples: int | None = None
    recomputed: bool = False

    @property
    def column(self) -> str:
        """The figure's column."""
        words = [self.metric] if self.statistic == "rate" else [self.metric, self.statistic]
        return "_".join(words + (["per", self.per.replace(" ", "_")] if self.per else []))

    @property
    def certified(self) -> bool:
        """Whether the sample is large enough for the statistic."""
        return certified(self.statistic, self.samples)


@dataclass(slots=True)
class Run:
    """One run of a benchmark.

    Parameters
    ----------
    format : str
        Who wrote it.
    log : Log
        What is wrong with it.
    """

    format: str
    log: Log = field(default_factory=Log)
    facts: dict[str, Any] = field(default_factory=dict)
    figures: dict[tuple[str, str, str], Figure] = field(default_factory=dict)
    notes: list[tuple[str, str]] = field(default_factory=list)

    @property
    def usable(self) -> bool:
        """Whether any number of it may be shown."""
        return not self.log.failed

    @property
    def warm_up(self) -> bool:
        """Whether it only warmed a server up; vLLM's sweeps number that run -1."""
        return self.log.has("run.warm-up")

    def know(self, **facts: Any) -> None:
        """Record facts; what is None is not known."""
        for name, value in facts.items():
            if name not in FACTS:
                raise KeyError(name)
            if value is not None:
                self.facts[name] = _clean(value) if isinstance(value, str) else value

    def put(
        self,
        metric: str,
        statistic: str,
        value: float | None,
        *,
        per: str = "",
        samples: int | None = None,
        recomputed: bool = False,
    ) -> None:
        """Record a figure, in base units; None is not recorded."""
        if metric not in METRICS:
            raise KeyError(metric)
        if value is None or not math.isfinite(value):
            return
        figure = Figure(metric, statistic, float(value), per, samples, recomputed)
        self.figures[metric, statistic, per] = figure

    def get(self, metric: str, statistic: str = "rate", per: str = "") -> float | None:
        """Return a figure's value, certified or not."""
        figure = self.figures.get((metric, statistic, per))
        return figure.value if figure else None

    def drop(self, metric: str, *statistics: str) -> None:
        """Take a metric away, or some of its statistics."""
        for key in [k for k in self.figures if k[0] == metric]:
            if not statistics or key[1] in statistics:
                del self.figures[key]

    def note(self, column: str, text: str) -> None:
        """Say something about a column that is not a problem."""
        if (column, text) not in self.notes:
            self.notes.append((column, text))

    def statistics(self, metric: str) -> dict[str, Figure]:
        """Return the figures of a metric of the whole deployment, by statistic."""
        return {s: f for (m, s, per), f in self.figures.items() if m == metric and not per}


def _clean(text: str) -> str:
    """Return one short printable line."""
    return "".join(c if c.isprintable() else " " for c in text)[:120].strip()


def row(run: Run) -> dict[str, Any]:
    """Return a usable run as a row; an uncertified percentile is None.

    Returns
    -------
    dict
        Column name to value, in base units.
    """
    result: dict[str, Any] = {name: run.facts[name] for name in FACTS if name in run.facts}
    for figure in _sorted(run.figures.values()):
        result[figure.column] = figure.value if figure.certified else None
    return result


def uncertified(run: Run) -> list[tuple[str, str]]:
    """Return the columns that are None because the sample is too small, and why."""
    return [(f.column, _short(f)) for f in _sorted(run.figures.values()) if not f.certified]


def _short(figure: Figure) -> str:
    given = "an unstated number" if figure.samples is None else f"{figure.samples:,}"
    return f"{figure.statistic} needs {floor(figure.statistic):,} requests; there are {given}"


def _sorted(figures: Iterable[Figure]) -> list[Figure]:
    names = list(METRICS)

    def place(figure: Figure) -> tuple[int, str, int, float]:
        known = figure.statistic in _ORDER
        order = _ORDER.index(figure.statistic) if known else len(_ORDER)
        return names.index(figure.metric), figure.per, order, _percent(figure.statistic) or 0

    return sorted(figures, key=place)


def columns(runs: Sequence[Run]) -> list[Mapping[str, Any]]:
    """Describe the columns that some runs fill.

    Returns
    -------
    list of mapping
        ``name``, ``unit`` (None for text), ``counting``, ``per``, ``statistic`` and ``says``.
    """
    known = {name for run in runs for name in run.facts}
    found: list[Mapping[str, Any]] = [
        {
            "name": name,
            "unit": unit or None,
            "counting": None,
            "per": "run",
            "statistic": None,
            "says": says,
        }
        for name, (unit, says) in FACTS.items()
        if name in known
    ]
    figures = {f.column: f for run in runs for f in run.figures.values()}
    for figure in _sorted(figures.values()):
        metric = METRICS[figure.metric]
        found.append(
            {
                "name": figure.column,
                "unit": metric.unit + ("/GPU" if figure.per.endswith("GPU") else ""),
                "counting": metric.counting or None,
                "per": figure.per or metric.per,
                "statistic": None if figure.statistic == "rate" else figure.statistic,
                "says": metric.says,
            }
        )
    return found
