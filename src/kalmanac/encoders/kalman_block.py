"""A richer block around the Kalman layer: norm, convolution, gate, residual.

The paper names these as the usual means to stabilise larger models (section 6, future work); the
arrangement is that of a Mamba block with the Kalman layer in the selective scan's place.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kalmanac.encoders.convolution import CausalConvolution
from kalmanac.encoders.discretisation import RAW_STEP_SIZE
from kalmanac.encoders.encoder import (
    HistoryEncoder,
    Lengths,
    State,
    carried,
    check_step,
    positive_sizes,
    read_steps,
)
from kalmanac.encoders.kalman import PROCESS_NOISE, Q_MIN, R_MIN, Beliefs, KalmanLayer
from kalmanac.encoders.stack import NORM_EPS


class BlockState(NamedTuple):
    """The belief, (B, N) each, and the convolution's last inputs, (B, K - 1, D)."""

    mean: Tensor
    variance: Tensor
    taps: Tensor


class KalmanBlock(HistoryEncoder):
    """x, g = W norm(h_t);  y = KF(SiLU(conv(x)));  z_t = h_t + V (y · SiLU(g)).

    The inner width is D = expand · E.
    """

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        expand: int = 2,
        kernel: int = 4,
        input_process_noise: bool = False,
        raw_step_size: float = RAW_STEP_SIZE,
        process_noise: float = PROCESS_NOISE,
        r_min: float = R_MIN,
        q_min: float = Q_MIN,
    ) -> None:
        super().__init__()
        positive_sizes(d_model=d_model, d_state=d_state, expand=expand, kernel=kernel)
        self.d_model, self.d_state = d_model, d_state
        d_inner = expand * d_model
        self.norm = nn.RMSNorm(d_model, eps=NORM_EPS)
        self.in_projection = nn.Linear(d_model, 2 * d_inner, bias=False)
        self.convolution = CausalConvolution(d_inner, kernel)
        self.filter = KalmanLayer(
            d_inner,
            d_state,
            input_process_noise=input_process_noise,
            raw_step_size=raw_step_size,
            process_noise=process_noise,
            r_min=r_min,
            q_min=q_min,
        )
        self.out_projection = nn.Linear(d_inner, d_model, bias=False)

    def initial_state(self, batch: int) -> BlockState:
        """N(0, 1) and no inputs yet."""
        before, channels = self.convolution.kernel - 1, self.filter.d_model
        taps = torch.zeros(batch, before, channels, **carried(self.out_projection.weight))
        return BlockState(*self.filter.initial_state(batch), taps)

    def forward(
        self, h: Tensor, state: State | None = None, *, lengths: Lengths = None,
        reset: Tensor | None = None, observed: Tensor | None = None,
    ) -> tuple[Tensor, BlockState]:  # fmt: skip
        """See `HistoryEncoder`; where `observed` is False, the filter predicts and no more."""
        steps = read_steps(self, h, state, lengths, reset, observed)
        mean, variance, taps = self.initial_state(h.shape[0]) if state is None else state
        x, gate = self.in_projection(self.norm(steps.h)).chunk(2, -1)
        x, taps = self.convolution(x, taps, steps.lengths, steps.reset)
        y, belief = self.filter(
            F.silu(x),
            (mean, variance),
            lengths=steps.lengths,
            reset=steps.reset,
            observed=observed,
        )
        return self._close(steps.h, y, gate), BlockState(belief[0], belief[1], taps)

    def forward_with_beliefs(
        self, h: Tensor, state: State | None, lengths: Lengths, reset: Tensor | None,
        observed: Tensor | None,
    ) -> tuple[Tensor, Beliefs]:  # fmt: skip
        """z and the beliefs behind it."""
        steps = read_steps(self, h, state, lengths, reset, observed)
        mean, variance, taps = self.initial_state(h.shape[0]) if state is None else state
        x, gate = self.in_projection(self.norm(steps.h)).chunk(2, -1)
        x, _ = self.convolution(x, taps, steps.lengths, steps.reset)
        y, beliefs = self.filter.forward_with_beliefs(
            F.silu(x), (mean, variance), steps.lengths, steps.reset, observed
        )
        return self._close(steps.h, y, gate), beliefs

    def step(
        self, h_t: Tensor, state: State, *, reset: Tensor | None = None,
        observed: Tensor | None = None,
    ) -> tuple[Tensor, BlockState]:  # fmt: skip
        """See `HistoryEncoder`; where `observed` is False, the filter predicts and no more."""
        check_step(self, h_t, state, reset, observed)
        mean, variance, taps = state
        x, gate = self.in_projection(self.norm(h_t)).chunk(2, -1)
        x, taps = self.convolution.step(x, taps, reset)
        y, belief = self.filter.step(F.silu(x), (mean, variance), reset=reset, observed=observed)
        return self._close(h_t, y, gate), BlockState(belief[0], belief[1], taps)

    def _close(self, h: Tensor, y: Tensor, gate: Tensor) -> Tensor:
        """h and y are zero on pads, and so is z."""
        return h + self.out_projection(y * F.silu(gate))
