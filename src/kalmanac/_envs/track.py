"""Tracking: say where a hidden, wandering target is, from noisy readings of its position.

The target is a stationary first-order process of unit variance, x_t = φ x_{t−1} + √(1 − φ²) ε_t,
and a reading is y_t = x_t + σ ν_t. The action is an estimate of x_t and pays minus its squared
error, so that the best policy is the conditional mean: here, a Kalman filter. One reading says
little where σ is large or the reading is missing; a memory knows more.
"""

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from kalmanac._envs.sensors import share
from kalmanac._envs.wrappers import count, deviation

Floats = NDArray[np.float32]
REACH = 4.0  # standard deviations: how far an estimate can go


class Track(gymnasium.Env[Floats, Floats]):
    """The observation is a reading of the target, (1,); the action estimates where it is, (1,).

    `info["privileged"]` is x_t itself. An episode is cut after `horizon` steps.

    Args:
        decay: φ; the target forgets its place in about 1 / (1 − φ) steps.
        noise: σ, the standard deviation of a reading's noise.
        horizon: steps of an episode.

    Examples:
        >>> from kalmanac import Track
        >>> env = Track(noise=0.3)
        >>> reading, info = env.reset(seed=0)
        >>> reading, reward, terminated, truncated, info = env.step(info["privileged"])
        >>> abs(reward) < 1e-12  # nobody estimates better than whoever knows
        True
        >>> round(env.best_return(), 2)  # what an exact Kalman filter earns in an episode
        -3.61
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}  # type: ignore[misc]

    def __init__(self, decay: float = 0.95, noise: float = 0.3, horizon: int = 64) -> None:
        self.decay = share("decay", decay)
        self.noise, self.horizon = deviation("noise", noise), count("horizon", horizon, 1)
        largest = float(np.finfo(np.float32).max)  # finite, because Gymnasium's checker asks for it
        self.observation_space = spaces.Box(-largest, largest, (1,), np.float32)
        self.action_space = spaces.Box(-REACH, REACH, (1,), np.float32)
        self.privileged_space = spaces.Box(-largest, largest, (1,), np.float32)
        self._target, self._time = 0.0, -1  # −1: never reset

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """Put a target somewhere and read it for the first time."""
        super().reset(seed=seed)
        self._target, self._time = self.np_random.standard_normal(), 0
        return self._reading(), self._info()

    def step(self, action: Any) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Pay for the estimate of where the target is, then let it move."""
        if self._time < 0:
            raise gymnasium.error.ResetNeeded("step: no episode is running, call reset first")
        estimate = np.asarray(action, dtype=np.float64)
        if estimate.shape != (1,) or not np.isfinite(estimate[0]):
            raise ValueError(f"action: got {action!r}, expected one finite number, (1,)")
        reward = -float((estimate[0] - self._target) ** 2)
        kick = np.sqrt(1 - self.decay**2) * self.np_random.standard_normal()
        self._target = self.decay * self._target + kick
        self._time += 1
        return self._reading(), reward, False, self._time >= self.horizon, self._info()

    def best_return(self) -> float:
        """Compute what the best policy earns on average: minus the exact filter's variances."""
        whole = np.ones(self.horizon, np.bool_)
        _, variance = exact_filter(np.zeros(self.horizon), whole, self.decay, self.noise)
        return -float(variance.sum())

    def get_checkpoint_state(self) -> dict[str, Any]:
        """Return all that the future depends on, as plain data."""
        return {
            "target": self._target, "time": self._time,
            "generator": self.np_random.bit_generator.state,
        }  # fmt: skip

    def set_checkpoint_state(self, state: dict[str, Any]) -> None:
        """Go on exactly where `get_checkpoint_state` was called."""
        self._target, self._time = float(state["target"]), int(state["time"])
        self.np_random.bit_generator.state = state["generator"]

    def _reading(self) -> Floats:
        reading = self._target + self.noise * self.np_random.standard_normal()
        return np.array([reading], dtype=np.float32)

    def _info(self) -> dict[str, Any]:
        return {"privileged": np.array([self._target], dtype=np.float32)}


def exact_filter(
    reading: NDArray[Any], observed: NDArray[np.bool_], decay: float = 0.95, noise: float = 0.3
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Infer the target's mean and variance after each of the readings (…, T), as well as can be.

    Where `observed` is False the reading is missing, whatever stands there, and the filter only
    predicts.
    """
    mean, variance = np.empty(reading.shape), np.empty(reading.shape)
    x, p = np.zeros(reading.shape[:-1]), np.ones(reading.shape[:-1])
    for t in range(reading.shape[-1]):
        if t:
            x, p = decay * x, decay**2 * p + 1 - decay**2
        spread = np.maximum(p + noise**2, np.finfo(float).tiny)
        gain = np.where(observed[..., t], p / spread, 0.0)
        x, p = x + gain * (reading[..., t] - x), (1 - gain) * p
        mean[..., t], variance[..., t] = x, p
    return mean, variance


def filter_error(
    decay: float = 0.95, noise: float = 0.3, horizon: int = 64, missing: float = 0.0, *,
    told: bool = True, episodes: int = 2000, seed: int = 0,
) -> float:  # fmt: skip
    """Simulate the mean squared error of the best estimate; without `told`, of the best linear one.

    With `told`, a Kalman filter leaves out the share `missing` of readings. Without, they are
    zeros like any other reading, and the estimate is the best weighted sum of all readings so far,
    fitted to one half of the episodes and tested on the other.
    """
    rng = np.random.default_rng(seed)
    target = np.empty((episodes, horizon))
    target[:, 0] = rng.standard_normal(episodes)
    kick = 1 - decay**2
    for t in range(1, horizon):
        target[:, t] = decay * target[:, t - 1]
        target[:, t] += np.sqrt(kick) * rng.standard_normal(episodes)
    there = rng.random(target.shape) >= missing
    reading = np.where(there, target + noise * rng.standard_normal(target.shape), 0.0)
    if not told:
        fit, test = slice(0, episodes, 2), slice(1, episodes, 2)
        errors = []
        for t in range(horizon):
            weights = np.linalg.lstsq(reading[fit, : t + 1], target[fit, t], rcond=None)[0]
            errors.append(((reading[test, : t + 1] @ weights - target[test, t]) ** 2).mean())
        return float(np.mean(errors))
    mean, _ = exact_filter(reading, there, decay, noise)
    return float(((mean - target) ** 2).mean())
