"""Actuators that are noisy or slower than the environment: what becomes of an agent's actions."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from kalmanac._envs.checkpointable import environment_state, restore_environment
from kalmanac._envs.wrappers import CorruptionWrapper, count, deviation, float_box

Env = gymnasium.Env[Any, Any]


class ActionNoise(CorruptionWrapper):
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

    def transform_action(self, action: NDArray[Any]) -> NDArray[Any]:
        """Return clip(a + σ·ε)."""
        noise = self.stream.standard_normal(self._scale.shape, np.float32)
        return np.clip(action + self._scale * noise, self._low, self._high)


class FrameRepeat(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Repeats every action `times` times, or until the episode ends or forbids it; rewards add up.

    The agent receives only the last of the observations in between.

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
        """Take up to `times` steps."""
        total = 0.0
        for _ in range(self.times):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated or not self._allows(action, observation, info):
                break
        return observation, total, terminated, truncated, info

    def _allows(self, action: Any, observation: Any, info: Mapping[str, Any]) -> bool:
        """Ask the environment's mask, where there is one, whether the action may be taken again."""
        inside = observation if isinstance(observation, Mapping) else {}
        mask = info.get("action_mask", inside.get("action_mask"))
        space = self.env.action_space
        if mask is None or not isinstance(space, spaces.Discrete):
            return True
        return bool(np.ravel(mask)[int(action) - int(space.start)])

    def get_checkpoint_state(self) -> Any:
        """Return the state of the environment: nothing is remembered here."""
        return environment_state(self.env)

    def set_checkpoint_state(self, state: Any) -> None:
        """Go on exactly where `get_checkpoint_state` was called."""
        restore_environment(self.env, state)
