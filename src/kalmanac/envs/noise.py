"""Gaussian noise on what is seen and on what is done, each from a stream of its own."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from kalmanac.envs.wrapping import Corrupting, deviation, float_box

Env = gymnasium.Env[Any, Any]


class ObservationNoise(Corrupting):
    """Adds N(0, σ²) to every number of every observation, the first one too (paper, 5.2).

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
        space = float_box(env.observation_space, "observation")
        largest = float(np.finfo(np.float32).max)
        self.observation_space = spaces.Box(-largest, largest, space.shape, space.dtype.type)

    def see(self, observation: Any, info: dict[str, Any], first: bool) -> Any:
        """o + σ·ε."""
        noise = self.stream.standard_normal(observation.shape, np.float32)
        return (observation + self.std * noise).astype(observation.dtype, copy=False)


class ActionNoise(Corrupting):
    """Adds N(0, σ²) to every number of an action and clips the sum (paper, appendix H).

    σ is in units of half the action's range, so that it means the same for every environment: the
    agent's own actions are in [−1, 1]. The environment receives the noisy action; whoever stores
    the agent's own does not learn of the noise.

    Examples:
        >>> from kalmanac import ActionNoise, Track
        >>> env = ActionNoise(Track(), std=0.1)
        >>> observation, info = env.reset(seed=0)
        >>> _, reward, *_ = env.step(info["privileged"])
        >>> reward < 0  # the environment received another action
        True
    """

    def __init__(self, env: Env, std: float) -> None:
        super().__init__(env, std=std)
        self.std = deviation("std", std)
        space = float_box(env.action_space, "action")
        if not space.is_bounded():
            raise ValueError(f"action space: got {space}, expected finite bounds")
        self._low, self._high = space.low, space.high
        self._scale = (self.std * (space.high - space.low) / 2).astype(space.dtype)

    def act(self, action: NDArray[Any]) -> NDArray[Any]:
        """clip(a + σ·ε)."""
        noise = self.stream.standard_normal(self._scale.shape, np.float32)
        return np.clip(action + self._scale * noise, self._low, self._high)
