"""Gradients of both scans for every tensor input, on every backend."""

from dataclasses import replace
from functools import cache

import pytest
import torch

from kalmanac._ops.scan.inputs import Belief
from kalmanac._ops.scan.kalman import kalman_scan
from kalmanac._ops.scan.linear import linear_scan
from tests.ops.scan import budgets
from tests.ops.scan.answers import REFERENCE, run, run_backward, true_gradients
from tests.ops.scan.cases import (
    LONG_MEMORY,
    MILD,
    NOISES,
    ORDINARY,
    Case,
    draw,
    forms,
    grid,
    long_memory,
)
from tests.ops.scan.exact_gradients import exact_gradients
from tests.ops.scan.targets import every_target, every_target_and


@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: noise.name)
@pytest.mark.parametrize("form", range(4))
def test_the_reference_equals_differences_of_the_textbook_filter(form, noise):
    """Where the gain is next to 0 or 1, a careless formula loses all digits of its gradient."""
    case = forms(3, noise, batch=4, channels=1)[form]
    problem = draw(case)
    found, exact = run_backward(problem, REFERENCE)[1], exact_gradients(problem)
    assert found.keys() == exact.keys()
    budgets.check({name: budgets.error(g, exact[name]) for name, g in found.items()}, 1e-10)


@every_target_and(grid(), torch.float64, torch.float32, without="reference-cpu-float64", always=2)
def test_equal_the_references_float64_gradients(target, case, dtype):
    target.require(dtype)
    truth = true_gradients(case, dtype)
    _, found = run_backward(draw(case, dtype).to(device=target.device), target)
    assert found.keys() == truth.keys()
    errors = {name: budgets.error(g, truth[name]) for name, g in found.items()}
    budgets.check(errors, budgets.gradients(dtype, case.noise))


@pytest.mark.parametrize("inputs", ["random", pytest.param("constant", marks=pytest.mark.slow)])
@every_target
def test_of_a_long_memory(target, inputs):
    target.require(torch.float32)
    if target.limit.steps < LONG_MEMORY.steps:
        pytest.skip(f"{target}: too slow for {LONG_MEMORY.steps} steps")
    _, found = run_backward(long_memory(inputs).to(device=target.device), target)
    budgets.assert_same(found, long_memory_gradients(inputs), 1e-5)


@cache
def long_memory_gradients(inputs):
    return run_backward(long_memory(inputs).to(torch.float64), REFERENCE)[1]


@every_target_and(forms(20, ORDINARY))
def test_of_details(target, case):
    """Priors and gains are differentiable too."""
    target.require(torch.float64)
    truth = run_backward(draw(case), REFERENCE, details=True)[1]
    found = run_backward(draw(case).to(device=target.device), target, details=True)[1]
    budgets.check({name: budgets.error(g, truth[name]) for name, g in found.items()}, 1e-10)


@every_target_and(forms(4, MILD, batch=4, channels=1))
def test_kalman_gradcheck(target, case):
    target.require(torch.float64)
    problem, leaves = draw(case).to(device=target.device).with_gradients()

    def scan(*values):
        changed = dict(zip(leaves, values, strict=True))
        for name in ("prior", "state"):
            if f"{name}.mean" in changed:
                pair = changed.pop(f"{name}.mean"), changed.pop(f"{name}.variance")
                changed[name] = Belief(*pair)
        return tuple(run(replace(problem, **changed), target, details=True).values())

    assert torch.autograd.gradcheck(scan, tuple(leaves.values()), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize("varying", [False, True], ids=["constant-a", "varying-a"])
@every_target
def test_linear_gradcheck(target, varying, dtype):
    target.require(dtype)
    B, T, N = 4, 4, 1
    random = torch.Generator().manual_seed(0)

    def normal(*size):
        x = torch.randn(size, generator=random, dtype=dtype).to(target.device)
        return x.requires_grad_()

    lengths = torch.tensor([4, 0, 1, 3], device=target.device)
    reset = torch.zeros(B, T, dtype=torch.bool, device=target.device)
    reset[0, 2] = reset[3, 0] = reset[3, 2] = True
    inputs = normal(B, T, N) if varying else normal(N), normal(B, T, N), normal(B, N), normal(N)

    def scan(a, b, state, initial):
        return linear_scan(
            a, b, initial, state=state, lengths=lengths, reset=reset, backend=target.backend
        )

    assert torch.autograd.gradcheck(scan, inputs)


# Triton's interpreter also computes masked lanes, in which any bits may lie.
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@every_target
def test_half_precision_signals_with_float32_parameters(target, dtype):
    """Gradients of parameters keep float32's digits; those of signals are rounded once."""
    target.require(dtype, torch.float32)
    noise = replace(ORDINARY, q=(1e-1, 1e1), r=(1e-1, 1e1))
    case = Case(30, noise, varying_q=True)
    half = draw(case, dtype).to(device=target.device)
    fine = half.to(torch.float32, target.device)
    mixed = replace(half, a=fine.a, b=fine.b, prior=fine.prior, state=fine.state)
    _, found = run_backward(mixed, target)
    _, exact = run_backward(fine, target)
    for name, gradient in found.items():
        signal = gradient.dim() == 3
        assert gradient.dtype == (dtype if signal else torch.float32)
        allowed = target.limit.half_ulps * torch.finfo(dtype).eps + 1e-5 if signal else 1e-5
        assert budgets.error(gradient, exact[name]) <= allowed, name


@every_target
def test_an_output_that_nobody_uses_costs_nothing(target):
    """A loss on one output gives what zero weights on the others would give."""
    target.require(torch.float64)
    for used in ("mean", "variance", "final_mean", "final_variance"):
        problem, leaves = draw(Case(12, varying_q=True)).to(device=target.device).with_gradients()
        outputs = run(problem, target)
        alone = torch.autograd.grad(
            outputs[used].sum(), list(leaves.values()), allow_unused=True, materialize_grads=True,
            retain_graph=True,
        )  # fmt: skip
        weights = [torch.full_like(x, float(name == used)) for name, x in outputs.items()]
        together = torch.autograd.grad(
            list(outputs.values()), list(leaves.values()), weights, allow_unused=True,
            materialize_grads=True,
        )  # fmt: skip
        for name, one, other in zip(leaves, alone, together, strict=True):
            assert budgets.error(one, other) <= 1e-12, (used, name)


@every_target
def test_only_the_inputs_that_ask_get_gradients(target):
    target.require(torch.float64)
    problem = draw(Case(12)).to(device=target.device)
    outputs = kalman_scan(**problem.arguments(), backend=target.backend)
    assert not any(x.requires_grad for belief in outputs for x in belief)
    a = problem.a.clone().requires_grad_()
    posterior, _ = kalman_scan(**replace(problem, a=a).arguments(), backend=target.backend)
    (alone,) = torch.autograd.grad(posterior.mean.sum(), a)
    full, leaves = problem.with_gradients()
    posterior, _ = kalman_scan(**full.arguments(), backend=target.backend)
    (among_all,) = torch.autograd.grad(posterior.mean.sum(), leaves["a"])
    assert budgets.error(alone, among_all) <= 1e-12
