"""The slow truth: one plain loop over time, readable against the paper, never optimized.

Every other backend is tested against these two functions. They compute in float64 whatever the
inputs are (where the device has it) and run anywhere; PyTorch differentiates them.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from kalmanac._ops.scan.inputs import (
    Belief,
    KalmanInputs,
    LinearInputs,
    neutral_kalman,
    neutral_linear,
    start_and_initial,
    start_and_prior,
    valid_steps,
    widened,
)


def kalman(x: KalmanInputs) -> tuple[Belief, Belief]:
    """Predict, then update (paper, Eqs. 4 to 6), for t = 0 … T-1.

    p = a²P + q,  k = p / (p + r),  g = 1 - k = r / (p + r),
    m ← g (a m + b u) + k w,  P ← g p = (1/p + 1/r)⁻¹.

    Each is written so that neither it nor its derivative subtracts numbers of like size.
    Returns the posterior of every step (B, T, N) and the belief after each row's own length.
    """
    dtype = x.a.dtype
    x = widened(neutral_kalman(x))
    start, prior = start_and_prior(x)
    valid = valid_steps(x.lengths, x.w)[..., None]
    mean, variance = start
    means, variances = [], []
    # unbind, not x.w[:, t]: the gradient of one of T slices is a whole (B, T, N) of zeros
    for t, (c, q, w, r) in enumerate(zip(*_over_time(x), strict=True)):
        m, P = mean, variance
        if x.reset is not None:
            m = torch.where(x.reset[:, t, None], prior.mean, m)
            P = torch.where(x.reset[:, t, None], prior.variance, P)

        m = x.a * m + c
        p = x.a * x.a * P + q

        k, g = 1 / (1 + r / p), 1 / (1 + p / r)
        updated = g * m + k * w, 1 / (1 / p + 1 / r)
        if x.observed is None:
            m, P = updated
        else:
            m = torch.where(x.observed[:, t, None], updated[0], m)
            P = torch.where(x.observed[:, t, None], updated[1], p)

        mean = torch.where(valid[:, t], m, mean)
        variance = torch.where(valid[:, t], P, variance)
        means.append(mean)
        variances.append(variance)
    posterior = Belief(torch.stack(means, 1).to(dtype), torch.stack(variances, 1).to(dtype))
    return posterior, Belief(mean.to(dtype), variance.to(dtype))


def _over_time(x: KalmanInputs) -> list[Sequence[Tensor]]:
    """Return (b·u, q, w, r), each as T tensors that broadcast to (B, N)."""
    steps = x.w.shape[1]
    drive = torch.zeros_like(x.a) if x.u is None else x.u if x.b is None else x.b * x.u
    return [y.unbind(1) if y.dim() == 3 else [y] * steps for y in (drive, x.q, x.w, x.r)]


def linear(x: LinearInputs) -> tuple[Tensor, Tensor]:
    """x_t = a_t x_{t-1} + b_t. Returns every state (B, T, N) and each row's last one (B, N)."""
    dtype = x.b.dtype
    x = widened(neutral_linear(x))
    state, initial = start_and_initial(x, x.b.dtype)
    valid = valid_steps(x.lengths, x.b)[..., None]
    states = []
    decays = x.a.unbind(1) if x.a.dim() == 3 else [x.a] * x.b.shape[1]
    for t, (a, b) in enumerate(zip(decays, x.b.unbind(1), strict=True)):
        before = state
        if x.reset is not None:
            before = torch.where(x.reset[:, t, None], initial, before)
        state = torch.where(valid[:, t], a * before + b, state)
        states.append(state)
    return torch.stack(states, 1).to(dtype), state.to(dtype)
