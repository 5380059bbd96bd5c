"""The adversarial episode of Best Arm Identification (paper, section 5.2 and its figure of latent
space rollouts): the mean is negative, but the first two samples are positive and large.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from kalmanac.envs.best_arm import BestArm
from kalmanac.envs.best_arm_rules import ASK

MU, SIGMA = -0.3, 1.0  # the paper names none: a choice
LARGE = 1.0  # each of the first two samples is at least one standard deviation above zero: a choice
TRIES = 10_000  # one seed in a hundred will do


def adversarial_settings() -> dict[str, Any]:
    """The bandit of the episode, as settings of the environment."""
    return {"mu": (MU, MU), "sigma": (SIGMA, SIGMA)}


def adversarial_seed(settings: Mapping[str, Any], start: int = 0) -> int:
    """The first seed, counting from `start`, whose first two samples mislead.

    It depends on no agent: all of them can be shown the same episode.
    """
    env = BestArm(**{**settings, **adversarial_settings(), "horizon": 2})
    for seed in range(start, start + TRIES):
        first, _ = env.reset(seed=seed)
        second, *_ = env.step(np.int64(ASK))
        if min(first[0], second[0]) >= LARGE * SIGMA:
            return seed
    raise ValueError(f"seed: got {start}, expected one with a misleading episode soon after it")
