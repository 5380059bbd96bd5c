"""The Kalman layer against a textbook filter, its limits, its options, its beliefs."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kalmanac._encoders.kalman import KalmanLayer
from kalmanac._encoders.kalman_encoder import KalmanEncoder
from kalmanac._encoders.registry import ENCODERS, make_encoder
from kalmanac._encoders.ssm import SSMLayer
from tests.encoders.cases import E, assert_close, flags, sequence

F64 = torch.float64


def layer_away_from_start(d_state: int = 5, **options: bool) -> KalmanLayer:
    torch.manual_seed(3)
    layer = KalmanLayer(E, d_state, **options).double()
    with torch.no_grad():
        for p in layer.parameters():
            p.add_(0.2 * torch.randn(p.shape))
        layer.dynamics.raw_step_size.fill_(-2.0)
    return layer


@pytest.mark.parametrize("input_signal", [True, False])
@pytest.mark.parametrize("input_process_noise", [True, False])
def test_layer_equals_a_textbook_filter_fed_with_its_own_signals(
    input_signal: bool, input_process_noise: bool
) -> None:
    """Full matrices, the paper's Eqs. 2 to 5, numpy."""
    layer = layer_away_from_start(
        input_signal=input_signal, input_process_noise=input_process_noise
    )
    batch, steps, n = 2, 6, layer.d_state
    h, observed = sequence(batch, steps, F64), flags(batch, steps, 0.7)
    z, last = layer(h, observed=observed)

    names = "u" * input_signal + "wr" + "q" * input_process_noise
    raw = h @ layer.in_projection.weight.T + layer.in_projection.bias
    signal = dict(zip(names, raw.detach().split(n, -1), strict=True))
    rate = -np.exp(layer.dynamics.log_rate.detach().numpy())
    size = np.log1p(np.exp(layer.dynamics.raw_step_size.item()))
    A = np.diag(np.exp(size * rate))
    gain = layer.dynamics.input_gain
    B = np.zeros((n, n)) if gain is None else np.diag((np.exp(size * rate) - 1) / rate)
    if gain is not None:
        B = B @ np.diag(gain.detach().numpy())
    weight, bias = (p.detach().numpy() for p in layer.out_projection.parameters())
    for b in range(batch):
        x, P = np.zeros(n), np.eye(n)
        for t in range(steps):
            noise = signal["q"][b, t] if input_process_noise else layer.raw_process_noise
            Q = np.diag(F.softplus(noise.detach()).numpy() + 1e-4)
            u = signal["u"][b, t].numpy() if input_signal else np.zeros(n)
            x, P = A @ x + B @ u, A @ P @ A.T + Q
            if observed[b, t]:
                R = np.diag(F.softplus(signal["r"][b, t]).numpy() + 1e-3)
                K = P @ np.linalg.inv(P + R)
                x, P = x + K @ (signal["w"][b, t].numpy() - x), (np.eye(n) - K) @ P
            np.testing.assert_allclose(z[b, t].detach(), weight @ x + bias, atol=1e-10)
        np.testing.assert_allclose(last.mean[b].detach(), x, atol=1e-10)
        np.testing.assert_allclose(last.variance[b].detach(), np.diag(P), atol=1e-10)


def test_infinite_reading_noise_makes_it_a_vssm() -> None:
    """The paper's own identity (section 5.1)."""
    kalman = layer_away_from_start()
    n = kalman.d_state
    vanilla = SSMLayer(E, n).double()
    with torch.no_grad():
        vanilla.in_projection.weight.copy_(kalman.in_projection.weight[:n])
        vanilla.in_projection.bias.copy_(kalman.in_projection.bias[:n])
    vanilla.dynamics.load_state_dict(kalman.dynamics.state_dict())
    vanilla.out_projection.load_state_dict(kalman.out_projection.state_dict())
    h = sequence(2, 30, F64)
    expected, last = vanilla(h)
    apart = []
    for noise in (1e2, 1e4, 1e14):
        with torch.no_grad():
            kalman.in_projection.weight[2 * n :].zero_()
            kalman.in_projection.bias[2 * n :].fill_(noise)
        z, belief = kalman(h)
        apart.append((z - expected).abs().max().item())
    assert apart[0] > 10 * apart[1] > 1e-6, "the noise has to matter before it is infinite"
    assert_close(z, expected, 1e-10)
    assert_close(belief.mean, last.latent, 1e-10)


def test_missing_readings_let_the_variance_grow_and_the_input_still_counts() -> None:
    layer = layer_away_from_start()
    h = sequence(1, 8, F64).requires_grad_()
    observed = torch.tensor([[True, True, False, False, False, True, True, True]])
    seen = layer.beliefs(h, observed=observed)
    variance = seen.posterior.variance[0].detach()
    assert (variance[2] < variance[3]).all()
    assert (variance[3] < variance[4]).all()
    assert not seen.gain[0, 2:5].any()
    assert (seen.gain[0, [0, 1, 5, 6, 7]] > 0).all()
    (into_h,) = torch.autograd.grad(seen.posterior.mean[0, 4].sum(), h)
    assert into_h[0, 3].any(), "u is projected from the h of a missing reading too"


@pytest.mark.parametrize(
    "settings",
    [{"layers": 1}, {"layers": 3, "norm": True}, {"input_process_noise": True}],
    ids=str,
)
@pytest.mark.parametrize("name", [n for n in ENCODERS if "kf" in n])
def test_beliefs_are_those_behind_the_output(name: str, settings: dict[str, int]) -> None:
    torch.manual_seed(0)
    encoder = make_encoder(name, d_model=E, d_state=5, **settings).double()
    assert isinstance(encoder, KalmanEncoder)
    layers, lengths = settings.get("layers", 1), [9, 4, 0]
    h, reset, observed = sequence(3, 9, F64), flags(3, 9, 0.2), flags(3, 9, 0.8, seed=4)
    seen = encoder.beliefs(h, lengths, reset=reset, observed=observed)
    shapes = {x.shape for x in (*seen.prior, *seen.posterior, seen.gain)}
    assert shapes == {(3, layers, 9, 5)}
    assert ((seen.gain >= 0) & (seen.gain < 1)).all()
    _, last = encoder(h, lengths=lengths, reset=reset, observed=observed)
    for row, n in enumerate(lengths):
        if n:
            assert_close(last[0][row], seen.posterior.mean[row, :, n - 1], 1e-12)
            assert_close(last[1][row], seen.posterior.variance[row, :, n - 1], 1e-12)
            kept = (1 - seen.gain) * seen.prior.variance
            assert_close(seen.posterior.variance[row, :, :n], kept[row, :, :n], 1e-10)


def test_initial_values_are_those_of_the_papers_table() -> None:
    layer = KalmanLayer(16, 128)
    a, b = layer.dynamics()
    assert b is not None
    assert layer.dynamics.raw_step_size.item() == -7.0
    assert_close(layer.dynamics.log_rate.exp(), torch.arange(1.0, 129.0), 1e-6)
    assert a[0].item() == pytest.approx(0.99909, abs=1e-5)
    assert a[-1].item() == pytest.approx(0.890, abs=1e-3)
    assert b[0].item() == pytest.approx(9.1e-4, rel=0.01)
    noise = F.softplus(layer.raw_process_noise) + layer.q_min
    assert_close(noise, torch.ones(128), 1e-6)
    belief = layer.initial_state(2)
    assert not belief.mean.any()
    assert (belief.variance == 1).all()

    for start in (1.0, 0.01):
        dependent = KalmanLayer(16, 128, input_process_noise=True, process_noise=start)
        seen = dependent.beliefs(torch.zeros(1, 1, 16))
        expected = dependent.dynamics()[0] ** 2 + start  # a² · 1 + q
        assert_close(seen.prior.variance[0, 0], expected, 1e-5)


def test_posterior_variance_reaches_the_output_only_as_a_feature() -> None:
    h = sequence(1, 4, F64)

    def moved_by_variance(feature: bool) -> Tensor:
        layer = layer_away_from_start(variance_feature=feature)
        mean, _ = layer.initial_state(1)
        hidden = torch.zeros(1, 4, dtype=torch.bool)  # with no reading, P does not move the mean
        (z, _), (y, _) = (
            layer(h, (mean, torch.full_like(mean, P)), observed=hidden) for P in (1.0, 2.0)
        )
        return (z - y).abs().max()

    assert moved_by_variance(True) > 1e-3
    assert moved_by_variance(False) == 0


def test_floors_keep_the_noise_away_from_zero() -> None:
    layer = layer_away_from_start()
    with torch.no_grad():
        layer.in_projection.bias[-layer.d_state :].fill_(-1e6)
        layer.raw_process_noise.fill_(-1e6)
    seen = layer.beliefs(sequence(1, 50, F64))
    q, r = 1e-4, 1e-3
    a = layer.dynamics()[0]
    P = seen.posterior.variance[0, -1]
    p = a * a * P + q
    assert_close(P, p * r / (p + r), 1e-9)
    assert (seen.gain[0, -1] > 0).all()


def test_used_as_nn_gru_is_used() -> None:
    h = sequence(2, 10)
    for memory in (torch.nn.GRU(E, 8, batch_first=True), KalmanLayer(E, 8)):
        y, state = memory(h)
        y_more, _ = memory(h, state)
        assert y.shape[:2] == y_more.shape[:2] == (2, 10)
        y.sum().backward()


def test_many_layers_and_batches_at_once_under_vmap() -> None:
    layer, h = layer_away_from_start(), sequence(6, 5, F64).unflatten(0, (3, 2))
    lengths = torch.tensor([[5, 2], [0, 5], [3, 4]])
    reset, observed = (flags(6, 5, 0.3, seed).unflatten(0, (3, 2)) for seed in (2, 3))

    def run(h: Tensor, lengths: Tensor, reset: Tensor, observed: Tensor) -> tuple[Tensor, ...]:
        z, last = layer(h, lengths=lengths, reset=reset, observed=observed)
        return z, *last

    found = torch.func.vmap(run)(h, lengths, reset, observed)
    for i in range(3):
        expected = run(h[i], lengths[i], reset[i], observed[i])
        for x, y in zip(found, expected, strict=True):
            assert_close(x[i], y, 1e-10)

    def loss(parameters: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(layer, parameters, (h[0],))[0].square().sum()

    one = dict(layer.named_parameters())
    many = {name: torch.stack([p, 1.1 * p]).detach() for name, p in one.items()}
    slopes = torch.func.vmap(torch.func.grad(loss))(many)
    expected = torch.autograd.grad(layer(h[0])[0].square().sum(), list(one.values()))
    for x, y in zip(slopes.values(), expected, strict=True):
        assert_close(x[0], y, 1e-10)


def test_a_subclass_with_its_own_forward_learns_by_it() -> None:
    class Doubled(KalmanEncoder):
        def forward(self, h, state=None, **known):  # type: ignore[no-untyped-def]
            z, state = super().forward(h, state, **known)
            return 2 * z, state

    torch.manual_seed(0)
    embedder, x = torch.nn.Linear(3, E), torch.randn(2, 4, 3)
    layers = [KalmanLayer(E, 4)]
    plain, own = KalmanEncoder(layers), Doubled(layers)
    known = {"lengths": None, "reset": None, "observed": None}
    expected = 2 * plain.represent_embedded(x, embedder, **known)
    torch.testing.assert_close(own.represent_embedded(x, embedder, **known), expected)
