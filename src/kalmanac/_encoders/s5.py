"""S5: a complex diagonal state-space block (Smith et al., 2023). Beyond the paper's legend.

The continuous system x' = Λ x + B h, y = 2 Re(C x) + skip · h starts as the diagonalized normal
part of HiPPO-LegS; of each conjugate pair of eigenvalues one is kept, hence the factor 2.
"""

import math
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
from kalmanac._encoders.layers import NORM_EPS, Stack
from kalmanac._ops.rms_norm import RMSNorm
from kalmanac._ops.scan.linear import linear_scan

STEP_SIZES = (1e-3, 1e-1)  # the step sizes start log-uniform in this range, as in S5


class ComplexState(NamedTuple):
    """This state is the real and imaginary part of the latent state, (B, N / 2) each."""

    real: Tensor
    imaginary: Tensor


class S5Block(HistoryEncoder):
    """y = S5(norm(h));  v = GELU(y);  z = h + v · σ(W v).

    Zero-order hold with a step size Δ for each eigenvalue: Λ̄ = exp(ΔΛ), B̄ = (Λ̄ - 1) / Λ · B.
    N counts real numbers: N / 2 complex ones.
    """

    def __init__(
        self, d_model: int, d_state: int, *, step_sizes: tuple[float, float] = STEP_SIZES
    ) -> None:
        super().__init__()
        positive_sizes(d_model=d_model, d_state=d_state)
        if d_state % 2:
            raise ValueError(f"d_state: got {d_state}, expected an even number (conjugate pairs)")
        low, high = step_sizes
        if not 0 < low <= high:
            raise ValueError(f"step_sizes: got {step_sizes}, expected 0 < low <= high")
        self.d_model, self.d_state = d_model, d_state
        half, dtype = d_state // 2, torch.get_default_dtype()
        eigenvalues, vectors = hippo_normal(d_state)
        self.norm = RMSNorm(d_model, eps=NORM_EPS)
        self.log_rate = nn.Parameter(torch.log(-eigenvalues.real).to(dtype))
        self.frequency = nn.Parameter(eigenvalues.imag.to(dtype))
        spread = torch.rand(half) * (math.log(high) - math.log(low)) + math.log(low)
        self.log_step_size = nn.Parameter(spread)
        # B and C start as V⁻¹ B₀ and C₀ V with real Gaussian B₀ and C₀.
        into = vectors.mH @ torch.complex(*_gaussian(d_state, d_model, 1 / math.sqrt(d_model)))
        out_of = torch.complex(*_gaussian(d_model, d_state, 1 / math.sqrt(d_state))) @ vectors
        self.into = nn.Parameter(torch.cat([into.real, into.imag]).to(dtype))  # (N, E)
        self.out_of = nn.Parameter(torch.cat([out_of.real, -out_of.imag], 1).to(dtype))  # (E, N)
        self.skip = nn.Parameter(torch.randn(d_model))
        self.gate = nn.Linear(d_model, d_model)

    def initial_state(self, batch: int) -> ComplexState:
        """Return zeros."""
        zeros = torch.zeros(batch, self.d_state // 2, **carried(self.skip))
        return ComplexState(zeros, torch.zeros_like(zeros))

    def forward(
        self, h: Tensor, state: State | None = None, *, lengths: Lengths = None,
        reset: Tensor | None = None, observed: Tensor | None = None,
    ) -> tuple[Tensor, ComplexState]:  # fmt: skip
        """See `HistoryEncoder`; `observed` is ignored."""
        steps = read_steps(self, h, state, lengths, reset, observed)
        x = self.norm(steps.h)
        decay, gain = self._discrete()
        states, last = linear_scan(
            decay,
            gain * torch.complex(*self._input(x)),
            state=None if state is None else torch.complex(*state),
            lengths=steps.lengths,
            reset=steps.reset,
        )
        z = steps.h + self._read_out(ComplexState(states.real, states.imag), x)
        return steps.zero_pads(z), ComplexState(last.real, last.imag)

    def step(
        self, h_t: Tensor, state: State, *, reset: Tensor | None = None,
        observed: Tensor | None = None,
    ) -> tuple[Tensor, ComplexState]:  # fmt: skip
        """See `HistoryEncoder`; `observed` is ignored."""
        check_step(self, h_t, state, reset, observed)
        before = ComplexState(*state)
        if reset is not None:
            before = ComplexState(*(x.masked_fill(reset[:, None], 0) for x in before))
        x = self.norm(h_t)
        decay, gain = (ComplexState(y.real, y.imag) for y in self._discrete())
        # in real numbers: ONNX has no others
        moved, driven = _product(decay, before), _product(gain, self._input(x))
        after = ComplexState(*(y + z for y, z in zip(moved, driven, strict=True)))
        return h_t + self._read_out(after, x), after

    def _discrete(self) -> tuple[Tensor, Tensor]:
        """Return Λ̄ and (Λ̄ - 1) / Λ, (N / 2,) each, complex."""
        carry = carried(self.skip)["dtype"]
        rate, frequency = -self.log_rate.to(carry).exp(), self.frequency.to(carry)
        size = self.log_step_size.to(carry).exp()
        decay, growth = _exponentials(size * rate, size * frequency)
        return decay, growth / torch.complex(rate, frequency)

    def _input(self, x: Tensor) -> ComplexState:
        """Return B x, (…, N / 2)."""
        return ComplexState(*F.linear(x, self.into).to(carried(self.skip)["dtype"]).chunk(2, -1))

    def _read_out(self, latent: ComplexState, x: Tensor) -> Tensor:
        parts = torch.cat(latent, -1).to(x.dtype)
        v = F.gelu(2 * F.linear(parts, self.out_of) + self.skip * x)
        return v * torch.sigmoid(self.gate(v))


def hippo_normal(d_state: int) -> tuple[Tensor, Tensor]:
    """Eigenvalues (N / 2,) with positive imaginary part of HiPPO-N, and their vectors (N, N / 2).

    HiPPO-N is -1/2 I plus a skew-symmetric matrix with entries ± sqrt((2i + 1)(2j + 1)) / 2.
    """
    roots = torch.sqrt(2 * torch.arange(d_state, dtype=torch.float64) + 1)
    lower = torch.tril(roots[:, None] * roots, -1) / 2
    skew = lower.mT - lower
    frequencies, vectors = torch.linalg.eigh(skew * -1j)
    upper = d_state // 2  # ascending: the second half is positive
    return torch.complex(torch.full((upper,), -0.5).double(), frequencies[upper:]), vectors[
        :, upper:
    ]


def s5(
    d_model: int = 16,
    *,
    d_state: int = 128,
    layers: int = 1,
    norm: bool = False,
    step_sizes: tuple[float, float] = STEP_SIZES,
) -> Stack:
    """Make the row `s5`."""
    positive_sizes(layers=layers)
    return Stack(
        [S5Block(d_model, d_state, step_sizes=step_sizes) for _ in range(layers)], norm=norm
    )


def _product(x: ComplexState, y: ComplexState) -> ComplexState:
    real = x.real * y.real - x.imaginary * y.imaginary
    return ComplexState(real, x.real * y.imaginary + x.imaginary * y.real)


def _exponentials(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return exp(x + iy) and exp(x + iy) - 1, the latter without cancellation near zero."""
    size, cosine, sine = x.exp(), y.cos(), y.sin()
    half = (y / 2).sin()
    below = torch.expm1(x) * cosine - 2 * half * half
    return torch.complex(size * cosine, size * sine), torch.complex(below, size * sine)


def _gaussian(rows: int, columns: int, scale: float) -> tuple[Tensor, Tensor]:
    """Draw a real Gaussian matrix as (real, zero imaginary) parts."""
    real = scale * torch.randn(rows, columns, dtype=torch.float64)
    return real, torch.zeros_like(real)
