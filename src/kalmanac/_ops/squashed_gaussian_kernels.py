"""Draws of a squashed Gaussian at the tokens (B, T + 1) of an update, in one launch each way.

With u = mean + std ε and a = tanh(u): ∂a/∂u = 1 - a², and of -log π, ∂/∂u = -2a, ∂/∂log std = 1
beside what u brings.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kalmanac._ops.scan.gpu.steps import log1p_of_unit

BLOCK = 64  # tokens a program
HALF_LOG_TAU = tl.constexpr(0.9189385332046727)  # log(2π) / 2
LOG_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def place(rows, T, later, BLOCK: tl.constexpr):
    """Tokens of a program, the step of each, and whether there is one: `later`, the one before."""
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    t = token % (T + 1) - later
    step = token // (T + 1) * T + t
    return token, step, (token < rows * (T + 1)) & (t >= 0) & (t < T)


@triton.jit
def drawn(parameters, noise, token, step, here, a, A, LOW: tl.constexpr, HIGH: tl.constexpr):
    """Noise ε, log std before and behind the clamp, u, exp(-2|u|) and tanh(u); (BLOCK, AP) each."""
    at = token[:, None] * (2 * A) + a
    mean = tl.load(parameters + at, mask=here, other=0.0)
    wide = tl.load(parameters + at + A, mask=here, other=0.0)
    log_std = tl.maximum(wide, LOW, propagate_nan=tl.PropagateNan.ALL)
    log_std = tl.minimum(log_std, HIGH, propagate_nan=tl.PropagateNan.ALL)
    epsilon = tl.load(noise + step[:, None] * A + a, mask=here, other=0.0)
    u = mean + tl.exp(log_std) * epsilon
    e = tl.exp(-2.0 * tl.abs(u))
    squashed = (1.0 - e) / (1.0 + e)
    return epsilon, wide, log_std, u, e, tl.where(u < 0.0, -squashed, squashed)


@triton.jit
def forward(
    parameters, noise, actions, entropies, rows, T, A,
    LOW: tl.constexpr, HIGH: tl.constexpr, BLOCK: tl.constexpr, AP: tl.constexpr,
):  # fmt: skip
    """Actions and -log π of BLOCK tokens, by the noise of their own step or of the one before."""
    later = tl.program_id(1)
    token, step, ok = place(rows, T, later, BLOCK)
    a = tl.arange(0, AP)[None, :]
    here = ok[:, None] & (a < A)
    noise += (1 - later) * rows * T * A
    epsilon, _, log_std, u, e, action = drawn(parameters, noise, token, step, here, a, A, LOW, HIGH)
    softplus = tl.maximum(-2.0 * u, 0.0) + log1p_of_unit(e)
    dense = 0.5 * epsilon * epsilon + HALF_LOG_TAU + log_std + 2.0 * (LOG_2 - u - softplus)
    tokens = rows * (T + 1)
    inside = token < tokens
    place_of = (later * tokens + token)[:, None] * A + a
    tl.store(actions + place_of, tl.where(here, action, 0.0), mask=inside[:, None] & (a < A))
    entropy = tl.sum(tl.where(here, dense, 0.0), 1)
    tl.store(entropies + later * tokens + token, entropy, mask=inside)


@triton.jit
def backward(
    parameters, noise, g_action, g_entropy, g_parameters, rows, T, A,
    LOW: tl.constexpr, HIGH: tl.constexpr, BLOCK: tl.constexpr, AP: tl.constexpr,
):  # fmt: skip
    """Slopes of the parameters of BLOCK tokens, from those of actions and entropies there."""
    token, step, ok = place(rows, T, 0, BLOCK)
    a = tl.arange(0, AP)[None, :]
    here = ok[:, None] & (a < A)
    noise += rows * T * A
    epsilon, wide, log_std, _, _, action = drawn(
        parameters, noise, token, step, here, a, A, LOW, HIGH
    )
    given = tl.load(g_action + token[:, None] * A + a, mask=here, other=0.0)
    lost = tl.load(g_entropy + token, mask=ok, other=0.0)[:, None]
    of_u = given * (1.0 - action * action) - 2.0 * action * lost
    of_log_std = of_u * tl.exp(log_std) * epsilon + lost
    of_log_std = tl.where((wide >= LOW) & (wide <= HIGH), of_log_std, 0.0)
    at = token[:, None] * (2 * A) + a
    inside = (token < rows * (T + 1))[:, None] & (a < A)
    tl.store(g_parameters + at, tl.where(here, of_u, 0.0), mask=inside)
    tl.store(g_parameters + at + A, tl.where(here, of_log_std, 0.0), mask=inside)


def draw_forward(
    parameters: Tensor, noise: Tensor, log_std_range: tuple[float, float]
) -> tuple[Tensor, Tensor]:
    """Actions (2, B, T + 1, A) and -log π (2, B, T + 1), here and next, by noise (2, B, T, A) of
    next and here."""
    (rows, tokens, _), actions = parameters.shape, noise.shape[-1]
    found = parameters.new_empty(2, rows, tokens, actions)
    entropies = parameters.new_empty(2, rows, tokens)
    forward[(triton.cdiv(rows * tokens, BLOCK), 2)](
        parameters, noise, found, entropies, rows, tokens - 1, actions,
        LOW=log_std_range[0], HIGH=log_std_range[1], BLOCK=BLOCK, AP=columns(actions),
    )  # fmt: skip
    return found, entropies


def draw_backward(
    parameters: Tensor, noise: Tensor, g_action: Tensor, g_entropy: Tensor,
    log_std_range: tuple[float, float],
) -> Tensor:  # fmt: skip
    """The slopes of the parameters, from those of actions (B, T + 1, A) and -log π (B, T + 1)."""
    rows, tokens, actions = g_action.shape
    found = torch.empty_like(parameters)
    backward[(triton.cdiv(rows * tokens, BLOCK),)](
        parameters, noise, g_action, g_entropy, found, rows, tokens - 1, actions,
        LOW=log_std_range[0], HIGH=log_std_range[1], BLOCK=BLOCK, AP=columns(actions),
    )  # fmt: skip
    return found


def columns(actions: int) -> int:
    """A tile's width that holds so many actions."""
    return max(triton.next_power_of_2(actions), 2)
