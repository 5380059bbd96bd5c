"""Hand-worked values, rliable's own, and laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kalmanac._report.published import popgym_table
from kalmanac._report.scores import popgym_scale
from kalmanac._report.statistics import (
    difference_interval,
    improvement_probability,
    interquartile_mean,
    iqm_interval,
    mean_and_error,
    performance_profile,
    resamples,
    standard_errors_apart,
)

SCORES = np.random.default_rng(0).normal(size=(5, 9))  # runs × tasks, as rliable has them
OTHERS = np.random.default_rng(1).normal(0.3, 1, size=(4, 9))
THRESHOLDS = np.linspace(-2, 2, 7)


def by_task(matrix):
    return list(matrix.T)


def draws_of_rliable(shape, reps, seed):
    """The indices that rliable draws after np.random.seed(seed), for each task (reps, runs)."""
    state = np.random.RandomState(seed)
    indices = np.stack([state.choice(shape[0], shape, replace=True) for _ in range(reps)])
    return list(np.moveaxis(indices, 2, 0))


def test_mean_and_error_by_hand():
    mean, error = mean_and_error([1.0, 2.0, 3.0, 6.0])
    assert mean == 3.0
    assert error == pytest.approx(np.sqrt((4 + 1 + 0 + 9) / 3) / 2)
    assert np.isnan(mean_and_error([1.0])[1])
    assert np.isnan(mean_and_error([])[0])


def test_a_difference_of_means_by_hand():
    # means 2 and 0, variances 1 and 4: √(1/3 + 4/3) = 1.291; (5/3)² / (1/18 + 16/18) = 2.941
    ours, theirs = [np.array([1.0, 2.0, 3.0])], [np.array([-2.0, 0.0, 2.0])]
    point, low, high = difference_interval(ours, theirs)
    assert point == 2
    assert (high - point) / 1.2910 == pytest.approx(3.2187, abs=1e-3)  # t(2.941), 97.5 %
    assert low == pytest.approx(2 * point - high)


@pytest.mark.filterwarnings("default")
def test_differences_have_welchs_interval_and_tasks_count_alike():
    from scipy.stats import ttest_ind

    ours, theirs = by_task(SCORES), by_task(OTHERS)
    one = difference_interval(ours[:1], theirs[:1])
    welch = ttest_ind(ours[0], theirs[0], equal_var=False).confidence_interval(0.95)
    np.testing.assert_allclose(one[1:], [welch.low, welch.high], rtol=1e-9)
    every = difference_interval(ours, theirs)
    assert every.point == pytest.approx(SCORES.mean() - OTHERS.mean())
    assert every.high - every.low < (one.high - one.low) / 2


def test_differences_without_spread_or_with_one_run():
    same, one = [np.ones(3)], [np.array([0.5])]
    assert tuple(map(float, difference_interval(same, [np.zeros(3)]))) == (1, 1, 1)
    point, low, high = difference_interval(same, one)
    assert point == 0.5
    assert np.isnan([low, high]).all()


def test_distance_in_standard_errors_by_hand():
    assert standard_errors_apart(1.0, 0.3, 0.5, 0.4) == pytest.approx(1.0)
    assert standard_errors_apart(1.0, 0.0, 1.0, 0.0) == 0
    assert standard_errors_apart(0.9, 0.0, 1.0, 0.0) == -np.inf
    assert np.isnan(standard_errors_apart(0.9, np.nan, 1.0, 0.1))


def test_interquartile_mean_by_hand():
    # 8 scores: a quarter, two of them, is cut on each side; (3 + 4 + 5 + 6) / 4
    scores = [np.array([8.0, 1.0, 3.0]), np.array([6.0, 5.0, 2.0, 4.0, 700.0])]
    assert interquartile_mean(scores) == 4.5


def test_profile_by_hand():
    scores = [np.array([0.1, 0.5]), np.array([0.9, 0.5])]
    interval = performance_profile(scores, [0.0, 0.3, 0.5, 0.9], resamples([2, 2], _rng()))
    assert interval.point.tolist() == [1.0, 0.75, 0.25, 0.0]  # above, not at


def test_improvement_by_hand():
    ours, theirs = [np.array([1.0, 3.0])], [np.array([2.0, 3.0])]
    # (1 > 2), (1 > 3), (3 > 2), (3 = 3): 0 + 0 + 1 + 1/2 of four pairs
    indices = resamples([2], _rng())
    assert improvement_probability(ours, theirs, indices, indices).point == 0.375


@pytest.mark.filterwarnings("default")
def test_intervals_equal_those_of_rliable_for_the_same_draws():
    from rliable import library, metrics

    np.random.seed(3)  # noqa: NPY002
    points, bounds = library.get_interval_estimates(
        {"x": SCORES}, lambda x: np.array([metrics.aggregate_iqm(x)]), reps=200
    )
    interval = iqm_interval(by_task(SCORES), draws_of_rliable(SCORES.shape, 200, 3))
    np.testing.assert_allclose(interval.point, points["x"][0], rtol=1e-12)
    np.testing.assert_allclose([interval.low, interval.high], bounds["x"][:, 0], rtol=1e-12)


@pytest.mark.filterwarnings("default")
def test_profiles_equal_those_of_rliable_for_the_same_draws():
    from rliable import library

    np.random.seed(4)  # noqa: NPY002
    points, bounds = library.create_performance_profile({"x": SCORES}, THRESHOLDS, reps=100)
    interval = performance_profile(
        by_task(SCORES), THRESHOLDS, draws_of_rliable(SCORES.shape, 100, 4)
    )
    np.testing.assert_allclose(interval.point, points["x"], rtol=1e-12)
    np.testing.assert_allclose([interval.low, interval.high], bounds["x"], rtol=1e-12)


def test_improvement_equals_that_of_rliable():
    from rliable import metrics

    indices = [resamples([len(x)] * 9, _rng(), 50) for x in (SCORES, OTHERS)]
    interval = improvement_probability(by_task(SCORES), by_task(OTHERS), *indices)
    assert interval.point == pytest.approx(metrics.probability_of_improvement(SCORES, OTHERS))
    resampled = [
        metrics.probability_of_improvement(
            np.stack([x[i[d]] for x, i in zip(SCORES.T, indices[0], strict=True)], 1),
            np.stack([y[i[d]] for y, i in zip(OTHERS.T, indices[1], strict=True)], 1),
        )
        for d in range(50)
    ]
    np.testing.assert_allclose([interval.low, interval.high], np.percentile(resampled, [2.5, 97.5]))


def test_curves_are_summed_up_point_by_point():
    curves = [np.random.default_rng(i).normal(size=(n, 6)) for i, n in enumerate((5, 3, 4))]
    indices = resamples([5, 3, 4], _rng(), 300)
    whole = iqm_interval(curves, indices)
    for point in range(6):
        single = iqm_interval([x[:, point] for x in curves], indices)
        np.testing.assert_allclose([x[point] for x in whole], single)


@given(
    st.lists(arrays(np.float64, st.integers(1, 6), elements=st.floats(-9, 9)), min_size=1),
    st.integers(0, 99),
)
def test_laws(scores, seed):
    rng = np.random.default_rng(seed)
    indices = resamples([len(x) for x in scores], rng, 40)
    everything = np.concatenate(scores)
    point, low, high = iqm_interval(scores, indices)
    assert everything.min() - 1e-9 <= low <= high <= everything.max() + 1e-9
    shifted = iqm_interval([x + 1 for x in scores], indices)
    np.testing.assert_allclose(shifted, [point + 1, low + 1, high + 1], atol=1e-9)
    profile = performance_profile(scores, np.linspace(-10, 10, 9), indices)
    assert all((np.diff(x) <= 1e-12).all() for x in profile)
    assert (profile.point[0], profile.point[-1]) == (1.0, 0.0)
    others = [x[::-1] * 0.5 for x in scores]
    forth = improvement_probability(scores, others, indices, indices)
    back = improvement_probability(others, scores, indices, indices)
    np.testing.assert_allclose(forth.point + back.point, 1)
    np.testing.assert_allclose([forth.low + back.high, forth.high + back.low], 1)


def test_the_papers_own_table_has_kf_above_vssm():
    table, scales = popgym_table().scores, popgym_scale()

    def summed(agent):
        scores = [scales[task](np.array([row[agent].mean])) for task, row in table.items()]
        return float(interquartile_mean(scores))

    assert summed("vssm+kf") > summed("vssm")
    assert summed("vssm+kf") > summed("memoryless")


def _rng():
    return np.random.default_rng(0)
