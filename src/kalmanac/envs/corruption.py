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
from kalmanac.envs.wrapping import (
    ObservationAsPrivileged,
    burst_length,
    count,
    deviation,
    float_box,
    share,
)


@dataclass(frozen=True)
class Corruption:
    """How readings and actions are corrupted; nothing is, by default.

    Args:
        noise: standard deviation of the Gaussian noise on every number of an observation.
        action_noise: the same for actions, in units of the agent's [−1, 1]; the sum is clipped.
        dropout: probability that a reading is missing.
        dropout_burst: steps for which readings are missing, on average; None: independently.
        dropout_told: the agent is told which readings are missing.
        delay: steps by which readings are late.
        frame_repeat: environment steps for each action.

    Examples:
        >>> from kalmanac import Corruption, make_env
        >>> bad = Corruption(noise=0.5, dropout=0.2)
        >>> print(bad)
        noise 0.5, dropout 0.2
        >>> observation, info = make_env("track", corruption=bad).reset(seed=0)
        >>> info["observed"]
        True
    """

    noise: float = 0.0
    action_noise: float = 0.0
    dropout: float = 0.0
    dropout_burst: float | None = None
    dropout_told: bool = True
    delay: int = 0
    frame_repeat: int = 1

    def __post_init__(self) -> None:
        deviation("noise", self.noise)
        deviation("action_noise", self.action_noise)
        burst_length("dropout_burst", self.dropout_burst, share("dropout", self.dropout))
        count("delay", self.delay, 0)
        count("frame_repeat", self.frame_repeat, 1)

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
    """Wrap `env` in all that `how` asks for.

    An environment that tells no true state of its own tells the observation as it was before it was
    corrupted, where that is one row of floats.

    Examples:
        >>> import gymnasium
        >>> from kalmanac import Corruption, corrupted
        >>> env = corrupted(gymnasium.make("Pendulum-v1"), Corruption(noise=0.5))
        >>> observation, info = env.reset(seed=0)
        >>> info["privileged"].shape  # the observation without its noise
        (3,)
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
