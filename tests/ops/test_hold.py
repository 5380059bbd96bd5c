"""Zero-order hold: the kernel against the plain form in float64, values and gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kalmanac._ops.hold import FusedHold, plain_hold, zero_order_hold

DEVICES = [
    "cpu",  # Triton's interpreter
    pytest.param("cuda", marks=pytest.mark.gpu),
]


def system(channels: int, raw_step: float, dtype: torch.dtype, device: str) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(channels)
    log_rate = torch.log(torch.arange(1, channels + 1).double())
    gain = torch.randn(channels, generator=random, dtype=torch.float64)
    parts = (log_rate, gain, torch.tensor(raw_step).double())
    return [x.to(device, dtype).requires_grad_() for x in parts]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("driven", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("raw_step", [-16.0, -7.0, 0.0, 3.0])
@pytest.mark.parametrize("channels", [1, 33, 128])
def test_the_kernel_agrees_with_the_plain_form_in_double(
    channels: int, raw_step: float, dtype: torch.dtype, driven: bool, device: str
) -> None:
    given = system(channels, raw_step, dtype, device)
    wide = [x.detach().cpu().double().requires_grad_() for x in given]
    if not driven:
        given[1], wide[1] = None, None
    found, truth = (
        [x for x in outputs if x is not None]
        for outputs in (FusedHold.apply(*given), plain_hold(*wide))
    )
    random = torch.Generator().manual_seed(1)
    weights = [torch.randn(channels, generator=random, dtype=torch.float64) for _ in truth]

    def slopes(outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        total = sum((x * w.to(x)).sum() for x, w in zip(outputs, weights, strict=True))
        return list(torch.autograd.grad(total, [x for x in inputs if x is not None]))

    budget = {"rtol": 1e-6, "atol": 1e-30} if dtype == torch.float32 else {"rtol": 1e-9, "atol": 0}
    for x, y in zip(found, truth, strict=True):
        torch.testing.assert_close(x.cpu().double(), y, **budget)
    for x, y in zip(slopes(found, given), slopes(truth, wide), strict=True):
        scale = max(1.0, y.abs().max().item()) if x.dim() else 1.0
        torch.testing.assert_close(x.cpu().double(), y, rtol=1e-5, atol=1e-7 * scale)


@given(raw_step=st.floats(-12, 4), channels=st.integers(1, 64))
def test_the_hold_is_a_contraction_and_its_drive_the_exact_integral(
    raw_step: float, channels: int
) -> None:
    log_rate, gain, raw = system(channels, raw_step, torch.float64, "cpu")
    a, b = zero_order_hold(log_rate, gain, raw)
    assert b is not None
    assert ((a > 0) & (a < 1)).all() or raw_step > 2  # exp(-Δ|Ã|) may leave the range of numbers
    # two half steps with the same input are one whole step
    half = torch.log(torch.expm1(torch.nn.functional.softplus(raw.detach()) / 2))
    a2, b2 = zero_order_hold(log_rate, gain, half)
    torch.testing.assert_close(a2 * a2, a, rtol=1e-9, atol=0)
    torch.testing.assert_close(a2 * b2 + b2, b, rtol=1e-9, atol=1e-300)
