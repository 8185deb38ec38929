"""Rows: one request each, as the client saw it, in base units.

Owns the row, reading rows from a detailed result file of ``vllm bench serve``, keeping them as
Parquet, and what their moments of sending and ending say. Does not own how they come about
(``client``) or what is made of them (``window``).
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.errors import InputError

__all__ = ["Row", "arrivals", "parse", "peak", "place", "read"]


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One request as the client saw it; times are None where the request failed.

    Parameters
    ----------
    completed : bool
        Whether it was answered in full.
    input_tokens, output_tokens : int
        As the server reported them, else as the client counted [tok].
    sent_s : float
        After the first request of the run [s].
    queued_s : float
        Waited in the client for its turn [s].
    ttft_s, latency_s : float or None
        From sending to the first chunk, and to the last [s].
    itl_s : tuple of float
        Between consecutive chunks [s].
    error : str
        Why it failed.
    """

    completed: bool
    input_tokens: int
    output_tokens: int
    sent_s: float
    queued_s: float
    ttft_s: float | None
    latency_s: float | None
    itl_s: tuple[float, ...]
    error: str

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first; None where there is no second one [s]."""
        if self.ttft_s is None or self.latency_s is None or self.output_tokens < 2:
            return None
        return (self.latency_s - self.ttft_s) / (self.output_tokens - 1)


def parse(content: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the requests of a detailed result file of ``vllm bench serve``.

    Parameters
    ----------
    content : mapping
        The file's content; times in seconds, as vLLM writes them.

    Yields
    ------
    Row
        In the order of the file. A failed request has no times: vLLM writes 0 there.

    Raises
    ------
    InputError
        When it is not a detailed file.
    """
    columns = ("start_times", "queue_times", "ttfts", "itls", "input_lens", "output_lens", "errors")
    lacking = [name for name in columns if name not in content]
    if lacking:
        raise InputError(
            f"no {', '.join(lacking)}", where="result file", fix="write it with --save-detailed"
        )
    starts = content["start_times"]
    first = min(starts, default=0.0)
    latencies = content.get("latencies") or [None] * len(starts)
    together = zip(*(content[name] for name in columns), latencies, strict=True)
    for start, queued, ttft, itls, inputs, outputs, error, latency in together:
        completed = not error and bool(outputs)
        whole = ttft + sum(itls) if latency is None else latency
        yield Row(
            completed=completed,
            input_tokens=int(inputs),
            output_tokens=int(outputs),
            sent_s=start - first,
            queued_s=max(0.0, queued),
            ttft_s=ttft if completed else None,
            latency_s=whole if completed else None,
            itl_s=tuple(itls) if completed else (),
            error="" if completed else _why(str(error)),
        )


def _why(error: str) -> str:
    """Return the last line of a traceback, or what an answer without an error lacked."""
    lines = error.strip().splitlines()
    return lines[-1][:300] if lines else "answered without a token"


def place(file: Path, labelled: Sequence[tuple[Mapping[str, object], Row]]) -> None:
    """Write rows as Parquet, atomically.

    Parameters
    ----------
    file : Path
        Target.
    labelled : sequence of (mapping, Row)
        ``block``, ``arm``, ``load`` and ``seed`` of each row, and the row.
    """
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema(
        [
            ("block", pyarrow.int32()),
            ("arm", pyarrow.string()),
            ("load", pyarrow.string()),
            ("seed", pyarrow.int64()),
            ("request", pyarrow.int32()),
            ("completed", pyarrow.bool_()),
            ("input_tokens", pyarrow.int32()),
            ("output_tokens", pyarrow.int32()),
            ("sent_s", pyarrow.float64()),
            ("queued_s", pyarrow.float64()),
            ("ttft_s", pyarrow.float64()),
            ("latency_s", pyarrow.float64()),
            ("itl_s", pyarrow.list_(pyarrow.float64())),
            ("error", pyarrow.string()),
        ]
    )
    content = [{**labels, **dataclasses.asdict(row)} for labels, row in labelled]
    table = pyarrow.Table.from_pylist(content, schema=schema)
    file.parent.mkdir(parents=True, exist_ok=True)
    hidden = file.with_name(f".writing-{os.getpid()}-{file.name}")
    try:
        pyarrow.parquet.write_table(table, hidden, compression="zstd")
        os.replace(hidden, file)
    finally:
        hidden.unlink(missing_ok=True)


def read(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a Parquet file that :func:`place` wrote."""
    import pyarrow.parquet

    content: list[dict[str, Any]] = pyarrow.parquet.read_table(file).to_pylist()
    return content


def peak(sent: Sequence[float], ended: Sequence[float]) -> int:
    """Return the most requests in flight at once.

    Examples
    --------
    >>> peak([0.0, 0.1, 2.0], [1.0, 1.0, 3.0])
    2
    """
    moments = sorted([(t, 1) for t in sent] + [(t, -1) for t in ended])
    most = now = 0
    for _, step in moments:
        now += step
        most = max(most, now)
    return most


def arrivals(sent: Sequence[float]) -> float:
    """Return the rate at which requests were sent; infinite when all at once [req/s].

    Examples
    --------
    >>> arrivals([0.0, 0.5, 1.0])
    2.0
    """
    span = max(sent, default=0.0) - min(sent, default=0.0)
    return (len(sent) - 1) / span if span > 0 else math.inf
