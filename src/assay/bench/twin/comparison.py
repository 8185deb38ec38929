"""Comparison: how far the twin's predictions are from what third parties published.

Owns reading ``data/twin/published.csv`` as points of a figure and as errors by kind. Does not own
making it (`reference`): a prediction decides nothing, and neither does its error.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from assay.bench.twin import reference, tables

__all__ = ["GROUPS", "errors", "scatter", "table"]

#: Groups of kept rows: a name, and whether a row belongs to it. The second is part of the first;
#: its bound was chosen after seeing the errors, and is no rule.
_CROWD = 100
GROUPS: dict[str, Callable[[Mapping[str, str]], bool]] = {
    "dense model": lambda row: row["experts"] == "no",
    f"dense model, at most {_CROWD} in flight": lambda row: (
        row["experts"] == "no" and int(row["in_flight"]) <= _CROWD
    ),
    "mixture of experts": lambda row: row["experts"] == "yes",
}
#: Columns that tell the kept runs apart.
_SAME = ("source", "model", "gpu", "gpu_count", "workload", "prompt_tok", "output_tok", "in_flight")


def scatter() -> list[dict[str, Any]]:
    """Return the kept comparison as points of a figure.

    Returns
    -------
    list of dict
        ``label`` (model, cards, load), ``kind`` of figure, ``unit``, ``experts`` (whether the model
        is a mixture of experts), ``in_flight`` requests, ``predicted`` and ``measured``.
    """
    return [
        {
            "label": f"{row['model']}, {row['gpu_count']} x {row['gpu']}, {row['workload']}",
            "kind": row["kind"],
            "unit": row["unit"],
            "experts": row["experts"] == "yes",
            "in_flight": int(row["in_flight"]),
            "predicted": float(row["predicted"]),
            "measured": float(row["published"]),
        }
        for row in tables.read("published")
    ]


def errors() -> list[dict[str, Any]]:
    """Return how far the predictions are off, by group and kind of figure.

    Returns
    -------
    list of dict
        ``group``, of :data:`GROUPS`; ``kind``; how many ``figures``, ``runs`` and ``sources``;
        ``typical`` (median of the absolute error [1]); ``median``, ``lowest`` and ``highest`` error
        [1]; and ``above``, how many predictions are above the published value.
    """
    found = []
    for (group, belongs), kind in itertools.product(
        GROUPS.items(), dict.fromkeys(reference.KINDS.values())
    ):
        rows = [r for r in tables.read("published") if r["kind"] == kind and belongs(r)]
        if not rows:
            continue
        off = [float(row["error"]) for row in rows]
        found.append(
            {
                "group": group,
                "kind": kind,
                "figures": len(off),
                "runs": len({tuple(row[name] for name in _SAME) for row in rows}),
                "sources": len({row["source"] for row in rows}),
                "typical": statistics.median(abs(x) for x in off),
                "median": statistics.median(off),
                "lowest": min(off),
                "highest": max(off),
                "above": sum(x > 0 for x in off),
            }
        )
    return found


def table() -> list[dict[str, Any]]:
    """Return :func:`errors` with errors in words, for printing."""
    return [
        {
            "model": row["group"],
            "figure": row["kind"],
            "figures": row["figures"],
            "sources": row["sources"],
            "typical error": f"{row['typical']:.0%}",
            "median": f"{row['median']:+.0%}",
            "lowest to highest": f"{row['lowest']:+.0%} to {row['highest']:+.0%}",
        }
        for row in errors()
    ]
