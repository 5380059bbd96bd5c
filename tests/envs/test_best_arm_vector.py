"""Many bandits at once: the law of the single environment, Gymnasium's infos, states, speed."""

import json
import time
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from kalmanac.envs import ABOVE, ASK, BestArm, BestArmVector


def copies(n: int, **settings: Any) -> SyncVectorEnv:
    """`n` single environments, stepped by Gymnasium's own code."""
    return SyncVectorEnv([lambda: BestArm(**settings)] * n, autoreset_mode=AutoresetMode.SAME_STEP)


def run(env: Any, n: int, steps: int, **options: Any) -> list[Any]:
    rng = np.random.default_rng(9)
    out = [env.reset(seed=4, options=options or None)]
    out += [env.step(rng.choice(3, size=n, p=[0.7, 0.15, 0.15])) for _ in range(steps)]
    return out


def test_one_bandit_alone_equals_the_single_environment_bit_for_bit():
    settings = {"cost": 0.1, "horizon": 5}
    here, there = BestArmVector(1, **settings), copies(1, **settings)
    for mine, theirs in zip(run(here, 1, 300), run(there, 1, 300), strict=True):
        assert data_equivalence(mine, theirs, exact=True)


@pytest.mark.parametrize("mu", [0.25, 0.0, -0.25])
def test_many_bandits_equal_gymnasiums_copies_where_nothing_is_random(mu):
    settings = {"cost": 0.1, "horizon": 4, "sigma": (0.0, 0.0), "mu": (mu, mu)}
    here, there = BestArmVector(7, **settings), copies(7, **settings)
    assert here.observation_space == there.observation_space
    assert here.action_space == there.action_space
    ended = 0
    for mine, theirs in zip(run(here, 7, 200), run(there, 7, 200), strict=True):
        assert data_equivalence(mine, theirs, exact=True)
        ended += mine[2].sum() if len(mine) == 5 else 0
    assert ended > 100


def test_many_bandits_win_and_last_as_gymnasiums_copies_do():
    settings = {"cost": 0.1, "horizon": 4}
    results = []
    for env in (BestArmVector(40, **settings), copies(40, **settings)):
        paid = np.concatenate([out[1] for out in run(env, 40, 150, mu=0.3)[1:]])
        results.append([(paid == -10).mean(), (paid == 10).mean(), (paid == -0.1).mean()])
    np.testing.assert_allclose(*results, atol=5 * np.sqrt(2 * 0.25 / 6000))


def test_what_was_handed_out_stays_as_it_was():
    env = BestArmVector(50, horizon=3)
    env.reset(seed=0)
    handed = [env.step(np.full(50, ASK)) for _ in range(2)]
    kept = json.dumps(handed, default=str)
    for _ in range(4):
        env.step(np.full(50, ASK))
    assert json.dumps(handed, default=str) == kept


def test_reset_options_hold_for_the_episodes_they_begin():
    env = BestArmVector(3)
    mu = np.array([-0.4, 0.1, 0.4])
    _, infos = env.reset(seed=0, options={"mu": mu, "sigma": 2.5})
    np.testing.assert_array_equal(infos["mu"], mu)
    np.testing.assert_array_equal(infos["sigma"], [2.5, 2.5, 2.5])
    *_, infos = env.step(np.array([ASK, ABOVE, ABOVE]))
    assert infos["mu"][0] == -0.4
    assert (infos["mu"][1:] != mu[1:]).all()


def test_bounds_of_their_own_fix_every_bandit_for_ever():
    mu, sigma = np.array([-0.4, 0.1, 0.4]), np.array([0.5, 2.0, 3.0])
    env = BestArmVector(3, mu=(mu, mu), sigma=(sigma, sigma))
    env.reset(seed=0)
    for _ in range(3):
        *_, infos = env.step(np.full(3, ABOVE))
        np.testing.assert_array_equal(infos["mu"], mu)
        np.testing.assert_array_equal(infos["sigma"], sigma)
        np.testing.assert_array_equal(infos["final_info"]["win"], mu > 0)


def test_the_same_seed_gives_the_same_run_and_another_does_not():
    first, second = (run(BestArmVector(5), 5, 20) for _ in range(2))
    assert data_equivalence(first, second, exact=True)
    assert (BestArmVector(5).reset(seed=1)[0] != BestArmVector(5).reset(seed=2)[0]).all()


@pytest.mark.parametrize("n", [1, 6])
def test_a_state_kept_and_set_goes_on_exactly(n):
    env = BestArmVector(n, horizon=5)
    run(env, n, 13)
    state = env.get_checkpoint_state()
    rng = np.random.default_rng(2)
    actions = [rng.integers(3, size=n) for _ in range(30)]
    after = [env.step(a) for a in actions]
    fresh = BestArmVector(n, horizon=5)
    fresh.set_checkpoint_state(state)
    assert data_equivalence(after, [fresh.step(a) for a in actions], exact=True)
    fresh.set_checkpoint_state(state)  # the state itself was not used up
    assert data_equivalence(after, [fresh.step(a) for a in actions], exact=True)


@pytest.mark.slow
def test_thousands_of_bandits_are_fast():
    env = BestArmVector(4096)
    env.reset(seed=0)
    actions = np.random.default_rng(0).choice(3, size=4096, p=[0.98, 0.01, 0.01])
    fastest = np.inf
    for _ in range(200):
        start = time.perf_counter()
        env.step(actions)
        fastest = min(fastest, time.perf_counter() - start)
    assert 4096 / fastest > 5e6
