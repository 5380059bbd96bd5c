"""Adam over parameters that lie side by side in one tensor.

An agent has some twenty small parameters, and an operation on each costs more in launching it than
in doing it. Laid side by side, gradient norms, Adam and the target's averaging are one operation
each.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from kalmanac.ops import gpu
from kalmanac.ops.late import late

ALIGNED = 16  # numbers: parameters begin at multiples of 64 bytes, as matrix products like them
TINY = 1e-8  # of Adam

_moved = late("kalmanac.ops.gpu.adam_kernels", "Moved")
_step = late("kalmanac.ops.gpu.adam_kernels", "step")


class Trailing(NamedTuple):
    """A tensor that follows the values of neighboring groups: after each step,
    x ← x + rate · (values - x)."""

    groups: Sequence[str]  # one or more, in the order of Adam's groups
    values: Tensor
    rate: float


class Adam:
    """Moves the parameters of named groups (Kingma & Ba, 2015; ε = 1e-8).

    The parameters become views of `values`: load into them, never replace them.
    """

    def __init__(
        self, groups: Mapping[str, Sequence[Tensor]], learning_rate: float, trailing: Trailing,
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> None:  # fmt: skip
        everything = [p for group in groups.values() for p in group]
        self.values = side_by_side(everything)
        self.spans = _spans(groups)
        self.learning_rate, self.trailing, self.betas = learning_rate, trailing, betas
        first, last = self.spans[trailing.groups[0]], self.spans[trailing.groups[-1]]
        self._followed = slice(first.start, last.stop)
        self.gradients = torch.zeros_like(self.values)
        self._slots = _views(self.gradients, everything)
        self._gaps = [self.values.new_zeros(_room(p) - p.numel()) for p in everything]
        self._average = torch.zeros_like(self.values)
        self._square = torch.zeros_like(self.values)
        self._steps = self.values.new_zeros(())
        self._fused = self.values.is_cuda and gpu.INSTALLED

    @torch.no_grad()
    def step(
        self, gradients: Sequence[Tensor], max_norm: float | None, clipped: Sequence[str]
    ) -> dict[str, Tensor]:
        """Move by the gradients of all parameters, in their order.

        Returns the norms of the `clipped` groups' gradients, before they are clipped to `max_norm`.
        """
        move = self._move_fused if self._fused else self._move
        return dict(zip(clipped, move(gradients, max_norm, clipped), strict=True))

    def _move(
        self, gradients: Sequence[Tensor], max_norm: float | None, clipped: Sequence[str]
    ) -> list[Tensor]:
        beside = [x for g, gap in zip(gradients, self._gaps, strict=True) for x in (g, gap)]
        torch.cat([x.reshape(-1) for x in beside], out=self.gradients)
        norms = []
        for name in clipped:
            own = self.gradients[self.spans[name]]
            norms.append(torch.linalg.vector_norm(own))
            if max_norm is not None:
                own.mul_((max_norm / (norms[-1] + 1e-6)).clamp(max=1))
        self._steps += 1
        torch._fused_adam_(
            [self.values], [self.gradients], [self._average], [self._square], [], [self._steps],
            lr=self.learning_rate, beta1=self.betas[0], beta2=self.betas[1], weight_decay=0.0,
            eps=TINY, amsgrad=False, maximize=False,
        )  # fmt: skip
        _, values, rate = self.trailing
        values.lerp_(self.values[self._followed], rate)
        return norms

    def _move_fused(
        self, gradients: Sequence[Tensor], max_norm: float | None, clipped: Sequence[str]
    ) -> list[Tensor]:
        torch._foreach_copy_(self._slots, [g.contiguous() for g in gradients])
        _, values, rate = self.trailing
        moved = (self.values, self.gradients, self._average, self._square, self._steps, values)
        return _step(
            _moved(*moved), [self.spans[name] for name in clipped], self._followed.start,
            learning_rate=self.learning_rate, tau=rate, max_norm=max_norm, betas=self.betas,
            tiny=TINY,
        )  # fmt: skip

    def state_dict(self) -> dict[str, Tensor]:
        """Adam's two averages and its count of steps, as tensors."""
        kept = {"average": self._average, "square": self._square, "steps": self._steps}
        return {name: x.clone() for name, x in kept.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on where `state_dict` was taken, in the tensors that are there: graphs know them."""
        if state["average"].shape != self.values.shape:
            came, own = len(state["average"]), len(self.values)
            raise ValueError(f"adam: got averages of {came} numbers, expected {own}")
        self._average.copy_(state["average"])
        self._square.copy_(state["square"])
        self._steps.copy_(state["steps"])


def side_by_side(parameters: Sequence[Tensor]) -> Tensor:
    """One tensor with the values of all; the parameters become views of it. Gaps are zero."""
    values = parameters[0].new_zeros(sum(map(_room, parameters)), requires_grad=False)
    for parameter, view in zip(parameters, _views(values, parameters), strict=True):
        view.copy_(parameter.detach())
        parameter.data = view
    return values


def _views(flat: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    parts = flat.split([_room(p) for p in parameters])
    return [x[: p.numel()].view(p.shape) for x, p in zip(parts, parameters, strict=True)]


def _spans(groups: Mapping[str, Sequence[Tensor]]) -> dict[str, slice]:
    rooms = [sum(map(_room, group)) for group in groups.values()]
    ends = accumulate(rooms)
    return {
        name: slice(end - room, end) for name, room, end in zip(groups, rooms, ends, strict=True)
    }


def _room(parameter: Tensor) -> int:
    return -(-parameter.numel() // ALIGNED) * ALIGNED
