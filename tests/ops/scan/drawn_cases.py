"""Problems that hypothesis draws, and parts of a problem."""

from dataclasses import replace

from hypothesis import strategies as st
from torch import Tensor

from kalmanac._ops.scan.inputs import Belief
from tests.ops.scan.cases import MILD, ORDINARY, WHOLE, Case, Problem, draw
from tests.ops.scan.targets import Target

CASES = st.builds(
    Case,
    steps=st.integers(1, 17),
    noise=st.sampled_from([MILD, ORDINARY, WHOLE]),
    batch=st.integers(1, 4),
    channels=st.integers(1, 3),
    b=st.booleans(),
    varying_q=st.booleans(),
    prior=st.sampled_from(["none", "shared", "rows"]),
    state=st.sampled_from(["none", "shared", "rows"]),
    lengths=st.booleans(),
    resets=st.sampled_from([0, 2, 9]),
    missing=st.sampled_from([0, 0.3]),
    seed=st.integers(0, 10**6),
)


def on(target: Target, case: Case) -> Problem:
    """The float64 problem of a case on a target's device."""
    return draw(case).to(device=target.device)


def between(problem: Problem, first: int, last: int, state: Belief | None) -> Problem:
    """The steps first … last-1 of a problem, as a problem that goes on from `state`."""
    cut = {
        name: getattr(problem, name)[:, first:last]
        for name in ("u", "w", "r", "reset", "observed")
        if getattr(problem, name) is not None
    }
    if problem.q.dim() == 3:
        cut["q"] = problem.q[:, first:last]
    if problem.lengths is not None:
        cut["lengths"] = (problem.lengths - first).clamp(0, last - first)
    return replace(problem, state=state, **cut)


def row(problem: Problem, i: int) -> Problem:
    """One row of a problem."""
    return problem.map(lambda x: x[i : i + 1] if has_rows(x, problem) else x)


def has_rows(x: Tensor, problem: Problem) -> bool:
    """(B, T, N), (B, N), (B, T) and (B,) have rows; (N,) has not, not even where N = B."""
    return x.dim() > 1 or x is problem.lengths
