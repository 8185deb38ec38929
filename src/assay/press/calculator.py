"""Calculator: the numbers behind the page "Is this number possible?".

Owns the JSON that the page reads (devices, models, formats, units, published rates) and the Sphinx
extension that puts it into that one page. Does not own the formulas (``physics``; their port is
``book/_extra/possible``) or the page's prose.

The JSON is printed into the page, not beside it: a book opened from a folder may not fetch files.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from assay.errors import AssayError
from assay.ledger import facts, published, store
from assay.physics import accelerator, precision, readings, units
from assay.physics.possible import SUSPECT_SHARE

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["PAGE", "data", "script", "setup"]

PAGE = "possible"
# Rows near enough to a claim to stand beside it (data/published/columns.yml).
_CREDIBLE = ("A", "A-", "B")


def data() -> dict[str, Any]:
    """Return everything the page reckons with, in base units.

    Returns
    -------
    dict
        ``hardware``, ``models``, ``precisions``, ``units``, ``published`` and its ``sources``, and
        the constants of the readings. Safe as JSON.
    """
    rows = _published()
    known = store.sources()
    cited = {name: known[name] for name in dict.fromkeys(row["source"] for row in rows)}
    return {
        "hardware": [_device(name) for name in store.hardware_ids()],
        "models": [_model(name) for name in store.model_ids()],
        "precisions": {
            p.name: {"weight_bits": p.weight_bits, "formats": list(p.formats)}
            for p in precision.PRECISIONS.values()
        },
        "units": {atom: list(unit) for atom, unit in units.ATOMS.items()},
        "device_counts": list(readings.DEVICE_COUNTS),
        "rounding": readings.ROUNDING,
        "suspect_share": SUSPECT_SHARE,
        "published": rows,
        "sources": {name: {"title": s.title, "url": s.url} for name, s in cited.items()},
    }


def _device(name: str) -> dict[str, Any]:
    record = store.hardware(name)
    card = facts.device(record)
    return {
        "id": card.id,
        "title": card.title,
        "vendor": record.vendor,
        "memory": card.memory,
        "bandwidth": card.bandwidth,
        "peaks": dict(card.peaks),
        "admissible": {word: _names(card, word) for word in ("any", "int4")},
    }


def _names(card: accelerator.Accelerator, stated: str) -> list[str]:
    return [p.name for p in precision.admissible(card, stated)]


def _model(name: str) -> dict[str, Any]:
    record = store.model(name)
    return {"id": record.id, "title": record.title, **dataclasses.asdict(facts.limits(record))}


def _published() -> list[dict[str, Any]]:
    """Return credible rates per card, for the table beside an answer."""
    found = []
    for row in published.measurements():
        per_card = {"total": row.total_per_gpu, "output": row.output_per_gpu}
        size = store.model(row.model).parameters if row.model else (row.params or 0) * 1e9
        if row.comparability not in _CREDIBLE or not row.gpu or not size:
            continue
        if row.metric.startswith(("decode", "prefill")) or not any(per_card.values()):
            continue
        found.append(
            {
                "gpu": row.gpu,
                "parameters": size,
                "engine": row.engine,
                "precision": row.precision,
                "gpus": row.gpu_count,
                "inputs": row.inputs,
                "outputs": row.outputs,
                "concurrency": row.concurrency,
                **per_card,
                "source": row.source,
            }
        )
    return found


def script() -> str:
    """Return the data as an element of the page.

    Examples
    --------
    >>> script().startswith('<script type="application/json" id="possible-data">{')
    True
    """
    # "</script>" in a title would end the element.
    text = json.dumps(data(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    text = text.replace("<", "\\u003c")
    return f'<script type="application/json" id="possible-data">{text}</script>'


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
    app.connect("html-page-context", _add_data)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


def _add_data(
    _app: Sphinx, page: str, _template: str, context: dict[str, Any], _doctree: object
) -> None:
    if page != PAGE:
        return
    try:
        # Before the page's own scripts, which are deferred and find it in place.
        context["body"] = script() + context.get("body", "")
    except AssayError as error:
        from sphinx.errors import ExtensionError

        raise ExtensionError(str(error)) from None
