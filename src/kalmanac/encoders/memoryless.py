"""The encoder that remembers nothing: the lower bound (paper, section 5.1)."""

from typing import ClassVar, NamedTuple

from torch import Tensor

from kalmanac.encoders.encoder import (
    HistoryEncoder,
    Lengths,
    State,
    check_step,
    positive_sizes,
    read_steps,
)


class NoState(NamedTuple):
    """No tensors at all."""


class Memoryless(HistoryEncoder):
    """z_t = h_t. Also what Oracle uses, which sees the environment's true state instead."""

    uses_history: ClassVar[bool] = False

    def __init__(self, d_model: int = 16) -> None:
        super().__init__()
        positive_sizes(d_model=d_model)
        self.d_model = d_model

    def initial_state(self, batch: int) -> NoState:
        """Empty."""
        return NoState()

    def forward(
        self, h: Tensor, state: State | None = None, *, lengths: Lengths = None,
        reset: Tensor | None = None, observed: Tensor | None = None,
    ) -> tuple[Tensor, NoState]:  # fmt: skip
        """h, with zeros on pads; everything else is ignored."""
        return read_steps(self, h, state, lengths, reset, observed).h, NoState()

    def step(
        self, h_t: Tensor, state: State, *, reset: Tensor | None = None,
        observed: Tensor | None = None,
    ) -> tuple[Tensor, NoState]:  # fmt: skip
        """h_t."""
        check_step(self, h_t, state, reset, observed)
        return h_t, NoState()
