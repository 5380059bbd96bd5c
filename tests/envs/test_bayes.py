"""The posterior against integration by brute force, the threshold policy against the published."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalmanac._envs.bayes import (
    LARGE,
    MU,
    adversarial_seed,
    adversarial_settings,
    bayes_threshold,
    threshold_policy,
)
from kalmanac._envs.best_arm import BestArm, BestArmVector
from kalmanac._envs.best_arm_rules import ABOVE, ASK, BELOW, posterior

samples = st.lists(st.floats(-4, 4), min_size=0, max_size=12)


def integrated(data: list[float], sigma: float) -> tuple[float, float]:
    """Mean and standard deviation of μ: prior times likelihood, summed over a fine grid."""
    mu = np.linspace(-8, 8, 40_001)
    log = -0.5 * mu**2 * 12
    for x in data:
        log -= 0.5 * ((x - mu) / sigma) ** 2
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    mean = (weight * mu).sum()
    return mean, np.sqrt((weight * (mu - mean) ** 2).sum())


@given(data=samples, sigma=st.floats(0.05, 3))
def test_posterior_equals_prior_times_likelihood(data, sigma):
    mean, std = posterior(sum(data), len(data), sigma)
    expected = integrated(data, sigma)
    assert float(mean) == pytest.approx(expected[0], abs=1e-6)
    assert float(std) == pytest.approx(expected[1], abs=1e-6)


def test_posterior_of_many_at_once_is_that_of_each():
    rng = np.random.default_rng(0)
    total, count, sigma = rng.normal(size=50), rng.integers(0, 9, 50), rng.uniform(0, 3, 50)
    sigma[:10] = 0.0
    mean, std = posterior(total, count, sigma)
    for i in range(50):
        assert (mean[i], std[i]) == posterior(total[i], count[i], sigma[i])


@given(x=st.floats(-1, 1), count=st.integers(1, 1000))
def test_without_noise_one_sample_tells_everything(x, count):
    mean, std = posterior(x * count, count, 0.0)
    assert float(mean) == pytest.approx(x)
    assert std == 0


@pytest.mark.parametrize("sigma", [0.0, 1.0])
def test_without_samples_the_prior_stands(sigma):
    mean, std = posterior(0.0, 0, sigma)
    assert mean == 0
    assert std == pytest.approx(np.sqrt(1 / 12))


def test_the_policy_asks_below_its_threshold_and_takes_the_side_of_the_mean():
    mean = np.array([0.19, 0.2, -0.19, -0.2, 0.0, 0.1, -0.1])
    std = np.array([0.1, 0.1, 0.1, 0.1, 0.1, 0.0, 0.0])
    expected = [ASK, ABOVE, ASK, BELOW, ASK, ABOVE, BELOW]
    assert threshold_policy(mean, std, 2.0).tolist() == expected
    assert threshold_policy(mean, std, 2.0).dtype == np.int64


PUBLISHED = [  # cost, σ, normalized return, range of lengths: the optimum is flat in the threshold
    (0.0, (0.0, 2.0), 0.857, (80, 140)),
    (0.05, (0.0, 2.0), 0.63, (16, 32)),
    (0.1, (0.0, 2.0), 0.54, (9, 22)),
    (0.5, (0.0, 2.0), 0.34, (2.2, 3.6)),
    (0.0, (2.0, 3.0), 0.725, (110, 240)),
]


@pytest.mark.parametrize(("cost", "sigma", "normalized", "lengths"), PUBLISHED)
def test_the_best_threshold_reaches_the_known_ceiling(cost, sigma, normalized, lengths):
    grid = np.arange(1, 26) / 10
    ceiling = bayes_threshold(cost, sigma=sigma, episodes=4000, seed=1, thresholds=grid)
    assert ceiling.normalized_return == pytest.approx(normalized, abs=0.03)
    assert lengths[0] <= ceiling.length <= lengths[1]
    if cost == 0:
        assert ceiling.normalized_return == pytest.approx(2 * ceiling.win_rate - 1)


@pytest.mark.parametrize(("cost", "threshold"), [(0.0, 1.5), (0.5, 0.25)])
def test_the_simulation_equals_the_policy_in_the_environment(cost, threshold):
    settings = {"cost": cost, "horizon": 60, "sigma": (0.0, 3.0)}
    said = bayes_threshold(thresholds=[threshold], episodes=20_000, **settings)
    env = BestArmVector(4000, **settings)
    _, infos = env.reset(seed=5)
    returns, lengths, first = np.zeros(4000), np.zeros(4000), np.ones(4000, bool)
    wins = np.zeros(4000)
    for _ in range(60):
        actions = threshold_policy(*infos["privileged"].astype(np.float64).T, threshold)
        _, rewards, ended, _, infos = env.step(actions)
        returns += rewards * first
        lengths += first
        if ended.any():
            wins += infos["final_info"]["win"] * first
        first &= ~ended
    assert not first.any()
    error = np.sqrt(1 / 4000 + 1 / 20_000)
    assert returns.mean() / 10 == pytest.approx(
        said.normalized_return, abs=5 * error * returns.std() / 10
    )
    assert lengths.mean() == pytest.approx(said.length, abs=5 * error * lengths.std())
    assert wins.mean() == pytest.approx(said.win_rate, abs=5 * error * wins.std())


def test_deciding_in_the_last_step_wins_more_at_no_cost():
    fixed = {"episodes": 2000, "horizon": 100}
    held = bayes_threshold(thresholds=[1000.0], decide_at_horizon=True, **fixed)
    best = bayes_threshold(**fixed)
    assert held.normalized_return > best.normalized_return + 0.05
    assert held.length == pytest.approx(100, abs=2)


def test_the_same_seed_gives_the_same_ceiling_and_another_does_not():
    runs = [bayes_threshold(0.1, episodes=300, horizon=50, seed=s) for s in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]


def test_bad_thresholds_and_episodes_are_refused():
    with pytest.raises(ValueError, match="thresholds: got"):
        bayes_threshold(thresholds=[np.inf])
    with pytest.raises(ValueError, match="episodes: got 0, expected at least 1"):
        bayes_threshold(episodes=0)


def first_two(seed):
    env = BestArm(**adversarial_settings())
    one, info = env.reset(seed=seed)
    two, *_ = env.step(np.int64(ASK))
    return info["mu"], one[0], two[0]


@pytest.mark.parametrize("start", [0, 58])
def test_the_first_seed_whose_samples_mislead(start):
    seed = adversarial_seed({"cost": 0.1}, start)
    mu, *samples = first_two(seed)
    assert mu == MU < 0
    assert min(samples) >= LARGE
    assert all(min(first_two(earlier)[1:]) < LARGE for earlier in range(start, seed))


def test_the_vector_environment_gives_the_same_samples():
    seed = adversarial_seed({})
    env = BestArmVector(1, **adversarial_settings())
    one, _ = env.reset(seed=seed)
    two, *_ = env.step([ASK])
    np.testing.assert_array_equal([one[0, 0], two[0, 0]], first_two(seed)[1:])
