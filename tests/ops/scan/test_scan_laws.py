"""Laws that `kalman_scan` obeys whatever the numbers, on every backend."""

from dataclasses import replace

import torch
from hypothesis import strategies as st

from kalmanac._ops.scan.inputs import Belief
from kalmanac._ops.scan.linear import linear_scan
from tests.ops.scan.answers import run
from tests.ops.scan.budgets import assert_same
from tests.ops.scan.drawn_cases import CASES, between, has_rows, on, row
from tests.ops.scan.targets import law

SHARE = st.floats(0, 1)  # where in the sequence


def steps_of(answer):
    return {name: x for name, x in answer.items() if not name.startswith("final")}


def final_of(answer):
    return {name: x for name, x in answer.items() if name.startswith("final")}


@law(case=CASES, share=SHARE)
def test_splitting_and_going_on_equals_the_whole(target, case, share):
    problem, cut = on(target, case), round(share * case.steps)
    whole = run(problem, target, details=True)
    first = run(between(problem, 0, cut, problem.state), target, details=True)
    carried = Belief(first["final_mean"], first["final_variance"])
    second = run(between(problem, cut, case.steps, carried), target, details=True)
    joined = {name: torch.cat([x, second[name]], 1) for name, x in steps_of(first).items()}
    assert_same(joined | final_of(second), whole)


@law(case=CASES, share=SHARE)
def test_a_reset_equals_two_calls(target, case, share):
    case = replace(case, resets=0, lengths=False)
    problem, cut = on(target, case), round(share * (case.steps - 1))
    reset = torch.zeros(case.batch, case.steps, dtype=torch.bool, device=target.device)
    reset[:, cut] = True
    whole = run(replace(problem, reset=reset), target, details=True)
    first = run(between(problem, 0, cut, problem.state), target, details=True)
    second = run(between(problem, cut, case.steps, None), target, details=True)
    joined = {name: torch.cat([x, second[name]], 1) for name, x in steps_of(first).items()}
    assert_same(joined | final_of(second), whole)


@law(case=CASES)
def test_a_length_equals_cutting_the_row(target, case):
    problem = on(target, replace(case, lengths=True))
    whole = run(problem, target, details=True)
    for i, n in enumerate(problem.lengths.tolist()):
        alone = row(problem, i)
        cut = between(alone, 0, n, alone.state)
        short = run(replace(cut, lengths=None), target, details=True)
        expected = {name: x[i : i + 1] for name, x in whole.items()}
        assert_same(steps_of(short), {name: x[:, :n] for name, x in steps_of(expected).items()})
        assert_same(final_of(short), expected)


@law(case=CASES, i=st.integers(0, 3))
def test_rows_do_not_see_their_neighbours(target, case, i):
    """Bit for bit, although all neighbours are NaN."""
    i %= case.batch
    problem = on(target, case)
    others = torch.arange(case.batch, device=target.device) != i

    def spoil(x):
        if not x.is_floating_point() or not has_rows(x, problem):
            return x
        return torch.where(others.reshape(-1, *[1] * (x.dim() - 1)), torch.nan, x)

    clean, dirty = run(problem, target), run(problem.map(spoil), target)
    assert all(torch.equal(x[i], clean[name][i]) for name, x in dirty.items())


@law(case=CASES, seed=st.integers(0, 10**6))
def test_rows_and_channels_may_be_shuffled(target, case, seed):
    problem = on(target, replace(case, prior="rows", state="rows"))
    random = torch.Generator().manual_seed(seed)
    order = torch.randperm(case.batch, generator=random).to(target.device)
    channels = torch.randperm(case.channels, generator=random).to(target.device)

    def shuffle(x):
        x = x[order] if has_rows(x, problem) else x
        return x[..., channels] if x.is_floating_point() else x

    expected, found = run(problem, target), run(problem.map(shuffle), target)
    assert_same(found, {name: x[order][..., channels] for name, x in expected.items()})


@law(case=CASES)
def test_without_readings_it_predicts(target, case):
    """The mean is a linear recurrence with decay a, the variance one with decay a²."""
    problem = on(target, replace(case, missing=0))
    garbage = torch.full_like(problem.w, torch.nan)
    unseen = torch.zeros(case.batch, case.steps, dtype=torch.bool, device=target.device)
    found = run(replace(problem, w=garbage, r=garbage, observed=unseen), target, details=True)
    drive = problem.u if problem.b is None else problem.b * problem.u
    N = case.channels
    prior = problem.prior or Belief(*drive.new_tensor([[0.0], [1.0]]).expand(2, N).unbind())
    state = problem.state or prior
    options = {"lengths": problem.lengths, "reset": problem.reset, "backend": target.backend}
    mean = linear_scan(problem.a, drive, prior.mean, state=state.mean, **options)
    variance = linear_scan(
        problem.a**2, problem.q.expand_as(drive), prior.variance, state=state.variance, **options
    )
    expected = {
        "mean": mean[0], "variance": variance[0], "final_mean": mean[1],
        "final_variance": variance[1], "prior_mean": mean[0], "prior_variance": variance[0],
        "gain": torch.zeros_like(drive),
    }  # fmt: skip
    assert_same(found, expected)


@law(case=CASES)
def test_readings_of_endless_noise_are_no_readings(target, case):
    """r → ∞ turns the Kalman layer into the plain state-space layer (paper, section 5.1)."""
    problem = on(target, case)
    unseen = torch.zeros(case.batch, case.steps, dtype=torch.bool, device=target.device)
    expected = run(replace(problem, observed=unseen), target)
    found = run(replace(problem, r=torch.full_like(problem.r, 1e30)), target)
    assert_same(found, expected)


@law(case=CASES)
def test_readings_without_noise_are_believed(target, case):
    """r → 0: the mean is the reading, the variance its own."""
    problem = on(target, replace(case, lengths=False, missing=0))
    problem = replace(problem, r=torch.full_like(problem.r, 1e-30))
    found = run(problem, target)
    assert_same(steps_of(found), {"mean": problem.w, "variance": problem.r})


@law(case=CASES)
def test_details_satisfy_the_equations(target, case):
    """Paper, Eqs. 4 and 5, from each step's own prior, gain and reading."""
    problem = on(target, replace(case, lengths=False))
    x = run(problem, target, details=True)
    K = x["gain"]
    observed = torch.ones_like(K, dtype=torch.bool)
    if problem.observed is not None:
        observed &= problem.observed[..., None]
    expected_gain = x["prior_variance"] / (x["prior_variance"] + problem.r)
    assert_same(
        {"gain": K, "mean": x["mean"], "variance": x["variance"]},
        {
            "gain": torch.where(observed, expected_gain, 0.0),
            "mean": x["prior_mean"] + K * (problem.w - x["prior_mean"]),
            "variance": torch.where(observed, K * problem.r, x["prior_variance"]),
        },
    )


@law(case=CASES, power=st.integers(-8, 8))
def test_units_do_not_matter(target, case, power):
    """Means scale with the unit, variances with its square; powers of two lose no bit."""
    problem = on(target, replace(case, prior="rows"))
    s = 2.0**power

    def scaled(belief):
        return belief and Belief(belief.mean * s, belief.variance * s * s)

    found = run(
        replace(
            problem, u=problem.u * s, w=problem.w * s, q=problem.q * s * s, r=problem.r * s * s,
            prior=scaled(problem.prior), state=scaled(problem.state),
        ),
        target,
    )  # fmt: skip
    expected = {
        name: x * (s * s if name.endswith("variance") else s)
        for name, x in run(problem, target).items()
    }
    assert_same(found, expected)
