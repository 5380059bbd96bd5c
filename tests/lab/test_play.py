"""Played episodes: the same as the agent plays elsewhere, and what went on inside it."""

from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch

from kalmanac._encoders.kalman_encoder import KalmanEncoder
from kalmanac._envs.best_arm_rules import posterior
from kalmanac._envs.registry import make_vector
from kalmanac._files.episode_file import read_episode
from kalmanac._lab.episode_trace import latent_map, refuse_without_latent_map
from kalmanac._lab.play import file_name, play, play_adversarial, record_episodes
from kalmanac._sac.evaluation import evaluate_policy
from tests.lab.tiny import Counts
from tests.report.episodes import Swing, untrained

pytestmark = pytest.mark.usefixtures("compiled_only")
SWING = f"{Swing.__module__}:Swing"
TWO = {"encoder_settings": {"d_state": 2}}


def agree(agent, seed):
    """Plays the episode twice: watched, and as evaluations do."""
    model, experiment = agent
    watched = play(model, experiment, seed=seed)
    env = make_vector(
        experiment.env, 1, privileged=experiment.privileged, **experiment.env_settings
    )
    evaluation = evaluate_policy(model, env, 1, seed=seed)
    env.close()
    assert watched.steps == evaluation.lengths[0]
    assert watched.total_reward == pytest.approx(evaluation.returns[0])
    return watched


@pytest.mark.parametrize(
    "encoder", ["vssm+kf", "kf-block", "vssm", "gru", "transformer", "memoryless", "oracle"]
)
def test_watching_changes_nothing(encoder):
    for seed in range(3):
        watched = agree(untrained(encoder), seed)
        assert (watched.belief_mean is not None) == (encoder in ("vssm+kf", "kf-block"))
        np.testing.assert_array_equal(watched.action, watched.probability.argmax(1))
        np.testing.assert_allclose(watched.probability.sum(1), 1, rtol=1e-5)


def test_a_continuous_task_tells_state_readings_and_actions():
    watched = agree(untrained("vssm+kf", SWING), 1)
    assert watched.probability is None
    assert watched.action.shape == watched.action_mean.shape == (12, 2)
    np.testing.assert_allclose(watched.action, watched.action_mean, rtol=1e-5)
    assert (watched.action_low < watched.action).all()
    assert (watched.action < watched.action_high).all()
    assert (watched.action_low >= -2).all()
    assert (watched.action_high <= 4).all()
    np.testing.assert_allclose(watched.truth[:, 0], np.sin(np.arange(12)), atol=1e-6)
    assert np.abs(watched.observation - watched.truth).max() > 0.5
    np.testing.assert_allclose(watched.reward, watched.action.sum(1), rtol=1e-5)
    assert not watched.about.terminated


def test_actions_are_numbered_from_zero_whatever_the_space_calls_them():
    watched = agree(untrained("gru", f"{Counts.__module__}:Counts"), 0)
    assert watched.about.action_names == ("0", "1", "2")
    assert watched.action.max() < 3
    assert watched.truth is None
    assert watched.about.won is None


def test_environments_that_reset_in_the_next_step_are_played_to_their_end():
    assert gymnasium.spec("CartPole-v1").vector_entry_point is not None
    assert agree(untrained("memoryless", "CartPole-v1"), 0).steps > 5


def test_samples_and_posterior_are_told_to_us_even_where_the_agent_sees_neither():
    watched = [play(*untrained(name), seed=4, changes={"mu": (0.2, 0.2)}) for name in
               ("oracle", "memoryless")]  # fmt: skip
    for one in watched:
        assert one.about.mu == 0.2
        count = np.arange(1, one.steps + 1)
        mean, std = posterior(np.cumsum(one.observation[:, 0]), count, one.about.sigma)
        np.testing.assert_allclose(one.posterior_mean, mean, rtol=1e-5)
        np.testing.assert_allclose(one.posterior_std, std)
        assert one.about.won in (True, False)
    assert watched[0].observation[0] == watched[1].observation[0]


def test_beliefs_are_those_of_the_agent_s_own_state():
    model, experiment = untrained("vssm+kf", encoder_settings={"d_state": 5, "layers": 2})
    watched = play(model, experiment, seed=3, deterministic=False)
    assert watched.steps > 1
    state = None
    encoder = model.learner.actor.network.encoder
    assert isinstance(encoder, KalmanEncoder)
    for t in range(watched.steps):
        _, state = model.predict(watched.observation[t], state, deterministic=True)
        np.testing.assert_allclose(
            watched.belief_mean[:, t], state.encoder.mean[0], rtol=1e-4, atol=1e-5
        )
        np.testing.assert_allclose(
            watched.belief_variance[:, t], state.encoder.variance[0], rtol=1e-4
        )
        done = torch.nn.functional.one_hot(torch.tensor([watched.action[t]]), 3).float()
        state = state._replace(previous_action=done)
    assert ((watched.gain > 0) & (watched.gain < 1)).all()
    moved = watched.belief_mean[-1].std(0)
    weight = encoder.stack.layers[-1].out_projection.weight.detach().norm(dim=0).numpy()
    np.testing.assert_allclose(watched.influence, moved * weight, rtol=1e-4)


class Hindered(Counts):
    """Every other reading is missing, and at step t action t mod 3 is forbidden; 6 steps."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": [], "observed": True, "action_mask": True}

    def __init__(self):
        super().__init__(6)

    def reset(self, *, seed=None, options=None):
        observation, _ = super().reset()
        return observation, self.infos()

    def step(self, action):
        assert action - 5 != self.steps % 3
        *transition, _ = super().step(action)
        return *transition, self.infos()

    def infos(self):
        allowed = np.arange(3) != self.steps % 3
        return {"observed": self.steps % 2 == 0, "action_mask": allowed.astype(np.int8)}


def test_missing_readings_and_forbidden_actions_are_what_they_are():
    agent = untrained("vssm+kf", f"{__name__}:Hindered")
    assert agent[0].info_keys == {"observed", "action_mask"}
    for watched in (agree(agent, 0), play(*agent, seed=1, deterministic=False)):
        steps = np.arange(6)
        np.testing.assert_array_equal(watched.probability[steps, steps % 3], 0)
        np.testing.assert_allclose(watched.probability.sum(1), 1, rtol=1e-5)
        np.testing.assert_array_equal(watched.gain[0, 1::2], 0)
        assert (watched.gain[0, ::2] > 0).all()


def test_drawn_actions_are_decided_by_the_seed():
    model, experiment = untrained("gru")
    first, again, other = (
        play(model, experiment, seed=seed, deterministic=False) for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(first.action, again.action)
    np.testing.assert_array_equal(first.observation, again.observation)
    assert first.observation[0] != other.observation[0]
    lengths = {play(model, experiment, seed=s, deterministic=False).steps for s in range(9)}
    assert len(lengths) > 1


@pytest.mark.parametrize("encoder", ["vssm", "vssm+kf", "vssm+kf-u"])
def test_the_map_of_the_latent_space_is_the_policy_itself(encoder):
    model, experiment = untrained(encoder, **TWO)
    watched = play(model, experiment, seed=1, deterministic=False)
    (first, second), share = watched.latent_grid, watched.latent_probability
    assert share.shape == (len(second), len(first), 3)
    np.testing.assert_allclose(share.sum(-1), 1, rtol=1e-5)
    x, y = watched.latent[-1]
    assert first[0] < x < first[-1]
    assert second[0] < y < second[-1]
    # exactly where the agent was, the map says what the agent thought
    at = np.abs(first - x).argmin(), np.abs(second - y).argmin()
    np.testing.assert_allclose(share[at[1], at[0]], watched.probability[-1], atol=0.02)
    if watched.belief_mean is not None:
        np.testing.assert_allclose(watched.latent, watched.belief_mean[-1], rtol=1e-4, atol=1e-6)


def test_the_map_tells_the_two_channels_apart():
    model, _ = untrained("vssm+kf", **TWO)
    latent = np.float32([[-4, 0.5], [1, 9]])
    skip = torch.zeros(1, 1)
    (first, second), share = latent_map(model, latent, skip)
    assert first[0] < -4
    assert second[-1] > 9 > first[-1]
    actor = model.learner.actor
    place = torch.tensor([[first[3], second[100]]])
    z = actor.network.encoder.stack.layers[0].out_projection(place)
    expected = torch.softmax(actor.head(torch.cat([z, skip], -1)), -1)[0]
    np.testing.assert_allclose(share[100, 3], expected.detach(), rtol=1e-4)


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (("gru",), "encoder 'gru', settings {} and discrete actions"),
        (("vssm+kf",), "expected vssm, vssm\\+kf or vssm\\+kf-u with two latent channels"),
        (("vssm+kf", SWING), "continuous actions"),
    ],
)
def test_an_agent_that_cannot_be_mapped_is_told_how_to_train_one(agent, words):
    extra = TWO if agent[-1] == SWING else {}
    model, experiment = untrained(*agent, **extra)
    with pytest.raises(ValueError, match=rf"latent: got .*{words}.* --encoder-settings d_state=2"):
        refuse_without_latent_map(model)
    assert play(model, experiment, seed=0).latent is None


def test_recording_leaves_one_file_for_each_episode(tmp_path):
    model, experiment = untrained("vssm+kf", **TWO)
    files = list(
        record_episodes(model, experiment, tmp_path / "new", episodes=2, seed=4, adversarial=True)
    )
    read = [read_episode(file) for file in files]
    assert [one.about.seed for one in read[:2]] == [4, 5]
    assert [one.about.title for one in read] == ["", "", "adversarial"]
    assert [file.stem for file in files] == [file_name(one) for one in read]
    assert files[0].name == "best-arm-vssm+kf-seed4.npz"
    assert read[0].about.training_step == 0
    assert read[2].about.mu < 0 < read[2].observation[0, 0]
    assert read[2].observation[0] == play_adversarial(*untrained("gru")).observation[0]


def test_what_another_task_does_not_know_is_refused():
    model, experiment = untrained("gru", SWING)
    with pytest.raises(ValueError, match=r"adversarial: got .*Swing, expected best-arm"):
        play_adversarial(model, experiment)
    with pytest.raises(ValueError, match="env_settings: got 'nu'"):
        play(*untrained("gru"), seed=0, changes={"nu": 1})
