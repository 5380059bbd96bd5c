"""Best Arm Identification on a device: as many bandits as one likes, one episode each.

The rules are those of `kalmanac.envs.best_arm_rules`; nothing is read back to the host. Random
numbers come in from outside, so that the same ones give the episodes that the environments play.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kalmanac.envs.bayes import posterior_of
from kalmanac.envs.best_arm_rules import ASK, Rules, between, outcome, sample


class Bandits(NamedTuple):
    """n episodes, at a step or at their end. All (n,), float64 unless they say otherwise."""

    mu: Tensor
    sigma: Tensor
    shown: Tensor  # the last sample
    total: Tensor  # of all samples
    asked: Tensor  # how many samples that is
    reward: Tensor  # undiscounted return so far
    length: Tensor  # int64: steps
    last_action: Tensor  # int64
    won: Tensor  # bool
    over: Tensor  # bool: what happens from now on does not count

    def observation(self, *, privileged: bool = False) -> Tensor:
        """The sample, (n, 1) float32, or what Oracle sees: posterior mean and std, (n, 2)."""
        if not privileged:
            return self.shown.float()[:, None]
        return torch.stack(posterior_of(torch, self.total, self.asked, self.sigma), 1).float()


class BanditRules:
    """The rules of n bandits, each with those of one of `rules`: `many` of each, in their order."""

    def __init__(self, rules: Sequence[Rules], many: int, device: torch.device) -> None:
        def each(values: list[NDArray[np.float64]]) -> Tensor:
            return torch.from_numpy(np.concatenate(values)).to(device)

        self.n = many * len(rules)
        bounds = [one.bounds((many,)) for one in rules]
        self._low, self._high = (
            {name: each([b[name][side] for b in bounds]) for name in ("mu", "sigma")}
            for side in (0, 1)
        )
        self._pays = {
            name: each([np.full(many, getattr(one, name), np.float64) for one in rules])
            for name in ("horizon", "cost", "win", "loss")
        }

    def begin(self, uniform: Tensor, noise: Tensor) -> Bandits:
        """New bandits from numbers in [0, 1), (2, n), and their first samples from noise (n,)."""
        mu = between(self._low["mu"], self._high["mu"], uniform[0])
        sigma = between(self._low["sigma"], self._high["sigma"], uniform[1])
        shown = sample(mu, sigma, noise)
        nothing = torch.zeros_like(mu)
        never = torch.zeros_like(mu, dtype=torch.bool)
        steps = torch.zeros_like(mu, dtype=torch.int64)
        return Bandits(
            mu, sigma, shown, 0.0 + shown, nothing + 1, nothing, steps, steps, never, never
        )

    def step(self, bandits: Bandits, action: Tensor, noise: Tensor) -> Bandits:
        """Ask or decide, (n,) int64; noise (n,) is for the samples."""
        found = outcome(torch, action, bandits.mu, bandits.asked, **self._pays)
        asks, counts = action == ASK, ~bandits.over
        shown = torch.where(asks, sample(bandits.mu, bandits.sigma, noise), bandits.shown)
        return Bandits(
            mu=bandits.mu,
            sigma=bandits.sigma,
            shown=shown,
            total=torch.where(asks, bandits.total + shown, bandits.total),
            asked=bandits.asked + asks,
            reward=torch.where(counts, bandits.reward + found.reward, bandits.reward),
            length=bandits.length + counts,
            last_action=torch.where(counts, action, bandits.last_action),
            won=bandits.won | (counts & found.won),
            over=bandits.over | found.ended,
        )
