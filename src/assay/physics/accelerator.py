"""Accelerators: the numbers physics needs of one device, and the names drivers print.

Owns the reduction of a hardware record to those numbers and the resolution of a device name, which
is exact or unknown, never nearest: an H200 shares its die with the H100 but not its memory, and a
laptop part shares little with the desktop card whose name it carries. Does not own the records.

Where sources differ, the larger figure is taken, because a ceiling may only err in favour of the
claim it judges. Peaks are dense; a sparse rate is never used as one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from assay.errors import InputError
from assay.physics import units

__all__ = ["Accelerator", "Named", "from_record", "memory_total", "resolve"]

_MIG = re.compile(r"\bMIG\b")
_SMI_LINE = re.compile(r"^(?P<name>.*?),\s*(?P<total>\[.*\]|[\d.]+\s*\w+)?\s*$")

# What a driver shows against what the board carries: ECC on GDDR costs 1/16 and the driver keeps
# some; a total outside this share of every stated size belongs to another board.
_SHOWN_LEAST, _SHOWN_MOST = 0.90, 1.01


@dataclass(frozen=True)
class Accelerator:
    """One device, in base units.

    Parameters
    ----------
    id : str
        File stem of the record.
    title : str
        Name for people.
    kind : str
        ``gpu``, ``tpu`` or ``cpu``.
    memory_kind : str
        ``dedicated`` or ``unified`` (shared with the host).
    names : tuple of str
        What drivers print for it.
    memory : float
        Largest stated memory [B].
    memories : tuple of float
        Every stated memory [B].
    bandwidth : float
        Largest stated memory bandwidth [B/s].
    peaks : mapping of str to float
        Largest stated dense rate of each number format [FLOP/s].
    cache : float or None
        Last-level cache [B]; None when no source states it.
    """

    id: str
    title: str
    kind: str
    memory_kind: str
    names: tuple[str, ...]
    memory: float
    memories: tuple[float, ...]
    bandwidth: float
    peaks: Mapping[str, float]
    cache: float | None

    def math(self, *formats: str) -> float | None:
        """Return the largest dense rate among number formats.

        Parameters
        ----------
        *formats : str
            For example ``"bf16"``, ``"int8"``.

        Returns
        -------
        float or None
            Rate [FLOP/s]; None when no source states any of them.
        """
        return max((self.peaks[f] for f in formats if f in self.peaks), default=None)


class Named(Protocol):
    """Anything with an id and the names drivers print for it."""

    @property
    def id(self) -> str:
        """File stem of the record."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names as drivers print them."""


def from_record(record: Mapping[str, Any]) -> Accelerator:
    """Reduce a hardware record to the numbers physics needs.

    Parameters
    ----------
    record : mapping
        ``id``, ``title``, ``kind``, ``memory_kind``, ``names`` and ``facts``, as in a hardware
        file; each fact has ``quantity``, ``dtype``, ``density``, ``value`` and ``unit``.

    Returns
    -------
    Accelerator
        The largest value of each quantity, in base units.

    Raises
    ------
    InputError
        When memory or memory bandwidth is not stated.

    Examples
    --------
    >>> fact = {"dtype": None, "density": None}
    >>> card = from_record({
    ...     "id": "x", "title": "X", "kind": "gpu", "memory_kind": "dedicated", "names": ["X"],
    ...     "facts": [fact | {"quantity": "memory", "value": 80, "unit": "GB"},
    ...               fact | {"quantity": "memory", "value": 81559, "unit": "MiB"},
    ...               fact | {"quantity": "memory_bandwidth", "value": 3350, "unit": "GB/s"}]})
    >>> card.memory, card.bandwidth
    (85520809984.0, 3350000000000.0)
    """
    found: dict[str, list[float]] = {}
    peaks: dict[str, float] = {}
    for fact in record["facts"]:
        value, _ = units.to_base(fact["value"], fact["unit"])
        if fact["quantity"] != "peak":
            found.setdefault(fact["quantity"], []).append(value)
        elif fact["density"] != "sparse":
            peaks[fact["dtype"]] = max(value, peaks.get(fact["dtype"], 0.0))
    for needed in ("memory", "memory_bandwidth"):
        if needed not in found:
            raise InputError(f"states no {needed}", where=str(record["id"]), fix="add the fact")
    return Accelerator(
        id=record["id"],
        title=record["title"],
        kind=record["kind"],
        memory_kind=record["memory_kind"],
        names=tuple(record["names"]),
        memory=max(found["memory"]),
        memories=tuple(found["memory"]),
        bandwidth=max(found["memory_bandwidth"]),
        peaks=peaks,
        cache=max(found["cache"]) if "cache" in found else None,
    )


def memory_total(words: str) -> float | None:
    """Read the memory total of an ``nvidia-smi`` line.

    Parameters
    ----------
    words : str
        For example ``"81559 MiB"``, ``"[N/A]"`` or nothing.

    Returns
    -------
    float or None
        Bytes; None when the driver does not say, as on parts with unified memory. Never 0.

    Examples
    --------
    >>> memory_total("81559 MiB")
    85520809984.0
    >>> memory_total("[N/A]") is None
    True
    """
    words = words.strip()
    if not words or not words[0].isdigit():
        return None
    return units.to_base(*units.quantity(words))[0]


def _unknown(name: str) -> str:
    """Say why a name that matches no record is not guessed."""
    if _MIG.search(name):
        return "a MIG slice is a fraction of the card; the card's memory and rates do not apply"
    if re.search(r"\bLaptop\b|\bMobile\b", name):
        return "a laptop part without a record; the desktop card's figures do not apply"
    if "Max-Q" in name:
        return "a Max-Q part without a record; the full card's figures do not apply"
    if name == "Graphics Device":
        return "the driver does not know the card; update the driver"
    return "no record lists this name; the nearest is not guessed"


def resolve(
    name: str, records: Iterable[Named], *, memory: float | None = None
) -> tuple[str | None, str]:
    """Find the record whose names contain a device name exactly.

    Parameters
    ----------
    name : str
        As NVML or ``nvidia-smi`` prints it, alone or as ``"NAME, 81559 MiB"``; or a record's id.
    records : iterable of Named
        The candidates. An ``Accelerator`` also lets a memory total be checked.
    memory : float, optional
        Memory total as the driver shows it [B].

    Returns
    -------
    tuple of (str or None, str)
        The id, or None when unknown, and the reason in a sentence.

    Examples
    --------
    >>> resolve("NVIDIA H100 80GB HBM3 MIG 1g.10gb", [])[0] is None
    True
    """
    text = " ".join(name.split())
    line = _SMI_LINE.match(text)
    if line:
        text = line["name"]
        memory = memory_total(line["total"] or "") if memory is None else memory
    if not text:
        return None, "no name was given"
    known: Sequence[Named] = list(records)
    by_id = [r for r in known if r.id == text]
    matches = by_id or [r for r in known if text in r.names]
    if len(matches) > 1:
        return None, "several records list this name: " + ", ".join(r.id for r in matches)
    if not matches:
        return None, _unknown(text)
    (match,) = matches
    if not isinstance(match, Accelerator):
        return match.id, "the record lists exactly this name"
    shares = match.memory_kind == "unified"
    if (
        memory is not None
        and not shares
        and not any(_SHOWN_LEAST * m <= memory <= _SHOWN_MOST * m for m in match.memories)
    ):
        shown = units.text(memory, "B", display="GiB")
        stated = units.text(match.memory, "B", display="GiB")
        return None, f"the name is that of {match.id}, but {shown} contradicts its {stated}"
    reason = "its id" if by_id else "the record lists exactly this name"
    if shares:
        reason += "; memory is shared with the host, so the driver may show no total"
    return match.id, reason
