"""Tracking with a sensor that fails: readings go missing, and the agent is told of it, or not."""

from typing import Any

import gymnasium
import numpy as np

from kalmanac.envs import Track


class Gaps(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Each reading is missing with probability `missing`: zeros stand in its place.

    With `told`, `info["observed"]` says so. Without, it stays True and the zeros look like
    readings.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], missing: float, told: bool) -> None:
        super().__init__(env)
        self.missing, self.told = missing, told
        self._chance = np.random.default_rng()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """The same readings are missing for the same seed, told or not."""
        if seed is not None:
            self._chance = np.random.default_rng([seed, 1])
        return self._through(*self.env.reset(seed=seed, options=options))

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step."""
        seen, reward, terminated, truncated, info = self.env.step(action)
        seen, info = self._through(seen, info)
        return seen, reward, terminated, truncated, info

    def _through(self, seen: Any, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        lost = bool(self._chance.random() < self.missing)
        told = {"observed": not (lost and self.told)}
        return (np.zeros_like(seen) if lost else seen), info | told


def track(missing: float = 0.5, told: bool = True, **settings: Any) -> Gaps:
    """`track` through a sensor with gaps."""
    return Gaps(Track(**settings), missing, told)
