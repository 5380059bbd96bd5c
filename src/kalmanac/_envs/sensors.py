"""Sensors that are noisy, fail and lag: what stands between an environment and an agent.

`Corruption` says as plain data what is corrupted, and `corrupted` puts the wrappers around an
environment. From the environment outwards, an action is repeated (`frame_repeat`) after noise has
been added to it once (`action_noise`); a reading takes up noise in the sensor (`noise`), is late
(`delay`), and then may fail to arrive at all (`dropout`). Numbers at the places `unmeasured` of an
environment that has this attribute come from no sensor, such as a reference: they stay as they are.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from kalmanac._envs.actuators import ActionNoise, FrameRepeat
from kalmanac._envs.observation_codecs import privileged_space, unmeasured_places
from kalmanac._envs.wrappers import (
    CorruptionWrapper,
    ObservationAsPrivileged,
    count,
    deviation,
    float_box,
    told_observed,
)
from kalmanac._settings import CorruptionSettings

Env = gymnasium.Env[Any, Any]


@dataclass(frozen=True, kw_only=True)
class Corruption(CorruptionSettings):
    """This says how readings and actions are corrupted; by default, nothing is.

    Examples:
        >>> from kalmanac import Corruption, make_env
        >>> bad = Corruption(noise=0.5, dropout=0.2)
        >>> print(bad)
        noise 0.5, dropout 0.2
        >>> observation, info = make_env("track", corruption=bad).reset(seed=0)
        >>> info["observed"]
        True
    """

    def check(self) -> None:
        """Raise ValueError where bursts are too short for a share of readings that is missing."""
        super().check()
        burst_length("dropout_burst", self.dropout_burst, self.dropout)
        if self.dropout_flag and not self.dropout_told:
            raise ValueError("dropout_flag: got True, expected False where dropout_told is False")

    def __bool__(self) -> bool:
        """Return whether anything is corrupted."""
        return bool(self.frame_repeat > 1 or self.action_noise or self.of_readings)

    @property
    def of_readings(self) -> bool:
        """Return whether observations are corrupted."""
        return bool(self.noise or self.delay or self.dropout)

    def __str__(self) -> str:
        """Say what differs from the defaults, such as "noise 0.3, delay 2"."""
        return ", ".join(
            f"{entry.name.replace('_', ' ')} {getattr(self, entry.name)}"
            for entry in fields(self)
            if getattr(self, entry.name) != entry.default
        )


def corrupted(env: gymnasium.Env[Any, Any], how: Corruption) -> gymnasium.Env[Any, Any]:
    """Put the wrappers that `how` asks for around `env`.

    An environment that reports no true state of its own reports the observation as it was before it
    was corrupted, where that is one row of floats.

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
        env = ObservationDropout(
            env, how.dropout, how.dropout_burst, how.dropout_told, how.dropout_flag
        )
    return env


def _is_a_row(env: gymnasium.Env[Any, Any]) -> bool:
    try:
        return len(float_box(env.observation_space, "observation").shape) == 1
    except TypeError:
        return False


class ObservationNoise(CorruptionWrapper):
    """Adds N(0, σ²) to every number of every observation, the first one too (paper, section 5.3).

    The observation's bounds fall, since noise knows none.

    Examples:
        >>> from kalmanac import ObservationNoise, Track
        >>> clean, _ = Track().reset(seed=0)
        >>> noisy, _ = ObservationNoise(Track(), std=0.5).reset(seed=0)
        >>> bool(clean == noisy)
        False
    """

    def __init__(self, env: Env, std: float) -> None:
        super().__init__(env, std=std)
        self.std = deviation("std", std)
        self.unmeasured = list(unmeasured_places(env))
        space = float_box(env.observation_space, "observation")
        largest = float(np.finfo(np.float32).max)
        self.observation_space = spaces.Box(-largest, largest, space.shape, space.dtype.type)

    def transform_observation(self, observation: Any, info: dict[str, Any], first: bool) -> Any:
        """Return o + σ·ε."""
        noise = self.stream.standard_normal(observation.shape, np.float32)
        if self.unmeasured:
            noise[self.unmeasured] = 0
        return (observation + self.std * noise).astype(observation.dtype, copy=False)


class ObservationDropout(CorruptionWrapper):
    """A reading goes missing with probability p: zeros stand in its place, never NaN.

    `info["observed"]` says whether the reading is there, at every reset and step; an environment
    without this key counts as observed. With `told=False` the same readings are missing, and
    `info["observed"]` is True all the same.

    Without `burst`, readings go missing independently. With it they do so for `burst` steps on
    average, in a chain of two states with P(missing → missing) = 1 − 1/burst and
    P(there → missing) = p / (burst · (1 − p)), so that the share of missing readings stays p. The
    first reading of an episode is as likely to be missing as any other.

    With `flag`, one more number ends the observation: 1 where the reading is there, 0 where it is
    missing. A memory without a Kalman filter has no other way to know.

    Examples:
        >>> from kalmanac import ObservationDropout, Track
        >>> env = ObservationDropout(Track(), probability=0.5)
        >>> reading, info = env.reset(seed=0)
        >>> reading, info["observed"]
        (array([0.], dtype=float32), False)
        >>> observed = [env.step([0.0])[4]["observed"] for _ in range(5)]
        >>> all(observed), any(observed)
        (False, True)
    """

    def __init__(
        self, env: Env, probability: float, burst: float | None = None, told: bool = True,
        flag: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(env, probability=probability, burst=burst, told=told, flag=flag)
        self.probability = share("probability", probability)
        self.burst = burst_length("burst", burst, self.probability)
        self.told, self.flag = told, flag
        self._after_there = self._after_missing = self.probability
        if self.burst is not None:
            self._after_missing = 1 - 1 / self.burst
            chance = self.probability / (self.burst * (1 - self.probability))
            self._after_there = min(1.0, chance)
        space = env.observation_space
        if not isinstance(space, spaces.Box):
            raise TypeError(f"observation space: got {space}, expected a Box")
        low, high = np.minimum(space.low, 0), np.maximum(space.high, 0)
        if flag:
            if len(space.shape) != 1:
                raise TypeError(f"observation space: got {space}, expected one axis for a flag")
            low, high = (np.append(x, space.dtype.type(n)) for x, n in ((low, 0), (high, 1)))
        self.observation_space = spaces.Box(low, high, dtype=space.dtype.type)
        self.unmeasured = list(unmeasured_places(env))
        self._missing = False

    def transform_observation(self, observation: Any, info: dict[str, Any], first: bool) -> Any:
        """Return the reading, or zeros."""
        there = told_observed(info.get("observed", True))
        likely = self._after_missing if self._missing else self._after_there
        self._missing = bool(self.stream.random() < (self.probability if first else likely))
        info["observed"] = there and not (self._missing and self.told)
        reading = np.zeros_like(observation) if self._missing else observation
        if self.unmeasured:
            reading[self.unmeasured] = observation[self.unmeasured]
        if self.flag:
            reading = np.append(reading, reading.dtype.type(info["observed"]))
        return reading

    def memory(self) -> dict[str, Any]:
        """Return whether the last reading was missing."""
        return {"missing": self._missing}

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Go on after a reading that was missing, or was not."""
        self._missing = bool(memory["missing"])


class ObservationDelay(CorruptionWrapper):
    """Readings arrive `steps` steps late; until the second one does, the first one is repeated.

    `info["observed"]` of a reading arrives with it.

    Examples:
        >>> from kalmanac import ObservationDelay, Track
        >>> env = ObservationDelay(Track(), steps=2)
        >>> first, _ = env.reset(seed=0)
        >>> [bool(env.step([0.0])[0] == first) for _ in range(3)]
        [True, True, False]
    """

    def __init__(self, env: Env, steps: int) -> None:
        super().__init__(env, steps=steps)
        self.steps = count("steps", steps, 0)
        self.unmeasured = list(unmeasured_places(env))
        self._pending: list[tuple[Any, bool]] = []  # the oldest first

    def transform_observation(self, observation: Any, info: dict[str, Any], first: bool) -> Any:
        """Return the reading of `steps` steps ago."""
        # copied: an environment may go on in the array that it has handed out
        now = (copy.deepcopy(observation), told_observed(info.get("observed", True)))
        self._pending = [now] * (self.steps + 1) if first else [*self._pending[1:], now]
        arrived, there = self._pending[0]
        if "observed" in info:
            info["observed"] = there
        arrived = with_mask_of(observation, copy.deepcopy(arrived))
        if self.unmeasured:
            arrived[self.unmeasured] = observation[self.unmeasured]
        return arrived

    def memory(self) -> dict[str, Any]:
        """Return the readings that have not arrived yet."""
        return {
            "readings": [reading for reading, _ in self._pending],
            "observed": [there for _, there in self._pending],
        }

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Go on with the readings that had not arrived."""
        space = self.env.observation_space
        readings = [
            np.array(reading, space.dtype) if isinstance(space, spaces.Box) else reading
            for reading in memory["readings"]
        ]
        self._pending = list(zip(readings, map(bool, memory["observed"]), strict=True))


def share(name: str, value: Any) -> float:
    """Return a probability below one, or raise ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise ValueError(f"{name}: got {value!r}, expected a number in [0, 1)")
    return float(value)


def burst_length(name: str, value: Any, missing: float) -> float | None:
    """Return a mean length of bursts that can make up a share `missing` of all steps, or None."""
    least = max(1.0, missing / (1 - missing))
    number = isinstance(value, int | float) and not isinstance(value, bool)
    slack = 1e-9  # p / (1 - p) of p = 0.8 is a little more than 4
    if value is not None and not (number and least * (1 - slack) <= value < np.inf):
        raise ValueError(f"{name}: got {value!r}, expected at least {least:g} steps")
    return None if value is None else float(value)


def with_mask_of(now: Any, observation: Any) -> Any:
    """Return `observation` with the action mask that stands in the observation `now`, if one does.

    What is allowed is no reading: it is neither late nor missing.
    """
    if isinstance(now, Mapping) and "action_mask" in now and isinstance(observation, Mapping):
        return {**observation, "action_mask": now["action_mask"]}
    return observation
