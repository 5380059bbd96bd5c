"""Nothing to filter: no steps, no rows, no channels, and rows of length zero."""

import pytest
import torch

from kalmanac._ops.scan.inputs import Belief
from kalmanac._ops.scan.kalman import kalman_scan
from kalmanac._ops.scan.linear import linear_scan
from tests.ops.scan.answers import by_name
from tests.ops.scan.targets import every_target

SHAPES = pytest.mark.parametrize("shape", [(3, 0, 2), (0, 4, 2), (0, 0, 2), (3, 4, 0)], ids=str)


def belief(batch, channels, device):
    mean = torch.arange(batch * channels, dtype=torch.float64, device=device)
    return Belief(mean.reshape(batch, channels), mean.reshape(batch, channels) + 1)


@pytest.mark.parametrize("flags", [False, True], ids=["bare", "with flags"])
@SHAPES
@every_target
def test_kalman_scan_of_nothing(target, shape, flags):
    target.require(torch.float64)
    B, T, N = shape
    a = torch.full((N,), 0.5, dtype=torch.float64, device=target.device, requires_grad=True)
    w = torch.ones(shape, dtype=torch.float64, device=target.device, requires_grad=True)
    state = belief(B, N, target.device)
    options = {}
    if flags:
        on = torch.ones(B, T, dtype=torch.bool, device=target.device)
        lengths = torch.zeros(B, dtype=torch.int64, device=target.device)
        options = {"lengths": lengths, "reset": on, "observed": on}
    outputs = kalman_scan(
        a, w, a.detach(), w, w, state=state, details=True, **options, backend=target.backend
    )
    for name, x in by_name(*outputs).items():
        assert x.shape == ((B, N) if name.startswith("final") else shape), name
    if T == 0:
        assert torch.equal(outputs[1].mean, state.mean)
        assert torch.equal(outputs[1].variance, state.variance)
    if w.numel() == 0 and outputs[0].mean.requires_grad:
        gradients = torch.autograd.grad(outputs[0].mean.sum(), (a, w), allow_unused=True)
        assert all(g is None or not g.any() for g in gradients)


@SHAPES
@every_target
def test_linear_scan_of_nothing(target, shape):
    target.require(torch.float64)
    B, T, N = shape
    b = torch.ones(shape, dtype=torch.float64, device=target.device)
    state = belief(B, N, target.device).mean
    states, final = linear_scan(b, b, state=state, backend=target.backend)
    assert states.shape == shape
    assert final.shape == (B, N)
    if T == 0:
        assert torch.equal(final, state)


@every_target
def test_rows_of_length_zero_show_and_return_the_state(target):
    target.require(torch.float64)
    x = torch.full((2, 3, 2), torch.nan, dtype=torch.float64, device=target.device)
    a = torch.full((2,), 0.5, dtype=torch.float64, device=target.device)
    state = belief(2, 2, target.device)
    posterior, final = kalman_scan(
        a, x, a, x, x, state=state, lengths=[0, 0], backend=target.backend
    )
    for shown, returned, given in zip(posterior, final, state, strict=True):
        assert torch.equal(shown, given[:, None].expand(2, 3, 2))
        assert torch.equal(returned, given)


@every_target
def test_no_steps_leave_the_default_prior(target):
    target.require(torch.float64)
    w = torch.ones(2, 0, 3, dtype=torch.float64, device=target.device)
    a = torch.full((3,), 0.5, dtype=torch.float64, device=target.device)
    _, final = kalman_scan(a, w, a, w, w, backend=target.backend)
    assert torch.equal(final.mean, torch.zeros_like(final.mean))
    assert torch.equal(final.variance, torch.ones_like(final.variance))
