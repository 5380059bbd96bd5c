"""Numbers at the ends of what float32 can hold: the CPU kernels are finite where the truth is."""

import itertools

import pytest
import torch

from kalmanac._ops.scan.kalman import kalman_scan

SMALLEST = 1e-45  # float32's, a denormal
DECAYS = (-1.5, 0.0, 0.99, 1.5, 3.0)
NOISES = (SMALLEST, 1e-40, 1e-38, 1e-20, 1.0, 1e20, 1e30, 1e37, 3e38)
NAMES = ("mean", "variance", "final mean", "final variance", "a", "u", "q", "w", "r")


def answers(backend, signals, a, q, observed=None):
    """Beliefs and gradients by name, for signals u, w, r (B, T, N)."""
    given = [x.clone().requires_grad_() for x in (a, signals[0], q, *signals[1:])]
    posterior, final = kalman_scan(*given, backend=backend, observed=observed)
    found = [*posterior, *final]
    gradients = torch.autograd.grad(sum(x.double().sum() for x in posterior), given)
    return dict(zip(NAMES, [*found, *gradients], strict=True))


def grid(steps, size):
    """Every pair of noises in the rows, every decay in the channels."""
    pairs = torch.tensor(list(itertools.product(NOISES, NOISES)))
    shape = (len(pairs), steps, len(DECAYS))
    rng = torch.Generator().manual_seed(0)
    u, w = (size * torch.randn(shape, generator=rng) for _ in range(2))
    q, r = (x[:, None, None].expand(shape) for x in pairs.unbind(1))
    return torch.tensor(DECAYS), (u, w, r), q


def assert_finite_where_the_reference_is(a, signals, q, observed=None, names=NAMES):
    truth, found = (answers(name, signals, a, q, observed) for name in ("reference", "cpu"))
    for name in names:
        lost = truth[name].isfinite() & ~found[name].isfinite()
        assert not lost.any(), (name, lost.nonzero()[0])
    return truth, found


@pytest.mark.parametrize("size", [SMALLEST, 1e-40, 1.0])
def test_beliefs_and_gradients_are_finite_where_those_of_the_reference_are(size):
    assert_finite_where_the_reference_is(*grid(20, size))


def test_beliefs_of_huge_signals_are_finite_where_those_of_the_reference_are():
    """Their gradients need squares, which are no numbers any more."""
    assert_finite_where_the_reference_is(*grid(20, 1e30), names=NAMES[:4])


@pytest.mark.parametrize("decay", [0.5, 1.5])
@pytest.mark.parametrize("noise", [1e-30, 1e30, 1e37, 3e38])
def test_extreme_noise_is_filtered_as_it_should_be(decay, noise):
    a, signals, q = torch.tensor([decay]), torch.randn(3, 2, 30, 1), torch.tensor([noise])
    signals = (*signals[:2], torch.full((2, 30, 1), noise))
    truth, found = (answers(name, signals, a, q) for name in ("reference", "cpu"))
    for name in NAMES[:4]:
        torch.testing.assert_close(found[name], truth[name], rtol=1e-5, atol=1e-6)


def test_readings_are_made_use_of_though_nothing_was_left_of_the_belief():
    """Without a reading, the variance and the mean of a growing state leave float32."""
    observed = torch.zeros(1, 300, dtype=torch.bool)
    observed[:, 280:] = True
    signals = torch.ones(3, 1, 300, 1)
    a, q = torch.tensor([1.5]), torch.ones(1)
    _, found = assert_finite_where_the_reference_is(a, signals, q, observed, names=NAMES[2:4])
    truth = answers("reference", signals, a, q, observed)
    for name in NAMES[2:4]:
        torch.testing.assert_close(found[name], truth[name])


def test_no_noise_at_all_keeps_the_variance_at_zero():
    posterior, _ = kalman_scan(
        torch.full((1,), 0.9), None, torch.zeros(1), torch.ones(1, 4, 1), torch.zeros(1, 4, 1),
        backend="cpu",
    )  # fmt: skip
    assert posterior.variance.flatten().tolist() == [0.0] * 4
    assert posterior.mean.flatten().tolist() == [1.0] * 4, "the reading is taken"
