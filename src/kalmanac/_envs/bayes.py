"""What can be known in Best Arm Identification, and how well a simple use of it does.

The policy that decides once the posterior of the bandit's mean is clear enough is the reference
that figures show. In the adversarial episode (paper, section 5.2 and its figure of latent space
rollouts) the mean is negative, but the first two samples are positive and large.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kalmanac._envs.best_arm import BestArm
from kalmanac._envs.best_arm_rules import ABOVE, ASK, BELOW, Floats, Interval, Rules, posterior

MU, SIGMA = -0.3, 1.0  # of the adversarial episode; the paper names none: a choice
LARGE = 1.0  # each of the first two samples is at least one standard deviation above zero: a choice
TRIES = 10_000  # one seed in a hundred will do
_CHUNK = 250  # episodes simulated at once: their samples fit into the cache


def threshold_policy(mean: ArrayLike, std: ArrayLike, threshold: float) -> NDArray[np.int64]:
    """Decide for the side of the posterior mean where |mean| / std ≥ `threshold`, ask elsewhere."""
    mean, std = np.asarray(mean), np.asarray(std)
    side = np.where(mean > 0, ABOVE, BELOW)
    return np.where(np.abs(mean) >= threshold * std, side, ASK).astype(np.int64)


@dataclass(frozen=True)
class Ceiling:
    """The best fixed threshold on |posterior mean| / std, and what it reaches."""

    threshold: float
    normalized_return: float  # mean return, divided by the reward of a win
    length: float  # mean number of steps, the decision included
    win_rate: float


def bayes_threshold(
    cost: float = 0.0, *, sigma: Interval = (0.0, 2.0), mu: Interval = (-0.5, 0.5),
    horizon: int = 1000, win: float = 10.0, loss: float = -10.0, episodes: int = 20_000,
    seed: int = 0, thresholds: ArrayLike | None = None, decide_at_horizon: bool = False,
) -> Ceiling:  # fmt: skip
    """Find the best threshold: `threshold_policy` with known σ plays the same episodes with each.

    It is the best *fixed threshold*, not the best policy: at cost 0 one that asks until its last
    step and decides there wins more often (`decide_at_horizon=True` with a high threshold).
    `thresholds` are 0.05 to 4 in steps of 0.05 unless given.

    Examples:
        >>> from kalmanac import bayes_threshold
        >>> best = bayes_threshold(cost=0.1, horizon=100, episodes=500)
        >>> 0 < best.threshold < 4, 0.5 < best.win_rate < 1
        (True, True)
    """
    rules = Rules(cost=cost, sigma=sigma, mu=mu, horizon=horizon, win=win, loss=loss)
    grid = np.arange(1, 81) / 20 if thresholds is None else np.asarray(thresholds, np.float64)
    if grid.ndim != 1 or grid.size == 0 or not np.isfinite(grid).all():
        raise ValueError(f"thresholds: got {thresholds!r}, expected a row of finite numbers")
    if episodes < 1:
        raise ValueError(f"episodes: got {episodes!r}, expected at least 1")
    rng = np.random.default_rng(seed)
    totals = np.zeros((3, grid.size))  # return, length, wins
    for start in range(0, episodes, _CHUNK):
        totals += _simulate(rules, grid, min(_CHUNK, episodes - start), rng, decide_at_horizon)
    returns, lengths, wins = totals / episodes
    best = int(np.argmax(returns))
    return Ceiling(
        threshold=float(grid[best]), normalized_return=float(returns[best] / win),
        length=float(lengths[best]), win_rate=float(wins[best]),
    )  # fmt: skip


def _simulate(
    rules: Rules, grid: Floats, episodes: int, rng: np.random.Generator, decide_at_horizon: bool
) -> Floats:
    """Sum up return, length and wins over `episodes` episodes for each threshold, (3, K)."""
    bounds = rules.bounds(())
    mu = rng.uniform(*bounds["mu"], size=(episodes, 1))
    sigma = rng.uniform(*bounds["sigma"], size=(episodes, 1))
    samples = mu + sigma * rng.standard_normal((episodes, rules.horizon))
    counts = np.arange(1, rules.horizon + 1)
    mean, std = posterior(np.cumsum(samples, axis=1), counts, sigma)
    right = (mean > 0) == (mu > 0)  # would a decision after this sample win?
    # Clearest so far: rises with time, so that a threshold is first met where it is first exceeded.
    clarity = np.divide(np.abs(mean), std, out=np.full_like(mean, np.inf), where=std > 0)
    clearest = np.maximum.accumulate(clarity, axis=1)
    questions = np.stack([np.searchsorted(row, grid) for row in clearest])  # (episodes, K)
    decided = questions < rules.horizon
    # the last step pays a decision or the loss
    questions = np.minimum(questions, rules.horizon - 1)
    won = np.take_along_axis(right, questions, axis=1) & (decided | decide_at_horizon)
    returns = np.where(won, rules.win, rules.loss) - rules.cost * questions
    return np.stack([returns.sum(axis=0), (questions + 1).sum(axis=0), won.sum(axis=0)])


def adversarial_settings() -> dict[str, Any]:
    """Give the bandit of the adversarial episode as settings of the environment."""
    return {"mu": (MU, MU), "sigma": (SIGMA, SIGMA)}


def adversarial_seed(settings: Mapping[str, Any], start: int = 0) -> int:
    """Find the first seed, counting from `start`, whose first two samples mislead.

    It depends on no agent: all of them can be shown the same episode.
    """
    env = BestArm(**{**settings, **adversarial_settings(), "horizon": 2})
    for seed in range(start, start + TRIES):
        first, _ = env.reset(seed=seed)
        second, *_ = env.step(np.int64(ASK))
        if min(first[0], second[0]) >= LARGE * SIGMA:
            return seed
    raise ValueError(f"seed: got {start}, expected one with a misleading episode soon after it")
