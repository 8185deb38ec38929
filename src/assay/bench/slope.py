"""Slope: how a time grows with a length, from one set of times a server start.

Owns local exponents between neighbouring lengths and the linear and quadratic parts of a curve,
each with an interval over server starts. Does not own the times, or what they should be.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

from assay.errors import DerivationError
from assay.ledger import stats

__all__ = ["Parts", "exponent", "exponents", "parts"]

Curve = Mapping[int, Sequence[float]]


@dataclasses.dataclass(frozen=True, slots=True)
class Parts:
    """A curve as ``fixed + linear n + quadratic n²``.

    Parameters
    ----------
    fixed : Interval
        What every length costs [s].
    linear : Interval
        For each token [s/tok].
    quadratic : Interval
        For each pair of tokens [s/tok²].
    crossing : float or None
        Length at which the linear and the quadratic part are equal; None where either is nothing
        [tok].
    error : float
        Largest relative distance of the mean curve from its fit [1].
    """

    fixed: stats.Interval
    linear: stats.Interval
    quadratic: stats.Interval
    crossing: float | None
    error: float


def exponent(shorter: tuple[float, float], longer: tuple[float, float]) -> float:
    """Return the slope in both logarithms between two points of (length, time) [1].

    Examples
    --------
    >>> exponent((1000, 1.0), (2000, 4.0))
    2.0
    """
    return math.log(longer[1] / shorter[1]) / math.log(longer[0] / shorter[0])


def exponents(curve: Curve) -> dict[tuple[int, int], stats.Interval]:
    """Return the slope in both logarithms between neighbouring lengths [1].

    Parameters
    ----------
    curve : mapping of int to sequence of float
        Length [tok] to one time for each server start [s]; the same starts everywhere.

    Returns
    -------
    dict
        By pair of lengths. 1 is growth in proportion, 2 with the square.

    Raises
    ------
    DerivationError
        For fewer than two lengths or starts, or unequal numbers of starts.

    Examples
    --------
    >>> found = exponents({1000: [1.0, 1.1], 2000: [4.0, 4.4]})
    >>> round(found[1000, 2000].value, 6)
    2.0
    """
    lengths = _checked(curve, least=2)
    found = {}
    for shorter, longer in itertools.pairwise(lengths):
        pairs = zip(curve[shorter], curve[longer], strict=True)
        each = [exponent((shorter, before), (longer, after)) for before, after in pairs]
        found[shorter, longer] = stats.block_mean(each, scale="plain")
    return found


def parts(curve: Curve) -> Parts:
    """Return the fixed, linear and quadratic part of a curve.

    Parameters
    ----------
    curve : mapping of int to sequence of float
        Length [tok] to one time for each server start [s]; at least four lengths.

    Returns
    -------
    Parts
        Intervals over server starts; no part is below zero, since work is not.

    Raises
    ------
    DerivationError
        As `exponents`, and for fewer than four lengths.

    Notes
    -----
    Least squares of relative errors with non-negative coefficients (Lawson and Hanson 1974), one
    fit a server start: ``min Σ ((a + b n + c n² - t) / t)²``.

    Examples
    --------
    >>> found = parts({n: [1 + 2 * n + 0.5 * n * n] * 2 for n in (1, 2, 4, 8, 16)})
    >>> round(found.fixed.value, 6), round(found.linear.value, 6), round(found.quadratic.value, 6)
    (1.0, 2.0, 0.5)
    >>> round(found.crossing, 6)
    4.0
    """
    lengths = _checked(curve, least=4)
    starts = [[curve[n][i] for n in lengths] for i in range(len(curve[lengths[0]]))]
    fits = [_fit(lengths, times) for times in starts]
    mean = [math.fsum(curve[n]) / len(curve[n]) for n in lengths]
    whole = _fit(lengths, mean)
    gaps = [abs(_at(whole, n) / t - 1) for n, t in zip(lengths, mean, strict=True)]
    fixed, linear, quadratic = (
        stats.block_mean([fit[i] for fit in fits], scale="plain") for i in range(3)
    )
    both = linear.value > 0 and quadratic.value > 0
    crossing = linear.value / quadratic.value if both else None
    return Parts(fixed, linear, quadratic, crossing, max(gaps))


def _fit(lengths: Sequence[int], times: Sequence[float]) -> tuple[float, float, float]:
    import numpy as np
    from scipy import optimize

    # Lengths in units of the longest: the columns are then of one size.
    scale = float(lengths[-1])
    n = np.asarray(lengths, dtype=float) / scale
    t = np.asarray(times, dtype=float)
    columns = np.stack([np.ones_like(n), n, n * n], axis=1) / t[:, None]
    a, b, c = optimize.nnls(columns, np.ones_like(t))[0]
    return float(a), float(b) / scale, float(c) / scale**2


def _at(fit: tuple[float, float, float], length: int) -> float:
    return fit[0] + fit[1] * length + fit[2] * length**2


def _checked(curve: Curve, *, least: int) -> list[int]:
    lengths = sorted(curve)
    if len(lengths) < least:
        raise DerivationError(
            f"{len(lengths)} lengths, the shape needs {least}", fix="measure more lengths"
        )
    if len({len(times) for times in curve.values()}) != 1:
        raise DerivationError(
            "not every length was measured on every server start", fix="measure what is missing"
        )
    return lengths
