"""L layers one after the other, with an optional RMSNorm behind the last (paper, section 4.2)."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from kalmanac.encoders.encoder import (
    HistoryEncoder,
    Lengths,
    State,
)

NORM_EPS = 1e-5


class Stack(HistoryEncoder):
    """Feeds each layer's z to the next one as its h.

    The state has the fields of the layers' states, stacked along a layer axis after the batch:
    (B, L, …).
    """

    def __init__(self, layers: Sequence[HistoryEncoder], *, norm: bool = False) -> None:
        super().__init__()
        if not layers:
            raise ValueError("layers: got none, expected at least one layer")
        self.d_model = layers[0].d_model
        self.layers = nn.ModuleList(layers)
        self.norm = output_norm(self.d_model, norm)

    def initial_state(self, batch: int) -> State:
        """The layers' initial states, stacked."""
        return stack_states([layer.initial_state(batch) for layer in self.parts()])

    def forward(
        self, h: Tensor, state: State | None = None, *, lengths: Lengths = None,
        reset: Tensor | None = None, observed: Tensor | None = None,
    ) -> tuple[Tensor, State]:  # fmt: skip
        """See `HistoryEncoder`."""
        z, states = h, []
        for layer, own in zip(self.parts(), self.split(state), strict=True):
            z, after = layer(z, own, lengths=lengths, reset=reset, observed=observed)
            states.append(after)
        return self.norm(z), stack_states(states)

    def step(
        self, h_t: Tensor, state: State, *, reset: Tensor | None = None,
        observed: Tensor | None = None,
    ) -> tuple[Tensor, State]:  # fmt: skip
        """See `HistoryEncoder`."""
        z, states = h_t, []
        for layer, own in zip(self.parts(), self.split(state), strict=True):
            z, after = layer.step(z, cast(State, own), reset=reset, observed=observed)
            states.append(after)
        return self.norm(z), stack_states(states)

    def parts(self) -> list[HistoryEncoder]:
        """The layers, with their type."""
        return [cast(HistoryEncoder, layer) for layer in self.layers]

    def split(self, state: State | None) -> list[State | None]:
        """Each layer's own state."""
        if state is None:
            return [None] * len(self.layers)
        if not isinstance(state, tuple) or not all(isinstance(x, Tensor) for x in state):
            raise TypeError(f"state: got {type(state).__name__}, expected a named tuple of tensors")
        if any(x.dim() < 2 or x.shape[1] != len(self.layers) for x in state):
            shapes = [tuple(x.shape) for x in state]
            raise ValueError(f"state: got {shapes}, expected (B, L = {len(self.layers)}, …)")
        return [tuple(x[:, i] for x in state) for i in range(len(self.layers))]


def stack_states(states: Sequence[State]) -> State:
    """Named tuples of (B, …), one per layer, to one of (B, L, …)."""
    if len(states) == 1:  # no copy
        return type(states[0])(*(x.unsqueeze(1) for x in states[0]))
    fields = (torch.stack(layers, 1) for layers in zip(*states, strict=True))
    return type(states[0])(*fields)


def output_norm(d_model: int, norm: bool) -> nn.Module:
    """RMSNorm with one learnable scale per feature, or nothing. Zeros (pads) stay zeros."""
    return nn.RMSNorm(d_model, eps=NORM_EPS) if norm else nn.Identity()
