"""Soft actor-critic's losses as pure functions of numbers (Haarnoja et al., 2019).

`Counted` says which steps count. What stands at the others, NaN included, reaches neither a loss
nor a gradient. `continuous_losses` are those of one action that a policy drew at each step;
`discrete_losses` know all actions with their shares (Christodoulou, 2019). Both are two launches of
kernels of ours on a GPU, instead of some eighty.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from kalmanac._ops.dispatch import fused

MOST_ACTIONS = 64  # of the kernels: a row of actions has to fit into a program's registers


class Objective(NamedTuple):
    """A discrete actor climbs the soft value, the cross-entropy times a weight, or both."""

    value: bool
    cross_entropy: float


# Mixed: the value leads where actions are likely, the rest brings back those that hardly are.
OBJECTIVES: Mapping[str, Objective] = {
    "value": Objective(True, 0.0),
    "cross-entropy": Objective(False, 1.0),
    "mixed": Objective(True, 0.1),
}


class Rules(NamedTuple):
    """The rules decide the losses beside the numbers."""

    gamma: float
    objective: Objective
    entropy_in_target: bool  # else V(next) in the critic's target has no term with α


class Losses(NamedTuple):
    """The losses are where autograd begins, and numbers to report.

    `slopes` are the losses' gradients at `roots`; None where the roots are the losses themselves.
    """

    roots: list[Tensor]
    slopes: list[Tensor] | None
    losses: dict[str, Tensor]  # 0-d
    numbers: dict[str, Tensor]  # 0-d, without a gradient


class Counted(NamedTuple):
    """The steps (B, T) that count, in the two forms that means need: made once for all of them."""

    left_out: Tensor  # (B, T) bool: True where a step does not count
    number: Tensor  # () int64: how many count, but at least 1

    @staticmethod
    def of(valid: Tensor) -> "Counted":
        """Count the steps where `valid` (B, T)."""
        return Counted(~valid, valid.sum().clamp(min=1))

    def mean(self, x: Tensor) -> Tensor:
        """Return the means of x (…, B, T), (…); 0 if no step counts."""
        return x.masked_fill(self.left_out, 0).sum((-2, -1)) / self.number


def bootstrap_target(
    reward: Tensor, terminated: Tensor, next_value: Tensor, gamma: float
) -> Tensor:
    """y = r + γ V(next), without the value where the episode terminated; truncation keeps it."""
    return reward.add(next_value.masked_fill(terminated, 0), alpha=gamma)


def critic_loss(q: Tensor, target: Tensor, steps: Counted) -> Tensor:
    """Σ over the twins (2, B, T) of the mean squared distance to the target (B, T)."""
    # masked before the square: its derivative at a NaN would be NaN, even times zero
    off = (q - target).masked_fill(steps.left_out, 0)
    return off.square().sum() / steps.number


def actor_loss(value: Tensor, steps: Counted) -> Tensor:
    """Return minus the mean soft value."""
    return -steps.mean(value)


def cross_entropy_loss(
    log_policy: Tensor,
    q: Tensor,
    temperature: Tensor,
    steps: Counted,
    allowed: Tensor | None = None,
) -> Tensor:
    """-α Σ_a softmax(Q/α) log π(a), averaged; log_policy (B, T, A), q (2, B, T, A).

    The softmax is one among the actions that `allowed` (B, T, A) allows.

    Its optimum is the soft value's, π = softmax(Q/α). Its gradient in the logits is
    α (π - softmax(Q/α)), while that of the value is proportional to π(a): an action whose
    probability has once become zero in float32 can come back only here. But where an actor cannot
    tell states apart, this averages their softmaxes, which is a more random policy than the value's
    softmax of their average.
    """
    lower = q.amin(0) / temperature
    if allowed is not None:
        lower = lower.masked_fill(~allowed, -math.inf)
    goal = F.softmax(lower, -1)
    return -temperature * steps.mean((goal * log_policy).sum(-1))


def temperature_loss(log_alpha: Tensor, entropy: Tensor, goal: float | Tensor) -> Tensor:
    """log α · (mean entropy - goal): α rises while the entropy is below its goal."""
    return log_alpha * (entropy.detach() - goal)


class Shares(NamedTuple):
    """What a policy over discrete actions does at steps (…): all of them, with their shares."""

    entropy: Tensor  # (…)
    share: Tensor  # (A, …): π of every action
    log_share: Tensor  # (A, …)

    @staticmethod
    def of(logits: Tensor) -> "Shares":
        """Return those of logits (…, A)."""
        # actions first: a CPU is ten times as fast along the steps as along a few actions
        log_p = F.log_softmax(logits.movedim(-1, 0), 0)
        p = log_p.exp()
        return Shares(-(p * log_p).sum(0), p, log_p)

    def value(self, q: Tensor) -> Tensor:
        """E[min over the twins of Q(a)], (…), for q (2, …, A)."""
        return (self.share * q.amin(0).movedim(-1, 0)).sum(0)

    def soft_value(self, q: Tensor, temperature: Tensor) -> Tensor:
        """V = E[min over the twins of Q(a) - α log π(a)], (…)."""
        return torch.addcmul(self.value(q), temperature, self.entropy)


def discrete_losses(
    logits: Tensor, q: Tensor, following: Tensor, action: Tensor, reward: Tensor,
    terminated: Tensor, valid: Tensor, log_alpha: Tensor, rules: Rules, *,
    entropy_goal: float | Tensor, allowed: Tensor | None = None,
) -> Losses:  # fmt: skip
    """Compute the losses of actor, critic and temperature, which is learned if it wants a gradient.

    Args:
        logits: (B, T + 1, A), already lowest where an action is forbidden.
        q: the critic's Q, (2, B, T, A); (2, B, T + 1, A) where `takes_last_token`.
        following: the target's Q, (2, B, T + 1, A).
        action: (B, T, A), one-hot.
        reward, terminated, valid: (B, T).
        entropy_goal: what a learned temperature aims at; one number, or (B, T).
        allowed: (B, T, A) bool: False where an action is forbidden.
    """
    if takes_last_token(reward, logits.shape[-1]):
        from kalmanac._ops.sac_loss_kernels import discrete_losses as judged

        return _with_slopes([logits, q], log_alpha, *judged(
            logits, q, following, action, reward, terminated, valid, log_alpha, gamma=rules.gamma,
            entropy_goal=entropy_goal, entropy_in_target=rules.entropy_in_target, allowed=allowed,
            **rules.objective._asdict(),
        ))  # fmt: skip
    steps, temperature = Counted.of(valid), log_alpha.detach().exp()
    with torch.no_grad():
        there, later = Shares.of(logits[:, 1:]), following[:, :, 1:]
        soft = rules.entropy_in_target
        value = there.soft_value(later, temperature) if soft else there.value(later)
        target = bootstrap_target(reward, terminated, value, rules.gamma)
    here = Shares.of(logits[:, :-1])
    q_taken = (q * action.masked_fill(steps.left_out[..., None], 0)).sum(-1)
    frozen, actor_terms = q.detach(), list[Tensor]()
    if rules.objective.value:
        actor_terms.append(actor_loss(here.soft_value(frozen, temperature), steps))
    if rules.objective.cross_entropy:
        log_policy = here.log_share.movedim(0, -1)
        cross = cross_entropy_loss(log_policy, frozen, temperature, steps, allowed)
        actor_terms.append(rules.objective.cross_entropy * cross)
    actor = actor_terms[0] if len(actor_terms) == 1 else actor_terms[0] + actor_terms[1]
    return collect_losses(
        actor, q_taken, target, here.entropy, steps, log_alpha, temperature, entropy_goal
    )


def takes_last_token(reward: Tensor, actions: int) -> bool:
    """Losses want the critic's Q at all tokens: to leave one out would take a copy."""
    return fused(reward) and reward.dtype == torch.float32 and actions <= MOST_ACTIONS


def _with_slopes(
    roots: list[Tensor], log_alpha: Tensor, slopes: list[Tensor], numbers: list[Tensor]
) -> Losses:
    """Losses by a kernel that knows the gradients: autograd begins at the heads."""
    actor, critic, temperature, *others = numbers
    losses = {"actor_loss": actor, "critic_loss": critic}
    if log_alpha.requires_grad:
        losses["ent_coef_loss"] = temperature
        roots = [*roots, log_alpha]
    named = dict(zip(NUMBERS, others, strict=True))
    return Losses(roots, slopes[: len(roots)], losses, named)


def continuous_losses(
    value: Tensor, entropy: Tensor, q: Tensor, next_value: Tensor, next_entropy: Tensor,
    reward: Tensor, terminated: Tensor, valid: Tensor, log_alpha: Tensor, rules: Rules, *,
    entropy_goal: float,
) -> Losses:  # fmt: skip
    """Compute the losses for one policy action at each step (B, T), and one at the next.

    Args:
        value: min over the twins of Q at the policy's action; gradients reach the action alone.
        entropy: -log π of the policy's action.
        q: Q of the actions that were taken, (2, B, T).
        next_value, next_entropy: as `value` and `entropy`, one step later, by the target.
    """
    steps, temperature = Counted.of(valid), log_alpha.detach().exp()
    with torch.no_grad():
        if rules.entropy_in_target:
            next_value = torch.addcmul(next_value, temperature, next_entropy)
        target = bootstrap_target(reward, terminated, next_value, rules.gamma)
    actor = actor_loss(torch.addcmul(value, temperature, entropy), steps)
    return collect_losses(actor, q, target, entropy, steps, log_alpha, temperature, entropy_goal)


def fused_continuous_losses(
    q: Tensor, frozen: Tensor, following: Tensor, entropy: Tensor, next_entropy: Tensor,
    reward: Tensor, terminated: Tensor, valid: Tensor, log_alpha: Tensor, rules: Rules, *,
    entropy_goal: float,
) -> Losses:  # fmt: skip
    """Compute `continuous_losses` by a kernel, where `takes_last_token`.

    Args:
        q: Q of the actions that were taken, (2, B, T + 1, 1).
        frozen: Q of the policy's, (2, B, T + 1, 1); gradients reach the action alone.
        following: the target's Q of the policy's, (2, B, T + 1, 1): its first token has no say.
        entropy, next_entropy: -log π of the policy's actions, (B, T + 1).
    """
    from kalmanac._ops.sac_loss_kernels import continuous_losses as judged

    return _with_slopes([q, frozen, entropy], log_alpha, *judged(
        q, frozen, following, entropy, next_entropy, reward, terminated, valid, log_alpha,
        gamma=rules.gamma, entropy_goal=entropy_goal, entropy_in_target=rules.entropy_in_target,
    ))  # fmt: skip


NUMBERS = ("ent_coef", "entropy", "q_mean", "q_max", "target_mean")


def collect_losses(
    actor: Tensor, q: Tensor, target: Tensor, entropy: Tensor, steps: Counted,
    log_alpha: Tensor, temperature: Tensor, entropy_goal: float | Tensor,
) -> Losses:  # fmt: skip
    """Collect all losses, with the actor's as `actor`; q (2, B, T), target and entropy (B, T)."""
    losses = {"actor_loss": actor, "critic_loss": critic_loss(q, target, steps)}
    with torch.no_grad():
        stacked = torch.cat([q, target[None], entropy[None]])
        means = steps.mean(stacked)
        q_max = stacked[:2].masked_fill(steps.left_out, -math.inf).amax()
    if log_alpha.requires_grad:
        goal = steps.mean(entropy_goal) if isinstance(entropy_goal, Tensor) else entropy_goal
        losses["ent_coef_loss"] = temperature_loss(log_alpha, means[3], goal)
    numbers = (temperature, means[3], means[:2].mean(), q_max, means[2])
    return Losses(list(losses.values()), None, losses, dict(zip(NUMBERS, numbers, strict=True)))
