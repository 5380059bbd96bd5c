"""A critic that knows the time, where windows that begin anywhere do not tell it."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from tests.sac.small import Listener, small


class Late(gymnasium.Env):
    """The second half of 60 steps pays 1, whatever is done; observations say nothing."""

    def __init__(self):
        self.observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self._steps += 1
        return np.zeros(1, np.float32), float(self._steps > 30), self._steps == 60, False, {}


def last_loss(encoder: str, **settings: bool) -> float:
    """The critic's, without a future: it is to tell which half of an episode a step is in."""
    late = SyncVectorEnv([Late] * 4, autoreset_mode=AutoresetMode.SAME_STEP)
    listener = Listener()
    small(
        encoder, late, learning_rate=1e-2, learning_starts=480, batch_size=16, gamma=0.0,
        update_to_data=0.5, **settings,
    ).learn(960, listener)  # fmt: skip
    return float(np.mean([metrics["train/critic_loss"] for metrics in listener.metrics[-20:]]))


@pytest.mark.parametrize("encoder", ["memoryless", "vssm+kf"])
def test_it_tells_what_windows_do_not(encoder):
    """Twins that cannot tell are off by a variance of 1/4 each."""
    assert last_loss(encoder, critic_clock=False) > 0.3
    assert last_loss(encoder, critic_clock=True) < 0.2
