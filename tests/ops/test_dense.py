"""A linear layer is nn.Linear, whatever way it is computed."""

import pytest
import torch
from torch import nn

from kalmanac._encoders.layers import Linear, Projection
from kalmanac._ops import dense_kernels
from kalmanac._ops.dense import FusedDense, add_product, dense, fused_dense, room_for

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]  # cpu: Triton's interpreter


def layers(inputs: int, outputs: int, device: str) -> tuple[Linear, nn.Linear]:
    """Both layers with the same weights, in float64 where Triton is interpreted."""
    torch.manual_seed(0)
    dtype = torch.float64 if device == "cpu" else torch.float32
    layer, plain = (kind(inputs, outputs, dtype=dtype) for kind in (Linear, nn.Linear))
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
    for run in (lambda x: FusedDense.apply(x, layer.weight, layer.bias), plain):
        seen = x.clone().requires_grad_()
        own = plain if run is plain else layer
        y = run(seen)
        found.append((y, *torch.autograd.grad(y, [seen, own.weight, own.bias], slope)))
    for one, other in zip(*found, strict=True):
        assert (one - other).norm() <= near * other.norm()
        assert one.is_contiguous()
    near = 1e-12 if device == "cpu" else 1e-5
    exact = fused_dense(x, layer.weight, layer.bias, exact=True)
    assert (exact - plain(x)).norm() <= near * plain(x).norm()


@pytest.mark.parametrize("device", DEVICES)
def test_rows_that_are_no_neighbours(device: str) -> None:
    layer, plain = layers(6, 3, device)
    wide = torch.randn(6, 20, dtype=layer.weight.dtype, device=device)
    for x in (wide.mT, wide.mT[::2], wide.mT[:1].expand(20, 6)):
        found = fused_dense(x, layer.weight, layer.bias, exact=True)
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


def test_layers_that_do_not_learn_cost_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, plain = layers(4, 3, "cpu")
    x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    monkeypatch.setattr(dense_kernels, "gradients", None)
    y = FusedDense.apply(x, layer.weight.detach(), layer.bias.detach())
    (found,), (truth,) = (torch.autograd.grad(z.sum(), [x]) for z in (y, plain(x)))
    torch.testing.assert_close(found, truth)


def twins(dtype: torch.dtype = torch.float64) -> tuple[Projection, nn.Linear]:
    """Both layers with the same weights."""
    torch.manual_seed(0)
    layer, plain = Projection(5, 12, dtype=dtype), nn.Linear(5, 12, dtype=dtype)
    plain.load_state_dict(layer.state_dict())
    return layer, plain


@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 4), (0, 4), (3, 0)])
def test_a_bias_as_a_weight_changes_nothing(shape: tuple[int, ...]) -> None:
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


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("rows", [0, 1, 2, 7, 12])
def test_sums_of_products_over_rows(rows: int, threads: int) -> None:
    random = torch.Generator().manual_seed(rows)
    pairs = [
        (torch.randn(n, 4, generator=random).double(), torch.randn(n, 3, generator=random).double())
        for n in (rows, 5)
    ]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        room = room_for(*pairs[0])
    finally:
        torch.set_num_threads(before)
    assert room.shape == (threads, 4, 3)
    for x, y in pairs:
        add_product(room, x, y)
    torch.testing.assert_close(room.sum(0), sum(x.mT @ y for x, y in pairs))


def test_strided_rows_are_read_in_place() -> None:
    x, y = torch.randn(3, 6).double().mT, torch.randn(6, 8).double()[:, 2:5]
    room = room_for(x, y)
    add_product(room, x, y)
    torch.testing.assert_close(room.sum(0), x.mT @ y)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_trace_has_plain_operations_and_can_be_saved(tmp_path) -> None:
    weight, bias, x = torch.randn(4, 3), torch.randn(4), torch.randn(2, 3)
    traced = torch.jit.trace(lambda x: dense(x, weight, bias, bias_as_weight=True), x)
    torch.jit.save(traced, str(tmp_path / "traced.pt"))
    torch.testing.assert_close(traced(x[:1]), x[:1] @ weight.mT + bias)
