"""From a continuous diagonal system to one step of it: zero-order hold (paper, section 4.2).

With Ã = -exp(log_rate) and a step size Δ = softplus(raw_step):

    a = exp(Δ Ã),   b = (a - 1) / Ã · B̃.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.library import custom_op

from kalmanac._ops.dispatch import fused


def zero_order_hold(
    log_rate: Tensor, gain: Tensor | None, raw_step: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Compute a (N,) and b (N,) of log |Ã| (N,), B̃ (N,) and Δ̃ (); b is None without a gain.

    On CUDA this is one kernel in each direction, else some twenty launches for a hundred numbers.
    """
    if fused(log_rate):
        outputs = fused_hold(log_rate, gain, raw_step)
        return outputs[0], None if gain is None else outputs[1]
    return plain_hold(log_rate, gain, raw_step)


def plain_hold(
    log_rate: Tensor, gain: Tensor | None, raw_step: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Compute `zero_order_hold` as it is written."""
    rate = -log_rate.exp()
    exponent = F.softplus(raw_step) * rate
    a = exponent.exp()
    return a, None if gain is None else torch.expm1(exponent) / rate * gain


@custom_op("kalmanac::hold", mutates_args=())
def fused_hold(log_rate: Tensor, gain: Tensor | None, raw_step: Tensor) -> list[Tensor]:
    """Compute [a, b], or [a], by the GPU backend's kernel."""
    from kalmanac._ops.hold_kernels import hold_forward

    return hold_forward(log_rate, gain, raw_step)


@custom_op("kalmanac::hold_backward", mutates_args=())
def _adjoint(
    log_rate: Tensor, gain: Tensor | None, raw_step: Tensor, g_outputs: list[Tensor]
) -> list[Tensor]:
    from kalmanac._ops.hold_kernels import hold_backward

    return hold_backward(log_rate, gain, raw_step, [x.contiguous() for x in g_outputs])


@fused_hold.register_fake
def _(log_rate: Tensor, gain: Tensor | None, raw_step: Tensor) -> list[Tensor]:
    return [torch.empty_like(log_rate) for _ in range(1 if gain is None else 2)]


@_adjoint.register_fake
def _(
    log_rate: Tensor, gain: Tensor | None, raw_step: Tensor, g_outputs: list[Tensor]
) -> list[Tensor]:
    return [torch.empty_like(x) for x in (log_rate, raw_step, gain) if x is not None]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    log_rate, gain, raw_step = inputs
    ctx.has_gain = gain is not None
    ctx.save_for_backward(log_rate, raw_step, *([] if gain is None else [gain]))


def _gradients(ctx: Any, g_outputs: list[Tensor | None]) -> tuple[Tensor | None, ...]:
    log_rate, raw_step, *gain = ctx.saved_tensors
    slopes = [torch.zeros_like(log_rate) if x is None else x for x in g_outputs]
    g_inputs = _adjoint(log_rate, gain[0] if gain else None, raw_step, slopes)
    return g_inputs[0], g_inputs[2] if ctx.has_gain else None, g_inputs[1]


fused_hold.register_autograd(_gradients, setup_context=_keep)
