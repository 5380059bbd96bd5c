"""Adam over one flat tensor, gradient norms, clipping and a trailing average, in two launches."""

from collections.abc import Sequence

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024
GROUPS = 2  # whose gradients can be clipped


@triton.jit
def sums(gradients, steps, partials, size, a0, a1, b0, b1, BLOCK: tl.constexpr):
    """A block's share of Σ g² of two groups, and one more step."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(gradients + i, mask=i < size, other=0.0)
    square = g * g
    mine = partials + tl.program_id(0)
    tl.store(mine, tl.sum(tl.where((i >= a0) & (i < a1), square, 0.0), 0))
    other = tl.sum(tl.where((i >= b0) & (i < b1), square, 0.0), 0)
    tl.store(mine + tl.num_programs(0), other)
    if tl.program_id(0) == 0:
        tl.store(steps, tl.load(steps) + 1)


@triton.jit
def norm(partials, group: tl.constexpr, programs, PP: tl.constexpr):
    """The norm of a group's gradient."""
    i = tl.arange(0, PP)
    found = tl.load(partials + group * programs + i, mask=i < programs, other=0.0)
    return tl.sqrt(tl.sum(found, 0))


@triton.jit
def at_most_one(x):
    """min(x, 1); NaN stays NaN."""
    return tl.minimum(x, 1.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def move(
    values, gradients, average, square, steps, trailing, partials, norms, size,
    a0, a1, b0, b1, begin, border, trails, rate, tau_1: tl.float64, tau_2: tl.float64,
    fades: tl.float64, max_norm: tl.float64, beta_1: tl.float64, beta_2: tl.float64,
    tiny: tl.float64,
    CLIPS: tl.constexpr, PP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """m ← β₁ m + (1 - β₁) g,  v ← β₂ v + (1 - β₂) g²,  x ← x - lr m̂ / (√v̂ + ε)."""
    programs = tl.num_programs(0)
    first, second = norm(partials, 0, programs, PP), norm(partials, 1, programs, PP)
    if tl.program_id(0) == 0:
        tl.store(norms, first)
        tl.store(norms + 1, second)
    dtype: tl.constexpr = values.dtype.element_ty
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < size
    g = tl.load(gradients + i, mask=inside, other=0.0)
    if CLIPS:
        share_1 = at_most_one((max_norm / (first + 1e-6)).to(dtype))
        share_2 = at_most_one((max_norm / (second + 1e-6)).to(dtype))
        g = tl.where((i >= a0) & (i < a1), g * share_1, g)
        g = tl.where((i >= b0) & (i < b1), g * share_2, g)
    m = tl.load(average + i, mask=inside, other=0.0)
    v = tl.load(square + i, mask=inside, other=0.0)
    m += ((g - m) * (1.0 - beta_1)).to(dtype)
    v = (v * beta_2).to(dtype) + (g * g * (1.0 - beta_2)).to(dtype)
    step = tl.load(steps).to(tl.float64)
    left_1 = 1.0 - tl.exp(step * tl.log(beta_1 + tl.zeros((), tl.float64)))
    left_2 = 1.0 - tl.exp(step * tl.log(beta_2 + tl.zeros((), tl.float64)))
    size_1 = (tl.load(rate) / left_1).to(dtype)
    below = tl.sqrt(v) / tl.sqrt(left_2).to(dtype) + (tl.zeros((), tl.float64) + tiny).to(dtype)
    x = tl.load(values + i, mask=inside, other=0.0) - size_1 * m / below
    tl.store(values + i, x, mask=inside)
    tl.store(average + i, m, mask=inside)
    tl.store(square + i, v, mask=inside)
    follows = (i >= begin) & (i < begin + trails)
    old = tl.load(trailing + i - begin, mask=follows, other=0.0)
    tau = tl.where(i < begin + border, tl.minimum(tau_1, fades / step), tau_2)
    tl.store(trailing + i - begin, old + ((x - old) * tau).to(dtype), mask=follows)


def step(
    values: Tensor, gradients: Tensor, average: Tensor, square: Tensor, steps: Tensor,
    trailing: Tensor, begin: int, border: int, *, groups: Sequence[slice], learning_rate: Tensor,
    taus: tuple[float, float], fades: float, max_norm: float | None, betas: tuple[float, float],
    tiny: float,
) -> list[Tensor]:  # fmt: skip
    """Move once; returns the norms of the groups' gradients, 0-d, before they were clipped."""
    size, trails = values.numel(), trailing.numel()
    programs = triton.cdiv(size, BLOCK)
    partials = values.new_empty(GROUPS, programs)
    norms = values.new_empty(GROUPS)
    spans = [end for group in groups for end in (group.start, group.stop)]
    spans += [0] * (2 * GROUPS - len(spans))
    sums[(programs,)](gradients, steps, partials, size, *spans, BLOCK=BLOCK)
    move[(programs,)](
        values, gradients, average, square, steps, trailing, partials, norms, size, *spans, begin,
        border, trails, learning_rate, *taus, fades,
        0.0 if max_norm is None else max_norm, *betas, tiny,
        CLIPS=max_norm is not None, PP=triton.next_power_of_2(programs), BLOCK=BLOCK,
    )  # fmt: skip
    return list(norms.unbind())[: len(groups)]
