"""Some numbers of a vector are never shown: what they would tell has to be remembered."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from kalmanac.envs.wrapping import Corrupting


class HiddenNumbers(Corrupting):
    """Leaves the numbers at the places `hidden` out of every observation, the first one too.

    They are dropped, not set to zero: the observation is that much shorter. Places count from 0;
    the observation is a vector, a Box of one axis. `info["privileged"]`, rewards and ends are left
    alone.

    Examples:
        >>> import gymnasium
        >>> from kalmanac import HiddenNumbers
        >>> env = HiddenNumbers(gymnasium.make("CartPole-v1"), (1, 3))  # without its velocities
        >>> env.reset(seed=0)[0].shape
        (2,)
    """

    def __init__(self, env: gymnasium.Env[Any, Any], hidden: Sequence[int]) -> None:
        hidden = tuple(hidden)
        super().__init__(env, hidden=hidden)
        space = env.observation_space
        if not isinstance(space, spaces.Box) or len(space.shape) != 1:
            raise TypeError(f"observation space: got {space}, expected a Box of one axis")
        places = range(space.shape[0])
        known = all(type(place) is not bool and place in places for place in hidden)
        if not known or len(set(hidden)) != len(hidden) or not 0 < len(hidden) < len(places):
            raise ValueError(
                f"hidden: got {hidden}, expected different places of 0 to {len(places) - 1}, "
                "at least one and not all"
            )
        self._shown = np.array([place for place in places if place not in hidden])
        low, high = space.low[self._shown], space.high[self._shown]
        self.observation_space = spaces.Box(low, high, dtype=space.dtype.type)

    def see(self, observation: NDArray[Any], info: dict[str, Any], first: bool) -> NDArray[Any]:
        """What is left, as an array of its own."""
        return observation[self._shown]
