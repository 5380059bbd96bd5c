"""K perceptrons on the same rows, as a GPU likes them: few, wide operations.

A graph of small kernels takes its time by their number. Bias and ReLU are part of the products; all
rows go at once; every gradient comes out in the layout of its parameter.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def run(parts: Sequence[Tensor], weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
    """Weights (K, n, m) and biases (K, 1, m) on parts (…, n') side by side: (K, …, m)."""
    tensors = (*parts, *weights, *biases)
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        return WideLayers.apply(len(parts), *tensors)
    y, _, _ = forward(parts, weights, biases)
    return y.unflatten(1, parts[0].shape[:-1])


def forward(
    parts: Sequence[Tensor], weights: Sequence[Tensor], biases: Sequence[Tensor]
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """The output (K, rows, m), the input (rows, n), and the hidden layers (K, rows, m)."""
    rows = [part.reshape(-1, part.shape[-1]) for part in parts]
    x = torch.cat(rows, 1) if len(rows) > 1 else rows[0]
    y, hidden = x.expand(len(weights[0]), *x.shape), []
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        if i > 0:
            hidden.append(y)
        y = layer(y, weight, bias, relu=i < len(weights) - 1)
    return y, x, hidden


def layer(x: Tensor, weight: Tensor, bias: Tensor, *, relu: bool) -> Tensor:
    """x (K, rows, n) times weight (K, n, m) plus bias (K, 1, m): (K, rows, m)."""
    y = x.new_empty(*x.shape[:2], weight.shape[2])
    for k in range(len(weight)):
        if relu:
            torch.ops.aten._addmm_activation.out(bias[k, 0], x[k], weight[k], out=y[k])
        else:
            torch.addmm(bias[k, 0], x[k], weight[k], out=y[k])
    return y


class WideLayers(torch.autograd.Function):
    """`forward`, differentiable."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor) -> Tensor:
        """See `run`."""
        parts, layers = tensors[:count], tensors[count:]
        depth = len(layers) // 2
        y, x, hidden = forward(parts, layers[:depth], layers[depth:])
        ctx.shapes, ctx.depth = [part.shape for part in parts], depth
        ctx.save_for_backward(x, *hidden, *layers[:depth])
        return y.unflatten(1, parts[0].shape[:-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the parts that want one, the weights and the biases."""
        shapes, depth = ctx.shapes, ctx.depth
        x, *kept = ctx.saved_tensors
        hidden, weights = kept[: depth - 1], kept[depth - 1 :]
        needs = ctx.needs_input_grad[1:]
        wanted, learns = needs[: len(shapes)], any(needs[len(shapes) :])
        g_weights: list[Tensor | None] = [None] * depth
        g_biases: list[Tensor | None] = [None] * depth
        slope = given.reshape(len(weights[0]), -1, given.shape[-1])
        for i in reversed(range(depth)):
            before = hidden[i - 1] if i > 0 else x.expand(len(slope), *x.shape)
            if learns:
                g_weights[i] = summed_product(before, slope)
                g_biases[i] = slope.sum(1, keepdim=True)
            if i > 0:
                slope = torch.bmm(slope, weights[i].mT)
                torch.ops.aten.threshold_backward.grad_input(slope, before, 0, grad_input=slope)
        into: list[Tensor | None] = []
        begin = 0
        for shape, wants in zip(shapes, wanted, strict=True):
            own = weights[0][:, begin : begin + shape[-1]]
            into.append(torch.bmm(slope, own.mT).sum(0).view(shape) if wants else None)
            begin += shape[-1]
        return None, *into, *g_weights, *g_biases


def summed_product(x: Tensor, y: Tensor) -> Tensor:
    """xᵀ y for x (K, rows, n) and y (K, rows, m): (K, n, m).

    A sum over many rows with a small result would keep few of a GPU's processors busy: the rows
    are cut into parts that are summed side by side.
    """
    parts = math.gcd(x.shape[1], 64 if x.shape[2] * y.shape[2] < 2**14 else 8)
    if parts == 1:
        return torch.bmm(x.mT, y)
    rows = x.shape[1] // parts
    left, right = (z.reshape(len(z) * parts, rows, z.shape[2]) for z in (x, y))
    return torch.bmm(left.mT, right).unflatten(0, (len(x), parts)).sum(1)
