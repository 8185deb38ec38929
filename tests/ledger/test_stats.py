"""Statistics over blocks: formulas against published values, rates against simulation."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from assay.errors import DerivationError
from assay.ledger import paired, stats

POSITIVE = st.floats(min_value=0.1, max_value=1e6)


def studies(
    count: int, *, ratio: float, seed: int, requests: int = 20
) -> list[tuple[list[float], list[float]]]:
    """Draw paired studies of five blocks: a drift both arms share, a start's effect, requests."""
    random = np.random.default_rng(seed)
    drift = random.normal(0, 0.05, (count, stats.BLOCKS))
    arms = []
    for level in (ratio, 1.0):
        start = random.normal(0, 0.02, (count, stats.BLOCKS))
        noise = random.normal(0, 0.10 / math.sqrt(requests), (count, stats.BLOCKS))
        arms.append(level * np.exp(drift + start + noise))
    return list(zip(arms[0].tolist(), arms[1].tolist(), strict=True))


def verified_at_the_edge(count: int, seed: int) -> int:
    """Count studies that verify a band of 0.95 to 1.30 although the truth lies on its edge."""
    return sum(
        stats.equivalence(a, baseline=b, low=0.95, high=1.30).inside
        for a, b in studies(count, ratio=0.95, seed=seed)
    )


def at_most(share: float, count: int) -> int:
    """Return the count that a rate of at most ``share`` exceeds once in a million runs."""
    return int(scipy_stats.binom.ppf(1 - 1e-6, count, share))


# -- false verification and coverage --------------------------------------------------------------


def test_an_effect_on_the_edge_of_the_band_is_verified_in_at_most_five_percent() -> None:
    assert verified_at_the_edge(1000, seed=1) <= at_most(0.05, 1000)


@pytest.mark.slow
def test_an_effect_on_the_edge_is_verified_in_at_most_five_percent_of_20000_studies() -> None:
    # A rate of exactly 5 % exceeds this bound once in a thousand runs.
    bound = scipy_stats.binom.ppf(0.999, 20_000, 0.05)
    assert verified_at_the_edge(20_000, seed=2) <= bound


def test_an_effect_well_inside_the_band_is_verified() -> None:
    found = [
        stats.equivalence(a, baseline=b, low=0.85, high=1.18).inside
        for a, b in studies(200, ratio=1.0, seed=3)
    ]
    assert np.mean(found) > 0.9


def test_an_effect_outside_the_band_is_never_called_inside() -> None:
    assert not any(
        stats.equivalence(a, baseline=b, low=0.95, high=1.05).inside
        for a, b in studies(300, ratio=1.25, seed=4)
    )


@pytest.mark.parametrize("is_paired", [True, False])
def test_the_interval_over_five_blocks_covers_as_it_says(is_paired: bool) -> None:
    found = [stats.log_ratio(a, b, paired=is_paired) for a, b in studies(2000, ratio=1.7, seed=5)]
    covered = sum(interval.low <= 1.7 <= interval.high for interval in found)
    # Without pairing the shared drift adds to both arms' spread: the interval can only be wider.
    assert covered >= 2000 - at_most(0.10, 2000)
    if is_paired:
        assert covered <= 2000 - (2000 - at_most(0.90, 2000))


def test_the_bootstrap_over_five_blocks_covers_too_rarely_to_decide() -> None:
    random = np.random.default_rng(6)
    covered = 0
    for blocks in np.exp(random.normal(0, 0.05, (400, stats.BLOCKS))):
        found = stats.hierarchical_bootstrap([[b] for b in blocks.tolist()], resamples=200)
        covered += found.low <= 1 <= found.high
    assert 0.70 < covered / 400 < 0.86  # the module's table: 79 %


# -- intervals ------------------------------------------------------------------------------------


def test_the_t_interval_is_scipys_on_the_logs() -> None:
    values = [98.0, 103.0, 100.0, 95.0, 107.0]
    logs = np.log(values)
    low, high = scipy_stats.t.interval(0.9, 4, loc=logs.mean(), scale=scipy_stats.sem(logs))
    found = stats.block_mean(values)
    assert (found.low, found.high) == pytest.approx((math.exp(low), math.exp(high)))


def test_welch_agrees_with_scipy() -> None:
    a, b = [2.0, 2.1, 1.9, 2.3, 2.2], [1.0, 1.05, 0.9, 1.0]
    expected = scipy_stats.ttest_ind(np.log(a), np.log(b), equal_var=False).confidence_interval(0.9)
    found = stats.log_ratio(a, b, paired=False)
    assert (found.low, found.high) == pytest.approx(
        (math.exp(expected.low), math.exp(expected.high))
    )


@given(st.lists(POSITIVE, min_size=2, max_size=9), st.floats(min_value=0.01, max_value=100))
def test_another_unit_scales_the_interval(values: list[float], factor: float) -> None:
    one, other = stats.block_mean(values), stats.block_mean([v * factor for v in values])
    scaled = (one.value * factor, one.low * factor, one.high * factor)
    assert (other.value, other.low, other.high) == pytest.approx(scaled, rel=1e-6)


@given(st.lists(st.tuples(POSITIVE, POSITIVE), min_size=2, max_size=9))
def test_the_reverse_ratio_is_the_reciprocal(pairs: list[tuple[float, float]]) -> None:
    a, b = [p[0] for p in pairs], [p[1] for p in pairs]
    forth, back = stats.log_ratio(a, b), stats.log_ratio(b, a)
    assert forth.value * back.value == pytest.approx(1)
    assert math.log(forth.low) == pytest.approx(-math.log(back.high), abs=1e-9)


def test_a_slow_machine_day_cancels_in_paired_blocks() -> None:
    above, below = [200, 100, 180, 120, 160], [100, 50, 90, 60, 80]
    paired_one, apart = stats.log_ratio(above, below), stats.log_ratio(above, below, paired=False)
    assert paired_one.half_width < 1e-9 < apart.half_width


def test_an_inside_test_is_the_interval_inside() -> None:
    for a, b in studies(300, ratio=1.0, seed=7):
        found = stats.equivalence(a, baseline=b, low=0.96, high=1.04)
        assert found.inside == (found.p <= 0.05)
        assert found.inside == found.interval.inside(0.96, 1.04)


def test_a_band_may_be_open_at_one_end() -> None:
    assert stats.equivalence([3.0, 3.1, 2.9, 3.0, 3.05], low=2.5, high=None).inside
    assert stats.equivalence([3.0, 3.1, 2.9, 3.0, 3.05], low=None, high=2.5).outside


def test_the_hierarchical_bootstrap_is_wider_than_its_blocks_alone() -> None:
    random = np.random.default_rng(8)
    centres = [9.8, 10.0, 10.2, 9.9, 10.1]
    noisy = [(c + random.normal(0, 3, 10)).tolist() for c in centres]
    steady = [[float(np.mean(block))] for block in noisy]
    both, blocks_only = stats.hierarchical_bootstrap(noisy), stats.hierarchical_bootstrap(steady)
    assert both.high - both.low > blocks_only.high - blocks_only.low


def test_the_hierarchical_bootstrap_depends_on_its_seed_only() -> None:
    blocks = [[1.0, 2.0, 3.0], [1.5, 2.5], [2.0, 2.2]]
    assert stats.hierarchical_bootstrap(blocks) == stats.hierarchical_bootstrap(blocks)
    assert stats.hierarchical_bootstrap(blocks) != stats.hierarchical_bootstrap(blocks, seed=1)


def test_the_hierarchical_bootstrap_of_a_ratio_draws_the_same_blocks() -> None:
    below = [[10.0], [20.0], [30.0], [40.0], [50.0]]
    above = [[2 * b[0]] for b in below]
    found = stats.hierarchical_bootstrap(above, below)
    assert (found.low, found.high) == pytest.approx((2, 2))
    apart = stats.hierarchical_bootstrap(above, below, paired=False)
    assert apart.high > 2.1


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1.0], "at least 2"),
        ([1.0, 0.0], "above 0"),
        ([1.0, -1.0], "above 0"),
        ([1.0, math.nan], "finite"),
        ([1.0, math.inf], "finite"),
    ],
)
def test_values_without_an_interval_are_refused(values: list[float], words: str) -> None:
    with pytest.raises(DerivationError, match=words):
        stats.block_mean(values)


def test_unequal_paired_blocks_are_refused() -> None:
    with pytest.raises(DerivationError, match="3 in one arm and 2"):
        stats.log_ratio([1, 2, 3], [1, 2])


# -- percentiles ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("q", "floor"), [(0.5, 11), (0.9, 64), (0.95, 130), (0.99, 662)])
def test_the_floor_of_a_percentile_is_the_one_of_the_protocol(q: float, floor: int) -> None:
    assert stats.percentile_floor(q) == floor
    assert stats.percentile([1.0] * floor, q).value == 1.0
    assert stats.percentile([1.0] * (floor - 1), q).value is None


@pytest.mark.parametrize("q", [0.5, 0.75, 0.9, 0.95, 0.99, 0.999])
def test_the_floor_is_where_two_requests_lie_above_with_99_percent(q: float) -> None:
    floor = stats.percentile_floor(q)
    assert scipy_stats.binom.cdf(1, floor, 1 - q) <= 0.01
    assert scipy_stats.binom.cdf(1, floor - 1, 1 - q) > 0.01


def test_at_the_floor_the_bound_is_not_the_largest_request() -> None:
    for q in (0.5, 0.9, 0.95, 0.99):
        n = stats.percentile_floor(q)
        found = stats.percentile([float(i) for i in range(n)], q)
        assert found.high is not None and found.high <= n - 2


@pytest.mark.parametrize("q", [0.5, 0.9])
def test_the_bounds_of_a_percentile_hold_in_98_percent(q: float) -> None:
    random = np.random.default_rng(9)
    truth = float(scipy_stats.lognorm.ppf(q, 1))
    held = 0
    for values in random.lognormal(0, 1, (2000, 200)):
        found = stats.percentile(values.tolist(), q)
        assert found.low is not None and found.high is not None
        held += found.low <= truth <= found.high
    assert held >= 2000 - at_most(0.02, 2000)


def test_a_percentile_is_the_one_that_vllm_prints() -> None:
    values = np.random.default_rng(10).exponential(size=700).tolist()
    assert stats.percentile(values, 0.99).value == pytest.approx(np.percentile(values, 99))


@pytest.mark.parametrize("q", [0.0, 1.0, 99.0])
def test_a_percentile_is_a_share(q: float) -> None:
    with pytest.raises(DerivationError, match="not between 0 and 1"):
        stats.percentile([1.0], q)


# -- drift and planning ---------------------------------------------------------------------------


def test_five_blocks_drift_only_when_they_go_one_way() -> None:
    assert stats.trend([5, 4, 3, 2, 1]).drifts
    assert stats.trend([1, 2, 3, 4, 5]).p == pytest.approx(2 / math.factorial(5))
    assert not stats.trend([1, 2, 3, 5, 4]).drifts


def test_four_blocks_cannot_show_a_drift() -> None:
    assert not stats.trend([1, 2, 3, 4]).drifts


def test_the_slope_is_per_block() -> None:
    assert stats.trend([10, 12, 14, 16, 18, 20]).slope == pytest.approx(2)


def test_blocks_that_never_change_do_not_drift() -> None:
    assert stats.trend([7, 7, 7, 7, 7]) == stats.Trend(0, 0, 0, 0, 1, 5, False)


def test_steady_blocks_raise_few_false_alarms_of_drift() -> None:
    random = np.random.default_rng(11)
    alarms = sum(stats.trend(row).drifts for row in random.normal(size=(1000, 5)).tolist())
    assert alarms <= at_most(0.05, 1000)


def test_the_planned_blocks_give_the_wanted_width() -> None:
    needed = stats.blocks_needed(log_sd=0.06, half_width=0.05, assurance=0.8)
    random = np.random.default_rng(12)

    def share(n: int) -> float:
        runs = np.exp(random.normal(0, 0.06, (600, n)))
        return float(np.mean([stats.block_mean(r).half_width <= 0.05 for r in runs.tolist()]))

    assert share(needed) > 0.75
    assert share(needed - 2) < 0.80


@given(st.floats(min_value=0.001, max_value=0.1), st.floats(min_value=0.02, max_value=0.5))
def test_noisier_blocks_need_more_of_them(log_sd: float, half_width: float) -> None:
    assert stats.blocks_needed(log_sd=log_sd, half_width=half_width) <= stats.blocks_needed(
        log_sd=1.5 * log_sd, half_width=half_width
    )


def test_a_hopeless_width_is_refused() -> None:
    with pytest.raises(DerivationError, match="not enough"):
        stats.blocks_needed(log_sd=1, half_width=0.001, most=50)


# -- paired questions -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first_only", "second_only", "pairs", "level", "low", "high"),
    [
        # Airway hyper-responsiveness (Bentur 2009) in Fagerland, Lydersen and Laake 2014.
        (1, 7, 21, 0.95, -0.517, -0.026),
        # PropCIs 0.3-0 scoreci.mp(25, 28, 618, conf.level = 0.90), which takes second minus first.
        (28, 25, 618, 0.90, -0.0148, 0.0247),
    ],
)
def test_tangos_interval_has_its_published_ends(
    first_only: int, second_only: int, pairs: int, level: float, low: float, high: float
) -> None:
    found = paired.proportion_difference(first_only, second_only, pairs, level=level)
    digits = 3 if level == 0.95 else 4
    assert (round(found.low, digits), round(found.high, digits)) == (low, high)


def test_newcombes_interval_has_its_published_ends() -> None:
    # The same data in Fagerland, Lydersen and Laake 2014.
    found = paired.newcombe(1, 1, 7, 12)
    assert (round(found.low, 3), round(found.high, 3)) == (-0.507, -0.026)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 200))
def test_the_score_interval_holds_its_estimate_and_mirrors(b: int, c: int, same: int) -> None:
    n = b + c + same
    if n == 0:
        return
    found, mirror = paired.proportion_difference(b, c, n), paired.proportion_difference(c, b, n)
    assert -1 <= found.low <= found.value <= found.high <= 1
    assert (found.low, found.high) == pytest.approx((-mirror.high, -mirror.low), abs=1e-6)


def test_equal_answers_still_leave_an_interval() -> None:
    found = paired.proportion_difference(0, 0, 50)
    assert found.low < 0 < found.high


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_rejects_about_when_the_score_interval_misses_no_difference(b: int, c: int) -> None:
    found = paired.proportion_difference(b, c, 500)
    if paired.mcnemar(b, c) < 0.02:
        assert not found.low <= 0 <= found.high
    if paired.mcnemar(b, c) > 0.15:
        assert found.low <= 0 <= found.high


@pytest.mark.parametrize(
    ("pairs", "shared", "first", "second"), [(60, 0.5, 0.2, 0.1), (300, 0.4, 0.15, 0.15)]
)
def test_the_score_interval_covers_as_it_says(
    pairs: int, shared: float, first: float, second: float
) -> None:
    random = np.random.default_rng(13)
    tables = random.multinomial(pairs, [shared, first, second, 1 - shared - first - second], 1000)
    covered = 0
    for _, b, c, _ in tables.tolist():
        found = paired.proportion_difference(b, c, pairs)
        covered += found.low <= first - second <= found.high
    assert covered >= 1000 - at_most(0.06, 1000)  # a score interval is approximate: 1 % is allowed


def test_the_paired_ratio_covers_as_it_says() -> None:
    random = np.random.default_rng(14)
    covered = 0
    for _ in range(300):
        z = random.normal(size=(2, 120))
        on = np.exp(math.log(3) + 0.6 * z[0] - 0.18)
        off = np.exp(0.4 * (0.4 * z[0] + math.sqrt(0.84) * z[1]) - 0.08)
        found = paired.ratio_of_means([on.tolist()], [off.tolist()], resamples=400)
        covered += found.low <= 3 <= found.high
    assert covered >= 300 - at_most(0.06, 300)


def test_pairing_narrows_the_ratio() -> None:
    random = np.random.default_rng(15)
    hard = np.exp(random.normal(0, 1, 200))
    same, mixed = (3 * hard).tolist(), random.permutation(3 * hard).tolist()
    together = paired.ratio_of_means([same], [hard.tolist()])
    apart = paired.ratio_of_means([mixed], [hard.tolist()])
    assert together.half_width < 1e-9 < apart.half_width


def test_a_product_of_ratios_is_the_product() -> None:
    random = np.random.default_rng(16)
    a, b, c, d = random.uniform(1, 2, (4, 50)).tolist()
    one, two = paired.ratio_of_means([a], [b]), paired.ratio_of_means([c], [d])
    assert paired.ratio_of_means([a, c], [b, d]).value == pytest.approx(one.value * two.value)


def test_too_few_questions_give_a_ratio_without_an_interval() -> None:
    found = paired.ratio_of_means([[3.0, 6.0, 8.0]], [[1.0, 2.0, 3.0]])
    assert found.value == pytest.approx(17 / 6)
    assert math.isnan(found.low) and math.isnan(found.high)


def test_a_ratio_over_nothing_is_refused() -> None:
    with pytest.raises(DerivationError, match="a mean is 0"):
        paired.ratio_of_means([[1.0, 2.0]], [[0.0, 0.0]])


# -- weight ---------------------------------------------------------------------------------------


def test_importing_the_statistics_imports_no_arrays() -> None:
    code = (
        "import sys, assay.ledger.stats, assay.ledger.paired;"
        "print(sorted({'numpy', 'scipy', 'pandas'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
