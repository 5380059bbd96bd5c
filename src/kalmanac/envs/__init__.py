"""Environments as Gymnasium vector environments: the table, the codecs of spaces, the tasks,
and what corrupts readings and actions.

Importing this package registers "kalmanac/BestArm-v0" with Gymnasium. No torch in here.
"""

import gymnasium

from kalmanac.envs.bayes import Ceiling, bayes_threshold, posterior, threshold_policy
from kalmanac.envs.best_arm import BestArm
from kalmanac.envs.best_arm_rules import ABOVE, ASK, BELOW
from kalmanac.envs.best_arm_vector import BestArmVector
from kalmanac.envs.corruption import Corruption, corrupted
from kalmanac.envs.dmc import DMC
from kalmanac.envs.extras import MissingExtraError
from kalmanac.envs.hiding import HiddenNumbers
from kalmanac.envs.noise import ActionNoise, ObservationNoise
from kalmanac.envs.popgym import POPGym
from kalmanac.envs.privileged import PrivilegedObservation
from kalmanac.envs.resuming import Leavable, environment_state, restore_environment
from kalmanac.envs.sensing import FrameRepeat, ObservationDelay, ObservationDropout
from kalmanac.envs.spaces import (
    ActionCodec,
    ObservationCodec,
    action_codec,
    observation_codec,
    privileged_space,
)
from kalmanac.envs.table import ENVS, EnvironmentSpec, environment, make_env, make_vector
from kalmanac.envs.track import Track
from kalmanac.envs.workers import WorkerError, Workers

__all__ = [
    "ABOVE",
    "ASK",
    "BELOW",
    "DMC",
    "ENVS",
    "ActionCodec",
    "ActionNoise",
    "BestArm",
    "BestArmVector",
    "Ceiling",
    "Corruption",
    "EnvironmentSpec",
    "FrameRepeat",
    "HiddenNumbers",
    "Leavable",
    "MissingExtraError",
    "ObservationCodec",
    "ObservationDelay",
    "ObservationDropout",
    "ObservationNoise",
    "POPGym",
    "PrivilegedObservation",
    "Track",
    "WorkerError",
    "Workers",
    "action_codec",
    "bayes_threshold",
    "corrupted",
    "environment",
    "environment_state",
    "make_env",
    "make_vector",
    "observation_codec",
    "posterior",
    "privileged_space",
    "restore_environment",
    "threshold_policy",
]

gymnasium.register(
    "kalmanac/BestArm-v0",
    entry_point="kalmanac.envs.best_arm:BestArm",
    vector_entry_point="kalmanac.envs.best_arm_vector:BestArmVector",
)
