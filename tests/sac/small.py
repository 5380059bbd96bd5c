"""Small agents, and an environment with continuous actions and episodes of different lengths."""

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor

from kalmanac._encoders.registry import encoder_settings
from kalmanac._sac.callbacks import Callback
from kalmanac._sac.recurrent_sac import RecurrentSAC

QUICK = {
    "normalize_observations": False,
    "learning_starts": 20,
    "batch_size": 4,
    "context_length": 8,
    "actor_hidden": (16,),
    "critic_hidden": (16,),
    "embedding": 6,
    "seed": 3,
    "device": "cpu",
}


def small(encoder: str, env: Any = None, **settings: Any) -> RecurrentSAC:
    """An agent for seconds, with a step size at which a vSSM's state moves within an episode."""
    known = encoder_settings(encoder)
    mine = {"d_state": 8, "raw_step_size": -2.0, "feedforward": 16}
    mine = {name: value for name, value in mine.items() if name in known}
    return RecurrentSAC(encoder, env, **({"encoder_settings": mine} | QUICK | settings))


class Wandering(gymnasium.Env[np.ndarray, np.ndarray]):
    """Three noisy features, two actions in [-2, 4]; episodes last 1 … `longest` steps."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}  # type: ignore[misc]

    def __init__(self, longest: int = 7, offset: float = 0.0) -> None:
        self.longest, self.offset = longest, offset
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = gymnasium.spaces.Box(-2.0, 4.0, (2,), np.float32)
        self.privileged_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self._left = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._left = int(self.np_random.integers(1, self.longest + 1))
        return self._seen(), self._info()

    def step(self, action):
        assert self.action_space.contains(action)
        self._left -= 1
        over = self._left == 0
        cut = bool(self.np_random.integers(2))
        return self._seen(), float(action[0]), over and not cut, over and cut, self._info()

    def _seen(self) -> np.ndarray:
        return (self.offset + self.np_random.standard_normal(3)).astype(np.float32)

    def _info(self) -> dict[str, Any]:
        return {"privileged": np.array([self._left], dtype=np.float32)}


def wandering(
    n: int, mode: AutoresetMode = AutoresetMode.SAME_STEP, **settings: Any
) -> SyncVectorEnv:
    makers = [lambda: Wandering(**settings) for _ in range(n)]
    return SyncVectorEnv(makers, autoreset_mode=mode)


class Listener(Callback):
    """Writes down everything; says stop at `until` steps."""

    def __init__(self, until: int | None = None) -> None:
        self.until = until
        self.starts = self.ends = 0
        self.episodes: list[Any] = []
        self.metrics: list[dict[str, float]] = []
        self.steps: list[int] = []
        self.updates: list[int] = []

    def on_start(self, model):
        self.starts += 1

    def on_episode(self, model, episode):
        self.episodes.append(episode)

    def on_update(self, model, metrics):
        assert all(isinstance(x, Tensor) and x.dim() == 0 for x in metrics.values())
        self.metrics.append({name: float(x) for name, x in metrics.items()})

    def on_step(self, model):
        self.steps.append(model.num_timesteps)
        self.updates.append(model.num_updates)
        return None if self.until is None else model.num_timesteps < self.until

    def on_end(self, model):
        self.ends += 1
