"""Embedder, input projection and scan as one: against the three one after the other."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kalmanac._encoders import kalman as kalman_layers
from kalmanac._encoders.kalman import KalmanLayer
from kalmanac._encoders.kalman_encoder import KalmanEncoder
from kalmanac._ops import embedded
from kalmanac._ops.embedded import FEW, embedded_scan, embeds
from kalmanac._ops.hold import zero_order_hold
from kalmanac._ops.scan.kalman import kalman_scan_packed

pytest.importorskip("triton")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]  # on the CPU, interpreted
FLOORS = (1e-3, 1e-2)


def given(inputs: int, channels: int, signals: int) -> dict[str, Tensor]:
    """Everything with a gradient, in float64, by name."""
    random = torch.Generator().manual_seed(inputs)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random, dtype=torch.float64)

    found = {"rate": draw(channels), "step": draw(), "q": draw(channels)}
    found |= {"W1": draw(6, inputs) / inputs, "c1": draw(6)}
    found |= {"W2": draw(signals * channels, 6), "c2": draw(signals * channels)}
    return found | ({"gain": draw(channels)} if signals == 3 else {})


def plain(p: dict[str, Tensor], x: Tensor) -> Tensor:
    h = F.linear(x, p["W1"], p["c1"])
    layout = "uwr" if "gain" in p else "wr"
    a, b = zero_order_hold(p["rate"], p.get("gain"), p["step"])
    return kalman_scan_packed(
        a, F.linear(h, p["W2"], p["c2"]), p["q"], layout=layout, b=b,
        r_floor=FLOORS[0], q_floor=FLOORS[1], backend="reference",
    )[0].mean  # fmt: skip


def fused(p: dict[str, Tensor], x: Tensor) -> Tensor:
    layers = (p["W1"], p["c1"]), (p["W2"], p["c2"])
    return embedded_scan((p["rate"], p.get("gain"), p["step"]), p["q"], x, *layers, FLOORS)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("signals", [2, 3])
@pytest.mark.parametrize(("inputs", "channels", "steps"), [(1, 20, 3), (4, 32, 33), (FEW, 32, 16)])
def test_one_projection_gives_what_embedder_projection_and_scan_give(
    inputs: int, channels: int, steps: int, signals: int, device: str
) -> None:
    """Whole chunks, some steps more, fewer than a chunk."""
    parameters = given(inputs, channels, signals)
    x = torch.randn(2, steps, inputs, generator=torch.Generator().manual_seed(7))
    answers = []
    for run, dtype, where in ((fused, torch.float32, device), (plain, torch.float64, "cpu")):
        own = {k: p.to(where, dtype).requires_grad_() for k, p in parameters.items()}
        mean = run(own, x.to(where, dtype))
        slope = torch.randn(mean.shape, generator=torch.Generator().manual_seed(8))
        slopes = torch.autograd.grad(mean, list(own.values()), slope.to(mean))
        answers.append({"mean": mean} | dict(zip(own, slopes, strict=True)))
    for name, truth in answers[1].items():
        error = (answers[0][name].cpu() - truth).abs().max() / truth.abs().max()
        assert error < 2e-5, name


def test_an_encoder_makes_the_same_of_inputs_as_of_their_embedding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two layers and a norm; with kernels in the first layer, and without."""
    torch.manual_seed(0)
    embedder = nn.Linear(4, 8).double()
    encoder = KalmanEncoder([KalmanLayer(8, 32), KalmanLayer(8, 32)], norm=True).double()
    x, lengths = torch.randn(3, 18, 4).double(), torch.full((3,), 18)
    learned = [*embedder.parameters(), *encoder.parameters()]
    truth = encoder.represent(embedder(x), lengths=lengths)
    slope = torch.randn_like(truth)
    asked = torch.autograd.grad(truth, learned, slope)
    assert not embeds(x, embedder.weight, 32), "there is no GPU"
    for takes in (False, True):
        monkeypatch.setattr(kalman_layers, "embeds", lambda *_, takes=takes: takes)
        found = encoder.represent_embedded(x, embedder, lengths=lengths)
        torch.testing.assert_close(found, truth, rtol=0, atol=1e-9 * takes)
        for p, q in zip(torch.autograd.grad(found, learned, slope), asked, strict=True):
            torch.testing.assert_close(p, q, rtol=0, atol=1e-9 * takes)


def test_flags_and_other_features_take_the_layers_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kalman_layers, "embeds", lambda *_: pytest.fail("asked"))
    x, lengths = torch.randn(2, 5, 4), torch.tensor([5, 3])
    embedder, flags = nn.Linear(4, 8), torch.rand(2, 5) < 0.5
    for layer, known in (
        (KalmanLayer(8, 4), {"reset": flags}),
        (KalmanLayer(8, 4), {"observed": flags}),
        (KalmanLayer(8, 4, variance_feature=True), {}),
        (KalmanLayer(8, 4, input_process_noise=True), {}),
    ):
        found = layer.represent_embedded(x, embedder, lengths=lengths, **known)
        assert torch.equal(found, layer.represent(embedder(x), lengths=lengths, **known))


def test_a_scan_embeds_few_inputs_without_a_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "fused_products", lambda *_: True)
    into = torch.zeros(3 * 32, 8)
    assert embeds(torch.zeros(2, 5, FEW), into, 32)
    assert not embeds(torch.zeros(2, 5, FEW + 1), into, 32)
    assert not embeds(torch.zeros(2, 5, FEW, requires_grad=True), into, 32)
    assert not embeds(torch.zeros(2, 0, FEW), into, 32)
    assert not embeds(torch.zeros(2, 1024, FEW), into, 32), "cut into segments"
