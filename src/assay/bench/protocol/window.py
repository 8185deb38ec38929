"""Window: one run of one load on one server start, as facts that gates and estimates rest on.

Owns the record, its values per metric, and its JSON form. Does not own measuring (``protocol``) or
judging (``gates``).
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from assay.bench.engines.counters import Counts
from assay.bench.load.rows import Row
from assay.errors import InputError

__all__ = ["PERCENTILES", "VALUES", "Watched", "Window", "finite", "percentile", "values"]

# Percentiles kept of each latency, beside its mean.
PERCENTILES = (50, 90, 95, 99)

# What a window has a value for, with its base unit. Names as in ``ledger/metric``; a latency also
# under ``<name>_p50`` and so on.
VALUES: dict[str, str] = {
    "output_throughput": "tok/s",
    "total_throughput": "tok/s",
    "request_throughput": "req/s",
    "ttft": "s",
    "tpot": "s",
    "itl": "s",
    "e2el": "s",
    "cold_start": "s",
    "energy_per_output_token": "J/tok",
    "power": "W",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Watched:
    """What the machine did during the window; None where it cannot be read.

    Parameters
    ----------
    device : str
        What was watched.
    throttled : float or None
        Share of the looks that found clocks held down by heat or power, on a processor the share
        of time in which its quota stopped it [1].
    reasons : tuple of str
        Why.
    stolen : float or None
        Share of processor time that other tenants of the host took [1].
    load_average : float or None
        Processes that wanted a processor, over the minute before the window's end [1].
    clock_low, clock_high : float or None
        Lowest and highest clock seen [1/s].
    power, energy : float or None
        Mean power [W] and energy [J] of all devices.
    memory : float or None
        Most device memory in use [B].
    """

    device: str = "unknown"
    throttled: float | None = None
    reasons: tuple[str, ...] = ()
    stolen: float | None = None
    load_average: float | None = None
    clock_low: float | None = None
    clock_high: float | None = None
    power: float | None = None
    energy: float | None = None
    memory: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """One run of one load on one server start.

    Parameters
    ----------
    block, arm, load, seed
        Which one it is.
    fresh : bool
        Whether the server process was started for this block.
    first : bool
        Whether these prompts had not been sent to this server before.
    started, ended : str
        UTC.
    duration : float
        Of the client's window [s].
    asked, completed : int
        Requests [req].
    asked_input, asked_output : int or None
        All tokens asked for; None where the dataset decides [tok].
    input_tokens, output_tokens : int
        Of completed requests, as the client has them [tok].
    chunks : int
        Pieces in which the output came [1].
    concurrency, rate
        As asked [1], [req/s].
    in_flight : int
        Most requests in flight at once [1].
    arrivals : float or None
        Rate at which requests were sent [req/s].
    server : Counts or None
        What the server's own counters gained.
    compiled : tuple of str
        Log lines of the window that tell of a compilation; None where there is no log.
    busy, lateness, sending : float or None
        Of the client: share of one core [1], mean delay of its event loop, and mean time until a
        request is on the wire [s].
    watched : Watched
        The machine.
    values : mapping
        By name of :data:`VALUES`; None where there is none.
    samples : mapping
        Number of requests behind each latency [1].
    """

    block: int
    arm: str
    load: str
    seed: int
    fresh: bool
    first: bool
    started: str
    ended: str
    duration: float
    asked: int
    completed: int
    asked_input: int | None
    asked_output: int | None
    input_tokens: int
    output_tokens: int
    chunks: int
    concurrency: int | None
    rate: float | None
    in_flight: int
    arrivals: float | None
    server: Counts | None
    compiled: tuple[str, ...] | None
    busy: float | None
    lateness: float | None
    sending: float | None
    watched: Watched
    values: Mapping[str, float | None]
    samples: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON value; infinities as the text ``inf``."""
        content: dict[str, Any] = finite(dataclasses.asdict(self))
        return content

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Window:
        """Return what :meth:`to_json` wrote.

        Raises
        ------
        InputError
            When it is of another shape.
        """
        try:
            given = dict(content)
            for name in ("rate", "arrivals"):
                given[name] = math.inf if given[name] == "inf" else given[name]
            given["server"] = None if given["server"] is None else Counts(**given["server"])
            lines = given["compiled"]
            given["compiled"] = None if lines is None else tuple(lines)
            watched = dict(given["watched"])
            watched["reasons"] = tuple(watched["reasons"])
            given["watched"] = Watched(**watched)
            return cls(**given)
        except (KeyError, TypeError) as error:
            raise InputError(f"is no window ({error})", fix="measure again") from None


def finite(content: Any) -> Any:
    """Return a JSON value in which every infinity is the text ``inf``.

    Examples
    --------
    >>> finite({"rate": math.inf, "n": (1, 2)})
    {'rate': 'inf', 'n': [1, 2]}
    """
    if isinstance(content, float) and not math.isfinite(content):
        return "inf"
    if isinstance(content, dict):
        return {name: finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [finite(value) for value in content]
    return content


def values(rows: Sequence[Row], duration: float) -> tuple[dict[str, float | None], dict[str, int]]:
    """Return the values of a window and the number of requests behind each latency.

    Parameters
    ----------
    rows : sequence of Row
        Its requests.
    duration : float
        Of the client's window [s].

    Returns
    -------
    tuple of (dict, dict)
        Values in base units, and sample counts. Means are over requests, as ``vllm bench serve``
        takes them, and for ITL over chunks; a value without data is None, never 0.
    """
    done = [row for row in rows if row.completed]
    inputs = sum(row.input_tokens for row in done)
    outputs = sum(row.output_tokens for row in done)
    found: dict[str, float | None] = {
        "output_throughput": outputs / duration if done else None,
        "total_throughput": (inputs + outputs) / duration if done else None,
        "request_throughput": len(done) / duration if done else None,
    }
    latencies: dict[str, list[float]] = {
        "ttft": [row.ttft_s for row in done if row.ttft_s is not None],
        "tpot": [row.tpot_s for row in done if row.tpot_s is not None],
        "itl": [gap for row in done for gap in row.itl_s],
        "e2el": [row.latency_s for row in done if row.latency_s is not None],
    }
    counts = {name: len(sample) for name, sample in latencies.items()}
    # Gaps of one request are not independent of each other: its requests count.
    counts["itl"] = sum(1 for row in done if row.itl_s)
    for name, sample in latencies.items():
        found[name] = statistics.fmean(sample) if sample else None
        for share in PERCENTILES:
            found[f"{name}_p{share}"] = percentile(sample, share)
    return found, counts


def percentile(sample: Sequence[float], share: float) -> float | None:
    """Return a percentile by linear interpolation, as numpy and ``vllm bench serve`` take it.

    Examples
    --------
    >>> percentile([1.0, 2.0, 3.0, 4.0], 50)
    2.5
    >>> percentile([], 50) is None
    True
    """
    if not sample:
        return None
    ordered = sorted(sample)
    place = share / 100 * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
