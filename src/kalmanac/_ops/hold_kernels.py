"""Zero-order hold of N channels by one program of a launch that is there anyway.

Everything inside is float64: the channels are few, and the differences below keep enough digits
without care.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kalmanac._ops.dense_kernels import Beside, add_up, affine
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


@triton.jit
def affine_beside(
    x, w, b, y, rows, n, m, x_r, w_n, w_m, log_rate, gain, raw_step, a_out, b_out, N,
    HAS_B: tl.constexpr, EXACT: tl.constexpr, BLOCK: tl.constexpr, DEEP: tl.constexpr,
    WIDE: tl.constexpr, HAS_GAIN: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """`affine`; the program behind its rows holds."""
    if tl.program_id(0) * BLOCK >= rows:
        if tl.program_id(1) == 0:
            forward(log_rate, gain, raw_step, a_out, b_out, N, HAS_GAIN, CHANNELS)
    else:
        affine(x, w, b, y, rows, n, m, x_r, w_n, w_m, HAS_B, EXACT, BLOCK, DEEP, WIDE)


@triton.jit
def add_up_beside(
    partials, sums, chunks, size, log_rate, gain, raw_step, g_a, g_b, g_rate, g_gain, g_step, N,
    BLOCK: tl.constexpr, AT_ONCE: tl.constexpr, HAS_GAIN: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """`add_up`; the program behind its sums has the gradients of the hold."""
    if tl.program_id(0) * BLOCK >= size:
        backward(
            log_rate, gain, raw_step, g_a, g_b, g_rate, g_gain, g_step, N, HAS_GAIN, CHANNELS
        )  # fmt: skip
    else:
        add_up(partials, sums, chunks, size, BLOCK, AT_ONCE)


def holding(system: Sequence[Tensor | None]) -> tuple[Tensor, Tensor | None, Beside]:
    """a and b, (N,) each, b None without a gain, and who fills them in."""
    given = pointers(system)
    a, b = torch.empty_like(given[0]), None if system[1] is None else torch.empty_like(given[1])
    names = ("log_rate", "gain", "raw_step", "a_out", "b_out")
    return a, b, beside(affine_beside, names, (*given, *pointers((a, b))), system)


def unholding(
    system: Sequence[Tensor | None], g_a: Tensor, g_b: Tensor | None
) -> tuple[tuple[Tensor | None, ...], Beside]:
    """The gradients of log_rate, the gain, if there is one, and raw_step, and who fills them in."""
    given = pointers(system)
    found = [torch.empty_like(x) for x in given]
    names = ("log_rate", "gain", "raw_step", "g_a", "g_b", "g_rate", "g_gain", "g_step")
    tensors = (*given, *pointers((g_a, g_b)), *found)
    return of_given(system, found), beside(add_up_beside, names, tensors, system)


def beside(
    kernel: Any, names: Sequence[str], tensors: Sequence[Tensor], system: Sequence[Tensor | None]
) -> Beside:
    """A kernel with these tensors."""
    sizes = {"N": len(tensors[0]), "HAS_GAIN": system[1] is not None}
    named = dict(zip(names, tensors, strict=True))
    return Beside(kernel, {**named, **sizes, "CHANNELS": block_of(tensors[0])})


def pointers(tensors: Sequence[Tensor | None]) -> list[Tensor]:
    """These as kernels take them, without gaps; the first stands where there is none."""
    given = (tensors[0] if x is None else x for x in tensors)
    return [x.contiguous() for x in given if x is not None]


def of_given(
    tensors: Sequence[Tensor | None], found: Sequence[Tensor]
) -> tuple[Tensor | None, ...]:
    """What was found for each, None where there is none."""
    return tuple(None if x is None else y for x, y in zip(tensors, found, strict=True))


def block_of(x: Tensor) -> int:
    return max(triton.next_power_of_2(len(x)), 32)
