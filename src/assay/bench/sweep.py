"""Sweep: TTFT of one prompt by length and token budget, as several server starts found it.

Owns the curves, what the arrival of a long prompt among others showed, and the gates of both. Does
not own running (``longprompt``), the shape of a curve (``slope``) or the ledger.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from assay.bench import arrival, gates, slope
from assay.bench.protocol.window import Window
from assay.ledger import records, stats
from assay.physics import units

__all__ = ["ALONE", "AMONG", "UNCHUNKED", "Ceiling", "Sweep", "label"]

Ceiling = tuple[float | None, str]  # most output tokens a second [tok/s], and why

UNCHUNKED = "unchunked"  # the arm that takes every prompt in one step
ALONE, AMONG = "alone-{}", "among"  # loads: one prompt of a length, and one that comes to others
_ADDED = 0.02  # share of a wait that may be the client's own delay, as in ``gates``


@dataclasses.dataclass(frozen=True, slots=True)
class Sweep:
    """What was measured, here or by whoever committed it.

    Parameters
    ----------
    windows : tuple of Window
        All runs of all server starts.
    requests : tuple of dict
        One row a request, as ``rows.read`` gives them.
    ceilings : mapping of (str, str) to (float or None, str)
        By arm and load: most output tokens a second, and why [tok/s].
    provenance : mapping of str to Provenance
        By arm.
    files : tuple of str
        The requests and the windows, below the root; empty when they are not kept.
    """

    windows: tuple[Window, ...]
    requests: tuple[dict[str, Any], ...]
    ceilings: Mapping[tuple[str, str], Ceiling]
    provenance: Mapping[str, records.Provenance]
    files: tuple[str, ...] = ()

    @property
    def arms(self) -> list[str]:
        """Servers, from the smallest budget to the one without chunks."""
        names = {window.arm for window in self.windows}
        chunked = sorted(names - {UNCHUNKED}, key=_tokens)
        return chunked + sorted(names & {UNCHUNKED})

    def curve(self, arm: str) -> dict[int, list[float]]:
        """Return the TTFT of a prompt alone, by length, one value a server start [tok], [s]."""
        found: dict[int, list[float]] = {}
        for window in sorted(self.windows, key=lambda w: w.block):
            value = window.values["ttft"]
            if window.arm == arm and window.load != AMONG and value is not None:
                found.setdefault(_tokens(window.load), []).append(value)
        return dict(sorted(found.items()))

    def alone(self, arm: str) -> dict[int, stats.Interval]:
        """Return the same with its interval over server starts [tok], [s]."""
        return {length: stats.block_mean(times) for length, times in self.curve(arm).items()}

    def among(self, arm: str) -> list[arrival.Seen]:
        """Return what the arrival of the long prompt showed, one a server start."""
        by_block: dict[int, list[dict[str, Any]]] = {}
        for row in self.requests:
            if row["arm"] == arm and row["load"] == AMONG:
                by_block.setdefault(row["block"], []).append(row)
        found = [arrival.seen(own) for _, own in sorted(by_block.items())]
        return [one for one in found if one is not None]

    def points(self, arm: str) -> list[tuple[float, float]]:
        """Return the mean TTFT by length, for a figure [tok], [ms]."""
        return [(float(n), 1e3 * time.value) for n, time in self.alone(arm).items()]

    def exponents(self, arm: str) -> dict[tuple[int, int], stats.Interval]:
        """Return how TTFT grows between neighbouring lengths; 1 is in proportion [1]."""
        return slope.exponents(self.curve(arm))

    def unchunked_over(self, arm: str, length: int) -> stats.Interval:
        """Return the TTFT of a prompt alone without chunks over that with them [1]."""
        return stats.log_ratio(self.curve(UNCHUNKED)[length], self.curve(arm)[length])

    def gates(self, arm: str, length: int) -> list[records.Gate]:
        """Return the gates of one TTFT of a prompt alone."""
        return self._checked(arm, ALONE.format(length), ("ttft",))

    def gap_gates(self, arm: str) -> list[records.Gate]:
        """Return the gates of the longest wait when the long prompt arrives among others."""
        found = self.among(arm)
        own = [w for w in self.windows if w.arm == arm and w.load == AMONG]
        decoders = max((w.asked - 1 for w in own), default=0)
        least = min((one.decoding for one in found), default=0)
        # Both ends of a wait are arrivals, so the time that sending takes is in none of them.
        added = max((w.lateness or 0.0 for w in own), default=0.0)
        gap = min((one.gap for one in found), default=0.0)
        return [
            *self._checked(arm, AMONG, ()),
            records.Gate(
                id="decoders-decode",
                passed=len(found) == len(own) and least == decoders > 0,
                says=f"{least} of {decoders} requests decode before and after, at least",
            ),
            records.Gate(
                id="client-quick-enough",
                passed=added <= _ADDED * gap,
                says=f"the client adds {added * 1e3:.3g} ms to a wait of {gap * 1e3:.4g} ms",
            ),
        ]

    def trade(self, length: int) -> list[dict[str, Any]]:
        """Return what each budget does to a prompt alone, and to those it comes to, as a table.

        Parameters
        ----------
        length : int
            Of the prompt alone [tok].
        """
        found = []
        for arm in self.arms:
            seen = self.among(arm)
            checked = [*self.gates(arm, length), *self.gap_gates(arm)]
            failed = {gate.id for gate in checked if not gate.passed}
            found.append(
                {
                    "server": label(arm),
                    f"{length:,} tokens alone, s": _spread(self.curve(arm)[length]),
                    "longest wait of others, ms": _spread([1e3 * one.gap for one in seen]),
                    "own TTFT among others, s": _spread([one.ttft for one in seen]),
                    "failed gates": ", ".join(sorted(failed)) or "none",
                }
            )
        return found

    def words(
        self, arm: str, predicted: Sequence[tuple[float, float]], *, counted: float
    ) -> dict[str, str]:
        """Return what the prose says of one server's curve and of a predicted one, by name.

        Parameters
        ----------
        arm : str
            Whose curve.
        predicted : sequence of (float, float)
            Another curve with the same lengths [tok], [s].
        counted : float
            Length at which attention takes as many operations as the rest [tok].
        """
        found, other = self.exponents(arm), dict(predicted)
        parts = slope.parts(self.curve(arm))
        origin = self.provenance[arm]
        words = {
            "machine": origin.device,
            "engine_version": origin.engine_version,
            "starts": str(len({window.block for window in self.windows})),
            "longest_here": f"{max(self.curve(arm)):,}",
            "step": label(arm),
            "crossing": "no length" if parts.crossing is None else _rounded(parts.crossing),
            "counted": _rounded(counted),
            "voided": self._voided(),
        }
        least = self.arms[0]
        whole = self.unchunked_over(least, max(self.curve(arm)))
        words |= {
            "least_budget": label(least),
            "least_wait": _wait(self.among(least)),
            "whole_wait": _wait(self.among(UNCHUNKED)),
            "whole_over_least": _interval(whole),
        }
        for name, pair in (("short", min(found)), ("long", max(found))):
            growth = slope.exponent(*((n, other[n]) for n in pair))
            words |= {
                f"{name}_pair": " and ".join(f"{n:,}" for n in pair),
                f"{name}_exponent": _interval(found[pair]),
                f"{name}_predicted": f"{growth:.2f}",
            }
        return words

    def failures(self) -> list[str]:
        """Return every gate that failed, with its arm and load."""
        found = []
        for arm in self.arms:
            checked = {f"{n:,} tokens": self.gates(arm, n) for n in self.curve(arm)}
            for name, own in {**checked, "arrival": self.gap_gates(arm)}.items():
                failed = [g for g in own if not g.passed]
                found += [f"{label(arm)}, {name}: {gate.id}: {gate.says}" for gate in failed]
        return found

    def _voided(self) -> str:
        """Return how many numbers failed a gate, and which, as text."""
        which = list(dict.fromkeys(line.partition(":")[0] for line in self.failures()))
        return f"{len(which)} ({'; '.join(which)})" if which else "none"

    def _checked(self, arm: str, load: str, metrics: tuple[str, ...]) -> list[records.Gate]:
        own = [w for w in self.windows if w.arm == arm and w.load == load]
        rate, why = self.ceilings[arm, load]
        intent = gates.Intent(metrics=metrics, ceiling=rate, ceiling_why=why, prefix_cache="off")
        return gates.check(own, intent)


def label(arm: str) -> str:
    """Return a server's name for a figure or a table.

    Examples
    --------
    >>> label("budget-2048"), label(UNCHUNKED)
    ('budget 2,048', 'unchunked')
    """
    return arm if arm == UNCHUNKED else f"budget {_tokens(arm):,}"


def _tokens(name: str) -> int:
    return int(name.rpartition("-")[2])


def _rounded(tokens: float) -> str:
    return f"{float(f'{tokens:.2g}'):,.0f}"


def _wait(seen: Sequence[arrival.Seen]) -> str:
    mean = stats.block_mean([one.gap for one in seen]).value
    return units.text(mean, "s", display="ms", digits=3)


def _interval(found: stats.Interval) -> str:
    value, low, high = (units.number(x, digits=3) for x in (found.value, found.low, found.high))
    return f"{value} ({low} to {high})"


def _spread(values: Sequence[float]) -> str:
    """Return a mean with its interval over server starts, as text."""
    return _interval(stats.block_mean(values))
