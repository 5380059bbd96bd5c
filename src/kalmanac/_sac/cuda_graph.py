"""Updates on a GPU as one CUDA graph: the same code, recorded once and replayed.

At the paper's sizes an update is some two hundred small kernels, and an eager one waits for the
host to launch them. Several pieces of work that do not know of each other, such as the updates of
several seeds, become branches of one graph and run side by side. Nothing here knows what the work
does.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import Generator, Tensor

from kalmanac._ops.cuda_streams import ForkedStreams
from kalmanac._ops.graphed_call import WARM_UP, garbage_collection_paused
from kalmanac._replay.sampling import Batch
from kalmanac._sac.learner import Learner, Metrics


class Work(ABC):
    """What can be recorded: tensor operations of fixed shapes on tensors of fixed places."""

    tf32 = True  # matrix products may round their factors to 10 bits

    @abstractmethod
    def prepare(self) -> Hashable:
        """Do what the host has to do before each run, which is never recorded.

        Returns where the tensors lie that the work uses; another answer records anew.
        """

    @abstractmethod
    def generators(self) -> Sequence[Generator]:
        """Return the generators that the work draws from."""

    @abstractmethod
    def run(self) -> Metrics:
        """Do it, on the current stream, without the host reading a number."""


class UpdateWith(Work):
    """Updates of a learner with one batch, again and again: to time them, or to compare them."""

    def __init__(self, learner: Learner, batch: Batch, *, tf32: bool = True) -> None:
        self.learner, self.batch, self.tf32 = learner, batch, tf32

    def prepare(self) -> Hashable:
        """Return the same answer always."""
        return None

    def generators(self) -> Sequence[Generator]:
        """Return the learner's own."""
        return [self.learner.learning]

    def run(self) -> Metrics:
        """Make one update."""
        return self.learner.update(self.batch)


class Row(Mapping[str, Tensor]):
    """Metrics that lie side by side in one tensor, by their places."""

    def __init__(self, places: Mapping[str, int], numbers: Tensor) -> None:
        self.places, self.numbers = places, numbers

    @staticmethod
    def of(metrics: Metrics) -> "Row":
        """The same metrics as a row, if they are none."""
        if isinstance(metrics, Row):
            return metrics
        places = {name: i for i, name in enumerate(metrics)}
        return Row(places, torch.stack([*metrics.values()]))

    def __getitem__(self, name: str) -> Tensor:
        return self.numbers[self.places[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)

    def __repr__(self) -> str:
        return repr(dict(self))


# a graph, the places of metrics, and where it leaves those of all rounds and branches
RecordedGraph = tuple[torch.cuda.CUDAGraph, list[Mapping[str, int]], Tensor]


class GraphedUpdates:
    """Runs the branches together, replayed from a graph from the fourth time on.

    Rounds in one graph do not wait for all branches in between. Where recording fails, they stay
    eager, and one warning says why; without `record` they always are.
    """

    def __init__(
        self, branches: Sequence[Work], device: torch.device, *, record: bool = True
    ) -> None:
        self.branches, self.device, self.record = list(branches), device, record
        self.failed = False
        self._main = torch.cuda.Stream(device)
        self._streams = ForkedStreams(device, most=len(self.branches))
        self._warmed = 0
        self._places: list[Hashable] = []
        self._recordings: dict[int, RecordedGraph] = {}  # by their number of rounds

    def __call__(self, rounds: int = 1) -> list[Metrics]:
        """Run each branch so many times; metrics, round by round, are 0-d tensors."""
        places = [work.prepare() for work in self.branches]
        if places != self._places:
            self._places, self._recordings = places, {}
        if self.failed:
            return [run_eagerly(work) for work in self.branches * rounds]
        if self._warmed < WARM_UP or not self.record:
            self._warmed += 1
            current = torch.cuda.current_stream(self.device)
            self._main.wait_stream(current)
            with torch.cuda.stream(self._main):  # as capture wants its warm-up: where it records
                metrics = self._run_branches(rounds)
            current.wait_stream(self._main)
            return metrics
        if rounds not in self._recordings:
            stream = torch.cuda.current_stream(self.device)
            try:
                self._recordings[rounds] = self._record(rounds)
            except RuntimeError as error:
                torch.cuda.set_stream(stream)  # a failed capture leaves its own behind
                self.failed, self._recordings = True, {}
                text = f"updates stay eager, because they cannot be recorded: {error}"
                warnings.warn(text, stacklevel=2)
                return [run_eagerly(work) for work in self.branches * rounds]
        graph, branches, numbers = self._recordings[rounds]
        graph.replay()
        rows = numbers.clone().split([len(branch) for branch in branches])
        return [Row(branch, row) for branch, row in zip(branches, rows, strict=True)]

    def _run_branches(self, rounds: int) -> list[Metrics]:
        return self._streams(None, *(partial(run_eagerly, x) for x in self.branches * rounds))

    def _record(self, rounds: int) -> RecordedGraph:
        graph = torch.cuda.CUDAGraph()
        # graphs that never run at once can share their memory: what they leave is copied
        pool = next((other[0].pool() for other in self._recordings.values()), None)
        for work in self.branches:
            for generator in work.generators():
                graph.register_generator_state(generator)
        with garbage_collection_paused(), torch.cuda.graph(graph, pool, self._main):
            rows = [Row.of(metrics) for metrics in self._run_branches(rounds)]
            numbers = torch.cat([row.numbers for row in rows])
        return graph, [row.places for row in rows], numbers


def run_eagerly(work: Work) -> Metrics:
    """Run it with the matrix products that it asks for."""
    products = torch.backends.cuda.matmul
    before = products.fp32_precision
    products.fp32_precision = "tf32" if work.tf32 else "ieee"
    try:
        return work.run()
    finally:
        products.fp32_precision = before
