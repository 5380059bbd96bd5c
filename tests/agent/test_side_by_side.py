"""Pieces of work side by side return what they return alone."""

import pytest
import torch

from kalmanac.agent.side_by_side import SideBySide


def test_without_a_gpu_pieces_run_in_order() -> None:
    ran: list[int] = []

    def piece(number: int) -> int:
        ran.append(number)
        return 10 * number

    together = SideBySide(torch.device("cpu"), most=3)
    assert together(None, lambda: piece(1), lambda: piece(2), lambda: piece(3)) == [10, 20, 30]
    assert ran == [1, 2, 3]
    assert together(None, lambda: piece(4)) == [40]


@pytest.mark.gpu
@pytest.mark.parametrize("captured", [False, True])
def test_streams_change_no_number(captured: bool) -> None:
    """Long pieces that share an input and whose results meet, forward and backward, many times."""
    device = torch.device("cuda")
    torch.manual_seed(0)
    weights = [torch.randn(512, 512, device=device).requires_grad_() for _ in range(3)]
    given = torch.randn(512, 512, device=device) / 30

    def work(together: SideBySide) -> list[torch.Tensor]:
        x = given * 2  # freed by the stream it was made on, while others may read it

        def piece(weight: torch.Tensor) -> torch.Tensor:
            y = x
            for _ in range(20):
                y = torch.tanh(y @ weight / 30)
            return y

        found = together(x, *((lambda w=w: piece(w)) for w in weights))
        return list(torch.autograd.grad(sum(y.square().sum() for y in found), weights))

    alone, beside = SideBySide(device, most=1), SideBySide(device, most=3)
    truth = work(alone)
    if captured:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            work(beside)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            found = work(beside)
        for _ in range(20):
            graph.replay()
            assert all(torch.equal(a, b) for a, b in zip(found, truth, strict=True))
    else:
        for _ in range(20):
            found = work(beside)
            assert all(torch.equal(a, b) for a, b in zip(found, truth, strict=True))
