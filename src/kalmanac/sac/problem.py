"""What an agent must know of its environment: the spaces, which the model file keeps as JSON."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import VectorEnv

from kalmanac.envs.spaces import action_codec, observation_codec, privileged_space
from kalmanac.replay import Sizes
from kalmanac.sac.space_json import space_from_json, space_to_json

Space = gymnasium.Space[Any]


class Problem:
    """The spaces of one environment, the codecs between them and the agent, and the sizes.

    `truth` is the space of the true state, only if the critic sees it.
    """

    def __init__(self, observation: Space, action: Space, truth: Space | None = None) -> None:
        self.observation_space, self.action_space, self.privileged_space = (
            observation,
            action,
            truth,
        )
        self.observations, self.actions = observation_codec(observation), action_codec(action)
        self.sizes = Sizes(
            self.observations.size,
            self.actions.size,
            self.actions.discrete,
            privileged=0 if truth is None else observation_codec(truth).size,
        )

    @classmethod
    def of(cls, env: VectorEnv[Any, Any, Any], *, privileged: bool) -> "Problem":
        """What `env` poses; with `privileged`, it must declare a true state."""
        truth = privileged_space(env) if privileged else None
        if privileged and truth is None:
            raise ValueError(
                f"privileged_critic: got True, expected False: {env} declares no privileged_space"
            )
        return cls(env.single_observation_space, env.single_action_space, truth)

    def require_same(self, other: "Problem") -> None:
        """Refuse a problem with other spaces."""
        for name in ("observation_space", "action_space", "privileged_space"):
            came, own = getattr(other, name), getattr(self, name)
            if came != own:
                raise ValueError(f"env.{name}: got {came}, expected {own} as in training")

    def batched(self, observation: Any) -> tuple[Any, bool]:
        """A batch of observations (n, …), and whether a single one was given instead."""
        array = np.asarray(observation)
        shape = self.observation_space.shape if isinstance(self.observation_space, Box) else ()
        assert shape is not None
        if array.shape == shape:
            return array[None], True
        if array.shape[1:] == shape and array.ndim == len(shape) + 1 and len(array):
            return array, False
        raise ValueError(
            f"observation: got shape {array.shape}, expected {shape} or {('n', *shape)}"
        )

    def to_json(self) -> dict[str, Any]:
        """The spaces as JSON's own types."""
        truth = self.privileged_space
        return {
            "observation": space_to_json(self.observation_space),
            "action": space_to_json(self.action_space),
            "truth": None if truth is None else space_to_json(truth),
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Problem":
        """The reverse of `to_json`."""
        truth = document["truth"]
        return cls(
            space_from_json(document["observation"]),
            space_from_json(document["action"]),
            None if truth is None else space_from_json(truth),
        )
