"""What goes before an embedded scan, in one launch: two linear layers in a row as one (n + 1, M),
the bias as its last row, and the zero-order hold. And what goes behind its backward: the gradients
taken apart, and those of the hold."""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from kalmanac._ops.hold_kernels import backward as unhold
from kalmanac._ops.hold_kernels import block_of, of_given, pointers
from kalmanac._ops.hold_kernels import forward as hold

BLOCK = 64


@triton.jit
def row_of(w1, c1, e, n, NP: tl.constexpr):
    """Row e of W₁, with its bias behind it."""
    i = tl.arange(0, NP)
    return tl.where(i == n, tl.load(c1 + e), tl.load(w1 + e * n + i, mask=i < n, other=0.0))


@triton.jit
def compose(
    w1, c1, w2, c2, found, log_rate, gain, raw_step, a, b, n, M, N,
    E: tl.constexpr, NP: tl.constexpr, BLOCK: tl.constexpr, HAS_GAIN: tl.constexpr,
    CHANNELS: tl.constexpr,
):  # fmt: skip
    """BLOCK columns of [W₁ᵀ; c₁ᵀ] W₂ᵀ, plus c₂ in the last row; the last program holds."""
    if tl.program_id(0) == tl.num_programs(0) - 1:
        hold(log_rate, gain, raw_step, a, b, N, HAS_GAIN, CHANNELS)
    i, m = tl.arange(0, NP), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    sums = tl.where((i == n)[:, None], tl.load(c2 + m, mask=m < M, other=0.0)[None, :], 0.0)
    for e in tl.static_range(E):
        column = tl.load(w2 + m * E + e, mask=m < M, other=0.0)
        sums += row_of(w1, c1, e, n, NP)[:, None] * column[None, :]
    tl.store(found + i[:, None] * M + m[None, :], sums, mask=(i <= n)[:, None] & (m < M)[None, :])


@triton.jit
def take_apart(
    slopes, w1, c1, w2, g_w1, g_c1, g_w2,
    log_rate, gain, raw_step, g_a, g_b, g_rate, g_gain, g_step, n, M, N,
    E: tl.constexpr, NP: tl.constexpr, MP: tl.constexpr, HAS_GAIN: tl.constexpr,
    CHANNELS: tl.constexpr,
):  # fmt: skip
    """Gradients of row e of W₁ and c₁ and of column e of W₂ from the composed layer's; the last
    program has the hold's, too."""
    if tl.program_id(0) == E - 1:
        unhold(
            log_rate, gain, raw_step, g_a, g_b, g_rate, g_gain, g_step, N, HAS_GAIN, CHANNELS
        )  # fmt: skip
    e, i, m = tl.program_id(0), tl.arange(0, NP), tl.arange(0, MP)
    inside = (i <= n)[:, None] & (m < M)[None, :]
    given = tl.load(slopes + i[:, None] * M + m[None, :], mask=inside, other=0.0)
    column = tl.load(w2 + m * E + e, mask=m < M, other=0.0)
    of_row = tl.sum(given * column[None, :], 1)
    tl.store(g_w1 + e * n + i, of_row, mask=i < n)
    tl.store(g_c1 + e + 0 * i, of_row, mask=i == n)
    of_column = tl.sum(given * row_of(w1, c1, e, n, NP)[:, None], 0)
    tl.store(g_w2 + m * E + e, of_column, mask=m < M)


def composed(
    system: tuple[Tensor, Tensor | None, Tensor], w1: Tensor, c1: Tensor, w2: Tensor, c2: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The projection (n + 1, M) of x and a one that is W₂ (W₁ x + c₁) + c₂, and a and b of a system
    (log_rate, gain?, raw_step)."""
    log_rate, gain, _ = system
    (E, n), M = w1.shape, len(w2)
    found = w1.new_empty(n + 1, M)
    a, b = torch.empty_like(log_rate), None if gain is None else torch.empty_like(gain)
    compose[(triton.cdiv(M, BLOCK),)](
        w1, c1, w2, c2, found, *pointers(system), *pointers((a, b)), n, M, len(a),
        E=E, NP=triton.next_power_of_2(n + 1), BLOCK=BLOCK, HAS_GAIN=b is not None,
        CHANNELS=block_of(a),
    )  # fmt: skip
    return found, a, b


def taken_apart(
    system: Sequence[Tensor | None], g_a: Tensor, g_b: Tensor, slopes: Tensor, w1: Tensor,
    c1: Tensor, w2: Tensor,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """The gradients of a system, and of W₁, c₁, W₂ and c₂, from those of a, b and the projection,
    (n + 1, M)."""
    (E, n), M, given = w1.shape, len(w2), pointers(system)
    found, rates = ([torch.empty_like(x) for x in xs] for xs in ((w1, c1, w2), given))
    take_apart[(E,)](
        slopes, w1, c1, w2, *found, *given, g_a, g_b, *rates, n, M, len(g_a),
        E=E, NP=triton.next_power_of_2(n + 1), MP=triton.next_power_of_2(M),
        HAS_GAIN=system[1] is not None, CHANNELS=block_of(g_a), num_warps=8,
    )  # fmt: skip
    return *of_given(system, rates), *found, slopes[-1]
