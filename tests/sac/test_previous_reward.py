"""The reward of the last step as an input: acting, training, evaluating, saving and loading."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from kalmanac._lab.experiment import Experiment
from kalmanac._sac.evaluation import evaluate_policy
from kalmanac._sac.networks import read_history
from kalmanac._sac.recurrent_sac import RecurrentSAC
from tests.sac.small import Listener, small, wandering

both_modes = pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])


class Arms(gymnasium.Env):
    """One of two arms pays 1 in this episode, the other nothing; observations say nothing."""

    def __init__(self):
        self.observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._good, self._left = int(self.np_random.integers(2)), 6
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self._left -= 1
        return np.zeros(1, np.float32), float(action == self._good), False, self._left == 0, {}


@pytest.mark.slow
def test_it_learns_what_rewards_alone_tell():
    arms = SyncVectorEnv([Arms] * 8, autoreset_mode=AutoresetMode.SAME_STEP)
    settings = {
        "learning_rate": 1e-2, "batch_size": 32, "learning_starts": 96, "gamma": 0.5,
        "ent_coef": 0.1, "update_to_data": 0.5, "tau": 0.02,
    }  # fmt: skip
    blind, seeing = (
        small("gru", arms, previous_reward=shown, **settings).learn(steps)
        for shown, steps in ((False, 200), (True, 700))
    )
    # at best 3 of 6 without it; 5.5 with it: half of the first tries fail
    assert evaluate_policy(blind, Arms(), 100, seed=1).mean_reward < 4
    assert evaluate_policy(seeing, Arms(), 100, seed=1).mean_reward > 5


@both_modes
@pytest.mark.parametrize("settings", [{}, {"previous_action": False}, {"normalize_rewards": True}])
def test_acting_sees_what_training_sees(mode, settings):
    """Step by step, with the rewards as the environment gave them, and in one pass."""
    model = small("vssm+kf", wandering(2, mode), previous_reward=True, **settings).learn(60)
    training = model._attached()
    generator = torch.Generator().manual_seed(0)
    seen = training._sample(generator.manual_seed(0))
    raw = model.replay.sample(4, 8, generator=generator.manual_seed(0), packed=True)
    assert (seen.reward != raw.reward).any() == ("normalize_rewards" in settings)
    with torch.no_grad():
        actor = model.learner.averaged
        wanted = actor.distribution.mode(actor(read_history(seen)))[0]
    state, policy = None, model.policy
    for t in range(int(raw.lengths[0])):
        start = [bool(raw.reset[0, t])]
        action, state = model.predict(
            raw.observation.vector[0, t : t + 1].numpy(), state, start, deterministic=True,
            previous_reward=raw.reward[0, t - 1 : t] if t else None,
        )  # fmt: skip
        expected = model._known()[0].actions.decode(wanted[t : t + 1].numpy())
        np.testing.assert_allclose(action, expected, atol=1e-5)
        if t < raw.action.shape[1]:
            state = policy.replace_action(raw.action[0, t : t + 1].numpy(), state)


@both_modes
def test_collecting_shows_the_last_reward_and_zero_at_a_start(mode):
    model, seen = small("gru", wandering(3, mode), previous_reward=True), []

    class Looking(Listener):
        def on_step(self, model):
            collector = model._attached().collector
            seen.append((collector.observation.previous_reward, collector.episode_start))

    model.learn(90, Looking())
    shown, starts = (np.stack(x) for x in zip(*seen, strict=True))
    assert shown.dtype == np.float32
    assert (shown[starts] == 0).all()
    assert starts.any()
    if mode is AutoresetMode.SAME_STEP:
        assert (shown[~starts] != 0).all()


def test_a_window_shows_the_rewards_before_its_tokens():
    replay = small("gru", wandering(2, longest=9), learning_starts=900).learn(200).replay

    def sample(**parts):  # always the same windows
        return replay.sample(8, 4, generator=torch.Generator().manual_seed(0), **parts)

    windows = replay.sample_windows(8, 4, generator=torch.Generator().manual_seed(0))
    assert (windows.before > 0).any()
    assert (windows.before == 0).any()
    for packed in (False, True):
        batch = sample(true_previous_action=True, previous_reward=True, packed=packed)
        shown, tokens = batch.observation.previous_reward, batch.reward.shape[1]
        reset = batch.reset
        if reset is None:
            reset = torch.zeros(shown.shape, dtype=torch.bool)
            reset[:, 0] = True
        follows = ~reset[:, 1:] & (torch.arange(1, tokens + 1) < batch.lengths[:, None])
        assert torch.equal(shown[:, 1:][follows], batch.reward[follows])
        # in this environment the reward is the action's first number, in [-2, 4]
        action = batch.previous_action[..., 0]
        inside = torch.arange(tokens + 1) < batch.lengths[:, None]
        begun = shown == 0
        torch.testing.assert_close(shown[inside & ~begun], (3 * action + 1)[inside & ~begun])
        assert begun[inside].sum() == (windows.before == 0).sum()
        zeros = sample(previous_reward=True, packed=packed)
        assert (zeros.observation.previous_reward[reset] == 0).all()
    assert sample().observation.previous_reward is None


@pytest.mark.parametrize("settings", [{}, {"normalize_rewards": True, "privileged_critic": True}])
def test_predict_session_evaluation_and_the_training_pass_agree(settings, tmp_path):
    trained = small("vssm+kf", wandering(2), previous_reward=True, **settings).learn(60)
    trained.save(tmp_path / "whole")
    trained.save(tmp_path / "policy", policy_alone=True)
    rng = np.random.default_rng(0)
    seen, rewards = rng.standard_normal((9, 3), np.float32), rng.standard_normal(9) * 50
    for file in ("whole", "policy"):
        model = RecurrentSAC.load(tmp_path / file, device="cpu")
        session, state, by_hand, told = model.session(), None, [], None
        for t in range(9):
            told = None if t == 0 else rewards[t - 1]
            acted = session.act(seen[t], previous_reward=told)
            action, state = model.predict(seen[t], state, deterministic=True, previous_reward=told)
            np.testing.assert_array_equal(acted, action)
            by_hand.append(action)
    untold = [model.predict(seen[0], deterministic=True)[0]]
    np.testing.assert_array_equal(untold[0], by_hand[0])
    other, _ = model.predict(seen[1], state, deterministic=True, previous_reward=rewards[7] + 100)
    same, _ = model.predict(seen[1], state, deterministic=True, previous_reward=rewards[7])
    assert np.abs(other - same).max() > 1e-4, "the reward matters"


def test_evaluation_tells_the_rewards_and_the_starts():
    class Asking:
        previous_reward = True

        def __init__(self):
            self.told = []

        def predict(self, observation, state, episode_start, deterministic, previous_reward):
            self.told.append((episode_start.copy(), previous_reward))
            return np.full((len(observation), 2), 3, np.float32), None

    for mode in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP):
        model = Asking()
        evaluate_policy(model, wandering(2, mode, longest=3), 8, seed=0)
        starts, told = (np.stack(x) for x in zip(*model.told, strict=True))
        assert (told[starts] == 0).all()
        # this action pays 3; a step that resets pays nothing
        assert set(told[~starts]) == {3.0}


def test_what_is_missing_or_too_much_is_said():
    model, plain = small("gru", wandering(1), previous_reward=True), small("gru", wandering(1))
    batch = np.zeros((2, 3), np.float32)
    _, state = model.predict(batch)
    missing = "previous_reward: got none, expected the reward of the last step: the agent was made "
    with pytest.raises(ValueError, match=missing):
        model.predict(batch, state)
    with pytest.raises(ValueError, match=missing):
        model.predict(batch, state, episode_start=[True, False])
    model.predict(batch, state, episode_start=[True, True])
    model.predict(batch, state, episode_start=[True, False], previous_reward=[np.nan, 1])
    with pytest.raises(ValueError, match="previous_reward: got 1 numbers, expected 2"):
        model.predict(batch, state, previous_reward=1.0)
    with pytest.raises(ValueError, match="previous_reward: got nan in row 1, expected finite"):
        model.predict(batch, state, previous_reward=[1, np.nan])
    with pytest.raises(ValueError, match=r"previous_reward: got 1e\+39 in row 1, expected finite"):
        model.predict(batch, state, previous_reward=[1, 1e39])
    with pytest.raises(ValueError, match="previous_reward: got 'x', expected numbers"):
        model.predict(batch, state, previous_reward="x")
    with pytest.raises(ValueError, match="previous_reward: got one, expected none"):
        plain.predict(batch, previous_reward=[0, 0])
    session = model.session()
    session.act(batch[0])
    with pytest.raises(ValueError, match=missing):
        session.act(batch[0])
    session.reset()
    session.act(batch[0])


def test_a_replay_of_another_agent_serves(tmp_path):
    """The rewards are in every replay: nothing else has to be stored."""
    small("gru", wandering(2)).learn(40).save_replay_buffer(tmp_path / "one")
    model = small("gru", wandering(2), previous_reward=True)
    model.load_replay_buffer(tmp_path / "one")
    assert model.learn(10).num_updates > 0


def test_descriptions_name_it_where_it_is_on():
    assert "previous_reward" not in Experiment().to_data()
    shown = Experiment(previous_reward=True)
    assert shown.to_data()["previous_reward"] is True
    assert Experiment.from_json(shown.to_json()) == shown
    assert shown.hash != Experiment().hash
