"""What every wrapper that corrupts readings or actions has in common: a stream, and a state."""

from abc import ABC
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from kalmanac.envs.generators import check_names, generator, own_stream
from kalmanac.envs.resuming import environment_state, restore_environment


class Corrupting(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs, ABC):
    """Changes actions on their way in and observations on their way out.

    `stream` is the wrapper's own generator. A reset with a seed seeds it; without one, it goes on.
    `info["privileged"]`, rewards and ends are left alone.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], **settings: Any) -> None:
        RecordConstructorArgs.__init__(self, **settings)
        super().__init__(env)
        self.stream = np.random.default_rng()

    def act(self, action: Any) -> Any:
        """What the environment receives."""
        return action

    def see(self, observation: Any, info: dict[str, Any], first: bool) -> Any:
        """What the agent receives; `info` may be changed."""
        return observation

    def memory(self) -> dict[str, Any]:
        """What the wrapper remembers of the episode, beside its stream."""
        return {}

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Take back what `memory` gave."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """A new episode."""
        if seed is not None:
            self.stream = own_stream(self, seed)
        observation, info = self.env.reset(seed=seed, options=options)
        info = dict(info)  # the environment may go on with its own
        return self.see(observation, info, True), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step."""
        observation, reward, terminated, truncated, info = self.env.step(self.act(action))
        info = dict(info)
        return self.see(observation, info, False), reward, terminated, truncated, info

    def get_checkpoint_state(self) -> dict[str, Any] | None:
        """All that the future depends on; None where the environment cannot tell its part."""
        inner = environment_state(self.env)
        if inner is None:
            return None
        return {
            "env": inner,
            "memory": self.memory(),
            "generator": self.stream.bit_generator.state,
        }

    def set_checkpoint_state(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where `get_checkpoint_state` was called."""
        check_names(state, ("env", "memory", "generator"))
        restore_environment(self.env, state["env"])
        self.remember(state["memory"])
        self.stream = generator(state["generator"])


class ObservationAsPrivileged(Corrupting):
    """Tells what is seen here as `info["privileged"]`, for those outside who see it corrupted."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.privileged_space = float_box(env.observation_space, "observation")

    def see(self, observation: Any, info: dict[str, Any], first: bool) -> Any:
        """The observation, as it is."""
        info["privileged"] = observation.copy()
        return observation


def float_box(space: gymnasium.Space[Any], what: str) -> spaces.Box:
    """The space, if it is a Box of floats."""
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        raise TypeError(f"{what} space: got {space}, expected a Box of floats")
    return space


def deviation(name: str, value: Any) -> float:
    """A standard deviation, or ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < np.inf:
        raise ValueError(f"{name}: got {value!r}, expected a number of at least 0")
    return float(value)


def share(name: str, value: Any) -> float:
    """A probability below one, or ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise ValueError(f"{name}: got {value!r}, expected a number in [0, 1)")
    return float(value)


def burst_length(name: str, value: Any, missing: float) -> float | None:
    """The mean length of bursts that can make up a share `missing` of all steps, or None."""
    least = max(1.0, missing / (1 - missing))
    number = isinstance(value, int | float) and not isinstance(value, bool)
    slack = 1e-9  # p / (1 - p) of p = 0.8 is a little more than 4
    if value is not None and not (number and least * (1 - slack) <= value < np.inf):
        raise ValueError(f"{name}: got {value!r}, expected at least {least:g} steps")
    return None if value is None else float(value)


def count(name: str, value: Any, least: int) -> int:
    """A number of steps, or ValueError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name}: got {value!r}, expected an integer of at least {least}")
    return value


def with_mask_of(now: Any, seen: Any) -> Any:
    """`seen`, but with the action mask that stands in the observation `now`, if one does.

    What is allowed is no reading: it is neither late nor missing.
    """
    if isinstance(now, Mapping) and "action_mask" in now and isinstance(seen, Mapping):
        return {**seen, "action_mask": now["action_mask"]}
    return seen
