"""RMSNorm: the kernels against PyTorch's, values and gradients."""

import pytest
import torch
import torch.nn.functional as F

from kalmanac._ops.rms_norm import FusedRMSNorm, RMSNorm

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]  # cpu: Triton's interpreter


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("width", [1, 16, 33])
@pytest.mark.parametrize("steps", [0, 5, 57])
def test_values_and_gradients(width: int, steps: int, device: str) -> None:
    random = torch.Generator().manual_seed(0)
    dtype = torch.float64 if device == "cpu" else torch.float32
    near = {"rtol": 1e-9, "atol": 1e-9} if device == "cpu" else {"rtol": 2e-5, "atol": 2e-5}

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=random, dtype=torch.float64).to(device, dtype)

    x, weight = draw(3, steps, width).requires_grad_(), draw(width).requires_grad_()
    found = FusedRMSNorm.apply(x, weight, 1e-5)
    truth = F.rms_norm(x, (width,), weight, 1e-5)
    torch.testing.assert_close(found, truth, **near)
    g = draw(3, steps, width)
    slopes = (torch.autograd.grad(y, [x, weight], g) for y in (found, truth))
    for a, b in zip(*slopes, strict=True):
        torch.testing.assert_close(a, b, **near)


def test_zeros_stay_zeros() -> None:
    zeros = torch.zeros(2, 3, 16, requires_grad=True)
    found = FusedRMSNorm.apply(zeros, torch.ones(16), 1e-5)
    assert not found.any()
    (slope,) = torch.autograd.grad(found.sum(), [zeros])
    assert slope.isfinite().all()


def test_without_a_gpu_it_is_pytorchs() -> None:
    norm, usual = RMSNorm(16, eps=1e-5), torch.nn.RMSNorm(16, eps=1e-5)
    x = torch.randn(4, 16)
    torch.testing.assert_close(norm(x), usual(x), rtol=0, atol=0)
