"""Tier: what a host tier for KV blocks does while a load runs, counted by the server itself.

Owns the loads of an A/B with and without a tier, what vLLM's offloading connector counts, and the
gates that say whether the tier was exercised. Does not own running it (``reset``), the plans
(``profiles``, ``throttled``) or where blocks go.

A load is called ``<what comes back>-<KV pressure>``:

========= ======================================================================
``reuse`` prefixes that come back within the run
``none``  prompts that share nothing: what the tier costs
``warm``  prompts that were all computed just before, and then lost by the device
========= ======================================================================
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from assay.bench.engines import counters
from assay.bench.load import Load
from assay.errors import InputError
from assay.ledger import records

__all__ = ["NONE", "WITHOUT", "Kind", "Moved", "gates", "kind", "loads"]

#: Arms without a tier: the device's cache alone, and no cache at all.
WITHOUT, NONE = "off", "no-cache"
_SHARE = 0.01  # of prompt tokens, within which a share of hits is as intended [1]
_PACE = 0.01  # by which a link may seem faster than it is set to [1]
# vLLM 0.32.0, v1/metrics/loggers.py and kv_connector/v1/offloading/metrics.py; with the suffix
# that the Prometheus client adds.
_NAMES = {
    "queried": "vllm:prefix_cache_queries_total",
    "device": "vllm:prefix_cache_hits_total",
    "host": "vllm:external_prefix_cache_hits_total",
    "stored": "vllm:kv_offload_store_bytes_total",
    "loaded": "vllm:kv_offload_load_bytes_total",
    "load_time": "vllm:kv_offload_load_time_total",
    "transfers": "vllm:kv_offload_load_size_count",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Moved:
    """What a server's own counters gained in one window.

    Parameters
    ----------
    queried, device, host : float
        Prompt tokens looked up, found on the device, and fetched from the host [tok].
    stored, loaded : float
        Sent to the host and fetched from it [B].
    load_time : float
        From the link's taking up a transfer to the engine's notice of its end, summed [s].
    transfers : float
        Fetches [1].
    """

    queried: float = 0.0
    device: float = 0.0
    host: float = 0.0
    stored: float = 0.0
    loaded: float = 0.0
    load_time: float = 0.0
    transfers: float = 0.0

    @classmethod
    def read(cls, text: str) -> Moved:
        r"""Return the totals of a Prometheus text; what is not there was never counted.

        Examples
        --------
        >>> Moved.read('vllm:external_prefix_cache_hits_total{engine="0"} 64\n').host
        64.0
        """
        found = counters.totals(text)
        return cls(**{name: found.get(told, 0.0) for name, told in _NAMES.items()})

    def since(self, before: Moved) -> Moved:
        """Return what was added since an earlier reading."""
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(before), strict=True)
        return Moved(*(a - b for a, b in pairs))


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """What a load is meant to do to the caches.

    Parameters
    ----------
    name : str
        ``reuse``, ``none`` or ``warm``.
    pressure : float
        What the load keeps over what the device's pool holds [1].
    share : float
        Largest share of prompt tokens that a cache can hold [1].
    """

    name: str
    pressure: float
    share: float

    @property
    def fetches(self) -> bool:
        """Whether a host tier must be hit: something comes back that the device has lost."""
        return self.name == "warm" or (self.name == "reuse" and self.pressure > 1)

    @property
    def words(self) -> str:
        """For a table.

        Examples
        --------
        >>> Kind("reuse", 2, 0.9).words
        'KV demand 2x the pool, prefixes come back'
        """
        back = {
            "reuse": "prefixes come back",
            "none": "nothing comes back",
            "warm": "host warm and device cold",
        }
        return f"KV demand {self.pressure:g}x the pool, {back[self.name]}"


def kind(name: str, load: Load) -> Kind:
    """Return what a load is meant to do, from its name and lengths.

    Raises
    ------
    InputError
        When the name does not say.
    """
    what, _, pressure = name.partition("-")
    shares = {"reuse": _prefix_share(load), "none": 0.0, "warm": 1.0}
    try:
        return Kind(what, float(pressure), shares[what])
    except (KeyError, ValueError):
        raise InputError(f"'{name}' is no load of a host tier", fix="write reuse-2") from None


def _prefix_share(load: Load) -> float:
    sizes = [load.options.get(f"prefix-repetition-{x}-len", "0") for x in ("prefix", "suffix")]
    prefix, suffix = map(int, sizes)
    return prefix / (prefix + suffix) if prefix else 0.0


def loads(
    plan: Mapping[str, int],
    *,
    pool: int,
    prefix: int,
    suffix: int,
    output: int,
    concurrency: int,
    least: int = 1,
    repeats: int = 3,
    warmup: int = 2,
) -> dict[str, Load]:
    """Return the loads of these names.

    Parameters
    ----------
    plan : mapping of str to int
        Names with the seed of their prompts; 0 leaves the seed to the protocol.
    pool : int
        KV cache of the device [tok].
    prefix, suffix, output : int
        Lengths of every request [tok].
    concurrency : int
        Requests in flight.
    least : int
        Requests of a run at least.
    repeats : int
        Requests that each prefix of a ``reuse`` load gets.
    warmup : int
        Requests before the run; a ``warm`` load is sent once in full.
    """
    found = {}
    for name, seed in plan.items():
        what, _, pressure = name.partition("-")
        groups = max(1, round(float(pressure) * pool / (prefix + suffix + output)))
        shared = what == "reuse"
        requests = max(least, concurrency, groups * (repeats if shared else 1))
        options = {}
        if shared:
            # The client deals requests out evenly and drops what is left over.
            requests = groups * math.ceil(requests / groups)
            options = {
                "prefix-repetition-prefix-len": str(prefix),
                "prefix-repetition-suffix-len": str(suffix),
                "prefix-repetition-num-prefixes": str(groups),
                "prefix-repetition-output-len": str(output),
            }
        if what == "warm":
            # With a seed of its own the run before has the same prompts.
            options = {"seed": str(seed)}
        found[name] = Load(
            requests=requests,
            input_tokens=prefix + suffix,
            output_tokens=output,
            concurrency=concurrency,
            warmup=requests if what == "warm" else warmup,
            dataset="prefix_repetition" if shared else "random",
            options=options,
        )
    return found


# -- gates ----------------------------------------------------------------------------------------

_Said = tuple[bool, str]


def gates(
    plain: Sequence[records.Gate],
    seen: Mapping[int, Moved],
    meant: Kind,
    *,
    arm: str,
    speed: float = math.inf,
) -> list[records.Gate]:
    """Return the gates of one number, those on the caches by what the load is meant to do.

    Parameters
    ----------
    plain : sequence of Gate
        Of any measurement; its own on the prefix cache, which intends one share, is left out.
    seen : mapping of int to Moved
        What moved, by block.
    meant : Kind
        The load.
    arm : str
        :data:`WITHOUT` and :data:`NONE` have no tier, any other has one.
    speed : float
        Of the link, where it is set [B/s].
    """
    ours = [
        _judged("prefix-cache", seen, lambda moved: _cached(moved, meant, arm)),
        _judged("tier-exercised", seen, lambda moved: _exercised(moved, meant, arm)),
    ]
    if math.isfinite(speed):
        ours.append(_judged("link-throttled", seen, lambda moved: _throttled(moved, speed)))
    return [*(gate for gate in plain if gate.id != "prefix-cache"), *ours]


def _judged(name: str, seen: Mapping[int, Moved], rule: Callable[[Moved], _Said]) -> records.Gate:
    said = [(block, *rule(moved)) for block, moved in sorted(seen.items())]
    for block, passed, words in said:
        if not passed:
            return records.Gate(id=name, passed=False, says=f"block {block}: {words}")
    if not said:
        words = "what moved between the memories is unknown"
        return records.Gate(id=name, passed=False, says=words)
    return records.Gate(id=name, passed=True, says=said[-1][2])


def _cached(moved: Moved, meant: Kind, arm: str) -> _Said:
    """Hold the hits of both memories against the most that the load allows."""
    if not moved.queried:
        return arm == NONE, "no prompt was looked up in a cache"
    device, host = moved.device / moved.queried, moved.host / moved.queried
    words = f"{device:.1%} of prompt tokens were found on the device and {host:.1%} on the host"
    if arm == NONE:
        return not moved.device and not moved.host, f"{words}, with the cache off"
    if meant.name == "warm":
        return device <= _SHARE, f"{words}; the device had been emptied"
    limit = f"{words}; at most {meant.share:.1%} can be"
    back = meant.name == "none" or device + host > 0
    return back and device + host <= meant.share + _SHARE, limit


def _exercised(moved: Moved, meant: Kind, arm: str) -> _Said:
    words = f"{moved.stored / 1e6:,.0f} MB sent to the host, {moved.host:,.0f} tokens fetched"
    if arm in (WITHOUT, NONE):
        return not moved.stored and not moved.host, f"no tier: {words}"
    # Blocks that were sent before the device was emptied are not sent again.
    sent = moved.stored > 0 or meant.name == "warm"
    if not meant.fetches:
        return sent, f"{words}; the device loses nothing that comes back"
    return sent and moved.host > 0, words


def _throttled(moved: Moved, speed: float) -> _Said:
    if not moved.transfers:
        return True, "nothing was fetched"
    least = moved.loaded / speed
    late = (moved.load_time - least) / moved.transfers
    words = (
        f"{moved.transfers:,.0f} fetches at {speed / 1e6:,.0f} MB/s take "
        f"{1e3 * least / moved.transfers:,.1f} ms each, and are noticed {1e3 * late:,.1f} ms later"
    )
    return moved.load_time >= (1 - _PACE) * least, words
