"""Soft actor-critic's losses as pure functions of numbers (Haarnoja et al., 2019).

`Counted` says which steps count. What stands at the others, NaN included, reaches neither a loss
nor a gradient.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor


class Objective(NamedTuple):
    """What a discrete actor climbs: the soft value, the cross-entropy times a weight, or both."""

    value: bool
    cross_entropy: float


# Mixed: the value leads where actions are likely, the rest brings back those that hardly are.
OBJECTIVES: Mapping[str, Objective] = {
    "value": Objective(True, 0.0),
    "cross-entropy": Objective(False, 1.0),
    "mixed": Objective(True, 0.1),
}


class Counted(NamedTuple):
    """The steps (B, T) that count, in the two forms that means need: made once for all of them."""

    left_out: Tensor  # (B, T) bool: True where a step does not count
    number: Tensor  # () int64: how many count, but at least 1

    @staticmethod
    def of(valid: Tensor) -> "Counted":
        """Those where `valid` (B, T)."""
        return Counted(~valid, valid.sum().clamp(min=1))

    def mean(self, x: Tensor) -> Tensor:
        """The means of x (…, B, T), (…); 0 if no step counts."""
        return x.masked_fill(self.left_out, 0).sum((-2, -1)) / self.number


def bootstrap_target(
    reward: Tensor, terminated: Tensor, next_value: Tensor, gamma: float
) -> Tensor:
    """y = r + γ V(next), without the value where the episode terminated; truncation keeps it."""
    return reward.add(next_value.masked_fill(terminated, 0), alpha=gamma)


def critic_loss(q: Tensor, target: Tensor, steps: Counted) -> Tensor:
    """Σ over the twins (2, B, T) of the mean squared distance to the target (B, T)."""
    # masked before the square: its derivative at a NaN would be NaN, even times zero
    off = (q - target).masked_fill(steps.left_out, 0)
    return off.square().sum() / steps.number


def actor_loss(value: Tensor, steps: Counted) -> Tensor:
    """Minus the mean soft value."""
    return -steps.mean(value)


def cross_entropy_loss(
    log_policy: Tensor,
    q: Tensor,
    temperature: Tensor,
    steps: Counted,
    allowed: Tensor | None = None,
) -> Tensor:
    """-α Σ_a softmax(Q/α) log π(a), averaged; log_policy (B, T, A), q (2, B, T, A).

    The softmax is one among the actions that `allowed` (B, T, A) allows.

    Its optimum is the soft value's, π = softmax(Q/α). Its gradient in the logits is
    α (π - softmax(Q/α)), while that of the value is proportional to π(a): an action whose
    probability has once become zero in float32 can come back only here. But where an actor cannot
    tell states apart, this averages their softmaxes, which is a more random policy than the value's
    softmax of their average.
    """
    lower = q.amin(0) / temperature
    if allowed is not None:
        lower = lower.masked_fill(~allowed, -math.inf)
    goal = F.softmax(lower, -1)
    return -temperature * steps.mean((goal * log_policy).sum(-1))


def temperature_loss(log_alpha: Tensor, entropy: Tensor, goal: float | Tensor) -> Tensor:
    """log α · (mean entropy - goal): α rises while the entropy is below its goal."""
    return log_alpha * (entropy.detach() - goal)
