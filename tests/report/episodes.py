"""Played episodes of small untrained agents, for the pictures."""

from contextlib import closing
from functools import cache

import gymnasium
import numpy as np

from kalmanac._files.episode_file import PlayedEpisode
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.factory import make_model, training_environment
from kalmanac._lab.play import play
from kalmanac._sac.recurrent_sac import RecurrentSAC

SMALL = {"actor_hidden": (8,), "critic_hidden": (8,), "embedding": 6, "num_envs": 1}


class Swing(gymnasium.Env):
    """Two hidden features, observed in noise, with the true state beside; 12 steps; two actions."""

    def __init__(self, features: int = 2) -> None:
        self.features = features
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gymnasium.spaces.Box(-2.0, 4.0, (2,), np.float32)
        self.privileged_space = gymnasium.spaces.Box(-np.inf, np.inf, (features,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._seen()

    def step(self, action):
        assert self.action_space.contains(action)
        self.time += 1
        observation, info = self._seen()
        return observation, float(action.sum()), False, self.time == 12, info

    def _seen(self):
        state = np.float32([np.sin(self.time), np.cos(self.time)])
        noisy = state + self.np_random.normal(size=2).astype(np.float32)
        return noisy, {"privileged": np.resize(state, self.features)}


def untrained(encoder: str, env: str = "best-arm", **settings) -> tuple[RecurrentSAC, Experiment]:
    """An agent whose policy is as good as any, and the experiment that it stands for."""
    limits = {"env_settings": {"horizon": 9}} if env == "best-arm" else {}
    experiment = Experiment(env=env, **(SMALL | limits)).changed({"encoder": encoder, **settings})
    with closing(training_environment(experiment)) as vector:
        return make_model(experiment, vector, "cpu"), experiment


@cache
def played(encoder: str, env: str = "best-arm", seed: int = 0, channels: int = 4) -> PlayedEpisode:
    """One episode, with actions drawn: an untrained policy's likeliest one may never change."""
    few = {"encoder_settings": {"d_state": channels}} if "vssm" in encoder else {}
    model, experiment = untrained(encoder, env, **few)
    return play(model, experiment, seed=seed, deterministic=False)
