"""A linear layer on the many rows of a batch, in few launches on a GPU."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from kalmanac.ops import gpu
from kalmanac.ops.late import late

_product = late("kalmanac.ops.gpu.product_kernels", "product")
_gradients = late("kalmanac.ops.gpu.product_kernels", "gradients")
MOST = 512  # inputs or outputs: beyond it, libraries are faster


class FusedLinear(nn.Linear):
    """y = W x + b, as `nn.Linear`: the same parameters, names and initial values.

    On a GPU with TF32 products, the gradients of W and b are two launches together; from libraries
    they are five, and the sums over rows that make b's take longer than the products.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) to (…, outputs)."""
        if not x.is_cuda or torch.compiler.is_compiling() or not self._small(x):
            return super().forward(x)
        wanted = (x, self.weight, self.bias)
        if torch.is_grad_enabled() and any(t.requires_grad for t in wanted):
            return FusedAffine.apply(x, self.weight, self.bias)
        return forward(x, self.weight, self.bias)

    def _small(self, x: Tensor) -> bool:
        plain = self.weight.dtype == x.dtype and self.bias is not None
        plain = plain and not torch.is_autocast_enabled("cuda")
        return plain and max(self.weight.shape) <= MOST and gpu.rounds_products(x)


def forward(x: Tensor, weight: Tensor, bias: Tensor, *, exact: bool = False) -> Tensor:
    """The layer's output."""
    rows = x.reshape(-1, x.shape[-1])
    rows = rows if rows.stride(1) == 1 else rows.contiguous()
    return _product(rows, weight.mT, bias, exact=exact).view(*x.shape[:-1], len(weight))


class FusedAffine(torch.autograd.Function):
    """`forward`, differentiable."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """See `FusedLinear`."""
        ctx.save_for_backward(x, weight)
        return forward(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the rows, if wanted, the weight and the bias."""
        x, weight = ctx.saved_tensors
        slope = given.reshape(1, -1, given.shape[-1]).contiguous()
        into = g_weight = g_bias = None
        if ctx.needs_input_grad[0]:
            into = _product(slope[0], weight, None, exact=False).view(x.shape)
        if any(ctx.needs_input_grad[1:]):
            rows = x.reshape(1, -1, x.shape[-1]).contiguous()
            ((found, biases),) = _gradients([(rows, slope)], True, exact=False)
            g_weight, g_bias = found[0].mT, biases[0, 0]
        return into, g_weight, g_bias
