"""Environments as Gymnasium vector environments: the table, the codecs of spaces, best-arm.

Importing this package registers "kalmanac/BestArm-v0" with Gymnasium. No torch in here.
"""

import gymnasium

from kalmanac.envs.bayes import Ceiling, bayes_threshold, posterior, threshold_policy
from kalmanac.envs.best_arm import BestArm
from kalmanac.envs.best_arm_rules import ABOVE, ASK, BELOW
from kalmanac.envs.best_arm_vector import BestArmVector
from kalmanac.envs.privileged import PrivilegedObservation
from kalmanac.envs.spaces import (
    ActionCodec,
    ObservationCodec,
    action_codec,
    observation_codec,
    privileged_space,
)
from kalmanac.envs.table import ENVS, EnvironmentSpec, environment, make_vector
from kalmanac.envs.track import Track

__all__ = [
    "ABOVE",
    "ASK",
    "BELOW",
    "ENVS",
    "ActionCodec",
    "BestArm",
    "BestArmVector",
    "Ceiling",
    "EnvironmentSpec",
    "ObservationCodec",
    "PrivilegedObservation",
    "Track",
    "action_codec",
    "bayes_threshold",
    "environment",
    "make_vector",
    "observation_codec",
    "posterior",
    "privileged_space",
    "threshold_policy",
]

gymnasium.register(
    "kalmanac/BestArm-v0",
    entry_point="kalmanac.envs.best_arm:BestArm",
    vector_entry_point="kalmanac.envs.best_arm_vector:BestArmVector",
)
