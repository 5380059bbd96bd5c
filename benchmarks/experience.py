"""Episodes as a training in Best Arm leaves them in its replay, with random numbers inside."""

from typing import Any

import numpy as np
import torch

from kalmanac._observation import Observation, Sizes
from kalmanac._replay.buffer import Replay

LONGEST, LONGEST_MEAN, MEAN = 1000, 220.0, 40  # steps of an episode


def episode_lengths(rng: np.random.Generator, episodes: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Of a replay in Best Arm: early policies decide at once, late ones ask for long."""
    mean = np.exp(rng.uniform(0, np.log(LONGEST_MEAN), episodes))
    return np.minimum(rng.geometric(1 / mean), LONGEST)


def filled(
    sizes: Sizes, lengths: np.ndarray[Any, Any], rng: np.random.Generator, device: torch.device
) -> Replay:
    """A replay with one terminated episode of each length, random inside.

    A mask forbids the last action here and there, which is never taken then.
    """
    replay = Replay(sizes, len(lengths), device=device)

    def seen(n: int) -> Observation[np.ndarray[Any, Any]]:
        vector, mask = rng.normal(size=(n, sizes.observation)).astype(np.float32), None
        if sizes.action_mask:
            mask = np.ones((n, sizes.action), np.bool_)
            mask[:, -1] = rng.random(n) < 0.5
        return Observation(vector, action_mask=mask)

    def act(n: int) -> np.ndarray[Any, Any]:
        if sizes.discrete:
            return rng.integers(sizes.action - sizes.action_mask, size=n)
        return rng.uniform(-1, 1, (n, sizes.action)).astype(np.float32)

    replay.begin(np.arange(len(lengths)), seen(len(lengths)))
    for t in range(lengths.max()):
        at = np.flatnonzero(lengths > t)
        n = len(at)
        action, reward = act(n), rng.normal(size=n)
        replay.add(at, action, reward, lengths[at] == t + 1, np.zeros(n, np.bool_), seen(n))
    return replay
