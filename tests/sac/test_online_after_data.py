"""Going on in an environment after learning from data: what was learned there is not lost."""

import itertools

import numpy as np
import pytest
import torch

from kalmanac._envs.track import Track
from kalmanac._files.document import BadFileError
from kalmanac._ops.graphed_call import WARM_UP
from kalmanac._sac import config
from kalmanac._sac.config import NEGLIGIBLE, AgentSettings, Pretrained
from kalmanac._sac.episode_data import EpisodeData
from kalmanac._sac.model_file import read_model, write_model
from kalmanac._sac.recurrent_sac import RecurrentSAC
from kalmanac._sac.training_log import Logger
from tests.sac.cases import batch, both_kinds, make_learner
from tests.sac.small import Listener, small, wandering
from tests.sac.test_episode_data import walk
from tests.sac.test_pretraining import differing


def pretrained(near: float = 0.5, **settings) -> RecurrentSAC:
    model = small("vssm+kf", wandering(2), **settings)
    model.add_episodes([walk(5, seed) for seed in range(8)])
    model.learner.trust.fill_(1.0)  # as if advantages had come true
    return model.pretrain(3, near_data=near)


def test_the_share_is_that_of_the_data_among_all_steps_since_each_for_five():
    settings, before = AgentSettings(), Pretrained(near_data=0.6, steps=1000, data=500)
    assert settings.near_online(before, 1000) == 1
    assert settings.near_online(before, 1100) == pytest.approx(0.5)
    assert settings.near_online(before, 1000 + 100 * 9) == pytest.approx(0.1)
    assert settings.near_online(before, 1000 + int(100 / NEGLIGIBLE)) == 0
    assert settings.near_online(Pretrained(), 0) == 0
    assert settings.near_online(Pretrained(0.6, 0, 0), 0) == 0, "no data, no share"


@both_kinds
def test_updates_near_data_learn_the_temperature_in_an_environment(sizes):
    data = batch(sizes)
    online, usual = make_learner(sizes), make_learner(sizes)
    within = 0.1 * differing(usual, data)  # its bounds
    for learner, alpha in ((online, within), (usual, 0.8 * within)):
        with torch.no_grad():
            learner.log_alpha.fill_(np.log(alpha))
    one, two = online._losses(data, 0.5, 0.2), usual._losses(data)
    torch.testing.assert_close(one.losses["critic_loss"], two.losses["critic_loss"])
    torch.testing.assert_close(one.numbers["ent_coef"], two.numbers["ent_coef"])
    wanted = [
        torch.autograd.grad(x.losses["ent_coef_loss"], learner.log_alpha)[0]
        for x, learner in ((one, online), (two, usual))
    ]
    torch.testing.assert_close(*wanted)
    cloning = one.numbers["cloning_loss"]
    size = 0.8 * two.losses["actor_loss"] / (one.losses["actor_loss"] - 0.2 * cloning)
    assert size > 0, "the soft value, divided by what the policy's actions differ by"
    share = torch.tensor(0.2)
    three = make_learner(sizes)
    with torch.no_grad():
        three.log_alpha.fill_(np.log(within))
    losses = three._losses(data, 0.5, share)
    torch.testing.assert_close(losses.losses["actor_loss"], one.losses["actor_loss"])
    before = online.log_alpha.detach().clone()
    online.update(data, near=0.5, online=share)
    assert not torch.equal(online.log_alpha, before)


@both_kinds
@pytest.mark.parametrize("goal", [1.0, -9.0])
def test_the_temperature_does_not_run_away_while_copies_hold_the_entropy(sizes, goal):
    """All actions are alike, so that copies have little entropy; the goal is out of reach above
    or below it."""
    learner, data = make_learner(sizes, learning_rate=3e-2), batch(sizes, (6, 6, 6, 6))
    still = torch.zeros_like(data.action)
    still[..., 0] = 1.0 if sizes.discrete else 0.5
    data, learner.entropy_goal = data._replace(action=still), goal
    for _ in range(400):
        metrics = learner.update(data, near=1.0, online=0.9)
        assert metrics["train/ent_coef"] < 0.1, "a tenth, at most, of what actions differ by"
        assert metrics["train/q_mean"].abs() < 10
    assert (metrics["train/entropy"] < goal) == (goal > 0), "else nothing is shown"
    learned, unit = learner.log_alpha.detach().exp(), differing(learner, data)
    assert 0.005 * unit < learned < 2 * unit, "at its rate, e^12 or e^-12"


def test_an_agent_that_was_never_pretrained_makes_the_usual_updates():
    class Near(Listener):
        def on_update(self, model, metrics):
            seen.append(model._training._share_of_data)

    seen: list[float] = []
    small("gru", wandering(2)).learn(30, Near())
    assert set(seen) == {0.0}
    seen.clear()
    pretrained().learn(20, Near())
    assert seen[-1] == 40 / 140, "8 episodes of 5 steps, and 20 since"
    assert seen[-1] < seen[0] < 1


def test_only_as_far_as_values_are_trusted_it_goes_on_with_better_actions():
    class Trusting(Listener):
        def __init__(self, trust):
            super().__init__()
            self.trust = trust

        def on_update(self, model, metrics):
            model.learner.trust.fill_(self.trust)

    model = pretrained(0.4)
    for trust, stays in ((1.0, 0.4), (0.75, 0.7), (0.5, 1.0), (0.1, 1.0)):
        model.pretrain(1, near_data=0.4, callback=Trusting(trust))
        assert model.learner.pretrained.near_data == pytest.approx(stays)
    assert model.pretrain(1, near_data=0).learner.pretrained.near_data == 0


def test_what_data_taught_outlasts_values_that_are_guesses():
    """Rewards of the data are noise: what is learned from a few own steps is no reason to leave."""

    def rule(observation):
        return 1 + 2 * np.tanh(observation[..., :2])

    def told(seed, steps=6):
        rng, last = np.random.default_rng(seed), np.arange(steps) == steps - 1
        seen = rng.standard_normal((steps + 1, 3)).astype(np.float32)
        rewards, never = rng.standard_normal(steps), np.zeros(steps, bool)
        return EpisodeData(seen, rule(seen[:-1]).astype(np.float32), rewards, never, last)

    settings = {"learning_rate": 1e-2, "initial_ent_coef": 0.1, "average_policy": False}
    shown = np.random.default_rng(9).standard_normal((64, 3)).astype(np.float32)
    off: dict[bool, list[float]] = {True: [], False: []}
    for seed, keeps in itertools.product(range(5), off):
        model = small("memoryless", wandering(2), seed=seed, **settings)
        model.add_episodes(told(number) for number in range(30))
        model.pretrain(150)
        if not keeps:
            model.learner.pretrained = Pretrained()
        model.learn(24)
        action, _ = model.predict(shown, deterministic=True)
        off[keeps].append(float(np.abs(action - rule(shown)).mean()))
    assert np.mean(off[True]) < 0.7 * np.mean(off[False])


def test_a_training_that_is_left_goes_on_with_its_weight():
    def tracking(near):
        model = small("vssm+kf", Track(horizon=7))
        rng, last = np.random.default_rng(0), np.arange(7) == 6
        for _ in range(8):
            seen = rng.standard_normal((8, 1)).astype(np.float32)
            rewards, never = -np.abs(seen[1:, 0]), np.zeros(7, bool)
            model.add_episodes([EpisodeData(seen, seen[:-1], rewards, never, last)])
        model.learner.trust.fill_(1.0)
        return model.pretrain(3, near_data=near)

    one = tracking(0.5).learn(20)
    state, replay = one.checkpoint_state(), one.replay.state_dict()
    other = tracking(0.1)  # the checkpoint's word goes before its own
    other.replay.load_state_dict(replay)
    assert other.load_checkpoint_state(state)
    assert other._training._near_data == one._training._near_data
    assert 0.5 <= one._training._near_data < 0.6
    assert other._training._share_of_data == one._training._share_of_data == 56 / 156
    one.learn(20)
    other.learn(20)
    for name, x in one.learner.state_dict().items():
        assert torch.equal(x, other.learner.state_dict()[name]), name


def test_recorded_updates_are_made_anew_for_another_weight():
    model = pretrained(0.4).learn(10)
    before = model._training.prepare()
    model.learner.pretrained = model.learner.pretrained._replace(near_data=0.8)
    assert model._training.prepare() != before


def test_files_hold_the_weight_where_there_is_one(tmp_path):
    model = pretrained(0.4).learn(10)
    model.save(tmp_path / "m")
    loaded = RecurrentSAC.load(tmp_path / "m", wandering(2), device="cpu")
    assert loaded.learner.pretrained == model.learner.pretrained
    assert loaded.learner.pretrained[1:3] == (0, 40)
    assert 0.4 <= loaded.learner.pretrained.near_data < 0.6
    assert loaded._training._share_of_data == model._training._share_of_data
    document = read_model(tmp_path / "m")
    write_model(tmp_path / "old", document | {"pretrained": [0.4, 0]})  # did not know of data
    old = RecurrentSAC.load(tmp_path / "old", device="cpu").learner.pretrained
    assert AgentSettings().near_online(old, 200) == 0.5
    wrongs = ([2.0, 0], [0.5, -1], [float("nan"), 0], [0.5, 0, -1], [0.5, 0, 9, 1.5])
    for wrong in (*wrongs, [0.5, 0, 9, 0.5, -1]):
        write_model(tmp_path / "wrong", document | {"pretrained": wrong})
        with pytest.raises(
            BadFileError, match=r"(near_data|trust): got|pretrained\.(steps|data|updates): got"
        ):
            RecurrentSAC.load(tmp_path / "wrong", device="cpu")
    small("gru", wandering(2)).learn(4).save(tmp_path / "plain")
    assert "pretrained" not in read_model(tmp_path / "plain")


def test_a_pretraining_goes_on_from_a_file_as_if_it_had_not_been_left(tmp_path):
    model = pretrained(0.4)
    model.save(tmp_path / "m")
    loaded = RecurrentSAC.load(tmp_path / "m", wandering(2), device="cpu")
    loaded.add_episodes([walk(5, seed) for seed in range(8)])
    for one in (model, loaded):
        one.pretrain(3, near_data=0.4)
    assert loaded.learner.pretrained == model.learner.pretrained
    for name, x in model.learner.state_dict().items():
        assert torch.equal(x, loaded.learner.state_dict()[name]), name


def test_rows_of_metrics_outlast_the_end_of_it(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "NEGLIGIBLE", 0.5)
    model = pretrained()
    model.set_logger(Logger(tmp_path, ["csv"]))
    model.learn(40, log_interval=100)
    assert model._training._near_data is None
    rows = (tmp_path / "metrics.csv").read_text().splitlines()
    assert len(rows) == 2
    assert "nan" not in rows[1]


@pytest.mark.gpu
def test_recorded_updates_read_the_share_and_end_with_it(monkeypatch):
    monkeypatch.setattr(config, "NEGLIGIBLE", 0.5)
    settings = {"device": "cuda", "tf32": False}
    models = [pretrained(graph=graph, **settings) for graph in (False, True)]
    for model in models:
        model.learn(2 * WARM_UP + 40)
        assert model._training._near_data is None
    one, two = (model.learner.state_dict() for model in models)
    for name, x in one.items():
        if name.startswith("actor."):
            torch.testing.assert_close(x, two[name], rtol=1e-3, atol=1e-4)
