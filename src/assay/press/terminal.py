"""Terminal: answers as plain text for people.

Owns tables and sentences on a terminal. Does not own the numbers, and never colours a verdict
without its word.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from assay.physics import units

if TYPE_CHECKING:
    from assay.bench.comparison import Comparison

__all__ = ["comparisons", "kv", "possible", "reasoning", "results", "table"]

#: Runs set side by side in one table.
_ABREAST = 4


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
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in rows[0]:
        numeric = all(_is_number(row[head]) or row[head] is None for row in rows)
        justify: Literal["left", "right"] = "right" if numeric else "left"
        grid.add_column(Text(head), justify=justify, overflow="fold")
    for row in rows:
        # As text: a model's or a file's name may look like markup.
        grid.add_row(*(Text(_words(value)) for value in row.values()))
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


def results(answer: Mapping[str, Any]) -> None:
    """Print the answer of ``assay read``: one table, a column a run, and what is wrong.

    Parameters
    ----------
    answer : mapping
        As ``bench.results.reader.answer`` returns it.
    """
    runs = answer["rows"]
    names = [file["file"] for file in answer["files"]]
    several = len(names) > 1
    for start in range(0, len(runs), _ABREAST):
        part = runs[start : start + _ABREAST]
        lines: list[dict[str, object]] = []
        for column in answer["columns"]:
            values = [run.get(column["name"]) for run in part]
            if all(value is None for value in values):
                continue
            latency = column["unit"] == "s" and column["per"] != "run"
            unit, factor = ("ms", 1e3) if latency else (column["unit"], 1)
            line: dict[str, object] = {
                "figure": column["name"].replace("_", " "),
                "unit": unit or "",
                "counts": column["counting"] or "",
                "of one": "" if column["per"] == "run" else column["per"],
            }
            for run, value in zip(part, values, strict=True):
                file = f"{names.index(run['file']) + 1}: " if several else ""
                scaled = value * factor if _is_number(value) else value
                line[f"{file}run {run['run']}"] = scaled
            lines.append(line)
        table(lines)
    unread = {file["file"] for file in answer["files"] if file["format"] is None}
    for number, file in enumerate(answer["files"], start=1):
        if file["file"] in unread:
            continue  # one sentence on standard error says why
        state = "usable" if file["usable"] else "NOT USABLE"
        print(f"{f'{number}: ' if several else ''}{file['file']}: {file['format']}, {state}")
    for problem in answer["problems"]:
        if problem["file"] in unread:
            continue
        place = f"{names.index(problem['file']) + 1}: " if several else ""
        run = f"{problem['run']}: " if problem["run"] else ""
        print(f"{problem['severity']} {problem['rule']}: {place}{run}{problem['message']}")
    for text in dict.fromkeys(note["note"] for note in answer["notes"]):
        columns = dict.fromkeys(n["column"] for n in answer["notes"] if n["note"] == text)
        print(f"note: {', '.join(c.replace('_', ' ') for c in columns)}: {text}")


def comparisons(found: Sequence[Comparison]) -> None:
    """Print the answer of ``assay compare``: the verdict first, then why, then the figures.

    Parameters
    ----------
    found : sequence of Comparison
        As ``bench.comparison.compare`` returns them.
    """
    for comparison in found:
        name = f"{comparison.name}: " if comparison.name else ""
        print(f"{name}{comparison.verdict}")
        for reason in comparison.reasons:
            print(f"  {reason}")
        table(
            [
                {
                    "figure": change.name,
                    "better": change.as_dict()["better"],
                    "change": change.percent,
                    "90 % interval of after ÷ before": _interval(change.low, change.high),
                    "says": change.says if change.certified else "not certified",
                }
                for change in comparison.changes
            ]
        )
        differing = [c for c in comparison.conditions if c["status"] != "same"]
        if differing:
            words = ", ".join(
                f"{c['condition'].replace('_', ' ')} {c['status']}" for c in differing
            )
            print(f"  conditions: {words}")


def _interval(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return "one run a side"
    return f"{units.number(low, digits=3)} to {units.number(high, digits=3)}"


_SPENT = {
    "output_tokens_per_answer": "output tokens per answer",
    "latency": "seconds per answer",
    "tok_per_s": "output tok/s",
    "requests_per_s": "requests/s",
    "correct_per_s": "correct answers/s",
    "usd_per_correct": "USD per correct answer",
    "j_per_correct": "J per correct answer",
}


def reasoning(answer: Mapping[str, Any]) -> None:
    """Print the answer of ``assay reasoning``: verdict, reasons, arms, accuracy, ratios.

    Parameters
    ----------
    answer : mapping
        As ``bench.reasoning.compare`` returns it.
    """
    print(answer["verdict"])
    for reason in answer["reasons"]:
        print(f"- {reason}")
    shown = ("records", "truncated", "empty", "correct", "output_tokens", "reasoning_tokens")
    table(
        [
            {"arm": name, "valid": arm["valid"]} | {k.replace("_", " "): arm[k] for k in shown}
            for name, arm in answer["arms"].items()
            if arm is not None
        ]
    )
    if (found := answer["accuracy"]) is not None:
        print(
            f"accuracy {100 * found['on']:.1f} % on, {100 * found['off']:.1f} % off, over "
            f"{found['questions']:,} questions: {100 * found['difference']:+.1f} pp, "
            f"{100 * answer['level']:g} % interval {100 * found['low']:+.1f} to "
            f"{100 * found['high']:+.1f} pp"
        )
    _on_over_off(answer["ratios"] or {}, answer["rates"] or {})
    if (same := answer["identity"]) is not None:
        requests, rate, tokens, quotient = (
            f"{units.number(same[key])}×"
            for key in (
                "requests_per_s",
                "tok_per_s",
                "output_tokens_per_answer",
                "tok_per_s_over_output_tokens_per_answer",
            )
        )
        print(
            f"requests/s {requests} = output tok/s {rate} ÷ output tokens per answer {tokens} "
            f"= {quotient}"
        )
        print(f"rates from {answer['rates']['from']}")
    for problem in answer["problems"]:
        if problem["severity"] == "note":
            print(f"note: {problem['message']}")


def _on_over_off(ratios: Mapping[str, Any], rates: Mapping[str, Any]) -> None:
    rows = []
    for key, name in _SPENT.items():
        for source, over in ((ratios, "questions"), (rates, "server starts")):
            if (ratio := source.get(key)) is not None:
                row = {"on ÷ off": name, "ratio": ratio["value"]}
                row |= {"low": ratio["low"], "high": ratio["high"]}
                rows.append(row | {"interval over": f"{ratio['n']:,} {over}"})
    table(rows)
