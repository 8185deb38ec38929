"""Formats: which benchmark wrote what is in a file.

Owns telling the formats apart, by content (a name counts only for YAML, which any text may be), and
handing each object or table to the one that knows it. Does not own the bytes (``stream``) or what a
format means.
"""

from __future__ import annotations

import itertools
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from assay.bench.results import (
    aiperf,
    exports,
    guidellm,
    llamabench,
    lmbench,
    loose,
    sglang,
    tables,
    trtllm,
    vllm,
)
from assay.bench.results.documents import Document, documents
from assay.bench.results.packing import Buffer
from assay.bench.results.table import Run
from assay.errors import InputError
from assay.ledger import store

__all__ = ["KNOWN", "runs"]

#: Who is known, in a sentence.
KNOWN = "vLLM, SGLang, GuideLLM, AIPerf, llama-bench, TensorRT-LLM and LMBenchmark"
_FIX = f"give a file of {KNOWN}"
#: YAML takes a hundred times as long as JSON; a report with every request in it is longer [B].
_YAML_MOST = 16 << 20
#: How the YAML of a report or of claims starts: a known key, after comments and marks.
_YAML_START = re.compile(
    rb"(?:(?:---|%|#)[^\n]*\n|\s)*(?:args|benchmarks|claims|config|metadata|pairs)\s*:\s"
)


def runs(data: Buffer, shown: str) -> Iterator[Run]:
    """Yield the runs of a file, unchecked.

    Parameters
    ----------
    data : bytes or mmap
        The file's text.
    shown : str
        The file's name, for messages.

    Raises
    ------
    InputError
        When the text is not JSON, YAML or a table, or no known benchmark wrote it.
    """
    start = data[:4096].removeprefix(b"\xef\xbb\xbf").lstrip()
    if start[:1] in (b"{", b"["):
        yield from _json(documents(data, shown, guidellm.lean), shown)
    elif tables.is_table(start):
        yield from _table(tables.read(data, shown), shown)
    elif _YAML_START.match(start) or shown.lower().endswith((".yaml", ".yml")):
        yield from _object(_yaml(data, shown), shown)
    else:
        # JSON that starts with something else is said to be no JSON, with its place.
        next(documents(data, shown), None)
        raise InputError(
            "is not a benchmark's result: one value, not an object", where=shown, fix=_FIX
        )


def _json(found: Iterator[Document], shown: str) -> Iterator[Run]:
    for document in found:
        value = document.value
        if isinstance(value, dict) and aiperf.is_record(value):
            yield aiperf.records(itertools.chain([document], found))
            continue
        objects = value if isinstance(value, list) else [value]
        place = shown if document.line == 1 else f"{shown}, line {document.line}"
        if not objects:
            raise InputError("is an empty list", where=place, fix=_FIX)
        for item in objects:
            yield from _object(item, place)


def _object(item: Any, place: str) -> Iterator[Run]:
    if not isinstance(item, dict):
        raise InputError("holds a value that is not an object", where=place, fix=_FIX)
    shape = _shape(item)
    if shape is None:
        keys = ", ".join(sorted(str(k)[:24] for k in item)[:4]) or "none"
        raise InputError(
            f"no known benchmark writes such an object (keys: {_printable(keys)})",
            where=place,
            fix=_FIX,
        )
    yield from shape


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _shape(item: Mapping[str, Any]) -> list[Run] | None:
    """Return the runs of an object, by the first format that knows it."""
    if guidellm.is_report(item):
        return guidellm.runs(item)
    if loose.is_claims(item):
        return loose.claims(item)
    for known, reader in (
        (sglang.is_serving, sglang.serving),
        (vllm.is_serving, vllm.serving),
        (aiperf.is_summary, aiperf.summary),
        (llamabench.is_test, llamabench.run),
        (trtllm.is_report, trtllm.report),
        (trtllm.is_two_rates, trtllm.two_rates),
        (sglang.is_batch, sglang.one_batch),
        (sglang.is_offline, sglang.offline),
        (vllm.is_latency, vllm.latency),
        (vllm.is_throughput, vllm.throughput),
        (loose.is_counts, loose.per_gpu),
        (loose.is_requests, loose.requests),
        (loose.is_usage, loose.usage),
    ):
        if known(item):
            return [reader(item)]
    return None


def _table(found: tables.Table, shown: str) -> Iterator[Run]:
    names = found.names
    if exports.is_aiperf(found):
        yield exports.aiperf_summary(found, shown)
    elif exports.is_guidellm(found):
        yield from exports.guidellm_report(found, shown)
    elif lmbench.is_header(names):
        yield lmbench.run(found.rows(shown))
    elif found.kind == "markdown" and llamabench.is_header(names):
        yield from (llamabench.markdown(row) for row in found.rows(shown))
    elif llamabench.is_header(names) and "n_prompt" in names:
        yield from (llamabench.run(llamabench.typed(row)) for row in found.rows(shown))
    elif exports.is_vllm(names):
        yield from exports.vllm_sweep(found, shown)
    else:
        columns = _printable(", ".join(name[:24] for name in names[:4]))
        raise InputError(
            f"no known benchmark writes such a table (columns: {columns})", where=shown, fix=_FIX
        )


def _yaml(data: Buffer, shown: str) -> Any:
    """Read YAML as strictly as the ledger does, which wants a file."""
    if len(data) > _YAML_MOST:
        raise InputError(
            f"is YAML of more than {_YAML_MOST >> 20} MiB",
            where=shown,
            fix="write it as JSON, which is read a hundred times as fast",
        )
    with tempfile.NamedTemporaryFile(suffix=".yaml") as copy:
        copy.write(data[:])
        copy.flush()
        place = Path(copy.name)
        try:
            return store.read_yaml(place)[0]
        except InputError as error:
            where = error.where.replace(store.shown(place), shown).replace(copy.name, shown)
            raise InputError(error.what, where=where, fix=error.fix) from None
