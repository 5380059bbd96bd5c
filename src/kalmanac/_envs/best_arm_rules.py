"""The rules of Best Arm Identification (paper, section 5.2), and what can be inferred of a bandit.

They stand once, as functions of arrays (n,) of any library that has numpy's names (`xp`): numpy in
the environments of `best_arm`, torch where episodes are played beside an agent on its device. The
numbers that the paper leaves open are named settings.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

ASK, ABOVE, BELOW = 0, 1, 2

# The variance of the uniform prior on (−1/2, 1/2), and so that of the Gaussian in its place.
PRIOR_VARIANCE = 1 / 12

Interval = tuple[ArrayLike, ArrayLike]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Rules:
    """The rules say what an episode is drawn from and what it pays.

    `mu` and `sigma` are intervals (low, high) of uniform distributions; low = high fixes the value.
    In a vectorized environment each bound may also be an array with one value for each bandit.
    """

    cost: float = 0.0  # ρ: what asking once costs
    sigma: Interval = (0.0, 2.0)
    mu: Interval = (-0.5, 0.5)
    horizon: int = 1000  # steps until the episode ends as lost
    win: float = 10.0
    loss: float = -10.0

    def __post_init__(self) -> None:
        for name in ("cost", "win", "loss"):
            number = getattr(self, name)
            if not isinstance(number, int | float | np.number) or not np.isfinite(number):
                raise ValueError(f"{name}: got {number!r}, expected a finite number")
        if self.cost < 0:
            raise ValueError(f"cost: got {self.cost!r}, expected a number of at least 0")
        if self.win <= self.loss:
            raise ValueError(f"win: got {self.win!r}, expected more than the loss, {self.loss!r}")
        steps = self.horizon
        if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1:
            raise ValueError(f"horizon: got {self.horizon!r}, expected an integer of at least 1")

    def bounds(self, shape: tuple[int, ...]) -> dict[str, tuple[Floats, Floats]]:
        """Return the intervals of "mu" and "sigma", each bound an array of this shape."""
        return {
            "mu": interval_of("mu", self.mu, shape, -np.inf),
            "sigma": interval_of("sigma", self.sigma, shape, 0.0),
        }


class Bandits(NamedTuple):
    """n bandits in the middle of their episodes: float64 arrays (n,) of numpy or of torch."""

    mu: Any
    sigma: Any
    sample: Any  # the last one
    total: Any  # the sum of all samples
    count: Any  # the number of samples, and so that of the coming step


class Outcome(NamedTuple):
    """An outcome is what an action leads to in each of n bandits."""

    ended: Any  # (n,) bool: a decision, or a question in the last step
    won: Any  # (n,) bool
    reward: Any  # (n,)


def between(low: Any, high: Any, uniform: Any) -> Any:
    """Draw a mean or a noise from its interval, given a number that is uniform in [0, 1)."""
    return low + (high - low) * uniform


def begin(xp: Any, mu: Any, sigma: Any, noise: Any) -> Bandits:
    """Begin episodes with a first sample, given standard normal numbers."""
    sample = mu + sigma * noise
    return Bandits(mu, sigma, sample, 0.0 + sample, xp.ones_like(sample))


def ask(xp: Any, bandits: Bandits, asked: Any, noise: Any) -> Bandits:
    """Draw one more sample where `asked` is True, given standard normal numbers."""
    mu, sigma, sample, total, count = bandits
    sample = xp.where(asked, mu + sigma * noise, sample)
    return Bandits(mu, sigma, sample, xp.where(asked, total + sample, total), count + asked)


def outcome(
    xp: Any, action: Any, bandits: Bandits, *, horizon: Any, cost: Any, win: Any, loss: Any
) -> Outcome:
    """Compute what asking or deciding pays, and where it ends an episode."""
    decided = action != ASK
    ended = decided | (bandits.count >= horizon)
    won = decided & ((action == ABOVE) == (bandits.mu > 0))
    return Outcome(ended, won, xp.where(ended, xp.where(won, win, loss), 0.0 - cost))


def posterior_of(
    xp: Any, total: Any, count: Any, sigma: Any, prior_variance: float = PRIOR_VARIANCE
) -> tuple[Any, Any]:
    """Compute the mean and standard deviation of `posterior` for float64 arrays."""
    noise = sigma * sigma
    evidence = noise + count * prior_variance
    # No evidence: σ = 0 before the first sample. The prior stands.
    informed = evidence > 0
    scale = prior_variance / xp.where(informed, evidence, xp.ones_like(evidence))
    std = xp.sqrt(xp.where(informed, scale * noise, xp.full_like(evidence, prior_variance)))
    return scale * total, std


def posterior(
    total: ArrayLike, count: ArrayLike, sigma: ArrayLike, *,
    prior_variance: float = PRIOR_VARIANCE,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Infer mean and std of μ from `count` samples of N(μ, σ²) that add up to `total`.

    Conjugate normal with known σ and prior N(0, v): mean = v·total / (σ² + count·v) and
    variance = v·σ² / (σ² + count·v). Without noise one sample tells μ exactly. This is what the
    Oracle observes (paper, section 5.2, figure 3).
    """
    total, count, sigma = (np.asarray(x, dtype=np.float64) for x in (total, count, sigma))
    return posterior_of(np, total, count, sigma, prior_variance)


def interval_of(
    name: str, value: Any, shape: tuple[int, ...], least: float
) -> tuple[Floats, Floats]:
    """Return both bounds of an interval as arrays of this shape, or raise ValueError."""
    try:
        low, high = value
    except (TypeError, ValueError):
        raise ValueError(f"{name}: got {value!r}, expected an interval (low, high)") from None
    low, high = values_of(name, low, shape), values_of(name, high, shape)
    if (low > high).any() or (low < least).any():
        floor = "" if least == -np.inf else f"{least:g} ≤ "
        raise ValueError(f"{name}: got {value!r}, expected {floor}low ≤ high")
    return low, high


def values_of(name: str, value: Any, shape: tuple[int, ...]) -> Floats:
    """Return a number, or one for each bandit, as an array of this shape, or raise ValueError."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: got {value!r}, expected numbers") from None
    if array.shape not in ((), shape):
        expected = "a number" + (f" or {shape[0]} of them" if shape else "")
        raise ValueError(f"{name}: got shape {array.shape}, expected {expected}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: got {value!r}, expected finite values")
    return np.broadcast_to(array, shape).copy()
