"""K perceptrons on the same rows through kernels of the GPU backend (`ops/gpu/head_kernels.py`)."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kalmanac.ops import gpu
from kalmanac.ops.late import late

_KERNELS = "kalmanac.ops.gpu.head_kernels"
_fit, _shared_bytes = late(_KERNELS, "fit"), late(_KERNELS, "shared_bytes")
_forward, _backward = late(_KERNELS, "forward"), late(_KERNELS, "backward")
_shallow_forward = late(_KERNELS, "shallow_forward")
_shallow_backward = late(_KERNELS, "shallow_backward")
_gradients = late("kalmanac.ops.gpu.product_kernels", "gradients")


def possible(parts: Sequence[Tensor], weights: Sequence[Tensor]) -> bool:
    """The kernels can take these layers, and their products may round to TF32.

    In full precision, libraries are faster.
    """
    if not gpu.rounds_products(parts[0]):
        return False
    inputs = sum(part.shape[-1] for part in parts)
    return _fit(inputs, weights, _shared_bytes(parts[0].device))


def run(
    parts: Sequence[Tensor], weights: Sequence[Tensor], biases: Sequence[Tensor], *,
    precision: gpu.Precision = "tf32",
) -> Tensor:  # fmt: skip
    """Weights (K, n, m) and biases (K, 1, m) on parts (…, n') side by side: (K, …, m).

    `precision`: of the products' factors; "ieee" takes several times as long.
    """
    tensors = (*parts, *weights, *biases)
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        return FusedLayers.apply(precision, len(parts), *tensors)
    y, _ = _through(_joined(parts), weights, biases, keep=False, precision=precision)
    return y.unflatten(1, parts[0].shape[:-1])


def _through(
    x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], *, keep: bool,
    precision: gpu.Precision,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """The output (K, rows, m), and what the backward wants to have kept of hidden layers."""
    if len(weights) == 2:
        return _shallow_forward(x, weights, biases, precision=precision), []
    return _forward(x, weights, biases, keep=keep, precision=precision)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """(rows, n), side by side."""
    rows = [part.reshape(-1, part.shape[-1]) for part in parts]
    return torch.cat(rows, 1) if len(rows) > 1 else rows[0].contiguous()


class FusedLayers(torch.autograd.Function):
    """`run`, differentiable."""

    @staticmethod
    def forward(ctx: Any, precision: gpu.Precision, count: int, *tensors: Tensor) -> Tensor:
        """See `run`."""
        parts, layers = tensors[:count], tensors[count:]
        depth = len(layers) // 2
        x = _joined(parts)
        y, hidden = _through(x, layers[:depth], layers[depth:], keep=True, precision=precision)
        ctx.shapes, ctx.depth, ctx.precision = [part.shape for part in parts], depth, precision
        ctx.save_for_backward(x, layers[depth], *layers[:depth], *hidden)
        return y.unflatten(1, parts[0].shape[:-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the parts that want one, the weights and the biases."""
        shapes, depth, precision = ctx.shapes, ctx.depth, ctx.precision
        x, bias, *kept = ctx.saved_tensors
        weights, hidden = kept[:depth], kept[depth:]
        needs = ctx.needs_input_grad[2:]
        wanted, learns = needs[: len(shapes)], any(needs[len(shapes) :])
        slope = given.reshape(len(weights[0]), -1, given.shape[-1]).contiguous()
        spans = list(pairwise(accumulate((shape[-1] for shape in shapes), initial=0)))
        asked = [span for span, wants in zip(spans, wanted, strict=True) if wants]
        span = (asked[0][0], asked[-1][1]) if asked else (0, 0)
        if depth == 2:
            found, learnt = _shallow_backward(
                slope, x, weights, bias, span, learns=learns, precision=precision
            )
        else:
            found, slopes = _backward(
                slope, weights, hidden, span, keep=learns, precision=precision
            )
            learnt = _learnt(x, hidden, [*slopes, slope], weights, precision) if learns else []
        into = [
            found[:, a - span[0] : b - span[0]].reshape(shape) if wants else None
            for (a, b), wants, shape in zip(spans, wanted, shapes, strict=True)
        ]
        return None, None, *into, *(learnt or [None] * (2 * depth))


def _learnt(
    x: Tensor,
    hidden: Sequence[Tensor],
    slopes: Sequence[Tensor],
    weights: Sequence[Tensor],
    precision: gpu.Precision,
) -> list[Tensor]:
    """Gradients of weights and biases, in the memory layout of the weights."""
    pairs = list(zip([x[None], *hidden], slopes, strict=True))
    found = _gradients(pairs, weights[0].stride(1) == 1, exact=precision == "ieee")
    return [*(w for w, _ in found), *(b for _, b in found)]
