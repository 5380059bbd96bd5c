"""Chunks and blocks that are filled have GPU kernels of their own: those of training."""

from dataclasses import replace

import pytest
import torch

from kalmanac._ops.scan.gpu.tiling import kalman_chunk, spans
from tests.ops.scan import budgets
from tests.ops.scan.answers import run_backward
from tests.ops.scan.cases import ORDINARY, Case, draw
from tests.ops.scan.targets import Target

BARE = Case(64, ORDINARY, batch=2, channels=64, lengths=False, resets=0, missing=0)
CASES = {
    "16 steps a chunk": BARE,
    "and one step behind them": replace(BARE, steps=33),
    "13 steps a chunk": replace(BARE, steps=65),
    "8 steps a chunk, with lengths": replace(BARE, lengths=True),
    "4 steps a chunk, with flags": replace(BARE, channels=32, resets=3.0, missing=0.3),
    "segments of a long row": replace(BARE, steps=1024),
    "segments with flags": replace(BARE, steps=1024, channels=32, lengths=True, resets=3.0),
    "brought into the cache early": replace(BARE, steps=2048, batch=33, channels=128),
}
INTERPRETED = list(CASES)[:5]  # the others are too long for that
RUNS = [pytest.param(name, "cpu", marks=pytest.mark.slow) for name in INTERPRETED]
RUNS += [pytest.param(name, "cuda", marks=pytest.mark.gpu) for name in CASES]


@pytest.mark.parametrize(("name", "device"), RUNS)
def test_values_and_gradients_equal_plain_operations_in_double(name, device):
    """With noise before its softplus, as a layer has it."""
    target = Target("gpu", device)
    target.require(torch.float32)
    problem = draw(CASES[name], torch.float32).to(device=device)
    floors = {"r_floor": 1e-3, "q_floor": 1e-4}
    found = run_backward(problem, target, **floors)
    wide = problem.to(torch.float64, device)
    truth = run_backward(wide, Target("parallel", device), **floors)
    for one, other, budget in zip(found, truth, (budgets.values, budgets.gradients), strict=True):
        errors = {name: budgets.error(x, other[name]) for name, x in one.items()}
        budgets.check(errors, budget(torch.float32, ORDINARY))


@pytest.mark.parametrize(
    ("steps", "most", "ends", "chunks"),
    [(64, 16, [64], [16]), (65, 16, [65], [13]), (65, 8, [64, 65], [8, 4]),
     (257, 16, [256, 257], [16, 4])],
)  # fmt: skip
def test_one_launch_where_chunks_make_up_a_row(steps, most, ends, chunks):
    found = spans(32, steps, 128, False, False, most)
    assert [span.end for span in found] == ends
    own = [kalman_chunk(32, x.end - x.begin, 128, False, False, most) for x in found]
    assert own == chunks
