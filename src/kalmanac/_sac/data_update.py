"""An update from data: how near it stays, and what its batch tells of the actions in it."""

from typing import NamedTuple

import torch
from torch import Tensor

from kalmanac._ops.data_losses import (
    come_true,
    copying_losses,
    data_returns,
    moved_actions,
    unseen,
)
from kalmanac._ops.sac_losses import Counted, Losses
from kalmanac._replay.sampling import Batch
from kalmanac._sac.networks import QValues

TRUST_RATE = 0.02  # of the running mean over batches


def trusted(strength: float | Tensor, trust: Tensor) -> Tensor:
    """How far better actions are preferred where so much of advantages comes true, ().

    All of it where all is true; nothing where noise is as large as what is true: then moves would
    be more wrong than right, and copies are all that data are good for.
    """
    return strength * (2 * trust - 1).clamp(min=0)


class Near(NamedTuple):
    """How an update stays near the batch's actions."""

    strength: float  # how far better actions are preferred; 0 copies all alike
    share: float | Tensor | None  # in the actor's loss; None: nothing else is in any loss


class Seen(NamedTuple):
    """What a batch of data tells of its actions, and its critic before it has learned from it."""

    steps: Counted
    row: Tensor  # (B, T)
    returns: Tensor  # (B, T)
    advantage: Tensor  # (B, T), by that twin which does not learn from the step
    outcome: Tensor  # (B, T), returns beyond the same twin's value

    @staticmethod
    @torch.no_grad()
    def of(batch: Batch, q: Tensor, value: Tensor, next_value: Tensor, gamma: float) -> "Seen":
        """For Q of the batch's actions, Q of the policy, both (2, B, T), and V one step later."""
        if batch.row is None:
            raise ValueError("batch.row: got None, expected where each step is stored")
        steps, row = Counted.of(batch.valid), batch.row
        returns = data_returns(batch.reward, batch.terminated, batch.valid, next_value, gamma)
        baseline = unseen(value, row)
        return Seen(steps, row, returns, unseen(q, row) - baseline, returns - baseline)

    def learn_trust(self, trust: Tensor) -> None:
        """Move what is known of how much of advantages comes true, (), by this batch."""
        trust.lerp_(come_true(self.advantage, self.outcome, self.steps), TRUST_RATE)

    def better(
        self, action: Tensor, q_values: QValues, std: Tensor, strength: float | Tensor
    ) -> Tensor:
        """The continuous actions, moved up the values of those twins."""
        action = action.detach().requires_grad_()
        of_action = unseen(q_values.frozen_twins(action), self.row)
        (slope,) = torch.autograd.grad(of_action.sum(), action)
        with torch.no_grad():
            return moved_actions(action, slope, std, self.steps, strength)

    def losses(self, copying: Tensor, entropy: Tensor, q: Tensor) -> Losses:
        """Of an update without an environment."""
        return copying_losses(copying, entropy, q, self.returns, self.row, self.steps)
