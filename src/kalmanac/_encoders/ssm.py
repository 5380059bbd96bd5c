"""vSSM: the vanilla, real, diagonal state-space layer (paper, section 5.1 and appendix B)."""

from typing import NamedTuple

import torch
from torch import Tensor

from kalmanac._encoders.contract import (
    HistoryEncoder,
    Lengths,
    State,
    carried,
    check_step,
    positive_sizes,
    read_steps,
)
from kalmanac._encoders.layers import RAW_STEP_SIZE, Linear, Stack, ZeroOrderHold
from kalmanac._ops.scan.linear import linear_scan


class LatentState(NamedTuple):
    """The latent state x, (B, N)."""

    latent: Tensor


class SSMLayer(HistoryEncoder):
    """u_t = U h_t,  x_t = a x_{t-1} + b u_t,  z_t = V x_t,  from x = 0.

    The Kalman layer's "Predict" block alone: the same as that layer with infinite reading noise.
    """

    def __init__(self, d_model: int, d_state: int, *, raw_step_size: float = RAW_STEP_SIZE) -> None:
        super().__init__()
        positive_sizes(d_model=d_model, d_state=d_state)
        self.d_model, self.d_state = d_model, d_state
        self.in_projection = Linear(d_model, d_state)
        self.dynamics = ZeroOrderHold(d_state, raw_step_size=raw_step_size)
        self.out_projection = Linear(d_state, d_model)

    def initial_state(self, batch: int) -> LatentState:
        """Return x = 0."""
        weight = self.out_projection.weight
        return LatentState(torch.zeros(batch, self.d_state, **carried(weight)))

    def forward(
        self, h: Tensor, state: State | None = None, *, lengths: Lengths = None,
        reset: Tensor | None = None, observed: Tensor | None = None,
    ) -> tuple[Tensor, LatentState]:  # fmt: skip
        """See `HistoryEncoder`; `observed` is ignored."""
        steps = read_steps(self, h, state, lengths, reset, observed)
        u, a, b = self.dynamics.beside(self.in_projection, steps.h)
        assert b is not None
        x, last = linear_scan(
            a,
            b * u,
            state=None if state is None else state[0],
            lengths=steps.lengths,
            reset=steps.reset,
        )
        return steps.zero_pads(self.out_projection(x.to(u.dtype))), LatentState(last)

    def step(
        self, h_t: Tensor, state: State, *, reset: Tensor | None = None,
        observed: Tensor | None = None,
    ) -> tuple[Tensor, LatentState]:  # fmt: skip
        """See `HistoryEncoder`; `observed` is ignored."""
        check_step(self, h_t, state, reset, observed)
        (x,) = state
        if reset is not None:
            x = x.masked_fill(reset[:, None], 0)
        u = self.in_projection(h_t)
        a, b = self.dynamics()
        x = a * x + b * u
        return self.out_projection(x.to(u.dtype)), LatentState(x)


def vssm(
    d_model: int = 16,
    *,
    d_state: int = 128,
    layers: int = 1,
    norm: bool = False,
    raw_step_size: float = RAW_STEP_SIZE,
) -> Stack:
    """Make the row `vssm`."""
    positive_sizes(layers=layers)
    stacked = [SSMLayer(d_model, d_state, raw_step_size=raw_step_size) for _ in range(layers)]
    return Stack(stacked, norm=norm)
