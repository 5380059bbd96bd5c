"""Perceptrons in a GPU's form equal plain ones, values and gradients."""

from itertools import pairwise

import pytest
import torch

from kalmanac.agent import wide_layers

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("widths", [(5, 3), (5, 8, 3), (5, 8, 6, 1), (5, 160, 160, 2)])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("steps", [7, 64])
def test_values_and_gradients(widths: tuple[int, ...], count: int, steps: int, device: str) -> None:
    random = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=random, dtype=torch.float64).to(device)

    z, o = draw(3, steps, 2).requires_grad_(), draw(3, steps, 3)
    weights = [draw(count, n, m).requires_grad_() for n, m in pairwise(widths)]
    biases = [draw(count, 1, m).requires_grad_() for m in widths[1:]]

    def plain() -> torch.Tensor:
        y = torch.cat([z, o], -1).expand(count, 3, steps, 5)
        for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            y = torch.einsum("kbtn,knm->kbtm", y, weight) + bias[:, None]
            y = y.relu() if i < len(weights) - 1 else y
        return y

    found, truth = wide_layers.run([z, o], weights, biases), plain()
    torch.testing.assert_close(found, truth)
    g = draw(*truth.shape)
    learnt = [z, *weights, *biases]
    for x, y in zip(
        torch.autograd.grad(found, learnt, g), torch.autograd.grad(truth, learnt, g), strict=True
    ):
        torch.testing.assert_close(x, y)
        assert x.is_contiguous()
    with torch.no_grad():
        torch.testing.assert_close(wide_layers.run([z, o], weights, biases), truth)
    frozen = [x.detach() for x in weights]
    still = wide_layers.run([z, o], frozen, [x.detach() for x in biases])
    (alone,) = torch.autograd.grad(still, [z], g)
    torch.testing.assert_close(alone, torch.autograd.grad(plain(), [z], g)[0])


def test_a_part_without_rows_gives_gradients_of_zero() -> None:
    z = torch.zeros(0, 4, 2, requires_grad=True)
    weight, bias = torch.ones(1, 2, 3, requires_grad=True), torch.zeros(1, 1, 3, requires_grad=True)
    found = wide_layers.run([z], [weight], [bias])
    assert found.shape == (1, 0, 4, 3)
    found.sum().backward()
    assert weight.grad is not None
    assert not weight.grad.any()
