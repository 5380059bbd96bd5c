"""Seeded random problems for `linear_scan`, and their solution by a plain numpy loop."""

import numpy as np
import torch
from torch import Tensor

Arguments = dict[str, Tensor]


def draw_linear(
    steps: int,
    dtype: torch.dtype = torch.float64,
    *,
    varying: bool = True,
    batch: int = 5,
    channels: int = 3,
    flags: bool = True,
    seed: int = 0,
) -> Arguments:
    """Arguments of `linear_scan`: |a| < 1, ragged lengths, resets, a state and an initial state."""
    random = torch.Generator().manual_seed(1000 * seed + steps)
    wide = torch.promote_types(dtype, torch.float64)
    shape = batch, steps, channels

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=random, dtype=wide)

    a = normal(*shape) if varying else normal(channels)
    magnitude = 1 - 10 ** (-3 * torch.rand(a.shape, generator=random, dtype=torch.float64))
    arguments = {
        "a": a / a.abs() * magnitude,
        "b": normal(*shape),
        "initial": normal(channels),
        "state": normal(batch, channels),
    }
    arguments = {name: x.to(dtype) for name, x in arguments.items()}
    if flags:
        lengths = torch.randint(0, steps + 1, (batch,), generator=random)
        lengths[:3] = torch.tensor([steps, 0, 1])[:batch]
        reset = torch.rand((batch, steps), generator=random) < 3 / steps
        reset[::2, :1] = True
        arguments |= {"lengths": lengths, "reset": reset}
    return arguments


def solve_linear(arguments: Arguments) -> tuple[Tensor, Tensor]:
    """x_t = a_t x_{t-1} + b_t, row by row, each cut to its length; pads repeat the last state."""
    a, b, initial, state = (arguments[name].numpy() for name in ("a", "b", "initial", "state"))
    batch, steps, _ = b.shape
    lengths = arguments.get("lengths", torch.full((batch,), steps)).numpy()
    reset = arguments.get("reset", torch.zeros(batch, steps, dtype=torch.bool)).numpy()
    states, final = np.zeros_like(b), np.zeros_like(state)
    for i in range(batch):
        x = state[i]
        for t in range(steps):
            if t < lengths[i]:
                x = (a if a.ndim == 1 else a[i, t]) * (initial if reset[i, t] else x) + b[i, t]
            states[i, t] = x
        final[i] = x
    return torch.from_numpy(states), torch.from_numpy(final)


def to_device(arguments: Arguments, device: str) -> Arguments:
    return {name: x.to(device) for name, x in arguments.items()}


def with_gradients(arguments: Arguments) -> tuple[Arguments, Arguments]:
    """A copy whose numbers are leaves that want gradients, and these leaves by name."""
    numbers = {
        name: x.detach().clone().requires_grad_()
        for name, x in arguments.items()
        if x.is_floating_point() or x.is_complex()
    }
    return {**arguments, **numbers}, numbers
