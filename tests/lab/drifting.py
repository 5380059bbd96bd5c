"""A continuous environment that can be left and entered in the middle of an episode."""

import os
import signal
from pathlib import Path

import gymnasium
import numpy as np

from kalmanac._envs.checkpointable import generator


class Drifting(gymnasium.Env):
    """Push a drifting position to zero; episodes of 1 … 9 steps that end in both ways."""

    observation_space = gymnasium.spaces.Box(-100.0, 100.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 2.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.left = self.np_random.uniform(-1, 1), int(self.np_random.integers(1, 9))
        return self._seen(), {}

    def step(self, action):
        self.left -= 1
        self.position += 0.3 + float(action[0]) + 0.1 * self.np_random.standard_normal()
        over, cut = self.left == 0, bool(self.np_random.integers(2))
        return self._seen(), -(self.position**2), over and not cut, over and cut, {}

    def get_checkpoint_state(self):
        state = {"position": np.array(self.position), "left": self.left}
        return state | {"generator": self.np_random.bit_generator.state}

    def set_checkpoint_state(self, state):
        self.position, self.left = float(state["position"]), state["left"]
        self.np_random = generator(state["generator"])

    def _seen(self):
        noise = self.np_random.standard_normal(2)
        return (np.array([self.position, 1.0]) + 0.2 * noise).astype(np.float32)


class Mute(Drifting):
    """The same, but nobody can ask for its state."""

    get_checkpoint_state = set_checkpoint_state = None


class Halting(Drifting):
    """The same, but where the file `at` in folder `halt` has a number, it waits in that step.

    Steps are those of all such environments of a process. It leaves a file with the process's
    number, and waits until somebody kills it.
    """

    steps: int = 0

    def __init__(self, halt):
        self.halt = Path(halt)

    def step(self, action):
        Halting.steps += 1
        at = self.halt / "at"
        if at.exists() and int(at.read_text()) == Halting.steps:
            (self.halt / f"halted-{os.getpid()}").touch()
            signal.pause()
        return super().step(action)
