"""Mamba: a selective state-space block (S6) in plain PyTorch on the package's linear scan.

The arrangement and the initial values are those of mamba-minimal, which the paper uses (appendix
B): pre-norm and residual around the block, A = -1, …, -S per channel, PyTorch's defaults for the
projections (the original Mamba draws the step sizes' bias in a range of its own).
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kalmanac._encoders.contract import (
    HistoryEncoder,
    Lengths,
    State,
    carried,
    check_step,
    positive_sizes,
    read_steps,
)
from kalmanac._encoders.layers import NORM_EPS, CausalConvolution, Stack
from kalmanac._ops.rms_norm import RMSNorm
from kalmanac._ops.scan.linear import linear_scan


class MambaState(NamedTuple):
    """The state is the latent one, (B, D, S), and the convolution's last inputs, (B, K - 1, D)."""

    latent: Tensor
    taps: Tensor


class MambaBlock(HistoryEncoder):
    """x, g = W norm(h_t);  v = SiLU(conv(x));  y = S6(v);  z_t = h_t + V (y · SiLU(g)).

    S6, for each of the D = expand · E channels with S numbers each (Δ, B and C depend on v_t):

        x_t = exp(Δ_t A) x_{t-1} + Δ_t B_t v_t,   y_t = C_t · x_t + skip · v_t.
    """

    def __init__(
        self, d_model: int, d_state: int = 4, *, expand: int = 2, dt_rank: int = 1, kernel: int = 4
    ) -> None:
        super().__init__()
        positive_sizes(
            d_model=d_model, d_state=d_state, expand=expand, dt_rank=dt_rank, kernel=kernel
        )
        self.d_model, self.d_state, self.dt_rank = d_model, d_state, dt_rank
        self.d_inner = expand * d_model
        self.norm = RMSNorm(d_model, eps=NORM_EPS)
        self.in_projection = nn.Linear(d_model, 2 * self.d_inner, bias=False)
        self.convolution = CausalConvolution(self.d_inner, kernel)
        self.selection = nn.Linear(self.d_inner, dt_rank + 2 * d_state, bias=False)
        self.step_size = nn.Linear(dt_rank, self.d_inner)
        rates = torch.arange(1.0, d_state + 1).repeat(self.d_inner, 1)
        self.log_rate = nn.Parameter(torch.log(rates))  # log |A|, (D, S)
        self.skip = nn.Parameter(torch.ones(self.d_inner))
        self.out_projection = nn.Linear(self.d_inner, d_model, bias=False)

    def initial_state(self, batch: int) -> MambaState:
        """Return zeros."""
        kind = carried(self.out_projection.weight)
        return MambaState(
            torch.zeros(batch, self.d_inner, self.d_state, **kind),
            torch.zeros(batch, self.convolution.kernel - 1, self.d_inner, **kind),
        )

    def forward(
        self, h: Tensor, state: State | None = None, *, lengths: Lengths = None,
        reset: Tensor | None = None, observed: Tensor | None = None,
    ) -> tuple[Tensor, MambaState]:  # fmt: skip
        """See `HistoryEncoder`; `observed` is ignored."""
        steps = read_steps(self, h, state, lengths, reset, observed)
        latent, taps = self.initial_state(h.shape[0]) if state is None else state
        x, gate = self.in_projection(self.norm(steps.h)).chunk(2, -1)
        x, taps = self.convolution(x, taps, steps.lengths, steps.reset)
        v = F.silu(x)
        decay, drive, readout = self._select(v)
        states, last = linear_scan(
            decay.flatten(2),
            drive.flatten(2),
            state=latent.flatten(1),
            lengths=steps.lengths,
            reset=steps.reset,
        )
        z = steps.h + self._read_out(states.unflatten(2, decay.shape[2:]), readout, v, gate)
        return steps.zero_pads(z), MambaState(last.unflatten(1, decay.shape[2:]), taps)

    def step(
        self, h_t: Tensor, state: State, *, reset: Tensor | None = None,
        observed: Tensor | None = None,
    ) -> tuple[Tensor, MambaState]:  # fmt: skip
        """See `HistoryEncoder`; `observed` is ignored."""
        check_step(self, h_t, state, reset, observed)
        latent, taps = state
        if reset is not None:
            latent = latent.masked_fill(reset[:, None, None], 0)
        x, gate = self.in_projection(self.norm(h_t)).chunk(2, -1)
        x, taps = self.convolution.step(x, taps, reset)
        v = F.silu(x)
        decay, drive, readout = self._select(v)
        latent = decay * latent + drive
        return h_t + self._read_out(latent, readout, v, gate), MambaState(latent, taps)

    def _select(self, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return exp(Δ A) and Δ B v, (…, D, S), in float32 at least, and C, (…, S)."""
        carry = carried(self.log_rate)["dtype"]
        sizes = [self.dt_rank, self.d_state, self.d_state]
        raw, into, out_of = self.selection(v).split(sizes, -1)
        size = F.softplus(self.step_size(raw)).to(carry)
        decay = torch.exp(size[..., None] * -self.log_rate.to(carry).exp())
        drive = (size * v.to(carry))[..., None] * into.to(carry)[..., None, :]
        return decay, drive, out_of.to(carry)

    def _read_out(self, latent: Tensor, readout: Tensor, v: Tensor, gate: Tensor) -> Tensor:
        y = (latent * readout[..., None, :]).sum(-1).to(v.dtype) + self.skip * v
        return self.out_projection(y * F.silu(gate))


def mamba(
    d_model: int = 16,
    *,
    d_state: int = 4,
    layers: int = 1,
    norm: bool = False,
    expand: int = 2,
    dt_rank: int = 1,
    kernel: int = 4,
) -> Stack:
    """Make the row `mamba`; `d_state` counts per channel: expand · E · d_state = 128 numbers."""
    positive_sizes(layers=layers)
    blocks = [
        MambaBlock(d_model, d_state, expand=expand, dt_rank=dt_rank, kernel=kernel)
        for _ in range(layers)
    ]
    return Stack(blocks, norm=norm)
