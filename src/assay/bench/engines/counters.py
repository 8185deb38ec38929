"""Counters: the few totals of an engine's Prometheus text that a gate needs.

Owns the reading of the text format and the names each engine gives the same total. Does not own
fetching (``server``).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

__all__ = ["Counts", "Names", "counts", "totals"]


@dataclasses.dataclass(frozen=True, slots=True)
class Names:
    """What an engine calls its totals; empty where it has none.

    Names joined by ``+`` are added. A name with ``?`` behind it counts as 0 where it is absent:
    some engines publish a counter from its first event on, or from some version on.

    Parameters
    ----------
    prompt, output : str
        Input tokens received, cached ones included, and output tokens generated.
    queried, hit : str
        Input tokens looked up in the prefix cache, and those found there.
    preempted : str
        Requests put back into the queue.
    """

    prompt: str = ""
    output: str = ""
    queried: str = ""
    hit: str = ""
    preempted: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Counts:
    """Totals since the engine started; None where it does not count.

    Parameters
    ----------
    prompt, output, queried, hit : float or None
        Tokens [tok].
    preempted : float or None
        Requests [1].
    """

    prompt: float | None
    output: float | None
    queried: float | None
    hit: float | None
    preempted: float | None

    def since(self, before: Counts) -> Counts:
        """Return what was added since an earlier reading.

        Examples
        --------
        >>> Counts(9, 5, None, None, 0).since(Counts(4, 5, None, None, 0)).prompt
        5
        """
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(before), strict=True)
        return Counts(*(None if a is None or b is None else a - b for a, b in pairs))


def totals(text: str) -> dict[str, float]:
    r"""Return every sample of a Prometheus text, summed over its labels.

    Parameters
    ----------
    text : str
        Text exposition format 0.0.4.

    Returns
    -------
    dict of str to float
        By name; samples that are no finite number are left out.

    Examples
    --------
    >>> totals('# HELP a b\na{x="1"} 2\na{x="2 3"} 3\nb NaN\n')
    {'a': 5.0}
    """
    found: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        name, _, rest = line.partition("{")
        values = rest.rpartition("}")[2].split() if rest else line.split()[1:]
        name = name.split()[0]
        try:
            value = float(values[0])
        except (IndexError, ValueError):
            continue
        if math.isfinite(value):
            found[name] = found.get(name, 0.0) + value
    return found


def counts(text: str, names: Names) -> Counts:
    """Return the totals an engine states.

    Parameters
    ----------
    text : str
        Its Prometheus text.
    names : Names
        What it calls them.

    Examples
    --------
    >>> counts("p_total 12", Names(prompt="p_total", output="o_total"))
    Counts(prompt=12.0, output=None, queried=None, hit=None, preempted=None)
    >>> counts("new_total 12", Names(prompt="new_total+cached_total?", hit="cached_total?")).prompt
    12.0
    """
    found = totals(text)
    return Counts(*(_looked_up(found, name) for name in dataclasses.astuple(names)))


def _looked_up(found: Mapping[str, float], name: str) -> float | None:
    """Return a total, added up from its parts; None where one is absent that may not be."""
    if not name:
        return None
    total = 0.0
    for part in name.split("+"):
        value = found.get(part.removesuffix("?"), 0.0 if part.endswith("?") else None)
        if value is None:
            return None
        total += value
    return total
