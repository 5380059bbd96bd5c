"""Exploration noise with a memory: what it is by itself, and what an agent does with it."""

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from kalmanac._envs.registry import make_vector
from kalmanac._sac.exploration import ExplorationNoise
from kalmanac._sac.recurrent_sac import RecurrentSAC
from tests.sac.small import small, wandering

NOBODY = np.zeros(400, dtype=np.bool_)


def walked(correlation, steps=60):
    """(steps, 400): the noise of as many environments, whose episodes begin at step 0."""
    noise = ExplorationNoise(correlation, 400, 1, seed=1)
    return np.stack([noise.step(NOBODY | (t == 0))[:, 0] for t in range(steps)])


@given(correlation=st.floats(0.01, 0.99))
def test_every_number_is_standard_normal_and_remembers_as_it_should(correlation):
    z = walked(correlation)
    for t in (0, 1, 59):  # from the first step on
        assert abs(z[t].mean()) < 0.25
        assert 0.8 < z[t].std() < 1.2
    for lag in (1, 5):
        expected = correlation**lag
        found = np.mean([np.corrcoef(z[t], z[t + lag])[0, 1] for t in range(0, 50, 10)])
        assert found == pytest.approx(expected, abs=0.12)


def test_an_episode_knows_nothing_of_the_one_before():
    noise = ExplorationNoise(0.99, 400, 2, seed=0)
    before = noise.step(~NOBODY).copy()
    begun = np.arange(400) < 200
    after = noise.step(begun)
    assert abs(np.corrcoef(before[begun].ravel(), after[begun].ravel())[0, 1]) < 0.15
    assert np.corrcoef(before[~begun].ravel(), after[~begun].ravel())[0, 1] > 0.97


def test_random_actions_at_the_start_are_uniform():
    noise = ExplorationNoise(0.9, 4000, 1, seed=0)
    for t in range(5):
        noise.step(np.full(4000, t == 0))
    actions = noise.uniform()
    assert actions.dtype == np.float32
    assert stats.kstest(actions.ravel(), "uniform", (-1, 2)).pvalue > 1e-3


class Still(gymnasium.Env):
    """Nothing happens for so many steps; one action."""

    def __init__(self, length=50):
        self.length, self._left = length, 0
        self.observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._left = self.length
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self._left -= 1
        return np.zeros(1, np.float32), 0.0, False, self._left == 0, {}


def taken(learning_starts, **settings):
    """Actions (episodes, 50) of an agent that never learns."""
    env = gymnasium.vector.SyncVectorEnv([Still] * 8)
    how = {"update_to_data": 0.0, "learning_starts": learning_starts, **settings}
    model = small("memoryless", env, **how).learn(3200)
    episodes = [episode.action[:, 0] for episode in model.replay.stored_episodes()]
    return np.stack([x for x in map(np.asarray, episodes) if len(x) == 50])


@pytest.mark.parametrize("warm_up", [0, 10**6], ids=["its own actions", "random ones"])
@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_actions_that_follow_one_another_are_alike(warm_up, correlation):
    actions = taken(warm_up, exploration_correlation=correlation)
    assert len(actions) > 50
    now, later = actions[:, :-1].ravel(), actions[:, 1:].ravel()
    assert np.corrcoef(now, later)[0, 1] == pytest.approx(correlation, abs=0.08)
    assert 0.5 < actions.std() < 0.7, "as wide as it is without a memory"


def test_the_same_seed_explores_in_the_same_way_and_predictions_are_left_alone():
    def learned(correlation):
        how = {"exploration_correlation": correlation, "update_to_data": 0.0}
        model = small("vssm+kf", wandering(3), **how).learn(60)
        seen = np.zeros((4, 3), np.float32)
        return model.replay.state_dict()["storage"]["action"], model.predict(seen)[0]

    (one, drawn), (again, _), (other, also) = learned(0.5), learned(0.5), learned(0.6)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    np.testing.assert_array_equal(drawn, also)


def test_mountain_car_is_driven_up_by_random_actions_that_remember():
    """The reason for all this. Without a memory one episode in 500 reaches the top."""

    def reached(correlation):
        env = make_vector("MountainCarContinuous-v0", 8)
        how = {"learning_starts": 10**6, "exploration_correlation": correlation}
        model = small("memoryless", env, **how).learn(8 * 999)
        return sum(bool(x.terminated) for x in model.replay.stored_episodes())

    assert reached(0.0) == 0
    assert reached(0.9) >= 4


def test_discrete_actions_have_no_such_noise():
    with pytest.raises(ValueError, match=r"exploration_correlation: got 0\.5, expected 0 for disc"):
        RecurrentSAC("gru", gymnasium.make("CartPole-v1"), exploration_correlation=0.5)


@pytest.mark.parametrize("wrong", [1.0, -0.1, float("nan")])
def test_correlations_lie_below_one(wrong):
    with pytest.raises(ValueError, match="exploration_correlation"):
        small("gru", wandering(1), exploration_correlation=wrong)
