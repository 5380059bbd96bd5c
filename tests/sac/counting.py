"""A deterministic environment that counts, and a replay that only writes down what it is told."""

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from kalmanac._observation import Observation


class Counting(gymnasium.Env[np.ndarray, np.int64]):
    """Observation (episode, time, last action). Episodes last `lengths` in turn.

    Every second one is truncated, the others terminate. The reward is 10 · episode + time.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}  # type: ignore[misc]

    def __init__(self, lengths: tuple[int, ...]) -> None:
        self.lengths = lengths
        self.observation_space = gymnasium.spaces.Box(-1.0, 1e6, (3,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(3, start=1)
        self.privileged_space = gymnasium.spaces.Box(-1.0, 1e6, (2,), np.float32)
        self.episode, self.time = -1, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 1, 0
        return self._seen(-1), self._info()

    def step(self, action):
        assert action in (1, 2, 3), "the space starts at 1"
        self.time += 1
        over = self.time >= self.lengths[self.episode % len(self.lengths)]
        cut = self.episode % 2 == 1
        info = self._info() | ({"win": self.episode % 3 == 0} if over else {})
        reward = 10.0 * self.episode + self.time
        return self._seen(action), reward, over and not cut, over and cut, info

    def _seen(self, action: int) -> np.ndarray:
        return np.array([self.episode, self.time, action], dtype=np.float32)

    def _info(self) -> dict[str, Any]:
        return {"privileged": np.array([self.time, 100 + self.episode], dtype=np.float32)}


def counting_vector(*lengths: tuple[int, ...], mode: AutoresetMode) -> SyncVectorEnv:
    return SyncVectorEnv(
        [lambda mine=mine: Counting(mine) for mine in lengths], autoreset_mode=mode
    )


def by_time(observation: Observation[np.ndarray], episode_start: np.ndarray) -> np.ndarray:
    """A policy that depends on the observation alone."""
    episode, time = observation.vector[:, 0], observation.vector[:, 1]
    return (episode + 2 * time).astype(np.int64) % 3


def acted(collector, policy):
    """Act once in every environment."""
    return collector.take(policy(collector.observation, collector.episode_start))


class Notebook:
    """Per stream, the calls that reached it, in order."""

    def __init__(self, streams: int) -> None:
        self.pages: list[list[tuple[Any, ...]]] = [[] for _ in range(streams)]

    def begin(self, streams, observation):
        for row, stream in enumerate(streams):
            self.pages[stream].append(("begin", *_shown(observation, row)))

    def add(self, streams, action, reward, terminated, truncated, observation):
        for row, stream in enumerate(streams):
            self.pages[stream].append(
                ("add", action[row], reward[row], terminated[row], truncated[row],
                 *_shown(observation, row))
            )  # fmt: skip


def _shown(observation, row):
    truth = () if observation.privileged is None else observation.privileged[row]
    return (*observation.vector[row], *truth)
