"""Signals, flags, parameters and gradients may lie in memory in any way."""

import pytest
import torch

from kalmanac._ops.scan.inputs import Belief
from kalmanac._ops.scan.kalman import kalman_scan, kalman_scan_packed
from kalmanac._ops.scan.linear import linear_scan
from tests.ops.scan import budgets
from tests.ops.scan.answers import by_name, run_backward, weight
from tests.ops.scan.cases import MILD, ORDINARY, Case, draw
from tests.ops.scan.linear_cases import draw_linear, to_device, with_gradients
from tests.ops.scan.targets import every_target

CASE = Case(11, ORDINARY, varying_q=True, channels=4)


def moved(x, first, second):
    return x.transpose(first, second).contiguous().transpose(first, second)


LAYOUTS = {
    "time-major": lambda x: moved(x, 0, 1) if x.dim() > 1 else x,
    "channels before time": lambda x: moved(x, 1, 2) if x.dim() == 3 else x,
    "every other number": lambda x: torch.stack([x, x], -1)[..., 0],
    "inside a larger tensor": lambda x: torch.cat([x, x, x])[len(x) : 2 * len(x)],
    "reversed twice": lambda x: x.flip(-1).flip(-1),
}
every_layout = pytest.mark.parametrize("layout", LAYOUTS)


def assert_close(found, expected):
    assert found.keys() == expected.keys()
    budgets.check({name: budgets.error(x, expected[name]) for name, x in found.items()}, 1e-12)


def gradients_through(change, problem, target):
    """Outputs and gradients of leaves that reach the scan through `change`."""
    problem, leaves = problem.with_gradients()
    outputs = by_name(*kalman_scan(**problem.map(change).arguments(), backend=target.backend))
    weights = [weight(x.shape, seed).to(x) for seed, x in enumerate(outputs.values())]
    found = torch.autograd.grad(list(outputs.values()), list(leaves.values()), weights)
    return outputs, dict(zip(leaves, found, strict=True))


@every_layout
@every_target
def test_layouts_of_every_argument(target, layout):
    target.require(torch.float64)
    problem = draw(CASE).to(device=target.device)
    expected = run_backward(problem, target)
    found = gradients_through(LAYOUTS[layout], problem, target)
    assert_close(found[0], expected[0])
    assert_close(found[1], expected[1])


@every_layout
@every_target
def test_layouts_of_the_linear_scan(target, layout):
    target.require(torch.float64)
    given, leaves = with_gradients(to_device(draw_linear(11, channels=4), target.device))
    results = []
    for change in (lambda x: x, LAYOUTS[layout]):
        arguments = {name: change(x) for name, x in given.items()}
        outputs = linear_scan(**arguments, backend=target.backend)
        weights = [weight(x.shape, seed).to(x) for seed, x in enumerate(outputs)]
        gradients = torch.autograd.grad(outputs, list(leaves.values()), weights)
        results.append([*outputs, *gradients])
    for one, other in zip(*results, strict=True):
        assert budgets.error(one, other) <= 1e-12


@every_target
def test_expanded_inputs(target):
    """Stride 0 along each axis: one row, one step, one channel for all."""
    target.require(torch.float64)
    full = draw(CASE).to(device=target.device)
    B, T, N = full.w.shape
    views = {
        "u": full.u[:1].expand(B, T, N),
        "q": full.q[:, :1].expand(B, T, N),
        "w": full.w[..., :1].expand(B, T, N),
        "r": full.r[:1, :1, :1].expand(B, T, N),
        "a": full.a[:1].expand(N),
        "b": full.b[:1].expand(N),
        "reset": full.reset[:1].expand(B, T),
        "observed": full.observed[:, :1].expand(B, T),
        "lengths": full.lengths[-1:].expand(B),
        "prior": Belief(*(x[:1].expand(B, N) for x in full.prior)),
        "state": Belief(*(x[:, :1].expand(B, N) for x in full.state)),
    }
    expanded = type(full)(**views)
    expected = run_backward(expanded.map(torch.Tensor.contiguous), target)
    leaves = {}
    for name, x in views.items():
        if isinstance(x, torch.Tensor) and x.is_floating_point():
            leaves[name] = views[name] = x.detach().requires_grad_()
    outputs = by_name(*kalman_scan(**views, backend=target.backend))
    assert_close({n: x.detach() for n, x in outputs.items()}, expected[0])
    weights = [weight(x.shape, seed).to(x) for seed, x in enumerate(outputs.values())]
    found = torch.autograd.grad(list(outputs.values()), list(leaves.values()), weights)
    assert_close(
        dict(zip(leaves, found, strict=True)), {name: expected[1][name] for name in leaves}
    )


@pytest.mark.parametrize("layout", ["uwr", "rwu", "wr", "uwrq", "qrwu"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@every_target
def test_parts_of_one_projection(target, dtype, layout):
    """(B, T, kN) in one piece, its parts as views, and separate signals: the same to the bit."""
    target.require(dtype)
    case = Case(11, MILD, varying_q="q" in layout, u="u" in layout, b="u" in layout, channels=4)
    problem = draw(case, dtype).to(device=target.device)
    expected, separate = run_backward(problem, target)
    parameters = {
        name: x
        for name, x in problem.arguments().items()
        if name not in layout and name not in ("u", "w", "r")
    }

    def through(scan):
        signals = torch.cat([getattr(problem, name) for name in layout], -1).requires_grad_()
        outputs = by_name(*scan(signals))
        weights = [weight(x.shape, seed).to(x) for seed, x in enumerate(outputs.values())]
        (gradient,) = torch.autograd.grad(list(outputs.values()), signals, weights)
        return outputs, gradient

    def views(signals):
        parts = dict(zip(layout, signals.chunk(len(layout), -1), strict=True))
        return kalman_scan(**{"u": None, **parts, **parameters}, backend=target.backend)

    def packed(signals):
        return kalman_scan_packed(
            signals=signals, layout=layout, **parameters, backend=target.backend
        )

    for scan in (views, packed):
        outputs, gradient = through(scan)
        assert all(torch.equal(x, expected[name]) for name, x in outputs.items())
        wanted = torch.cat([separate[name] for name in layout], -1)
        assert torch.equal(gradient, wanted)


@every_target
def test_variances_that_nobody_reads(target):
    """A GPU does not write them; all else is the same, bit for bit."""
    target.require(torch.float64)
    problem = draw(Case(17, MILD, lengths=False, resets=0, missing=0)).to(device=target.device)
    signals = torch.cat([problem.u, problem.w, problem.r], -1).requires_grad_()
    results = []
    for variances in (True, False):
        posterior, final = kalman_scan_packed(
            problem.a, signals, problem.q, variances=variances, backend=target.backend
        )
        outputs = (posterior.mean, *final)
        weights = [weight(x.shape, seed).to(x) for seed, x in enumerate(outputs)]
        results.append([*outputs, *torch.autograd.grad(outputs, signals, weights)])
    assert all(map(torch.equal, *results))
    assert posterior.variance.numel() == (0 if target.backend == "gpu" else signals.numel() // 3)


@every_target
def test_gradients_that_are_not_contiguous(target):
    """A sum hands back an expanded gradient, a transposed loss a strided one."""
    target.require(torch.float64)
    losses = {
        "expanded": lambda x: x.sum(),
        "strided": lambda x: (x.transpose(0, 1) * ramp(x.transpose(0, 1))).sum(),
        "channels first": lambda x: (x.transpose(-1, -2) * ramp(x.transpose(-1, -2))).sum(),
        "every other": lambda x: (x[..., ::2] * 3).sum(),
    }
    for name, loss in losses.items():
        problem, leaves = draw(CASE).to(device=target.device).with_gradients()
        outputs = by_name(*kalman_scan(**problem.arguments(), backend=target.backend))
        total = sum(loss(x) for x in outputs.values())
        found = torch.autograd.grad(total, list(leaves.values()), retain_graph=True)
        weights = [torch.autograd.grad(loss(y), y)[0].contiguous() for y in detached(outputs)]
        expected = torch.autograd.grad(list(outputs.values()), list(leaves.values()), weights)
        for leaf, one, other in zip(leaves, found, expected, strict=True):
            assert budgets.error(one, other) <= 1e-12, (name, leaf)


def ramp(x):
    return torch.arange(x.numel(), dtype=x.dtype, device=x.device).reshape(x.shape) / x.numel()


def detached(outputs):
    return [x.detach().requires_grad_() for x in outputs.values()]


@every_target
def test_lazy_conjugates_and_negatives(target):
    """PyTorch conjugates and negates views by a flag that a kernel must not miss."""
    target.require(torch.complex128, torch.float64)
    given = to_device(draw_linear(9, torch.complex128), target.device)
    conjugated = {n: x.conj() if x.is_complex() else x for n, x in given.items()}
    resolved = {n: x.resolve_conj() for n, x in conjugated.items()}
    one = linear_scan(**conjugated, backend=target.backend)
    other = linear_scan(**resolved, backend=target.backend)
    assert torch.equal(one[0], other[0])

    problem = draw(Case(9)).to(device=target.device)
    w = torch.complex(problem.w, -problem.w).conj().imag  # equal to w, and marked as negated
    assert w.is_neg()
    arguments = problem.arguments()
    found, _ = kalman_scan(**{**arguments, "w": w}, backend=target.backend)
    expected, _ = kalman_scan(**arguments, backend=target.backend)
    assert torch.equal(found.mean, expected.mean)
