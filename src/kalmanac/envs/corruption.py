"""What stands between an environment and an agent, as plain data, and in which order.

From the environment outwards: an action is repeated (`frame_repeat`) after noise has been added to
it once (`action_noise`); a reading takes up noise in the sensor (`noise`), is late (`delay`), and
then may fail to arrive at all (`dropout`).
"""

from dataclasses import dataclass, fields
from typing import Any

import gymnasium

from kalmanac.envs.noise import ActionNoise, ObservationNoise
from kalmanac.envs.sensing import FrameRepeat, ObservationDelay, ObservationDropout
from kalmanac.envs.spaces import privileged_space
from kalmanac.envs.wrapping import ObservationAsPrivileged, burst_length, float_box
from kalmanac.settings import CorruptionSettings


@dataclass(frozen=True, kw_only=True)
class Corruption(CorruptionSettings):
    """How readings and actions are corrupted; nothing is, by default."""

    def check(self) -> None:
        """Raise ValueError where bursts are too short for a share of readings that is missing."""
        super().check()
        burst_length("dropout_burst", self.dropout_burst, self.dropout)

    def __bool__(self) -> bool:
        """Whether anything is corrupted."""
        return bool(self.frame_repeat > 1 or self.action_noise or self.of_readings)

    @property
    def of_readings(self) -> bool:
        """Whether observations are corrupted."""
        return bool(self.noise or self.delay or self.dropout)

    def __str__(self) -> str:
        """What differs from the defaults, such as "noise 0.3, delay 2"."""
        return ", ".join(
            f"{entry.name.replace('_', ' ')} {getattr(self, entry.name)}"
            for entry in fields(self)
            if getattr(self, entry.name) != entry.default
        )


def corrupted(env: gymnasium.Env[Any, Any], how: Corruption) -> gymnasium.Env[Any, Any]:
    """`env` with the wrappers that `how` asks for.

    An environment that tells no true state of its own tells the observation as it was before it was
    corrupted, where that is one row of floats.
    """
    if how.frame_repeat > 1:
        env = FrameRepeat(env, how.frame_repeat)
    if how.action_noise:
        env = ActionNoise(env, how.action_noise)
    if how.of_readings and privileged_space(env) is None and _is_a_row(env):
        env = ObservationAsPrivileged(env)
    if how.noise:
        env = ObservationNoise(env, how.noise)
    if how.delay:
        env = ObservationDelay(env, how.delay)
    if how.dropout:
        env = ObservationDropout(env, how.dropout, how.dropout_burst, how.dropout_told)
    return env


def _is_a_row(env: gymnasium.Env[Any, Any]) -> bool:
    try:
        return len(float_box(env.observation_space, "observation").shape) == 1
    except TypeError:
        return False
