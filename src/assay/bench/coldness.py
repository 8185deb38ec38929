"""Coldness: what cold starts, published and measured here, say about a claim.

Owns the published rows of a claim's cold starts, their place on one axis with those measured here,
and the evidence of both. Does not own starting anything (``starts``, ``wasm``) or verdicts.

Starts of WebAssembly and of engines go under different assertions. An engine's start that only
wakes a sleeping process is no cold start and becomes no evidence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from assay.bench import machine, provenance, starts
from assay.bench.starts import ARMS, FIRST, Row
from assay.ledger import matched, records, store

__all__ = ["decades", "figure", "printed", "record_measured", "record_published", "where"]

Parameters = Mapping[str, bool | int | float | str]

_ENGINE, _SPIN = "engine-minutes", "spinkube-microseconds"
_WASM = ("HybridServe", "Spin", "SpinKube", "runwasi")  # published starts that are of WebAssembly
_WOKEN = "woken"
_INPUT = "data/published/measurements.csv"


def figure(claim: records.Claim, rows: Sequence[Row]) -> list[dict[str, object]]:
    """Return claimed, published and own starts as rows of a dot plot [s], fastest first.

    Parameters
    ----------
    claim : Claim
        Whose published starts are shown.
    rows : sequence of dict
        Raw rows measured here; may be empty.
    """
    own = {
        ("wasmtime", "instance"): "a Wasm instance, here",
        ("wasmtime", "process"): "a Wasm process, here",
        ("vllm-eager", FIRST): "vLLM on this processor",
        ("vllm-compiled", FIRST): "vLLM on this processor, compiled",
        ("transformers", FIRST): "transformers on this processor",
    }
    points: list[dict[str, object]] = [
        {
            "label": own[key],
            "value": mean.value,
            "low": mean.low,
            "high": mean.high,
            "kind": "evidence",
        }
        for key, mean in starts.spread(rows).items()
        if key in own
    ]
    for cells in _published(claim.id):
        value, low, high = printed(cells)
        told = [f"{cells['engine']} {cells['model_stated']}".strip()]
        told += [cells["gpu_stated"].removeprefix("NVIDIA ")] if _is_engine(cells) else []
        told += [] if _is_engine(cells) and not _woken(cells) else [cells["arm"]]
        points.append(
            {
                "label": ", ".join(filter(None, told)),
                "value": value,
                "low": low or value,
                "high": high,
            }
        )
    return sorted(points, key=lambda point: float(str(point["value"])))


def decades(claim: records.Claim) -> str:
    """Return over how many powers of ten the published starts of engines spread, as text.

    Parameters
    ----------
    claim : Claim
        The claim about cold starts.
    """
    seen = [printed(cells)[0] for cells in _published(claim.id) if _counts(cells)]
    return f"{math.log10(max(seen) / min(seen)):.1f}"


def where(claim_id: str, rows: Sequence[Row]) -> str:
    """Return on what and when the starts were measured, as a sentence.

    Parameters
    ----------
    claim_id : str
        The claim whose evidence they are.
    rows : sequence of dict
        Their raw rows.
    """
    kept = [e.provenance for e in store.live(claim_id) if e.samples and e.provenance]
    if not kept or not rows:
        return "Nothing is committed yet; with the parameter measure set, engines are started here."
    loads = sorted(float(row["load_average"]) for row in rows)
    said = (
        f"Measured on {kept[-1].device} on {max(row['started'] for row in rows)[:10]}, at a load "
        f"average of {loads[0]:.1f} to {loads[-1]:.1f}; load can only lengthen a start."
    )
    if not any(row["arm"] == "wasmtime" for row in rows):
        return said
    return (
        f"{said} A further instance is the only start in microseconds; the process around it is a "
        "Python host that loads the runtime first, as any host has to load something."
    )


def _is_engine(cells: Row) -> bool:
    return cells["engine"] not in _WASM


def _counts(cells: Row) -> bool:
    return _is_engine(cells) and not _woken(cells)


def _woken(cells: Row) -> bool:
    return cells["arm"].endswith(_WOKEN)


# -- evidence -------------------------------------------------------------------------------------


def _published(claim_id: str) -> list[Row]:
    return [
        row
        for row in store.published("measurements")
        if row["claim"] == claim_id and row["metric"] == "cold_start"
    ]


def printed(cells: Row) -> tuple[float, float, float]:
    """Return value, lowest and highest of a row [s]."""
    if cells["value"]:
        value, off = matched.printed(cells)
        return value, value - off, value + off
    low, high = (
        matched.printed({**cells, "value": cells[f"value_{e}"]})[0] for e in ("low", "high")
    )
    # Of a range that spans decades the middle is the geometric one.
    return ((low * high) ** 0.5 if low > 0 else high), low, high


def record_published(claim: records.Claim, *, parameters: Parameters) -> list[records.Evidence]:
    """Save published starts, those of WebAssembly apart from those of engines.

    Parameters
    ----------
    claim : Claim
        The claim about cold starts; another one is given nothing.
    parameters : mapping
        The notebook's parameters.

    Returns
    -------
    list of Evidence
        One a row that is evidence; a start that the examined page itself claims is left out.
    """
    if _ENGINE not in {one.id for one in claim.assertions}:
        return []
    saved = []
    for cells in _published(claim.id):
        if cells["role"] != "evidence" or _woken(cells):
            continue
        value, low, high = printed(cells)
        shown = " to ".join(filter(None, (cells["value_low"], cells["value_high"])))
        saved.append(
            store.found(
                claim,
                _ENGINE if _is_engine(cells) else _SPIN,
                basis="published",
                value=value,
                low=low,
                high=high,
                unit="s",
                method=f"{cells['source']}: {cells['locator']}; interval: rounding as printed",
                finding=f"{cells['engine']} ({cells['source']}): {cells['value'] or shown} "
                f"{cells['unit']}, {cells['arm']}.",
                parameters=parameters,
                inputs=[_INPUT],
                conditions={
                    "gpu": cells["gpu"] or cells["gpu_stated"] or "unstated",
                    "gpu_count": int(cells["gpu_count"]) if cells["gpu_count"] else "unstated",
                    "model": cells["model"] or cells["model_stated"] or "unstated",
                    "precision": cells["precision"] or "unstated",
                    "engine": cells["engine"].lower() or "unstated",
                    "version": cells["engine_version"] or "unstated",
                    "workload": cells["workload"] or cells["arm"],
                },
            )
        )
    return saved


def record_measured(
    claim: records.Claim, file: Path, *, parameters: Parameters
) -> list[records.Evidence]:
    """Save what was measured here, with the raw rows.

    Parameters
    ----------
    claim : Claim
        The claim about cold starts.
    file : Path
        from :func:`assay.bench.starts.measure`.
    parameters : mapping
        The notebook's parameters.

    Returns
    -------
    list of Evidence
        First answers of engines under the statement about engines; instances of WebAssembly under
        the one about SpinKube, whose scope they are outside of.
    """
    rows = store.read_csv(file)
    samples = store.keep_samples(claim.id, file)
    saved = []
    for (arm, quantity), mean in starts.spread(rows).items():
        if quantity not in (FIRST, "instance"):
            continue
        own = [row for row in rows if row["arm"] == arm]
        engine = own[0]["subject"].lower()
        saved.append(
            store.found(
                claim,
                _SPIN if arm == "wasmtime" else _ENGINE,
                basis="measured",
                value=mean.value,
                low=mean.low,
                high=mean.high,
                unit="s",
                n=mean.n,
                method=f"{mean.method}, {mean.level:.0%}, over {mean.n} starts",
                finding=f"{ARMS[arm]}, on the processor of this machine: {mean.value:.3g} s "
                f"({mean.low:.3g} to {mean.high:.3g} s).",
                parameters=parameters,
                inputs=[f"data/claims/{claim.id}.yml"],
                conditions={
                    "gpu": "none",
                    "gpu_count": 0,
                    "model": "n/a" if arm == "wasmtime" else "llama-shaped, random weights",
                    "precision": "n/a" if arm == "wasmtime" else "w16a16",
                    "engine": engine,
                    "version": own[0]["version"],
                    "workload": ARMS[arm],
                },
                gates=_gates(own, quantity),
                provenance=_provenance(own),
                samples=samples,
            )
        )
    return saved


def _gates(rows: Sequence[Row], quantity: str) -> list[records.Gate]:
    starts = sum(row["quantity"] == quantity for row in rows)
    loads = [float(row["load_average"]) for row in rows]
    return [
        records.Gate(
            id="cold-starts",
            passed=starts >= 5,
            says=f"{starts} starts, each of a fresh process; vLLM's caches emptied before each",
        ),
        records.Gate(
            id="all-answered",
            passed=all(float(row["seconds"]) > 0 for row in rows),
            says=f"every start led to an answer, at a load average of {min(loads):.1f} to "
            f"{max(loads):.1f}; load can only lengthen a start",
        ),
    ]


def _provenance(rows: Sequence[Row]) -> records.Provenance:
    return records.Provenance(
        device=machine.discover(()).processor,
        driver=None,
        clocks=None,
        engine=rows[0]["subject"],
        engine_version=rows[0]["version"],
        flags=(rows[0]["arm"],),
        packages=provenance.packages(),
        commit=provenance.commit(),
        started=min(row["started"] for row in rows),
        ended=max(row["started"] for row in rows),
    )
