"""Environments as Gymnasium vector environments: the table, the codecs of spaces, the tasks,
and what corrupts readings and actions.

Importing this package registers "kalmanac/BestArm-v0" with Gymnasium. No torch in here.
"""

import gymnasium

from kalmanac.envs.action_codecs import ActionCodec, action_codec
from kalmanac.envs.bayes import Ceiling, bayes_threshold, threshold_policy
from kalmanac.envs.best_arm import ABOVE, ASK, BELOW, BestArm, BestArmVector, posterior
from kalmanac.envs.checkpointable import environment_state, restore_environment
from kalmanac.envs.dmc import DMC
from kalmanac.envs.extras import MissingExtraError
from kalmanac.envs.observation_codecs import ObservationCodec, observation_codec, privileged_space
from kalmanac.envs.popgym import POPGym
from kalmanac.envs.registry import ENVS, EnvironmentSpec, environment, make_env, make_vector
from kalmanac.envs.sensors import (
    ActionNoise,
    Corruption,
    FrameRepeat,
    HiddenNumbers,
    ObservationDelay,
    ObservationDropout,
    ObservationNoise,
    corrupted,
)
from kalmanac.envs.track import Track
from kalmanac.envs.workers import WorkerError, Workers
from kalmanac.envs.wrappers import Checkpointable, PrivilegedObservation

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
    "Checkpointable",
    "Corruption",
    "EnvironmentSpec",
    "FrameRepeat",
    "HiddenNumbers",
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
    vector_entry_point="kalmanac.envs.best_arm:BestArmVector",
)
