"""The losses of discrete soft actor-critic with their own gradients, in two launches.

Everything after the heads and before their backward, which as tensor operations is some eighty
launches on a few thousand steps. With π = softmax(logits), Q the lower twin and n valid steps:

    V = Σ_a π(a) (Q(a) - α log π(a)),            ∂V/∂logit_a = π(a) (Q(a) - α log π(a) - V)
    y = r + γ V(next), or r if terminated,       ∂/∂Q_k(a) of (Q_k(a) - y)² / n = 2 (Q_k(a) - y) / n
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 128  # tokens a program
SUMS = 8  # objective, squares, Q of each twin, target, entropy, largest Q, valid steps
NUMBERS = 9  # see `conclude`


@triton.jit
def log_softmax(logits, at, here, inside):
    """log π and π of rows (BLOCK, AP); 0 and 1/A … where there is nothing to load."""
    x = tl.load(logits + at, mask=here, other=0.0)
    x = tl.where(inside, x, -float("inf"))
    x = x - tl.max(x, 1)[:, None]
    e = tl.exp(x)
    total = tl.sum(e, 1)[:, None]
    return tl.where(inside, x - tl.log(total), 0.0), e / total


@triton.jit
def lower(q, twin, at, here):
    """The twins and the lower of both, which is NaN if one of them is."""
    first = tl.load(q + at, mask=here, other=0.0)
    second = tl.load(q + twin + at, mask=here, other=0.0)
    least = tl.minimum(first, second, propagate_nan=tl.PropagateNan.ALL)
    return first, second, least


@triton.jit
def count(valid, steps, WIDE: tl.constexpr):
    """How many steps are valid, but at least 1."""
    found = tl.zeros((WIDE,), tl.int32)
    for begin in range(0, steps, WIDE):
        at = begin + tl.arange(0, WIDE)
        found += tl.load(valid + at, mask=at < steps, other=0).to(tl.int32)
    return tl.maximum(tl.sum(found, 0), 1)


@triton.jit
def judge(
    logits, q, following, action, reward, terminated, valid, log_alpha, g_logits, g_q, partials,
    rows, T, A, gamma: tl.float64, SOFT: tl.constexpr, VALUE: tl.constexpr, CROSS: tl.constexpr,
    WIDE: tl.constexpr, BLOCK: tl.constexpr, AP: tl.constexpr,
):  # fmt: skip
    """BLOCK tokens of (rows, T + 1): slopes of logits and Q, and their share of every sum."""
    dtype: tl.constexpr = logits.dtype.element_ty
    tokens = rows * (T + 1)
    number = count(valid, rows * T, WIDE)
    scale = 1.0 / number.to(dtype)
    alpha = tl.exp(tl.load(log_alpha).to(dtype))
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row, t = token // (T + 1), token % (T + 1)
    step = row * T + t
    stored = (token < tokens) & (t < T)
    ok = stored & (tl.load(valid + step, mask=stored, other=0) != 0)
    a = tl.arange(0, AP)[None, :]
    inside = a < A
    at = token[:, None] * A + a
    here = ok[:, None] & inside
    twin = tokens * A

    log_there, there = log_softmax(logits, at + A, here, inside)
    _, _, least = lower(following, twin, at + A, here)
    worth = least - alpha * log_there if SOFT else least
    value = tl.sum(there * worth, 1)
    over = tl.load(terminated + step, mask=ok, other=0) != 0
    target = tl.load(reward + step, mask=ok, other=0.0).to(dtype)
    target += tl.where(over, 0.0, (value * gamma).to(dtype))

    log_p, p = log_softmax(logits, at, here, inside)
    first, second, least = lower(q, twin, at, here)
    taken = tl.load(action + step[:, None] * A + a, mask=here, other=0.0).to(dtype)
    q_1, q_2 = tl.sum(first * taken, 1), tl.sum(second * taken, 1)
    off_1, off_2 = tl.where(ok, q_1 - target, 0.0), tl.where(ok, q_2 - target, 0.0)
    entropy = -tl.sum(p * log_p, 1)
    objective, slope = tl.zeros((BLOCK,), dtype), tl.zeros((BLOCK, AP), dtype)
    if VALUE:
        worth = least - alpha * log_p
        value = tl.sum(p * worth, 1)
        objective -= value
        slope += p * (value[:, None] - worth)
    if CROSS > 0:
        goal = tl.where(inside, least / alpha, -float("inf"))
        goal = tl.exp(goal - tl.max(goal, 1)[:, None])
        goal = goal / tl.sum(goal, 1)[:, None]
        objective -= CROSS * alpha * tl.sum(goal * log_p, 1)
        slope += CROSS * alpha * (p - goal)

    written = (token < tokens)[:, None] & inside
    tl.store(g_logits + at, tl.where(ok[:, None], slope * scale, 0.0), mask=written)
    tl.store(g_q + at, (2.0 * scale * off_1)[:, None] * taken, mask=written)
    tl.store(g_q + twin + at, (2.0 * scale * off_2)[:, None] * taken, mask=written)

    mine = partials + tl.program_id(0)
    programs = tl.num_programs(0)
    largest = tl.maximum(q_1, q_2, propagate_nan=tl.PropagateNan.ALL)
    tl.store(mine, tl.sum(tl.where(ok, objective, 0.0), 0))
    tl.store(mine + programs, tl.sum(off_1 * off_1 + off_2 * off_2, 0))
    tl.store(mine + 2 * programs, tl.sum(tl.where(ok, q_1, 0.0), 0))
    tl.store(mine + 3 * programs, tl.sum(tl.where(ok, q_2, 0.0), 0))
    tl.store(mine + 4 * programs, tl.sum(tl.where(ok, target, 0.0), 0))
    tl.store(mine + 5 * programs, tl.sum(tl.where(ok, entropy, 0.0), 0))
    tl.store(mine + 6 * programs, tl.max(tl.where(ok, largest, -float("inf")), 0))
    tl.store(mine + 7 * programs, number.to(dtype))


@triton.jit
def total(partials, k: tl.constexpr, programs, PP: tl.constexpr):
    """The k-th sum over all programs."""
    i = tl.arange(0, PP)
    return tl.sum(tl.load(partials + k * programs + i, mask=i < programs, other=0.0), 0)


@triton.jit
def conclude(partials, log_alpha, numbers, programs, goal: tl.float64, PP: tl.constexpr):
    """The losses of actor, critic and temperature, α, entropy, Q, largest Q, target, and the slope
    of log α: means over the valid steps."""
    number = tl.load(partials + 7 * programs)
    log = tl.load(log_alpha)
    entropy = total(partials, 5, programs, PP) / number
    short = (entropy - goal).to(entropy.dtype)
    i = tl.arange(0, PP)
    largest = tl.load(partials + 6 * programs + i, mask=i < programs, other=-float("inf"))
    both = total(partials, 2, programs, PP) + total(partials, 3, programs, PP)
    tl.store(numbers, total(partials, 0, programs, PP) / number)
    tl.store(numbers + 1, total(partials, 1, programs, PP) / number)
    tl.store(numbers + 2, log * short)
    tl.store(numbers + 3, tl.exp(log))
    tl.store(numbers + 4, entropy)
    tl.store(numbers + 5, both / number / 2.0)
    tl.store(numbers + 6, tl.max(largest, 0))
    tl.store(numbers + 7, total(partials, 4, programs, PP) / number)
    tl.store(numbers + 8, short)


class Judged(NamedTuple):
    """Slopes of the losses, and what there is to tell of them."""

    of_logits: Tensor  # (B, T + 1, A)
    of_q: Tensor  # (2, B, T + 1, A)
    of_log_alpha: Tensor  # ()
    numbers: list[Tensor]  # 0-d, the first eight of `conclude`


def discrete_losses(
    logits: Tensor, q: Tensor, following: Tensor, action: Tensor, reward: Tensor,
    terminated: Tensor, valid: Tensor, log_alpha: Tensor, *, gamma: float, entropy_goal: float,
    entropy_in_target: bool, value: bool, cross_entropy: float,
) -> Judged:  # fmt: skip
    """See `sac_losses`; logits (B, T + 1, A), q and the target's Q (2, B, T + 1, A).

    The actor climbs the `value`, the cross-entropy times its weight, or both. Without
    `entropy_in_target`, V(next) in the critic's target has no term with α.
    """
    rows, tokens, actions = logits.shape
    programs = triton.cdiv(rows * tokens, BLOCK)
    given = [x.detach().contiguous() for x in (logits, q, following, action, reward)]
    g_logits, g_q = torch.empty_like(given[0]), torch.empty_like(given[1])
    partials = logits.new_empty(SUMS, programs)
    numbers = logits.new_empty(NUMBERS)
    alpha = log_alpha.detach()
    judge[(programs,)](
        *given, terminated.contiguous(), valid.contiguous(), alpha, g_logits, g_q, partials,
        rows, tokens - 1, actions, gamma,
        SOFT=entropy_in_target, VALUE=value, CROSS=cross_entropy,
        WIDE=min(triton.next_power_of_2(rows * tokens), 4096), BLOCK=BLOCK,
        AP=max(triton.next_power_of_2(actions), 2), num_warps=4,
    )  # fmt: skip
    conclude[(1,)](
        partials, alpha, numbers, programs, entropy_goal, PP=triton.next_power_of_2(programs)
    )
    *found, slope = numbers.unbind()
    return Judged(g_logits, g_q, slope, found)
