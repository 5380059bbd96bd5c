"""Environments that hand out the same arrays again and again, and twins that hand out new ones."""

from copy import deepcopy
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

IMAGE = spaces.Box(0, 255, (8, 9, 3), np.uint8)
NUMBERS = spaces.Box(-1.0, 1e6, (3,), np.float32)
SPACES: dict[str, gymnasium.Space[Any]] = {
    "numbers": NUMBERS,
    "whole numbers": spaces.Box(0, 10**6, (2, 2), np.int64),
    "image": IMAGE,
    "choices": spaces.MultiDiscrete([3, 4]),
    "dictionary": spaces.Dict(
        {"numbers": NUMBERS, "picture": IMAGE, "action_mask": spaces.MultiBinary(3)}
    ),
    "nest": spaces.Tuple([NUMBERS, spaces.Dict({"inner": IMAGE, "choice": spaces.Discrete(4)})]),
}


class Reusing(gymnasium.Env[Any, Any]):
    """Every observation is another one. Episodes last 1 to 4 steps; every second one is cut.

    With `reuses`, observation, info and reward are the same objects at every reset and step, filled
    anew; otherwise all of them are new.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}  # type: ignore[misc]

    def __init__(self, kind: str = "numbers", *, reuses: bool = True, listed: bool = False) -> None:
        self.observation_space = SPACES[kind]
        self.action_space = spaces.Discrete(3)
        self.privileged_space = spaces.Box(-1.0, 1e6, (2,), np.float32)
        self.reuses, self.listed = reuses, listed
        self._seen = _empty(self.observation_space)
        self._reward = np.zeros(())
        self._info: dict[str, Any] = {
            "privileged": np.zeros(2, np.float32),
            "action_mask": [1, 1, 1] if listed else np.ones(3, np.int8),
            "observed": np.ones((), np.bool_),
        }
        self._episode, self._time, self._count = -1, 0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._episode, self._time = self._episode + 1, 0
        return self._shown(0.0)

    def step(self, action):
        self._time += 1
        over = self._time >= 1 + self._episode % 4
        cut = bool(self._episode % 2)
        observation, info = self._shown(10.0 * self._episode + self._time)
        reward = self._reward if self.reuses else self._reward.copy()
        return observation, reward, over and not cut, over and cut, info

    def _shown(self, reward: float) -> tuple[Any, dict[str, Any]]:
        self._count += 1
        self._reward[...] = reward
        _fill(self.observation_space, self._seen, self._count)
        self._info["privileged"][:] = self._count, self._episode
        mask = [self._count % 3 == 0, self._count % 2 == 0, True]
        self._info["action_mask"][:] = [int(x) for x in mask]
        self._info["observed"][...] = self._count % 5 != 0
        actual = (self._seen, self._info)
        return actual if self.reuses else deepcopy(actual)


def vector(
    kind: str, n: int, mode: AutoresetMode, *, reuses: bool, **settings: Any
) -> SyncVectorEnv:
    return SyncVectorEnv(
        [lambda: Reusing(kind, reuses=reuses, **settings)] * n, autoreset_mode=mode
    )


class Closed(VectorEnv[Any, Any, Any]):
    """A vector of another library: nobody sees its single environments."""

    def __init__(self, inside: VectorEnv[Any, Any, Any]) -> None:
        self._inside = inside
        self.metadata, self.num_envs = inside.metadata, inside.num_envs
        self.single_observation_space = inside.single_observation_space
        self.single_action_space = inside.single_action_space
        self.observation_space, self.action_space = inside.observation_space, inside.action_space

    def reset(self, *, seed=None, options=None):
        return self._inside.reset(seed=seed, options=options)

    def step(self, actions):
        return self._inside.step(actions)


def _empty(space: gymnasium.Space[Any]) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _empty(inner) for key, inner in space.items()}
    if isinstance(space, spaces.Tuple):
        return [_empty(inner) for inner in space]  # a list, to be filled again
    return np.zeros(space.shape, space.dtype)


def _fill(space: gymnasium.Space[Any], room: Any, number: int) -> None:
    if isinstance(space, spaces.Dict):
        for key, inner in space.items():
            _fill(inner, room[key], number)
    elif isinstance(space, spaces.Tuple):
        for i, inner in enumerate(space):
            _fill(inner, room[i], number)
    elif isinstance(space, spaces.MultiDiscrete | spaces.Discrete):
        room[...] = number % np.min(getattr(space, "nvec", getattr(space, "n", None)))
    elif isinstance(space, spaces.MultiBinary):
        room[...] = np.arange(number, number + 3) % 3 > 0
    else:
        room[...] = (number + np.arange(room.size)).reshape(room.shape) % 250
