"""Losses of learning from data: the actor copies what the data do, and a little better than that.

The policy that gains most for staying so near to the data is the data's own, tilted by
exp(s A / spread of A) for advantages A: `moved_actions` tilts continuous actions,
`advantage_weights` discrete ones. What is known of advantages comes from the data's own returns
(`data_returns`). Of the twin critics, one learns from every second episode and the other from the
rest, so that each step has one that has not learned from it (`unseen`), nor from steps beside it,
whose returns are nearly its own: where that one's advantages have nothing to do with what happened,
the tilt vanishes (`come_true`), and what is left is behavior cloning. In an environment,
`near_data` mixes such copies with the usual losses.
"""

import math

import torch
from torch import Tensor

from kalmanac._ops.sac_losses import Counted, Losses, collect_losses
from kalmanac._ops.scan.linear import linear_scan

EDGE = 0.999  # the largest action that is copied: beyond, atanh knows no bounds
MOST_OF_A_STEP = 100.0  # times a step with the average advantage counts for a copy
MOST_OF_A_MOVE = 1.0  # standard deviations
LEAST_TEMPERATURE = 0.01  # beside copies, in units of what the policy's actions differ by


def data_returns(
    reward: Tensor, terminated: Tensor, valid: Tensor, next_value: Tensor, gamma: float
) -> Tensor:
    """Rewards to come with the discount γ, (B, T): those of the window, then V of its last token.

    They are what the data's actions led to, however far values have come. A window's last step is
    the last valid one before an invalid one or the row's end; what follows a termination is zero.
    """
    onward = valid[:, :-1] & valid[:, 1:] & ~terminated[:, :-1]
    onward = torch.cat([onward, torch.zeros_like(valid[:, :1])], 1)
    beyond = next_value.masked_fill(onward | terminated | ~valid, 0)
    drive = reward.masked_fill(~valid, 0).add(beyond, alpha=gamma)
    decay = gamma * onward.to(drive.dtype)
    backward, _ = linear_scan(decay.flip(1)[..., None], drive.flip(1)[..., None])
    return backward[..., 0].flip(1)


def unseen(twins: Tensor, episode: Tensor) -> Tensor:
    """Of twins (2, B, T), that one at each step which does not learn from it, (B, T)."""
    return torch.where(_odd(episode), twins[0], twins[1])


def _odd(episode: Tensor) -> Tensor:
    return episode % 2 == 1


def come_true(advantage: Tensor, outcome: Tensor, steps: Counted) -> Tensor:
    """How much of advantages (B, T) is in what happened, the returns beyond the value: ().

    The slope of the line through both. Noise in outcomes does not change it, noise in advantages
    lowers it: it is their share of signal. Between -1 and 1, so that slopes of mere noise cancel
    each other in the mean of many batches.
    """
    off, found = ((x - steps.mean(x)).masked_fill(steps.left_out, 0) for x in (advantage, outcome))
    return (steps.mean(off * found) / steps.mean(off.square()).clamp(min=1e-12)).clamp(-1, 1)


def moved_actions(
    action: Tensor, slope: Tensor, std: Tensor, steps: Counted, strength: float | Tensor
) -> Tensor:
    """The data's continuous actions (B, T, A), each moved up its own value.

    A Gaussian with the standard deviation σ that is tilted by exp(s A / spread), where A has the
    slope g, is the same Gaussian, moved by s σ² g / spread; the spread is that of σ g, over all
    steps. Copies of moved actions therefore need no weights, which would leave little of the data,
    and values are asked about the data's actions alone. No action moves by more than
    `MOST_OF_A_MOVE` σ, so that a copy's σ cannot grow by its moves.

    Args:
        action: in [-1, 1]; it moves before its squashing.
        slope: of its value, (B, T, A).
        std: of the policy that copies, before the squashing, (B, T, A).
        strength: s, the root mean square of all moves in standard deviations, before the bound.
    """
    inside = action.clamp(-EDGE, EDGE)
    gain = std * slope * (1 - inside.square())
    spread = steps.mean(gain.square().sum(-1)).sqrt().clamp(min=1e-6)
    move = (strength * gain / spread).clamp(-MOST_OF_A_MOVE, MOST_OF_A_MOVE)
    # where nothing moves, it is behavior cloning to the last bit
    return torch.where(move == 0, action, torch.tanh(torch.atanh(inside) + std * move))


def advantage_weights(advantage: Tensor, steps: Counted, strength: float | Tensor) -> Tensor:
    """How much each step (B, T) counts for a copy of its action, 1 on average.

    exp(s A / std A), cut off at `MOST_OF_A_STEP`: the policy with the largest s E[A] / std A -
    KL(policy, data) takes the data's actions in these shares (Peng et al., 2019).
    """
    off = (advantage - steps.mean(advantage)).masked_fill(steps.left_out, 0)
    counts = (strength * off / spread(off.square(), steps)).exp().clamp(max=MOST_OF_A_STEP)
    return counts / steps.mean(counts).clamp(min=1e-6)


def spread(square: Tensor, steps: Counted) -> Tensor:
    """The root of the mean of A² (B, T), (): the unit in which actions differ."""
    return steps.mean(square).sqrt().clamp(min=1e-6)


def copying_losses(
    copying: Tensor, entropy: Tensor, q: Tensor, returns: Tensor, episode: Tensor, steps: Counted
) -> Losses:
    """Compute the losses without an environment: copies, and Q of the data's own returns.

    The first of the twins learns from even episodes, the second from odd ones.

    Args:
        copying: (B, T), how unlikely what is to be copied is.
        entropy: -log π of what the policy does, (B, T).
        q: (2, B, T), Q of the data's actions.
        returns: (B, T), of `data_returns`.
        episode: (B, T), the numbers of the steps' episodes.
    """
    mean, nothing, odd = steps.mean(copying), q.new_zeros(()), _odd(episode)
    numbers = collect_losses(mean, q, returns, entropy, steps, nothing, nothing, 0.0).numbers
    of_others = torch.stack([odd, ~odd]) | steps.left_out
    critic = 2 * (q - returns).masked_fill(of_others, 0).square().sum() / steps.number
    losses = {"actor_loss": mean, "critic_loss": critic}
    return Losses([mean, critic], None, losses, numbers | {"cloning_loss": mean.detach()})


def bounded_temperature(log_alpha: Tensor, unit: Tensor, share: float | Tensor) -> Tensor:
    """The log of the temperature beside copies, (): (1 - share) min(α, unit).

    Copies decide the entropy as far as they have a share, whatever the temperature is, and a
    temperature beyond the `unit` in which the policy's actions differ would leave nothing of that.
    """
    left = 1 - share
    left = left.clamp(min=1e-6).log() if isinstance(left, Tensor) else math.log(max(left, 1e-6))
    return torch.minimum(log_alpha.detach(), unit.log()) + left


def near_data(
    losses: Losses, copying: Tensor, unit: Tensor, steps: Counted, share: float | Tensor
) -> Losses:
    """The actor's loss becomes (1 - share) loss / unit + share · mean of `copying` (B, T).

    In the unit in which the policy's actions differ, values weigh the same whatever the rewards'
    unit, and whatever all actions have in common: with equal shares, a Gaussian's mean is about a
    standard deviation from what it copies, as far as `moved_actions` go at most.

    Args:
        losses: the actor's root is the first.
        unit: `spread` of the advantages of what the policy does, ().
        share: in [0, 1]; a tensor where a recorded update is to read what it is by then.
    """
    climb, mean = (1 - share) / unit, steps.mean(copying)
    slopes = losses.slopes or [torch.ones_like(root) for root in losses.roots]
    slopes = [climb * slopes[0], *slopes[1:], torch.ones_like(mean) * share]
    actor = climb * losses.losses["actor_loss"] + share * mean
    return Losses(
        [*losses.roots, mean], slopes, losses.losses | {"actor_loss": actor},
        losses.numbers | {"cloning_loss": mean.detach()},
    )  # fmt: skip


def with_temperature(
    losses: Losses, log_alpha: Tensor, unit: Tensor, goal: float | Tensor, steps: Counted
) -> Losses:
    """Add the loss of a learned temperature, which comes back to between 0.01 and 1 units.

    log α · (mean entropy - goal) between them, log α · |mean entropy - goal| above, the negative
    below. Copies may hold the entropy away from its goal for long: a temperature that rose or fell
    all the while would take as long to come back.
    """
    goal = steps.mean(goal) if isinstance(goal, Tensor) else goal
    off, over = losses.numbers["entropy"] - goal, log_alpha.detach() - unit.log()
    least = math.log(LEAST_TEMPERATURE)
    slope = torch.where(over > 0, off.abs(), torch.where(over < least, -off.abs(), off))
    loss = log_alpha * slope
    slopes = None if losses.slopes is None else [*losses.slopes, torch.ones_like(loss)]
    return losses._replace(
        roots=[*losses.roots, loss], slopes=slopes,
        losses=losses.losses | {"ent_coef_loss": loss},
    )  # fmt: skip
