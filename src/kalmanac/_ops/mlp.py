"""Multilayer perceptrons with ReLU between their layers: K of them at once on the same rows.

One function for every device, and a form for each: `fused_mlp` (Triton) and `cpu_mlp`, both with a
backward of their own; `plain_mlp` has PyTorch's, for those who watch and what kernels do not take.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kalmanac._ops.dense import add_product, room_for
from kalmanac._ops.dispatch import differentiates, fused_cpu, fused_products, shared_bytes

# On a CPU, so many numbers of a hidden layer a thread (1 MiB) and their gradients stay in the
# cache of its core: a batch of Best Arm has 8 million, and in one piece it takes twice as long.
CPU_NUMBERS = 2**18
FEW = 8  # outputs: on a CPU, their product is faster transposed


def mlp(parts: Sequence[Tensor], weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
    """Run K perceptrons on rows that come in parts (…, n') side by side: (K, …, m).

    Args:
        weights: of each layer, (K, n, m).
        biases: of each layer, (K, 1, m).
    """
    if fits_kernels(parts, weights):
        return fused_mlp(parts, weights, biases)
    if fused_cpu(parts[0]):
        return cpu_mlp(parts, weights, biases)
    return plain_mlp(parts, weights, biases)


def fits_kernels(parts: Sequence[Tensor], weights: Sequence[Tensor]) -> bool:
    """Return whether `fused_mlp` can take these layers, and their products may round."""
    if not fused_products(parts[0], weights[0]):
        return False
    from kalmanac._ops.mlp_kernels import fit

    return fit(sum(part.shape[-1] for part in parts), weights, shared_bytes(parts[0].device))


def plain_mlp(
    parts: Sequence[Tensor], weights: Sequence[Tensor], biases: Sequence[Tensor]
) -> Tensor:
    """Compute the layers as they are written: anybody can record, transform or differentiate it."""
    y = torch.cat(list(parts), -1).flatten(0, -2)
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        y = (y.relu() if i else y) @ weight + bias
    return y.unflatten(1, parts[0].shape[:-1])


def cpu_mlp(parts: Sequence[Tensor], weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
    """Compute products of as many rows at once as stay in a core's cache."""
    tensors = (*parts, *weights, *biases)
    if differentiates(*tensors):
        return CpuMLP.apply(len(parts), *tensors)
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
    """Run all layers, one piece of the rows after the other."""
    rows = [part.flatten(0, -2) for part in parts]
    x = torch.cat([*rows, rows[0].new_ones(len(rows[0]), 1)], 1)
    first, count = _first_layer(weights[0], biases[0]), len(weights[0])
    if len(weights) == 1:
        return _Forward(_per_network(x.mm(first), count), x, [])
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


class CpuMLP(torch.autograd.Function):
    """`_forward` with a backward of its own: the CPU's form.

    The first hidden layer is computed again: it has few inputs, and its numbers, by far the most,
    never leave the cache. There is no pass over the rows for the first layer's biases and none for
    parts without a gradient.
    """

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor) -> Tensor:
        """See `mlp`."""
        parts, layers = tensors[:count], tensors[count:]
        ctx.depth = depth = len(layers) // 2
        outputs = _forward(parts, layers[:depth], layers[depth:], keep=True)
        ctx.shapes = [part.shape for part in parts]
        ctx.save_for_backward(outputs.x, *outputs.hidden, *layers)
        return outputs.y.unflatten(1, parts[0].shape[:-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_y: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the parts that need one, the weights and the biases."""
        shapes, depth = ctx.shapes, ctx.depth
        needs = ctx.needs_input_grad[1:]
        part_needs, learns = needs[: len(shapes)], any(needs[len(shapes) :])
        x, *saved = ctx.saved_tensors
        hidden, weights, biases = saved[: -2 * depth], saved[-2 * depth : -depth], saved[-depth:]
        first, count = _first_layer(weights[0], biases[0]), len(weights[0])
        g_first = room_for(x, first)
        # transposed: with few outputs, slopeᵀ hidden takes half the time of hiddenᵀ slope
        g_weights = [[room_for(own, own.mT) for own in weight] for weight in weights[1:]]
        g_y = g_y.flatten(1, -2)
        g_biases = [torch.zeros_like(x) for x in biases[1:-1]] + [g_y.sum(1, keepdim=True)]
        g_parts = [
            x.new_empty(shape) if needed else None
            for shape, needed in zip(shapes, part_needs, strict=True)
        ]
        of_parts = first[:-1].split([shape[-1] for shape in shapes])
        above = [weight.mT.contiguous() for weight in weights[1:]]
        pieces = _pieces(len(x), first.shape[1])
        wide, g_wide = (x.new_empty(pieces[0].stop, first.shape[1]) for _ in range(2))
        for piece in pieces:
            slope = g_y[:, piece]
            below = [y[:, piece] for y in hidden]
            if depth > 1:
                below.insert(0, _first_hidden(x[piece], first, wide, count))
            for i in reversed(range(depth - 1)):
                if learns:
                    for room, *pair in zip(g_weights[i], slope, below[i], strict=True):
                        add_product(room, *pair)
                    if i < depth - 2:
                        g_biases[i] += slope.sum(1, keepdim=True)
                into = _per_network(g_wide[: len(x[piece])], count) if i == 0 else None
                slope = _through_relu(slope, above[i], below[i], into)
            across = slope.transpose(0, 1).flatten(1)
            if learns:
                add_product(g_first, x[piece], across)
            for weight, g_part in zip(of_parts, g_parts, strict=True):
                if g_part is not None:
                    torch.mm(across, weight.mT, out=g_part.flatten(0, -2)[piece])
        if not learns:
            return None, *g_parts, *[None] * (2 * depth)
        g_all = _per_network(g_first.sum(0), count)
        g_above = [torch.stack(rooms).sum(1).mT for rooms in g_weights]
        return None, *g_parts, g_all[:, :-1], *g_above, g_all[:, -1:], *g_biases[: depth - 1]


def _first_layer(weight: Tensor, bias: Tensor) -> Tensor:
    """Return (n + 1, K m): the perceptrons side by side, with the bias as the weight of a one."""
    return torch.cat([weight, bias], 1).transpose(0, 1).flatten(1)


def _first_hidden(x: Tensor, first: Tensor, room: Tensor, count: int) -> Tensor:
    """Compute relu(x W), (K, rows, m), in memory that is there."""
    return _per_network(torch.mm(x, first, out=room[: len(x)]).relu_(), count)


def _through_relu(slope: Tensor, weight: Tensor, hidden: Tensor, room: Tensor | None) -> Tensor:
    """Return the gradient before a ReLU that gave `hidden`, from the next `slope`: slope Wᵀ."""
    before = torch.empty_like(hidden) if room is None else room
    for k, own in enumerate(weight):
        torch.mm(slope[k], own, out=before[k])
    return torch.ops.aten.threshold_backward.grad_input(before, hidden, 0, grad_input=before)


def _per_network(wide: Tensor, count: int) -> Tensor:
    """View (rows, K m) as (K, rows, m)."""
    return wide.unflatten(1, (count, -1)).transpose(0, 1)


def _pieces(rows: int, width: int) -> list[slice]:
    """Cut the rows: `CPU_NUMBERS` at once for each thread, `width` a row, with no small rest."""
    pieces = round(rows * width / (CPU_NUMBERS * torch.get_num_threads()))
    size = max(-(-rows // max(pieces, 1)), 1)
    return [slice(i, min(i + size, rows)) for i in range(0, rows, size)] or [slice(0, 0)]


def fused_mlp(
    parts: Sequence[Tensor], weights: Sequence[Tensor], biases: Sequence[Tensor], *,
    exact: bool = False,
) -> Tensor:  # fmt: skip
    """Run all layers in a kernel of ours. `exact`: factors are not rounded."""
    tensors = (*parts, *weights, *biases)
    if differentiates(*tensors):
        return FusedMLP.apply(exact, len(parts), *tensors)
    from kalmanac._ops.mlp_kernels import forward

    y, _ = forward(_joined(parts), weights, biases, keep=False, exact=exact)
    return y.unflatten(1, parts[0].shape[:-1])


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """Join the parts as (rows, n), side by side."""
    rows = [part.reshape(-1, part.shape[-1]) for part in parts]
    return torch.cat(rows, 1) if len(rows) > 1 else rows[0].contiguous()


class FusedMLP(torch.autograd.Function):
    """`fused_mlp`, differentiable."""

    @staticmethod
    def forward(ctx: Any, exact: bool, count: int, *tensors: Tensor) -> Tensor:
        """See `mlp`."""
        from kalmanac._ops.mlp_kernels import forward

        parts, layers = tensors[:count], tensors[count:]
        depth = len(layers) // 2
        x = _joined(parts)
        y, hidden = forward(
            x, layers[:depth], layers[depth:], keep=True, exact=exact,
            learns=any(ctx.needs_input_grad[2 + count :]),
        )  # fmt: skip
        ctx.shapes, ctx.depth, ctx.exact = [part.shape for part in parts], depth, exact
        ctx.save_for_backward(x, layers[depth], *layers[:depth], *hidden)
        return y.unflatten(1, parts[0].shape[:-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_y: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the parts that need one, the weights and the biases."""
        from kalmanac._ops.dense_kernels import gradients
        from kalmanac._ops.mlp_kernels import backward, shallow_backward

        shapes, depth, exact = ctx.shapes, ctx.depth, ctx.exact
        x, bias, *saved = ctx.saved_tensors
        weights, hidden = saved[:depth], saved[depth:]
        needs = ctx.needs_input_grad[2:]
        part_needs, learns = needs[: len(shapes)], any(needs[len(shapes) :])
        slope = g_y.reshape(len(weights[0]), -1, g_y.shape[-1]).contiguous()
        spans = list(pairwise(accumulate((shape[-1] for shape in shapes), initial=0)))
        needed_spans = [span for span, needed in zip(spans, part_needs, strict=True) if needed]
        span = (needed_spans[0][0], needed_spans[-1][1]) if needed_spans else (0, 0)
        if depth == 2:
            g_x, g_layers = shallow_backward(
                slope, x, weights, bias, span, learns=learns, exact=exact
            )
        else:
            g_x, slopes = backward(slope, weights, hidden, span, keep=learns, exact=exact)
            g_layers = []
            if learns:
                pairs = list(zip([x[None], *hidden], [*slopes, slope], strict=True))
                both = gradients(pairs, weights[0].stride(1) == 1, exact=exact)
                g_layers = [*(w for w, _ in both), *(b for _, b in both)]
        into = [
            None if g_x is None or not needed else g_x[:, a - span[0] : b - span[0]].reshape(shape)
            for (a, b), needed, shape in zip(spans, part_needs, shapes, strict=True)
        ]
        return None, None, *into, *g_layers, *[None] * (2 * depth - len(g_layers))
