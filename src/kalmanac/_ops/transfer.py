"""Between host and device without waiting: one copy, behind all that the device has to do before.

A copy from ordinary memory makes the host wait until the device has done all that, such as a round
of updates; one from pinned memory only takes its turn.
"""

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

ALIGNMENT = 16  # bytes: every dtype can be read where a value begins


def sent(values: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Return the values on the device, in order; the host does not wait for those that it sends.

    They are copied at once, and may change afterwards, unless the device is the host itself.
    """
    if device.type == "cpu":
        return [x.to(device) for x in values]
    there = [x.device.type != "cpu" for x in values]
    going = [x for x, is_there in zip(values, there, strict=True) if not is_there]
    arriving = iter(unpacked(arrived(packed(going, device), device), going))
    return [
        x.to(device) if is_there else next(arriving)
        for x, is_there in zip(values, there, strict=True)
    ]


def is_host(device: torch.device) -> bool:
    """Return whether tensors on the device are the host's own memory: nothing is to be sent."""
    return device.type == "cpu"


class Returning:
    """Tensors on their way to the host: a GPU may still be at work, and `arrays` waits for it.

    `joined` has them side by side, where somebody has seen to that.
    """

    def __init__(self, values: Sequence[Tensor], joined: Tensor | None = None) -> None:
        self._values, self._flat = list(values), joined
        self._ready: torch.cuda.Event | None = None
        if values[0].is_cuda:
            flat = side_by_side(values) if joined is None else joined
            self._flat = torch.empty(flat.shape, dtype=flat.dtype, pin_memory=True)
            self._flat.copy_(flat, non_blocking=True)
            self._ready = torch.cuda.Event()
            self._ready.record(torch.cuda.current_stream(flat.device))

    def arrays(self) -> list[NDArray[Any]]:
        """Return what has arrived."""
        if self._ready is not None:
            self._ready.synchronize()
        values = self._values if self._flat is None else unpacked(self._flat, self._values)
        return [x.numpy() for x in values]


def packed(values: Sequence[Tensor], device: torch.device) -> Tensor:
    """Return the bytes of tensors of the host, one after another, ready to go to the device."""
    starts, size = _starts(values)
    flat = torch.empty(size, dtype=torch.uint8, pin_memory=device.type == "cuda")
    place = flat.numpy().data
    for x, start in zip(values, starts, strict=True):
        place[start : start + x.nbytes] = x.numpy().tobytes()
    return flat


def arrived(flat: Tensor, device: torch.device) -> Tensor:
    """Return what is packed on the device; nobody waits for it."""
    return flat.to(device, non_blocking=True)


def side_by_side(values: Sequence[Tensor]) -> Tensor:
    """Return tensors of one device as `packed` lays them out, on that device; none is empty."""
    each = [x.contiguous().view(-1).view(torch.uint8) for x in values]
    return torch.cat([functional.pad(x, (0, -len(x) % ALIGNMENT)) for x in each])


def unpacked(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Return views of what lies side by side, in the shapes and dtypes of `like`."""
    starts, _ = _starts(like)
    return [
        flat[start : start + x.nbytes].view(x.dtype).view(x.shape)
        for x, start in zip(like, starts, strict=True)
    ]


def _starts(values: Sequence[Tensor]) -> tuple[list[int], int]:
    """Return where each value begins, in bytes, and where the last one ends."""
    starts, end = [], 0
    for x in values:
        starts.append(end)
        end += -(-x.nbytes // ALIGNMENT) * ALIGNMENT
    return starts, end
