"""When work is recorded, replayed and left eager: what needs no GPU to be seen.

In the place of CUDA's graphs stand ones that note what is done with them.
"""

from contextlib import contextmanager

import pytest
import torch

from kalmanac._ops.graphed_call import WARM_UP, GraphedCall
from kalmanac._sac.cuda_graph import GraphedUpdates, Work

CPU = torch.device("cpu")


class Counting(Work):
    """Counts its runs, and knows how it was called."""

    def __init__(self, place=0):
        self.place, self.runs, self.prepared = place, 0, 0
        self.generator = torch.Generator()

    def prepare(self):
        self.prepared += 1
        return self.place

    def generators(self):
        return [self.generator]

    def run(self):
        self.runs += 1
        return {"loss": torch.tensor(float(self.runs)), "place": torch.tensor(float(self.place))}


class Graphs:
    """All graphs that were made; `error` is raised by the next recordings."""

    def __init__(self):
        self.made, self.error, self.streams = [], None, ["the caller's"]

    def new(self):
        graph = Graph()
        self.made.append(graph)
        return graph

    @contextmanager
    def recording(self, graph, pool=None, stream=None):
        graph.own = pool or graph
        self.streams.append(stream)
        if self.error:
            raise self.error
        yield
        self.streams.pop()

    @property
    def replays(self):
        return [graph.replays for graph in self.made]


class Graph:
    def __init__(self):
        self.replays, self.generators = 0, []

    def pool(self):
        return self.own

    def register_generator_state(self, generator):
        self.generators.append(generator)

    def replay(self):
        self.replays += 1


class Stream:
    device = CPU

    def __init__(self, device=None):
        pass

    def wait_stream(self, other):
        pass


@pytest.fixture
def graphs(monkeypatch):
    graphs = Graphs()
    stream = Stream()

    @contextmanager
    def on(stream):
        yield

    replaced = {
        "Stream": Stream, "CUDAGraph": graphs.new, "graph": graphs.recording, "stream": on,
        "current_stream": lambda device: stream,
        "set_stream": lambda stream: graphs.streams.pop(),
    }  # fmt: skip
    for name, fake in replaced.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    return graphs


def test_updates_are_recorded_after_their_warm_up_and_replayed_from_then_on(graphs):
    works = [Counting(), Counting()]
    together = GraphedUpdates(works, CPU)
    for number in range(1, WARM_UP + 1):
        assert [metrics["loss"] for metrics in together()] == [number, number]
    assert graphs.made == []
    first, again = together(), together()
    assert [work.runs for work in works] == [WARM_UP + 1] * 2, "once more, to be recorded"
    assert [work.prepared for work in works] == [WARM_UP + 2] * 2, "before every replay, too"
    assert graphs.replays == [2]
    assert graphs.made[0].generators == [work.generator for work in works]
    assert [list(metrics) for metrics in first] == [["loss", "place"]] * 2
    first[0]["loss"].zero_()
    assert again[0]["loss"] == together()[0]["loss"] == WARM_UP + 1, "results are copies"


def test_each_branch_has_its_own_numbers_and_one_copy_holds_them_all(graphs):
    together = GraphedUpdates([Counting(5), Counting(6), Counting(7)], CPU)
    for _ in range(WARM_UP + 1):
        metrics = together()
    assert [branch["place"] for branch in metrics] == [5, 6, 7]
    assert [branch["loss"] for branch in metrics] == [WARM_UP + 1] * 3
    places = {x.untyped_storage().data_ptr() for branch in metrics for x in branch.values()}
    assert len(places) == 1


def test_rounds_are_recorded_as_one_graph_beside_that_of_a_single_one(graphs):
    together = GraphedUpdates([Counting(5), Counting(6)], CPU)
    expected = 0
    for _ in range(WARM_UP + 1):
        metrics = together(3)
        numbers = [(int(x["place"]), int(x["loss"]) - expected) for x in metrics]
        assert numbers == [(5, 1), (6, 1), (5, 2), (6, 2), (5, 3), (6, 3)]
        expected += 3
    assert [int(x["loss"]) for x in together()] == [expected + 1] * 2
    assert len(together(3)) == 6
    assert graphs.replays == [2, 1]
    assert {graph.pool() for graph in graphs.made} == {graphs.made[0]}, "one memory for both"


def test_other_places_are_recorded_anew(graphs):
    work = Counting()
    together = GraphedUpdates([work], CPU)
    for _ in range(WARM_UP + 2):
        together()
    work.place = 1
    assert together()[0]["place"] == 1
    together()
    assert graphs.replays == [2, 2]


def test_who_does_not_want_a_graph_has_none(graphs):
    work = Counting()
    together = GraphedUpdates([work], CPU, record=False)
    for _ in range(WARM_UP + 3):
        together()
    assert work.runs == WARM_UP + 3
    assert graphs.made == []


def test_what_cannot_be_recorded_stays_eager_and_says_so_once(graphs):
    graphs.error = RuntimeError("no room")
    work = Counting()
    together = GraphedUpdates([work], CPU)
    call = GraphedCall(lambda inputs: [x + 1 for x in inputs], [], CPU)
    for _ in range(WARM_UP):
        together()
        call([torch.zeros(2)])
    with pytest.warns(UserWarning, match="updates stay eager, because .*: no room"):
        assert together()[0]["loss"] == WARM_UP + 1
    with pytest.warns(UserWarning, match="acting stays eager, because .*: no room"):
        assert torch.equal(call([torch.zeros(2)])[0], torch.ones(2))
    graphs.error = None
    assert together()[0]["loss"] == WARM_UP + 2  # a second warning would be an error here
    assert torch.equal(call([torch.ones(2)])[0], 2 * torch.ones(2))
    assert together.failed
    assert call.failed
    assert graphs.replays == [0, 0]
    assert graphs.streams == ["the caller's"]


def test_a_recorded_call_reads_its_inputs_from_where_they_were_recorded(graphs):
    seen = []

    def function(inputs):
        seen.append(inputs[0])
        return [inputs[0] * 2]

    call = GraphedCall(function, [torch.Generator()], CPU)
    for _ in range(WARM_UP):
        call([torch.ones(2)])
    inputs = torch.full((2,), 3.0)
    result = call([inputs])[0]
    assert torch.equal(result, 2 * inputs)
    call([torch.full((2,), 5.0)])
    assert len(seen) == WARM_UP + 1
    assert torch.equal(seen[-1], torch.full((2,), 5.0)), "the graph reads the new input"
    assert torch.equal(inputs, torch.full((2,), 3.0)), "and nobody's tensor is changed"
    result.zero_()
    assert torch.equal(call([inputs])[0], torch.full((2,), 6.0)), "results are copies"
    assert graphs.replays == [3]
