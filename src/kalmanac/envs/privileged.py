"""The Oracle's view: the environment's true state in place of the observation (paper, 5)."""

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from kalmanac.envs.spaces import privileged_space


class PrivilegedObservation(VectorWrapper[Any, Any, Any, Any, Any]):
    """Shows `infos["privileged"]` as the observation, at an episode's end too.

    The environment declares the state's space as `privileged_space` and tells the state at every
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
        self.single_observation_space = space
        self.observation_space = batch_space(space, env.num_envs)

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Reset all; the first states."""
        _, infos = self.env.reset(seed=seed, options=options)
        return self._state(infos, np.ones(self.num_envs, np.bool_)), infos

    def step(
        self, actions: Any
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Step all; the states after it."""
        _, rewards, terminated, truncated, infos = self.env.step(actions)
        if "final_obs" in infos:
            ended = infos["_final_obs"]
            last = np.full(self.num_envs, None, dtype=object)
            rows = self._state(infos["final_info"], ended)[ended]
            last[ended] = np.fromiter(rows, dtype=object, count=len(rows))
            infos = infos | {"final_obs": last}
        everyone = np.ones(self.num_envs, np.bool_)
        return self._state(infos, everyone), rewards, terminated, truncated, infos

    def _state(self, infos: dict[str, Any], needed: NDArray[np.bool_]) -> NDArray[Any]:
        told = infos.get("_privileged", np.zeros_like(needed))
        if not told[needed].all():
            silent = np.flatnonzero(needed & ~told)
            raise ValueError(
                f'info["privileged"]: got none from environments {silent}, '
                "expected it at every reset and step"
            )
        return np.array(infos["privileged"], dtype=self.single_observation_space.dtype)
