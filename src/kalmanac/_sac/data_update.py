"""An update from data: how near it stays, and what its batch tells of the actions in it."""

from typing import NamedTuple

import torch
from torch import Tensor

from kalmanac._ops.data_losses import (
    advantage_weights,
    bounded_temperature,
    come_true,
    copying_losses,
    data_returns,
    moved_actions,
    near_data,
    spread,
    unseen,
    with_temperature,
)
from kalmanac._ops.sac_losses import Counted, Losses, Shares
from kalmanac._replay.sampling import Batch
from kalmanac._sac.distributions import ActionDistribution, SquashedGaussian
from kalmanac._sac.networks import QValues

TRUST_RATE = 0.02  # of the running mean over batches


def trusted(strength: float | Tensor, trust: Tensor) -> Tensor:
    """How far better actions are preferred where so much of advantages comes true, ().

    All of it where all is true; nothing where noise is as large as what is true: then moves would
    be more wrong than right, and copies are all that data are good for.
    """
    return strength * (2 * trust - 1).clamp(min=0)


class Seen(NamedTuple):
    """What a batch of data tells of its actions, and its critic before it has learned from it."""

    steps: Counted
    episode: Tensor  # (B, T)
    returns: Tensor  # (B, T)
    advantage: Tensor  # (B, T), by that twin which does not learn from the step
    outcome: Tensor  # (B, T), returns beyond the same twin's value

    @staticmethod
    @torch.no_grad()
    def of(batch: Batch, q: Tensor, value: Tensor, next_value: Tensor, gamma: float) -> "Seen":
        """For Q of the batch's actions, Q of the policy, both (2, B, T), and V one step later."""
        if batch.episode is None:
            raise ValueError("batch.episode: got None, expected the number of each step's episode")
        steps, episode = Counted.of(batch.valid), batch.episode
        returns = data_returns(batch.reward, batch.terminated, batch.valid, next_value, gamma)
        baseline = unseen(value, episode)
        return Seen(steps, episode, returns, unseen(q, episode) - baseline, returns - baseline)

    def learn_trust(self, trust: Tensor) -> None:
        """Move what is known of how much of advantages comes true, (), by this batch."""
        trust.lerp_(come_true(self.advantage, self.outcome, self.steps), TRUST_RATE)

    def better(
        self, action: Tensor, q_values: QValues, std: Tensor, strength: float | Tensor
    ) -> Tensor:
        """The continuous actions, moved up the values of those twins."""
        action = action.detach().requires_grad_()
        of_action = unseen(q_values.frozen_twins(action), self.episode)
        (slope,) = torch.autograd.grad(of_action.sum(), action)
        with torch.no_grad():
            return moved_actions(action, slope, std, self.steps, strength)


class Copies(NamedTuple):
    """What is copied in an update, and what its losses need beside."""

    seen: Seen
    copying: Tensor  # (B, T): how unlikely what is to be copied is
    entropy: Tensor  # (B, T): of the policy
    q: Tensor  # (2, B, T): of the batch's actions
    share: float | Tensor | None
    differs: Tensor  # (B, T): the square of what the policy's actions differ by in value

    def alone(self) -> Losses:
        """The losses without an environment."""
        seen = self.seen
        return copying_losses(
            self.copying, self.entropy, self.q, seen.returns, seen.episode, seen.steps
        )

    def temperature(self, log_alpha: Tensor) -> Tensor:
        """The log of the temperature that the usual losses have beside copies, ()."""
        assert self.share is not None
        return bounded_temperature(log_alpha, self._unit(), self.share)

    def beside(self, losses: Losses, log_alpha: Tensor, goal: float | Tensor) -> Losses:
        """The usual losses in an environment, with the share of copying; `goal` of the entropy."""
        assert self.share is not None
        steps, unit = self.seen.steps, self._unit()
        mixed = near_data(losses, self.copying, unit, steps, self.share)
        if not log_alpha.requires_grad:
            return mixed
        return with_temperature(mixed, log_alpha, unit, goal, steps)

    def _unit(self) -> Tensor:
        return spread(self.differs, self.seen.steps)


class Near(NamedTuple):
    """How an update stays near the batch's actions."""

    strength: float | Tensor  # how far better actions are preferred; 0 copies all alike
    share: float | Tensor | None  # in the actor's loss; None: nothing else is in any loss
    trust: Tensor  # (), the learner's
    gamma: float

    def discrete(
        self, batch: Batch, policy: ActionDistribution, logits: Tensor, q: Tensor, following: Tensor
    ) -> Copies:
        """For logits (B, T + 1, A), and Q of all actions by critic and target, (2, B, T + 1, A)."""
        action, every = batch.counted_actions(), q[:, :, : batch.action.shape[1]]
        here, taken = Shares.of(logits[:, :-1]), (every * action).sum(-1)
        with torch.no_grad():
            value = (here.share.movedim(0, -1) * every).sum(-1)
            next_value = Shares.of(logits[:, 1:]).value(following[:, :, 1:])
            lower = every.amin(0).movedim(-1, 0)
            differs = (here.share * (lower - (here.share * lower).sum(0)).square()).sum(0)
        seen = Seen.of(batch, taken, value, next_value, self.gamma)
        counts = advantage_weights(seen.advantage, seen.steps, self._strength(seen))
        copying = counts * policy.cloning_loss(logits[:, :-1], action)
        return Copies(seen, copying, here.entropy, taken, self.share, differs)

    def continuous(
        self, batch: Batch, policy: SquashedGaussian, parameters: Tensor, entropy: Tensor,
        q_values: QValues, q: Tensor, drawn: Tensor, next_value: Tensor,
    ) -> Copies:  # fmt: skip
        """For the policy's parameters and entropy at the steps, Q of the batch's actions and of one
        that the policy drew, (B, T), and V."""
        with torch.no_grad():  # a draw would be noise in advantages and in what they are to be
            value = q_values.frozen_twins(policy.mode(parameters))
            differs = (drawn - value.amin(0)).square()
        seen = Seen.of(batch, q, value, next_value, self.gamma)
        strength, goal = self._strength(seen), batch.counted_actions()
        if isinstance(self.strength, Tensor) or self.strength:
            std = policy.named(parameters.detach())["action_log_std"].exp()
            goal = seen.better(goal, q_values, std, strength)
        copying = policy.cloning_loss(parameters, goal)
        return Copies(seen, copying, entropy, q, self.share, differs)

    def _strength(self, seen: Seen) -> float | Tensor:
        """How far this update prefers better actions; what is trusted is known before it."""
        if self.share is not None:
            return self.strength
        strength = trusted(self.strength, self.trust)
        seen.learn_trust(self.trust)
        return strength
