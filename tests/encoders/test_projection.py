"""The linear layer of the Kalman layers is nn.Linear, whatever way it is computed."""

import pytest
import torch
from torch import nn

from kalmanac.encoders.projection import Projection


def twins(dtype: torch.dtype = torch.float64) -> tuple[Projection, nn.Linear]:
    """Both layers with the same weights."""
    torch.manual_seed(0)
    layer, plain = Projection(5, 12, dtype=dtype), nn.Linear(5, 12, dtype=dtype)
    plain.load_state_dict(layer.state_dict())
    return layer, plain


@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 4), (0, 4), (3, 0)])
def test_values_and_gradients_are_those_of_a_linear_layer(shape: tuple[int, ...]) -> None:
    layer, plain = twins()
    x = torch.randn(*shape, 5, dtype=torch.float64)
    slope = torch.randn(*shape, 12, dtype=torch.float64)
    found = []
    for module in (layer, plain):
        seen = x.clone().requires_grad_()
        y = module(seen)
        found.append((y, *torch.autograd.grad(y, [seen, module.weight, module.bias], slope)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_an_input_without_gradient() -> None:
    layer, plain = twins()
    x = torch.randn(3, 4, 5, dtype=torch.float64)
    for module in (layer, plain):
        module(x).square().sum().backward()
    torch.testing.assert_close(layer.weight.grad, plain.weight.grad)
    torch.testing.assert_close(layer.bias.grad, plain.bias.grad)


def test_it_begins_like_a_linear_layer() -> None:
    torch.manual_seed(3)
    layer = Projection(5, 12)
    torch.manual_seed(3)
    plain = nn.Linear(5, 12)
    assert torch.equal(layer.weight, plain.weight)
    assert torch.equal(layer.bias, plain.bias)


def test_autocast_decides_the_dtype() -> None:
    layer, _ = twins(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(torch.randn(3, 5)).dtype == torch.bfloat16
