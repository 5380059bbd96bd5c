"""Adam over parameters that lie side by side in one tensor.

An agent has some twenty small parameters, and an operation on each costs more in launching it than
in doing it. Laid side by side, gradient norms, Adam and the target's averaging are one operation
each.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from kalmanac._ops.adam import Moving, Rates, adam_step

ALIGNED = 16  # numbers: parameters begin at multiples of 64 bytes, as matrix products like them


class Trailing(NamedTuple):
    """A tensor that follows the values of one or two neighboring groups: after each step,
    x ← x + rate · (values - x)."""

    rates: Mapping[str, float]  # of each group, in the order of Adam's
    values: Tensor
    fades: float = math.inf  # after n steps, the first rate is at most fades / n


class Adam:
    """Moves the parameters of named groups (Kingma & Ba, 2015; ε = 1e-8).

    The parameters become views of `values`: load into them, never replace them.
    """

    def __init__(
        self, groups: Mapping[str, Sequence[Tensor]], learning_rate: float, trailing: Trailing,
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> None:  # fmt: skip
        everything = [p for group in groups.values() for p in group]
        self.values = flatten_parameters(everything)
        self.spans = _spans(groups)
        self.trailing, self.betas = trailing, betas
        # fill_ it to change it: recorded updates read it here
        self.learning_rate = self.values.new_tensor(learning_rate, dtype=torch.float64)
        self.gradients = torch.zeros_like(self.values)
        self._slots = _views(self.gradients, everything)
        self._gaps = [self.values.new_zeros(_room(p) - p.numel()) for p in everything]
        self._average = torch.zeros_like(self.values)
        self._square = torch.zeros_like(self.values)
        self._steps = self.values.new_zeros(())
        tensors = (self.values, self.gradients, self._average, self._square, self._steps)
        first = self.spans[next(iter(trailing.rates))]
        self._moving = Moving(*tensors, trailing.values, first.start, first.stop - first.start)

    @torch.no_grad()
    def step(
        self, gradients: Sequence[Tensor], max_norm: float | None, clipped: Sequence[str]
    ) -> dict[str, Tensor]:
        """Move by the gradients of all parameters, in their order.

        Returns the norms of the `clipped` groups' gradients, before they are clipped to `max_norm`.
        """
        taus = list(self.trailing.rates.values())
        rates = Rates(
            self.learning_rate, self.betas, (taus[0], taus[-1]), self.trailing.fades, max_norm
        )
        groups = [self.spans[name] for name in clipped]
        norms = adam_step(self._moving, gradients, self._slots, self._gaps, groups, rates)
        return dict(zip(clipped, norms, strict=True))

    def state_dict(self) -> dict[str, Tensor]:
        """Adam's two averages and its count of steps, as tensors."""
        tensors = {"average": self._average, "square": self._square, "steps": self._steps}
        return {name: x.clone() for name, x in tensors.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on where `state_dict` was taken, in the tensors that are there: graphs know them."""
        if state["average"].shape != self.values.shape:
            got, own = len(state["average"]), len(self.values)
            raise ValueError(f"adam: got averages of {got} numbers, expected {own}")
        self._average.copy_(state["average"])
        self._square.copy_(state["square"])
        self._steps.copy_(state["steps"])


def flatten_parameters(parameters: Sequence[Tensor]) -> Tensor:
    """Copy all into one tensor, of which the parameters become views. Gaps are zero."""
    values = parameters[0].new_zeros(sum(map(_room, parameters)), requires_grad=False)
    for parameter, view in zip(parameters, _views(values, parameters), strict=True):
        view.copy_(parameter.detach())
        parameter.data = view
    return values


def _views(flat: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    parts = flat.split([_room(p) for p in parameters])
    return [x[: p.numel()].view(p.shape) for x, p in zip(parts, parameters, strict=True)]


def _spans(groups: Mapping[str, Sequence[Tensor]]) -> dict[str, slice]:
    ends = accumulate((sum(map(_room, group)) for group in groups.values()), initial=0)
    return {name: slice(*span) for name, span in zip(groups, pairwise(ends), strict=True)}


def _room(parameter: Tensor) -> int:
    return -(-parameter.numel() // ALIGNED) * ALIGNED
