"""Environments that go wrong after a while, each in its own way."""

import asyncio
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

from tests.lab.tiny import Counts


class Failing(Counts):
    """`how` it fails in the step of this number."""

    def __init__(self, how="raise", at=12):
        super().__init__()
        self.how, self.at, self.taken = how, at, 0

    def step(self, action):
        self.taken += 1
        observation, reward, *rest = super().step(action)
        if self.taken == self.at:
            if self.how == "raise":
                raise ZeroDivisionError("the motor burnt out")
            if self.how == "two lines":
                raise ZeroDivisionError("the motor\nburnt out")
            if self.how == "exit":
                sys.exit()
            if self.how == "exit 0":
                sys.exit(0)
            if self.how == "cancel":
                raise asyncio.CancelledError("the window is closed")
            if self.how == "hang":
                time.sleep(3600)
            if self.how == "memory":
                np.empty(2**50)
            if self.how == "nan":
                observation = observation * np.nan
            if self.how == "shape":
                observation = np.zeros(2, np.float32)
            if self.how == "inf":
                reward = np.inf
        return observation, reward, *rest


class Endless(Counts):
    """Its episodes never end by themselves; `signalled` sends the process a signal in that step."""

    taken: int = 0  # by all of them

    def __init__(self, signalled=None):
        super().__init__(length=-1)
        self.signalled = signalled

    def step(self, action):
        type(self).taken += 1
        if self.taken == self.signalled:
            os.kill(os.getpid(), signal.SIGTERM)
        observation, *rest = super().step(action)
        return np.minimum(observation, 9), *rest


class Gated(Counts):
    """Takes no step before a file is there."""

    def __init__(self, gate):
        super().__init__()
        self.gate = Path(gate)

    def step(self, action):
        while not self.gate.exists():
            time.sleep(0.01)
        return super().step(action)


class Uncloseable(Counts):
    """Raises when it is closed."""

    def close(self):
        raise OSError("the door is stuck")


class Impatient(AsyncVectorEnv):
    """Worker processes that must answer within half a second."""

    def step(self, actions):
        self.step_async(actions)
        return self.step_wait(timeout=0.5)


def workers(num_envs, **settings):
    return Impatient(
        [partial(Failing, **settings)] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP
    )
