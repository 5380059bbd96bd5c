"""Pieces of work side by side return what they return alone."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from kalmanac._ops.cuda_streams import ForkedStreams


def test_without_a_gpu_pieces_run_in_order() -> None:
    ran: list[int] = []

    def piece(number: int) -> int:
        ran.append(number)
        return 10 * number

    together = ForkedStreams(torch.device("cpu"), most=3)
    assert together(None, lambda: piece(1), lambda: piece(2), lambda: piece(3)) == [10, 20, 30]
    assert ran == [1, 2, 3]
    assert together(None, lambda: piece(4)) == [40]


def test_pieces_beyond_the_streams_follow_on_them_without_waiting_for_all(monkeypatch) -> None:
    notes: list[tuple[object, ...]] = []

    class Stream:
        made = 0

        def __init__(self, device: torch.device) -> None:
            Stream.made += 1
            self.number = Stream.made

        def wait_stream(self, other: "Stream") -> None:
            notes.append((self.number, "waits for", other.number))

    @contextmanager
    def on(stream: Stream) -> Iterator[None]:
        current.append(stream)
        yield
        current.pop()

    current = [Stream(torch.device("cpu"))]
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: current[-1])
    together = ForkedStreams(torch.device("cuda"), most=3)
    pieces = [lambda i=i: notes.append((current[-1].number, "runs", i)) for i in range(7)]
    together(None, *pieces)
    assert notes == [
        (2, "waits for", 1), (3, "waits for", 1),
        (2, "runs", 0), (3, "runs", 1), (1, "runs", 2),
        (2, "runs", 3), (3, "runs", 4), (1, "runs", 5), (2, "runs", 6),
        (1, "waits for", 2), (1, "waits for", 3),
    ]  # fmt: skip
    notes.clear()
    together(None, *pieces[:2])
    assert notes == [
        (2, "waits for", 1), (2, "runs", 0), (1, "runs", 1), (1, "waits for", 2),
    ]  # fmt: skip


def gradients_of(
    together: ForkedStreams, given: torch.Tensor, weights: list[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """Long pieces with a common input, which nobody else keeps; their results meet on one stream,
    and that stream asks for memory while the backward runs."""

    def forward() -> list[torch.Tensor]:
        x = given * 2

        def piece(weight: torch.Tensor) -> torch.Tensor:
            y = x
            for _ in range(20):
                y = torch.tanh(y @ weight / 30)
            return y

        return together(x, *((lambda w=w: piece(w)) for w in weights))

    roots = forward()
    slopes = [torch.ones_like(y) * 3 for y in roots]
    actual = torch.autograd.grad(roots, weights, slopes)
    together.hold(actual)
    scratch = [torch.full_like(given, 7.0) for _ in range(4)]
    return tuple(g + scratch[0] for g in actual)


@pytest.mark.gpu
@pytest.mark.parametrize("captured", [False, True])
def test_streams_change_no_number(captured: bool) -> None:
    device = torch.device("cuda")
    torch.manual_seed(0)
    weights = [torch.randn(512, 512, device=device).requires_grad_() for _ in range(3)]
    given = torch.randn(512, 512, device=device) / 30
    alone = ForkedStreams(torch.device("cpu"), most=3)  # one after the other, on one stream
    truth = gradients_of(alone, given, weights)
    torch.cuda.synchronize()
    beside = ForkedStreams(device, most=3)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    if captured:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            gradients_of(beside, given, weights)
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(graph, stream=stream):
            actual = gradients_of(beside, given, weights)
    for _ in range(20):
        if captured:
            graph.replay()
        else:
            actual = gradients_of(beside, given, weights)
        assert all(torch.equal(a, b) for a, b in zip(actual, truth, strict=True))


@pytest.mark.gpu
def test_more_pieces_keep_what_the_first_ones_gave() -> None:
    device = torch.device("cuda")
    together = ForkedStreams(device, most=2)
    x = torch.ones(8, device=device)
    first = together(None, lambda: x + 1, lambda: x + 2)
    second = together.more(None, lambda: first[0] + first[1], lambda: first[0] * 2)
    assert [y[0].item() for y in second] == [5, 4]
    assert all(any(y is held for held in together._kept_alive) for y in (first, second))
    third = together(None, lambda: x, lambda: x)
    assert not any(y is first for y in together._kept_alive)
    assert torch.equal(third[0], x)


@pytest.mark.gpu
def test_a_piece_that_fails_while_recording_is_named_and_leaves_nothing_open() -> None:
    device = torch.device("cuda")
    together = ForkedStreams(device, most=2)
    x = torch.ones(8, device=device)

    def fails() -> None:
        raise RuntimeError("the piece itself")

    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="the piece itself"), torch.cuda.graph(graph):
        together(None, lambda: x + 1, fails)
    assert torch.equal(together(None, lambda: x + 1, lambda: x + 2)[1], x + 2)
