"""A linear layer on many rows: y = x Wᵀ + b.

On a GPU with TF32 products, the gradients of W and b are two launches together; from libraries they
are five, and the sums over rows that make b's take longer than the products.

On a CPU, PyTorch first writes b to all of y and then adds the product, and sums up all of y's
gradient once more for b. With 16 inputs that takes five times as long as the product itself. There
the bias can be the weight of a one that stands beside x (`bias_as_weight`).
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from kalmanac._ops.dispatch import differentiates, fused_cpu, fused_products

MOST = 512  # inputs or outputs: beyond it, libraries are faster


def dense(
    x: Tensor, weight: Tensor, bias: Tensor | None, *, bias_as_weight: bool = False
) -> Tensor:
    """Compute x (…, n) times weight (m, n) plus bias (m,): (…, m)."""
    if bias is not None:
        if takes_dense(x, weight, bias):
            if differentiates(x, weight, bias):
                return FusedDense.apply(x, weight, bias)
            return fused_dense(x, weight, bias)
        if bias_as_weight and fused_cpu(x):
            return JoinedDense.apply(x, weight, bias)
    return F.linear(x, weight, bias)


def takes_dense(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Return whether the GPU's form takes these."""
    return bias is not None and fused_products(x, weight) and max(weight.shape) <= MOST


class JoinedDense(torch.autograd.Function):
    """One product forward and two backward, no other pass over the outputs: the CPU's form."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """See `dense`."""
        wide = F.pad(x, (0, 1), value=1.0)
        ctx.save_for_backward(wide, weight)
        return wide @ torch.cat([weight, bias[:, None]], 1).mT

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_y: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        """Return the gradients of x, if needed, the weight and the bias."""
        wide, weight = ctx.saved_tensors
        into = g_y @ weight if ctx.needs_input_grad[0] else None
        rows, slopes = wide.flatten(0, -2), g_y.flatten(0, -2)
        room = room_for(rows, slopes)  # transposed: half the time of g_yᵀ wide
        add_product(room, rows, slopes)
        g_joined = room.sum(0).mT
        return into, g_joined[:, :-1], g_joined[:, -1]


def fused_dense(
    x: Tensor, weight: Tensor, bias: Tensor, *, exact: bool = False, beside: Any = None
) -> Tensor:
    """Compute the GPU's form. `exact`: factors are not rounded; `beside`: see `dense_kernels`."""
    from kalmanac._ops.dense_kernels import product

    rows = x.reshape(-1, x.shape[-1])
    rows = rows if rows.stride(1) == 1 else rows.contiguous()
    y = product(rows, weight.mT, bias.contiguous(), exact=exact, beside=beside)
    return y.view(*x.shape[:-1], len(weight))


class FusedDense(torch.autograd.Function):
    """`fused_dense`, differentiable."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """See `dense`."""
        ctx.save_for_backward(x, weight)
        return fused_dense(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_y: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the rows, the weight and the bias, as far as they are needed."""
        x, weight = ctx.saved_tensors
        of_x, *of_layer = ctx.needs_input_grad
        return dense_gradients(x, weight, g_y, of_x, any(of_layer))


def dense_gradients(
    x: Tensor, weight: Tensor, g_y: Tensor, of_x: bool, of_layer: bool, beside: Any = None
) -> tuple[Tensor | None, ...]:
    """Return the gradients of the rows, and of the weight and the bias, if asked for."""
    from kalmanac._ops.dense_kernels import gradients, product

    slope = g_y.reshape(1, -1, g_y.shape[-1]).contiguous()
    into = product(slope[0], weight, None, exact=False).view(x.shape) if of_x else None
    if not of_layer:
        return into, None, None
    rows = x.reshape(1, -1, x.shape[-1]).contiguous()
    ((g_weights, biases),) = gradients([(rows, slope)], True, exact=False, beside=beside)
    return into, g_weights[0].mT, biases[0, 0]


def room_for(x: Tensor, y: Tensor) -> Tensor:
    """Zeros (threads, n, m) for products of x (rows, n) and y (rows, m), made by `add_product`.

    MKL's threads wait for each other inside xᵀ y over many rows, as the gradients of weights are.
    As one product of a part of the rows for each thread, summed up at the end, it takes a quarter
    to a third less time on two threads, and far less where another program keeps one of them
    waiting.
    """
    return y.new_zeros(torch.get_num_threads(), x.shape[-1], y.shape[-1])


def add_product(room: Tensor, x: Tensor, y: Tensor) -> None:
    """Add xᵀ y to the sum of `room`, a part of the rows to each of its matrices."""
    parts = len(room)
    each = len(x) // parts
    even = each * parts
    if each:
        left, right = (z[:even].unflatten(0, (parts, each)) for z in (x, y))
        room.baddbmm_(left.mT, right)
    if even < len(x):
        room[0].addmm_(x[even:].mT, y[even:])
