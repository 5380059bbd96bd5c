"""The toys keep Gymnasium's rules, and their references are what policies reach."""

from collections.abc import Callable

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from tests.envs.toys import TOYS, Identity, NoisyIntegrator, RepeatFirst

Policy = Callable[[list[np.ndarray], list[np.ndarray]], np.ndarray]  # readings, actions → action


def mean_return(env: gymnasium.Env, policy: Policy, episodes: int) -> tuple[float, float]:
    """Mean return and its standard error."""
    env.reset(seed=7)
    returns = []
    for _ in range(episodes):
        readings, actions, total, over = [env.reset()[0]], [], 0.0, False
        while not over:
            actions.append(policy(readings, actions))
            reading, reward, terminated, truncated, _ = env.step(actions[-1])
            readings.append(reading)
            total += reward
            over = terminated or truncated
        assert len(actions) == env.length
        returns.append(total)
    return float(np.mean(returns)), float(np.std(returns) / np.sqrt(episodes))


@pytest.mark.parametrize("toy", TOYS)
def test_gymnasium_accepts_it(toy):
    check_env(toy(), skip_render_check=True)


@pytest.mark.parametrize("toy", TOYS)
def test_random_actions_reach_the_reference(toy):
    env = toy()
    env.action_space.seed(3)
    mean, error = mean_return(env, lambda *_: env.action_space.sample(), 300)
    assert mean == pytest.approx(env.reference().random, abs=5 * error)


@pytest.mark.parametrize("toy", [Identity, RepeatFirst])
def test_the_first_or_the_shown_symbol_wins_everything(toy):
    env = toy()
    at = 0 if toy is RepeatFirst else -1
    assert mean_return(env, lambda seen, _: seen[at], 20) == (env.reference().memory, 0.0)


def test_repeat_first_is_chance_without_memory():
    env = RepeatFirst()
    for symbol in range(env.symbols):
        mean, error = mean_return(env, lambda *_, s=symbol: np.int64(s), 500)
        assert mean == pytest.approx(env.reference().memoryless, abs=5 * error)


def test_a_kalman_filter_holds_the_integrator_as_well_as_the_reference_says():
    env = NoisyIntegrator()
    gains = env.gains()

    def policy(readings, actions):
        belief = np.zeros(2)
        for t, reading in enumerate(readings):
            belief = belief + gains[t] * (reading[0] - belief[0])
            if t < len(actions):
                belief[0] += actions[t][0] + belief[1]
        return np.clip([-belief.sum()], -1, 1).astype(np.float32)

    mean, error = mean_return(env, policy, 300)
    # The bounds of the action, which the reference leaves out, cost a little.
    assert mean == pytest.approx(env.reference().memory, abs=5 * error + 0.2)


def test_one_gain_holds_the_integrator_as_well_as_the_reference_says():
    env, best = NoisyIntegrator(), -np.inf
    for gain in (0.65, 0.8):
        mean, error = mean_return(env, lambda seen, _, k=gain: np.clip(-k * seen[-1], -1, 1), 300)
        best = max(best, mean)
        assert mean == pytest.approx(env._without_memory(gain), abs=5 * error + 0.6)
    assert best < 2 * env.reference().memory  # memory halves the loss, and more
