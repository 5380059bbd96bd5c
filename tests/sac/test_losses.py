"""The losses against numbers worked out by hand, as functions and through a learner."""

import copy
import math
from typing import get_args

import pytest
import torch

from kalmanac._observation import Observation, Sizes
from kalmanac._ops import sac_losses as losses
from kalmanac._ops.sac_losses import Counted, Shares
from kalmanac._replay.sampling import Batch
from kalmanac._sac.config import AgentSettings
from kalmanac._sac.learner import Learner
from kalmanac._sac.networks import read_history
from kalmanac._settings import ActorObjective

NAN = math.nan


def test_means_count_valid_steps_only() -> None:
    valid = torch.tensor([[True, True, False], [True, False, False]])
    x = torch.tensor([[1.0, 2.0, NAN], [6.0, math.inf, 1e30]])
    assert Counted.of(valid).mean(x) == 3.0
    assert Counted.of(valid).mean(torch.stack([x, 3 * x])).tolist() == [3.0, 9.0]
    assert Counted.of(torch.zeros_like(valid)).mean(x) == 0.0


def test_bootstrap_passes_through_truncation_and_stops_at_termination() -> None:
    # three steps: an ordinary one, a truncated one (no mark of its own), a terminated one
    reward = torch.tensor([[1.0, 2.0, 3.0]])
    terminated = torch.tensor([[False, False, True]])
    target = losses.bootstrap_target(reward, terminated, torch.tensor([[10.0, 20.0, 30.0]]), 0.5)
    assert target.tolist() == [[6.0, 12.0, 3.0]]


def test_critic_loss_adds_the_twins_and_averages_the_steps() -> None:
    q = torch.tensor([[[1.0, 2.0, NAN]], [[0.0, 4.0, 5.0]]], requires_grad=True)
    target = torch.tensor([[2.0, 2.0, NAN]])
    loss = losses.critic_loss(q, target, Counted.of(torch.tensor([[True, True, False]])))
    assert loss.item() == pytest.approx((1 + 0) / 2 + (4 + 4) / 2)
    loss.backward()
    assert q.grad is not None
    assert q.grad.tolist() == [[[-1.0, 0.0, 0.0]], [[-2.0, 2.0, 0.0]]]


def test_actor_loss_is_minus_the_mean_value() -> None:
    value = torch.tensor([[1.0, 5.0, NAN]], requires_grad=True)
    loss = losses.actor_loss(value, Counted.of(torch.tensor([[True, True, False]])))
    assert loss.item() == -3.0
    loss.backward()
    assert value.grad is not None
    assert value.grad.tolist() == [[-0.5, -0.5, 0.0]]


def test_cross_entropy_pulls_towards_the_softmax_of_q() -> None:
    logits = torch.tensor([[[0.0, math.log(3.0)], [NAN, 1.0]]], requires_grad=True)
    q = torch.tensor([[[[2.0, 2.0], [NAN, 1.0]]], [[[5.0, 1.0], [0.0, 1.0]]]])  # least: 2 and 1
    valid = torch.tensor([[True, False]])
    log_policy = torch.log_softmax(logits.masked_fill(~valid[..., None], 0), -1)
    loss = losses.cross_entropy_loss(log_policy, q, torch.tensor(0.5), Counted.of(valid))
    p = 1 / (1 + math.exp(-2))  # softmax(2 / 0.5, 1 / 0.5)
    assert loss.item() == pytest.approx(-0.5 * (p * math.log(0.25) + (1 - p) * math.log(0.75)))
    loss.backward()
    assert logits.grad is not None
    expected = [[0.5 * (0.25 - p), 0.5 * (0.75 - (1 - p))], [0.0, 0.0]]
    torch.testing.assert_close(logits.grad[0], torch.tensor(expected))


@pytest.mark.parametrize(
    ("objective", "comes_back"), [("value", False), ("cross-entropy", True), ("mixed", True)]
)
def test_an_action_whose_probability_is_zero_comes_back_only_by_cross_entropy(
    objective: str, comes_back: bool
) -> None:
    sizes = Sizes(1, 2, True)
    settings = AgentSettings(encoder="memoryless", actor_objective=objective, ent_coef=0.1)
    learner = Learner(settings, sizes)
    with torch.no_grad():
        learner.actor.head.linear()[-1].bias[1] = -400.0
        learner.critic.head.biases[-1][..., 1] = 100.0
    actual, _ = learner.losses_of(three_steps(sizes, torch.tensor([[[1.0, 0.0]] * 3])))
    (slope,) = torch.autograd.grad(actual["actor_loss"], learner.actor.head.linear()[-1].bias)
    assert bool(slope.any()) is comes_back
    if comes_back:
        assert slope[1] < 0, "its logit rises"


def test_every_objective_has_its_weights() -> None:
    assert {"auto", *losses.OBJECTIVES} == set(get_args(ActorObjective))


@pytest.mark.parametrize("logits", [(0.0, 0.0, 0.0), (3.0, -2.0, 0.5), (-40.0, 0.0, 40.0)])
@pytest.mark.parametrize("objective", losses.OBJECTIVES)
def test_objectives_are_divergences_from_the_softmax(
    objective: str, logits: tuple[float, ...]
) -> None:
    """α (v KL(π | p) + c KL(p | π)), and what does not depend on π: all have one optimum, p."""
    q, alpha = torch.tensor([[[[1.0, -0.5, 2.0]]]], dtype=torch.float64), torch.tensor(0.7)
    steps = Counted.of(torch.ones(1, 1, dtype=torch.bool))
    of_value, of_cross = losses.OBJECTIVES[objective]
    p = torch.log_softmax(q[0] / alpha, -1)

    def climbed(x: torch.Tensor) -> torch.Tensor:
        here = Shares.of(x)
        value = losses.actor_loss(here.soft_value(q, alpha), steps)
        log_policy = here.log_share.movedim(0, -1)
        cross = losses.cross_entropy_loss(log_policy, q, alpha, steps)
        return of_value * value + of_cross * cross

    def divergences(x: torch.Tensor) -> torch.Tensor:
        policy = torch.log_softmax(x, -1)
        there, back = policy.exp() * (policy - p), p.exp() * (p - policy)
        return alpha * (of_value * there + of_cross * back).sum()

    x = torch.tensor([[logits]], dtype=torch.float64, requires_grad=True)
    actual, truth = (torch.autograd.grad(f(x), x)[0] for f in (climbed, divergences))
    torch.testing.assert_close(actual, truth)
    least = (q[0] / alpha).requires_grad_()
    assert torch.autograd.grad(climbed(least), least)[0].abs().max() < 1e-12


@pytest.mark.parametrize(("entropy", "sign"), [(0.2, -1), (0.9, 1)])
def test_temperature_rises_while_the_entropy_is_below_its_goal(entropy: float, sign: int) -> None:
    log_alpha = torch.tensor(-1.0, requires_grad=True)
    actual = torch.tensor(entropy, requires_grad=True)
    loss = losses.temperature_loss(log_alpha, actual, 0.5)
    loss.backward()
    assert loss.item() == pytest.approx(-(entropy - 0.5))
    assert log_alpha.grad is not None
    assert log_alpha.grad.item() == pytest.approx(entropy - 0.5)  # descent goes the other way
    assert math.copysign(1, log_alpha.grad.item()) == sign
    assert actual.grad is None


# A row of three transitions, the last one padding; the second one terminated.
OBSERVATION, REWARD, GAMMA, ALPHA = [0.5, -1.0, 2.0], [1.0, -0.5], 0.9, 0.3


def three_steps(sizes: Sizes, action: torch.Tensor) -> Batch:
    rows = torch.tensor([*OBSERVATION, NAN])[None, :, None]
    return Batch(
        observation=Observation(rows),
        previous_action=torch.zeros(1, 4, sizes.action),
        action=action,
        reward=torch.tensor([[*REWARD, NAN]]),
        terminated=torch.tensor([[False, True, False]]),
        valid=torch.tensor([[True, True, False]]),
        lengths=torch.tensor([3]),
    )


def linear_agent(sizes: Sizes, **others: bool) -> Learner:
    """Without memory or hidden layers, every number of the agent is a line in o (and a)."""
    settings = AgentSettings(
        encoder="memoryless", actor_hidden=(), critic_hidden=(), gamma=GAMMA, ent_coef=ALPHA,
        **others,
    )  # fmt: skip
    return Learner(settings, sizes)


def test_discrete_losses_of_three_steps_by_hand() -> None:
    sizes = Sizes(observation=1, action=2, discrete=True)
    agent = linear_agent(sizes)
    slopes = {"critic": [[1.0, -1.0], [0.5, 2.0]], "target": [[2.0, 0.0], [1.0, -1.0]]}
    with torch.no_grad():
        agent.actor.head.layers[0].weight.copy_(torch.tensor([[1.0], [-0.5]]))
        agent.actor.head.layers[0].bias.copy_(torch.tensor([0.1, 0.2]))
        for name, slope in slopes.items():
            head = getattr(agent, name).head
            head.weights[0].copy_(torch.tensor(slope)[:, None])
            head.biases[0].copy_(torch.tensor([[[0.1, 0.2]], [[0.3, 0.4]]]))
    taken = [0, 1]
    action = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [NAN, NAN]]])
    actual, metrics = agent.losses_of(three_steps(sizes, action))

    offsets = [[0.1, 0.2], [0.3, 0.4]]

    def policy(o: float) -> list[float]:
        logits = [1.0 * o + 0.1, -0.5 * o + 0.2]
        total = sum(math.exp(x) for x in logits)
        return [math.exp(x) / total for x in logits]

    def q(name: str, twin: int, o: float, a: int) -> float:
        return slopes[name][twin][a] * o + offsets[twin][a]

    def soft_value(name: str, o: float) -> float:
        return sum(
            p * (min(q(name, 0, o, a), q(name, 1, o, a)) - ALPHA * math.log(p))
            for a, p in enumerate(policy(o))
        )

    target = [REWARD[0] + GAMMA * soft_value("target", OBSERVATION[1]), REWARD[1]]
    off = [
        [q("critic", twin, OBSERVATION[t], taken[t]) - target[t] for t in (0, 1)] for twin in (0, 1)
    ]
    critic = sum((x**2 + y**2) / 2 for x, y in off)

    def cross_entropy(o: float) -> float:
        worth = [math.exp(min(q("critic", 0, o, a), q("critic", 1, o, a)) / ALPHA) for a in (0, 1)]
        shares = zip(worth, policy(o), strict=True)
        return -ALPHA * sum(w / sum(worth) * math.log(p) for w, p in shares)

    # the default: the soft value and a tenth of the cross-entropy
    actor = sum(0.1 * cross_entropy(o) - soft_value("critic", o) for o in OBSERVATION[:2]) / 2
    assert actual["critic_loss"].item() == pytest.approx(critic, rel=1e-5)
    assert actual["actor_loss"].item() == pytest.approx(actor, rel=1e-5)
    assert metrics["train/target_mean"].item() == pytest.approx(sum(target) / 2, rel=1e-5)
    highest = max(q("critic", k, OBSERVATION[t], taken[t]) for k in (0, 1) for t in (0, 1))
    assert metrics["train/q_max"].item() == pytest.approx(highest, rel=1e-5)
    assert "ent_coef_loss" not in actual


def test_gaussian_losses_of_three_steps_by_hand() -> None:
    sizes = Sizes(observation=1, action=1, discrete=False)
    agent = linear_agent(sizes)
    lines = {  # Q = x o + y a + c, for each twin
        "critic": [(1.0, 0.5, 0.1), (-0.5, 1.0, 0.2)],
        "target": [(0.3, -1.0, 0.0), (0.2, 0.7, -0.1)],
    }
    with torch.no_grad():
        agent.actor.head.layers[0].weight.copy_(torch.tensor([[0.8], [-0.4]]))
        agent.actor.head.layers[0].bias.copy_(torch.tensor([0.1, -0.3]))
        for name, twins in lines.items():
            head = getattr(agent, name).head
            head.weights[0].copy_(torch.tensor([[[x], [y]] for x, y, _ in twins]))
            head.biases[0].copy_(torch.tensor([[[c]] for _, _, c in twins]))
    taken = [0.4, -0.6]
    noise = torch.Generator()
    noise.set_state(agent.learning.get_state())
    ahead, now = (torch.empty(1, 3, 1).normal_(generator=noise)[0, :, 0].tolist() for _ in "12")
    action = torch.tensor([*taken, NAN])[None, :, None]
    actual, metrics = agent.losses_of(three_steps(sizes, action))

    def q(name: str, o: float, a: float) -> list[float]:
        return [x * o + y * a + c for x, y, c in lines[name]]

    def drawn(o: float, e: float) -> tuple[float, float]:
        """Action and log-density by the change of variables."""
        mean, std = 0.8 * o + 0.1, math.exp(-0.4 * o - 0.3)
        raw = mean + std * e
        density = math.exp(-0.5 * ((raw - mean) / std) ** 2) / (std * math.sqrt(2 * math.pi))
        return math.tanh(raw), math.log(density / (1 - math.tanh(raw) ** 2))

    def soft_value(name: str, o: float, e: float) -> float:
        a, log_p = drawn(o, e)
        return min(q(name, o, a)) - ALPHA * log_p

    target = [REWARD[0] + GAMMA * soft_value("target", OBSERVATION[1], ahead[0]), REWARD[1]]
    critic = sum(
        (q("critic", OBSERVATION[t], taken[t])[k] - target[t]) ** 2 / 2
        for k in (0, 1)
        for t in (0, 1)
    )
    actor = -sum(soft_value("critic", OBSERVATION[t], now[t]) for t in (0, 1)) / 2
    entropy = -sum(drawn(OBSERVATION[t], now[t])[1] for t in (0, 1)) / 2
    assert actual["critic_loss"].item() == pytest.approx(critic, rel=1e-5)
    assert actual["actor_loss"].item() == pytest.approx(actor, rel=1e-5)
    assert metrics["train/entropy"].item() == pytest.approx(entropy, rel=1e-5)


@pytest.mark.parametrize(
    "sizes", [Sizes(1, 2, True), Sizes(1, 1, False)], ids=["discrete", "gaussian"]
)
def test_entropy_stays_out_of_the_target_where_it_is_asked_to(sizes: Sizes) -> None:
    soft, plain = (linear_agent(sizes, entropy_in_target=included) for included in (True, False))
    data = three_steps(sizes, torch.zeros(1, 3, sizes.action))
    with torch.no_grad():
        policy, parameters = soft.actor.distribution, soft.actor(read_history(data))[:, 1:]
        there = (
            Shares.of(parameters) if sizes.discrete else policy.output(parameters, soft.learning)
        )
    soft.load_state_dict(plain.state_dict())  # the generators too: the same actions are drawn
    bonus = ALPHA * there.entropy[0, 0].item()
    actual = [x.losses_of(data)[1]["train/target_mean"].item() for x in (soft, plain)]
    # of the two steps that count, the second one terminates
    assert actual[0] - actual[1] == pytest.approx(GAMMA * bonus / 2, rel=1e-4)


def test_a_learner_cuts_the_bootstrap_where_it_is_told_to() -> None:
    sizes = Sizes(observation=1, action=2, discrete=True)
    agent = linear_agent(sizes)
    data = three_steps(sizes, torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]]))
    ended = data._replace(terminated=torch.ones_like(data.terminated))
    cut = data._replace(terminated=torch.zeros_like(data.terminated))
    raised = copy.deepcopy(agent)
    with torch.no_grad():
        raised.target.head.biases[0] += 10.0

    def moved(batch: Batch) -> float:
        before, after = (x.losses_of(batch)[1]["train/target_mean"] for x in (agent, raised))
        return (after - before).item()

    assert moved(ended) == 0.0
    assert moved(data) == pytest.approx(GAMMA * 10 / 2, rel=1e-5)
    assert moved(cut) == pytest.approx(GAMMA * 10, rel=1e-5)
