"""Read the places of a layout: one index operation a field, or on a GPU one for most of them."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from kalmanac.observation import Observation
from kalmanac.ops import gpu
from kalmanac.ops.late import late
from kalmanac.replay.batch import Batch
from kalmanac.replay.drawing import Windows
from kalmanac.replay.layout import Layout
from kalmanac.replay.storage import Storage

_read_windows = late("kalmanac.ops.gpu.window_kernels", "read_windows")


def gather(
    layout: Layout, windows: Windows, storage: Storage, *, true_previous_action: bool
) -> Batch:
    """The batch of a layout. Padded places read the zero row, so all pads are zero."""
    fused = storage.device.type == "cuda" and gpu.INSTALLED and layout.reset is None
    steps = (_read_fused if fused else _read)(layout, storage)
    previous = steps.previous_action
    if true_previous_action:
        led_here = storage.read_actions(_row_before(windows, storage))
        previous.view(-1, storage.sizes.action).index_copy_(0, layout.begins, led_here)
    return Batch(*steps, layout.valid, layout.lengths, layout.reset)


class Steps(NamedTuple):
    """What every batch has."""

    observation: Observation[Tensor]
    previous_action: Tensor
    action: Tensor
    reward: Tensor
    terminated: Tensor


def _read(layout: Layout, storage: Storage) -> Steps:
    action = storage.read_actions(layout.step)
    # The action before a token is the one after its left neighbour, and nothing follows the last
    # token of a window: the first token of the next one sees zero.
    return Steps(
        observation=storage.read_observation(layout.token),
        previous_action=pad(action, (0, 0, 1, 0)),
        action=action,
        reward=storage.read("reward", layout.step),
        terminated=storage.read("terminated", layout.step),
    )


def _read_fused(layout: Layout, storage: Storage) -> Steps:
    """The same, one window a row."""
    sizes = storage.sizes
    vector, *others = _read_windows(
        storage.fields, layout.token, layout.step, sizes.action, sizes.discrete
    )
    return Steps(storage.read_observation(layout.token, vector), *others)


def _row_before(windows: Windows, storage: Storage) -> Tensor:
    """The row before each window's first token; nothing where the stored episode begins there."""
    row = windows.stream * storage.rows + torch.remainder(windows.first - 1, storage.rows)
    return row.masked_fill(windows.before == 0, storage.nothing)
