"""The Kalman scan of an embedding's projection, on a GPU: two linear layers in a row are one.

The filter's signals are W₂ (W₁ x + c₁) + c₂, one projection (n + 1, kN) of x and a one, and nobody
asks for the gradient of x. They are made inside the scan, and so is the gradient of the projection:
neither signals nor their gradients, kN numbers a step each, are ever in memory. That takes few
inputs: of more, the projections are products of their own.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kalmanac._ops.dense import MOST
from kalmanac._ops.dispatch import fused_products

NARROW = 64  # numbers of an embedding: sums over them are unrolled
FEW = 8  # inputs: each takes twice as many registers as there are signals


def embeds(x: Tensor, into: Tensor, channels: int) -> bool:
    """Return whether `embedded_scan` takes x (B, T, n), for W₂ = `into`."""
    if x.requires_grad or x.shape[2] > FEW or not x.numel():
        return False
    if len(into) > MOST or into.shape[1] > NARROW:
        return False
    if not fused_products(x, into):
        return False
    from kalmanac._ops.scan.gpu.tiling import cut_in_time

    return not cut_in_time(x.shape[0], x.shape[1], channels)


def embedded_scan(
    system: tuple[Tensor, Tensor | None, Tensor], q: Tensor, x: Tensor,
    embedder: tuple[Tensor, Tensor], into: tuple[Tensor, Tensor], floors: tuple[float, float],
) -> Tensor:  # fmt: skip
    """Return the posterior means (B, T, N), from N(0, 1), of signals that x (B, T, n) makes.

    The plain form is `zero_order_hold`, and `kalman_scan_packed` of both layers, one after the
    other (`represent`).

    Args:
        system: log |Ã| (N,), B̃ (N,) or None, and Δ̃ (), as `zero_order_hold` takes them.
        embedder: W₁ (E, n) and c₁ (E,).
        into: W₂ (kN, E) and c₂ (kN,) of the signals u, w and r; without B̃, of w and r.
        floors: of the noises of readings and process, which are softplus of r and of q.
    """
    return EmbeddedScan.apply(floors, *system, q, x, *embedder, *into)


class EmbeddedScan(torch.autograd.Function):
    """`embedded_scan`, differentiable but for x."""

    @staticmethod
    def forward(
        ctx: Any, floors: tuple[float, float], log_rate: Tensor, gain: Tensor | None,
        raw_step: Tensor, q: Tensor, x: Tensor, *layers: Tensor,
    ) -> Tensor:  # fmt: skip
        """See `embedded_scan`."""
        from kalmanac._ops.embedded_kernels import composed
        from kalmanac._ops.scan.gpu.launch import kalman_forward

        system = log_rate, gain, raw_step
        projection, a, b = composed(system, *layers)
        x = x.contiguous()
        ctx.layout, ctx.floors = "wr" if b is None else "uwr", floors
        mean, variance, *_, saved = kalman_forward(
            (a, b, q), [x], ctx.layout, (None,) * 4, (None,) * 3, floors, variances=False,
            projection=projection,
        )  # fmt: skip
        ctx.save_for_backward(*system, a, b, q, x, *layers, projection, mean, variance, saved)
        return mean

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_mean: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the system, of q and of both layers."""
        from kalmanac._ops.embedded_kernels import taken_apart
        from kalmanac._ops.scan.gpu.launch import kalman_backward

        saved = ctx.saved_tensors
        system, outputs = saved[:3], saved[-3:]
        a, b, q, x, *layers, projection = saved[3:-3]
        g_a, g_b, g_q, slope, *_ = kalman_backward(
            (a, b, q), [x], ctx.layout, (None,) * 4, (None,) * 3, ctx.floors, outputs,
            (g_mean, None, None, None), projection,
        )  # fmt: skip
        found = taken_apart(system, g_a, g_b, slope, *layers[:3])
        return None, *found[:3], g_q, None, *found[3:]
