"""What a replay hands to a learner, and the sizes that fix its shapes."""

import math
from typing import NamedTuple

from torch import Tensor


class Sizes(NamedTuple):
    """The shape of one step: O, A, whether actions are numbers 0 … A−1, and what else there is."""

    observation: int
    action: int
    discrete: bool
    privileged: int = 0  # S; 0: no privileged observation
    observed: bool = False  # True: readings can be missing, and the agent is told
    images: tuple[tuple[int, int, int], ...] = ()  # (C, H, W) of each image beside the observation
    action_mask: bool = False  # True: actions can be forbidden

    @property
    def pixels(self) -> int:
        """P, the bytes of all images."""
        return sum(math.prod(shape) for shape in self.images)


class Batch(NamedTuple):
    """Windows of T transitions and T+1 tokens (observations), right-padded with zeros.

    A row holds one window (`reset` is None), or, packed, several windows one after another, each
    beginning with `reset` = True. A transition from the last token of one window to the first of
    the next does not exist: it is a pad like those at the row's end.
    """

    observation: Tensor  # (B, T+1, O)
    previous_action: Tensor  # (B, T+1, A), zero at the first token of a window unless asked for
    action: Tensor  # (B, T, A), one-hot if discrete
    reward: Tensor  # (B, T)
    terminated: Tensor  # (B, T) bool: True cuts the bootstrap; a truncated episode has no mark
    valid: Tensor  # (B, T) bool: transitions that count in losses
    lengths: Tensor  # (B,) int64: tokens of the row that are not padding
    reset: Tensor | None = None  # (B, T+1) bool
    privileged: Tensor | None = None  # (B, T+1, S)
    observed: Tensor | None = None  # (B, T+1) bool, False where the reading is missing
    pixels: Tensor | None = None  # (B, T+1, P) uint8, image after image, each (C, H, W)
    action_mask: Tensor | None = None  # (B, T+1, A) bool, False where an action is forbidden
