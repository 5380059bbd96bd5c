"""Where each window goes in a batch: one a row, or several to a row one after another.

A layout is index arithmetic only. Padded places point at the storage's zero row.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from kalmanac.ops.windows import Places, Windows, place_windows
from kalmanac.ops.windows import one_a_row as lay_one_a_row
from kalmanac.replay.drawing import uniform
from kalmanac.replay.episodes import Table
from kalmanac.replay.packing import first_fit_decreasing
from kalmanac.replay.storage import Storage


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
    rows, nothing = storage.rows, storage.nothing
    return _layout(lay_one_a_row(windows, rows=rows, nothing=nothing, width=width))


def drawn_one_a_row(
    table: Table, storage: Storage, batch: int, context: int, *, burn_in: int,
    generator: torch.Generator,
) -> tuple[Windows, Layout]:  # fmt: skip
    """Windows by the rule `episodes`, laid out as by `one_a_row`."""
    windows, places = place_windows(
        uniform(table, batch, 2, generator), *table, rows=storage.rows, nothing=storage.nothing,
        context=context, burn_in=burn_in, width=context + burn_in + 1,
    )  # fmt: skip
    return windows, _layout(places)


def _layout(places: Places) -> Layout:
    return Layout(reset=None, **places._asdict())


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
