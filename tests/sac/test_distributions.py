"""Policies: densities, exact sums and what they draw."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kalmanac._ops.sac_losses import Shares
from kalmanac._sac.distributions import Categorical, SquashedGaussian


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (1.5, -1.0), (-4.0, 1.0), (3.0, -3.0)])
def test_squashed_density_integrates_to_one(mean: float, log_std: float) -> None:
    policy = SquashedGaussian(1)
    raw = torch.linspace(-60, 60, 400_001, dtype=torch.float64)
    parameters = torch.tensor([mean, log_std], dtype=torch.float64).expand(raw.numel(), 2)
    density = policy.log_density(parameters, raw[:, None]).exp()
    # da = (1 - tanh² u) du, and cosh keeps what 1 - tanh² would lose
    assert torch.trapezoid(density / torch.cosh(raw).square(), raw).item() == pytest.approx(1.0)


@given(mean=st.floats(-3, 3), log_std=st.floats(-2, 2), action=st.floats(-0.999999, 0.999999))
def test_squashed_density_equals_the_change_of_variables(
    mean: float, log_std: float, action: float
) -> None:
    raw, std = math.atanh(action), math.exp(log_std)
    normal = -0.5 * ((raw - mean) / std) ** 2 - log_std - 0.5 * math.log(2 * math.pi)
    truth = normal - math.log((1 - action) * (1 + action))
    parameters = torch.tensor([mean, log_std], dtype=torch.float64)
    actual = SquashedGaussian(1).log_density(parameters, torch.tensor([raw], dtype=torch.float64))
    assert actual.item() == pytest.approx(truth, rel=1e-9, abs=1e-8)


@pytest.mark.parametrize("raw", [-30.0, -9.5, 9.5, 30.0])
def test_density_and_its_gradient_stay_finite_where_float_actions_round_to_one(raw: float) -> None:
    parameters = torch.tensor([raw, 0.0], requires_grad=True)
    at = torch.tensor([raw], requires_grad=True)
    actual = SquashedGaussian(1).log_density(parameters, at)
    # 1 - tanh² u = 4 e^(-2|u|) up to e^(-4|u|)
    truth = -0.5 * math.log(2 * math.pi) - math.log(4) + 2 * abs(raw)
    assert actual.item() == pytest.approx(truth, rel=1e-5)
    actual.backward()
    assert at.grad is not None
    assert at.grad.item() == pytest.approx(math.copysign(2.0, raw), rel=1e-5)


def test_dimensions_of_a_density_add_up() -> None:
    one, three = SquashedGaussian(1), SquashedGaussian(3)
    mean, log_std, raw = torch.randn(3, 5, 3, generator=seeded())
    whole = three.log_density(torch.cat([mean, log_std], -1), raw)
    parts = sum(
        one.log_density(torch.stack([mean[:, i], log_std[:, i]], -1), raw[:, i : i + 1])
        for i in range(3)
    )
    torch.testing.assert_close(whole, parts)


def test_log_std_is_clamped() -> None:
    policy = SquashedGaussian(1, (-3.0, 1.0))
    raw = torch.tensor([0.3])
    for asked, kept in ((-50.0, -3.0), (50.0, 1.0)):
        torch.testing.assert_close(
            policy.log_density(torch.tensor([0.3, asked]), raw),
            policy.log_density(torch.tensor([0.3, kept]), raw),
        )


def test_gaussian_entropy_is_that_of_its_own_sample() -> None:
    policy = SquashedGaussian(2)
    parameters = 0.3 * torch.randn(4, 5, 4, generator=seeded(), dtype=torch.float64)
    entropy, action = policy.output(parameters, seeded(1))
    assert torch.equal(action, policy.sample(parameters, seeded(1)))
    torch.testing.assert_close(entropy, -policy.log_density(parameters, torch.atanh(action)))


def test_gaussian_gradient_is_reparameterized() -> None:
    parameters = torch.tensor([[0.2, -0.5]], requires_grad=True)
    policy = SquashedGaussian(1)
    (3 * policy.output(parameters, seeded()).action).sum().backward()
    noise = torch.empty(1, 1).normal_(generator=seeded()).item()
    slope = 3 * (1 - math.tanh(0.2 + math.exp(-0.5) * noise) ** 2)
    expected = torch.tensor([[slope, slope * math.exp(-0.5) * noise]])
    torch.testing.assert_close(parameters.grad, expected)


def test_discrete_soft_value_equals_monte_carlo() -> None:
    policy, alpha = Categorical(4), torch.tensor(0.7)
    logits = torch.tensor([0.3, -1.0, 1.2, 0.0])
    q = torch.tensor([[1.0, 2.0, -3.0, 0.5], [2.0, 1.0, -1.0, 0.0]])
    shares = Shares.of(logits)
    value, entropy = shares.soft_value(q, alpha), shares.entropy
    drawn = policy.sample(logits.expand(400_000, 4), seeded(1))
    log_p = logits.log_softmax(0)[drawn]
    samples = q.amin(0)[drawn] - alpha * log_p
    assert value.item() == pytest.approx(samples.mean().item(), abs=0.01)
    assert entropy.item() == pytest.approx(-log_p.mean().item(), abs=0.01)


@given(logits=st.lists(st.floats(-5, 5), min_size=2, max_size=5), seed=st.integers(0, 99))
def test_categorical_draws_its_probabilities(logits: list[float], seed: int) -> None:
    parameters = torch.tensor(logits)
    n = 20_000
    drawn = Categorical(len(logits)).sample(parameters.expand(n, -1), seeded(seed))
    assert drawn.dtype == torch.int64
    share = drawn.bincount(minlength=len(logits)) / n
    assert (share - parameters.softmax(0)).abs().max() < 6 * 0.5 / math.sqrt(n)


def test_an_impossible_action_has_no_say() -> None:
    logits = torch.tensor([0.0, 0.0, -1e4], requires_grad=True)
    q = torch.tensor([[1.0, 2.0, 1e6]]).expand(2, 3)
    shares = Shares.of(logits)
    value = shares.soft_value(q, torch.tensor(1.0))
    assert shares.entropy.item() == pytest.approx(math.log(2))
    assert value.item() == pytest.approx(1.5 + math.log(2))
    value.backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_modes_and_inputs() -> None:
    discrete, gaussian = Categorical(3), SquashedGaussian(2)
    best = discrete.mode(torch.tensor([[0.0, 2.0, 1.0], [3.0, 2.0, 1.0]]))
    assert best.tolist() == [1, 0]
    assert discrete.as_input(best).tolist() == [[0, 1, 0], [1, 0, 0]]
    assert discrete.as_input(best).dtype == torch.float32
    mode = gaussian.mode(torch.tensor([[0.5, -1.0, 9.0, -9.0]]))
    torch.testing.assert_close(mode, torch.tensor([[0.5, -1.0]]).tanh())
    assert gaussian.as_input(mode) is mode
