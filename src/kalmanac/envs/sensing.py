"""Sensors that fail and lag: missing readings, late readings, and steps between readings."""

import copy
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from kalmanac.envs.resuming import environment_state, restore_environment
from kalmanac.envs.wrapping import Corrupting, burst_length, count, share, with_mask_of

Env = gymnasium.Env[Any, Any]


class ObservationDropout(Corrupting):
    """A reading goes missing with probability p: zeros stand in its place, never NaN.

    `info["observed"]` says whether the reading is there, at every reset and step; an environment
    without this key counts as observed. With `told=False` the same readings are missing, and
    `info["observed"]` is True all the same.

    Without `burst`, readings go missing independently. With it they do so for `burst` steps on
    average, in a chain of two states with P(missing → missing) = 1 − 1/burst and
    P(there → missing) = p / (burst · (1 − p)), so that the share of missing readings stays p. The
    first reading of an episode is as likely to be missing as any other.

    Examples:
        >>> from kalmanac import ObservationDropout, Track
        >>> env = ObservationDropout(Track(), probability=0.5)
        >>> reading, info = env.reset(seed=0)
        >>> reading, info["observed"]
        (array([0.], dtype=float32), False)
        >>> told = [env.step([0.0])[4]["observed"] for _ in range(5)]
        >>> all(told), any(told)
        (False, True)
    """

    def __init__(
        self, env: Env, probability: float, burst: float | None = None, told: bool = True
    ) -> None:
        super().__init__(env, probability=probability, burst=burst, told=told)
        self.probability = share("probability", probability)
        self.burst = burst_length("burst", burst, self.probability)
        self.told = told
        self._after_there = self._after_missing = self.probability
        if self.burst is not None:
            self._after_missing = 1 - 1 / self.burst
            chance = self.probability / (self.burst * (1 - self.probability))
            self._after_there = min(1.0, chance)
        space = env.observation_space
        if not isinstance(space, spaces.Box):
            raise TypeError(f"observation space: got {space}, expected a Box")
        low, high = np.minimum(space.low, 0), np.maximum(space.high, 0)
        self.observation_space = spaces.Box(low, high, space.shape, space.dtype.type)
        self._missing = False

    def see(self, observation: Any, info: dict[str, Any], first: bool) -> Any:
        """The reading, or zeros."""
        likely = self._after_missing if self._missing else self._after_there
        self._missing = bool(self.stream.random() < (self.probability if first else likely))
        there = bool(info.get("observed", True))
        info["observed"] = there and not (self._missing and self.told)
        return np.zeros_like(observation) if self._missing else observation

    def memory(self) -> dict[str, Any]:
        """Whether the last reading was missing."""
        return {"missing": self._missing}

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._missing = bool(memory["missing"])


class ObservationDelay(Corrupting):
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
        self._pending: list[tuple[Any, bool]] = []  # the oldest first

    def see(self, observation: Any, info: dict[str, Any], first: bool) -> Any:
        """The reading of `steps` steps ago."""
        # copied: an environment may go on in the array that it has handed out
        now = (copy.deepcopy(observation), bool(info.get("observed", True)))
        self._pending = [now] * (self.steps + 1) if first else [*self._pending[1:], now]
        arrived, there = self._pending[0]
        if "observed" in info:
            info["observed"] = there
        return with_mask_of(observation, copy.deepcopy(arrived))

    def memory(self) -> dict[str, Any]:
        """The readings under way."""
        return {
            "readings": [reading for reading, _ in self._pending],
            "observed": [there for _, there in self._pending],
        }

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Go on with them."""
        space = self.env.observation_space
        readings = [
            np.array(reading, space.dtype) if isinstance(space, spaces.Box) else reading
            for reading in memory["readings"]
        ]
        self._pending = list(zip(readings, map(bool, memory["observed"]), strict=True))


class FrameRepeat(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Repeats every action `times` times, or until the episode ends or forbids it; rewards add up.

    Only the last of the observations in between is seen.

    Examples:
        >>> from kalmanac import FrameRepeat, Track
        >>> env = FrameRepeat(Track(horizon=8), times=4)
        >>> observation, info = env.reset(seed=0)
        >>> [env.step([0.0])[3] for _ in range(2)]  # truncated after two actions, eight steps
        [False, True]
    """

    def __init__(self, env: Env, times: int) -> None:
        RecordConstructorArgs.__init__(self, times=times)
        super().__init__(env)
        self.times = count("times", times, 1)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """`times` steps."""
        total = 0.0
        for _ in range(self.times):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated or not self._allows(action, observation, info):
                break
        return observation, total, terminated, truncated, info

    def _allows(self, action: Any, observation: Any, info: Mapping[str, Any]) -> bool:
        """Whether the environment's mask, where it tells one, lets the action be taken again."""
        inside = observation if isinstance(observation, Mapping) else {}
        mask = info.get("action_mask", inside.get("action_mask"))
        space = self.env.action_space
        if mask is None or not isinstance(space, spaces.Discrete):
            return True
        return bool(np.ravel(mask)[int(action) - int(space.start)])

    def get_checkpoint_state(self) -> Any:
        """That of the environment: nothing is remembered here."""
        return environment_state(self.env)

    def set_checkpoint_state(self, state: Any) -> None:
        """Go on exactly where `get_checkpoint_state` was called."""
        restore_environment(self.env, state)
