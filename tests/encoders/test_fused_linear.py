"""The linear layer that a GPU computes in few launches is nn.Linear."""

import pytest
import torch
from torch import nn

from kalmanac.encoders.fused_linear import FusedAffine, FusedLinear, forward

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]  # cpu: Triton's interpreter


def layers(inputs: int, outputs: int, device: str) -> tuple[FusedLinear, nn.Linear]:
    """Both layers with the same weights, in float64 where Triton is interpreted."""
    torch.manual_seed(0)
    dtype = torch.float64 if device == "cpu" else torch.float32
    layer, plain = (kind(inputs, outputs, dtype=dtype) for kind in (FusedLinear, nn.Linear))
    plain.load_state_dict(layer.state_dict())
    return layer.to(device), plain.to(device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sizes", [(1, 1), (4, 16), (16, 100), (130, 5)], ids=str)
@pytest.mark.parametrize("shape", [(7,), (3, 50), (0, 4)], ids=str)
def test_values_and_gradients_are_those_of_a_linear_layer(
    shape: tuple[int, ...], sizes: tuple[int, int], device: str
) -> None:
    """On a GPU the factors of products are rounded to eleven bits."""
    layer, plain = layers(*sizes, device)
    near = 1e-12 if device == "cpu" else 2e-3
    x = torch.randn(*shape, sizes[0], dtype=layer.weight.dtype, device=device)
    slope = torch.randn(*shape, sizes[1], dtype=layer.weight.dtype, device=device)
    found = []
    for run in (lambda x: FusedAffine.apply(x, layer.weight, layer.bias), plain):
        seen = x.clone().requires_grad_()
        own = plain if run is plain else layer
        y = run(seen)
        found.append((y, *torch.autograd.grad(y, [seen, own.weight, own.bias], slope)))
    for one, other in zip(*found, strict=True):
        assert (one - other).norm() <= near * other.norm()
        assert one.is_contiguous()
    near = 1e-12 if device == "cpu" else 1e-5
    exact = forward(x, layer.weight, layer.bias, exact=True)
    assert (exact - plain(x)).norm() <= near * plain(x).norm()


@pytest.mark.parametrize("device", DEVICES)
def test_rows_that_are_no_neighbours(device: str) -> None:
    layer, plain = layers(6, 3, device)
    wide = torch.randn(6, 20, dtype=layer.weight.dtype, device=device)
    for x in (wide.mT, wide.mT[::2], wide.mT[:1].expand(20, 6)):
        found = forward(x, layer.weight, layer.bias, exact=True)
        torch.testing.assert_close(found, plain(x))


@pytest.mark.gpu
def test_only_what_learns_gets_a_gradient() -> None:
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        layer, _ = layers(4, 3, "cuda")
        layer.weight.requires_grad_(False)
        layer(torch.randn(5, 4, device="cuda")).sum().backward()
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    assert layer.weight.grad is None
    assert torch.equal(layer.bias.grad, torch.full((3,), 5.0, device="cuda"))
