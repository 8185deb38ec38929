"""Terminal: answers as plain text for people.

Owns tables and sentences on a terminal. Does not own the numbers, and never colours a verdict
without its word.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from assay.physics import units

__all__ = ["kv", "possible", "table"]


def table(rows: Sequence[Mapping[str, object]]) -> None:
    """Print rows as a table: 200 columns wide when piped, fitted to a terminal otherwise.

    Parameters
    ----------
    rows : sequence of mapping
        The keys of the first row are the headings; nothing is printed for no rows.
    """
    if not rows:
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in rows[0]:
        numeric = all(_is_number(row[head]) or row[head] is None for row in rows)
        grid.add_column(head, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(_words(value) for value in row.values()))
    console.print(grid)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _words(value: object) -> str:
    if value is None:
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return units.number(float(value))
    return str(value)


def _bytes(value: object) -> str:
    return units.sizes(float(value)) if isinstance(value, int | float) else "unknown"


def kv(answer: Mapping[str, Any]) -> None:
    """Print the answer of ``assay kv``: three figures, each with its name.

    Parameters
    ----------
    answer : mapping
        As ``physics.kv.answer`` returns it.
    """
    if answer["status"] == "refused":
        print(f"refused: {answer['reason']}")
        return
    counts = ", ".join(f"{n} {kind}" for kind, n in answer["layers"].items() if n)
    print(
        f"{answer['model_type'] or 'model'}: {counts or 'no'} layers; KV numbers in "
        f"{answer['kv_dtype']} ({answer['kv_dtype_source']})"
    )
    if answer["status"] != "ok":
        print(f"{answer['status']}: {answer['reason']}")
    at, gpu = answer["bytes_at"], answer["per_gpu"]
    shared = f"each of {gpu['tp'] * gpu['pp']} GPUs" if gpu["tp"] * gpu["pp"] > 1 else ""
    names = (
        ("every layer at full length, per token", "all_layers_bytes_per_token"),
        ("growth per token at long context", "growth_bytes_per_token"),
        ("bounded part per sequence (windows, states)", "bounded_bytes_per_sequence"),
    )
    rows = []
    for name, key in names:
        row = {"figure": name, "all GPUs, one copy": _bytes(answer[key])}
        if shared:
            row[shared] = _bytes(gpu[key])
        rows.append(row)
    table(rows)
    if at["tokens"] is not None:
        print(f"{at['sequences']:,} × {at['tokens']:,} tokens:")
        print(f"  every layer at full length  {_bytes(at['all_layers'])}")
        print(f"  windows capped              {_bytes(at['capped'])}")
    if "memory" in answer:
        _capacity(answer["memory"])
    for claim in answer.get("claims", ()):
        print(f"claim {claim['claim']}: {claim['sentence']}")
    for note in answer["assumptions"]:
        print(f"assumed: {note}")
    for note in answer["warnings"]:
        print(f"warning: {note}")


def _capacity(memory: Mapping[str, Any]) -> None:
    print("in this memory:")
    for key, value in memory.items():
        if value is not None and value != "":
            print(f"  {key.replace('_', ' ')}: {_words(value)}")


def possible(answer: Mapping[str, Any], *, unit: str) -> None:
    """Print the answer of ``assay possible``: status, readings, what would be needed.

    Parameters
    ----------
    answer : mapping
        As ``physics.possible.possible`` returns it.
    unit : str
        Base unit of the rate and of every ceiling.
    """
    sentences = {
        "impossible": "impossible: no admissible reading allows it",
        "depends": "depends: some readings allow it, some do not",
        "possible": "possible: no reading is excluded (which does not show that it is true)",
    }
    print(sentences[answer["status"]])
    table(
        [
            {
                "precision": r["precision"],
                "counting": r["counting"],
                "GPUs": r["gpus"],
                "in flight": r["batch"],
                "fits": r["fits"],
                f"ceiling [{unit}]": r["ceiling"],
                "limited by": r["limited_by"],
                "claimed ÷ ceiling": f"{units.number(r['ratio'], digits=3)}×",
                "possible": r["possible"],
            }
            for r in answer["readings"]
        ]
    )
    counted = answer["needs"].get("devices_by_counting") or {}
    for counting, devices in counted.items():
        least = f"at least {devices} GPUs" if devices else "no number of GPUs is enough"
        print(f"needs, counting {counting}: {least}")
    for note in answer["unstated"]:
        print(f"unstated: {note}")
    for note in answer["warnings"]:
        print(f"warning: {note}")
