"""Sweeps: kept beside the evidence of their claim, read back, and recorded.

Owns the files of a sweep (one row a request, one line a window), finding the newest that is
committed, and the evidence that follows from one. Does not own its numbers or gates (``sweep``) or
running it (``longprompt``).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.bench import sweep
from assay.bench.load import rows
from assay.bench.protocol.window import Window
from assay.errors import InputError
from assay.ledger import records, stats, store
from assay.physics import units

if TYPE_CHECKING:
    from assay.bench.measurement import Measurement

__all__ = ["CLAIM", "MODEL", "committed", "kept", "read", "record", "text"]

Parameters = Mapping[str, bool | int | float | str]

CLAIM = "chunked-prefill-ttft"
MODEL = "small model with random weights"
_TTFT, _RATIO = "ttft-200ms", "chunking-lowers-ttft"
# What the numbers and gates of a sweep need of a window; the rest follows from its requests.
_VALUES = ("ttft", "itl", "e2el", "output_throughput", "cold_start")


def kept(measured: Measurement) -> sweep.Sweep:
    """Keep a measurement's requests and windows beside the claim's evidence, and return it.

    Parameters
    ----------
    measured : Measurement
        Of :func:`assay.bench.longprompt.measure`.
    """
    tops = {key: (top.rate, top.why) for key, top in measured.ceilings.items()}
    origin = {arm: measured.provenance(arm=arm) for arm in measured.plan.arms}
    found = sweep.Sweep(measured.windows, (), tops, origin)
    file = measured.folder / "windows.jsonl"
    store.write(file, text(found))
    files = (measured.samples(CLAIM), store.keep_samples(CLAIM, file))
    requests = tuple(rows.read(measured.folder / "samples.parquet"))
    return dataclasses.replace(found, requests=requests, files=files)


def text(found: sweep.Sweep) -> str:
    """Return windows and ceilings as lines of JSON."""
    lines: list[dict[str, Any]] = [
        {"arm": arm, "load": load, "ceiling": rate, "why": why}
        for (arm, load), (rate, why) in found.ceilings.items()
    ]
    for window in found.windows:
        values = {name: window.values.get(name) for name in _VALUES}
        lines.append(dataclasses.replace(window, values=values).to_json())
    dense = (json.dumps(line, sort_keys=True, separators=(",", ":")) for line in lines)
    return "".join(f"{line}\n" for line in dense)


def committed() -> sweep.Sweep:
    """Return the newest committed sweep on a processor.

    Raises
    ------
    InputError
        When there is none.
    """
    found = [
        item
        for item in store.live(CLAIM)
        if item.basis == "measured"
        and item.assertion == _TTFT
        and item.conditions["gpu"] == "none"
        and item.provenance is not None
    ]
    if not found:
        raise InputError(
            "no measurement on a processor is committed to replay",
            where=f"data/evidence/{CLAIM}",
            fix="run the notebook with measure set to true",
        )
    newest = max(found, key=lambda item: item.provenance.ended if item.provenance else "")
    assert newest.samples is not None
    windows, ceilings = read(store.path(newest.inputs[0].path))
    origin = {
        str(item.conditions["workload"]).rpartition(", ")[2]: item.provenance
        for item in found
        if item.samples == newest.samples and item.provenance is not None
    }
    requests = tuple(rows.read(store.path(newest.samples.path)))
    files = (newest.samples.path, newest.inputs[0].path)
    return sweep.Sweep(windows, requests, ceilings, origin, files)


def read(file: Path) -> tuple[tuple[Window, ...], dict[tuple[str, str], sweep.Ceiling]]:
    """Return the windows and ceilings that :func:`text` wrote."""
    where = store.shown(file)
    lines = [store.parse_json(line, where=where) for line in store.read_text(file).splitlines()]
    tops = {(x["arm"], x["load"]): (x["ceiling"], x["why"]) for x in lines if "ceiling" in x}
    return tuple(Window.from_json(line) for line in lines if "ceiling" not in line), tops


def record(
    claim: records.Claim, found: sweep.Sweep, *, least: int, parameters: Parameters
) -> list[records.Evidence]:
    """Save what was measured here; what was read back is in the ledger already.

    Parameters
    ----------
    claim : Claim
        The claim on TTFT; another one gets nothing.
    found : Sweep
        Of :func:`kept`.
    least : int
        Shortest prompt that counts as very long [tok].
    parameters : mapping
        The notebook's.
    """
    if claim.id != CLAIM:
        return []
    saved = []
    for arm in found.arms:
        for length, time in found.alone(arm).items():
            if length >= least:
                shown = units.text(time.value, "s")
                said = f"On a processor, a {MODEL} reads {length:,} tokens in {shown} ({arm})."
                told = _told(found, arm, length, time, found.gates(arm, length))
                saved.append(
                    store.found(claim, _TTFT, unit="s", finding=said, parameters=parameters, **told)
                )
    longest = max(found.curve(sweep.UNCHUNKED), default=0)
    for arm in found.arms[:-1] if longest else ():
        ratio = found.unchunked_over(arm, longest)
        said = (
            f"On a processor, a {MODEL} without chunks takes {ratio.value:.2f} times the TTFT "
            f"with them ({longest:,} tokens, {arm})."
        )
        both = [*found.gates(sweep.UNCHUNKED, longest)[:-1], *found.gates(arm, longest)]
        told = _told(found, arm, longest, ratio, both)
        saved.append(
            store.found(claim, _RATIO, unit="1", finding=said, parameters=parameters, **told)
        )
    return saved


def _told(
    found: sweep.Sweep,
    arm: str,
    length: int,
    number: stats.Interval,
    gates: Sequence[records.Gate],
) -> dict[str, Any]:
    """Return what the evidence on a time and on a ratio of times have in common."""
    origin = found.provenance[arm]
    requests, windows = found.files
    return {
        "basis": "measured",
        "value": number.value,
        "low": number.low,
        "high": number.high,
        "n": number.n,
        "method": f"{number.method}, {number.level:.0%}, over {number.n} server starts",
        "inputs": [windows],
        "conditions": {
            "gpu": "none",
            "gpu_count": 0,
            "model": MODEL,
            "precision": "w16a16",
            "engine": origin.engine,
            "version": origin.engine_version,
            "workload": f"1 prompt of {length} tokens, {arm}",
        },
        "gates": gates,
        "provenance": origin,
        "samples": requests,
    }
