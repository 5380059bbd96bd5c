"""Wrappers around environments that the rest of the package builds on.

- `CorruptionWrapper` is what every wrapper that changes readings or actions has in common: a stream
  of random numbers of its own, and a state. `ObservationAsPrivileged` shows the true observation.
- `PrivilegedObservation` shows the environment's true state in place of the observation: what the
  Oracle observes (paper, section 5).
- `CopiesHandedOut` and `Checkpointable` copy what an environment hands out, because many fill one
  observation array again and again. A vector that resets within the step asks for the next
  episode's first observation while it still holds the last one of the episode that has ended:
  without a copy in between, the last one has become the first. Several environments may even share
  an array, and a vector looks at its rows only when all of them have stepped.
"""

from abc import ABC
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import SyncVectorEnv, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from kalmanac._envs.action_codecs import mask_of_choices
from kalmanac._envs.checkpointable import (
    check_names,
    environment_state,
    generator,
    random_stream,
    restore_environment,
)
from kalmanac._envs.observation_codecs import privileged_space

Step = tuple[Any, Any, Any, Any, dict[str, Any]]


class CorruptionWrapper(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs, ABC):
    """This wrapper changes actions on their way in and observations on their way out.

    `stream` is the wrapper's own generator. A reset with a seed seeds it; without one, it goes on.
    `info["privileged"]`, rewards and ends are left alone.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], **settings: Any) -> None:
        RecordConstructorArgs.__init__(self, **settings)
        super().__init__(env)
        self.stream = np.random.default_rng()

    def transform_action(self, action: Any) -> Any:
        """Return what the environment receives."""
        return action

    def transform_observation(self, observation: Any, info: dict[str, Any], first: bool) -> Any:
        """Return what the agent receives; `info` may be changed."""
        return observation

    def memory(self) -> dict[str, Any]:
        """Return what the wrapper remembers of the episode, beside its stream."""
        return {}

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Take back what `memory` gave."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin a new episode."""
        if seed is not None:
            self.stream = random_stream(self, seed)
        observation, info = self.env.reset(seed=seed, options=options)
        info = dict(info)  # the environment may go on with its own
        return self.transform_observation(observation, info, True), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take one step."""
        action = self.transform_action(action)
        observation, reward, terminated, truncated, info = self.env.step(action)
        info = dict(info)
        observation = self.transform_observation(observation, info, False)
        return observation, reward, terminated, truncated, info

    def get_checkpoint_state(self) -> dict[str, Any] | None:
        """Return all that the future depends on; None where the environment has no state."""
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


class ObservationAsPrivileged(CorruptionWrapper):
    """This wrapper reports the observation as `info["privileged"]` before others corrupt it."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.privileged_space = float_box(env.observation_space, "observation")

    def transform_observation(self, observation: Any, info: dict[str, Any], first: bool) -> Any:
        """Return the observation as it is."""
        info["privileged"] = observation.copy()
        return observation


class PrivilegedObservation(VectorWrapper[Any, Any, Any, Any, Any]):
    """This wrapper shows `infos["privileged"]` as the observation, at an episode's end too.

    The environment declares the state's space as `privileged_space` and reports the state at every
    reset and step. Works in every autoreset mode; rewards, ends and infos stay as they are, but for
    "final_obs".

    Examples:
        >>> from kalmanac import PrivilegedObservation, make_vector
        >>> envs = PrivilegedObservation(make_vector("best-arm", 3))
        >>> states, infos = envs.reset(seed=0)
        >>> states.shape  # the posterior mean and standard deviation of each bandit
        (3, 2)
    """

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        space = privileged_space(env)
        if space is None:
            raise ValueError(f"env: got {env}, expected one that declares a privileged_space")
        inside = env.single_observation_space
        if isinstance(inside, spaces.Dict) and "action_mask" in inside.spaces:
            raise ValueError(
                "env: got an action_mask inside the observation, expected it as "
                'info["action_mask"]: the true state takes the observation\'s place'
            )
        self.metadata = {**(env.metadata or {}), "observed": False}  # the truth is never missing
        self.unmeasured = ()
        self.single_observation_space = space
        self.observation_space = batch_space(space, env.num_envs)

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Reset all and return their states."""
        _, infos = self.env.reset(seed=seed, options=options)
        return self._state(infos, np.ones(self.num_envs, np.bool_)), infos

    def step(
        self, actions: Any
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Step all and return their states after it."""
        _, rewards, terminated, truncated, infos = self.env.step(actions)
        if "final_obs" in infos:
            ended = infos["_final_obs"]
            last = np.full(self.num_envs, None, dtype=object)
            rows = self._state(infos["final_info"], ended)[ended]
            last[ended] = np.fromiter(rows, dtype=object, count=len(rows))
            infos = infos | {"final_obs": last}
        everyone = np.ones(self.num_envs, np.bool_)
        return self._state(infos, everyone), rewards, terminated, truncated, infos

    def get_checkpoint_state(self) -> Any:
        """Return the state of the vector inside: nothing is remembered here."""
        return environment_state(self.env)

    def set_checkpoint_state(self, state: Any) -> None:
        """Go on exactly where `get_checkpoint_state` was called."""
        restore_environment(self.env, state)

    def _state(self, infos: dict[str, Any], needed: NDArray[np.bool_]) -> NDArray[Any]:
        present = infos.get("_privileged", np.zeros_like(needed))
        if not present[needed].all():
            silent = np.flatnonzero(needed & ~present)
            raise ValueError(
                f'info["privileged"]: got none from environments {silent}, '
                "expected it at every reset and step"
            )
        return np.array(infos["privileged"], dtype=self.single_observation_space.dtype)


def copied(tree: Any, other: Callable[[Any], Any] = deepcopy) -> Any:
    """Copy dictionaries, lists and tuples of arrays; `other` copies what is none of these."""
    if isinstance(tree, np.ndarray):
        return deepcopy(tree) if tree.dtype == object else tree.copy()
    if isinstance(tree, np.generic | int | float | str | bytes | None):
        return tree  # nobody can change it
    if isinstance(tree, dict):
        return {key: copied(value, other) for key, value in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)([copied(value, other) for value in tree])
    return other(tree)


def copied_step(step: Step) -> Step:
    """Copy the observation that a single environment's `step` gave.

    At an episode's end all the rest is copied as well, because a reset may follow before anyone has
    looked at it. What an info holds beside arrays, lists and plain data stays what it is.
    """
    observation, reward, terminated, truncated, info = step
    if terminated or truncated:
        rest = (reward, terminated, truncated, info)
        return copied(observation), *copied(rest, other=lambda x: x)
    return copied(observation), reward, terminated, truncated, info


def has_action_masks(env: Any) -> bool:
    """Tell whether it has sb3-contrib's method `action_masks`, itself or inside its wrappers."""
    discrete = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    return (
        isinstance(env, gymnasium.Env)
        and isinstance(env.action_space, discrete)
        and env.has_wrapper_attr("action_masks")
    )


def told_action_mask(env: gymnasium.Env[Any, Any], info: dict[str, Any]) -> dict[str, Any]:
    """Return the info with what `env.action_masks()` says now, unless it has a mask of its own."""
    if "action_mask" in info:
        return info
    flags = env.get_wrapper_attr("action_masks")()
    return info | {"action_mask": mask_of_choices(env.action_space, flags)}


class CopiesHandedOut:
    """Within this context, the single environments of a `SyncVectorEnv` hand out copies.

    Outside they stand in the vector as its owner put them there. Those of other vectors cannot be
    reached; `Checkpointable` does the same where an environment runs.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        vector = env.unwrapped
        self._vector = vector if isinstance(vector, SyncVectorEnv) else None
        self._own: Any = None
        self._copying: list[Any] = []

    @property
    def reached(self) -> bool:
        """Tell whether this vector's single environments can be reached."""
        return self._vector is not None

    def __enter__(self) -> None:
        if self._vector is None:
            return
        if self._own is not self._vector.envs:
            self._own = self._vector.envs
            self._copying = [_CopyingEnv(one) for one in self._own]
        self._vector.envs = self._copying

    def __exit__(self, *_: object) -> None:
        if self._vector is not None:
            self._vector.envs = self._own


class _CopyingEnv:
    """This stands for a single environment: what it returns is copied, all else is its own.

    Where it tells of forbidden actions as sb3-contrib has it, its infos have the mask.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self._env = env
        self._masks = has_action_masks(env)

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and copy the observation."""
        observation, info = self._env.reset(**how)
        return copied(observation), told_action_mask(self._env, info) if self._masks else info

    def step(self, action: Any) -> Step:
        """Step the environment and copy the observation."""
        *rest, info = copied_step(self._env.step(action))
        return *rest, told_action_mask(self._env, info) if self._masks else info

    def __getattr__(self, name: str) -> Any:
        if name == "_env" or name.startswith("__"):  # as a copy is asked, before it has one
            raise AttributeError(name)
        return getattr(self._env, name)


class Checkpointable(gymnasium.Wrapper[Any, Any, Any, Any]):
    """This makes the state of an environment in an `AsyncVectorEnv` an attribute to read and set.

    Its observations are copies: with SAME_STEP, an array that the environment fills again would
    show the next episode's first observation before the last one has been sent. Its infos have the
    mask of an environment with sb3-contrib's `action_masks`.

    Examples:
        >>> from kalmanac import Checkpointable, Track
        >>> env = Checkpointable(Track())
        >>> reading, info = env.reset(seed=0)
        >>> sorted(env.checkpoint_state)
        ['generator', 'target', 'time']
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._masks = has_action_masks(env)

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        observation, info = self.env.reset(**how)
        return observation, told_action_mask(self.env, info) if self._masks else info

    def step(self, action: Any) -> Step:
        """Take one step."""
        *rest, info = copied_step(self.env.step(action))
        return *rest, told_action_mask(self.env, info) if self._masks else info

    @property
    def checkpoint_state(self) -> Any | None:
        """The `environment_state` of the environment inside."""
        return environment_state(self.env)

    @checkpoint_state.setter
    def checkpoint_state(self, state: Any) -> None:
        restore_environment(self.env, state)


def float_box(space: gymnasium.Space[Any], what: str) -> spaces.Box:
    """Return the space if it is a Box of floats, or raise TypeError."""
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        raise TypeError(f"{what} space: got {space}, expected a Box of floats")
    return space


def deviation(name: str, value: Any) -> float:
    """Return a standard deviation, or raise ValueError."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not 0 <= value < np.inf:
        raise ValueError(f"{name}: got {value!r}, expected a number of at least 0")
    return float(value)


def count(name: str, value: Any, least: int) -> int:
    """Return a number of steps, or raise ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name}: got {value!r}, expected an integer of at least {least}")
    return int(value)


def told_observed(value: Any) -> bool:
    """Return what `info["observed"]` says, a bool of Python's or NumPy's, or raise ValueError."""
    told = np.asarray(value)
    if told.dtype != np.bool_ or told.size != 1:
        raise ValueError(f'info["observed"]: got {value!r}, expected True or False')
    return bool(told.item())
