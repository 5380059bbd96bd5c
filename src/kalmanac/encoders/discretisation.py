"""A continuous diagonal system with a learnable step size, held for one step at a time."""

import math

import torch
from torch import Tensor, nn

from kalmanac.ops.hold import zero_order_hold
from kalmanac.ops.scan.arguments import carry_dtype

RAW_STEP_SIZE = -7.0  # Δ̃ at the start (paper, Table 1)


class ZeroOrderHold(nn.Module):
    """The real diagonal system of vSSM and of the Kalman layers.

    At the start Ã_n = -(n + 1) (S4D-Real, the HiPPO diagonal) and B̃ = 1. Only the logarithm of |Ã|
    is stored, so that the sign cannot flip. With Δ̃ = -7, a runs from 0.9991 to 0.890 for N = 128.
    """

    def __init__(
        self, d_state: int, *, input_signal: bool = True, raw_step_size: float = RAW_STEP_SIZE
    ) -> None:
        super().__init__()
        self.log_rate = nn.Parameter(torch.log(torch.arange(1.0, d_state + 1)))  # log |Ã|
        self.input_gain = nn.Parameter(torch.ones(d_state)) if input_signal else None  # B̃
        self.raw_step_size = nn.Parameter(torch.tensor(float(raw_step_size)))  # Δ̃

    def forward(self) -> tuple[Tensor, Tensor | None]:
        """The discrete a (N,) and b (N,), in float32 at least; b is None without an input."""
        carry = carry_dtype(self.log_rate.dtype)
        gain = None if self.input_gain is None else self.input_gain.to(carry)
        return zero_order_hold(self.log_rate.to(carry), gain, self.raw_step_size.to(carry))


def inverse_softplus(y: float) -> float:
    """x with softplus(x) = y, for y > 0."""
    return y + math.log(-math.expm1(-y))
