"""The losses of soft actor-critic with their own gradients, in two launches.

Everything after the heads and before their backward, which as tensor operations is some eighty
launches on a few thousand steps. With π = softmax(logits), Q the lower twin and n valid steps:

    V = Σ_a π(a) (Q(a) - α log π(a)),            ∂V/∂logit_a = π(a) (Q(a) - α log π(a) - V)
    y = r + γ V(next), or r if terminated,       ∂/∂Q_k(a) of (Q_k(a) - y)² / n = 2 (Q_k(a) - y) / n

Of continuous actions, V = Q(a) - α log π(a) for one that the policy drew.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 128  # tokens a program
SUMS = 9  # objective, squares, Q of each twin, target, entropy, largest Q, valid steps, goal
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
def place(valid, rows, T, BLOCK: tl.constexpr):
    """BLOCK tokens of (rows, T + 1), their steps of (rows, T), and whether these are valid."""
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row, t = token // (T + 1), token % (T + 1)
    step = row * T + t
    stored = (token < rows * (T + 1)) & (t < T)
    return token, step, stored & (tl.load(valid + step, mask=stored, other=0) != 0)


@triton.jit
def bootstrap(value, reward, terminated, step, ok, gamma):
    """y = r + γ V(next), or r if terminated."""
    over = tl.load(terminated + step, mask=ok, other=0) != 0
    target = tl.load(reward + step, mask=ok, other=0.0).to(value.dtype)
    return target + tl.where(over, 0.0, (value * gamma).to(value.dtype))


@triton.jit
def note(partials, ok, objective, off_1, off_2, q_1, q_2, target, entropy, goal, number):
    """This program's share of every sum."""
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
    tl.store(mine + 7 * programs, number.to(entropy.dtype))
    tl.store(mine + 8 * programs, tl.sum(tl.where(ok, goal, 0.0), 0))


@triton.jit
def judge(
    logits, q, following, action, reward, terminated, valid, allowed, goals, log_alpha,
    g_logits, g_q, partials, rows, T, A, allowed_row, gamma: tl.float64,
    SOFT: tl.constexpr, VALUE: tl.constexpr, CROSS: tl.constexpr, MASKED: tl.constexpr,
    PER_STEP: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr, AP: tl.constexpr,
):  # fmt: skip
    """BLOCK tokens of (rows, T + 1): slopes of logits and Q, and their share of every sum."""
    dtype: tl.constexpr = logits.dtype.element_ty
    tokens = rows * (T + 1)
    number = count(valid, rows * T, WIDE)
    scale = 1.0 / number.to(dtype)
    alpha = tl.exp(tl.load(log_alpha).to(dtype))
    token, step, ok = place(valid, rows, T, BLOCK)
    a = tl.arange(0, AP)[None, :]
    inside = a < A
    at = token[:, None] * A + a
    here = ok[:, None] & inside
    twin = tokens * A

    log_there, there = log_softmax(logits, at + A, here, inside)
    _, _, least = lower(following, twin, at + A, here)
    worth = least - alpha * log_there if SOFT else least
    target = bootstrap(tl.sum(there * worth, 1), reward, terminated, step, ok, gamma)

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
        among = inside
        if MASKED:
            at_mask = (token // (T + 1) * allowed_row + token % (T + 1) * A)[:, None] + a
            among = inside & (tl.load(allowed + at_mask, mask=here, other=1) != 0)
        goal = tl.where(among, least / alpha, -float("inf"))
        goal = tl.exp(goal - tl.max(goal, 1)[:, None])
        goal = goal / tl.sum(goal, 1)[:, None]
        objective -= CROSS * alpha * tl.sum(goal * log_p, 1)
        slope += CROSS * alpha * (p - goal)

    written = (token < tokens)[:, None] & inside
    tl.store(g_logits + at, tl.where(ok[:, None], slope * scale, 0.0), mask=written)
    tl.store(g_q + at, (2.0 * scale * off_1)[:, None] * taken, mask=written)
    tl.store(g_q + twin + at, (2.0 * scale * off_2)[:, None] * taken, mask=written)

    aim = tl.zeros((BLOCK,), dtype)
    if PER_STEP:
        aim += tl.load(goals + step, mask=ok, other=0.0).to(dtype)
    note(partials, ok, objective, off_1, off_2, q_1, q_2, target, entropy, aim, number)


@triton.jit
def judge_drawn(
    q, frozen, following, entropy, next_entropy, reward, terminated, valid, log_alpha,
    g_q, g_frozen, g_entropy, partials, rows, T, gamma: tl.float64,
    SOFT: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """BLOCK tokens of (rows, T + 1): slopes of Q of the actions taken, of Q of those drawn and of
    -log π, and their share of every sum."""
    dtype: tl.constexpr = q.dtype.element_ty
    tokens = rows * (T + 1)
    number = count(valid, rows * T, WIDE)
    scale = 1.0 / number.to(dtype)
    alpha = tl.exp(tl.load(log_alpha).to(dtype))
    token, step, ok = place(valid, rows, T, BLOCK)

    _, _, worth = lower(following, tokens, token + 1, ok)
    if SOFT:
        worth += alpha * tl.load(next_entropy + token + 1, mask=ok, other=0.0)
    target = bootstrap(worth, reward, terminated, step, ok, gamma)
    q_1, q_2, _ = lower(q, tokens, token, ok)
    off_1, off_2 = tl.where(ok, q_1 - target, 0.0), tl.where(ok, q_2 - target, 0.0)
    first, second, least = lower(frozen, tokens, token, ok)
    surprise = tl.load(entropy + token, mask=ok, other=0.0)

    written = token < tokens
    tl.store(g_q + token, 2.0 * scale * off_1, mask=written)
    tl.store(g_q + tokens + token, 2.0 * scale * off_2, mask=written)
    # equal twins share the slope, as in `amin`
    share = tl.where(first < second, 1.0, tl.where(first > second, 0.0, 0.5)).to(dtype)
    tl.store(g_frozen + token, tl.where(ok, -scale * share, 0.0), mask=written)
    tl.store(g_frozen + tokens + token, tl.where(ok, -scale * (1.0 - share), 0.0), mask=written)
    tl.store(g_entropy + token, tl.where(ok, -scale * alpha, 0.0), mask=written)
    aim = tl.zeros((BLOCK,), dtype)
    objective = -(least + alpha * surprise)
    note(partials, ok, objective, off_1, off_2, q_1, q_2, target, surprise, aim, number)


@triton.jit
def total(partials, k: tl.constexpr, programs, PP: tl.constexpr):
    """The k-th sum over all programs."""
    i = tl.arange(0, PP)
    return tl.sum(tl.load(partials + k * programs + i, mask=i < programs, other=0.0), 0)


@triton.jit
def conclude(
    partials, log_alpha, numbers, programs, goal: tl.float64, PER_STEP: tl.constexpr,
    PP: tl.constexpr,
):  # fmt: skip
    """The losses of actor, critic and temperature, α, entropy, Q, largest Q, target, and the slope
    of log α: means over the valid steps."""
    number = tl.load(partials + 7 * programs)
    log = tl.load(log_alpha)
    entropy = total(partials, 5, programs, PP) / number
    short = (entropy - goal).to(entropy.dtype)
    if PER_STEP:
        short = entropy - total(partials, 8, programs, PP) / number
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


# slopes of the losses at what they were given, and at log α; the first eight numbers of `conclude`
Judged = tuple[list[Tensor], list[Tensor]]


def discrete_losses(
    logits: Tensor, q: Tensor, following: Tensor, action: Tensor, reward: Tensor,
    terminated: Tensor, valid: Tensor, log_alpha: Tensor, *, gamma: float,
    entropy_goal: float | Tensor, entropy_in_target: bool, value: bool, cross_entropy: float,
    allowed: Tensor | None = None,
) -> Judged:  # fmt: skip
    """See `sac_losses`; logits (B, T + 1, A), q and the target's Q (2, B, T + 1, A).

    The actor climbs the `value`, the cross-entropy times its weight, or both. Without
    `entropy_in_target`, V(next) in the critic's target has no term with α. Slopes are those of
    logits and q.
    """
    rows, tokens, actions = logits.shape
    programs = triton.cdiv(rows * tokens, BLOCK)
    given = [x.detach().contiguous() for x in (logits, q, following, action, reward)]
    slopes = [torch.empty_like(x) for x in given[:2]]
    partials = logits.new_empty(SUMS, programs)
    alpha, valid = log_alpha.detach(), valid.contiguous()
    goal, goals = (0.0, entropy_goal) if isinstance(entropy_goal, Tensor) else (entropy_goal, None)
    if allowed is not None and allowed.stride()[1:] != (actions, 1):
        allowed = allowed.contiguous()
    judge[(programs,)](
        *given, terminated.contiguous(), valid, valid if allowed is None else allowed,
        alpha if goals is None else goals.contiguous(), alpha, *slopes, partials,
        rows, tokens - 1, actions, 0 if allowed is None else allowed.stride(0), gamma,
        SOFT=entropy_in_target, VALUE=value, CROSS=cross_entropy, MASKED=allowed is not None,
        PER_STEP=goals is not None, WIDE=wide(rows * tokens), BLOCK=BLOCK,
        AP=max(triton.next_power_of_2(actions), 2), num_warps=4,
    )  # fmt: skip
    return concluded(slopes, partials, alpha, goal, per_step=goals is not None)


def continuous_losses(
    q: Tensor, frozen: Tensor, following: Tensor, entropy: Tensor, next_entropy: Tensor,
    reward: Tensor, terminated: Tensor, valid: Tensor, log_alpha: Tensor, *, gamma: float,
    entropy_goal: float, entropy_in_target: bool,
) -> Judged:  # fmt: skip
    """See `sac_losses`; all Q (2, B, T + 1, 1), entropies (B, T + 1). Slopes are those of q,
    frozen and entropy."""
    rows, tokens = entropy.shape
    programs = triton.cdiv(rows * tokens, BLOCK)
    given = [x.detach().contiguous() for x in (q, frozen, following, entropy, next_entropy)]
    slopes = [torch.empty_like(given[i]) for i in (0, 1, 3)]
    partials, alpha = entropy.new_empty(SUMS, programs), log_alpha.detach()
    judge_drawn[(programs,)](
        *given, reward.contiguous(), terminated.contiguous(), valid.contiguous(), alpha, *slopes,
        partials, rows, tokens - 1, gamma, SOFT=entropy_in_target, WIDE=wide(rows * tokens),
        BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip
    return concluded(slopes, partials, alpha, entropy_goal, per_step=False)


def concluded(
    slopes: list[Tensor], partials: Tensor, log_alpha: Tensor, goal: float, *, per_step: bool
) -> Judged:
    """Add up what the programs have noted."""
    numbers, programs = partials.new_empty(NUMBERS), partials.shape[1]
    conclude[(1,)](
        partials, log_alpha, numbers, programs, goal, PER_STEP=per_step,
        PP=triton.next_power_of_2(programs),
    )  # fmt: skip
    *found, slope = numbers.unbind()
    return [*slopes, slope], found


def wide(steps: int) -> int:
    """How many steps a program looks at together, where it counts them."""
    return min(triton.next_power_of_2(steps), 4096)
