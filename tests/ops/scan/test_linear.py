"""`linear_scan` on every backend against a plain numpy loop, and its gradients."""

import pytest
import torch

from kalmanac._ops.scan.linear import linear_scan
from tests.ops.scan import budgets
from tests.ops.scan.answers import weight
from tests.ops.scan.linear_cases import draw_linear, solve_linear, to_device, with_gradients
from tests.ops.scan.targets import Target, every_backend_on_every_device, every_target

WIDE = {
    torch.float32: torch.float64,
    torch.float64: torch.float64,
    torch.complex64: torch.complex128,
    torch.complex128: torch.complex128,
}
DTYPES = pytest.mark.parametrize("dtype", list(WIDE), ids=str)
VARYING = pytest.mark.parametrize("varying", [False, True], ids=["constant-a", "varying-a"])
STEPS = pytest.mark.parametrize("steps", [1, 2, 63, 64, 257])


def scan(arguments, target):
    return linear_scan(**arguments, backend=target.backend)


def scan_backward(arguments, target):
    arguments, leaves = with_gradients(arguments)
    outputs = scan(arguments, target)
    weights = [weight(x.shape, seed).to(x.device, x.dtype) for seed, x in enumerate(outputs)]
    gradients = torch.autograd.grad(outputs, list(leaves.values()), weights)
    return dict(zip(leaves, gradients, strict=True))


def widened(arguments, dtype):
    numbers = (torch.float32, torch.complex64, torch.float16, torch.bfloat16)
    return {name: x.to(dtype) if x.dtype in numbers else x for name, x in arguments.items()}


@STEPS
@VARYING
@DTYPES
@every_backend_on_every_device
def test_equals_a_plain_loop(target, dtype, varying, steps):
    target.require(dtype)
    if steps > target.limit.steps:
        pytest.skip(f"{target}: too slow for {steps} steps")
    single = dtype != WIDE[dtype]
    arguments = draw_linear(steps, dtype, varying=varying)
    truth = solve_linear(widened(arguments, WIDE[dtype]))
    states, final = scan(to_device(arguments, target.device), target)
    assert budgets.error(states, truth[0]) <= (2e-6 if single else 1e-10)
    assert budgets.error(final, truth[1]) <= (2e-6 if single else 1e-10)
    assert states.dtype == final.dtype == dtype


@VARYING
@DTYPES
@every_backend_on_every_device
def test_gradients_equal_the_references(target, dtype, varying):
    target.require(dtype)
    single = dtype != WIDE[dtype]
    arguments = draw_linear(50, dtype, varying=varying)
    truth = scan_backward(widened(arguments, WIDE[dtype]), Target("reference", "cpu"))
    found = scan_backward(to_device(arguments, target.device), target)
    errors = {name: budgets.error(g, truth[name]) for name, g in found.items()}
    budgets.check(errors, 1e-5 if single else 1e-10)


@VARYING
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@every_target
def test_half_precision_is_float32_inside(target, dtype, varying):
    target.require(dtype, torch.float32)
    arguments = to_device(draw_linear(64, dtype, varying=varying), target.device)
    states, final = scan(arguments, target)
    exact = scan(widened(arguments, torch.float32), target)
    assert (states.dtype, final.dtype) == (dtype, torch.float32)
    assert budgets.error(final, exact[1]) <= 2e-6
    ulp = torch.finfo(dtype).eps * (exact[0].abs() + torch.finfo(dtype).smallest_normal)
    allowed = target.limit.half_ulps * ulp + 2e-6 * exact[0].abs().max()
    assert torch.all((states.float() - exact[0]).abs() <= allowed)


@every_target
def test_ones_make_a_running_sum(target):
    target.require(torch.float64)
    b = torch.arange(24, dtype=torch.float64, device=target.device).reshape(2, 4, 3)
    states, final = linear_scan(torch.ones_like(b[0, 0]), b, backend=target.backend)
    assert torch.equal(states, b.cumsum(1))
    assert torch.equal(final, b.sum(1))


@every_target
def test_defaults(target):
    """Without `initial` zero, without `state` the initial state."""
    target.require(torch.float64)
    given = to_device(draw_linear(9), target.device)
    zero = torch.zeros_like(given["initial"])
    bare = {name: x for name, x in given.items() if name not in ("initial", "state")}
    for less, more in (
        (bare, {**bare, "initial": zero, "state": zero}),
        ({**bare, "initial": given["initial"]}, {**given, "state": given["initial"]}),
        ({**bare, "state": given["state"]}, {**given, "initial": zero}),
    ):
        one, other = scan(less, target), scan(more, target)
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])
