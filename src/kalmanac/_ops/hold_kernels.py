"""Zero-order hold of N channels in one launch each way; everything inside is float64.

The channels are few, and in float64 the differences below keep enough digits without care.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from kalmanac._ops.scan.gpu.steps import log1p_of_unit


@triton.jit
def held(log_rate, raw_step, n, inside):
    """Rate |Ã|, step Δ, a = exp(-Δ|Ã|) and c = (1 - a) / |Ã|."""
    rate = tl.exp(tl.load(log_rate + n, mask=inside, other=0.0).to(tl.float64))
    raw = tl.load(raw_step).to(tl.float64)
    step = tl.maximum(raw, 0.0) + log1p_of_unit(tl.exp(-tl.abs(raw)))
    x = step * rate
    a = tl.exp(-x)
    # 1 - exp(-x) cancels for small x: its series there
    short = x * (1.0 - x / 2.0 * (1.0 - x / 3.0 * (1.0 - x / 4.0 * (1.0 - x / 5.0))))
    c = tl.where(x < 1e-3, short, 1.0 - a) / rate
    return rate, raw, step, a, c


@triton.jit
def forward(log_rate, gain, raw_step, a_out, b_out, N, HAS_GAIN: tl.constexpr, BLOCK: tl.constexpr):
    """a and b = c B̃."""
    n = tl.arange(0, BLOCK)
    inside = n < N
    _, _, _, a, c = held(log_rate, raw_step, n, inside)
    tl.store(a_out + n, a.to(a_out.dtype.element_ty), mask=inside)
    if HAS_GAIN:
        b = c * tl.load(gain + n, mask=inside, other=0.0).to(tl.float64)
        tl.store(b_out + n, b.to(b_out.dtype.element_ty), mask=inside)


@triton.jit
def backward(
    log_rate, gain, raw_step, g_a, g_b, g_rate, g_gain, g_step, N,
    HAS_GAIN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """∂a/∂log|Ã| = -aΔ|Ã|, ∂a/∂Δ = -a|Ã|; ∂c/∂log|Ã| = Δa - c, ∂c/∂Δ = a; ∂Δ/∂Δ̃ = σ(Δ̃)."""
    n = tl.arange(0, BLOCK)
    inside = n < N
    rate, raw, step, a, c = held(log_rate, raw_step, n, inside)
    slope = tl.load(g_a + n, mask=inside, other=0.0).to(tl.float64)
    of_rate = -slope * a * step * rate
    of_step = -slope * a * rate
    if HAS_GAIN:
        driven = tl.load(g_b + n, mask=inside, other=0.0).to(tl.float64)
        tl.store(g_gain + n, (driven * c).to(g_gain.dtype.element_ty), mask=inside)
        driven = driven * tl.load(gain + n, mask=inside, other=0.0).to(tl.float64)
        of_rate += driven * (step * a - c)
        of_step += driven * a
    tl.store(g_rate + n, of_rate.to(g_rate.dtype.element_ty), mask=inside)
    total = tl.sum(tl.where(inside, of_step, 0.0), 0) / (1.0 + tl.exp(-raw))
    tl.store(g_step, total.to(g_step.dtype.element_ty))


def hold_forward(
    log_rate: Tensor, gain: Tensor | None, raw_step: Tensor
) -> tuple[Tensor, Tensor | None]:
    """a and b, None without a gain; each (N,)."""
    a, b = torch.empty_like(log_rate), None if gain is None else torch.empty_like(gain)
    forward[(1,)](
        *pointers((log_rate, gain, raw_step)), *pointers((a, b)), len(a),
        HAS_GAIN=b is not None, BLOCK=block_of(a),
    )  # fmt: skip
    return a, b


def hold_backward(
    system: Sequence[Tensor | None], g_a: Tensor, g_b: Tensor | None
) -> tuple[Tensor | None, ...]:
    """The gradients of log_rate, the gain, None without one, and raw_step."""
    given = pointers(system)
    found = [torch.empty_like(x) for x in given]
    backward[(1,)](
        *given, *pointers((g_a, g_b)), *found, len(g_a),
        HAS_GAIN=system[1] is not None, BLOCK=block_of(g_a),
    )  # fmt: skip
    return of_given(system, found)


def pointers(tensors: Sequence[Tensor | None]) -> list[Tensor]:
    """These as kernels take them: the first stands where there is none."""
    return [x for x in (tensors[0] if y is None else y for y in tensors) if x is not None]


def of_given(
    tensors: Sequence[Tensor | None], found: Sequence[Tensor]
) -> tuple[Tensor | None, ...]:
    """What was found for each, None where there is none."""
    return tuple(None if x is None else y for x, y in zip(tensors, found, strict=True))


def block_of(x: Tensor) -> int:
    return max(triton.next_power_of_2(len(x)), 32)
