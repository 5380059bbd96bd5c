"""From a continuous diagonal system to one step of it: zero-order hold (paper, section 4.2).

With Ã = -exp(log_rate) and a step size Δ = softplus(raw_step):

    a = exp(Δ Ã),   b = (a - 1) / Ã · B̃.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from kalmanac._ops.dispatch import fused, watched


def zero_order_hold(
    log_rate: Tensor, gain: Tensor | None, raw_step: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Compute a (N,) and b (N,) of log |Ã| (N,), B̃ (N,) and Δ̃ (); b is None without a gain.

    On CUDA this is one kernel in each direction, else some twenty launches for a hundred numbers.
    """
    if fused(log_rate) and not watched():
        return FusedHold.apply(log_rate, gain, raw_step)
    return plain_hold(log_rate, gain, raw_step)


def plain_hold(
    log_rate: Tensor, gain: Tensor | None, raw_step: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Compute `zero_order_hold` as it is written."""
    rate = -log_rate.exp()
    exponent = F.softplus(raw_step) * rate
    a = exponent.exp()
    return a, None if gain is None else torch.expm1(exponent) / rate * gain


class FusedHold(torch.autograd.Function):
    """The GPU's form."""

    @staticmethod
    def forward(
        ctx: Any, log_rate: Tensor, gain: Tensor | None, raw_step: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """See `zero_order_hold`."""
        from kalmanac._ops.hold_kernels import hold_forward

        ctx.save_for_backward(log_rate, gain, raw_step)
        return hold_forward(log_rate, gain, raw_step)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_a: Tensor, g_b: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the gradients of the system."""
        from kalmanac._ops.hold_kernels import hold_backward

        slopes = g_a.contiguous(), None if g_b is None else g_b.contiguous()
        return hold_backward(ctx.saved_tensors, *slopes)
