"""The heads' multilayer perceptrons: one for the actor, two at once for the twin critic."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from kalmanac.agent import fused_layers, wide_layers

# On a CPU, hidden layers of about this many rows stay in the cache and in memory that is reused: a
# batch of Best Arm is 16,384 rows, and in one piece it takes three times as long.
CPU_ROWS = 1024
FEW = 8  # outputs: on a CPU, their product is faster transposed


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
        return _run(parts, weights, biases).squeeze(0)

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
    if fused_layers.possible(parts, weights):
        return fused_layers.run(parts, weights, biases)
    if parts[0].is_cuda:
        return wide_layers.run(parts, weights, biases)
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
            if weight.shape[2] <= FEW and y.device.type == "cpu":  # half the time
                y = torch.baddbmm(bias.mT, weight.mT.contiguous(), y.mT).mT
            else:
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
        g_first = torch.zeros_like(first)
        # transposed: with few outputs, slopeᵀ hidden takes half the time of hiddenᵀ slope
        g_weights = [torch.zeros_like(x.mT) for x in weights[1:]]
        g_biases = [torch.zeros_like(x) for x in biases[1:]]
        g_parts: list[list[Tensor]] = [[] for _ in shapes]
        rows = given.flatten(1, -2)
        size = _piece_size(rows[0])
        for piece, slope in zip(pieces, rows.split(size, 1), strict=True):
            for i in reversed(range(depth - 1)):
                hidden = piece.hidden[i]
                if learns:
                    g_weights[i].baddbmm_(slope.mT, hidden)
                    g_biases[i] += slope.sum(1, keepdim=True)
                before = torch.empty_like(hidden)
                for k, weight in enumerate(weights[i + 1]):
                    torch.mm(slope[k], weight.mT, out=before[k])
                slope = torch.ops.aten.threshold_backward.grad_input(
                    before, hidden, 0, grad_input=before
                )
            wide = slope.transpose(0, 1).flatten(1)
            if learns:
                g_first.addmm_(piece.x.mT, wide)
            begin = 0
            for shape, wants, found in zip(shapes, wanted, g_parts, strict=True):
                if wants:
                    found.append(wide.mm(first[begin : begin + shape[-1]].mT))
                begin += shape[-1]
        into = [
            (torch.cat(found) if len(found) > 1 else found[0]).view(shape) if wants else None
            for shape, wants, found in zip(shapes, wanted, g_parts, strict=True)
        ]
        if not learns:
            return None, *into, *[None] * (2 * depth)
        g_all = _twins(g_first, len(weights[0]))
        return None, *into, g_all[:, :-1], *(g.mT for g in g_weights), g_all[:, -1:], *g_biases


def _first_layer(weight: Tensor, bias: Tensor) -> Tensor:
    """(n + 1, K m): the perceptrons side by side, with the bias as the weight of a one."""
    return torch.cat([weight, bias], 1).transpose(0, 1).flatten(1)


def _twins(wide: Tensor, count: int) -> Tensor:
    """(rows, K m) as (K, rows, m)."""
    return wide.unflatten(1, (count, -1)).transpose(0, 1)


def _piece_size(rows: Tensor) -> int:
    """Of the rows taken at once: about `CPU_ROWS` on a CPU, with no small rest."""
    pieces = round(len(rows) / CPU_ROWS) if rows.device.type == "cpu" else 1
    return max(-(-len(rows) // max(pieces, 1)), 1)
