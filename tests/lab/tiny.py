"""A run of seconds, and environments whose episodes are known."""

import gymnasium
import numpy as np

from kalmanac._lab.experiment import Experiment

TINY = Experiment(
    env="best-arm",
    env_settings={"horizon": 5},
    encoder="memoryless",
    total_steps=96,
    num_envs=4,
    actor_hidden=(8,),
    critic_hidden=(8,),
    batch_size=4,
    context_length=4,
    update_to_data=0.5,
    learning_starts=16,
    eval_every=40,
    eval_episodes=6,
    log_every=24,
    evaluations=("in", "out"),
)


class Counts(gymnasium.Env):
    """So many steps an episode; the observation is the step's number."""

    def __init__(self, length=4):
        self.length = length
        self.observation_space = gymnasium.spaces.Box(0, 9, (1,))
        self.action_space = gymnasium.spaces.Discrete(3, start=5)

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.full(1, self.steps, np.float32), 1.0, self.steps == self.length, False, {}


class Steers(Counts):
    """The same with actions that must be numbers."""

    def __init__(self):
        super().__init__()
        self.action_space = gymnasium.spaces.Box(-1, 1, (1,))


class Scripted:
    """Action 5 at first, then 6, and 7 as an episode's last."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return np.array([5, 6, 6, 7, 6])[observation[:, 0].astype(int)], state
