"""Observations brought to zero mean and unit variance, with statistics gathered on the way."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kalmanac.observation import Observation
from kalmanac.ops.transfer import sent
from kalmanac.replay import Batch

EPSILON = 1e-8  # added to the variance: a feature that never changes stays 0


class Normaliser:
    """(x − mean) / √(variance + ε), clipped to ±`clip`, over all encoded observations collected.

    Only collection updates it. The replay keeps raw observations, which are normalised when they
    are drawn, so that old and new ones are always seen on the same scale. Codes (where `scaled`
    (O,) is False), images and the privileged observation are left as they are; missing readings
    do not count.
    """

    def __init__(
        self, size: int, *, clip: float = 10.0, scaled: NDArray[np.bool_] | None = None
    ) -> None:
        if clip <= 0:
            raise ValueError(f"clip: got {clip}, expected a positive number")
        self.clip = clip
        self.scaled = np.ones(size, np.bool_) if scaled is None else scaled
        self.count = 0
        self.mean = np.zeros(size)  # (O,) float64
        self.squares = np.zeros(size)  # (O,) float64: Σ (x − mean)²
        self._settled: dict[torch.device, tuple[Tensor, Tensor, Tensor]] = {}
        self._settled_at: dict[torch.device, int] = {}

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
        """Normalised vectors (…, O), float32, on the device they came from."""
        mean, scale, most = self._on(vector.device)
        return ((vector - mean) * scale).clamp(-most, most)

    def normalize(self, observation: Observation[Tensor]) -> Observation[Tensor]:
        """`observation` with a normalised vector; a missing reading stays all zeros."""
        vector = self(observation.vector)
        if observation.observed is not None:
            vector = vector.masked_fill(~observation.observed[..., None], 0)
        return observation._replace(vector=vector)

    def batch(self, batch: Batch) -> Batch:
        """`batch` with normalised observations."""
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
            came, own = tuple(state[name].shape), self.mean.shape
            if came != own:
                raise ValueError(f"{name}: got shape {came}, expected {own}")
        self.clip, self.count = state["clip"], state["count"]
        self.mean = state["mean"].cpu().numpy().copy()
        self.squares = state["squares"].cpu().numpy().copy()
        self._settled_at.clear()

    def settle(self, device: torch.device) -> None:
        """Bring what is on the device up to date, in tensors that keep their place."""
        if self._settled_at.get(device) == self.count:
            return
        scale = np.where(self.scaled, 1.0 / np.sqrt(self.variance + EPSILON), 1.0)
        mean = np.where(self.scaled, self.mean, 0.0)
        most = np.where(self.scaled, self.clip, np.inf)  # codes are left as they are
        fresh = sent([torch.as_tensor(x, dtype=torch.float32) for x in (mean, scale, most)], device)
        if device in self._settled:
            for held, x in zip(self._settled[device], fresh, strict=True):
                held.copy_(x)
        else:
            self._settled[device] = (fresh[0].clone(), fresh[1].clone(), fresh[2].clone())
        self._settled_at[device] = self.count

    def _on(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        self.settle(device)
        return self._settled[device]
