"""Actions of a squashed Gaussian: a = tanh(u), u = mean + std ε, ε ~ N(0, 1), with their log π.

See Haarnoja et al. (2018, appendix C). Parameters (…, 2A) are the means, then the logarithms of the
standard deviations, which are clamped to a range. As tensor operations a draw with its gradient is
some fifty launches on a GPU; as kernels of ours, those of an update's steps are two.
"""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

Range = tuple[float, float]


class Draw(NamedTuple):
    """Actions (…, A) and their own -log π (…)."""

    entropy: Tensor
    action: Tensor


def split(parameters: Tensor, log_std_range: Range) -> tuple[Tensor, Tensor]:
    """Return the means and the clamped logarithms of standard deviations, (…, A) each."""
    mean, log_std = parameters.chunk(2, -1)
    return mean, log_std.clamp(*log_std_range)


def draw(parameters: Tensor, noise: Tensor, log_std_range: Range) -> Draw:
    """Return the draws of this noise (…, A), differentiable."""
    mean, log_std = split(parameters, log_std_range)
    raw = mean + log_std.exp() * noise
    return Draw(-log_density(noise, log_std, raw), torch.tanh(raw))


def log_density(noise: Tensor, log_std: Tensor, raw: Tensor) -> Tensor:
    """Σ over A of log N(raw) - log(1 - tanh² raw), with raw = mean + std · noise.

    The latter logarithm is 2 (log 2 - raw - softplus(-2 raw)), which never forms 1 - tanh²: that
    is 0 for large raw.
    """
    gaussian = -0.5 * (noise.square() + math.log(2 * math.pi)) - log_std
    squash = 2 * (math.log(2.0) - raw - F.softplus(-2 * raw))
    return (gaussian - squash).sum(-1)


class Draws(NamedTuple):
    """Draws at tokens (B, T + 1): of all but the last, and, without gradients, all but the first.

    At the one left out, an action and its entropy are 0.
    """

    here: Draw
    next: Draw


def fused_draws(parameters: Tensor, noise: Tensor, log_std_range: Range) -> Draws:
    """Return `draw` of parameters (B, T + 1, 2A) with noise (2, B, T, A), next and here."""
    action, entropy, next_action, next_entropy = FusedDraws.apply(parameters, noise, log_std_range)
    return Draws(Draw(entropy, action), Draw(next_entropy, next_action))


class FusedDraws(torch.autograd.Function):
    """`fused_draws`, one launch each way."""

    @staticmethod
    def forward(
        ctx: Any, parameters: Tensor, noise: Tensor, log_std_range: Range
    ) -> tuple[Tensor, ...]:
        """See `fused_draws`."""
        from kalmanac._ops.squashed_gaussian_kernels import draw_forward

        parameters, noise = parameters.contiguous(), noise.contiguous()
        ctx.save_for_backward(parameters, noise)
        ctx.log_std_range = log_std_range
        actions, entropies = draw_forward(parameters, noise, log_std_range)
        found = (actions[0], entropies[0], actions[1], entropies[1])
        ctx.mark_non_differentiable(*found[2:])
        ctx.set_materialize_grads(False)  # zeros for what has none would be launches
        return found

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, g_action: Tensor | None, g_entropy: Tensor | None, *_: None
    ) -> tuple[Tensor, None, None]:
        """Return the gradient of the parameters."""
        from kalmanac._ops.squashed_gaussian_kernels import draw_backward

        parameters, noise = ctx.saved_tensors
        shape = (*parameters.shape[:2], noise.shape[-1])
        given = parameters.new_zeros(shape) if g_action is None else g_action.contiguous()
        lost = parameters.new_zeros(shape[:2]) if g_entropy is None else g_entropy.contiguous()
        return draw_backward(parameters, noise, given, lost, ctx.log_std_range), None, None
