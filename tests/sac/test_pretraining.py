"""Updates from data alone: what they minimize, what they count, and what they learn."""

import io
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from kalmanac._ops.graphed_call import WARM_UP
from kalmanac._replay.sampling import Batch
from kalmanac._sac.episode_data import EpisodeData
from kalmanac._sac.networks import read_history
from kalmanac._sac.recurrent_sac import RecurrentSAC
from tests.envs.toys import Identity
from tests.sac.cases import DISCRETE, batch, both_kinds, make_learner
from tests.sac.small import Listener, Wandering, small
from tests.sac.test_episode_data import walk


def cloned(learner, data: Batch, goal: torch.Tensor, counts: torch.Tensor):
    """The mean cloning loss of steps that count for so much, written out."""
    parameters = learner.actor(read_history(data))[:, :-1][data.valid]
    action = goal[data.valid]
    if learner.sizes.discrete:
        return (counts * F.cross_entropy(parameters, action.argmax(-1), reduction="none")).mean()
    mean, log_std = parameters.chunk(2, -1)
    normal = torch.distributions.Normal(mean, log_std.clamp(-20, 2).exp())
    raw = torch.atanh(action.clamp(-0.999, 0.999))
    spread = 0.5 * 0.01 / normal.variance
    constant = 0.5 * np.log(2 * np.pi)
    return (counts * (-normal.log_prob(raw) - constant + spread).sum(-1)).mean()


def judged(learner, data: Batch):
    """Q of the data's actions and of the policy's, (2, B, T), V of the next tokens, slopes of Q."""
    history = read_history(data)
    parameters = learner.actor(history).detach()
    features = [x.detach() for x in learner.critic.network.encode(history.but_last())]
    there = learner.target.network.encode(history)
    if learner.sizes.discrete:
        every, p = learner.critic.head(*features).detach(), torch.softmax(parameters, -1)
        following = (p * learner.target.head(*there).amin(0)).sum(-1)[:, 1:]
        return (every * data.action).sum(-1), (p[:, :-1] * every).sum(-1), following, None
    policy, noise = learner.actor.distribution, learner.learning.get_state()
    later = policy.output(parameters[:, 1:], learner.learning).action  # those come first
    learner.learning.set_state(noise)
    own = torch.tanh(parameters[:, :-1].chunk(2, -1)[0])
    following = learner.target.q_values(*there).following().frozen(later)
    q_values, action = learner.critic.q_values(*features), data.action.clone().requires_grad_()
    q = q_values.taken(action)
    slopes = [torch.autograd.grad(twin.sum(), action, retain_graph=True)[0] for twin in q]
    return q.detach(), q_values.frozen_twins(own), following, torch.stack(slopes)


def differing(learner, data: Batch) -> float:
    """What the policy's actions differ by in the lower value of the twins, root mean square."""
    history, valid = read_history(data), data.valid
    parameters = learner.actor(history).detach()
    features = learner.critic.network.encode(history.but_last())
    if learner.sizes.discrete:
        lower = learner.critic.head(*features).detach().amin(0)[valid]
        p = torch.softmax(parameters[:, :-1][valid], -1)
        off = lower - (p * lower).sum(-1, keepdim=True)
        return float((p * off**2).sum(-1).mean().sqrt())
    noise = learner.learning.get_state()
    _, draw = (  # the next tokens' come first
        learner.actor.distribution.output(x, learner.learning).action
        for x in (parameters[:, 1:], parameters[:, :-1])
    )
    learner.learning.set_state(noise)
    mode, q_values = torch.tanh(parameters[:, :-1].chunk(2, -1)[0]), learner.critic.q_values
    lower = [q_values(*features).taken(x).detach().amin(0)[valid] for x in (draw, mode)]
    return float((lower[0] - lower[1]).square().mean().sqrt())


@both_kinds
@pytest.mark.parametrize("weight", [1.0, 0.3])
@pytest.mark.parametrize("share", [None, 0.4])
def test_the_actor_copies_better_actions_and_climbs_the_rest(sizes, weight, share):
    learner, plain, data = make_learner(sizes), make_learner(sizes), batch(sizes, (6, 2, 5, 3))
    valid = data.valid
    unit = differing(plain, data)
    with torch.no_grad():  # it would be 1, beyond what the policy's actions differ by
        plain.log_alpha.fill_(np.log(min(1.0, unit) * (1 - (share or 0))))
    losses = plain._losses(data)
    q, own, following, slopes = judged(learner, data)
    unseen = (1 - data.episode % 2).long()[None]  # odd episodes teach the second of the twins
    returns = following.detach().clone()
    for row, steps in enumerate(valid.sum(1).tolist()):
        later = following[row, steps - 1]
        for t in reversed(range(steps)):
            later = data.reward[row, t] + learner.settings.gamma * later * ~data.terminated[row, t]
            returns[row, t] = later
    baseline = own.gather(0, unseen)[0][valid]
    advantage = (q.gather(0, unseen)[0][valid] - baseline).double()
    outcome = (returns[valid] - baseline).double()
    line = np.polyfit(advantage.detach(), outcome.detach(), 1)[0]
    learner.trust.fill_(0.8)  # as if batches before had said so: 2 · 0.8 - 1 is 0.6
    strength = (1 - weight) * (0.6 if share is None else 1)
    goal, counts = data.action, torch.ones(int(valid.sum()))
    if sizes.discrete:
        off = (advantage - advantage.mean()) / advantage.std(correction=0)
        counts = torch.exp(strength * off)
        counts = (counts / counts.mean()).float()
    else:
        std = learner.actor(read_history(data))[:, :-1].detach().chunk(2, -1)[1].exp()
        slope = torch.where(unseen[0, ..., None] == 1, slopes[1], slopes[0])
        gain = std * slope * (1 - data.action**2)
        spread = (gain[valid] ** 2).sum(-1).mean().sqrt()
        move = std * (strength * gain / spread).clamp(-1, 1)
        goal = torch.tanh(torch.atanh(data.action) + move)
    actual = learner._losses(data, weight, share)
    part = 1.0 if share is None else share
    trust = 0.8 + 0.02 * (min(max(float(line), -1), 1) - 0.8) if share is None else 0.8
    assert learner.trust.item() == pytest.approx(trust, rel=1e-4)
    climbed = (1 - part) / unit * losses.losses["actor_loss"]
    copied = part * cloned(learner, data, goal, counts.detach())
    torch.testing.assert_close(actual.losses["actor_loss"], climbed + copied, rtol=1e-4, atol=1e-5)
    if share is None:
        off = (q - returns)[:, valid] ** 2 * torch.stack([unseen[0], 1 - unseen[0]])[:, valid]
        expected = 2 * off.sum() / valid.sum()
    else:
        expected = losses.losses["critic_loss"].detach()
    torch.testing.assert_close(actual.losses["critic_loss"], expected)
    own, of_value, of_copies = (
        torch.autograd.grad(roots, list(actor.parameters()), slopes, materialize_grads=True)
        for roots, actor, slopes in (
            (actual.roots, learner.actor, actual.slopes),
            (climbed, plain.actor, None),
            (copied, learner.actor, None),
        )
    )
    for x, y, z in zip(own, of_value, of_copies, strict=True):
        torch.testing.assert_close(x, y + z, rtol=1e-3, atol=1e-5)


def test_pretraining_needs_to_know_which_steps_are_of_one_episode():
    learner, data = make_learner(DISCRETE), batch(DISCRETE)
    with pytest.raises(ValueError, match=r"batch\.episode: got None, expected the number"):
        learner.update(data._replace(episode=None), near=0.5)


@both_kinds
def test_the_temperature_stays_where_it_is(sizes):
    learner, data = make_learner(sizes), batch(sizes)
    before = learner.log_alpha.detach().clone()
    metrics = learner.update(data, near=0.5)
    assert torch.equal(learner.log_alpha, before)
    assert "train/cloning_loss" in metrics
    learner.update(data)
    assert not torch.equal(learner.log_alpha, before)


def test_pads_and_what_stands_there_do_not_count():
    learner, data = make_learner(DISCRETE), batch(DISCRETE)
    other = data._replace(action=data.action.masked_fill(~data.valid[..., None], torch.nan))
    one, two = (learner._losses(x, 0.5) for x in (data, other))
    torch.testing.assert_close(one.losses["actor_loss"], two.losses["actor_loss"])
    weights = list(learner.actor.parameters())
    for x, y in zip(
        *(torch.autograd.grad(losses.roots, weights, losses.slopes) for losses in (one, two)),
        strict=True,
    ):
        torch.testing.assert_close(x, y)


def test_updates_are_counted_shown_and_can_be_stopped(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    model, heard = small("gru"), Listener()
    model.set_spaces(Wandering().observation_space, Wandering().action_space)
    model.add_episodes([walk(5, seed) for seed in range(3)])
    model.pretrain(6, callback=heard, progress_bar=True, log_interval=2)
    assert (model.num_updates, model.num_timesteps, heard.starts, heard.ends) == (6, 0, 1, 1)
    assert heard.updates == [1, 2, 3, 4, 5, 6]
    assert all("train/cloning_loss" in metrics for metrics in heard.metrics)
    lines = sys.stderr.getvalue().splitlines()
    assert [line.split("  ")[0] for line in lines] == [f"{n} of 6 updates" for n in (2, 4, 6)]

    class Stop(Listener):
        def on_step(self, model):
            return model.num_updates < 8

    assert model.pretrain(10, callback=Stop()).num_updates == 8


@pytest.mark.parametrize(
    ("updates", "other", "message"),
    [
        *(
            (wrong, {}, f"updates: got {wrong!r}, expected an integer of at least 0")
            for wrong in (1.5, "a", -1, True, None)
        ),
        *(
            (1, {"near_data": wrong}, f"near_data: got {wrong!r}, expected a number in [0, 1]")
            for wrong in (-0.1, 1.5, "a", None, float("nan"))
        ),
        (1, {"log_interval": 0}, "log_interval: got 0, expected an integer of at least 1"),
    ],
)
def test_what_is_wrong_is_named_and_later_training_clones_nothing(updates, other, message):
    model = small("gru", Wandering())
    model.add_episodes([walk()])
    before, heard = model.learner.pretrained, Listener()
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        model.pretrain(updates, callback=heard, **other)
    assert model.learner.pretrained == before
    assert (model.num_updates, heard.starts) == (0, 0)


def test_no_updates_leave_the_model_as_it_was():
    model = small("gru", Wandering())
    empty = small("gru", Wandering())
    model.add_episodes([walk()])
    for one in (model, empty):
        before, weights = one.learner.pretrained, one.get_parameters()
        assert one.pretrain(0, progress_bar=True).num_updates == 0
        assert one.learner.pretrained == before
        assert same(one.get_parameters(), weights)
    with pytest.raises(ValueError, match="replay: got no transitions yet"):
        empty.pretrain(1)
    assert empty.learner.pretrained.near_data == 0, "it has not begun"
    model.pretrain(1)
    assert model.pretrain(0).learner.pretrained.updates == 1
    assert model.learner.pretrained.near_data == 1


def test_the_seed_decides_and_every_call_draws_other_batches():
    def trained(*parts):
        model = small("gru")
        model.set_spaces(Wandering().observation_space, Wandering().action_space)
        model.add_episodes([walk(5, seed) for seed in range(8)])
        for updates in parts:
            model.pretrain(updates)
        return model.learner.actor.head.layers[0].weight

    assert torch.equal(trained(4), trained(4))
    assert not torch.equal(trained(4), trained(2, 2))


def named(seed: int, symbols: int = 4, steps: int = 10) -> EpisodeData:
    """An episode of `Identity` in which two of three actions are wrong."""
    rng, last = np.random.default_rng(seed), np.arange(steps) == steps - 1
    shown = rng.integers(symbols, size=steps + 1)
    right = rng.random(steps) < 0.34
    action = np.where(right, shown[:-1], (shown[:-1] + 1) % symbols)
    return EpisodeData(shown, action, right.astype(float), np.zeros(steps, bool), last)


def test_behavior_cloning_copies_and_values_do_better_than_their_data():
    """Of the data's actions, two of three are wrong: a copy is no better, values tell."""
    env, n, results = Identity(4), 4, {}
    for near in (1.0, 0.3, 0.1):
        model = small("memoryless", env, learning_rate=1e-2, tau=0.05, gamma=0.0, batch_size=16)
        model.add_episodes(named(seed) for seed in range(40))
        model.pretrain(200, near_data=near)
        action, _ = model.predict(np.arange(n), deterministic=True)
        results[near] = float((action == np.arange(n)).mean())
    assert results == {1.0: 0.0, 0.3: 1.0, 0.1: 1.0}


@pytest.mark.parametrize("updates", [20, 5, 1])
def test_many_short_calls_do_better_than_their_data_too(updates):
    model = small("memoryless", Identity(4), learning_rate=1e-2, tau=0.05, gamma=0.0, batch_size=16)
    model.add_episodes(named(seed) for seed in range(40))
    for _ in range(200 // updates):
        model.pretrain(updates, near_data=0.3)
    assert model.learner.pretrained.updates == 200
    action, _ = model.predict(np.arange(4), deterministic=True)
    assert action.tolist() == [0, 1, 2, 3]


def test_one_that_is_stopped_before_it_moves_has_copied(tmp_path):
    model = small("memoryless", Identity(4), learning_rate=1e-2, tau=0.05, gamma=0.0, batch_size=16)
    model.add_episodes(named(seed) for seed in range(40))

    class SaveAndStop(Listener):
        def on_step(self, model):
            if model.num_updates == 90:
                model.save(tmp_path / "m")
            return model.num_updates < 100

    model.pretrain(400, near_data=0.3, callback=SaveAndStop())
    assert model.learner.trust > 0.6
    assert model.learner.pretrained.near_data == 1
    saved = RecurrentSAC.load(tmp_path / "m", device="cpu").learner.pretrained
    assert (saved.near_data, saved.updates) == (1, 90)
    assert saved.trust > 0.5


def test_a_policy_alone_cannot_learn(tmp_path):
    small("gru", Wandering()).save(tmp_path / "policy", policy_alone=True)
    model = RecurrentSAC.load(tmp_path / "policy", device="cpu")
    model.add_episodes([walk()])
    with pytest.raises(ValueError, match="got a model of a policy alone, expected one with its"):
        model.pretrain(1)


@pytest.mark.gpu
@pytest.mark.parametrize(("env", "episode"), [(Wandering, walk), (Identity, named)])
def test_pretraining_is_captured(env, episode):
    models = [small("vssm+kf", device="cuda", graph=graph, tf32=False) for graph in (False, True)]
    for model in models:
        model.set_spaces(env().observation_space, env().action_space)
        model.add_episodes([episode(seed=seed) for seed in range(8)])
        model.learner.trust.fill_(1.0)  # so that moves begin, in updates that are replayed
        model.pretrain(2 * WARM_UP + 6)
        assert model.learner.pretrained.near_data < 1
    one, two = (model.learner.state_dict() for model in models)
    for name, x in one.items():
        if name.startswith("actor."):
            torch.testing.assert_close(x, two[name], rtol=1e-3, atol=1e-4)


def drifting(seed: int, steps: int = 40) -> EpisodeData:
    """All is smooth in time, and rewards have nothing to do with what is seen and done."""
    rng, last = np.random.default_rng(seed), np.arange(steps) == steps - 1
    drift = np.zeros((steps + 1, 6))
    for t in range(1, steps + 1):
        drift[t] = 0.95 * drift[t - 1] + 0.3 * rng.standard_normal(6)
    seen, action = drift[:, :3].astype(np.float32), np.tanh(drift[1:, 3:5]).astype(np.float32)
    return EpisodeData(seen, action, drift[1:, 5], np.zeros(steps, bool), last)


def test_what_a_critic_knows_from_the_step_beside_is_not_trusted():
    model = small(
        "memoryless", Wandering(), learning_rate=1e-2, tau=0.05, gamma=0.9, batch_size=16,
        context_length=16, critic_hidden=(64, 64),
    )  # fmt: skip
    model.add_episodes(drifting(seed) for seed in range(10))
    for _ in range(3):
        model.pretrain(100, near_data=0.3)
        assert model.learner.trust < 0.4
        assert model.learner.pretrained.near_data == 1


def learned_from(episodes, near: float, updates: int) -> list[dict[str, torch.Tensor]]:
    """The actor after half of so many updates from data, and after all of them."""
    model = small(
        "memoryless", Wandering(), learning_rate=1e-2, tau=0.05, gamma=0.9, batch_size=16,
        context_length=16, critic_hidden=(64, 64),
    )  # fmt: skip
    model.add_episodes(episodes)
    model.learner.trust.fill_(0.9)  # as a critic that knows little may have it for a while
    actors = []

    class Looks(Listener):
        def on_step(self, model):
            if 2 * model.num_updates in (updates, 2 * updates):
                state = model.learner.actor.state_dict()
                actors.append({name: x.clone() for name, x in state.items()})
            return True

    model.pretrain(updates, near_data=near, callback=Looks())
    return actors


def same(one, other) -> bool:
    return all(torch.equal(x, other[name]) for name, x in one.items())


def test_without_signal_it_is_behavior_cloning_to_the_last_bit():
    episodes = [drifting(seed) for seed in range(20)]
    ours, clone = (learned_from(episodes, near, 300) for near in (0.3, 1.0))
    assert same(ours[1], clone[1])


def test_with_signal_it_moves_in_the_second_half():
    def rewarded(seed):
        one = drifting(seed)
        return replace(one, rewards=one.actions[:, 0].astype(float))

    episodes = [rewarded(seed) for seed in range(20)]
    ours, clone = (learned_from(episodes, near, 100) for near in (0.3, 1.0))
    assert same(ours[0], clone[0])
    assert not same(ours[1], clone[1])
