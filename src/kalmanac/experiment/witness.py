"""What one environment shows in its first episode, written down as it passes by."""

from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper
from numpy.typing import NDArray

from kalmanac.envs import observation_codec

Array = NDArray[Any]


class Witness(VectorWrapper[Any, Any, Any, Any, Any]):
    """Around a vector of one environment, below what replaces the agent's observation."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        self.terminated = False
        self.first: dict[str, Any] = {}  # infos of the reset
        self._codec = observation_codec(env.single_observation_space)
        self._over = False
        self._observations: list[Array] = []
        self._truths: list[Array] = []
        self._rewards: list[float] = []

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset, and see the first observation."""
        observation, self.first = self.env.reset(seed=seed, options=options)
        self._see(observation, self.first)
        return observation, self.first

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Step, and see what comes of it; an episode's last observation leads to no action."""
        arrived = self.env.step(actions)
        observation, rewards, terminated, truncated, infos = arrived
        if not self._over:
            self._rewards.append(float(rewards[0]))
            self.terminated = bool(terminated[0])
            self._over = self.terminated or bool(truncated[0])
        if not self._over:
            self._see(observation, infos)
        return arrived

    def arrays(self) -> dict[str, Array]:
        """Observations, rewards and true states, named as in an episode file."""
        found: dict[str, Array] = {
            "observation": np.asarray(self._observations, np.float32),
            "reward": np.asarray(self._rewards, np.float64),
        }
        if self._truths:
            found["truth"] = np.asarray(self._truths, np.float32)
        return found

    def _see(self, observation: Any, infos: dict[str, Any]) -> None:
        self._observations.append(self._codec.encode(observation).vector[0])
        if "privileged" in infos:
            self._truths.append(np.array(infos["privileged"][0]))
