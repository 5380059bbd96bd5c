"""Noises that come before their softplus: extreme values, slopes, and one packed gradient."""

import pytest
import torch
import torch.nn.functional as F

from kalmanac._ops.scan.kalman import kalman_scan, kalman_scan_packed
from tests.ops.scan import budgets
from tests.ops.scan.cases import ORDINARY
from tests.ops.scan.targets import every_target

RAW = [-200.0, -88.0, -30.0, -5.0, 0.0, 5.0, 30.0, 200.0]
FLOORS = {"r_floor": 1e-3, "q_floor": 1e-2}
EITHER_DTYPE = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def signals(steps: int, dtype: torch.dtype, device: str) -> dict[str, torch.Tensor]:
    """Every pair of raw values as (r, q), one channel each, the same at every step."""
    random = torch.Generator().manual_seed(steps)
    raw = torch.tensor(RAW, dtype=torch.float64)
    channels = len(RAW) ** 2
    u, w = torch.randn((2, 2, steps, channels), generator=random, dtype=torch.float64)
    r, q = raw.repeat_interleave(len(RAW)), raw.repeat(len(RAW))
    named = {"a": torch.full((channels,), 0.9), "u": u, "q": q.expand_as(u)}
    named |= {"w": w, "r": r.expand_as(u)}
    return {name: x.to(device, dtype).clone().requires_grad_() for name, x in named.items()}


@EITHER_DTYPE
@every_target
def test_extreme_raw_noise_agrees_with_softplus_outside_in_double(target, dtype):
    target.require(dtype)
    given = signals(4, dtype, target.device)
    wide = {n: x.detach().to("cpu", torch.float64).requires_grad_() for n, x in given.items()}
    noises = {n: F.softplus(wide[n], threshold=1e3) + FLOORS[f"{n}_floor"] for n in "rq"}

    found, _ = kalman_scan(**given, **FLOORS, backend=target.backend)
    truth, _ = kalman_scan(**(wide | noises), backend="reference")
    budgets.check(
        {n: budgets.error(getattr(found, n), getattr(truth, n)) for n in found._fields},
        budgets.values(dtype, ORDINARY),
    )
    slopes = torch.autograd.grad(sum(x.sum() for x in found), list(given.values()))
    true = torch.autograd.grad(sum(x.sum() for x in truth), list(wide.values()))
    errors = {n: budgets.error(x, y) for n, x, y in zip(given, slopes, true, strict=True)}
    budgets.check(errors, budgets.gradients(dtype, ORDINARY))


@EITHER_DTYPE
@every_target
def test_small_slopes_keep_their_relative_accuracy(target, dtype):
    """The gradient of a very negative raw noise is its slope times the gradient of the variance."""
    target.require(dtype)
    given = signals(1, dtype, target.device)
    given["r"] = torch.linspace(-60, 15, given["r"].shape[2]).to(given["w"]).expand_as(given["w"])
    given["r"] = given["r"].clone().requires_grad_()
    wide = {n: x.detach().to("cpu", torch.float64).requires_grad_() for n, x in given.items()}
    found, _ = kalman_scan(**given, **FLOORS, backend=target.backend)
    noises = {n: F.softplus(wide[n], threshold=1e3) + FLOORS[f"{n}_floor"] for n in "rq"}
    truth, _ = kalman_scan(**(wide | noises), backend="reference")
    (one,) = torch.autograd.grad(found.variance.sum(), given["r"])
    (other,) = torch.autograd.grad(truth.variance.sum(), wide["r"])
    off = (one.cpu().double() - other).abs() / other.abs()
    assert off.max() <= (1e-5 if dtype == torch.float32 else 1e-12)


@EITHER_DTYPE
@pytest.mark.parametrize("layout", ["uwrq", "qruw"])
@every_target
def test_the_packed_gradient_holds_the_chained_slopes(target, dtype, layout):
    target.require(dtype)
    given = signals(3, dtype, target.device)
    apart, _ = kalman_scan(**given, **FLOORS, backend=target.backend)
    expected = torch.autograd.grad(apart.mean.sum(), [given[n] for n in layout])

    packed = torch.cat([given[n].detach() for n in layout], -1).requires_grad_()
    together, _ = kalman_scan_packed(
        given["a"], packed, layout=layout, **FLOORS, backend=target.backend
    )
    (found,) = torch.autograd.grad(together.mean.sum(), packed)
    assert budgets.error(together.mean, apart.mean) <= 1e-6
    assert budgets.error(found, torch.cat(expected, -1)) <= 1e-6


@EITHER_DTYPE
@every_target
def test_a_raw_nan_that_counts_is_not_hidden(target, dtype):
    target.require(dtype)
    given = {n: x.detach().clone() for n, x in signals(2, dtype, target.device).items()}
    given["r"][0, 1, 5] = torch.nan
    found, _ = kalman_scan(**given, **FLOORS, backend=target.backend)
    wrong = torch.isnan(found.mean).nonzero().tolist()
    assert wrong == [[0, 1, 5]]
