"""Stats: from blocks of a measurement to an interval, and from an interval to a comparison.

Owns intervals over **blocks** (one block is one server start, the unit of replication), the test
against a band, certified percentiles, drift over blocks, and how many blocks a wanted width needs.
Does not own paired questions (``paired``), the verdict (``judge``) or where samples come from.
Pure: nothing is read, and every bootstrap takes its seed.

Which interval decides was settled by simulation. Coverage of a nominal 90 % interval over five
blocks, 20,000 studies each for *t* and 6,000 for the bootstraps:

==============================  =====  ==========  ====
log block effects               *t*    percentile  BCa
==============================  =====  ==========  ====
normal                          90 %   79 %        79 %
Student *t*, 3 d.f.             91 %   76 %        74 %
uniform                         89 %   81 %        83 %
lognormal, sigma 0.5 (skewed)   86 %   75 %        75 %
one start in ten 20 % slower    65 %   52 %        52 %
==============================  =====  ==========  ====

So the *t* interval on log block means decides, and the bootstrap is a check that is printed beside
it. The last row is the limit of five blocks: they often miss a rare slow start. Gates (compilation
in the window, throttled clocks) must catch those; no interval can.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from assay.errors import DerivationError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = [
    "BLOCKS",
    "LEVEL",
    "Equivalence",
    "Interval",
    "Percentile",
    "Trend",
    "block_mean",
    "blocks_needed",
    "equivalence",
    "hierarchical_bootstrap",
    "log_ratio",
    "percentile",
    "percentile_floor",
    "trend",
]

# Two one-sided tests at 5 % each are one 90 % interval (Schuirmann 1987).
LEVEL = 0.90
# Fewer blocks than this never decide a measured assertion.
BLOCKS = 5
SEED = 20260101


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval.

    Parameters
    ----------
    value : float
        The estimate, in the unit of what was measured, or a ratio [1].
    low, high : float
        Ends of the interval; infinite where nothing bounds it.
    level : float
        Nominal coverage [1].
    n : int
        Units of replication behind it.
    method : str
        How the interval was made, in words.
    """

    value: float
    low: float
    high: float
    level: float
    n: int
    method: str

    def inside(self, low: float | None, high: float | None) -> bool:
        """Say whether the whole interval lies in a closed band; an end of None is open."""
        return (low is None or self.low >= low) and (high is None or self.high <= high)

    def outside(self, low: float | None, high: float | None) -> bool:
        """Say whether the whole interval misses a closed band; an end of None is open."""
        return (low is not None and self.high < low) or (high is not None and self.low > high)

    @property
    def half_width(self) -> float:
        """Farther end's distance from the estimate, relative to it [1]."""
        return max(self.high - self.value, self.value - self.low) / abs(self.value)


def _array(values: Sequence[float], what: str, *, least: int, positive: bool = False) -> Array:
    """Return finite values as an array, or say in one sentence why they do not do."""
    import numpy as np

    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or len(found) < least:
        raise DerivationError(f"{what}: {len(found)} given, at least {least} needed")
    if not np.isfinite(found).all():
        raise DerivationError(f"{what}: not all are finite numbers")
    if positive and not (found > 0).all():
        raise DerivationError(f"{what}: a logarithm needs values above 0")
    return found


def _level(level: float) -> float:
    if not 0 < level < 1:
        raise DerivationError(f"a level of {level} is not between 0 and 1")
    return level


def _t(values: Array, level: float) -> tuple[float, float, float]:
    """Return mean, standard error and the *t* quantile that makes the interval."""
    from scipy import stats

    n = len(values)
    error = float(values.std(ddof=1)) / math.sqrt(n)
    return float(values.mean()), error, float(stats.t.ppf((1 + _level(level)) / 2, n - 1))


# -- blocks ---------------------------------------------------------------------------------------


def block_mean(
    values: Sequence[float], *, level: float = LEVEL, scale: Literal["log", "plain"] = "log"
) -> Interval:
    """Return the mean over blocks with its *t* interval.

    Parameters
    ----------
    values : sequence of float
        One figure for each block, for example its output tok/s or its p99 TTFT [any unit].
    level : float
        Nominal coverage [1].
    scale : {"log", "plain"}
        ``log`` for rates, times and ratios (their errors multiply; the mean is geometric);
        ``plain`` for differences, which may be negative.

    Returns
    -------
    Interval
        In the unit of ``values``.

    Raises
    ------
    DerivationError
        For fewer than two blocks, values that are not finite, or a logarithm of nothing.

    Notes
    -----
    ``m ± t(n-1) s / √n`` over ``ln x`` and back. See the module for its coverage.

    Examples
    --------
    >>> found = block_mean([98.0, 101.0, 100.0, 99.0, 102.0])
    >>> round(found.value, 2), round(found.low, 1), round(found.high, 1)
    (99.99, 98.5, 101.5)
    """
    import numpy as np

    given = _array(values, "block values", least=2, positive=scale == "log")
    mean, error, quantile = _t(np.log(given) if scale == "log" else given, level)
    ends = (mean, mean - quantile * error, mean + quantile * error)
    if scale == "log":
        ends = (math.exp(ends[0]), math.exp(ends[1]), math.exp(ends[2]))
    kind = "log block means" if scale == "log" else "block means"
    return Interval(*ends, level=level, n=len(given), method=f"t interval on {kind}")


def log_ratio(
    above: Sequence[float],
    below: Sequence[float],
    *,
    level: float = LEVEL,
    paired: bool = True,
) -> Interval:
    """Return the ratio of two arms with its interval, worked out on the log scale.

    Parameters
    ----------
    above, below : sequence of float
        One figure for each block of either arm, in the same unit.
    level : float
        Nominal coverage [1].
    paired : bool
        True when block ``i`` of both arms ran side by side (interleaved in random order): slow
        drift of the machine then cancels. False for arms run on their own (Welch).

    Returns
    -------
    Interval
        The ratio ``above ÷ below`` [1].

    Raises
    ------
    DerivationError
        For fewer than two blocks in an arm, unequal numbers of paired blocks, or values that
        have no logarithm.

    Notes
    -----
    Paired: *t* interval on ``ln(a_i ÷ b_i)``. Unpaired: Welch's interval on ``ln a`` and ``ln b``
    with Satterthwaite's degrees of freedom.

    Examples
    --------
    >>> found = log_ratio([200, 210, 190, 205, 195], [100, 104, 96, 101, 99])
    >>> round(found.value, 3), round(found.low, 2), round(found.high, 2)
    (1.999, 1.98, 2.02)
    """
    import numpy as np
    from scipy import stats

    a = np.log(_array(above, "block values of the first arm", least=2, positive=True))
    b = np.log(_array(below, "block values of the second arm", least=2, positive=True))
    if paired:
        if len(a) != len(b):
            raise DerivationError(
                f"paired blocks: {len(a)} in one arm and {len(b)} in the other",
                fix="give the same blocks for both arms, or compare them unpaired",
            )
        found = block_mean(np.exp(a - b).tolist(), level=level)
        return Interval(
            found.value, found.low, found.high, level, found.n, "t interval on paired log ratios"
        )
    mean = float(a.mean() - b.mean())
    va, vb = float(a.var(ddof=1)) / len(a), float(b.var(ddof=1)) / len(b)
    error = math.sqrt(va + vb)
    if error == 0:
        freedom = float(len(a) + len(b) - 2)
    else:
        freedom = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    half = float(stats.t.ppf((1 + _level(level)) / 2, freedom)) * error
    return Interval(
        math.exp(mean),
        math.exp(mean - half),
        math.exp(mean + half),
        level,
        min(len(a), len(b)),
        "Welch interval on log block means",
    )


def hierarchical_bootstrap(
    above: Sequence[Sequence[float]],
    below: Sequence[Sequence[float]] | None = None,
    *,
    statistic: Callable[[Array], float] | None = None,
    level: float = LEVEL,
    resamples: int = 2000,
    seed: int = SEED,
    paired: bool = True,
) -> Interval:
    """Resample blocks, then the requests inside each, and return the percentile interval.

    A check beside the *t* interval, never a decision: over five blocks it covers too rarely (see
    the module). A large gap between the two says that single requests carry the result.

    Parameters
    ----------
    above, below : sequence of sequence of float
        Requests by block; ``below`` is the second arm of a ratio.
    statistic : callable, optional
        From the requests of one block to its figure; the mean by default.
    level : float
        Nominal coverage [1].
    resamples : int
        Number of resamples.
    seed : int
        Seed; the same input and seed give the same interval.
    paired : bool
        Draw the same blocks for both arms.

    Returns
    -------
    Interval
        Geometric mean over blocks, or the ratio of both arms' geometric means.

    Raises
    ------
    DerivationError
        For fewer than two blocks, an empty block, or a figure that has no logarithm.

    Examples
    --------
    >>> blocks = [[9.0, 11.0], [10.0, 10.5], [9.5, 10.0], [10.2, 9.9], [10.4, 9.6]]
    >>> found = hierarchical_bootstrap(blocks)
    >>> found == hierarchical_bootstrap(blocks)
    True
    """
    import numpy as np

    figure = statistic or (lambda values: float(values.mean()))
    arms = [[_array(block, "requests of a block", least=1) for block in above]]
    if below is not None:
        arms.append([_array(block, "requests of a block", least=1) for block in below])
    for arm in arms:
        if len(arm) < 2:
            raise DerivationError(f"blocks: {len(arm)} given, at least 2 needed")
    if paired and len({len(arm) for arm in arms}) > 1:
        raise DerivationError("paired blocks: the arms have different numbers of blocks")
    random = np.random.default_rng(seed)

    def log_mean(blocks: Sequence[Array]) -> float:
        figures = _array([figure(b) for b in blocks], "block figures", least=1, positive=True)
        return float(np.log(figures).mean())

    def draw() -> float:
        drawn = random.integers(0, len(arms[0]), len(arms[0]))
        result = 0.0
        for sign, arm in zip((1, -1), arms, strict=False):
            if sign < 0 and not paired:
                drawn = random.integers(0, len(arm), len(arm))
            result += sign * log_mean(
                [arm[i][random.integers(0, len(arm[i]), len(arm[i]))] for i in drawn]
            )
        return result

    estimate = log_mean(arms[0]) - (log_mean(arms[1]) if len(arms) > 1 else 0.0)
    tail = (1 - _level(level)) / 2
    low, high = np.quantile([draw() for _ in range(resamples)], [tail, 1 - tail])
    return Interval(
        math.exp(estimate),
        math.exp(float(low)),
        math.exp(float(high)),
        level,
        min(len(arm) for arm in arms),
        f"hierarchical bootstrap, percentile, {resamples} resamples, seed {seed}",
    )


# -- against a band -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Equivalence:
    """Two one-sided tests against a band.

    Parameters
    ----------
    p_low, p_high : float
        Probability of data this far inside the lower and the upper edge if the truth lay on it.
    inside, outside : bool
        What the tests show at their level; both are false when they show nothing.
    interval : Interval
        The interval that says the same: inside the band, outside it, or across an edge.
    """

    p_low: float
    p_high: float
    inside: bool
    outside: bool
    interval: Interval

    @property
    def p(self) -> float:
        """The larger of both: the band is shown only when each edge is excluded."""
        return max(self.p_low, self.p_high)


def equivalence(
    values: Sequence[float],
    *,
    low: float | None,
    high: float | None,
    baseline: Sequence[float] | None = None,
    alpha: float = 0.05,
) -> Equivalence:
    """Test block values, or the ratio of two paired arms, against a band (TOST).

    Parameters
    ----------
    values, baseline : sequence of float
        One figure for each block; with a baseline the ratio to it is tested [1].
    low, high : float or None
        The band, in the unit of ``values`` or as a ratio; None is open.
    alpha : float
        Size of each one-sided test [1].

    Returns
    -------
    Equivalence
        ``inside`` exactly when the ``1 - 2 alpha`` interval lies in the band.

    Raises
    ------
    DerivationError
        For an empty or non-positive band, too few blocks, or values without a logarithm.

    Notes
    -----
    ``p_low = P(T ≥ (m - ln low) / se)`` and ``p_high = P(T ≥ (ln high - m) / se)`` with *n* - 1
    degrees of freedom (Schuirmann 1987). With the truth on an edge, *inside* is said in at most
    ``alpha`` of studies.

    Examples
    --------
    >>> equivalence([99, 101, 100, 100.5, 99.5], low=95, high=105).inside
    True
    >>> equivalence([99, 101, 100, 100.5, 99.5], low=100, high=105).inside
    False
    """
    import numpy as np
    from scipy import stats

    if low is None and high is None:
        raise DerivationError("a band without ends excludes nothing", fix="give low or high")
    if any(end is not None and end <= 0 for end in (low, high)):
        raise DerivationError("the band reaches 0 or below", fix="leave an open end out")
    if low is not None and high is not None and low > high:
        raise DerivationError(f"the band from {low} to {high} is empty")
    level = 1 - 2 * alpha
    logs = np.log(_array(values, "block values", least=2, positive=True))
    if baseline is None:
        interval = block_mean(values, level=level)
    else:
        interval = log_ratio(values, baseline, level=level)
        logs = logs - np.log(_array(baseline, "block values of the baseline", least=2))
    mean, error, _ = _t(logs, level)

    def beyond(distance: float) -> float:
        if error == 0:
            return 0.0 if distance >= 0 else 1.0
        return float(stats.t.sf(distance / error, len(logs) - 1))

    return Equivalence(
        p_low=0.0 if low is None else beyond(mean - math.log(low)),
        p_high=0.0 if high is None else beyond(math.log(high) - mean),
        inside=interval.inside(low, high),
        outside=interval.outside(low, high),
        interval=interval,
    )


# -- planning and drift ---------------------------------------------------------------------------


def blocks_needed(
    *,
    log_sd: float,
    half_width: float,
    level: float = LEVEL,
    assurance: float = 0.8,
    most: int = 1000,
) -> int:
    """Return the number of blocks after which the interval is narrow enough.

    Parameters
    ----------
    log_sd : float
        Standard deviation of the log block figures, from a pilot; about the coefficient of
        variation when that is small [1].
    half_width : float
        Wanted half width relative to the estimate: 0.05 for ±5 % [1].
    level : float
        Nominal coverage of the interval [1].
    assurance : float
        Probability that the interval is then no wider [1].
    most : int
        Give up beyond this many.

    Returns
    -------
    int
        At least 2. A verdict wants ``BLOCKS`` whatever this says.

    Raises
    ------
    DerivationError
        When a value makes no sense, or ``most`` blocks are not enough.

    Notes
    -----
    The smallest *n* with ``t(n-1) σ √(χ²(n-1, assurance) / (n-1)) / √n ≤ ln(1 + half_width)``:
    the sample's own standard deviation varies, and the χ² quantile allows for that.

    Examples
    --------
    >>> blocks_needed(log_sd=0.02, half_width=0.05)
    3
    >>> blocks_needed(log_sd=0.05, half_width=0.05)
    7
    """
    from scipy import stats

    if not (math.isfinite(log_sd) and log_sd >= 0 and half_width > 0 and 0 < assurance < 1):
        raise DerivationError(
            f"blocks for a log deviation of {log_sd} and a half width of {half_width}",
            fix="give a deviation of at least 0 and a half width above 0",
        )
    for n in range(2, most + 1):
        spread = log_sd * math.sqrt(float(stats.chi2.ppf(assurance, n - 1)) / (n - 1))
        quantile = float(stats.t.ppf((1 + _level(level)) / 2, n - 1))
        if quantile * spread / math.sqrt(n) <= math.log1p(half_width):
            return n
    raise DerivationError(
        f"{most} blocks are not enough for ±{half_width:.1%} at a log deviation of {log_sd}",
        fix="ask for a wider interval or make the runs steadier",
    )


@dataclass(frozen=True)
class Trend:
    """Drift over blocks in the order they ran.

    Parameters
    ----------
    slope, low, high : float
        Theil-Sen slope with its 95 % interval [unit of the values per block].
    tau : float
        Kendall's rank correlation with the order [1].
    p : float
        Two-sided, exact without ties: the chance of an order this orderly without drift.
    n : int
        Blocks.
    drifts : bool
        ``p`` is below the level. Never with fewer than five blocks: four give 2/4! = 8 %.
    """

    slope: float
    low: float
    high: float
    tau: float
    p: float
    n: int
    drifts: bool


def trend(values: Sequence[float], *, alpha: float = 0.05) -> Trend:
    """Test whether block figures drift in the order they ran (Mann-Kendall, Theil-Sen).

    Parameters
    ----------
    values : sequence of float
        One figure for each block, in running order [any unit].
    alpha : float
        Size of the two-sided test [1].

    Returns
    -------
    Trend
        Five blocks drift only when they rise or fall all the way (p = 2/5! = 1.7 %).

    Raises
    ------
    DerivationError
        For fewer than three blocks.

    Examples
    --------
    >>> trend([100, 101, 102, 103, 104]).drifts
    True
    >>> trend([100, 103, 101, 104, 102]).drifts
    False
    """
    import numpy as np
    from scipy import stats

    given = _array(values, "block values", least=3)
    if (given == given[0]).all():
        return Trend(0.0, 0.0, 0.0, 0.0, 1.0, len(given), False)
    order = np.arange(len(given), dtype=np.float64)
    tau, p = stats.kendalltau(order, given)
    slope, _, low, high = stats.theilslopes(given, order, alpha=0.95)
    return Trend(
        float(slope), float(low), float(high), float(tau), float(p), len(given), bool(p <= alpha)
    )


# -- percentiles ----------------------------------------------------------------------------------

# One-sided confidence that a bound of a percentile holds.
_CERTAIN = 0.99


@dataclass(frozen=True)
class Percentile:
    """A percentile of requests, or the reason why it cannot be stated.

    Parameters
    ----------
    q : float
        Which one, as a share: 0.99 for p99.
    value, low, high : float or None
        Estimate and order-statistic bounds; None below the floor.
    n, floor : int
        Requests given, and the fewest that certify this percentile.
    """

    q: float
    value: float | None
    low: float | None
    high: float | None
    n: int
    floor: int

    @property
    def certified(self) -> bool:
        """Whether there are enough requests."""
        return self.value is not None


def percentile_floor(q: float) -> int:
    """Return the fewest requests that certify a percentile.

    Parameters
    ----------
    q : float
        The percentile as a share, between 0 and 1.

    Returns
    -------
    int
        Requests.

    Raises
    ------
    DerivationError
        When ``q`` is not between 0 and 1.

    Notes
    -----
    A percentile is certified when a 99 % upper bound exists that is not the largest observation,
    which alone may be anything. The number of requests above the percentile is binomial, so with
    ``p = max(q, 1 - q)`` this is the smallest *n* with

    ``P(Bin(n, 1 - p) ≤ 1) = pⁿ + n (1 - p) pⁿ⁻¹ ≤ 1 %``

    (distribution-free order-statistic bounds: David and Nagaraja 2003, section 7.1).

    Examples
    --------
    >>> [percentile_floor(q) for q in (0.50, 0.90, 0.95, 0.99)]
    [11, 64, 130, 662]
    """
    if not 0 < q < 1:
        raise DerivationError(f"a percentile of {q} is not between 0 and 1", fix="write 0.99")
    p = max(q, 1 - q)

    def too_few(n: int) -> bool:
        return p**n + n * (1 - p) * p ** (n - 1) > 1 - _CERTAIN

    high = 2
    while too_few(high):
        high *= 2
    low = high // 2
    while high - low > 1:  # the probability falls with n
        middle = (low + high) // 2
        low, high = (middle, high) if too_few(middle) else (low, middle)
    return high


def percentile(values: Sequence[float], q: float) -> Percentile:
    """Return a percentile of requests with its bounds, or nothing below the floor.

    Parameters
    ----------
    values : sequence of float
        One latency for each completed request [any unit].
    q : float
        The percentile as a share: 0.99 for p99.

    Returns
    -------
    Percentile
        Value (linear interpolation, as ``vllm bench serve`` has it) and two order statistics that
        each bound the percentile with 99 % confidence. They speak for requests of one server
        start; over several starts use `block_mean` of the blocks' percentiles.

    Raises
    ------
    DerivationError
        When ``q`` is not between 0 and 1 or a value is not finite.

    Examples
    --------
    >>> percentile(range(1, 12), 0.5).value
    6.0
    >>> percentile(range(1, 11), 0.5).value is None
    True
    """
    import numpy as np
    from scipy import stats

    floor = percentile_floor(q)
    given = np.sort(_array(values, "requests", least=0))
    n = len(given)
    if n < floor:
        return Percentile(q, None, None, None, n, floor)
    # X(k) ≥ quantile fails when k or more of n lie below it; X(k) ≤ quantile when fewer than k do.
    upper = int(stats.binom.ppf(_CERTAIN, n, q)) + 1
    lower = max(1, int(stats.binom.ppf(1 - _CERTAIN, n, q)))
    return Percentile(
        q,
        float(np.quantile(given, q)),
        float(given[lower - 1]),
        float(given[min(upper, n) - 1]),
        n,
        floor,
    )
