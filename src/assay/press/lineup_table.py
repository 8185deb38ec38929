"""Lineup table: engines side by side on one machine, as the book prints the committed samples.

Owns the printed form. Does not own the samples, the roof or the limits (``bench.lineup``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from assay.bench import lineup
from assay.ledger import metric, store
from assay.physics import units
from assay.press import show

__all__ = ["text"]

_ROOF = {
    "copy_bandwidth": ("copy of a large array", "GB/s"),
    "matmul_bf16": ("matrix products, bf16", "GFLOP/s"),
    "matmul_fp32": ("matrix products, fp32", "GFLOP/s"),
}


def text(samples: Sequence[Mapping[str, str]] | None = None) -> str:
    """Return the printed part of the page: roof, limits, engines against them, and the record.

    Parameters
    ----------
    samples : sequence of mapping, optional
        Rows of the table of samples; the committed ones by default.

    Returns
    -------
    str
        MyST Markdown.
    """
    rows = list(store.published("engines_here") if samples is None else samples)
    parts = [
        ("What the processor reaches", _roof(rows)),
        ("What that allows the model", _limits(rows)),
        ("What the engines reach", _engines(rows)),
        ("How it was measured", _record(rows)),
    ]
    return "\n\n".join(f"## {title}\n\n{body}" for title, body in parts) + "\n"


def _roof(rows: Sequence[Mapping[str, str]]) -> str:
    table = []
    for name, (title, unit) in _ROOF.items():
        seen = [r for r in rows if r["subject"] == "roof" and r["quantity"] == name]
        values = [units.from_base(float(r["value"]), unit) for r in seen]
        table.append(
            {
                "quantity": title,
                **{
                    f"{when} the engines": f"{units.number(value)} {unit}"
                    for when, value in zip(("before", "after"), values, strict=True)
                },
            }
        )
    loads = [float(r["load_average"]) for r in rows if r["load_average"]]
    return (
        "Each figure is the best of ten tries, since a limit is what can be reached at all. The "
        f"machine's load average was {min(loads):.1f} to {max(loads):.1f}; what else it did held "
        "down the roof and the engines alike.\n\n" + show.table(table).text
    )


def _limits(rows: Sequence[Mapping[str, str]]) -> str:
    found = lineup.allowed(rows)
    load = lineup.LOAD
    return (
        f"The model has {found.parameters / 1e6:.1f} million random parameters in bf16, "
        f"{found.weights / 1e6:.0f} MB. The load is {load.requests} requests of "
        f"{load.input_tokens} tokens in and {load.output_tokens} out, {load.concurrency} in "
        "flight.\n\n"
        + show.table(
            [
                {
                    "limit": "time of a decode step",
                    "from": "weights ÷ copy bandwidth",
                    "value": f"{1e3 * found.tpot:.1f} ms",
                },
                {
                    "limit": "time to first token of one prompt",
                    "from": "2 operations × parameters × prompt tokens ÷ matrix products",
                    "value": f"{found.ttft:.2f} s",
                },
                {
                    "limit": "output tokens per second",
                    "from": "the slower of both, overlapping perfectly",
                    "value": f"{found.output_throughput:.1f} tok/s",
                },
            ]
        ).text
    )


def _engines(rows: Sequence[Mapping[str, str]]) -> str:
    table = [
        {
            "engine": f"{line.engine} {line.version}",
            "quantity": metric.named(line.quantity).title,
            "blocks": ", ".join(_shown(line, value) for value in line.blocks),
            "limit": _shown(line, line.limit),
            "share of the roof": f"{line.share:.0%}",
        }
        for line in sorted(lineup.lines(rows), key=lambda line: (line.quantity, line.engine))
    ]
    return (
        "One value a server start, in the order of blocks. The share is that of the "
        "median. Time to first token includes the wait for the other prompts in flight, which the "
        "limit leaves out.\n\n" + show.table(table).text
    )


def _shown(line: lineup.Line, value: float) -> str:
    return units.number(value) if line.unit.endswith("/s") else f"{units.number(1e3 * value)} ms"


def _record(rows: Sequence[Mapping[str, str]]) -> str:
    first = rows[0]
    started = sorted(row["started"] for row in rows)
    flags = {row["subject"]: row["flags"] for row in rows if row["subject"] != "roof"}
    asked = lineup.LOAD.requests
    short = [r for r in rows if r["completed"] and int(r["completed"]) < asked]
    lines = [
        f"- **Machine.** {first['machine']}.",
        f"- **When.** {started[0]} to {started[-1]}, commit `{first['commit']}`.",
        *(f"- **{name}.** `{given}`" for name, given in flags.items()),
        f"- **Packages.** {first['packages'].replace(' ', ', ')}.",
        f"- **Requests.** {'Every one was answered' if not short else 'Some failed'}.",
        *_gates(rows),
    ]
    return "\n".join(lines)


def _gates(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return what did not pass, by engine, each once; a verdict would not use such a number."""
    found: dict[str, dict[str, None]] = {}
    for row in rows:
        if row["subject"] != "roof":
            said = dict.fromkeys(filter(None, row["failed_gates"].split("; ")))
            found.setdefault(row["subject"], {}).update(said)
    return [
        f"- **Gates of {name}.** {'Not passed: ' + '; '.join(said) if said else 'All passed'}."
        for name, said in found.items()
    ]
