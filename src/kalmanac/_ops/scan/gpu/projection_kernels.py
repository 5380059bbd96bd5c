"""Two linear layers in a row as one (n + 1, M), the bias as its last row; and its gradient taken
apart."""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 64


@triton.jit
def row_of(w1, c1, e, n, NP: tl.constexpr):
    """Row e of W₁, with its bias behind it."""
    i = tl.arange(0, NP)
    return tl.where(i == n, tl.load(c1 + e), tl.load(w1 + e * n + i, mask=i < n, other=0.0))


@triton.jit
def compose(w1, c1, w2, c2, found, n, M, E: tl.constexpr, NP: tl.constexpr, BLOCK: tl.constexpr):
    """BLOCK columns of [W₁ᵀ; c₁ᵀ] W₂ᵀ, plus c₂ in the last row."""
    i, m = tl.arange(0, NP), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    sums = tl.where((i == n)[:, None], tl.load(c2 + m, mask=m < M, other=0.0)[None, :], 0.0)
    for e in tl.static_range(E):
        column = tl.load(w2 + m * E + e, mask=m < M, other=0.0)
        sums += row_of(w1, c1, e, n, NP)[:, None] * column[None, :]
    tl.store(found + i[:, None] * M + m[None, :], sums, mask=(i <= n)[:, None] & (m < M)[None, :])


@triton.jit
def take_apart(
    weights, bias, w1, c1, w2, g_w1, g_c1, g_w2, n, M,
    E: tl.constexpr, NP: tl.constexpr, MP: tl.constexpr,
):  # fmt: skip
    """Gradients of row e of W₁ and c₁ and of column e of W₂ from the composed layer's."""
    e, i, m = tl.program_id(0), tl.arange(0, NP), tl.arange(0, MP)
    inside = (i < n)[:, None] & (m < M)[None, :]
    slopes = tl.load(weights + i[:, None] * M + m[None, :], mask=inside, other=0.0)
    last = tl.load(bias + m, mask=m < M, other=0.0)
    slopes = tl.where((i == n)[:, None], last[None, :], slopes)
    column = tl.load(w2 + m * E + e, mask=m < M, other=0.0)
    of_row = tl.sum(slopes * column[None, :], 1)
    tl.store(g_w1 + e * n + i, of_row, mask=i < n)
    tl.store(g_c1 + e + 0 * i, of_row, mask=i == n)
    of_column = tl.sum(slopes * row_of(w1, c1, e, n, NP)[:, None], 0)
    tl.store(g_w2 + m * E + e, of_column, mask=m < M)


def composed(w1: Tensor, c1: Tensor, w2: Tensor, c2: Tensor) -> Tensor:
    """The projection (n + 1, M) of x and a one that is W₂ (W₁ x + c₁) + c₂."""
    (E, n), M = w1.shape, len(w2)
    found = w1.new_empty(n + 1, M)
    compose[(triton.cdiv(M, BLOCK),)](
        w1, c1, w2, c2, found, n, M, E=E, NP=triton.next_power_of_2(n + 1), BLOCK=BLOCK
    )
    return found


def taken_apart(
    weights: Tensor, bias: Tensor, w1: Tensor, c1: Tensor, w2: Tensor
) -> tuple[Tensor, ...]:
    """The gradients of W₁, c₁, W₂ and c₂ from those of `composed`, (n, M) and (M,)."""
    (E, n), M = w1.shape, len(w2)
    found = [torch.empty_like(x) for x in (w1, c1, w2)]
    take_apart[(E,)](
        weights, bias, w1, c1, w2, *found, n, M,
        E=E, NP=triton.next_power_of_2(n + 1), MP=triton.next_power_of_2(M),
        num_warps=8,
    )  # fmt: skip
    return *found, bias
