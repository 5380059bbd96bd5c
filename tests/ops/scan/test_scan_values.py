"""`kalman_scan` on every backend against the textbook filter."""

from dataclasses import replace
from functools import cache

import pytest
import torch

from kalmanac._ops.scan.kalman import kalman_scan
from tests.ops.scan import budgets, textbook
from tests.ops.scan.answers import run, textbook_answer
from tests.ops.scan.cases import LONG_MEMORY, ORDINARY, WHOLE, Case, draw, grid, long_memory
from tests.ops.scan.targets import every_target, every_target_and


@every_target_and(grid(), torch.float64, torch.float32, always=2, quick_steps=64)
def test_equals_the_textbook_filter(target, case, dtype):
    target.require(dtype)
    truth = textbook_answer(case, dtype)
    answer = run(draw(case, dtype).to(device=target.device), target, details=True)
    errors = {name: budgets.error(x, truth[name]) for name, x in answer.items()}
    budgets.check(errors, budgets.values(dtype, case.noise))
    assert {x.dtype for x in answer.values()} == {dtype}


@every_target_and(
    [
        Case(40, ORDINARY, resets=40),  # at every step
        Case(40, ORDINARY, resets=20, missing=0.9, varying_q=True),
        Case(40, WHOLE, missing=1.0),  # nothing is ever read
        Case(33, ORDINARY, batch=1, channels=1, lengths=False),
        Case(33, WHOLE, batch=3, channels=67),  # wider than any block of channels, and odd
        Case(17, ORDINARY, batch=9, channels=1, varying_q=True),
    ]
)
def test_unusual_shapes_and_flags(target, case):
    target.require(torch.float64)
    truth = textbook_answer(case, torch.float64)
    answer = run(draw(case).to(device=target.device), target, details=True)
    budgets.check({name: budgets.error(x, truth[name]) for name, x in answer.items()}, 1e-10)


@pytest.mark.parametrize("inputs", ["random", "constant"])
@every_target
def test_a_long_memory_does_not_collect_rounding(target, inputs):
    target.require(torch.float32)
    if target.limit.steps < LONG_MEMORY.steps:
        pytest.skip(f"{target}: too slow for {LONG_MEMORY.steps} steps")
    truth = long_memory_answer(inputs)
    for name, x in run(long_memory(inputs).to(device=target.device), target).items():
        for row in range(LONG_MEMORY.batch):
            exact = torch.from_numpy(getattr(truth, name)[row])
            assert budgets.error(x[row], exact) <= 2e-6, (name, row)


@cache
def long_memory_answer(inputs):
    return textbook.filter_batch(**long_memory(inputs).to(torch.float64).numpy())


@every_target
def test_details_do_not_change_the_answer(target):
    target.require(torch.float64)
    problem = draw(Case(20, varying_q=True)).to(device=target.device)
    plain, detailed = run(problem, target), run(problem, target, details=True)
    assert all(torch.equal(x, detailed[name]) for name, x in plain.items())
    assert len(detailed) == len(plain) + 3


@every_target_and(
    [Case(64, ORDINARY), Case(64, ORDINARY, varying_q=True, prior="none", state="none", b=False)],
    torch.bfloat16,
    torch.float16,
)
def test_half_precision_is_float32_inside(target, case, dtype):
    """Signals in half precision: as if float32 had been filtered and every step rounded once."""
    target.require(dtype, torch.float32)
    if dtype == torch.float16:
        case = replace(case, noise=replace(ORDINARY, r=(1e-2, 1e2)))  # float16 has no 1e-6
    rounded = draw(case, dtype).to(device=target.device)
    answer = run(rounded, target, details=True)
    exact = run(rounded.to(torch.float32, target.device), target, details=True)
    eps, tiny = torch.finfo(dtype).eps, torch.finfo(dtype).smallest_normal
    for name, x in answer.items():
        truth = exact[name]
        if name.startswith("final"):
            assert x.dtype == torch.float32
            assert budgets.error(x, truth) <= 2e-6, name
        else:
            assert x.dtype == dtype
            half = target.limit.half_ulps * eps
            allowed = half * (truth.abs() + tiny) + 2e-6 * truth.abs().max()
            if name not in ("mean", "variance"):  # derived from these two, already rounded
                allowed += half * truth.abs().max()
            assert torch.all((x.float() - truth).abs() <= allowed), name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@every_target
def test_half_precision_takes_parameters_in_float32(target, dtype):
    """Parameters and beliefs stay in float32 under mixed precision: their digits must count."""
    target.require(dtype)
    problem = draw(Case(30), dtype).to(device=target.device)
    fine = draw(Case(30), torch.float32).to(device=target.device)
    mixed = replace(problem, a=fine.a, b=fine.b, q=fine.q, prior=fine.prior, state=fine.state)
    expected = replace(
        problem.to(torch.float32, target.device),
        a=fine.a, b=fine.b, q=fine.q, prior=fine.prior, state=fine.state,
    )  # fmt: skip
    final = kalman_scan(**mixed.arguments(), backend=target.backend)[1]
    wanted = kalman_scan(**expected.arguments(), backend=target.backend)[1]
    assert budgets.error(final.mean, wanted.mean) <= 2e-6
    assert budgets.error(final.variance, wanted.variance) <= 2e-6
