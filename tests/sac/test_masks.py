"""Forbidden actions: no probability, no gradient, no say in any loss."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from kalmanac._observation import Observation, Sizes
from kalmanac._ops.sac_losses import Counted, Shares, cross_entropy_loss
from kalmanac._replay.sampling import Batch
from kalmanac._sac.distributions import Categorical, SquashedGaussian
from kalmanac._sac.networks import read_history
from tests.sac.cases import batch, gradients, make_learner, observing

SIZES = Sizes(observation=2, action=4, discrete=True, privileged=2, observed=True, action_mask=True)
objectives = pytest.mark.parametrize("objective", ["value", "cross-entropy", "mixed"])


def masked_batch(seed: int = 0) -> Batch:
    """Random masks that allow the actions taken; nothing is allowed on pads."""
    plain = batch(SIZES, seed=seed)
    g, shape = torch.Generator().manual_seed(seed), plain.previous_action.shape
    mask = torch.rand(*shape, generator=g) < 0.5
    token = torch.arange(mask.shape[1]) < plain.lengths[:, None]
    taken = F.pad(plain.action, (0, 0, 0, 1)).bool()
    first = torch.tensor([True, False, False, False])
    mask = (mask | taken | (first & ~mask.any(-1, keepdim=True))) & token[..., None]
    return observing(plain, action_mask=mask)


@given(st.integers(0, 2**31), st.floats(-1e4, 1e4))
def test_a_forbidden_action_has_no_probability_and_is_never_taken(seed: int, size: float) -> None:
    g = torch.Generator().manual_seed(seed)
    logits = size * torch.randn(50, 4, generator=g)
    mask = torch.rand(50, 4, generator=g) < 0.5
    mask[:, seed % 4] = True
    policy = Categorical(4)
    inside = policy.allowing(logits, mask)
    assert (F.softmax(inside, -1)[~mask] == 0).all()
    for action in (policy.sample(inside, g), policy.mode(inside)):
        assert mask.gather(1, action[:, None]).all()
    best = logits.masked_fill(~mask, -math.inf).argmax(-1)
    assert torch.equal(policy.mode(inside), best)


def test_soft_value_and_entropy_are_those_of_the_allowed_actions_alone() -> None:
    g = torch.Generator().manual_seed(0)
    logits, q = torch.randn(5, 4, generator=g, requires_grad=True), torch.randn(2, 5, 4)
    mask = torch.tensor([True, False, True, True]).expand(5, 4)
    kept = [0, 2, 3]
    alpha = torch.tensor(0.3)
    inside = Shares.of(Categorical(4).allowing(logits, mask))
    alone = Shares.of(logits[:, kept])
    for x, y in (
        (inside.entropy, alone.entropy),
        (inside.soft_value(q, alpha), alone.soft_value(q[..., kept], alpha)),
    ):
        torch.testing.assert_close(x, y)
        slopes = [torch.autograd.grad(z.sum(), logits, retain_graph=True)[0] for z in (x, y)]
        torch.testing.assert_close(*slopes)
        assert (slopes[0][:, 1] == 0).all()


def test_one_allowed_action_leaves_no_entropy_and_no_gradient() -> None:
    logits = torch.tensor([[3.0, -math.inf, 80.0]], requires_grad=True)
    mask = torch.tensor([[True, False, False]])
    meant = Shares.of(Categorical(3).allowing(logits, mask))
    entropy = meant.entropy
    value = meant.soft_value(torch.ones(2, 1, 3), torch.tensor(1.0))
    (value + entropy).sum().backward()
    assert (value.item(), entropy.item()) == (1.0, 0.0)
    assert logits.grad is not None
    assert (logits.grad == 0).all(), "and not NaN"


def test_cross_entropy_aims_at_the_softmax_among_the_allowed() -> None:
    q = torch.tensor([[[[1.0, 50.0, 2.0]]]]).expand(2, 1, 1, 3)
    mask = torch.tensor([[[True, False, True]]])
    logits = torch.zeros(1, 1, 3, requires_grad=True)
    log_policy = F.log_softmax(Categorical(3).allowing(logits, mask), -1)
    steps = Counted.of(torch.ones(1, 1, dtype=torch.bool))
    loss = cross_entropy_loss(log_policy, q, torch.tensor(0.5), steps, mask)
    loss.backward()
    goal = F.softmax(torch.tensor([2.0, 4.0]), -1)
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad[0, 0, [0, 2]], 0.5 * (0.5 - goal))
    assert logits.grad[0, 0, 1] == 0


def test_the_entropys_goal_follows_the_number_of_allowed_actions() -> None:
    learner = make_learner(SIZES, ent_coef="auto", target_entropy_scale=0.7)
    data = masked_batch()
    actual, metrics = learner.losses_of(data)
    count = data.observation.action_mask[:, :-1].sum(-1).clamp(min=1)
    goal = Counted.of(data.valid).mean(0.7 * count.log())
    expected = learner.log_alpha * (metrics["train/entropy"] - goal)
    torch.testing.assert_close(actual["ent_coef_loss"], expected)
    slope = torch.autograd.grad(actual["ent_coef_loss"], learner.log_alpha)[0]
    torch.testing.assert_close(slope, metrics["train/entropy"] - goal)
    fixed = make_learner(SIZES, ent_coef="auto", target_entropy=0.25)
    actual, metrics = fixed.losses_of(data)
    slope = torch.autograd.grad(actual["ent_coef_loss"], fixed.log_alpha)[0]
    torch.testing.assert_close(slope, metrics["train/entropy"] - 0.25)


@objectives
def test_a_mask_that_allows_all_changes_no_bit(objective: str) -> None:
    data = masked_batch()
    settings = {"actor_objective": objective, "ent_coef": 0.2}
    free = observing(data, action_mask=torch.ones_like(data.observation.action_mask))
    actual, slopes = gradients(make_learner(SIZES, **settings), free)
    plain = make_learner(SIZES._replace(action_mask=False), **settings)
    expected, their_slopes = gradients(plain, observing(data, action_mask=None))
    assert all(torch.equal(actual[name], expected[name]) for name in expected)
    assert all(torch.equal(slopes[name], their_slopes[name]) for name in their_slopes)


@objectives
def test_losses_and_gradients_are_finite_and_blind_to_forbidden_actions(objective: str) -> None:
    data = masked_batch()
    mask = data.observation.action_mask
    mask[..., 3] = False  # forbidden everywhere, the action taken included
    mask[..., 0] |= ~mask.any(-1)
    data = data._replace(action=data.action * torch.tensor([1.0, 1, 1, 0]))
    actual = []
    for logit in (0.0, 1e6, -1e6):  # whatever the networks say of it
        learner = make_learner(SIZES, actor_objective=objective, ent_coef=0.2)
        with torch.no_grad():
            learner.actor.head.linear()[-1].bias[3] = logit
            for critic in (learner.critic, learner.target):
                critic.head.biases[-1][..., 3] = -logit
        losses, slopes = gradients(learner, data)
        assert all(x.isfinite().all() for x in (*losses.values(), *slopes.values()))
        assert slopes["actor.head.layers.1.bias"][3] == 0
        assert (slopes["actor.head.layers.1.weight"][3] == 0).all()
        assert slopes["actor.head.layers.1.bias"][:3].abs().min() > 0
        actual.append(losses)
    for other in actual[1:]:
        for name, x in other.items():
            torch.testing.assert_close(x, actual[0][name])


@objectives
def test_pads_that_allow_nothing_leave_gradients_finite(objective: str) -> None:
    data = masked_batch()
    padded = torch.arange(7) >= data.lengths[:, None]
    assert padded.any()
    assert not data.observation.action_mask[padded].any()
    assert read_history(data).observation.action_mask[padded].all(), "no softmax over nothing"
    losses, slopes = gradients(make_learner(SIZES, actor_objective=objective), data)
    assert all(x.isfinite().all() for x in (*losses.values(), *slopes.values()))


def test_the_bootstrap_takes_the_mask_of_the_next_state() -> None:
    data, learner = masked_batch(), make_learner(SIZES, ent_coef=0.2)
    _, metrics = learner.losses_of(data)
    with torch.no_grad():
        history = read_history(data)
        logits = learner.actor.head(*learner.actor.network.encode(history))[:, 1:]
        q = learner.target.head(*learner.target.network.encode(history))[:, :, 1:].amin(0)
        allowed = history.observation.action_mask[:, 1:]
        log_p = F.log_softmax(logits.masked_fill(~allowed, -math.inf), -1)
        p = log_p.exp()
        ahead = torch.where(allowed, p * (q - 0.2 * log_p), 0.0).sum(-1)
        target = data.reward + 0.99 * ahead.masked_fill(data.terminated, 0)
    torch.testing.assert_close(metrics["train/target_mean"], Counted.of(data.valid).mean(target))


def test_updates_stay_finite_and_acting_keeps_to_the_mask() -> None:
    learner = make_learner(SIZES, ent_coef="auto", learning_rate=0.1, max_grad_norm=1.0)
    for seed in range(20):
        metrics = learner.update(masked_batch(seed))
        assert all(x.isfinite() for x in metrics.values())
    mask = torch.eye(4, dtype=torch.bool)[torch.arange(200) % 4]
    for explore in (True, False):
        action, _ = learner.act(
            Observation(torch.randn(200, 2), action_mask=mask), torch.zeros(200, 4),
            learner.initial_state(200), episode_start=torch.ones(200, dtype=torch.bool),
            explore=explore,
        )  # fmt: skip
        assert torch.equal(action, torch.arange(200) % 4)


def test_diagnostics_average_q_where_the_action_is_allowed() -> None:
    learner, data = make_learner(SIZES), masked_batch()
    actual = learner.diagnostics(data)
    with torch.no_grad():
        q = learner.critic.head(learner.critic.network(read_history(data).but_last())).mean(0)
    for a in range(4):
        at = data.valid & data.observation.action_mask[:, :-1, a]
        torch.testing.assert_close(actual[f"train/q_action_{a}"], q[..., a][at].mean())
    shares = torch.stack([actual[f"train/policy_action_{a}"] for a in range(4)])
    torch.testing.assert_close(shares.sum(), torch.tensor(1.0))


def test_many_actions_have_no_number_each() -> None:
    many = Sizes(observation=2, action=100, discrete=True, privileged=2, observed=True)
    assert not any("action_" in name for name in make_learner(many).diagnostics(batch(many)))


def test_masks_that_do_not_fit_are_refused() -> None:
    learner = make_learner(SIZES)
    with pytest.raises(ValueError, match=r"batch\.observation\.action_mask: got shape None, exp"):
        learner.update(batch(SIZES))
    with pytest.raises(ValueError, match=r"action_mask: got shape \(1, 3\), expected \(1, 4\)"):
        learner.act(
            Observation(torch.zeros(1, 2), action_mask=torch.ones(1, 3, dtype=torch.bool)),
            torch.zeros(1, 4), learner.initial_state(1),
            episode_start=torch.ones(1, dtype=torch.bool), explore=False,
        )  # fmt: skip
    with pytest.raises(ValueError, match="action_mask: got one, expected none for continuous"):
        SquashedGaussian(2).allowing(torch.zeros(1, 4), torch.ones(1, 2, dtype=torch.bool))
