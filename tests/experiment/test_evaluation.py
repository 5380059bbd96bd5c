import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from kalmanac.experiment import (
    evaluate,
)
from tests.experiment.tiny import Counts, Scripted


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
@pytest.mark.parametrize("episodes", [1, 3, 5])
def test_actions_are_counted_in_the_episodes_that_count(mode, episodes):
    env = SyncVectorEnv([Counts] * 3, autoreset_mode=mode)
    found = evaluate(Scripted(), env, episodes, seed=0, normaliser=8.0)
    shares = {"action_0": 0.25, "action_1": 0.5, "action_2": 0.25}
    last = {"last_action_0": 0.0, "last_action_1": 0.0, "last_action_2": 1.0}
    means = {"mean_reward": 4.0, "std_reward": 0.0, "normalized": 0.5, "length": 4.0}
    assert found == means | shares | last


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_actions_of_episodes_beyond_the_quota_are_not_counted(mode):
    env = SyncVectorEnv([lambda: Counts(1), lambda: Counts(4)], autoreset_mode=mode)
    found = evaluate(Scripted(), env, 2, seed=0)
    assert [found[f"action_{a}"] for a in range(3)] == [0.4, 0.4, 0.2]
    assert [found[f"last_action_{a}"] for a in range(3)] == [0.5, 0.0, 0.5]
