"""Read the places of a layout."""

import torch
from torch import Tensor

from kalmanac.ops.windows import Windows, read_windows
from kalmanac.replay.batch import Batch
from kalmanac.replay.layout import Layout
from kalmanac.replay.storage import Storage


def gather(
    layout: Layout, windows: Windows, storage: Storage, *, true_previous_action: bool
) -> Batch:
    """The batch of a layout. Padded places read the zero row, so all pads are zero."""
    codes = storage.codes if storage.sizes.discrete else None
    steps = read_windows(
        storage.fields, layout.token, layout.step, codes, several_a_row=layout.reset is not None
    )
    previous = steps.previous_action
    if true_previous_action:
        led_here = storage.read_actions(_row_before(windows, storage))
        previous.view(-1, storage.sizes.action).index_copy_(0, layout.begins, led_here)
    observation = storage.read_observation(layout.token, steps.observation)
    return Batch(observation, *steps[1:], layout.valid, layout.lengths, layout.reset)


def _row_before(windows: Windows, storage: Storage) -> Tensor:
    """The row before each window's first token; nothing where the stored episode begins there."""
    row = windows.stream * storage.rows + torch.remainder(windows.first - 1, storage.rows)
    return row.masked_fill(windows.before == 0, storage.nothing)
