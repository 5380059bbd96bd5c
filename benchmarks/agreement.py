"""No answer, no time: every contender's values and gradients against the float64 reference.

The contender runs at the full size. Rows and channels are independent, so where the size is too
large for the reference, the loss reaches only some rows and channels and these are compared, over
all steps. Sequences of more than `LONG` steps take `parallel` for the reference: it computes in
float64 too, and the tests hold it to the reference within 1e-10.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from contenders import Task
from kalmanac._ops.scan.inputs import Belief
from kalmanac._ops.scan.kalman import kalman_scan
from kalmanac._ops.scan.linear import linear_scan
from kalmanac._ops.selftest import BUDGETS, relative_error
from problem import R_FLOOR, Inputs

WHOLE = 300_000  # elements up to which the reference runs everything
ROWS, CHANNELS = 4, 16  # otherwise so many, spread from the first to the last
SEGMENT = 64  # steps of the reference between which the belief is carried on
LONG = 20_000  # steps from which on a loop takes minutes


class Lanes(NamedTuple):
    """The rows and channels that are compared."""

    rows: Tensor
    channels: Tensor

    def of(self, x: Tensor) -> Tensor:
        """The lanes' part of a tensor in float64 on the CPU; x is (N,) or (B, T, N)."""
        rows, channels = (i.to(x.device) for i in self)
        part = x[channels] if x.dim() == 1 else x[rows][..., channels]
        return part.to("cpu", torch.float64)


class Disagreement(NamedTuple):
    """The worst of a contender's errors, relative to its budget."""

    what: str
    error: float
    budget: float

    def __str__(self) -> str:
        return f"{self.what} is off by {self.error:.1e}, allowed {self.budget:.0e}"


def choose_lanes(inputs: Inputs) -> tuple[Lanes, Inputs]:
    """What to compare, and the same inputs with a loss that reaches only that."""
    size = inputs.size
    if size.elements <= WHOLE:
        return Lanes(torch.arange(size.B), torch.arange(size.N)), inputs
    rows = torch.linspace(0, size.B - 1, min(ROWS, size.B)).long()
    channels = torch.linspace(0, size.N - 1, min(CHANNELS, size.N)).long()
    reached = torch.zeros(size.B, 1, size.N, dtype=torch.bool)
    reached[rows[:, None], 0, channels] = True
    cotangent = torch.where(reached.to(inputs.cotangent.device), inputs.cotangent, 0)
    return Lanes(rows, channels), replace(inputs, cotangent=cotangent)


def truth(inputs: Inputs, lanes: Lanes, task: Task) -> dict[str, Tensor]:
    """The float64 reference on the lanes alone, on the CPU, with PyTorch's own gradients."""
    fields = {
        name: lanes.of(getattr(inputs, name).detach()).requires_grad_()
        for name in ("a", "b", "q", "u", "w", "r", "rho")
    }
    a, b, q, u, w, r, rho = fields.values()
    cotangent = lanes.of(inputs.cotangent)
    if task == "linear":
        states = _linear_in_segments(a, u)
        found = torch.autograd.grad(states, (a, u), cotangent)
        return dict(zip(("states", "da", "du"), (states.detach(), *found), strict=True))
    noise, floor = (rho, R_FLOOR) if task == "softplus" else (r, None)
    posterior = _kalman_in_segments(a, b, q, u, w, noise, floor)
    found = torch.autograd.grad(posterior.mean, (a, b, q, u, w, noise), cotangent)
    names = ("mean", "variance", "da", "db", "dq", "du", "dw", "dr")
    outputs = (x.detach() for x in posterior)
    return dict(zip(names, (*outputs, *found), strict=True))


def _kalman_in_segments(
    a: Tensor, b: Tensor, q: Tensor, u: Tensor, w: Tensor, r: Tensor, floor: float | None
) -> Belief:
    """One filter, a segment at a time: the gradient of indexing T steps one by one costs T²."""
    if u.shape[1] > LONG:
        return kalman_scan(a, u, q, w, r, b=b, r_floor=floor, backend="parallel")[0]
    state, parts = None, []
    for segment in zip(*(x.split(SEGMENT, 1) for x in (u, w, r)), strict=True):
        part, state = kalman_scan(
            a, segment[0], q, *segment[1:], b=b, state=state, r_floor=floor, backend="reference"
        )
        parts.append(part)
    return Belief(*(torch.cat(field, 1) for field in zip(*parts, strict=True)))


def _linear_in_segments(a: Tensor, u: Tensor) -> Tensor:
    if u.shape[1] > LONG:
        return linear_scan(a, u, backend="parallel")[0]
    state, parts = None, []
    for segment in u.split(SEGMENT, 1):
        part, state = linear_scan(a, segment, state=state, backend="reference")
        parts.append(part)
    return torch.cat(parts, 1)


def disagreement(
    came: dict[str, Tensor], right: dict[str, Tensor], lanes: Lanes
) -> tuple[Disagreement, bool]:
    """The worst answer, and whether it is within its budget (a NaN is not)."""
    budget = BUDGETS[torch.float32]
    worst = Disagreement("nothing", 0.0, budget.values)
    for name, expected in right.items():
        limit = budget.gradients if name.startswith("d") else budget.values
        error = relative_error(lanes.of(came[name]), expected)
        if error != error:
            return Disagreement(name, error, limit), False
        if error / limit > worst.error / worst.budget:
            worst = Disagreement(name, error, limit)
    return worst, worst.error <= worst.budget
