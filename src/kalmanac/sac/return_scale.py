"""Rewards divided by the standard deviation of discounted returns, as they are seen on the way.

An agent's settings (the temperature's start, the learning rate beside the size of Q) suit returns
of about 1; a task that pays 16 a step, or 1/400, is brought there. Only updates see scaled rewards:
the replay, evaluations and logs of returns keep the environment's own.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kalmanac.agent.capture import can_record
from kalmanac.replay import Batch

EPSILON = 1e-8  # added to the variance: rewards that are always 0 stay 0


class ReturnScale:
    """reward / √(variance of G + ε), where G ← γ G + reward runs along every stream of episodes.

    Old transitions are scaled by what is known when they are drawn, so that old and new ones always
    have the same scale. Before two returns were seen, rewards are left as they are.
    """

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma
        self.count = 0
        self.mean, self.squares = 0.0, 0.0  # of G; squares: Σ (G − mean)²
        self.running = np.zeros(0)  # (n,) G of each stream
        self._settled: dict[torch.device, Tensor] = {}

    def attach(self, streams: int) -> None:
        """Begin new episodes in so many streams."""
        self.running = np.zeros(streams)

    def update(
        self, reward: NDArray[np.float64], stepped: NDArray[np.bool_], ended: NDArray[np.bool_]
    ) -> None:
        """Take in the rewards (n,) of streams that `stepped`; forget episodes that `ended`."""
        self.running[stepped] = self.gamma * self.running[stepped] + reward[stepped]
        for g in self.running[stepped].tolist():  # a few streams: Welford's update, one by one
            self.count += 1
            shift = g - self.mean
            self.mean += shift / self.count
            self.squares += shift * (g - self.mean)
        self.running[ended] = 0.0

    @property
    def factor(self) -> float:
        """What rewards are multiplied by."""
        if self.count < 2 or self.squares == 0.0:
            return 1.0
        return float(1.0 / np.sqrt(self.squares / self.count + EPSILON))

    def settle(self, device: torch.device) -> None:
        """Bring the factor on the device up to date, in a tensor that keeps its place."""
        if device not in self._settled:
            self._settled[device] = torch.empty((), device=device)
        self._settled[device].fill_(self.factor)

    def batch(self, batch: Batch) -> Batch:
        """`batch` with scaled rewards; on a GPU by the factor of the last `settle`."""
        device = batch.reward.device
        if not can_record(device) or device not in self._settled:
            self.settle(device)
        return batch._replace(reward=batch.reward * self._settled[device])

    def state_dict(self) -> dict[str, Any]:
        """Statistics as plain numbers and an array."""
        return {
            "count": self.count,
            "mean": self.mean,
            "squares": self.squares,
            "running": torch.from_numpy(self.running.copy()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.count, self.mean, self.squares = state["count"], state["mean"], state["squares"]
        running = state["running"].cpu().numpy().copy()
        if len(self.running) and len(running) != len(self.running):
            raise ValueError(
                f"running: got returns of {len(running)} streams, expected {len(self.running)}"
            )
        self.running = running
