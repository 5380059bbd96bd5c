"""Pieces of work that do not know of each other, at once on a GPU."""

from collections.abc import Callable
from itertools import cycle
from typing import Any

import torch


class ForkedStreams:
    """Runs pieces of work one after the other, on a GPU each on a stream of its own, of which there
    are `most`: a piece beyond them follows on the first one's, the next on the second's, and so on.

    Autograd runs the backward of an operation on the stream of its forward, so that the backwards
    of the pieces run side by side too. Memory belongs to the stream that asked for it: what is
    freed is handed out again there, while another stream may still be reading it. So what the
    pieces read (`shared`), what they return and what else crosses streams (`hold`) is held until
    the next call, which waits for all before it. A backward has to be launched before that call.
    Pieces that build on those of a call are run by `more`, which holds on.
    """

    def __init__(self, device: torch.device, most: int) -> None:
        self._device, self._most = device, most
        self._side_streams: list[torch.cuda.Stream] = []
        self._kept_alive: list[Any] = []

    def __call__(self, shared: Any, *pieces: Callable[[], Any]) -> list[Any]:
        """Run the pieces and return their results."""
        self.forget()
        return self.more(shared, *pieces)

    def more(self, shared: Any, *pieces: Callable[[], Any]) -> list[Any]:
        """Run the pieces and return their results; what is held stays."""
        if self._device.type != "cuda" or self._most == 1:
            return [piece() for piece in pieces]
        if not self._side_streams:  # now: there are 32 streams in all, and not every learner learns
            self._side_streams = [torch.cuda.Stream(self._device) for _ in range(self._most - 1)]
        main, sides = torch.cuda.current_stream(self._device), self._side_streams[: len(pieces) - 1]
        results: list[Any] = []
        self.hold(shared, results)
        try:
            for side in sides:
                side.wait_stream(main)
            # the last one stays where the work came from
            for piece, stream in zip(pieces, cycle([*sides, main]), strict=False):
                with torch.cuda.stream(stream):
                    results.append(piece())
        finally:  # a recording that has failed must be joined too, else it tells of that instead
            for side in sides:
                main.wait_stream(side)
        return results

    def hold(self, *things: Any) -> None:
        """Keep things until the next call."""
        if self._side_streams:
            self._kept_alive += things

    def forget(self) -> None:
        """Let go of all that is held."""
        self._kept_alive = []
