"""A function on a GPU as one CUDA graph: the same operations, recorded once and replayed.

A replay costs the host as much as a few launches, however many operations were recorded. Nothing
here knows what the function does.
"""

import gc
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Generator, Tensor

WARM_UP = 3  # eager runs before recording: libraries choose their kernels in the first ones


def can_record(device: torch.device) -> bool:
    """Whether work on the device can become a graph."""
    return device.type == "cuda"


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Pause Python's garbage collector: an old graph that it frees would spoil a recording."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class GraphedCall:
    """A function from tensors to tensors, replayed from a graph from the fourth call on.

    Inputs must keep their shapes, and the function must not change the tensors that it is given.
    Inputs may lie in pinned memory of the host. Results are new tensors; with `carried`, the last
    ones stand where the inputs after the first stood, and the next call changes them: given again,
    they are not copied. Where recording fails, calls stay eager, and one warning says why and
    `what` the function does.
    """

    def __init__(
        self, function: Callable[[list[Tensor]], list[Tensor]], generators: Sequence[Generator],
        device: torch.device, *, carried: bool = False, what: str = "acting",
    ) -> None:  # fmt: skip
        self.function, self.generators, self.carried = function, list(generators), carried
        self.what = what
        self.failed = False
        self._stream = torch.cuda.Stream(device)
        self._warmed = 0
        self._recording: tuple[torch.cuda.CUDAGraph, list[Tensor], list[Tensor]] | None = None

    def __call__(self, inputs: list[Tensor]) -> list[Tensor]:
        """Return the function's results."""
        if self.failed or self._warmed < WARM_UP:
            self._warmed += 1
            return self.function(inputs)
        if self._recording is None:
            current = torch.cuda.current_stream(self._stream.device)
            try:
                self._recording = self._record(inputs)
            except RuntimeError as error:
                torch.cuda.set_stream(current)
                self.failed = True
                results = self.function(inputs)  # before the warning, which may be an error
                text = f"{self.what} stays eager, because it cannot be recorded: {error}"
                warnings.warn(text, stacklevel=2)
                return results
        graph, placeholders, outputs = self._recording
        for place, x in zip(placeholders, inputs, strict=True):
            if x is not place:
                place.copy_(x, non_blocking=True)
        graph.replay()
        carried = placeholders[1:] if self.carried else []
        return [x.clone() for x in outputs[: len(outputs) - len(carried)]] + carried

    def _record(
        self, inputs: list[Tensor]
    ) -> tuple[torch.cuda.CUDAGraph, list[Tensor], list[Tensor]]:
        placeholders = [x.to(self._stream.device, copy=True) for x in inputs]
        graph = torch.cuda.CUDAGraph()
        for generator in self.generators:
            graph.register_generator_state(generator)
        with garbage_collection_paused(), torch.cuda.graph(graph, stream=self._stream):
            outputs = self.function(placeholders)
            if self.carried:
                # what is another input, such as the one of the step before, is gone by then
                given = {x.untyped_storage().data_ptr() for x in placeholders}
                after = [
                    x.clone() if x.untyped_storage().data_ptr() in given else x
                    for x in outputs[1 - len(inputs) :]
                ]
                torch._foreach_copy_(placeholders[1:], after)
        return graph, placeholders, outputs
