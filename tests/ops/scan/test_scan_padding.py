"""What must not count does not: garbage in pads and at missing readings, and in fresh memory."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from kalmanac._ops.scan.inputs import Belief
from kalmanac._ops.scan.linear import linear_scan
from tests.ops.scan import budgets
from tests.ops.scan.answers import run, run_backward, weight
from tests.ops.scan.cases import WHOLE, Case, draw, forms
from tests.ops.scan.linear_cases import draw_linear, to_device, with_gradients
from tests.ops.scan.poison import poisoned_memory
from tests.ops.scan.targets import every_target, every_target_and

# Numpy, which interprets kernels where there is no GPU, warns of garbage in lanes that are dropped.
pytestmark = pytest.mark.filterwarnings("ignore:.* encountered in .*:RuntimeWarning")

GARBAGE = pytest.mark.parametrize("garbage", [1e30, -1e30, torch.inf, -torch.inf, torch.nan])
CASES = [Case(20, WHOLE), Case(20, WHOLE, varying_q=True, state="none", seed=1)]


def pads(lengths, steps):
    return torch.arange(steps, device=lengths.device) >= lengths[:, None]  # (B, T)


def spoil(problem, garbage):
    """Garbage in every signal where padded, and in the readings where missing; flags inverted."""
    padded = pads(problem.lengths, problem.w.shape[1])
    unread = padded | ~problem.observed

    def fill(x, where):
        return x.masked_fill(where[..., None], garbage)

    return replace(
        problem,
        u=fill(problem.u, padded),
        q=fill(problem.q, padded) if problem.q.dim() == 3 else problem.q,
        w=fill(problem.w, unread),
        r=fill(problem.r, unread),
        reset=problem.reset ^ padded,
        observed=problem.observed ^ padded,
    )


def assert_same_bits(found, expected):
    for name, x in found.items():
        assert torch.equal(x, expected[name]), name


@GARBAGE
@every_target_and(CASES, torch.float64, torch.float32, torch.bfloat16)
def test_garbage_changes_no_output_and_no_gradient(target, case, dtype, garbage):
    target.require(dtype)
    clean = draw(case, dtype).to(device=target.device)
    values, gradients = run_backward(clean, target, details=True)
    found_values, found_gradients = run_backward(spoil(clean, garbage), target, details=True)
    assert_same_bits(found_values, values)
    assert_same_bits(found_gradients, gradients)


@GARBAGE
@every_target_and(CASES)
def test_garbage_in_raw_noise_changes_nothing_either(target, case, garbage):
    """The same where the noise comes before its softplus."""
    target.require(torch.float32)
    clean = draw(case, torch.float32).to(device=target.device)
    floors = {"r_floor": 1e-3, "q_floor": 1e-4}
    values, gradients = run_backward(clean, target, **floors)
    found_values, found_gradients = run_backward(spoil(clean, garbage), target, **floors)
    assert_same_bits(found_values, values)
    assert_same_bits(found_gradients, gradients)


@every_target_and(CASES)
def test_what_does_not_count_gets_a_zero_gradient(target, case):
    target.require(torch.float64)
    problem = draw(case).to(device=target.device)
    _, gradients = run_backward(spoil(problem, torch.nan), target)
    padded = pads(problem.lengths, case.steps)
    unread = padded | ~problem.observed
    for name, where in (("u", padded), ("q", padded), ("w", unread), ("r", unread)):
        if gradients[name].dim() == 3:
            assert torch.all(gradients[name][where] == 0), name


@every_target_and(CASES)
def test_padded_outputs_hold_the_last_belief(target, case):
    target.require(torch.float64)
    problem = draw(case).to(device=target.device)
    answer = run(problem, target, details=True)
    start = problem.state or problem.prior
    before = Belief(*(x.expand(case.batch, case.channels) for x in start))
    for i, n in enumerate(problem.lengths.tolist()):
        for field in ("mean", "variance"):
            last = answer[field][i, n - 1] if n else getattr(before, field)[i]
            assert budgets.error(answer[f"final_{field}"][i], last) <= 1e-14
            for name in (field, f"prior_{field}"):
                pad = answer[name][i, n:]
                assert budgets.error(pad, last.expand_as(pad)) <= 1e-14, name
        assert torch.all(answer["gain"][i, n:] == 0)


@GARBAGE
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.bfloat16], ids=str)
@every_target
def test_garbage_does_not_change_the_linear_scan(target, dtype, garbage):
    target.require(dtype)
    clean = to_device(draw_linear(20, dtype), target.device)
    padded = pads(clean["lengths"], 20)
    dirty = {
        **clean,
        "a": clean["a"].masked_fill(padded[..., None], garbage),
        "b": clean["b"].masked_fill(padded[..., None], garbage),
        "reset": clean["reset"] ^ padded,
    }
    results = []
    for arguments in (clean, dirty):
        arguments, leaves = with_gradients(arguments)
        outputs = linear_scan(**arguments, backend=target.backend)
        weights = [weight(x.shape, seed).to(x) for seed, x in enumerate(outputs)]
        gradients = torch.autograd.grad(outputs, list(leaves.values()), weights)
        results.append([*outputs, *gradients])
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


@every_target_and(forms(20, WHOLE))
def test_every_result_is_written(target, case):
    """Poisoned fresh memory changes no bit of outputs and gradients."""
    target.require(torch.float32)
    problem = draw(case, torch.float32).to(device=target.device)
    expected = run_backward(problem, target)
    with poisoned_memory():
        found = run_backward(problem, target)
    for one, other in zip(found, expected, strict=True):
        assert_same_bits(one, other)


@pytest.mark.parametrize("varying", [False, True], ids=["constant-a", "varying-a"])
@every_target
def test_every_result_of_the_linear_scan_is_written(target, varying):
    target.require(torch.float32)

    def results():
        given = to_device(draw_linear(20, torch.float32, varying=varying), target.device)
        arguments, leaves = with_gradients(given)
        outputs = linear_scan(**arguments, backend=target.backend)
        return *outputs, *torch.autograd.grad(sum(x.sum() for x in outputs), list(leaves.values()))

    expected = results()
    with poisoned_memory():
        found = results()
    assert all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))


def test_the_poison_works():
    """Otherwise the two tests above could not fail."""
    with poisoned_memory():
        assert torch.isnan(torch.empty(1000)).all()
        fresh = np.empty(100_000, np.float32)
    if sys.platform == "linux":
        assert np.all(fresh > 3e38)
