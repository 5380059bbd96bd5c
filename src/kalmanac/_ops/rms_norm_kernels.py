"""RMSNorm of many short rows: one launch each way, several rows a warp."""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 64  # rows at once


@triton.jit
def forward(x, w, y, done, rows, n, eps, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    """BLOCK rows of y = x̂ w with x̂ = s x, s = 1 / √(mean(x²) + ε); `done` is 0 from here on."""
    at, inside, weight = lay_out(w, rows, n, BLOCK, WIDE)
    found, _ = normed(x, at, inside, n, eps)
    tl.store(y + at, found * weight, mask=inside)
    if tl.program_id(0) == 0:
        tl.store(done, 0)


@triton.jit
def backward(
    x, w, g, g_x, partials, g_w, done, rows, n, eps, BLOCK: tl.constexpr, WIDE: tl.constexpr
):  # fmt: skip
    """BLOCK rows of the slopes of x for slopes g, s (g w - x̂ mean(g w x̂)), and Σ g x̂ over them.

    The program that is the last one to be done adds up all of these sums, in their order.
    """
    at, inside, weight = lay_out(w, rows, n, BLOCK, WIDE)
    found, scale = normed(x, at, inside, n, eps)
    slope = tl.load(g + at, mask=inside, other=0.0)
    o, c, programs = tl.arange(0, WIDE), tl.arange(0, WIDE)[None, :], tl.num_programs(0)
    tl.store(partials + tl.program_id(0) * n + o, tl.sum(slope * found, 0), mask=o < n)
    pulled = slope * weight
    mean = tl.sum(pulled * found, 1)[:, None] / n
    tl.store(g_x + at, scale * (pulled - found * mean), mask=inside)
    tl.debug_barrier()  # what all threads have stored comes before the count of it
    if tl.atomic_add(done, 1) == programs - 1:
        sums = tl.zeros((WIDE,), partials.dtype.element_ty)
        for first in range(0, programs, BLOCK):
            part = (first + tl.arange(0, BLOCK))[:, None]
            there = (part < programs) & (c < n)
            sums += tl.sum(tl.load(partials + part * n + c, mask=there, other=0.0), 0)
        tl.store(g_w + o, sums, mask=o < n)
        tl.store(done, 0)


@triton.jit
def lay_out(w, rows, n, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    """Places and mask of this program's rows, and the weights."""
    c = tl.arange(0, WIDE)[None, :]
    i = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)[:, None]
    return i * n + c, (i < rows) & (c < n), tl.load(w + c, mask=c < n, other=0.0)


@triton.jit
def normed(x, at, inside, n, eps):
    """x̂ and s."""
    seen = tl.load(x + at, mask=inside, other=0.0)
    scale = 1.0 / tl.sqrt(tl.sum(seen * seen, 1)[:, None] / n + eps)
    return seen * scale, scale


def norm(x: Tensor, w: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """y (rows, n) for x (rows, n), and the count that `norm_gradients` needs."""
    y, done = torch.empty_like(x), x.new_empty(1, dtype=torch.int32)
    if programs := triton.cdiv(len(x), BLOCK):
        forward[(programs,)](x, w, y, done, *x.shape, eps, BLOCK, side(x), num_warps=4)
    return y, done


def norm_gradients(
    x: Tensor, w: Tensor, eps: float, done: Tensor, g: Tensor
) -> tuple[Tensor, Tensor]:
    """Those of x and w for slopes g of y."""
    programs = triton.cdiv(len(x), BLOCK)
    if not programs:
        return torch.empty_like(x), torch.zeros_like(w)
    g_x, g_w, partials = torch.empty_like(x), torch.empty_like(w), x.new_empty(programs, len(w))
    backward[(programs,)](
        x, w, g, g_x, partials, g_w, done, *x.shape, eps, BLOCK, side(x), num_warps=4
    )
    return g_x, g_w


def side(x: Tensor) -> int:
    return triton.next_power_of_2(x.shape[1])
