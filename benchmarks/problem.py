"""The inputs of the scan benchmark: a Kalman layer at the start of training, at one size.

u, w and the noise are views of one (B, T, 3N) projection, read in place. There are two such
projections with the same meaning: one holds the noise as a variance r, the other the raw value ρ
with r = softplus(ρ) + R_FLOOR.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

R_FLOOR = 1e-3


class Size(NamedTuple):
    """Batch, time, channels."""

    B: int
    T: int
    N: int

    @property
    def elements(self) -> int:
        return self.B * self.T * self.N

    def __str__(self) -> str:
        return f"({self.B}, {self.T}, {self.N})"


@dataclass(frozen=True)
class Inputs:
    """One set of inputs. Every tensor but the cotangent asks for its gradient."""

    a: Tensor  # (N,)
    b: Tensor  # (N,)
    q: Tensor  # (N,)
    u: Tensor  # (B, T, N) view of a (B, T, 3N) tensor, as are the next three
    w: Tensor
    r: Tensor
    rho: Tensor
    packed: Tensor  # (B, T, 3N): u, w and ρ side by side
    gru_input: Tensor  # (B, T, N) contiguous
    cotangent: Tensor  # (B, T, N) gradient of the loss with respect to the posterior mean

    @property
    def size(self) -> Size:
        return Size(*self.w.shape)


def make_inputs(size: Size, device: torch.device, seed: int) -> Inputs:
    """The layer's initial values (S4D-Real decay, zero-order hold, Δ̃ = -7) and random signals."""
    draw = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw, device=device)

    delta = F.softplus(torch.tensor(-7.0))
    rate = -torch.arange(1, size.N + 1, dtype=torch.float32)
    a = torch.exp(delta * rate).to(device)
    b = (torch.expm1(delta * rate) / rate).to(device)
    q = 1 + 0.1 * torch.rand(size.N, generator=draw, device=device)
    raw = normal(size.B, size.T, 3 * size.N)
    plain = raw.clone()
    plain[..., 2 * size.N :] = F.softplus(raw[..., 2 * size.N :]) + R_FLOOR
    u, w, r = plain.chunk(3, -1)
    a, b, q, u, w, r, rho, packed, x = (
        # a detached view is a leaf that asks for its gradient and still reads the shared projection
        leaf.detach().requires_grad_()
        for leaf in (a, b, q, u, w, r, raw.chunk(3, -1)[2], raw, normal(*size))
    )
    return Inputs(a, b, q, u, w, r, rho, packed, x, normal(*size))
