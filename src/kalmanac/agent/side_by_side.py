"""Pieces of work that do not know of each other, at once on a GPU."""

from collections.abc import Callable
from typing import Any

import torch


class SideBySide:
    """Runs pieces of work one after the other, on a GPU each on a stream of its own.

    Autograd runs the backward of an operation on the stream of its forward, so that the backwards
    of the pieces run side by side too. Memory belongs to the stream that asked for it: what is
    freed is handed out again there, and other streams may still be reading it. So what the pieces
    read (`shared`) and what they return is held until the next call, which waits for all before it.
    """

    def __init__(self, device: torch.device, most: int) -> None:
        self._device = device
        on_gpu = device.type == "cuda"
        # the last piece stays where the work came from
        self._sides = [torch.cuda.Stream(device) for _ in range(most - 1)] if on_gpu else []
        self._held: Any = None

    def __call__(self, shared: Any, *pieces: Callable[[], Any]) -> list[Any]:
        """What the pieces return."""
        if not self._sides:
            return [piece() for piece in pieces]
        self._held = None
        *others, last = pieces
        main = torch.cuda.current_stream(self._device)
        sides, found = self._sides[: len(others)], []
        for piece, side in zip(others, sides, strict=True):
            side.wait_stream(main)
            with torch.cuda.stream(side):
                found.append(piece())
        found.append(last())
        for side in sides:
            main.wait_stream(side)
        self._held = (shared, found)
        return found
