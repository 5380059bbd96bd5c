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
    true: Tensor  # (): how much of the advantages came true

    @staticmethod
    @torch.no_grad()
    def of(batch: Batch, q: Tensor, value: Tensor, next_value: Tensor, gamma: float) -> "Seen":
        """For Q of the batch's actions, Q of the policy, both (2, B, T), and V one step later."""
        if batch.row is None:
            raise ValueError("batch.row: got None, expected where each step is stored")
        steps, row = Counted.of(batch.valid), batch.row
        returns = data_returns(batch.reward, batch.terminated, batch.valid, next_value, gamma)
        baseline = unseen(value, row)
        advantage = unseen(q, row) - baseline
        true = come_true(advantage, returns - baseline, steps)
        return Seen(steps, row, returns, advantage, true)

    def better(self, action: Tensor, q_values: QValues, std: Tensor, strength: float) -> Tensor:
        """The continuous actions, moved up the values of those twins."""
        action = action.detach().requires_grad_()
        of_action = unseen(q_values.frozen_twins(action), self.row)
        (slope,) = torch.autograd.grad(of_action.sum(), action)
        with torch.no_grad():
            return moved_actions(action, slope, std, self.steps, strength * self.true)

    def losses(self, copying: Tensor, entropy: Tensor, q: Tensor) -> Losses:
        """Of an update without an environment."""
        return copying_losses(copying, entropy, q, self.returns, self.row, self.steps)
