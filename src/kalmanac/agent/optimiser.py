"""Adam over parameters that lie side by side in one tensor.

An agent has some twenty small parameters, and an operation on each costs more in launching it than
in doing it. Laid side by side, gradient norms, Adam and the target's averaging are one operation
each.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor

ALIGNED = 16  # numbers: parameters begin at multiples of 64 bytes, as matrix products like them
# torch's fused Adam gives each tensor of up to 65,536 numbers to one processor of a GPU, and takes
# 36 tensors with one launch.
CUDA_PIECES = 36


class Adam:
    """Moves the parameters of named groups (Kingma & Ba, 2015; β = 0.9, 0.999; ε = 1e-8).

    The parameters become views of `values`: load into them, never replace them.
    """

    def __init__(self, groups: Mapping[str, Sequence[Tensor]], learning_rate: float) -> None:
        everything = [p for group in groups.values() for p in group]
        self.values = side_by_side(everything)
        self.gradients = torch.zeros_like(self.values)
        self.spans = _spans(groups)
        gaps = [_room(p) - p.numel() for p in everything]
        self._gaps = [self.values.new_zeros(gap) for gap in gaps]
        pieces = CUDA_PIECES if self.values.is_cuda else 1
        self._pieces = list(self.values.tensor_split(pieces))
        self._slopes = list(self.gradients.tensor_split(pieces))
        self._adam = torch.optim.Adam(
            self._pieces, lr=learning_rate, fused=True, capturable=self.values.is_cuda
        )

    def step(
        self, gradients: Sequence[Tensor], max_norm: float | None, clipped: Sequence[str]
    ) -> dict[str, Tensor]:
        """Move by the gradients of all parameters, in their order.

        Returns the norms of the `clipped` groups' gradients, before they are clipped to `max_norm`.
        """
        beside = [x for g, gap in zip(gradients, self._gaps, strict=True) for x in (g, gap)]
        torch.cat([x.reshape(-1) for x in beside], out=self.gradients)
        norms = {}
        for name in clipped:
            own = self.gradients[self.spans[name]]
            norms[name] = torch.linalg.vector_norm(own)
            if max_norm is not None:
                own.mul_((max_norm / (norms[name] + 1e-6)).clamp(max=1))
        for piece, slope in zip(self._pieces, self._slopes, strict=True):
            piece.grad = slope
        self._adam.step()
        return norms

    def state_dict(self) -> dict[str, Tensor]:
        """Adam's two averages and its count of steps, as tensors."""
        memory = [self._adam.state[piece] for piece in self._pieces]
        if not memory[0]:
            nothing = torch.zeros_like(self.values)
            return {"average": nothing, "square": nothing.clone(), "steps": nothing.new_zeros(())}
        return {
            "average": torch.cat([x["exp_avg"] for x in memory]),
            "square": torch.cat([x["exp_avg_sq"] for x in memory]),
            "steps": memory[0]["step"].detach().clone(),
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on where `state_dict` was taken, in the tensors that are there: graphs know them."""
        if state["average"].shape != self.values.shape:
            came, own = len(state["average"]), len(self.values)
            raise ValueError(f"adam: got averages of {came} numbers, expected {own}")
        if not self._adam.state[self._pieces[0]]:
            self._adam.load_state_dict(self._remembering(state))
            return
        for at, piece in zip(self._places(), self._pieces, strict=True):
            own = self._adam.state[piece]
            own["exp_avg"].copy_(state["average"][at])
            own["exp_avg_sq"].copy_(state["square"][at])
            own["step"].copy_(state["steps"])

    def _remembering(self, state: Mapping[str, Tensor]) -> dict[str, object]:
        """As torch's Adam takes it."""
        memory = {
            i: {
                "exp_avg": state["average"][at].clone(),
                "exp_avg_sq": state["square"][at].clone(),
                "step": state["steps"].clone(),
            }
            for i, at in enumerate(self._places())
        }
        groups = self._adam.state_dict()["param_groups"]
        return {"state": memory, "param_groups": groups}

    def _places(self) -> list[slice]:
        ends = list(accumulate((len(piece) for piece in self._pieces), initial=0))
        return [slice(a, b) for a, b in pairwise(ends)]


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
