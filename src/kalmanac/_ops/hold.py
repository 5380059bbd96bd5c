"""From a continuous diagonal system to one step of it: zero-order hold (paper, section 4.2).

With Ã = -exp(log_rate) and a step size Δ = softplus(raw_step):

    a = exp(Δ Ã),   b = (a - 1) / Ã · B̃.

These are some twenty operations for a hundred numbers. On a GPU, one program more of the launch
that projects to a scan's signals has them, and one more of the launch that ends its backward, where
that projection has a launch of ours (`takes_dense`); elsewhere they are plain operations.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from kalmanac._ops.dense import dense_gradients, fused_dense, takes_dense

System = tuple[Tensor, Tensor | None, Tensor]


def zero_order_hold(
    log_rate: Tensor, gain: Tensor | None, raw_step: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Compute a (N,) and b (N,) of log |Ã| (N,), B̃ (N,) and Δ̃ (); b is None without a gain."""
    rate = -log_rate.exp()
    exponent = F.softplus(raw_step) * rate
    a = exponent.exp()
    return a, None if gain is None else torch.expm1(exponent) / rate * gain


def holds_beside(h: Tensor, weight: Tensor, bias: Tensor | None, log_rate: Tensor) -> bool:
    """Return whether `project_and_hold` takes these."""
    return takes_dense(h, weight, bias) and log_rate.dtype == h.dtype and h.numel() > 0


def project_and_hold(
    system: System, h: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return h (…, n) times weight (m, n) plus bias (m,), and `zero_order_hold` of the system."""
    return ProjectAndHold.apply(*system, h, weight, bias)


class ProjectAndHold(torch.autograd.Function):
    """`project_and_hold`, differentiable."""

    @staticmethod
    def forward(
        ctx: Any, log_rate: Tensor, gain: Tensor | None, raw_step: Tensor, h: Tensor,
        weight: Tensor, bias: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
        """See `project_and_hold`."""
        from kalmanac._ops.hold_kernels import holding

        system = log_rate, gain, raw_step
        ctx.save_for_backward(*system, h, weight)
        a, b, beside = holding(system)
        return fused_dense(h, weight, bias, beside=beside), a, b

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, g_y: Tensor, g_a: Tensor, g_b: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """Return the gradients of the system, the rows, if needed, the weight and the bias."""
        from kalmanac._ops.hold_kernels import unholding

        *system, h, weight = ctx.saved_tensors
        found, beside = unholding(system, g_a, g_b)
        return *found, *dense_gradients(h, weight, g_y, ctx.needs_input_grad[3], True, beside)
