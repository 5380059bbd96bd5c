"""Every form of perceptrons equals plain operations, values and gradients."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch

from kalmanac._ops.mlp import cpu_mlp, fits_kernels, fused_mlp, mlp, plain_mlp
from kalmanac._ops.mlp_kernels import fit

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]  # cpu: Triton's interpreter


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("widths", [(5, 16, 3), (5, 64, 1), (5, 32, 128, 3), (5, 16, 16, 17)])
@pytest.mark.parametrize(
    ("count", "steps", "transposed"), [(2, 60, False), (1, 60, True), (1, 1, False)]
)
def test_values_and_gradients(
    widths: tuple[int, ...], count: int, steps: int, transposed: bool, device: str
) -> None:
    random = torch.Generator().manual_seed(0)
    dtype = torch.float64 if device == "cpu" else torch.float32
    near = {"rtol": 1e-9, "atol": 1e-9} if device == "cpu" else {"rtol": 2e-5, "atol": 2e-5}

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=random, dtype=torch.float64).to(device, dtype)

    z, o = draw(3, steps, 2).requires_grad_(), draw(3, steps, 3)
    scales = [n**-0.5 for n in widths]
    weights = [
        (draw(count, m, n).mT if transposed else draw(count, n, m)).mul(s).requires_grad_()
        for (n, m), s in zip(pairwise(widths), scales, strict=False)
    ]
    biases = [draw(count, 1, m).requires_grad_() for m in widths[1:]]
    found = fused_mlp([z, o], weights, biases, exact=True)
    truth = plain_mlp([z, o], weights, biases)
    torch.testing.assert_close(found, truth, **near)
    g = draw(*truth.shape)
    learned = [z, *weights, *biases]
    slopes = torch.autograd.grad(found, learned, g)
    for x, y in zip(slopes, torch.autograd.grad(truth, learned, g), strict=True):
        assert (x - y).norm() <= near["rtol"] * y.norm()
    for x in slopes[1 : len(weights) + 1]:
        assert (x.mT if transposed else x).is_contiguous()
    with torch.no_grad():
        torch.testing.assert_close(fused_mlp([z, o], weights, biases, exact=True), truth, **near)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("widths", [(7, 32, 1), (7, 32, 16, 1)])
def test_frozen_layers_pass_slopes_to_the_parts_that_want_them(
    widths: tuple[int, ...], device: str
) -> None:
    random = torch.Generator().manual_seed(0)
    dtype = torch.float64 if device == "cpu" else torch.float32

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=random, dtype=torch.float64).to(device, dtype)

    z, o, a = draw(40, 2), draw(40, 3), draw(40, 2).requires_grad_()
    weights = [draw(2, n, m) for n, m in pairwise(widths)]
    biases = [draw(2, 1, m) for m in widths[1:]]
    found = fused_mlp([z, o, a], weights, biases, exact=True)
    truth = plain_mlp([z, o, a], weights, biases)
    x, y = (torch.autograd.grad(each.sum(), [a])[0] for each in (found, truth))
    assert (x - y).norm() <= (1e-9 if device == "cpu" else 2e-5) * y.norm()


def test_a_part_without_rows_gives_gradients_of_zero() -> None:
    z = torch.zeros(0, 4, 2, requires_grad=True)
    weights = [torch.ones(1, 2, 16, requires_grad=True), torch.ones(1, 16, 3, requires_grad=True)]
    biases = [torch.zeros(1, 1, 16, requires_grad=True), torch.zeros(1, 1, 3, requires_grad=True)]
    found = fused_mlp([z], weights, biases)
    assert found.shape == (1, 0, 4, 3)
    found.sum().backward()
    for x in (*weights, *biases):
        assert x.grad is not None
        assert not x.grad.any()


@pytest.mark.gpu
@pytest.mark.parametrize("widths", [(17, 256, 3), (24, 256, 256, 5)])
def test_rounded_products_stay_near(widths: tuple[int, ...]) -> None:
    """Eleven bits of each factor; a ReLU here and there falls on its other side."""
    random = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=random).cuda()

    x = draw(64, 257, widths[0]).requires_grad_()
    weights = [(draw(2, n, m) * n**-0.5).requires_grad_() for n, m in pairwise(widths)]
    biases = [draw(2, 1, m).requires_grad_() for m in widths[1:]]
    learned = [x, *weights, *biases]
    found = fused_mlp([x], weights, biases)
    truth = plain_mlp([x], weights, biases)
    g = draw(*truth.shape)
    assert (found - truth).norm() <= 2e-3 * truth.norm()
    for a, b in zip(
        torch.autograd.grad(found, learned, g), torch.autograd.grad(truth, learned, g), strict=True
    ):
        assert (a - b).norm() <= 0.05 * b.norm()


@pytest.mark.parametrize(
    ("widths", "shared", "fits"),
    [
        ((17, 256, 3), 232_448, True),  # Best Arm's critic on an H200
        ((17, 256, 3), 65_536, False),
        ((24, 256, 256, 5), 232_448, True),
        ((24, 256, 256, 5), 65_536, False),
        ((24, 200, 5), 232_448, False),  # no power of two
        ((24, 5), 232_448, False),
        ((24, 64, 64, 64, 5), 232_448, False),
        ((24, 64, 9), 232_448, False),
    ],
    ids=str,
)
def test_layers_that_do_not_fit_go_elsewhere(
    widths: tuple[int, ...], shared: int, fits: bool
) -> None:
    weights = [torch.zeros(2, n, m) for n, m in pairwise(widths)]
    assert fit(widths[0], weights, shared) is fits
    assert not fits_kernels([torch.zeros(3, widths[0])], weights)  # no GPU


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("widths", [(5, 3), (5, 8, 3), (5, 8, 6, 1), (5, 160, 160, 2)])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("steps", [7, 64])
@pytest.mark.parametrize("form", [plain_mlp, cpu_mlp, mlp])
def test_forms_of_pytorch_equal_plain_operations(
    form: Callable[..., torch.Tensor], widths: tuple[int, ...], count: int, steps: int, device: str
) -> None:
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

    found, truth = form([z, o], weights, biases), plain()
    torch.testing.assert_close(found, truth)
    g = draw(*truth.shape)
    learned = [z, *weights, *biases]
    for x, y in zip(
        torch.autograd.grad(found, learned, g), torch.autograd.grad(truth, learned, g), strict=True
    ):
        torch.testing.assert_close(x, y)
    with torch.no_grad():
        torch.testing.assert_close(form([z, o], weights, biases), truth)
    frozen = [x.detach() for x in weights]
    still = form([z, o], frozen, [x.detach() for x in biases])
    (alone,) = torch.autograd.grad(still, [z], g)
    torch.testing.assert_close(alone, torch.autograd.grad(plain(), [z], g)[0])


@pytest.mark.parametrize("form", [plain_mlp, cpu_mlp])
def test_a_part_without_rows_gives_gradients_of_zero_in_pytorch(
    form: Callable[..., torch.Tensor],
) -> None:
    z = torch.zeros(0, 4, 2, requires_grad=True)
    weight, bias = torch.ones(1, 2, 3, requires_grad=True), torch.zeros(1, 1, 3, requires_grad=True)
    found = form([z], [weight], [bias])
    assert found.shape == (1, 0, 4, 3)
    found.sum().backward()
    assert weight.grad is not None
    assert not weight.grad.any()


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_trace_takes_other_numbers_of_rows() -> None:
    draw = torch.Generator().manual_seed(0)
    weights = [torch.randn(1, n, m, generator=draw) for n, m in ((5, 16), (16, 3))]
    biases = [torch.randn(1, 1, m, generator=draw) for m in (16, 3)]
    first, other = (torch.randn(n, 5, generator=draw) for n in (2, 7))
    traced = torch.jit.trace(lambda x: mlp([x], weights, biases), first)
    torch.testing.assert_close(traced(other), cpu_mlp([other], weights, biases))
