"""Adam over one flat tensor, with clipped groups and a tensor that follows (Kingma & Ba, 2015).

m ← β₁ m + (1 - β₁) g,  v ← β₂ v + (1 - β₂) g²,  x ← x - lr m̂ / (√v̂ + ε),   ε = 1e-8
y ← y + τ (x - y) for the tensor y that follows a part of x; its two halves have rates of their own
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kalmanac._ops.dispatch import fused

TINY = 1e-8
PIECE = 2**14  # numbers of a gradient, copied by one block of threads: a quarter of PyTorch's own


class Rates(NamedTuple):
    """Rates are the numbers that decide a step."""

    learning_rate: Tensor  # float64 (), where a recorded step reads what it is by then
    betas: tuple[float, float]
    taus: tuple[float, float]  # of what follows, before and after `Moving.border`
    fades: float  # after n steps, the first of them is at most fades / n
    max_norm: float | None  # the gradients of groups are clipped to it, each on its own


class Moving(NamedTuple):
    """These are the tensors that a step reads and writes, all flat."""

    values: Tensor
    gradients: Tensor
    average: Tensor
    square: Tensor
    steps: Tensor  # ()
    trailing: Tensor  # follows values[begin : begin + its length]
    begin: int
    border: int  # in `trailing`: from here on, the second rate


def adam_step(
    moving: Moving, gradients: Sequence[Tensor], slots: Sequence[Tensor], gaps: Sequence[Tensor],
    groups: Sequence[slice], rates: Rates,
) -> list[Tensor]:  # fmt: skip
    """Move once by the gradients of all parameters, in their order.

    Args:
        slots: contiguous views of `moving.gradients`, one for each gradient.
        gaps: zeros that fill the room behind each slot.
        groups: the parts of `values` whose gradients are clipped; two at most.

    Returns:
        The norms of the groups' gradients, 0-d, before they were clipped.
    """
    if fused(moving.values):
        from kalmanac._ops.adam_kernels import step

        size = max(PIECE, moving.values.numel() // 32)
        to, pieces = ([y for x in g for y in x.reshape(-1).split(size)] for g in (slots, gradients))
        torch._foreach_copy_(to, pieces)
        return step(*moving, groups=groups, **rates._asdict(), tiny=TINY)
    beside = [x for g, gap in zip(gradients, gaps, strict=True) for x in (g, gap)]
    torch.cat([x.reshape(-1) for x in beside], out=moving.gradients)
    norms = []
    for group in groups:
        own = moving.gradients[group]
        norms.append(torch.linalg.vector_norm(own))
        if rates.max_norm is not None:
            own.mul_((rates.max_norm / (norms[-1] + 1e-6)).clamp(max=1))
    moving.steps.add_(1)
    on_host = moving.values.device.type == "cpu"
    rate = rates.learning_rate.item() if on_host else rates.learning_rate.float()
    torch._fused_adam_(
        [moving.values], [moving.gradients], [moving.average], [moving.square], [], [moving.steps],
        lr=rate, beta1=rates.betas[0], beta2=rates.betas[1], weight_decay=0.0,
        eps=TINY, amsgrad=False, maximize=False,
    )  # fmt: skip
    followed = moving.values[moving.begin : moving.begin + len(moving.trailing)]
    first, second = slice(moving.border), slice(moving.border, None)
    tau: float | Tensor = rates.taus[0]
    if math.isfinite(rates.fades):
        tau = (rates.fades / moving.steps).clamp(max=tau)
    moving.trailing[first].lerp_(followed[first], tau)
    moving.trailing[second].lerp_(followed[second], rates.taus[1])
    return norms
