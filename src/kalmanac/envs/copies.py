"""Copies of what an environment hands out: it may go on in the same arrays.

Many environments fill one observation array again and again. A vector that resets within the step
asks for the next episode's first observation while it still holds the last one of the episode that
has ended: without a copy in between, the last one has become the first. Several environments may
even share an array, and a vector looks at its rows only when all of them have stepped.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import SyncVectorEnv, VectorEnv

Step = tuple[Any, Any, Any, Any, dict[str, Any]]


def copied(tree: Any, other: Callable[[Any], Any] = deepcopy) -> Any:
    """Dictionaries, lists and tuples of arrays, all of them new; `other` copies what is none."""
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
    """What a single environment's `step` gave, with an observation of its own.

    At an episode's end all the rest is copied as well, because a reset may follow before anyone has
    looked at it. What an info holds beside arrays, lists and plain data stays what it is.
    """
    observation, reward, terminated, truncated, info = step
    if terminated or truncated:
        rest = (reward, terminated, truncated, info)
        return copied(observation), *copied(rest, other=lambda x: x)
    return copied(observation), reward, terminated, truncated, info


class CopiesHandedOut:
    """Within it (`with`), the single environments of a `SyncVectorEnv` hand out copies.

    Outside they stand in the vector as its owner put them there. Those of other vectors cannot be
    reached; `Leavable` does the same where an environment runs.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        vector = env.unwrapped
        self._vector = vector if isinstance(vector, SyncVectorEnv) else None
        self._own: Any = None
        self._handing: list[Any] = []

    @property
    def reached(self) -> bool:
        """Whether this vector's single environments do so."""
        return self._vector is not None

    def __enter__(self) -> None:
        if self._vector is None:
            return
        if self._own is not self._vector.envs:
            self._own = self._vector.envs
            self._handing = [_Handing(one) for one in self._own]
        self._vector.envs = self._handing

    def __exit__(self, *_: object) -> None:
        if self._vector is not None:
            self._vector.envs = self._own


class _Handing:
    """A single environment in a vector's hands: what it returns is copied, all else is its own."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self._env = env

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        """The environment's, with an observation that stays as it is."""
        observation, info = self._env.reset(**how)
        return copied(observation), info

    def step(self, action: Any) -> Step:
        """The environment's, with an observation that stays as it is."""
        return copied_step(self._env.step(action))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)
