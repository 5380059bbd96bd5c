"""Observations with zero mean and unit variance, and rewards divided by the scale of returns.

Statistics are gathered on the way.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kalmanac._observation import Observation
from kalmanac._ops.dispatch import watched
from kalmanac._ops.transfer import sent
from kalmanac._replay.sampling import Batch

EPSILON = 1e-8  # added to the variance


class ObservationNormalizer:
    """(x − mean) / √(variance + ε), clipped to ±`clip`, over all encoded observations collected.

    Only collection updates it. The replay keeps raw observations, which are normalized when they
    are drawn, so that old and new ones are always seen on the same scale. Codes (where `scaled`
    (O,) is False), images and the privileged observation are left as they are; missing readings
    do not count, and have zeros at all places, or where `measured` (O,) is True. What has never
    changed is not scaled, and shifted only if it is larger than 1.
    """

    def __init__(
        self, size: int, *, clip: float = 10.0, scaled: NDArray[np.bool_] | None = None,
        measured: NDArray[np.bool_] | None = None,
    ) -> None:  # fmt: skip
        if clip <= 0:
            raise ValueError(f"clip: got {clip}, expected a positive number")
        self.clip = clip
        self.scaled = np.ones(size, np.bool_) if scaled is None else scaled
        self.count = 0
        self.mean = np.zeros(size)  # (O,) float64
        self.squares = np.zeros(size)  # (O,) float64: Σ (x − mean)²
        self._settled: dict[torch.device, Sequence[Tensor]] = {}
        self._settled_at: dict[torch.device, int] = {}
        self.set_measured(measured)

    def set_measured(self, measured: NDArray[np.bool_] | None) -> None:
        """Take other places (O,) that have zeros where a reading is missing; None: all."""
        self.measured = measured
        self._settled.clear()
        self._settled_at.clear()

    def update(self, observation: NDArray[np.float32]) -> None:
        """Take in n more observations (n, O), by the pairwise update of Chan et al. (1979)."""
        n = len(observation)
        if n == 0:
            return
        new = observation.astype(np.float64)
        mean = new.mean(0)
        total = self.count + n
        shift = mean - self.mean
        self.squares += ((new - mean) ** 2).sum(0) + shift**2 * (self.count * n / total)
        self.mean += shift * (n / total)
        self.count = total

    @property
    def variance(self) -> NDArray[np.float64]:
        """(O,); 1 before the first observation."""
        return self.squares / self.count if self.count else np.ones_like(self.squares)

    def __call__(self, vector: Tensor) -> Tensor:
        """Normalize vectors (…, O), float32, on the device they came from."""
        mean, scale, most, *_ = self._on(vector.device)
        return ((vector - mean) * scale).clamp(-most, most)

    def normalize(self, observation: Observation[Tensor]) -> Observation[Tensor]:
        """`observation` with a normalized vector; a missing reading stays zeros."""
        vector = self(observation.vector)
        if observation.observed is not None:
            measured = self._on(vector.device)[3] if self.measured is not None else None
            vector = without_missing(vector, observation.observed, measured)
        return observation._replace(vector=vector)

    def batch(self, batch: Batch) -> Batch:
        """`batch` with normalized observations."""
        return batch._replace(observation=self.normalize(batch.observation))

    def state_dict(self) -> dict[str, Any]:
        """Statistics as tensors and plain numbers."""
        return {
            "clip": self.clip,
            "count": self.count,
            "mean": torch.from_numpy(self.mean.copy()),
            "squares": torch.from_numpy(self.squares.copy()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` gave."""
        for name in ("mean", "squares"):
            got, own = tuple(state[name].shape), self.mean.shape
            if got != own:
                raise ValueError(f"{name}: got shape {got}, expected {own}")
        self.clip, self.count = state["clip"], state["count"]
        self.mean = state["mean"].cpu().numpy().copy()
        self.squares = state["squares"].cpu().numpy().copy()
        self._settled_at.clear()

    def settle(self, device: torch.device) -> None:
        """Bring what is on the device up to date, in tensors that keep their place."""
        if self._settled_at.get(device) == self.count:
            return
        fresh = self._fresh(device)
        if device in self._settled:
            for settled, x in zip(self._settled[device], fresh, strict=True):
                settled.copy_(x)
        else:
            self._settled[device] = [x.clone() for x in fresh]
        self._settled_at[device] = self.count

    def _on(self, device: torch.device) -> Sequence[Tensor]:
        if watched():  # what is made in a trace is no tensor outside of it
            return self._fresh(device)
        self.settle(device)
        return self._settled[device]

    def _fresh(self, device: torch.device) -> Sequence[Tensor]:
        """Mean, scale and bounds, (O,) float32, and `measured` where there is one."""
        varied = self.scaled & (self.squares > 0)
        scale = np.where(varied, 1.0 / np.sqrt(self.variance + EPSILON), 1.0)
        as_it_is = ~varied & (np.abs(self.mean) <= 1)  # a flag that is always 1 where readings came
        mean = np.where(self.scaled & ~as_it_is, self.mean, 0.0)
        most = np.where(self.scaled, self.clip, np.inf)  # codes are left as they are
        numbers = [torch.as_tensor(x, dtype=torch.float32) for x in (mean, scale, most)]
        marks = [] if self.measured is None else [torch.as_tensor(self.measured)]
        return sent(numbers + marks, device)


def without_missing(vector: Tensor, observed: Tensor, measured: Tensor | None) -> Tensor:
    """Vectors (…, O) with zeros where `measured` (O,), or all, and not `observed` (…)."""
    missing = ~observed[..., None]
    return vector.masked_fill(missing if measured is None else missing & measured, 0)


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
        self._settled_at: dict[torch.device, int] = {}

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

    def add_episode(self, reward: NDArray[np.float32]) -> None:
        """Take in the rewards (T,) of an episode that others have collected."""
        before, self.running = self.running, np.zeros(1)
        for r in reward.astype(np.float64)[:, None]:
            self.update(r, np.ones(1, np.bool_), np.zeros(1, np.bool_))
        self.running = before

    @property
    def factor(self) -> float:
        """What rewards are multiplied by."""
        if self.count < 2 or self.squares == 0.0:
            return 1.0
        return float(1.0 / np.sqrt(self.squares / self.count + EPSILON))

    def settle(self, device: torch.device) -> None:
        """Bring the factor on the device up to date, in a tensor that keeps its place."""
        if self._settled_at.get(device) == self.count:
            return
        if device not in self._settled:
            self._settled[device] = torch.empty((), device=device)
        self._settled[device].fill_(self.factor)
        self._settled_at[device] = self.count

    def normalize(self, observation: Observation[Tensor]) -> Observation[Tensor]:
        """`observation` with a scaled previous reward, where it has one."""
        reward = observation.previous_reward
        if reward is None:
            return observation
        return observation._replace(previous_reward=reward * self._on(reward.device))

    def batch(self, batch: Batch) -> Batch:
        """`batch` with scaled rewards, those that observations show among them."""
        reward = batch.reward * self._on(batch.reward.device)
        return batch._replace(reward=reward, observation=self.normalize(batch.observation))

    def _on(self, device: torch.device) -> Tensor:
        self.settle(device)
        return self._settled[device]

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
        self._settled_at.clear()
        self.count, self.mean, self.squares = state["count"], state["mean"], state["squares"]
        running = state["running"].cpu().numpy().copy()
        if len(self.running) and len(running) != len(self.running):
            raise ValueError(
                f"running: got returns of {len(running)} streams, expected {len(self.running)}"
            )
        self.running = running
