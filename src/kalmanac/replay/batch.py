"""What a replay hands to a learner."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from kalmanac.observation import Observation


class Batch(NamedTuple):
    """Windows of T transitions and T+1 tokens (observations), right-padded with zeros.

    A row holds one window (`reset` is None), or, packed, several windows one after another, each
    beginning with `reset` = True. A transition from the last token of one window to the first of
    the next does not exist: it is a pad like those at the row's end.
    """

    observation: Observation[Tensor]  # (B, T+1, …)
    previous_action: Tensor  # (B, T+1, A), zero at the first token of a window unless asked for
    action: Tensor  # (B, T, A), one-hot if discrete
    reward: Tensor  # (B, T)
    terminated: Tensor  # (B, T) bool: True cuts the bootstrap; a truncated episode has no mark
    valid: Tensor  # (B, T) bool: transitions that count in losses
    lengths: Tensor  # (B,) int64: tokens of the row that are not padding
    reset: Tensor | None = None  # (B, T+1) bool

    def map(self, function: Callable[[Tensor], Tensor]) -> "Batch":
        """`function` of every tensor."""
        others = [None if x is None else function(x) for x in self[1:]]
        return Batch(self.observation.map(function), *others)  # type: ignore[arg-type]
