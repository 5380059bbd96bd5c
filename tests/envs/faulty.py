"""An environment that dies, hangs or raises; apart, so that its processes import little."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces


class Faulty(gymnasium.Env):
    """In its third step does what it was made for, if its seed is odd; or as it is being made.

    Where `fault` names a file that is there, its process hangs as it makes it.
    """

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, fault="none"):
        self.fault = fault
        if multiprocessing.parent_process() is not None:
            if fault == "dies at once":
                os.kill(os.getpid(), signal.SIGKILL)
            if Path(fault).exists():
                time.sleep(600)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.odd, self.time = (seed or 0) % 2 == 1, 0
        return np.zeros(2, np.float32), {"pid": os.getpid()}

    def step(self, action):
        self.time += 1
        if self.odd and self.time == 3:
            if self.fault == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.fault == "hangs":
                time.sleep(600)
            if self.fault == "raises":
                raise FloatingPointError("the rope broke")
        return np.zeros(2, np.float32), 0.0, False, self.time == 20, {}
