"""Small environments that speak of more than a vector: images, masks, missing readings, nests.

Each of the first three can be solved only with what it is about:

- ImageIdentity: say which quarter of a 12 × 12 image is bright.
- Forbidden: of the actions that the mask allows, the highest pays most. The observation is blank.
- LastReading: name the last reading that was there. A zero may be a reading or a missing one.
"""

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

NO_RENDERING: dict[str, Any] = {"render_modes": []}


class ImageIdentity(gymnasium.Env[np.ndarray, np.int64]):
    """Naming the bright quarter pays 1. Channels stand last."""

    metadata: ClassVar[dict[str, Any]] = NO_RENDERING  # type: ignore[misc]

    def __init__(self, length: int = 8) -> None:
        self.length = length
        self.observation_space = spaces.Box(0, 255, (12, 12, 1), np.uint8)
        self.action_space = spaces.Discrete(4)
        self._time = self._quarter = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = 0
        return self._show(), {}

    def step(self, action):
        reward = float(action == self._quarter)
        self._time += 1
        return self._show(), reward, False, self._time >= self.length, {}

    def _show(self) -> np.ndarray:
        self._quarter = int(self.np_random.integers(4))
        image = self.np_random.integers(0, 100, (12, 12, 1), np.uint8)
        down, right = divmod(self._quarter, 2)
        image[6 * down : 6 * down + 6, 6 * right : 6 * right + 6] += 120
        return image


class Forbidden(gymnasium.Env[np.ndarray, np.int64]):
    """Action a pays a / (A − 1); a forbidden one is an error.

    The mask, with one to A − 1 allowed actions, comes in the info, or in the observation
    (`inside`). The last observation of an episode allows nothing.
    """

    metadata: ClassVar[dict[str, Any]] = NO_RENDERING  # type: ignore[misc]

    def __init__(self, actions: int = 4, length: int = 6, inside: bool = False) -> None:
        self.actions, self.length, self.inside = actions, length, inside
        blank = spaces.Box(0, 1, (1,))
        self.observation_space: gymnasium.Space[Any] = blank
        if inside:
            self.observation_space = spaces.Dict(
                {"observation": blank, "action_mask": spaces.MultiBinary(actions)}
            )
        self.action_space = spaces.Discrete(actions, start=5)
        self._time, self.mask = 0, np.zeros(actions, np.int8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = 0
        return self._show()

    def step(self, action):
        chosen = int(action) - 5
        assert self.mask[chosen], "a forbidden action"
        self._time += 1
        observation, info = self._show()
        return observation, chosen / (self.actions - 1), self._time >= self.length, False, info

    def best(self, episodes: int = 2000) -> float:
        """The mean return of always taking the highest allowed action."""
        rng = np.random.default_rng(0)
        highest = [self._draw(rng).nonzero()[0][-1] for _ in range(episodes)]
        return self.length * float(np.mean(highest)) / (self.actions - 1)

    def _draw(self, rng: np.random.Generator) -> np.ndarray:
        mask = np.zeros(self.actions, np.int8)
        mask[rng.permutation(self.actions)[: rng.integers(1, self.actions)]] = 1
        return mask

    def _show(self):
        self.mask = self._draw(self.np_random)
        if self._time >= self.length:
            self.mask = np.zeros(self.actions, np.int8)
        blank = np.zeros(1, np.float32)
        if self.inside:
            return {"observation": blank, "action_mask": self.mask}, {}
        return blank, {"action_mask": self.mask}


class LastReading(gymnasium.Env[np.ndarray, np.int64]):
    """Readings are −1, 0 or 1; half of them are missing and look like 0. Naming the last one that
    was there pays 1; before the first, 0 is right.
    """

    metadata: ClassVar[dict[str, Any]] = NO_RENDERING  # type: ignore[misc]

    def __init__(self, length: int = 12, told: bool = True) -> None:
        self.length, self.told = length, told
        self.observation_space = spaces.Box(-1, 1, (1,))
        self.action_space = spaces.Discrete(3, start=-1)
        self._time = self._last = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = self._last = 0
        return self._show()

    def step(self, action):
        reward = float(action == self._last)
        self._time += 1
        observation, info = self._show()
        return observation, reward, False, self._time >= self.length, info

    def best_untold(self, episodes: int = 4000) -> float:
        """The mean return of the best policy that is not told, by Bayes' rule."""
        rng = np.random.default_rng(0)
        share, total = np.tile([0.0, 1.0, 0.0], (episodes, 1)), 0.0  # P(last = −1, 0, 1)
        for _ in range(self.length):
            reading = rng.integers(-1, 2, episodes) * (rng.random(episodes) < 0.5)
            there = np.where(reading == 0, 1 / 4, 1.0)[:, None]  # (1/6) / (1/6 + 1/2)
            share = (1 - there) * share + there * np.eye(3)[reading + 1]
            total += share.max(1).mean()
        return float(total)

    def _show(self):
        reading, there = int(self.np_random.integers(-1, 2)), bool(self.np_random.random() < 0.5)
        if there:
            self._last = reading
        info = {"observed": there} if self.told else {}
        return np.float32([reading if there else 0]), info


class Everything(gymnasium.Env[dict[str, Any], np.ndarray]):
    """A nest of all kinds of observations, joint actions, masks and missing readings.

    `sides` are the image's. With `missing` readings are lost at every third step; with `masked`,
    the action whose number is the time is forbidden.
    """

    metadata: ClassVar[dict[str, Any]] = NO_RENDERING  # type: ignore[misc]

    def __init__(
        self, sides: tuple[int, int] = (9, 8), missing: bool = False, masked: bool = False
    ) -> None:
        self.missing, self.masked = missing, masked
        self.observation_space = spaces.Dict(
            {
                "camera": spaces.Box(0, 255, (3, *sides), np.uint8),
                "cards": spaces.MultiDiscrete([2, 3], start=[1, 0]),
                "pose": spaces.Box(-np.inf, np.inf, (2,), np.float32),
                "rest": spaces.Tuple((spaces.MultiBinary(2), spaces.Discrete(3, start=-1))),
            }
        )
        self.action_space = spaces.MultiDiscrete([2, 3])
        self.privileged_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self._time, self._length = 0, 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time, self._length = 0, int(self.np_random.integers(1, 7))
        return self._show()

    def step(self, action):
        assert self.action_space.contains(action)
        if self.masked:
            assert np.ravel_multi_index(tuple(action), (2, 3)) != self._time % 6, "forbidden"
        self._time += 1
        over = self._time >= self._length
        observation, info = self._show()
        reward = float(observation["pose"][0])
        return observation, reward, over and self._length % 2 == 0, over and self._length % 2, info

    def get_checkpoint_state(self) -> dict[str, Any]:
        return {
            "time": self._time, "length": self._length,
            "generator": self.np_random.bit_generator.state,
        }  # fmt: skip

    def set_checkpoint_state(self, state: dict[str, Any]) -> None:
        self._time, self._length = state["time"], state["length"]
        self.np_random.bit_generator.state = state["generator"]

    def _show(self):
        rng, camera = self.np_random, self.observation_space["camera"]
        observation = {
            "camera": rng.integers(0, 256, camera.shape, np.uint8),
            "cards": np.array([rng.integers(1, 3), rng.integers(3)]),
            "pose": np.float32([self._time, 5.0]),
            "rest": (rng.integers(0, 2, 2, np.int8), rng.integers(-1, 2)),
        }
        info: dict[str, Any] = {"privileged": np.float32([self._time])}
        if self.missing:
            info["observed"] = self._time % 3 != 2
        if self.masked:
            info["action_mask"] = np.arange(6) != self._time % 6
        return observation, info


def copies(make: Any, n: int, mode: AutoresetMode = AutoresetMode.SAME_STEP) -> SyncVectorEnv:
    return SyncVectorEnv([make] * n, autoreset_mode=mode)
