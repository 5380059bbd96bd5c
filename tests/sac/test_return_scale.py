"""Rewards on the scale of discounted returns."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kalmanac._observation import Observation
from kalmanac._replay.sampling import Batch
from kalmanac._sac.normalization import ReturnScale
from kalmanac._sac.recurrent_sac import RecurrentSAC
from tests.sac.small import small, wandering

GAMMA = 0.9


def batch_of(reward):
    nothing = torch.zeros(1)
    return Batch(Observation(nothing), nothing, nothing, reward, nothing, nothing, nothing)


def seen(rewards, stepped, ended):
    scale = ReturnScale(GAMMA)
    scale.attach(rewards.shape[1])
    for row in zip(rewards, stepped, ended, strict=True):
        scale.update(*row)
    return scale


def plainly(rewards, stepped, ended):
    """All discounted returns on the way, stream by stream."""
    actual = []
    for stream in range(rewards.shape[1]):
        running = 0.0
        for reward, took, over in zip(
            rewards[:, stream], stepped[:, stream], ended[:, stream], strict=True
        ):
            if took:
                running = GAMMA * running + reward
                actual.append(running)
            running = 0.0 if over else running
    return np.array(actual)


@given(st.integers(0, 2**32 - 1), st.integers(2, 40), st.integers(1, 4))
def test_the_factor_is_that_of_all_returns_so_far(seed, steps, streams):
    rng = np.random.default_rng(seed)
    rewards = 7 * rng.standard_normal((steps, streams))
    stepped, ended = rng.random((2, steps, streams)) < [[[0.8]], [[0.2]]]
    truth = plainly(rewards, stepped, ended)
    scale = seen(rewards, stepped, ended)
    if len(truth) < 2:
        assert scale.factor == 1.0
    else:
        assert scale.factor == pytest.approx(1 / np.sqrt(truth.var() + 1e-8), rel=1e-9)
    reward = torch.tensor([[2.0, -3.0]])
    torch.testing.assert_close(scale.batch(batch_of(reward)).reward, reward * scale.factor)


def test_rewards_that_are_always_zero_stay_as_they_are():
    scale = seen(np.zeros((9, 2)), np.ones((9, 2), bool), np.zeros((9, 2), bool))
    assert scale.factor == 1.0


def test_a_restored_scale_goes_on_as_the_first():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((30, 3)), np.ones((30, 3), bool), rng.random((30, 3)) < 0.1
    whole = seen(*rows)
    first = seen(*(x[:17] for x in rows))
    other = ReturnScale(GAMMA)
    other.load_state_dict(first.state_dict())
    for row in zip(*(x[17:] for x in rows), strict=True):
        other.update(*row)
    assert other.state_dict()["running"].equal(whole.state_dict()["running"])
    assert other.factor == whole.factor


def test_an_agent_learns_the_same_whatever_the_unit_of_its_rewards(monkeypatch):
    """The scale is all that a unit changes: metrics of updates are those of the other unit."""

    def trained(unit, **settings):
        env = wandering(2)
        for single in env.envs:
            step = single.step

            def scaled(action, step=step):
                observation, reward, *rest = step(action)
                return observation, unit * reward, *rest

            monkeypatch.setattr(single, "step", scaled)
        model = small("gru", env, **settings)
        return model.learn(60)

    one, thousand = (trained(unit, normalize_rewards=True) for unit in (1.0, 1000.0))
    assert thousand.return_scale.factor == pytest.approx(one.return_scale.factor / 1000, rel=1e-5)
    for name, x in one.learner.actor.state_dict().items():
        torch.testing.assert_close(
            x, thousand.learner.actor.state_dict()[name], rtol=0.02, atol=0.002
        )
    plain = trained(1000.0)
    gaps = [
        (x - plain.learner.critic.state_dict()[name]).abs().max().item()
        for name, x in one.learner.critic.state_dict().items()
    ]
    assert max(gaps) > 0.005, "without it the unit matters"


def test_replay_and_returns_keep_the_environment_s_own_rewards():
    plain = small("gru", wandering(2), learning_starts=90).learn(60)
    scaled = small("gru", wandering(2), learning_starts=90, normalize_rewards=True).learn(60)
    states = (model.replay.state_dict()["storage"]["reward"] for model in (plain, scaled))
    assert torch.equal(*states)
    batches = (model._attached().batch_aside() for model in (plain, scaled))
    first, second = (batch.reward for batch in batches)
    torch.testing.assert_close(first * scaled.return_scale.factor, second)
    assert scaled.return_scale.factor != 1.0


def test_a_scale_of_other_streams_is_refused():
    scale = ReturnScale(GAMMA)
    scale.attach(2)
    kept = scale.state_dict() | {"running": torch.zeros(3)}
    with pytest.raises(ValueError, match="running: got returns of 3 streams, expected 2"):
        scale.load_state_dict(kept)


def test_the_scale_is_saved_with_the_model(tmp_path):
    model = small("gru", wandering(2), normalize_rewards=True).learn(60)
    model.save(tmp_path / "model")
    loaded = RecurrentSAC.load(tmp_path / "model", wandering(3), device="cpu")
    assert loaded.return_scale.factor == model.return_scale.factor
    loaded.learn(30)
    assert loaded.return_scale.count == 90


def test_parameters_take_the_scale_along():
    settings = {"previous_reward": True, "normalize_rewards": True}
    one = small("gru", wandering(2), **settings).learn(60)
    other = small("gru", wandering(2), **settings, seed=9)
    parameters, running = one.get_parameters(), other.return_scale.running.copy()
    other.set_parameters(parameters)
    assert other.return_scale.factor == one.return_scale.factor != 1.0
    assert other.return_scale.count == one.return_scale.count == 60
    np.testing.assert_array_equal(other.return_scale.running, running)
    observation = np.ones((2, 3), np.float32)
    actions = []
    for model in (one, other):
        _, state = model.predict(observation, deterministic=True)
        actions += [model.predict(observation, state, None, True, previous_reward=[50.0, -9.0])[0]]
    np.testing.assert_array_equal(*actions)
    older = {name: x for name, x in parameters.items() if not name.startswith("return_scale.")}
    with pytest.raises(ValueError, match=r"return_scale\.count: got none, expected otherwise"):
        other.set_parameters(older)
    other.set_parameters(older, exact_match=False)
    assert other.return_scale.factor == one.return_scale.factor
