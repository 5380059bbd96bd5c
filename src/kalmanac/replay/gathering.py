"""Read the places of a layout: one index operation a field."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from kalmanac.replay.batch import Batch
from kalmanac.replay.drawing import Windows
from kalmanac.replay.layout import Layout
from kalmanac.replay.storage import Storage


def gather(
    layout: Layout, windows: Windows, storage: Storage, *, true_previous_action: bool
) -> Batch:
    """The batch of a layout. Padded places read the zero row, so all pads are zero."""
    action = storage.read_actions(layout.step)
    # The action before a token is the one after its left neighbour, and nothing follows the last
    # token of a window: the first token of the next one sees zero.
    previous = pad(action, (0, 0, 1, 0))
    if true_previous_action:
        led_here = storage.read_actions(_row_before(windows, storage))
        previous.view(-1, storage.sizes.action).index_copy_(0, layout.begins, led_here)
    sizes = storage.sizes
    return Batch(
        observation=storage.read("observation", layout.token),
        previous_action=previous,
        action=action,
        reward=storage.read("reward", layout.step),
        terminated=storage.read("terminated", layout.step),
        valid=layout.valid,
        lengths=layout.lengths,
        reset=layout.reset,
        privileged=storage.read("privileged", layout.token) if sizes.privileged else None,
        observed=storage.read("observed", layout.token) if sizes.observed else None,
        pixels=storage.read("pixels", layout.token) if sizes.images else None,
        action_mask=storage.read("action_mask", layout.token) if sizes.action_mask else None,
    )


def _row_before(windows: Windows, storage: Storage) -> Tensor:
    """The row before each window's first token; nothing where the stored episode begins there."""
    row = windows.stream * storage.rows + torch.remainder(windows.first - 1, storage.rows)
    return row.masked_fill(windows.before == 0, storage.nothing)
