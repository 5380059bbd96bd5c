"""Where each window goes in a batch: one a row, or several to a row one after another.

A layout is index arithmetic only. Padded places point at the storage's zero row.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from kalmanac.ops.late import late
from kalmanac.replay.drawing import Windows, uniform
from kalmanac.replay.episodes import Table
from kalmanac.replay.packing import first_fit_decreasing
from kalmanac.replay.storage import Storage

place_windows = late("kalmanac.ops.gpu.window_kernels", "place_windows")


class Layout(NamedTuple):
    """For each place of a batch, the storage row that it shows."""

    token: Tensor  # (B, T+1)
    step: Tensor  # (B, T): as `token`, but nothing after the last token of a window
    valid: Tensor  # (B, T) bool
    lengths: Tensor  # (B,)
    reset: Tensor | None  # (B, T+1) bool
    begins: Tensor  # (windows,) the flat place of each window's first token


def one_a_row(windows: Windows, storage: Storage, width: int) -> Layout:
    """A window a row, `width` tokens wide. Fixed shapes, no host read."""
    place = torch.arange(width, device=storage.device)
    first = (windows.first % storage.rows)[:, None] + place
    ring = first - (first >= storage.rows) * storage.rows  # cheaper than a remainder a place
    last = windows.steps[:, None]
    # masked_fill, not where: on CUDA, where would copy its scalar from the host, and no graph
    # could capture that.
    token = (windows.stream[:, None] * storage.rows + ring).masked_fill_(
        place > last, storage.nothing
    )
    follows = place[:-1] < last
    return Layout(
        token=token,
        step=token[:, :-1].masked_fill(~follows, storage.nothing),
        valid=follows & (place[:-1] >= windows.burn_in[:, None]),
        lengths=windows.steps + 1,
        reset=None,
        begins=torch.arange(len(last), device=storage.device) * width,
    )


def drawn_one_a_row(
    table: Table, storage: Storage, batch: int, context: int, *, burn_in: int,
    generator: torch.Generator,
) -> tuple[Windows, Layout]:  # fmt: skip
    """Windows by the rule `episodes`, laid out as by `one_a_row`: one kernel of the GPU backend."""
    windows, token, step, valid = place_windows(
        uniform(table, batch, 2, generator), *table, rows=storage.rows, nothing=storage.nothing,
        context=context, burn_in=burn_in, width=context + burn_in + 1,
    )  # fmt: skip
    *drawn, begins, tokens = windows.unbind()
    return Windows(*drawn), Layout(token, step, valid, tokens, None, begins)


def packed(windows: Windows, storage: Storage, width: int) -> Layout:
    """Windows packed into as few rows as first-fit-decreasing finds, unused columns trimmed.

    Shapes depend on what was drawn, so the windows are read on the host.
    """
    stream, first, steps, burn_in, _ = (x.cpu().numpy() for x in windows)
    sizes = steps + 1
    row, column, used = first_fit_decreasing(sizes, width)
    width = int(used.max())
    begins = row * width + column

    window = np.repeat(np.arange(sizes.size), sizes)  # (tokens,)
    inside = np.arange(window.size) - np.repeat(sizes.cumsum() - sizes, sizes)
    place = begins[window] + inside
    source = (stream * storage.rows)[window] + (first[window] + inside) % storage.rows

    token = np.full((used.size, width), storage.nothing)
    token.reshape(-1)[place] = source
    step = token.copy()
    step.reshape(-1)[begins + steps] = storage.nothing
    step = step[:, :-1]
    warm = np.zeros(token.shape, np.bool_)
    warm.reshape(-1)[place] = inside < burn_in[window]
    reset = np.zeros(token.shape, np.bool_)
    reset.reshape(-1)[begins] = True
    arrays = (token, step, (step != storage.nothing) & ~warm[:, :-1], used, reset, begins)
    return Layout(*(torch.from_numpy(x).to(storage.device) for x in arrays))
