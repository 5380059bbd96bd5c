"""The GRU that a GPU walks in one launch each way is nn.GRU."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from kalmanac._encoders.recurrent import GRUEncoder, GRUState
from kalmanac._ops import gru
from kalmanac._ops.gru_kernels import fits as fits_kernels

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]  # cpu: Triton's interpreter


def layer_of(inputs: int, hidden: int, device: str) -> nn.GRU:
    """In float64 where Triton is interpreted."""
    torch.manual_seed(0)
    dtype = torch.float64 if device == "cpu" else torch.float32
    return nn.GRU(inputs, hidden, batch_first=True, dtype=dtype).to(device)


def kernels_run(monkeypatch: pytest.MonkeyPatch, yes: bool = True) -> None:
    """As on a GPU with room for them, or not."""
    monkeypatch.setattr(gru, "fused_products", lambda *_: yes)
    monkeypatch.setattr(gru, "shared_bytes", lambda device: 232_448)


def plainly(layer: nn.GRU, x: Tensor, start: Tensor, reset: Tensor | None) -> Tensor:
    """Step by step, with the state set to zero where it is reset; cuDNN would round products."""
    found, h = [], start[None]
    for t in range(x.shape[1]):
        if reset is not None:
            h = h.masked_fill(reset[None, :, t, None], 0)
        with torch.backends.cudnn.flags(enabled=False):
            y, h = layer(x[:, t : t + 1], h.contiguous())
        found.append(y)
    return torch.cat(found, 1)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize(
    ("rows", "steps", "inputs", "hidden"), [(3, 5, 2, 16), (20, 2, 16, 32), (1, 1, 1, 16)]
)
def test_values_and_gradients_are_those_of_nn_gru(
    rows: int, steps: int, inputs: int, hidden: int, resets: bool, device: str
) -> None:
    layer = layer_of(inputs, hidden, device)
    kind = {"dtype": layer.weight_hh_l0.dtype, "device": device}
    x = torch.randn(rows, steps, inputs, **kind).requires_grad_()
    start = torch.randn(rows, hidden, **kind).requires_grad_()
    reset = torch.rand(rows, steps, device=device) < 0.3 if resets else None
    learned = [x, start, *layer.parameters()]
    found = gru.fused_gru(x, start, list(layer.parameters()), reset=reset, exact=True)
    truth = plainly(layer, x, start, reset)
    near = 1e-12 if device == "cpu" else 1e-5
    assert (found - truth).norm() <= near * truth.norm()
    slope = torch.randn_like(truth)
    names = ["x", "start", *dict(layer.named_parameters())]
    for name, one, other in zip(
        names,
        torch.autograd.grad(found, learned, slope),
        torch.autograd.grad(truth, learned, slope),
        strict=True,
    ):
        assert (one - other).norm() <= 10 * near * other.norm(), name
        assert one.shape == other.shape
    with torch.no_grad():
        again = gru.fused_gru(x, start, list(layer.parameters()), reset=reset, exact=True)
    assert torch.equal(again, found)


@pytest.mark.parametrize("device", DEVICES)
def test_rows_and_slopes_that_are_no_neighbours(device: str) -> None:
    layer = layer_of(4, 16, device)
    kind = {"dtype": layer.weight_hh_l0.dtype, "device": device}
    x = torch.randn(4, 3, 5, **kind).permute(1, 2, 0)  # (3, 5, 4)
    start = torch.zeros(16, 3, **kind).mT
    reset = (torch.rand(5, 3, device=device) < 0.5).mT
    slope = torch.randn(3, 16, 5, **kind).mT
    found = gru.fused_gru(x, start, list(layer.parameters()), reset=reset, exact=True)
    truth = plainly(layer, x, start.contiguous(), reset)
    near = 1e-11 if device == "cpu" else 1e-4
    learned = list(layer.parameters())
    for one, other in zip(
        torch.autograd.grad(found, learned, slope),
        torch.autograd.grad(truth, learned, slope),
        strict=True,
    ):
        assert (one - other).norm() <= near * other.norm()


@pytest.fixture
def dirty_memory() -> Iterator[None]:
    """New memory is full of NaN, so that what nobody writes is seen. (Not with a GPU at hand, whose
    libraries want to be asked in another way.)"""
    torch.use_deterministic_algorithms(not torch.cuda.is_available())
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("dirty_memory")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("resets", [False, True])
def test_a_walk_ends_behind_the_longest_of_its_rows(resets: bool, device: str) -> None:
    """Eight rows of a program know nothing of the nine others, and pads stay zero."""
    layer = layer_of(2, 16, device)
    kind = {"dtype": layer.weight_hh_l0.dtype, "device": device}
    lengths = torch.tensor([0, 1, 3, 2, 1, 1, 0, 1, 5, 6, 1, 1, 1, 1, 1, 1, 0], device=device)
    x = torch.randn(17, 6, 2, **kind)
    start = torch.randn(17, 16, **kind).requires_grad_()
    reset = torch.rand(17, 6, device=device) < 0.3 if resets else None
    padded = torch.arange(6, device=device) >= lengths[:, None]
    learned = [start, *layer.parameters()]
    weights = list(layer.parameters())
    found = gru.fused_gru(x, start, weights, lengths=lengths, reset=reset, exact=True)
    with torch.no_grad():
        again = gru.fused_gru(x, start, weights, lengths=lengths, reset=reset, exact=True)
    assert torch.equal(again, found)
    assert not found[:8, 3:].any()
    assert not found[16].any()
    assert found[8:16, :6].all()
    truth = plainly(layer, x, start, reset)
    near = 1e-12 if device == "cpu" else 1e-5
    apart = (found - truth).masked_fill(padded[..., None], 0)
    assert apart.norm() <= near * truth.norm()
    slope = torch.randn_like(truth).masked_fill(padded[..., None], 0)
    for one, other in zip(
        torch.autograd.grad(found, learned, slope),
        torch.autograd.grad(truth, learned, slope),
        strict=True,
    ):
        assert (one - other).norm() <= 10 * near * other.norm()


@pytest.mark.parametrize("learns", ["x", "start", "weight_ih_l0", "bias_hh_l0"])
def test_only_what_learns_gets_a_gradient(learns: str) -> None:
    layer = layer_of(2, 16, "cpu").requires_grad_(False)
    tensors = {"x": torch.randn(3, 4, 2).double(), "start": torch.randn(3, 16).double()}
    tensors |= dict(layer.named_parameters())
    wanted = tensors[learns].requires_grad_()
    x, start, *weights = tensors.values()
    found = gru.fused_gru(x, start, weights, exact=True)
    truth = plainly(layer, x, start, None)
    slope = torch.randn_like(truth)
    one, other = (torch.autograd.grad(y, [wanted], slope)[0] for y in (found, truth))
    assert (one - other).norm() <= 1e-12 * other.norm()


@pytest.mark.parametrize("layers", [1, 3])
def test_an_encoder_tells_the_kernels_of_lengths_resets_and_states(
    layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    encoder = GRUEncoder(4, d_state=16, layers=layers).double()
    h, state = torch.randn(5, 6, 4).double(), torch.randn(5, layers, 16).double()
    lengths, reset = torch.tensor([6, 0, 3, 1, 4]), torch.rand(5, 6) < 0.3
    h[torch.arange(6) >= lengths[:, None]] = torch.nan
    learned = [h.requires_grad_(), state.requires_grad_(), *encoder.parameters()]
    found = []
    for kernels in (True, False):
        kernels_run(monkeypatch, kernels)
        z, (end,) = encoder(h, GRUState(state), lengths=lengths, reset=reset)
        slopes = torch.autograd.grad([z, end], learned, [torch.ones_like(z), torch.ones_like(end)])
        found.append([z, end, *slopes])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.usefixtures("dirty_memory")
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("resets", [False, True])
def test_learning_sees_the_same_at_steps(
    resets: bool, layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`represent` by the kernels, and `forward` by PyTorch."""
    torch.manual_seed(0)
    encoder = GRUEncoder(4, d_state=16, layers=layers).double()
    h = torch.randn(10, 6, 4).double().requires_grad_()
    lengths = torch.tensor([6, 0, 3, 1, 4, 1, 1, 1, 2, 1])
    reset = torch.rand(10, 6) < 0.3 if resets else None
    steps = (torch.arange(6) < lengths[:, None])[..., None]
    learned, slope = [h, *encoder.parameters()], torch.randn(10, 6, 4).double() * steps
    z, _ = encoder(h, lengths=lengths, reset=reset)
    told, run = [], gru.fused_gru
    kernels_run(monkeypatch)
    monkeypatch.setattr(
        gru,
        "fused_gru",
        lambda *x, lengths, **rest: told.append(lengths) or run(*x, lengths=lengths, **rest),
    )
    found = encoder.represent(h, lengths=lengths, reset=reset)
    assert len(told) == layers
    assert all(x is lengths for x in told), "the walk may end early"
    with pytest.raises(ValueError, match=r"^h: got 3 features, expected d_model = 4"):
        encoder.represent(h[..., :3], lengths=lengths)
    assert found.isfinite().all()
    torch.testing.assert_close(found * steps, z, rtol=1e-10, atol=1e-12)
    for one, other in zip(
        torch.autograd.grad(found, learned, slope),
        torch.autograd.grad(z, learned, slope),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_small_numbers_keep_their_digits() -> None:
    """tanh(x) = x where x is tiny."""
    layer = layer_of(1, 16, "cpu").float()
    with torch.no_grad():
        for weight in layer.parameters():
            weight.mul_(1e-5)
        x = torch.ones(1, 1, 1)
        weights = list(layer.parameters())
        found = gru.fused_gru(x, torch.zeros(1, 16), weights, exact=True)
        truth = layer.double()(x.double())[0]
    assert (found - truth).abs().max() <= 1e-6 * truth.abs().max()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("rows", "steps", "hidden"), [(64, 257, 128), (13, 40, 64), (13, 40, 32), (13, 40, 16)]
)
def test_rounded_products_stay_near(rows: int, steps: int, hidden: int) -> None:
    """Eleven bits of each factor, at the paper's size and at smaller ones."""
    layer = layer_of(16, hidden, "cuda")
    x = torch.randn(rows, steps, 16, device="cuda").requires_grad_()
    start = torch.zeros(rows, hidden, device="cuda")
    learned = [x, *layer.parameters()]
    found = gru.fused_gru(x, start, list(layer.parameters()))
    before = torch.backends.cudnn.rnn.fp32_precision
    torch.backends.cudnn.rnn.fp32_precision = "ieee"
    try:
        truth, _ = layer(x, start[None])
        slope = torch.randn_like(truth)
        gradients = torch.autograd.grad(truth, learned, slope)
    finally:
        torch.backends.cudnn.rnn.fp32_precision = before
    assert (found - truth).norm() <= 2e-3 * truth.norm()
    for one, other in zip(torch.autograd.grad(found, learned, slope), gradients, strict=True):
        assert (one - other).norm() <= 1e-2 * other.norm()


@pytest.mark.parametrize(
    ("hidden", "shared", "fits"),
    [(128, 232_448, True), (128, 166_912, False), (64, 101_376, True), (256, 232_448, False),
     (100, 232_448, False), (8, 232_448, False)],
)  # fmt: skip
def test_layers_that_do_not_fit_go_elsewhere(hidden: int, shared: int, fits: bool) -> None:
    assert fits_kernels(hidden, shared) is fits


def test_a_cpu_takes_pytorchs_own() -> None:
    layer = layer_of(4, 16, "cpu").float()
    assert not gru.takes_lengths(torch.zeros(2, 3, 4), list(layer.parameters()))
