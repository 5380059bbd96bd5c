"""Different ways to say the same to `kalman_scan` give the same answer, on every backend."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from hypothesis import strategies as st

from kalmanac._ops.scan.arguments import lengths_from_padding
from kalmanac._ops.scan.inputs import Belief
from kalmanac._ops.scan.kalman import kalman_scan
from kalmanac._ops.scan.linear import linear_scan
from tests.ops.scan import budgets
from tests.ops.scan.answers import run, run_backward
from tests.ops.scan.budgets import assert_same
from tests.ops.scan.cases import MILD, Problem
from tests.ops.scan.drawn_cases import CASES, on
from tests.ops.scan.targets import law


@law(case=CASES)
def test_what_is_left_out_equals_what_it_stands_for(target, case):
    """None for b, u, prior, state and all flags, and a constant q, spelled out."""
    problem = on(target, case)
    bare = Problem(
        a=problem.a, b=None, u=None, q=problem.q, w=problem.w, r=problem.r, prior=None, state=None,
        lengths=None, reset=None, observed=None,
    )  # fmt: skip
    B, T, N = problem.w.shape
    one, zero = torch.ones_like(problem.w), torch.zeros_like(problem.w)
    normal = Belief(zero[:, 0], one[:, 0])
    spelled = replace(
        bare, b=one[0, 0], u=zero, q=problem.q.expand(B, T, N), prior=normal, state=normal,
        lengths=torch.full((B,), T, device=target.device), reset=zero[..., 0] > 0,
        observed=one[..., 0] > 0,
    )  # fmt: skip
    assert_same(run(bare, target, details=True), run(spelled, target, details=True))


@law(case=CASES)
def test_without_a_state_it_starts_from_the_prior(target, case):
    problem = on(target, replace(case, state="none", prior="rows"))
    given = replace(problem, state=problem.prior)
    for one, other in zip(run_backward(problem, target), run_backward(given, target), strict=True):
        for field in ("mean", "variance"):  # one belief in two places: its gradients add up
            if f"state.{field}" in other:
                other[f"prior.{field}"] = other[f"prior.{field}"] + other[f"state.{field}"]
        assert_same(one, other)


@law(case=CASES)
def test_lengths_come_in_several_forms(target, case):
    problem = on(target, replace(case, lengths=True))
    expected = run(problem, target)
    padded = torch.arange(case.steps, device=target.device) >= problem.lengths[:, None]
    for form in (
        problem.lengths.to(torch.int32),
        problem.lengths.tolist(),
        tuple(problem.lengths.tolist()),
        lengths_from_padding(padded),
    ):
        found = run(replace(problem, lengths=form), target)
        assert all(torch.equal(x, expected[name]) for name, x in found.items())


@law(case=CASES, r_floor=st.sampled_from([0.0, 1e-3, 0.5]), q_floor=st.sampled_from([0.0, 1e-4]))
def test_a_floor_is_a_softplus_and_a_sum_before(target, case, r_floor, q_floor):
    """Values and gradients, through each floor alone and through both."""
    problem = on(target, replace(case, noise=MILD))
    for floors in ({"r": r_floor}, {"q": q_floor}, {"r": r_floor, "q": q_floor}):
        raw = {name: getattr(problem, name).log() * 3 for name in floors}
        noise = {name: F.softplus(x) + floors[name] for name, x in raw.items()}
        options = {f"{name}_floor": floor for name, floor in floors.items()}
        values, gradients = run_backward(replace(problem, **raw), target, **options)
        expected, outside = run_backward(replace(problem, **noise), target)
        chained = {
            name: g * torch.sigmoid(raw[name]) if name in raw else g for name, g in outside.items()
        }
        assert_same(values, expected)
        assert_same(gradients, chained)


@law(case=CASES)
def test_the_linear_scan_is_the_filter_that_never_reads(target, case):
    """With a, b·u and no reading, the filter's mean is `linear_scan`'s state, gradients too."""
    problem = on(target, replace(case, missing=0, prior="rows", state="rows"))
    unseen = torch.zeros(case.batch, case.steps, dtype=torch.bool, device=target.device)
    problem, leaves = replace(problem, observed=unseen).with_gradients()
    posterior, _ = kalman_scan(**problem.arguments(), backend=target.backend)
    drive = problem.u if problem.b is None else problem.b * problem.u
    states, _ = linear_scan(
        problem.a, drive, problem.prior.mean, state=problem.state.mean, lengths=problem.lengths,
        reset=problem.reset, backend=target.backend,
    )  # fmt: skip
    assert budgets.error(posterior.mean, states) <= 1e-12
    wanted = [leaves[name] for name in ("a", "u", "prior.mean", "state.mean")]
    options = {"allow_unused": True, "materialize_grads": True}
    one = torch.autograd.grad(posterior.mean.sum(), wanted, **options)
    other = torch.autograd.grad(states.sum(), wanted, **options)
    assert all(budgets.error(x, y) <= 1e-12 for x, y in zip(one, other, strict=True))
