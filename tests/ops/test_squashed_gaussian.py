"""Draws of a squashed Gaussian by kernels equal the plain ones, with their gradients."""

import math

import pytest
import torch
from torch import Tensor

from kalmanac._ops.squashed_gaussian import draw, fused_draws

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]  # cpu: Triton's interpreter
RANGE = (-1.5, 1.0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 2), (7, 40, 6), (2, 3, 17)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_values_and_slopes(shape: tuple[int, int, int], dtype: torch.dtype, device: str) -> None:
    rows, steps, actions = shape
    random = torch.Generator().manual_seed(steps)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=random, dtype=torch.float64).to(device)

    exact = 2 * normal(rows, steps + 1, 2 * actions)
    exact[0, 0, 0], exact[0, 0, actions] = 30.0, RANGE[1]  # squashed to 1; at the clamp's edge
    exact.requires_grad_()
    noise = normal(2, rows, steps, actions)
    truth_next = draw(exact[:, 1:], noise[0], RANGE)
    truth = draw(exact[:, :-1], noise[1], RANGE)
    given = exact.detach().to(dtype).requires_grad_()
    here, later = fused_draws(given, noise.to(dtype), RANGE)
    near = {"rtol": 1e-9, "atol": 1e-11} if dtype == torch.float64 else {"rtol": 1e-5, "atol": 1e-5}
    for tokens, found, expected in (
        *((slice(None, -1), x, y) for x, y in zip(here, truth, strict=True)),
        *((slice(1, None), x, y) for x, y in zip(later, truth_next, strict=True)),
    ):
        torch.testing.assert_close(found[:, tokens], expected.to(dtype), **near)
    assert not any(x[:, -1].any() for x in here)
    assert not any(x[:, 0].any() for x in later)
    assert not any(x.requires_grad for x in later)

    weights = [normal(*x.shape) for x in here]
    (slope,) = torch.autograd.grad(here, [given], [w.to(dtype) for w in weights])
    (expected,) = torch.autograd.grad(truth, [exact], [w[:, :-1] for w in weights])
    torch.testing.assert_close(slope, expected.to(dtype), **near)
    for i in range(2):  # one of both alone
        again = fused_draws(given, noise.to(dtype), RANGE).here
        (slope,) = torch.autograd.grad([again[i]], [given], [weights[i].to(dtype)])
        one = draw(exact[:, :-1], noise[1], RANGE)[i]
        (expected,) = torch.autograd.grad([one], [exact], [weights[i][:, :-1]])
        torch.testing.assert_close(slope, expected.to(dtype), **near)


@pytest.mark.parametrize("device", DEVICES)
def test_a_parameter_that_is_not_a_number_is_told(device: str) -> None:
    parameters = torch.zeros(1, 3, 4, device=device)
    parameters[0, 0, 0] = parameters[0, 1, 3] = math.nan
    here, _ = fused_draws(parameters, torch.ones(2, 1, 2, 2, device=device), RANGE)
    assert here.entropy.isnan().tolist() == [[True, True, False]]
