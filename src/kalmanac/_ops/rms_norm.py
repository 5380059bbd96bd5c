"""RMSNorm over the last axis: y = x / √(mean(x²) + ε) · w (Zhang & Sennrich, 2019).

PyTorch's kernels for a GPU take a block of threads for every row; ours take many short ones.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from kalmanac._ops.dispatch import fused, watched

MOST = 128  # numbers a row


class RMSNorm(nn.RMSNorm):
    """The same parameters and names as PyTorch's."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (…, n) to (…, n)."""
        if fused(x) and not watched() and x.shape[-1] <= MOST and x.dtype == self.weight.dtype:
            return FusedRMSNorm.apply(x, self.weight, self.eps)
        return super().forward(x)


class FusedRMSNorm(torch.autograd.Function):
    """The GPU's form."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """See `RMSNorm`."""
        from kalmanac._ops.rms_norm_kernels import norm

        rows = x.reshape(-1, x.shape[-1]).contiguous()
        y, done = norm(rows, weight, eps)
        ctx.save_for_backward(rows, weight, done)
        ctx.eps = eps
        return y.view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        """Return the gradients of the rows and the weight."""
        from kalmanac._ops.rms_norm_kernels import norm_gradients

        rows, weight, done = ctx.saved_tensors
        slopes = g.reshape(rows.shape).contiguous()
        into, g_weight = norm_gradients(rows, weight, ctx.eps, done, slopes)
        return into.view(g.shape), g_weight, None
