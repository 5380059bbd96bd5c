"""Best Arm Identification: the rules that the single and the vectorised environments share.

Paper, section 5.2. The numbers that the paper leaves open are named settings here. What many
bandits do at once is written for the arrays of any library that has numpy's names (`xp`).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from kalmanac.envs.generators import check_state as check_state
from kalmanac.envs.generators import generator as generator

ASK, ABOVE, BELOW = 0, 1, 2

# The variance of the uniform prior on (−1/2, 1/2), and so that of the Gaussian in its place.
PRIOR_VARIANCE = 1 / 12

Interval = tuple[ArrayLike, ArrayLike]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rules:
    """What an episode is drawn from and what it pays.

    `mu` and `sigma` are intervals (low, high) of uniform distributions; low = high fixes the value.
    In a vectorised environment each bound may also be an array with one value for each bandit.
    """

    cost: float = 0.0  # ρ: what asking once costs
    sigma: Interval = (0.0, 2.0)
    mu: Interval = (-0.5, 0.5)
    horizon: int = 1000  # steps until the episode ends as lost
    win: float = 10.0
    loss: float = -10.0

    def __post_init__(self) -> None:
        for name in ("cost", "win", "loss"):
            if not np.isfinite(getattr(self, name)):
                raise ValueError(f"{name}: got {getattr(self, name)!r}, expected a finite number")
        if self.cost < 0:
            raise ValueError(f"cost: got {self.cost!r}, expected a number of at least 0")
        if self.win <= self.loss:
            raise ValueError(f"win: got {self.win!r}, expected more than the loss, {self.loss!r}")
        steps = self.horizon
        if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1:
            raise ValueError(f"horizon: got {self.horizon!r}, expected an integer of at least 1")

    def bounds(self, shape: tuple[int, ...]) -> dict[str, tuple[Floats, Floats]]:
        """The intervals of "mu" and "sigma", each bound an array of this shape."""
        return {
            "mu": _interval("mu", self.mu, shape, -np.inf),
            "sigma": _interval("sigma", self.sigma, shape, 0.0),
        }


class Outcome(NamedTuple):
    """What an action leads to in each of n bandits."""

    ended: Any  # (n,) bool: a decision, or a question in the last step
    won: Any  # (n,) bool
    reward: Any  # (n,)


def outcome(
    xp: Any, action: Any, mu: Any, count: Any, *, horizon: Any, cost: Any, win: Any, loss: Any
) -> Outcome:
    """Ask or decide in n bandits of means `mu` (n,) that have shown `count` (n,) samples."""
    decided = action != ASK
    ended = decided | (count >= horizon)
    won = decided & ((action == ABOVE) == (mu > 0))
    return Outcome(ended, won, xp.where(ended, xp.where(won, win, loss), 0.0 - cost))


def between(low: Any, high: Any, uniform: Any) -> Any:
    """A mean or a noise, from a number that is uniform in [0, 1)."""
    return low + (high - low) * uniform


def sample(mu: Any, sigma: Any, noise: Any) -> Any:
    """What a bandit shows, from a standard normal number."""
    return mu + sigma * noise


def fixed(options: dict[str, Any] | None, shape: tuple[int, ...]) -> dict[str, Floats]:
    """The means and standard deviations that a reset's `options` ask for, of this shape."""
    values = {}
    for name, value in (options or {}).items():
        if name not in ("mu", "sigma"):
            raise ValueError(f"options: got {name!r}, expected 'mu' or 'sigma'")
        values[name] = _values(f"options[{name!r}]", value, shape)
        if name == "sigma" and (values[name] < 0).any():
            raise ValueError(f"options['sigma']: got {value!r}, expected values of at least 0")
    return values


def observation_space() -> spaces.Box[np.float32]:
    """One sample of the bandit, any float.

    The same space for every `sigma`, so that an agent can be evaluated where it was not trained;
    with finite bounds, because Gymnasium's checker asks for them.
    """
    largest = float(np.finfo(np.float32).max)
    return spaces.Box(-largest, largest, shape=(1,), dtype=np.float32)


def privileged_space() -> spaces.Box:
    """The posterior mean and standard deviation of the bandit's mean."""
    largest = np.finfo(np.float32).max
    widest = np.float32(np.sqrt(PRIOR_VARIANCE))
    return spaces.Box(
        np.array([-largest, 0], np.float32), np.array([largest, widest], np.float32),
        dtype=np.float32,
    )  # fmt: skip


def _interval(name: str, value: Any, shape: tuple[int, ...], least: float) -> tuple[Floats, Floats]:
    try:
        low, high = value
    except (TypeError, ValueError):
        raise ValueError(f"{name}: got {value!r}, expected an interval (low, high)") from None
    low, high = _values(name, low, shape), _values(name, high, shape)
    if (low > high).any() or (low < least).any():
        floor = "" if least == -np.inf else f"{least:g} ≤ "
        raise ValueError(f"{name}: got {value!r}, expected {floor}low ≤ high")
    return low, high


def _values(name: str, value: Any, shape: tuple[int, ...]) -> Floats:
    array = np.asarray(value, dtype=np.float64)
    if array.shape not in ((), shape):
        expected = "a number" + (f" or {shape[0]} of them" if shape else "")
        raise ValueError(f"{name}: got shape {array.shape}, expected {expected}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: got {value!r}, expected finite values")
    return np.broadcast_to(array, shape).copy()
