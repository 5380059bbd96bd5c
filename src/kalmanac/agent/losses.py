"""Soft actor-critic's losses as pure functions of numbers (Haarnoja et al., 2019).

`valid` (B, T) bool says which steps count. What stands at the others, NaN included, reaches neither
a loss nor a gradient.
"""

import torch.nn.functional as F
from torch import Tensor


def masked_mean(x: Tensor, valid: Tensor) -> Tensor:
    """The mean of x (…, B, T) over the valid steps; 0 if there are none."""
    copies = x.numel() // max(valid.numel(), 1)
    return x.masked_fill(~valid, 0).sum() / (valid.sum() * copies).clamp(min=1)


def bootstrap_target(
    reward: Tensor, terminated: Tensor, next_value: Tensor, gamma: float
) -> Tensor:
    """y = r + γ V(next), without the value where the episode terminated; truncation keeps it."""
    return reward + gamma * next_value.masked_fill(terminated, 0)


def critic_loss(q: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Σ over the twins (2, B, T) of the mean squared distance to the target (B, T)."""
    # masked before the square: its derivative at a NaN would be NaN, even times zero
    off = (q - target).masked_fill(~valid, 0)
    return off.square().sum() / valid.sum().clamp(min=1)


def actor_loss(value: Tensor, valid: Tensor) -> Tensor:
    """Minus the mean soft value."""
    return -masked_mean(value, valid)


def cross_entropy_loss(log_policy: Tensor, q: Tensor, temperature: Tensor, valid: Tensor) -> Tensor:
    """-α Σ_a softmax(Q/α) log π(a), averaged; log_policy (B, T, A), q (2, B, T, A).

    Its optimum is the soft value's, π = softmax(Q/α). Its gradient in the logits is
    α (π - softmax(Q/α)), while that of the value is proportional to π(a): an action whose
    probability has once become zero in float32 can come back only here.
    """
    goal = F.softmax(q.amin(0) / temperature, -1)
    return -temperature * masked_mean((goal * log_policy).sum(-1), valid)


def temperature_loss(log_alpha: Tensor, entropy: Tensor, goal: float, valid: Tensor) -> Tensor:
    """log α · mean(entropy - goal): α rises while the entropy is below its goal."""
    return log_alpha * (masked_mean(entropy.detach(), valid) - goal)
