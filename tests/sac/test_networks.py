"""Sizes, settings and the wiring of actor and critic."""

import math
from typing import Any

import pytest
import torch

from kalmanac._encoders.parameters import count_parameters
from kalmanac._observation import Sizes
from kalmanac._ops import mlp
from kalmanac._sac.config import AgentSettings
from kalmanac._sac.learner import Learner
from kalmanac._sac.networks import (
    CLOCK,
    Actor,
    Critic,
    Perceptron,
    TwinPerceptron,
    read_clock,
    read_history,
)
from tests.sac.cases import (
    CONTINUOUS,
    DISCRETE,
    batch,
    both_kinds,
    every_encoder,
    make_learner,
    observing,
)

WALKER_RUN = Sizes(observation=24, action=6, discrete=False)
BEST_ARM = Sizes(observation=1, action=3, discrete=True)
SMALL: dict[str, Any] = {"actor_hidden": (128,), "critic_hidden": (256,)}


@pytest.mark.parametrize(
    ("sizes", "encoder", "settings", "total"),
    [
        (WALKER_RUN, "vssm", {}, 245_520),
        (WALKER_RUN, "vssm+kf", {}, 254_480),
        (WALKER_RUN, "mamba", {}, 240_974),
        (WALKER_RUN, "gru", {}, 352_782),
        (WALKER_RUN, "transformer", {}, 255_758),
        (WALKER_RUN, "vssm+kf", {"encoder_settings": {"norm": True}}, 254_480 + 32),
        (BEST_ARM, "vssm", SMALL, 22_603),
        (BEST_ARM, "vssm+kf", SMALL, 31_563),
    ],
)
def test_parameter_totals(sizes: Sizes, encoder: str, settings: dict[str, Any], total: int) -> None:
    learner = Learner(AgentSettings(encoder=encoder, **settings), sizes)
    assert count_parameters(learner.actor) + count_parameters(learner.critic) == total
    assert count_parameters(learner.target) == 0


def test_memoryless_has_heads_only_and_no_previous_action() -> None:
    learner = make_learner(DISCRETE, "memoryless")
    assert {name.split(".")[0] for name, _ in learner.actor.named_parameters()} == {"head"}
    data = batch(DISCRETE)
    other = data._replace(previous_action=torch.randn_like(data.previous_action))
    for name, x in learner.losses_of(data)[0].items():
        assert torch.equal(x, learner.losses_of(other)[0][name])


@pytest.mark.parametrize("seen", [True, False])
def test_previous_action_is_seen_unless_switched_off(seen: bool) -> None:
    learner = make_learner(DISCRETE, previous_action=seen)
    data = batch(DISCRETE)
    other = data._replace(previous_action=torch.randn_like(data.previous_action))
    before, after = (learner.losses_of(x)[0]["critic_loss"] for x in (data, other))
    assert bool(before != after) is seen


@both_kinds
def test_only_the_critic_sees_the_privileged_state(sizes: Sizes) -> None:
    learner = make_learner(sizes, privileged_critic=True)
    data = batch(sizes)
    assert data.observation.privileged is not None
    other = observing(data, privileged=data.observation.privileged + 1)
    state = learner.learning.get_state()
    before = learner.losses_of(data)[1]
    learner.learning.set_state(state)
    after = learner.losses_of(other)[1]
    assert before["train/q_mean"] != after["train/q_mean"]
    assert before["train/target_mean"] != after["train/target_mean"]
    assert before["train/entropy"] == after["train/entropy"]
    with pytest.raises(ValueError, match="privileged: got shape None"):
        learner.update(observing(data, privileged=None))
    with pytest.raises(ValueError, match="privileged_critic: got True"):
        Learner(AgentSettings(privileged_critic=True), BEST_ARM)


@both_kinds
def test_only_the_critic_sees_the_clock(sizes: Sizes) -> None:
    learner, plain = make_learner(sizes, critic_clock=True), make_learner(sizes)
    shape = learner.actor.network.features, learner.critic.network.features
    assert shape == (plain.actor.network.features, plain.critic.network.features + CLOCK)
    data = batch(sizes)
    tokens = data.previous_action.shape[1]
    elapsed = torch.arange(tokens).expand(len(data.lengths), tokens)
    state = learner.learning.get_state()
    before = learner.losses_of(data._replace(elapsed=elapsed))[1]
    learner.learning.set_state(state)
    after = learner.losses_of(data._replace(elapsed=elapsed + 40))[1]
    assert before["train/q_mean"] != after["train/q_mean"]
    assert before["train/target_mean"] != after["train/target_mean"]
    assert before["train/entropy"] == after["train/entropy"]
    with pytest.raises(ValueError, match=r"batch\.elapsed: got None"):
        learner.update(data)
    with pytest.raises(ValueError, match=r"batch\.elapsed: got shape"):
        learner.update(data._replace(elapsed=elapsed[:, 1:]))


def test_the_clock_moves_at_every_step_of_a_long_episode() -> None:
    clock = read_clock(torch.arange(1001))
    assert clock.shape == (1001, CLOCK)
    assert (clock[0] == 0).all()
    assert ((clock >= 0) & (clock <= 1)).all()
    spans = torch.tensor([16, 64, 256, 1024])
    torch.testing.assert_close(clock[50], 1 - torch.exp(-50 / spans))
    # by a third of what a fresh episode's first step moves the slowest of them
    assert (clock.diff(dim=0).amax(1) > 3e-4).all()


def test_the_skip_carries_the_observation_to_the_heads() -> None:
    for network in (make_learner(DISCRETE).actor.network, make_learner(DISCRETE).critic.network):
        history = read_history(batch(DISCRETE))
        assert torch.equal(network(history)[..., -2:], history.observation.vector)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads with 16 hidden numbers a row take 16 rows at once."""
    monkeypatch.setattr(mlp, "CPU_NUMBERS", 256)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("rows", [0, 5, 16, 16 * 2 + 3])
@pytest.mark.parametrize("widths", [(3, 2), (3, 8, 2), (3, 8, 9), (3, 8, 6, 1)])
def test_twins_are_two_perceptrons(rows: int, widths: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    twin, x = TwinPerceptron(widths), torch.randn(rows, 1, 3, requires_grad=True)
    assert not torch.equal(twin.weights[0][0], twin.weights[0][1])
    for bias in twin.biases:
        torch.nn.init.normal_(bias)
    y = twin(x)
    for k in range(2):
        alone = Perceptron(widths)
        with torch.no_grad():
            for layer, weight, bias in zip(alone.layers, twin.weights, twin.biases, strict=True):
                layer.weight.copy_(weight[k].T)
                layer.bias.copy_(bias[k, 0])
        torch.testing.assert_close(y[k], alone(x))
        (mine,) = torch.autograd.grad(y[k].sum(), x, retain_graph=True)
        (its,) = torch.autograd.grad(alone(x).sum(), x)
        torch.testing.assert_close(mine, its)
    (frozen,) = torch.autograd.grad(twin(x, frozen=True).sum(), x)
    torch.testing.assert_close(frozen, torch.autograd.grad(y.sum(), x, retain_graph=True)[0])
    assert not any(p.grad is not None for p in twin.parameters())
    only_x = twin(x.detach(), frozen=True)
    assert not only_x.requires_grad


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("rows", [0, 5, 16 * 2 + 3])
@pytest.mark.parametrize("widths", [(5, 2), (5, 8, 2), (5, 8, 9), (5, 8, 6, 1), (5, 8, 9, 7, 9)])
@pytest.mark.parametrize("kind", [Perceptron, TwinPerceptron])
def test_gradients_of_heads_are_those_of_plain_layers(
    kind: type[Perceptron] | type[TwinPerceptron], widths: tuple[int, ...], rows: int
) -> None:
    torch.manual_seed(0)
    head = kind(widths).double()
    with torch.no_grad():
        for p in head.parameters():
            p.normal_()
    parts = [torch.randn(rows, 1, n, dtype=torch.float64) for n in (3, 1, 1)]
    parts[0].requires_grad_()
    parts[2].requires_grad_()
    y = head(*parts)
    if isinstance(head, Perceptron):
        layers = [(x.weight.mT, x.bias) for x in head.linear()]
    else:
        layers = list(zip(head.weights[:], head.biases[:], strict=True))
    truth = torch.cat(parts, -1).squeeze(1)
    for i, (weight, bias) in enumerate(layers):
        truth = (truth.relu() if i else truth) @ weight + bias
    truth = truth.unsqueeze(-2)
    torch.testing.assert_close(y, truth)
    pull = torch.randn_like(y)
    into = [parts[0], parts[2], *head.parameters()]
    for actual, expected in zip(
        torch.autograd.grad(y, into, pull), torch.autograd.grad(truth, into, pull), strict=True
    ):
        torch.testing.assert_close(actual, expected)


def test_heads_start_orthogonal() -> None:
    learner = Learner(AgentSettings(head_gain=2.0), WALKER_RUN)
    for weight in (learner.actor.head.layers[1].weight, *learner.critic.head.weights[1]):
        torch.testing.assert_close(weight @ weight.T, 4 * torch.eye(256), rtol=1e-4, atol=1e-4)
    assert not any(bias.any() for bias in learner.critic.head.biases)


def test_the_transformer_window_is_the_context_unless_given() -> None:
    def window(**settings: Any) -> int:
        encoder = Actor(DISCRETE, AgentSettings(encoder="transformer", **settings)).network.encoder
        assert encoder is not None
        return encoder.window

    assert window(context_length=7, burn_in=2) == 9
    assert window(context_length=9, encoder_settings={"window": 5}) == 5
    assert window() == 64
    Critic(DISCRETE, AgentSettings(encoder="vssm", context_length=9))


def test_target_entropies() -> None:
    settings = AgentSettings()
    assert settings.entropy_goal(4, discrete=True) == pytest.approx(0.7 * math.log(4))
    assert settings.entropy_goal(6, discrete=False) == -6.0
    low = AgentSettings(target_entropy_scale=0.35)
    assert low.entropy_goal(16, discrete=True) == pytest.approx(0.35 * math.log(16))
    assert AgentSettings(target_entropy=-1.0).entropy_goal(3, discrete=False) == -1.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"encoder": "vsmm"}, "encoder: got 'vsmm'"),
        ({"encoder_settings": {"depth": 2}}, "encoder_settings: got 'depth'"),
        ({"encoder_settings": {"d_model": 8}}, "expected it as embedding"),
        ({"gamma": 1.1}, "gamma: got 1.1"),
        ({"tau": 0.0}, "tau: got 0.0"),
        ({"learning_rate": math.nan}, "learning_rate: got nan"),
        ({"ent_coef": "often"}, "ent_coef: got 'often'"),
        ({"ent_coef": -0.1}, "ent_coef: got -0.1"),
        ({"target_entropy": "low"}, "target_entropy: got 'low'"),
        ({"actor_hidden": (0,)}, "actor_hidden"),
        ({"context_length": 0}, "context_length: got 0"),
        ({"max_grad_norm": 0.0}, "max_grad_norm: got 0.0"),
        ({"log_std_range": (1.0, 0.0)}, "log_std_range"),
        ({"adam_betas": (0.9, 1.0)}, "adam_betas"),
        ({"adam_betas": (0.9,)}, "adam_betas"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        AgentSettings(**settings)


@every_encoder
def test_every_encoder_makes_both_kinds_of_agents(encoder: str) -> None:
    for sizes in (DISCRETE, CONTINUOUS):
        learner = make_learner(sizes, encoder)
        metrics = learner.update(batch(sizes))
        assert all(x.isfinite() for x in metrics.values())
