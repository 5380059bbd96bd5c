"""Between host and device without waiting: one copy, behind all that the device has to do before.

A copy from ordinary memory makes the host wait until the device has done all that, such as a round
of updates; one from pinned memory only takes its turn.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

ALIGNMENT = 16  # bytes: every dtype can be read where a value begins


def sent(values: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Return the values on the device, in order; the host does not wait for those that it sends.

    They are copied at once, and may change afterwards, unless the device is the host itself.
    """
    if is_host(device) or not values:
        return [x.to(device) for x in values]
    going = [x for x in values if is_host(x.device)]
    arriving = iter(unpacked(packed(going, device).to(device, non_blocking=True), going))
    return [next(arriving) if is_host(x.device) else x.to(device) for x in values]


def is_host(device: torch.device) -> bool:
    """Return whether tensors on the device are the host's own memory: nothing is to be sent."""
    return device.type == "cpu"


class Returning:
    """A tensor on its way to the host: a GPU may still be at work, and `array` waits for it."""

    def __init__(self, x: Tensor) -> None:
        self._ready: torch.cuda.Event | None = None
        if x.is_cuda:
            pinned = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
            pinned.copy_(x, non_blocking=True)
            self._ready = torch.cuda.Event()
            self._ready.record(torch.cuda.current_stream(x.device))
            x = pinned
        self._on_host = x

    def array(self) -> NDArray[Any]:
        """Return what has arrived."""
        if self._ready is not None:
            self._ready.synchronize()
        return self._on_host.numpy()


def packed(values: Sequence[Tensor], device: torch.device) -> Tensor:
    """Return the bytes of tensors of the host, one after another, ready to go to the device."""
    starts, size = _starts(values)
    flat = torch.empty(size, dtype=torch.uint8, pin_memory=device.type == "cuda")
    place = flat.numpy().data
    for x, start in zip(values, starts, strict=True):
        place[start : start + x.nbytes] = x.numpy().tobytes()
    return flat


def unpacked(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Return views of what lies side by side, in the shapes and dtypes of `like`."""
    views, starts = {dtype: flat.view(dtype) for dtype in {x.dtype for x in like}}, _starts(like)[0]
    return [
        views[x.dtype].as_strided(x.shape, x.contiguous().stride(), start // x.itemsize)
        for x, start in zip(like, starts, strict=True)
    ]


def _starts(values: Sequence[Tensor]) -> tuple[list[int], int]:
    """Return where each value begins, in bytes, and where the last one ends."""
    rounded = (-(-x.nbytes // ALIGNMENT) * ALIGNMENT for x in values)
    *starts, end = accumulate(rounded, initial=0)
    return starts, end
