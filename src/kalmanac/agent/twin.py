"""The heads' multilayer perceptrons: one for the actor, two at once for the twin critic."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from kalmanac.agent import fused_layers, wide_layers
from kalmanac.ops.gpu import Precision
from kalmanac.ops.row_products import add_product, room_for

# On a CPU, so many numbers of a hidden layer a thread (1 MiB) and their gradients stay in the
# cache of its core: a batch of Best Arm has 8 million, and in one piece it takes twice as long.
CPU_NUMBERS = 2**18
FEW = 8  # outputs: on a CPU, their product is faster transposed


class Perceptron(nn.Module):
    """Linear layers with ReLU between them; orthogonal weights, zero biases.

    `precision` is that of factors where kernels of ours run the layers: on a GPU, in updates.
    """

    precision: Precision = "tf32"

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
        return _run(parts, weights, biases, self.precision).squeeze(0)

    def linear(self) -> list[nn.Linear]:
        """The layers, with their type."""
        return [cast(nn.Linear, layer) for layer in self.layers]


class TwinPerceptron(nn.Module):
    """Two independent perceptrons on the same input, each layer one matrix product.

    `precision` as in `Perceptron`.
    """

    precision: Precision = "tf32"

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
        count = len(self.weights)
        return _run(parts, layers[:count], layers[count:], self.precision)


def _run(
    parts: Sequence[Tensor], weights: Sequence[Tensor], biases: Sequence[Tensor],
    precision: Precision,
) -> Tensor:  # fmt: skip
    """K perceptrons, weights (K, n, m) and biases (K, 1, m), on parts (…, n'): (K, …, m)."""
    tensors = (*parts, *weights, *biases)
    if fused_layers.possible(parts, weights):
        return fused_layers.run(parts, weights, biases, precision=precision)
    if parts[0].is_cuda:
        return wide_layers.run(parts, weights, biases)
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        return _Layers.apply(len(parts), *tensors)
    y = _forward(parts, weights, biases, keep=False).y
    return y.unflatten(1, parts[0].shape[:-1])


class _Forward(NamedTuple):
    """The output, and what the backward needs beside the weights."""

    y: Tensor  # (K, rows, m)
    x: Tensor  # (rows, first width + 1): the parts and a one
    hidden: list[Tensor]  # (K, rows, m) each, behind the ReLU: all but the first, if kept


def _forward(
    parts: Sequence[Tensor], weights: Sequence[Tensor], biases: Sequence[Tensor], keep: bool
) -> _Forward:
    """All layers, one piece of the rows after the other."""
    rows = [part.flatten(0, -2) for part in parts]
    x = torch.cat([*rows, rows[0].new_ones(len(rows[0]), 1)], 1)
    first, count = _first_layer(weights[0], biases[0]), len(weights[0])
    if len(weights) == 1:
        return _Forward(_twins(x.mm(first), count), x, [])
    pieces = _pieces(len(x), first.shape[1])
    longest = pieces[0].stop
    wide = x.new_empty(longest, first.shape[1])
    *between, last = [weight.shape[2] for weight in weights[1:]]
    hidden = [x.new_empty(count, len(x) if keep else longest, m) for m in between]
    few = last <= FEW
    y = x.new_empty(count, last, len(x)).mT if few else x.new_empty(count, len(x), last)
    final = weights[-1].mT.contiguous() if few else weights[-1]
    for piece in pieces:
        below = _first_hidden(x[piece], first, wide, count)
        place = piece if keep else slice(piece.stop - piece.start)
        for i, room in enumerate(hidden, 1):
            below = torch.baddbmm(biases[i], below, weights[i], out=room[:, place]).relu_()
        if few:  # half the time
            torch.baddbmm(biases[-1].mT, final, below.mT, out=y[:, piece].mT)
        else:
            torch.baddbmm(biases[-1], below, final, out=y[:, piece])
    return _Forward(y, x, hidden)


class _Layers(torch.autograd.Function):
    """`_forward` with a backward of its own.

    The first hidden layer is computed again: it has few inputs, and its numbers, by far the most,
    never leave the cache. There is no pass over the rows for the first layer's biases and none for
    parts without a gradient.
    """

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor) -> Tensor:
        parts, layers = tensors[:count], tensors[count:]
        ctx.depth = depth = len(layers) // 2
        found = _forward(parts, layers[:depth], layers[depth:], keep=True)
        ctx.shapes = [part.shape for part in parts]
        ctx.save_for_backward(found.x, *found.hidden, *layers)
        return found.y.unflatten(1, parts[0].shape[:-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor | None, ...]:
        shapes, depth = ctx.shapes, ctx.depth
        needs = ctx.needs_input_grad[1:]
        wanted, learns = needs[: len(shapes)], any(needs[len(shapes) :])
        kept, layers = ctx.saved_tensors[: -2 * depth], ctx.saved_tensors[-2 * depth :]
        x, *hidden = kept
        weights, biases = layers[:depth], layers[depth:]
        first, count = _first_layer(weights[0], biases[0]), len(weights[0])
        g_first = room_for(x, first)
        # transposed: with few outputs, slopeᵀ hidden takes half the time of hiddenᵀ slope
        g_weights = [[room_for(own, own.mT) for own in weight] for weight in weights[1:]]
        given = given.flatten(1, -2)
        g_biases = [torch.zeros_like(x) for x in biases[1:-1]] + [given.sum(1, keepdim=True)]
        g_parts = [
            x.new_empty(len(x), shape[-1]) if wants else None
            for shape, wants in zip(shapes, wanted, strict=True)
        ]
        above = [weight.mT.contiguous() for weight in weights[1:]]
        pieces = _pieces(len(x), first.shape[1])
        wide, g_wide = (x.new_empty(pieces[0].stop, first.shape[1]) for _ in range(2))
        for piece in pieces:
            slope = given[:, piece]
            below = [y[:, piece] for y in hidden]
            if depth > 1:
                below.insert(0, _first_hidden(x[piece], first, wide, count))
            for i in reversed(range(depth - 1)):
                if learns:
                    for room, *pair in zip(g_weights[i], slope, below[i], strict=True):
                        add_product(room, *pair)
                    if i < depth - 2:
                        g_biases[i] += slope.sum(1, keepdim=True)
                into = _twins(g_wide[: len(x[piece])], count) if i == 0 else None
                slope = _through_relu(slope, above[i], below[i], into)
            across = slope.transpose(0, 1).flatten(1)
            if learns:
                add_product(g_first, x[piece], across)
            begin = 0
            for shape, found in zip(shapes, g_parts, strict=True):
                if found is not None:
                    torch.mm(across, first[begin : begin + shape[-1]].mT, out=found[piece])
                begin += shape[-1]
        into_parts = [
            None if found is None else found.view(shape)
            for shape, found in zip(shapes, g_parts, strict=True)
        ]
        if not learns:
            return None, *into_parts, *[None] * (2 * depth)
        g_all = _twins(g_first.sum(0), count)
        g_above = [torch.stack(rooms).sum(1).mT for rooms in g_weights]
        return None, *into_parts, g_all[:, :-1], *g_above, g_all[:, -1:], *g_biases[: depth - 1]


def _first_layer(weight: Tensor, bias: Tensor) -> Tensor:
    """(n + 1, K m): the perceptrons side by side, with the bias as the weight of a one."""
    return torch.cat([weight, bias], 1).transpose(0, 1).flatten(1)


def _first_hidden(x: Tensor, first: Tensor, room: Tensor, count: int) -> Tensor:
    """relu(x W), (K, rows, m), in memory that is there."""
    return _twins(torch.mm(x, first, out=room[: len(x)]).relu_(), count)


def _through_relu(slope: Tensor, weight: Tensor, hidden: Tensor, room: Tensor | None) -> Tensor:
    """The gradient before a ReLU that gave `hidden`, from the next layer's `slope`: slope Wᵀ."""
    before = torch.empty_like(hidden) if room is None else room
    for k, own in enumerate(weight):
        torch.mm(slope[k], own, out=before[k])
    return torch.ops.aten.threshold_backward.grad_input(before, hidden, 0, grad_input=before)


def _twins(wide: Tensor, count: int) -> Tensor:
    """(rows, K m) as (K, rows, m)."""
    return wide.unflatten(1, (count, -1)).transpose(0, 1)


def _pieces(rows: int, width: int) -> list[slice]:
    """The rows taken at once: `CPU_NUMBERS` for each thread, `width` a row, with no small rest."""
    pieces = round(rows * width / (CPU_NUMBERS * torch.get_num_threads()))
    size = max(-(-rows // max(pieces, 1)), 1)
    return [slice(i, min(i + size, rows)) for i in range(0, rows, size)] or [slice(0, 0)]
