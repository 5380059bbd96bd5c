"""Every form of perceptrons equals plain operations, values and gradients."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
import torch

from kalmanac._ops.dispatch import Precision
from kalmanac._ops.mlp import cpu_mlp, fits_kernels, fused_mlp, mlp, wide_mlp
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
    found = fused_mlp([z, o], weights, biases, precision="ieee")
    truth = wide_mlp([z, o], weights, biases)
    torch.testing.assert_close(found, truth, **near)
    g = draw(*truth.shape)
    learned = [z, *weights, *biases]
    slopes = torch.autograd.grad(found, learned, g)
    for x, y in zip(slopes, torch.autograd.grad(truth, learned, g), strict=True):
        assert (x - y).norm() <= near["rtol"] * y.norm()
    for x in slopes[1 : len(weights) + 1]:
        assert (x.mT if transposed else x).is_contiguous()
    with torch.no_grad():
        torch.testing.assert_close(
            fused_mlp([z, o], weights, biases, precision="ieee"), truth, **near
        )


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
    found = fused_mlp([z, o, a], weights, biases, precision="ieee")
    truth = wide_mlp([z, o, a], weights, biases)
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


def bfloat16(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().to(x.dtype)


def by_hand(
    x: torch.Tensor, weights: Sequence[torch.Tensor], biases: Sequence[torch.Tensor],
    given: torch.Tensor, r: Callable[[torch.Tensor], torch.Tensor],
) -> list[torch.Tensor]:  # fmt: skip
    """Outputs and gradients of x, weights, biases, where each factor of a product goes through r.

    With one hidden layer, the outputs and the slopes into it are no products.
    """
    few = len(weights) == 2
    hidden = [r(x).expand(len(weights[0]), *x.shape)]
    for w, b in zip(weights[:-1], biases[:-1], strict=True):
        h = torch.relu(r(hidden[-1]) @ r(w) + b)
        hidden.append(h if few else r(h))
    w = weights[-1] if few else r(weights[-1])
    y = hidden[-1] @ w + biases[-1]
    slope = given if few else r(given)
    g_weights, g_biases = [r(hidden[-1]).mT @ r(given)], [given.sum(1, keepdim=True)]
    for below, h in zip(reversed(hidden[:-1]), reversed(hidden[1:]), strict=True):
        slope = r(torch.where(h > 0, slope @ w.mT, 0.0))
        g_weights.insert(0, below.mT @ slope)
        g_biases.insert(0, slope.sum(1, keepdim=True))
        w = r(weights[-len(g_weights)])
    return [y, (slope @ w.mT).sum(0), *g_weights, *g_biases]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("widths", [(5, 16, 3), (5, 32, 128, 3), (5, 16, 16, 17)])
@pytest.mark.parametrize(("count", "transposed"), [(2, False), (1, True)])
def test_bfloat16_rounds_the_factors_of_products_and_nothing_else(
    widths: tuple[int, ...], count: int, transposed: bool, device: str
) -> None:
    """Nearly: what lies between two bfloat16 may go to the other one after a sum in another order.
    That is one number of thousands, each 2⁻⁸ off at most, where unrounded factors are all off."""
    random = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=random).to(device)

    x = draw(70, widths[0]).requires_grad_()
    weights = [
        ((draw(count, m, n).mT if transposed else draw(count, n, m)) * n**-0.5).requires_grad_()
        for n, m in pairwise(widths)
    ]
    biases = [draw(count, 1, m).requires_grad_() for m in widths[1:]]
    y = fused_mlp([x], weights, biases, precision="bfloat16")
    given = draw(*y.shape)
    found = [y, *torch.autograd.grad(y, [x, *weights, *biases], given)]
    assert {part.dtype for part in found} == {torch.float32}
    with torch.no_grad():
        again = fused_mlp([x], weights, biases, precision="bfloat16")
        torch.testing.assert_close(again, y, rtol=0, atol=0)
        exactly = [x.double(), [w.double() for w in weights], [b.double() for b in biases]]
        rounded = by_hand(*exactly, given.double(), bfloat16)
        truth = by_hand(*exactly, given.double(), lambda x: x)
    for a, near, far in zip(found[:-1], rounded[:-1], truth[:-1], strict=True):
        assert (a - near).norm() <= 1e-4 * near.norm()
        assert 3e-4 * far.norm() <= (a - far).norm() <= 0.2 * far.norm()
    # those of the last biases are sums alone
    assert (found[-1] - truth[-1]).norm() <= 1e-6 * truth[-1].norm()


@pytest.mark.parametrize("device", DEVICES)
def test_factors_are_the_nearest_bfloat16_and_ties_go_to_even(device: str) -> None:
    few = [1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-9, 3 - 2**-7, 1 / 3, 0.0, torch.nan]
    x = torch.tensor([[number] + [0.0] * 15 for number in few], device=device)
    weights, biases = [torch.eye(16, device=device)[None]] * 3, [x.new_zeros(1, 1, 16)] * 3
    found = fused_mlp([x], weights, biases, precision="bfloat16")[0]
    torch.testing.assert_close(found[:-1], x[:-1].bfloat16().float(), rtol=0, atol=0)
    assert found[-1].isnan().all()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("precision", "near", "slopes_near"), [("tf32", 2e-3, 0.05), ("bfloat16", 0.01, 0.1)]
)
@pytest.mark.parametrize("widths", [(17, 256, 3), (24, 256, 256, 5)])
def test_rounded_products_stay_near(
    widths: tuple[int, ...], precision: Precision, near: float, slopes_near: float
) -> None:
    """Eleven or eight bits of each factor; a ReLU here and there falls on its other side."""
    random = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=random).cuda()

    x = draw(64, 257, widths[0]).requires_grad_()
    weights = [(draw(2, n, m) * n**-0.5).requires_grad_() for n, m in pairwise(widths)]
    biases = [draw(2, 1, m).requires_grad_() for m in widths[1:]]
    learned = [x, *weights, *biases]
    found = fused_mlp([x], weights, biases, precision=precision)
    truth = wide_mlp([x], weights, biases)
    g = draw(*truth.shape)
    assert (found - truth).norm() <= near * truth.norm()
    for a, b in zip(
        torch.autograd.grad(found, learned, g), torch.autograd.grad(truth, learned, g), strict=True
    ):
        assert (a - b).norm() <= slopes_near * b.norm()


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
@pytest.mark.parametrize("form", [wide_mlp, cpu_mlp, mlp])
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
        assert x.is_contiguous() or form is not wide_mlp
    with torch.no_grad():
        torch.testing.assert_close(form([z, o], weights, biases), truth)
    frozen = [x.detach() for x in weights]
    still = form([z, o], frozen, [x.detach() for x in biases])
    (alone,) = torch.autograd.grad(still, [z], g)
    torch.testing.assert_close(alone, torch.autograd.grad(plain(), [z], g)[0])


@pytest.mark.parametrize("form", [wide_mlp, cpu_mlp])
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
