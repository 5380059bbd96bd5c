"""Linear layers on many rows with few inputs and outputs: y = x W + b, and the gradients of W, b.

Libraries cut such a sum over rows into parts, add these up, and sum the bias's gradient on its own,
in five launches; here the parts of weights and biases, of one layer or several, are one launch a
layer and one to add all of them up. Products round their factors to TF32 if asked for; sums keep
all their bits.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import triton
import triton.language as tl
from torch import Tensor

CHUNKS = 64  # at most: parts of the rows whose sums are added up
CHUNK_ROWS = 320  # at least, in each of them, or a multiple: whole blocks of any tile
SMALL = 8192  # numbers of all gradients: with less, parts cost nothing, and more of them fill a GPU
SMALL_CHUNK_ROWS = 96
MANY = 8192  # rows: with less, 64 at once would leave multiprocessors without any
LEAST = 16  # columns: the smallest side of a product on tensor cores


class Beside(NamedTuple):
    """Work for one program more of a launch: a kernel in the place of the usual one, which has that
    program behind the usual ones, and its arguments beside the usual ones."""

    kernel: Any
    arguments: dict[str, Any]


@triton.jit
def plus_product(sums, a, b, EXACT: tl.constexpr):
    """sums + a b, the factors rounded to TF32 unless EXACT."""
    PRECISION: tl.constexpr = "ieee" if EXACT else "tf32"
    return tl.dot(a, b, sums, input_precision=PRECISION, out_dtype=sums.dtype)


@triton.jit
def affine(
    x, w, b, y, rows, n, m, x_r, w_n, w_m,
    HAS_B: tl.constexpr, EXACT: tl.constexpr, BLOCK: tl.constexpr, DEEP: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    """BLOCK rows and WIDE columns of y (rows, m) = x (rows, n) w (n, m) + b."""
    i = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)[:, None]
    o = (tl.program_id(1) * WIDE + tl.arange(0, WIDE))[None, :]
    dtype: tl.constexpr = y.dtype.element_ty
    found = tl.zeros((BLOCK, WIDE), dtype)
    if HAS_B:
        found += tl.load(b + o, mask=o < m, other=0.0)
    for begin in range(0, n, DEEP):
        c = begin + tl.arange(0, DEEP)
        seen = tl.load(x + i * x_r + c[None, :], mask=(i < rows) & (c[None, :] < n), other=0.0)
        at = c[:, None] * w_n + o * w_m
        weight = tl.load(w + at, mask=(c[:, None] < n) & (o < m), other=0.0)
        found = plus_product(found, seen, weight, EXACT)
    tl.store(y + i * m + o, found, mask=(i < rows) & (o < m))


@triton.jit
def products(
    x, g, partials, rows, n, m, size, x_k, x_r, x_n, g_k, g_r, g_m, w_k, w_n, w_m, b_at, b_k, chunk,
    EXACT: tl.constexpr, BLOCK: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """One chunk's part of xᵀ g, a tile of it, and of Σ g; x (K, rows, n), g (K, rows, m).

    Σ g has a loop of its own. Hopper's products run on while the next loads are under way, and
    Triton (3.6, 3.7) gives a load that somebody else reads, too, one place too few in shared memory
    for that: it was overwritten while a product still read it, now and then.
    """
    across = tl.cdiv(m, WIDE)
    c = (tl.program_id(0) // across) * TALL + tl.arange(0, TALL)
    o = (tl.program_id(0) % across) * WIDE + tl.arange(0, WIDE)
    begin, k = tl.program_id(1) * chunk, tl.program_id(2)
    end = tl.minimum(begin + chunk, rows)
    dtype: tl.constexpr = partials.dtype.element_ty
    found = tl.zeros((TALL, WIDE), dtype)
    x += k * x_k
    g += k * g_k
    for first in range(begin, end, BLOCK):
        i = (first + tl.arange(0, BLOCK)).to(tl.int64)
        seen = tl.load(
            x + i[None, :] * x_r + c[:, None] * x_n,
            mask=(i[None, :] < rows) & (c[:, None] < n), other=0.0,
        )  # fmt: skip
        slope = tl.load(
            g + i[:, None] * g_r + o[None, :] * g_m,
            mask=(i[:, None] < rows) & (o[None, :] < m), other=0.0,
        )  # fmt: skip
        found = plus_product(found, seen, slope, EXACT)
    partials += tl.program_id(1).to(tl.int64) * size
    at = k * w_k + c[:, None] * w_n + o[None, :] * w_m
    tl.store(partials + at, found, mask=(c[:, None] < n) & (o[None, :] < m))
    if tl.program_id(0) < across:
        biases = tl.zeros((BLOCK, WIDE), dtype)
        for first in range(begin, end, BLOCK):
            row = (first + tl.arange(0, BLOCK)).to(tl.int64)[:, None]
            biases += tl.load(
                g + row * g_r + o[None, :] * g_m, mask=(row < rows) & (o[None, :] < m), other=0.0
            )
        tl.store(partials + b_at + k * b_k + o, tl.sum(biases, 0), mask=o < m)


@triton.jit
def add_up(partials, sums, chunks, size, BLOCK: tl.constexpr, AT_ONCE: tl.constexpr):
    """The sums of all chunks, always in the same order."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < size
    found = tl.zeros((BLOCK,), sums.dtype.element_ty)
    for begin in range(0, chunks, AT_ONCE):
        c = begin + tl.arange(0, AT_ONCE)
        at = c[:, None].to(tl.int64) * size + i[None, :]
        found += tl.sum(tl.load(partials + at, mask=(c[:, None] < chunks) & inside, other=0.0), 0)
    tl.store(sums + i, found, mask=inside)


def product(
    x: Tensor, w: Tensor, b: Tensor | None, *, exact: bool, beside: Beside | None = None
) -> Tensor:
    """x (rows, n), its rows contiguous, times w (n, m), plus b (m,): (rows, m)."""
    (rows, n), m = x.shape, w.shape[1]
    y = x.new_empty(rows, m)
    if not rows:
        return y
    block, wide = 64 if rows > MANY else 32, min(side(m), 64)
    kernel, arguments = beside or Beside(affine, {})
    kernel[(triton.cdiv(rows, block) + (beside is not None), triton.cdiv(m, wide))](
        x, w, w if b is None else b, y, rows, n, m, x.stride(0), *w.stride(), HAS_B=b is not None,
        EXACT=exact, BLOCK=block, DEEP=min(side(n), 64), WIDE=wide, num_warps=4, **arguments,
    )  # fmt: skip
    return y


def gradients(
    pairs: Sequence[tuple[Tensor, Tensor]], transposed: bool, *, exact: bool,
    beside: Beside | None = None,
) -> list[tuple[Tensor, Tensor]]:  # fmt: skip
    """For each pair x (K or 1, rows, n), slope (K, rows, m): those of w (K, n, m) and b (K, 1, m).

    `transposed`: the weights' gradients are transposed views of (K, m, n) in memory.
    """
    rows = pairs[0][1].shape[1]
    shapes = [(len(g), x.shape[2], g.shape[2]) for x, g in pairs]
    sizes = [k * (n * m + m) for k, n, m in shapes]
    size = sum(sizes)
    least = SMALL_CHUNK_ROWS if size < SMALL else CHUNK_ROWS
    chunk = triton.cdiv(triton.cdiv(rows, CHUNKS), least) * least
    chunks = triton.cdiv(rows, chunk) if rows else 1
    partials = pairs[-1][1].new_empty(chunks, size)
    for (x, g), (k, n, m), own in zip(pairs, shapes, partials.split(sizes, 1), strict=True):
        strides = (1, n) if transposed else (m, 1)
        tile = tile_of(n, m, small=size < SMALL, along=x.stride(1) == 1 and g.stride(1) == 1)
        across = triton.cdiv(n, tile.tall) * triton.cdiv(m, tile.wide)
        products[(across, chunks, k)](
            x, g, own, rows, n, m, size, x.stride(0) if len(x) > 1 else 0,
            *x.stride()[1:], *g.stride(), n * m, *strides, k * n * m, m, chunk,
            EXACT=exact, BLOCK=tile.block, TALL=tile.tall, WIDE=tile.wide, num_warps=tile.warps,
            num_stages=tile.stages,
        )  # fmt: skip
    found = []
    for (k, n, m), own in zip(shapes, add_chunks(partials, beside).split(sizes), strict=True):
        weights, biases = own.split([k * n * m, k * m])
        w = weights.view(k, m, n).mT if transposed else weights.view(k, n, m)
        found.append((w, biases.view(k, 1, m)))
    return found


class Tile(NamedTuple):
    """The part of a gradient that one program adds up, and how."""

    tall: int
    wide: int
    block: int  # rows at once
    warps: int
    stages: int  # of loads under way


def tile_of(n: int, m: int, *, small: bool, along: bool) -> Tile:
    """For weights (n, m). From 64 rows on, Hopper's tensor cores take TF32 factors from shared
    memory if both lie `along` the rows that are summed over, else after a costly turn: twice the
    time of 32 rows. A `small` layer alone has too few tiles of 64 columns."""
    if along and min(n, m) > 64:
        return Tile(128, 128, 32, 8, 3)
    if small:
        return Tile(min(side(n), 32), min(side(m), 32), 32, 2, 3)
    return Tile(min(side(n), 32), min(side(m), 64), 32, 4, 3)


def add_chunks(partials: Tensor, beside: Beside | None = None) -> Tensor:
    """The sums (size,) over chunks (chunks, size), always in the same order."""
    chunks, size = partials.shape
    sums = partials.new_empty(size)
    block, at_once = (128, 16) if chunks <= 16 else (32, 64)  # a program waits once or twice
    kernel, arguments = beside or Beside(add_up, {})
    kernel[(triton.cdiv(size, block) + (beside is not None),)](
        partials, sums, chunks, size, BLOCK=block, AT_ONCE=at_once, **arguments
    )
    return sums


def side(size: int) -> int:
    """The side of a tile that holds so many."""
    return max(triton.next_power_of_2(size), LEAST)
