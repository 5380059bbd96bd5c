"""The log-depth scan: all prefixes, in few dependent steps, in both forms of padding."""

import math
from dataclasses import replace
from functools import partial
from itertools import accumulate

import pytest
import torch

from kalmanac._ops.scan import parallel
from kalmanac._ops.scan.backends import BACKENDS
from kalmanac._ops.scan.linear import linear_scan
from tests.ops.scan import budgets
from tests.ops.scan.answers import run, run_backward
from tests.ops.scan.cases import WHOLE, Case, draw, forms
from tests.ops.scan.linear_cases import draw_linear
from tests.ops.scan.targets import Target

LENGTHS = pytest.mark.parametrize("steps", [*range(1, 18), 31, 32, 33, 100])


@LENGTHS
def test_all_prefixes_of_an_operation_that_does_not_commute(steps):
    """2 × 2 matrix products, with integers so that they are exact."""
    random = torch.Generator().manual_seed(steps)
    shears = torch.randint(0, 2, (1, steps, 1), generator=random)
    matrices = torch.where(
        shears.bool()[..., None], torch.tensor([[1, 1], [0, 1]]), torch.tensor([[1, 0], [1, 1]])
    )
    matrices = matrices.reshape(1, steps, 2, 2) % 1000

    def join(left, right):
        return [left[0] @ right[0] % 1009]

    (found,) = parallel.associative_scan(join, [matrices])
    expected = list(accumulate(matrices[0], lambda x, y: x @ y % 1009))
    assert torch.equal(found[0], torch.stack(expected))


@LENGTHS
def test_depth_is_logarithmic_and_work_linear(steps):
    calls = []

    def join(left, right):
        calls.append(left[0].shape[1])
        return [left[0] + right[0]]

    parallel.associative_scan(join, [torch.ones(1, steps)])
    assert len(calls) <= 2 * math.ceil(math.log2(steps)) if steps > 1 else not calls
    assert sum(calls) <= 2 * steps


@pytest.fixture
def masked(monkeypatch):
    """The paper's operator (Definition 1) as a backend of its own."""
    row = BACKENDS["parallel"]._replace(
        name="masked",
        kalman=partial(parallel.kalman, form="masked"),
        linear=partial(parallel.linear, form="masked"),
    )
    monkeypatch.setitem(BACKENDS, "masked", row)
    return Target("masked", "cpu")


@pytest.mark.parametrize("case", [*forms(33, WHOLE), replace(Case(64, WHOLE), resets=20)], ids=str)
def test_masked_and_identity_forms_agree(masked, case):
    identity = Target("parallel", "cpu")
    one, other = run_backward(draw(case), masked), run_backward(draw(case), identity)
    for found, expected in zip(one, other, strict=True):
        for name, x in found.items():
            assert budgets.error(x, expected[name]) <= 1e-12, name


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_masked_and_identity_forms_of_the_linear_scan_agree(masked, dtype):
    arguments = draw_linear(37, dtype)
    one = linear_scan(**arguments, backend="masked")
    other = linear_scan(**arguments, backend="parallel")
    assert budgets.error(one[0], other[0]) <= 1e-14
    assert budgets.error(one[1], other[1]) <= 1e-14


def test_the_masked_form_needs_no_harmless_pads(masked):
    """A padded element is dropped by the operator itself, whatever it holds."""
    problem = draw(Case(10))
    expected = run(problem, masked)
    pad = torch.arange(10) >= problem.lengths[:, None]
    w = problem.w.masked_fill(pad[..., None], float("nan"))
    found = run(replace(problem, w=w), masked)
    assert all(torch.equal(x, expected[name]) for name, x in found.items())
