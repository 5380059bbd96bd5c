"""K perceptrons with one or two hidden layers on the same rows.

A program takes BLOCK rows through all layers: what a row is in between never leaves the
multiprocessor. With one hidden layer, the backward computes it anew, which is cheaper than reading
it back, and adds up gradients as it goes: one launch each way. With two, the forward keeps them,
and the gradients are products of their own. Hidden widths are powers of two up to `WIDEST`.

Hidden layers and their slopes lie as (K, width, rows) in memory, along the sums that gradients are.

Products round their factors to TF32, unless EXACT, and keep all bits of their sums; the few outputs
of one hidden layer are no products.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from kalmanac._ops.dense_kernels import LEAST, add_chunks, plus_product, side

WIDEST = 256  # hidden
MOST_INPUTS = 64
MOST_OUTPUTS = 64
FEW = 8  # outputs: with one hidden layer, they are sums instead of products
CHUNKS = 128  # parts of the rows that one perceptron's gradients are added up over


class Shape(NamedTuple):
    """How a kernel is laid out."""

    block: int  # rows at once
    warps: int
    stages: int = 1  # of loads under way
    columns: int = 64  # of the hidden layer that is never whole, at once


# From 64 rows on, Hopper's tensor cores read TF32 factors along the sum alone: others are turned at
# a cost that is more than the gain, and twins' and single perceptrons' weights lie both ways.
SHALLOW, SHALLOW_BACK = Shape(32, 4), Shape(16, 4)  # one hidden layer, forward and backward
DEEP, DEEP_BACK = Shape(32, 4, 2, 32), Shape(32, 4, 3, 32)  # two


@triton.jit
def tile(w, k, i, o, n, m, w_k, w_i, w_o):
    """w[k, i, o] with zeros outside of (n, m)."""
    return tl.load(w + k * w_k + i * w_i + o * w_o, mask=(i < n) & (o < m), other=0.0)


@triton.jit
def relu(x):
    """max(x, 0); NaN stays NaN."""
    return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def shallow(
    x, w1, w2, b1, b2, y, rows, n, w1_k, w1_i, w1_o, w2_k, w2_i, w2_o, b1_k, b2_k,
    H: tl.constexpr, M: tl.constexpr, NP: tl.constexpr, BLOCK: tl.constexpr,
    EXACT: tl.constexpr,
):  # fmt: skip
    """BLOCK rows of y (K, rows, M) = relu(x W₁ + b₁) W₂ + b₂ for one perceptron."""
    dtype: tl.constexpr = y.dtype.element_ty
    k = tl.program_id(1)
    i = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    here = i < rows
    c, j = tl.arange(0, NP), tl.arange(0, H)
    seen = tl.load(x + i[:, None] * n + c, mask=here[:, None] & (c < n)[None, :], other=0.0)
    weight = tile(w1, k, c[:, None], j[None, :], n, H, w1_k, w1_i, w1_o)
    h = plus_product(tl.zeros((BLOCK, H), dtype), seen, weight, EXACT)
    h = relu(h + tl.load(b1 + k * b1_k + j)[None, :])
    at = (k.to(tl.int64) * rows + i) * M
    for o in tl.static_range(M):
        column = tl.load(w2 + k * w2_k + j * w2_i + o * w2_o)
        found = tl.sum(h * column[None, :], 1) + tl.load(b2 + k * b2_k + o)
        tl.store(y + at + o, found, mask=here)


@triton.jit
def shallow_slopes(
    given, x, w1, w2, b1, gx, partials, rows, n, wanted, begin_x, chunk, size,
    w1_k, w1_i, w1_o, w2_k, w2_i, w2_o, b1_k, p1_i, p1_o, p2_i, p2_o,
    H: tl.constexpr, M: tl.constexpr, MP: tl.constexpr, NP: tl.constexpr, XP: tl.constexpr,
    INTO: tl.constexpr, LEARNS: tl.constexpr, BLOCK: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """A chunk of rows: slopes of `wanted` inputs from `begin_x` on, and the chunk's part of the
    gradients of W₁, W₂, b₁, b₂, which lie in this order in `partials` for each perceptron.

    A one stands beside the inputs, as number n: the gradient of its weight is that of b₁.
    """
    dtype: tl.constexpr = given.dtype.element_ty
    k = tl.program_id(1)
    K = tl.num_programs(1)
    begin = tl.program_id(0) * chunk
    stop = tl.minimum(begin + chunk, rows)
    c, j, o, z = tl.arange(0, NP), tl.arange(0, H), tl.arange(0, MP), tl.arange(0, XP)
    weight = tile(w1, k, c[:, None], j[None, :], n, H, w1_k, w1_i, w1_o)
    bias = tl.load(b1 + k * b1_k + j)[None, :]
    back = tile(w1 + begin_x * w1_i, k, z[None, :], j[:, None], wanted, H, w1_k, w1_i, w1_o)
    g_1, g_2 = tl.zeros((NP, H), dtype), tl.zeros((MP, H), dtype)
    g_b2 = tl.zeros((BLOCK, MP), dtype)
    for first in range(begin, stop, BLOCK):
        i = (first + tl.arange(0, BLOCK)).to(tl.int64)
        here = i < stop
        seen = tl.load(x + i[:, None] * n + c, mask=here[:, None] & (c < n)[None, :], other=0.0)
        seen = tl.where((c == n)[None, :], 1.0, seen)
        h = plus_product(tl.zeros((BLOCK, H), dtype), seen, weight, EXACT) + bias
        at = (k.to(tl.int64) * rows + i) * M
        g = tl.zeros((BLOCK, H), dtype)
        for a in tl.static_range(M):
            slope = tl.load(given + at + a, mask=here, other=0.0)
            column = tl.load(w2 + k * w2_k + j * w2_i + a * w2_o)
            g += slope[:, None] * column[None, :]
        g = tl.where(h > 0.0, g, 0.0)
        if INTO:
            into = plus_product(tl.zeros((BLOCK, XP), dtype), g, back, EXACT)
            place = (k.to(tl.int64) * rows + i)[:, None] * wanted + z[None, :]
            tl.store(gx + place, into, mask=here[:, None] & (z < wanted)[None, :])
        if LEARNS:
            slopes = tl.load(
                given + at[:, None] + o[None, :], mask=here[:, None] & (o < M)[None, :], other=0.0
            )
            h = tl.where(here[:, None] & (h > 0.0), h, 0.0)
            g_1 = plus_product(g_1, tl.trans(seen), g, EXACT)
            g_2 = plus_product(g_2, tl.trans(slopes), h, EXACT)
            g_b2 += slopes
    if LEARNS:
        mine = partials + tl.program_id(0).to(tl.int64) * size
        at_1 = mine + k * n * H + c[:, None] * p1_i + j[None, :] * p1_o
        tl.store(at_1, g_1, mask=(c < n)[:, None])
        mine += K * n * H
        at_2 = mine + k * H * M + j[None, :] * p2_i + o[:, None] * p2_o
        tl.store(at_2, g_2, mask=(o < M)[:, None])
        mine += K * H * M
        at_b = mine + k * H + j[None, :] + 0 * c[:, None]
        tl.store(at_b, g_1, mask=(c == n)[:, None])
        tl.store(mine + K * H + k * M + o, tl.sum(g_b2, 0), mask=o < M)


@triton.jit
def perceive(
    x, w1, w2, w3, b1, b2, b3, h1, h2, y, rows, n, m,
    w1_k, w1_i, w1_o, w2_k, w2_i, w2_o, w3_k, w3_i, w3_o, b1_k, b2_k, b3_k,
    H1: tl.constexpr, H2: tl.constexpr, KEEP: tl.constexpr,
    NP: tl.constexpr, MP: tl.constexpr, BLOCK: tl.constexpr, AT_ONCE: tl.constexpr,
    EXACT: tl.constexpr,
):  # fmt: skip
    """BLOCK rows of one perceptron, by AT_ONCE columns of the first hidden layer: no row of it is
    whole. h1 and h2 (K, width, rows) are kept if asked for; as bytes, where they are above 0."""
    dtype: tl.constexpr = y.dtype.element_ty
    BYTES: tl.constexpr = h1.dtype.element_ty == tl.int8
    k = tl.program_id(1)
    i = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)[:, None]
    here = i < rows
    column = k.to(tl.int64) * rows
    c, o, g = tl.arange(0, NP), tl.arange(0, MP), tl.arange(0, H2)
    seen = tl.load(x + i * n + c[None, :], mask=here & (c[None, :] < n), other=0.0)
    two = tl.zeros((BLOCK, H2), dtype)
    for begin in range(0, H1, AT_ONCE):
        j = begin + tl.arange(0, AT_ONCE)
        weight = tile(w1, k, c[:, None], j[None, :], n, H1, w1_k, w1_i, w1_o)
        one = plus_product(tl.zeros((BLOCK, AT_ONCE), dtype), seen, weight, EXACT)
        one = relu(one + tl.load(b1 + k * b1_k + j)[None, :])
        if KEEP:
            kept = (one > 0.0).to(tl.int8) if BYTES else one
            tl.store(h1 + column * H1 + j[None, :] * rows + i, kept, mask=here)
        across = tile(w2, k, j[:, None], g[None, :], H1, H2, w2_k, w2_i, w2_o)
        two = plus_product(two, one, across, EXACT)
    two = relu(two + tl.load(b2 + k * b2_k + g)[None, :])
    if KEEP:
        kept = (two > 0.0).to(tl.int8) if BYTES else two
        tl.store(h2 + column * H2 + g[None, :] * rows + i, kept, mask=here)
    last = tile(w3, k, g[:, None], o[None, :], H2, m, w3_k, w3_i, w3_o)
    found = plus_product(tl.zeros((BLOCK, MP), dtype), two, last, EXACT)
    found += tl.load(b3 + k * b3_k + o, mask=o < m, other=0.0)[None, :]
    tl.store(y + (column + i) * m + o[None, :], found, mask=here & (o[None, :] < m))


@triton.jit
def slopes(
    given, w1, w2, w3, h1, h2, g1, g2, gx, rows, m, begin_x, wanted,
    w1_k, w1_i, w1_o, w2_k, w2_i, w2_o, w3_k, w3_i, w3_o,
    H1: tl.constexpr, H2: tl.constexpr, INTO: tl.constexpr,
    KEEP: tl.constexpr, XP: tl.constexpr, MP: tl.constexpr, BLOCK: tl.constexpr,
    AT_ONCE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """BLOCK rows of one perceptron: slopes of the hidden layers, and of `wanted` inputs from
    `begin_x` on. KEEP: the slopes of hidden layers are kept."""
    dtype: tl.constexpr = given.dtype.element_ty
    k = tl.program_id(1)
    i = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)[:, None]
    here = i < rows
    column = k.to(tl.int64) * rows
    o, j, c = tl.arange(0, MP), tl.arange(0, H1), tl.arange(0, XP)
    slope = tl.load(given + (column + i) * m + o[None, :], mask=here & (o[None, :] < m), other=0.0)
    one = tl.zeros((BLOCK, H1), dtype)
    for begin in range(0, H2, AT_ONCE):
        g = begin + tl.arange(0, AT_ONCE)
        last = tile(w3, k, g[None, :], o[:, None], H2, m, w3_k, w3_i, w3_o)
        two = plus_product(tl.zeros((BLOCK, AT_ONCE), dtype), slope, last, EXACT)
        at = column * H2 + g[None, :] * rows + i
        above = tl.load(h2 + at, mask=here, other=0.0).to(dtype)
        two = tl.where(above > 0.0, two, 0.0)
        if KEEP:
            tl.store(g2 + at, two, mask=here)
        across = tile(w2, k, j[None, :], g[:, None], H1, H2, w2_k, w2_i, w2_o)
        one = plus_product(one, two, across, EXACT)
    at = column * H1 + j[None, :] * rows + i
    below = tl.load(h1 + at, mask=here, other=0.0).to(dtype)
    passed = tl.where(below > 0.0, one, 0.0)
    if KEEP:
        tl.store(g1 + at, passed, mask=here)
    if INTO:
        weight = tile(w1 + begin_x * w1_i, k, c[None, :], j[:, None], wanted, H1, w1_k, w1_i, w1_o)
        into = plus_product(tl.zeros((BLOCK, XP), dtype), passed, weight, EXACT)
        tl.store(gx + (column + i) * wanted + c[None, :], into, mask=here & (c[None, :] < wanted))


def fit(inputs: int, weights: Sequence[Tensor], shared: int) -> bool:
    """These layers (K, n, m) can go through the kernels, of which one program shares so many bytes.

    What a program needs is bounded from above: compilers differ.
    """
    hidden, outputs = [w.shape[2] for w in weights[:-1]], weights[-1].shape[2]
    powers = all(LEAST <= h <= WIDEST and h == triton.next_power_of_2(h) for h in hidden)
    few = inputs <= MOST_INPUTS and outputs <= (FEW if len(hidden) == 1 else MOST_OUTPUTS)
    if not (len(hidden) in (1, 2) and powers and few):
        return False
    if len(hidden) == 1:  # the backward holds the first layer, twice, and two blocks of rows
        columns = 2 * side(inputs + 1) + 3 * SHALLOW_BACK.block
    else:
        columns = DEEP_BACK.stages * DEEP_BACK.columns
    return 4 * max(hidden) * columns <= shared


def shallow_forward(
    x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], *, exact: bool
) -> Tensor:
    """The output (K, rows, m) for x (rows, n), with one hidden layer."""
    (rows, n), (count, width, m) = x.shape, weights[1].shape
    y, shape = x.new_empty(count, rows, m), SHALLOW
    if rows:
        shallow[(triton.cdiv(rows, shape.block), count)](
            x, *weights, *biases, y, rows, n, *weights[0].stride(), *weights[1].stride(),
            biases[0].stride(0), biases[1].stride(0), H=width, M=m, NP=side(n),
            BLOCK=shape.block, EXACT=exact,
            num_warps=shape.warps, num_stages=shape.stages,
        )  # fmt: skip
    return y


def shallow_backward(
    given: Tensor, x: Tensor, weights: Sequence[Tensor], bias: Tensor, span: tuple[int, int], *,
    learns: bool, exact: bool,
) -> tuple[Tensor | None, list[Tensor]]:  # fmt: skip
    """The slopes of inputs begin … end-1 (rows, end-begin), and, if it learns, the gradients of
    both weights, in their layout in memory, and both biases."""
    (rows, n), (count, width, m) = x.shape, weights[1].shape
    wanted, shape = span[1] - span[0], SHALLOW_BACK
    into = given.new_empty(count, rows, wanted)
    shapes = [(count, n, width), (count, width, m), (count, 1, width), (count, 1, m)]
    sizes = [a * b * c for a, b, c in shapes]
    turned = weights[0].stride(1) == 1
    strides = (1, n, 1, width) if turned else (width, 1, m, 1)
    chunks = max(1, min(CHUNKS, rows // shape.block))
    partials = given.new_empty(chunks if learns else 0, sum(sizes))
    shallow_slopes[(chunks, count)](
        given, x, *weights, bias, into, partials, rows, n, wanted, span[0],
        triton.cdiv(rows, chunks), sum(sizes), *weights[0].stride(), *weights[1].stride(),
        bias.stride(0), *strides, H=width, M=m, MP=side(m), NP=side(n + 1), XP=side(wanted),
        INTO=wanted > 0, LEARNS=learns, BLOCK=shape.block, EXACT=exact,
        num_warps=shape.warps, num_stages=shape.stages,
    )  # fmt: skip
    g_x = summed(into) if wanted else None
    if not learns:
        return g_x, []
    found = [
        (x.view(a, c, b).mT if turned and b > 1 else x.view(a, b, c))
        for x, (a, b, c) in zip(add_chunks(partials).split(sizes), shapes, strict=True)
    ]
    return g_x, found


def forward(
    x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], *, keep: bool,
    exact: bool, learns: bool = True,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """The output (K, rows, m) for x (rows, n), and of two hidden layers (K, rows, h), if kept,
    both, turned in memory. If nothing learns, the backward needs their signs alone."""
    if len(weights) == 2:
        return shallow_forward(x, weights, biases, exact=exact), []
    (rows, n), count, m = x.shape, len(weights[0]), weights[2].shape[2]
    sizes, shape = [w.shape[2] for w in weights[:2]], DEEP
    y = x.new_empty(count, rows, m)
    kept = x.dtype if learns else torch.int8
    hidden = [x.new_empty(count, h, rows, dtype=kept).mT for h in sizes] if keep else [y] * 2
    if rows:
        perceive[(triton.cdiv(rows, shape.block), count)](
            x, *weights, *biases, *hidden, y, rows, n, m,
            *(s for w in weights for s in w.stride()), *(b.stride(0) for b in biases),
            H1=sizes[0], H2=sizes[1], KEEP=keep, NP=side(n), MP=side(m),
            BLOCK=shape.block, AT_ONCE=min(shape.columns, sizes[0]), EXACT=exact,
            num_warps=shape.warps, num_stages=shape.stages,
        )  # fmt: skip
    return y, hidden if keep else []


def backward(
    given: Tensor, weights: Sequence[Tensor], hidden: Sequence[Tensor], span: tuple[int, int], *,
    keep: bool, exact: bool,
) -> tuple[Tensor | None, list[Tensor]]:  # fmt: skip
    """The slopes of inputs begin … end-1 (rows, end-begin), and of the hidden layers if kept."""
    count, rows, m = given.shape
    sizes, shape = [h.shape[2] for h in hidden], DEEP_BACK
    begin, wanted = span[0], span[1] - span[0]
    into = given.new_empty(count, rows, wanted)
    slope = [torch.empty_like(h) for h in hidden] if keep else [given] * 2
    if rows:
        slopes[(triton.cdiv(rows, shape.block), count)](
            given, *weights, *hidden, *slope, into, rows, m, begin, wanted,
            *(s for w in weights for s in w.stride()),
            H1=sizes[0], H2=sizes[1], INTO=wanted > 0, KEEP=keep,
            XP=side(wanted), MP=side(m), BLOCK=shape.block,
            AT_ONCE=min(shape.columns, sizes[1]), EXACT=exact,
            num_warps=shape.warps, num_stages=shape.stages,
        )  # fmt: skip
    return summed(into) if wanted else None, slope if keep else []


def summed(into: Tensor) -> Tensor:
    """The sum (rows, n) over perceptrons."""
    return into[0] if len(into) == 1 else torch.add(*into) if len(into) == 2 else into.sum(0)
