"""What decides a training, the agent's own settings apart."""

import functools
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

Drawing = Literal["episodes", "starts", "transitions"]


@dataclass(frozen=True)
class TrainingSettings:
    """How transitions are collected, kept and drawn, and how often the agent learns from them.

    Args:
        buffer_size: transitions kept; None keeps all.
        learning_starts: transitions of uniformly random actions that a new agent collects before
            its first update. A loaded one has done so: it acts by itself and learns as soon as
            its replay holds `batch_size` transitions.
        batch_size: windows per update.
        context_length: transitions per window, T.
        update_to_data: updates per transition, from a fraction of one to several.
        drawing: how windows are drawn from the replay.
        burn_in: transitions before a window that only warm up the encoder's state.
        true_previous_action: a window's first previous action is the one that was taken, so that a
            window from the middle of an episode does not look like an episode's beginning; False
            puts zeros there.
        bootstrap_truncated: the value of what would have come after a truncated step counts, as is
            right where a time limit is not part of the task. False takes truncation as the task's
            end. "auto" asks `env.metadata["bootstrap_truncated"]`; where that is silent, True.
        normalize_observations: observations are brought to zero mean and unit variance.
        normalize_rewards: updates see rewards divided by the standard deviation of discounted
            returns: for tasks that pay far more, or far less, than 1 an episode. Statistics begin
            with the training's own steps, not with a replay that is loaded.
        overlap: the updates that are due come after the choice of the next actions, so that a GPU
            learns while the environments step; the policy that acts is one vector step older.
        tf32: on a GPU, matrix products of updates round their factors to 11 bits; False keeps all
            24 and takes longer.
        bfloat16_heads: on a GPU, matrix products of the heads round their factors to 8 bits in
            updates, slopes of hidden layers among them; sums, parameters and their gradients keep
            24. Heads that the GPU backend's kernels cannot take stay as they are: those with more
            than two hidden layers, with widths that are no powers of two from 16 to 256, with more
            than 64 inputs, or with more outputs than 64 (8 behind a single hidden layer).
        graph: on a GPU, updates and acting are replayed from CUDA graphs; False launches every
            operation anew, which is for looking into them.
    """

    buffer_size: int | None = None
    learning_starts: int = 1000
    batch_size: int = 32
    context_length: int = 64
    update_to_data: float = 1.0
    drawing: Drawing = "episodes"
    burn_in: int = 0
    true_previous_action: bool = True
    bootstrap_truncated: bool | Literal["auto"] = "auto"
    normalize_observations: bool = False
    normalize_rewards: bool = False
    overlap: bool = False
    tf32: bool = True
    bfloat16_heads: bool = False
    graph: bool = True

    def __post_init__(self) -> None:
        for name, least in (
            ("batch_size", 1), ("context_length", 1), ("learning_starts", 0), ("burn_in", 0),
            ("buffer_size", 1),
        ):  # fmt: skip
            value = getattr(self, name)
            if name == "buffer_size" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name}: got {value!r}, expected an integer of at least {least}")
        if not 0 <= self.update_to_data < float("inf"):
            raise ValueError(
                f"update_to_data: got {self.update_to_data!r}, expected a number of at least 0"
            )
        if self.bfloat16_heads and not self.tf32:
            raise ValueError(
                "bfloat16_heads: got True with tf32 False, expected False where products are not "
                "to be rounded"
            )
        if self.bootstrap_truncated not in (True, False, "auto"):
            raise ValueError(
                f"bootstrap_truncated: got {self.bootstrap_truncated!r}, expected True, False or "
                '"auto"'
            )
        if self.drawing not in get_args(Drawing):
            raise ValueError(
                f"drawing: got {self.drawing!r}, expected one of {', '.join(get_args(Drawing))}"
            )

    def warm_up(self, seen: int = 0, held: int = 0) -> int:
        """Transitions that a training collects before its first update.

        Args:
            seen: transitions that the agent, or its replay, had before: they count as warm-up.
            held: transitions that are in the replay already; an agent that has seen something
                waits until there are as many as windows in a batch.
        """
        missing = max(self.learning_starts - seen, self.batch_size - held, 0)
        return min(self.learning_starts, missing)

    def updates_after(self, transitions: int, warm_up: int | None = None) -> int:
        """How many updates are to have been made once so many transitions are collected.

        ⌊update_to_data · (transitions − warm_up)⌋, without rounding errors; None is the warm-up of
        a new agent.
        """
        ratio = _exactly(self.update_to_data)
        beyond = max(0, transitions - (self.warm_up() if warm_up is None else warm_up))
        return ratio.numerator * beyond // ratio.denominator


@functools.cache
def _exactly(number: float) -> Fraction:
    return Fraction(number).limit_denominator(1_000_000)
