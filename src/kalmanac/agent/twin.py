"""The heads' multilayer perceptrons: one for the actor, two at once for the twin critic."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

# On a CPU, hidden layers of this many rows stay in the cache and in memory that is reused: a
# batch of Best Arm is 16,384 rows, and in one piece it takes three times as long.
CPU_ROWS = 1024
CUDA_PARTS = 64


class Perceptron(nn.Module):
    """Linear layers with ReLU between them; orthogonal weights, zero biases."""

    def __init__(self, widths: Sequence[int], *, gain: float = 1.0) -> None:
        super().__init__()
        layers = [nn.Linear(n, m) for n, m in pairwise(widths)]
        self.layers = nn.ModuleList(layers)
        for layer in layers:
            nn.init.orthogonal_(layer.weight, gain)
            nn.init.zeros_(layer.bias)

    def forward(self, *parts: Tensor) -> Tensor:
        """(…, first width), perhaps in several parts side by side, to (…, last width)."""
        weights = [layer.weight.mT[None] for layer in self.linear()]
        biases = [layer.bias[None, None] for layer in self.linear()]
        return _run(parts, weights, biases)[0]

    def linear(self) -> list[nn.Linear]:
        """The layers, with their type."""
        return [cast(nn.Linear, layer) for layer in self.layers]


class TwinPerceptron(nn.Module):
    """Two independent perceptrons on the same input, each layer one matrix product."""

    def __init__(self, widths: Sequence[int], *, gain: float = 1.0) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.empty(2, n, m) for n, m in pairwise(widths))
        self.biases = nn.ParameterList(torch.zeros(2, 1, m) for m in widths[1:])
        for weight in self.weights:
            for twin in weight:
                nn.init.orthogonal_(twin, gain)

    def forward(self, *parts: Tensor, frozen: bool = False) -> Tensor:
        """(…, first width), perhaps in several parts side by side, to (2, …, last width).

        `frozen`: gradients reach the parts, not the weights.
        """
        layers = [*self.weights, *self.biases]
        if frozen:
            layers = [x.detach() for x in layers]
        return _run(parts, layers[: len(self.weights)], layers[len(self.weights) :])


def _run(parts: Sequence[Tensor], weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
    """K perceptrons, weights (K, n, m) and biases (K, 1, m), on parts (…, n'): (K, …, m)."""
    tensors = (*parts, *weights, *biases)
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        return _Layers.apply(len(parts), *tensors)
    return _forward(parts, weights, biases, None)


class _Piece(NamedTuple):
    """What the backward of some rows needs."""

    x: Tensor  # (rows, first width + 1): the parts and a one
    hidden: list[Tensor]  # (K, rows, m) each, behind the ReLU


def _forward(
    parts: Sequence[Tensor], weights: Sequence[Tensor], biases: Sequence[Tensor],
    pieces: list[_Piece] | None,
) -> Tensor:  # fmt: skip
    """The output; `pieces`, if a list, is filled for the backward."""
    rows = [part.flatten(0, -2) for part in parts]
    first, found = _first_layer(weights[0], biases[0]), []
    size = _piece_size(rows[0])
    for part in zip(*(x.split(size) for x in rows), strict=True):
        x = torch.cat([*part, part[0].new_ones(len(part[0]), 1)], 1)
        y, hidden = _twins(x.mm(first), len(weights[0])), []
        for weight, bias in zip(weights[1:], biases[1:], strict=True):
            hidden.append(y.relu_())
            y = torch.baddbmm(bias, y, weight)
        found.append(y)
        if pieces is not None:
            pieces.append(_Piece(x, hidden))
    y = torch.cat(found, 1) if len(found) > 1 else found[0]
    return y.unflatten(1, parts[0].shape[:-1])


class _Layers(torch.autograd.Function):
    """`_forward` with a backward of its own: ReLU in place, and no pass over the rows for biases
    of the first layer and for parts without a gradient.
    """

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor) -> Tensor:
        parts, layers = tensors[:count], tensors[count:]
        depth = len(layers) // 2
        pieces: list[_Piece] = []
        y = _forward(parts, layers[:depth], layers[depth:], pieces)
        ctx.shapes = [part.shape for part in parts]
        ctx.depth = depth
        kept = [x for piece in pieces for x in (piece.x, *piece.hidden)]
        ctx.save_for_backward(*kept, *layers)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor | None, ...]:
        shapes, depth = ctx.shapes, ctx.depth
        needs = ctx.needs_input_grad[1:]
        wanted, learns = needs[: len(shapes)], any(needs[len(shapes) :])
        kept, layers = ctx.saved_tensors[: -2 * depth], ctx.saved_tensors[-2 * depth :]
        pieces = [_Piece(x, hidden) for x, *hidden in zip(*[iter(kept)] * depth, strict=True)]
        weights, biases = layers[:depth], layers[depth:]
        first = _first_layer(weights[0], biases[0])
        g_first: Tensor | None = None
        g_weights: list[Tensor | None] = [None] * (depth - 1)
        g_biases: list[Tensor | None] = [None] * (depth - 1)
        g_parts: list[list[Tensor]] = [[] for _ in shapes]
        rows = given.flatten(1, -2)
        size = _piece_size(rows[0])
        for piece, slope in zip(pieces, rows.split(size, 1), strict=True):
            for i in reversed(range(depth - 1)):
                hidden = piece.hidden[i]
                if learns:
                    # with few outputs, slopeᵀ hidden takes half the time of hiddenᵀ slope
                    g_weights[i] = _plus_product(g_weights[i], slope, hidden)
                    g_biases[i] = _plus(g_biases[i], slope.sum(1, keepdim=True))
                before = _times_transposed(slope, weights[i + 1])
                slope = torch.ops.aten.threshold_backward.grad_input(
                    before, hidden, 0, grad_input=before
                )
            wide = slope.transpose(0, 1).flatten(1)
            if learns:
                g_first = _plus_product(g_first, piece.x[None], wide[None])
            begin = 0
            for shape, wants, found in zip(shapes, wanted, g_parts, strict=True):
                if wants:
                    found.append(wide.mm(first[begin : begin + shape[-1]].mT))
                begin += shape[-1]
        into = [
            (torch.cat(found) if len(found) > 1 else found[0]).view(shape) if wants else None
            for shape, wants, found in zip(shapes, wanted, g_parts, strict=True)
        ]
        if not learns or g_first is None:
            return None, *into, *[None] * (2 * depth)
        g_all = _twins(g_first[0], len(weights[0]))
        turned = (None if g is None else g.mT for g in g_weights)
        return None, *into, g_all[:, :-1], *turned, g_all[:, -1:], *g_biases


def _plus(total: Tensor | None, x: Tensor) -> Tensor:
    return x if total is None else total.add_(x)


def _plus_product(total: Tensor | None, x: Tensor, y: Tensor) -> Tensor:
    """total + xᵀ y, for x (K, rows, n) and y (K, rows, m).

    A GPU sums over many rows with a few of its processors where the result is small: there the
    rows are cut into parts that are summed side by side.
    """
    if total is not None:
        return total.baddbmm_(x.mT, y)
    if not x.is_cuda:
        return torch.bmm(x.mT, y)
    parts = math.gcd(x.shape[1], CUDA_PARTS if x.shape[2] * y.shape[2] < 2**14 else CUDA_PARTS // 8)
    left, right = (z.unflatten(1, (parts, -1)).flatten(0, 1) for z in (x, y))
    return torch.bmm(left.mT, right).unflatten(0, (len(x), parts)).sum(1)


def _times_transposed(x: Tensor, weights: Tensor) -> Tensor:
    """x (K, rows, m) times weightsᵀ (K, m, n), a new tensor."""
    if x.is_cuda:
        return torch.bmm(x, weights.mT)
    product = x.new_empty(*x.shape[:2], weights.shape[1])
    for k, weight in enumerate(weights):
        torch.mm(x[k], weight.mT, out=product[k])
    return product


def _first_layer(weight: Tensor, bias: Tensor) -> Tensor:
    """(n + 1, K m): the perceptrons side by side, with the bias as the weight of a one."""
    return torch.cat([weight, bias], 1).transpose(0, 1).flatten(1)


def _twins(wide: Tensor, count: int) -> Tensor:
    """(rows, K m) as (K, rows, m)."""
    return wide.unflatten(1, (count, -1)).transpose(0, 1)


def _piece_size(rows: Tensor) -> int:
    """Of the rows taken at once."""
    return CPU_ROWS if rows.device.type == "cpu" else max(len(rows), 1)
