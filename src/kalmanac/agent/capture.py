"""The learner's update as one CUDA graph: the same code, recorded once and replayed.

At the paper's sizes an update is some hundred small kernels, and an eager one waits for the host
to launch them. Nothing here knows what an update does.
"""

import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from kalmanac.agent.learner import Learner, Metrics
from kalmanac.replay import Batch

WARM_UP = 3  # eager updates before recording: libraries choose their kernels in the first ones


class Recording(NamedTuple):
    """A graph, the batch it reads, and the metrics it leaves."""

    graph: torch.cuda.CUDAGraph
    batch: Batch
    names: list[str]
    numbers: Tensor  # in the order of the names


class CapturedUpdate:
    """`learner.update` on CUDA, replayed from a graph from the fourth batch of one shape on.

    Batches must keep their shapes; another shape records anew. Where recording fails, updates stay
    eager, and one warning says why.
    """

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.failed = False
        self._stream = torch.cuda.Stream(learner.device)
        self._seen = 0
        self._shapes: list[torch.Size | None] = []
        self._recording: Recording | None = None

    def __call__(self, batch: Batch) -> Metrics:
        """One update; metrics are 0-d tensors, as of `Learner.update`."""
        shapes = [None if x is None else x.shape for x in batch]
        if shapes != self._shapes:
            self._shapes, self._seen, self._recording = shapes, 0, None
        if self.failed:
            return self.learner.update(batch)
        if self._seen < WARM_UP:
            self._seen += 1
            return self._beside(batch)
        if self._recording is None:
            stream = torch.cuda.current_stream(self.learner.device)
            try:
                self._recording = self._record(batch)
            except RuntimeError as error:
                torch.cuda.set_stream(stream)  # a failed capture leaves its own behind
                self.failed = True
                text = f"updates stay eager, because they cannot be recorded: {error}"
                warnings.warn(text, stacklevel=2)
                return self.learner.update(batch)
        graph, held, names, numbers = self._recording
        for to, x in zip(held, batch, strict=True):
            if to is not None and x is not None:
                to.copy_(x)
        graph.replay()
        return dict(zip(names, numbers.clone().unbind(), strict=True))

    def _beside(self, batch: Batch) -> Metrics:
        """An eager update on the stream that will record, as capture wants its warm-up."""
        self._stream.wait_stream(torch.cuda.current_stream(self.learner.device))
        with torch.cuda.stream(self._stream):
            metrics = self.learner.update(batch)
        torch.cuda.current_stream(self.learner.device).wait_stream(self._stream)
        return metrics

    def _record(self, batch: Batch) -> Recording:
        held = Batch._make(None if x is None else x.clone() for x in batch)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.learner.learning)
        with torch.cuda.graph(graph, stream=self._stream):
            metrics = self.learner.update(held)
            numbers = torch.stack(list(metrics.values()))
        return Recording(graph, held, list(metrics), numbers)
