"""A small environment with all that can come beside a vector: image, mask, missing readings."""

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces


class Seeing(gymnasium.Env[dict[str, Any], np.int64]):
    """Name the bright column of an 8 × 8 image; a right name that is far to the right pays more.

    One of four actions is forbidden, as the mask in the observation says, and every fourth reading
    or so is missing, as the info says. Episodes have 3 to 8 steps and end in both ways. It can be
    left and entered in the middle of an episode.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": [], "observed": True}  # type: ignore[misc]

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {
                "action_mask": spaces.MultiBinary(4),
                "camera": spaces.Box(0, 255, (1, 8, 8), np.uint8),
                "clock": spaces.Box(0, 8, (2,), np.float32),
            }
        )
        self.action_space = spaces.Discrete(4)
        self.left, self.bright, self.forbidden = 0, 0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(3, 9))
        return self._show()

    def step(self, action):
        assert action != self.forbidden
        reward = (1 + self.bright / 4) * float(action == self.bright)
        self.left -= 1
        over, cut = self.left == 0, bool(self.np_random.integers(2))
        observation, info = self._show()
        return observation, reward, over and not cut, over and cut, info

    def get_checkpoint_state(self) -> dict[str, Any]:
        names = ("left", "bright", "forbidden")
        state = {name: getattr(self, name) for name in names}
        return state | {"generator": self.np_random.bit_generator.state}

    def set_checkpoint_state(self, state: dict[str, Any]) -> None:
        self.left, self.bright = state["left"], state["bright"]
        self.forbidden = state["forbidden"]
        self.np_random.bit_generator.state = state["generator"]

    def _show(self):
        rng = self.np_random
        self.bright, other = (int(x) for x in rng.permutation(4)[:2])
        self.forbidden = other
        camera = rng.integers(0, 100, (1, 8, 8), np.uint8)
        camera[:, :, 2 * self.bright : 2 * self.bright + 2] += 120
        observation = {
            "action_mask": (np.arange(4) != self.forbidden).astype(np.int8),
            "camera": camera,
            "clock": np.float32([self.left, rng.random()]),
        }
        return observation, {"observed": bool(rng.random() < 0.75)}
