"""Zero-order hold: the kernels against the plain form in float64, values and gradients."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from kalmanac import KalmanLayer, make_encoder
from kalmanac._encoders import kalman, layers
from kalmanac._ops import dense
from kalmanac._ops.hold import holds_beside, project_and_hold, zero_order_hold

DEVICES = [
    "cpu",  # Triton's interpreter
    pytest.param("cuda", marks=pytest.mark.gpu),
]
NEAR = {"cpu": 1e-5, "cuda": 1e-2}  # products round their factors to TF32 on a GPU


def system(channels: int, raw_step: float, dtype: torch.dtype, device: str) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(channels)
    log_rate = torch.log(torch.arange(1, channels + 1).double())
    gain = torch.randn(channels, generator=random, dtype=torch.float64)
    parts = (log_rate, gain, torch.tensor(raw_step).double())
    return [x.to(device, dtype).requires_grad_() for x in parts]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("driven", [True, False])
@pytest.mark.parametrize("raw_step", [-16.0, -7.0, 0.0, 3.0])
@pytest.mark.parametrize("channels", [1, 33, 128])
def test_beside_a_projection_the_hold_is_the_plain_one_in_double(
    channels: int, raw_step: float, driven: bool, device: str
) -> None:
    """And the projection is the one that it is alone; rows end with a part of a block."""
    random = torch.Generator().manual_seed(1)

    def draw(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=random, dtype=torch.float64) - 0.3

    signals = 3 if driven else 2
    layer = [draw(3, 13, 5), draw(signals * channels, 5), draw(signals * channels)]
    given = system(channels, raw_step, torch.float32, device)
    given += [x.to(device, torch.float32).requires_grad_() for x in layer]
    wide = [x.detach().cpu().double().requires_grad_() for x in given]
    if not driven:
        given[1], wide[1] = None, None
    found = [x for x in project_and_hold(tuple(given[:3]), *given[3:]) if x is not None]
    truth = [F.linear(*wide[3:]), *(x for x in zero_order_hold(*wide[:3]) if x is not None)]
    weights = [draw(*x.shape) for x in truth]

    def slopes(outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        total = sum((x * w.to(x)).sum() for x, w in zip(outputs, weights, strict=True))
        return list(torch.autograd.grad(total, [x for x in inputs if x is not None]))

    def close(found: torch.Tensor, truth: torch.Tensor, near: float) -> None:
        scale = truth.abs().max().item()
        torch.testing.assert_close(found.cpu().double(), truth, rtol=0, atol=near * scale)

    close(found[0], truth[0], NEAR[device])
    for x, y in zip(found[1:], truth[1:], strict=True):
        torch.testing.assert_close(x.cpu().double(), y, rtol=1e-6, atol=1e-30)
    pairs = list(zip(slopes(found, given), slopes(truth, wide), strict=True))
    for x, y in pairs[:-3]:
        scale = max(1.0, y.abs().max().item()) if x.dim() else 1.0
        torch.testing.assert_close(x.cpu().double(), y, rtol=1e-5, atol=1e-7 * scale)
    for x, y in pairs[-3:]:
        close(x, y, NEAR[device])


@pytest.mark.parametrize("name", ["vssm", "vssm+kf", "vssm+kf-u"])
def test_layers_hold_beside_their_projection(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the kernels, interpreted, as without them."""
    torch.manual_seed(0)
    encoder = make_encoder(name, d_model=6, d_state=9)
    h, asked = torch.randn(3, 7, 6, requires_grad=True), []
    monkeypatch.setattr(kalman, "has_kalman_layer", lambda h: False)  # the CPU's form
    monkeypatch.setattr(layers, "holds_beside", lambda *_: asked.append(1) or True)
    found, _ = encoder(h)
    assert asked
    monkeypatch.setattr(layers, "holds_beside", lambda *_: False)
    truth, _ = encoder(h)
    torch.testing.assert_close(found, truth, rtol=1e-5, atol=1e-5)
    slope, learned = torch.randn_like(truth), [h, *encoder.parameters()]
    for p, q in zip(*(torch.autograd.grad(x, learned, slope) for x in (found, truth)), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)


def test_the_kernels_take_what_a_gpu_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = KalmanLayer(d_model=4, d_state=8)
    weight, bias = layer.in_projection.weight, layer.in_projection.bias
    h, log_rate = torch.randn(2, 5, 4), layer.dynamics.log_rate
    assert not holds_beside(h, weight, bias, log_rate), "on a CPU"
    monkeypatch.setattr(dense, "fused_products", lambda *_: True)
    assert holds_beside(h, weight, bias, log_rate)
    assert not holds_beside(h[:, :0], weight, bias, log_rate), "no rows, no launch"
    assert not holds_beside(h, weight, bias, log_rate.double())
    assert not holds_beside(h, weight, None, log_rate)
    assert not holds_beside(h, torch.randn(513, 4), torch.randn(513), log_rate)


def test_numbers_with_gaps_between_them() -> None:
    """As views of a larger tensor have them."""
    given = [torch.randn(n, generator=torch.Generator().manual_seed(n))[::2] for n in (10, 11, 12)]
    log_rate, gain, bias = given[0], given[1][:5], given[2][:5]
    h, weight, step = torch.randn(3, 4), torch.randn(5, 4), torch.tensor(-1.0)
    found = project_and_hold((log_rate, gain, step), h, weight, bias)
    truth = torch.nn.functional.linear(h, weight, bias), *zero_order_hold(log_rate, gain, step)
    for x, y in zip(found, truth, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-4)


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
