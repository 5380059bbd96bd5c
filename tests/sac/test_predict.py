"""What the policy does when it acts is what it was trained to do."""

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from kalmanac._encoders.registry import ENCODERS
from kalmanac._envs.action_codecs import action_codec
from kalmanac._envs.observation_codecs import observation_codec
from kalmanac._observation import Sizes
from kalmanac._replay.buffer import Replay
from kalmanac._sac.collector import Collector
from kalmanac._sac.networks import read_history
from tests.sac.counting import Counting, acted
from tests.sac.small import small, wandering

LOW, HIGH = -2.0, 4.0


def played(model, env, steps):
    """A replay of `steps` vector steps of `model.predict`."""
    replay = Replay(Sizes(3, 2, False), env.num_envs)
    codecs = (
        observation_codec(env.single_observation_space),
        action_codec(env.single_action_space),
    )
    collector = Collector(env, *codecs, replay)
    carried = [None]

    def policy(observation, episode_start):
        action, carried[0] = model.predict(
            observation.vector, state=carried[0], episode_start=episode_start, deterministic=True
        )
        return (2 * (action - LOW) / (HIGH - LOW) - 1).astype(np.float32)

    collector.reset(seed=7)
    for _ in range(steps):
        acted(collector, policy)
    return replay


@pytest.mark.parametrize(
    ("mode", "packed"), [(AutoresetMode.SAME_STEP, True), (AutoresetMode.NEXT_STEP, False)]
)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_acting_equals_the_training_pass(encoder, mode, packed):
    model = small(encoder, wandering(4), normalize_observations=True, learning_starts=12)
    model.learn(24)
    replay = played(model, wandering(3, mode), 25)
    batch = replay.sample(60, 8, generator=torch.Generator().manual_seed(0), packed=packed)
    assert batch.valid.sum() > 100
    with torch.no_grad():
        actor = model.learner.averaged
        parameters = actor(read_history(model.normalizer.batch(batch)))
        trained = actor.distribution.mode(parameters[:, :-1])
    gap = (trained - batch.action).abs()[batch.valid]
    assert gap.max() < 2e-5
    if encoder != "memoryless":
        tokens = batch.observation.vector[:, :-1][batch.valid].numpy()
        forgetful, _ = model.predict(tokens, deterministic=True)
        taken = batch.action[batch.valid].numpy() * (HIGH - LOW) / 2 + (HIGH + LOW) / 2
        assert np.abs(forgetful - taken).max() > 1e-3, "history matters"


@pytest.mark.parametrize("encoder", ENCODERS)
def test_batch_equals_each_alone(encoder):
    model = small(encoder, wandering(2))
    rng = np.random.default_rng(0)
    observations = rng.standard_normal((6, 3, 3)).astype(np.float32)
    starts = rng.random((6, 3)) < 0.3
    together, state = [], None
    for seen, start in zip(observations, starts, strict=True):
        actions, state = model.predict(seen, state, start, deterministic=True)
        together.append(actions)
    for row in range(3):
        state = None
        for t in range(6):
            action, state = model.predict(
                observations[t, row], state, starts[t, row], deterministic=True
            )
            assert action.shape == (2,)
            np.testing.assert_allclose(action, together[t][row], atol=1e-5)


def test_episode_start_equals_a_fresh_state():
    model = small("vssm+kf", wandering(2))
    seen = np.ones((2, 3), np.float32)
    _, state = model.predict(5 * seen)
    first, _ = model.predict(seen, deterministic=True)
    restarted, _ = model.predict(seen, state, np.array([True, True]), deterministic=True)
    carried, _ = model.predict(seen, state, deterministic=True)
    np.testing.assert_array_equal(first, restarted)
    assert np.abs(carried - first).max() > 1e-6


@pytest.mark.parametrize("single", [True, False])
def test_session_equals_predict_with_state(single):
    model = small("gru", wandering(2))
    rng = np.random.default_rng(1)
    session, state = model.session(), None
    for t in range(8):
        seen = rng.standard_normal(3 if single else (2, 3)).astype(np.float32)
        if t == 4:
            session.reset()
            state = None
        expected, state = model.predict(seen, state, deterministic=True)
        np.testing.assert_array_equal(session.act(seen), expected)


def test_session_resets_single_rows():
    model = small("gru", wandering(2))
    session, state = model.session(), None
    seen = np.ones((2, 3), np.float32)
    for t in range(4):
        ended = np.array([False, t == 2])
        session.reset(ended)
        expected, state = model.predict(seen, state, ended, deterministic=True)
        np.testing.assert_array_equal(session(seen), expected)


def test_discrete_actions_are_the_environments_own():
    model = small("gru", Counting((5,)))
    action, _ = model.predict(np.zeros(3, np.float32))
    assert model.action_space.contains(action)
    actions = {int(model.predict(np.zeros(3, np.float32))[0]) for _ in range(60)}
    assert actions == {1, 2, 3}
    modes = {int(model.predict(np.zeros(3), deterministic=True)[0]) for _ in range(10)}
    assert len(modes) == 1


def test_read_only_and_listed_observations_are_fine():
    model = small("memoryless", wandering(1))
    seen = np.broadcast_to(np.float32(0.5), (4, 3))
    a, _ = model.predict(seen, deterministic=True)
    b, _ = model.predict([[0.5] * 3] * 4, deterministic=True)
    np.testing.assert_array_equal(a, b)


def test_wrong_arguments_are_refused():
    model = small("gru", wandering(1))
    seen = np.zeros((2, 3), np.float32)
    _, state = model.predict(seen)
    for wrong in (np.zeros(4), np.zeros((2, 4)), np.zeros((1, 2, 3)), np.zeros((0, 3))):
        with pytest.raises(ValueError, match=r"observation: got shape .* expected \(3,\) or"):
            model.predict(wrong)
    with pytest.raises(ValueError, match="state: got one of 2 episodes, expected 1"):
        model.predict(seen[0], state)
    with pytest.raises(ValueError, match="episode_start: got 3 flags, expected 2"):
        model.predict(seen, state, [True] * 3)
    with pytest.raises(TypeError, match="state: got tuple, expected what predict gave back"):
        model.predict(seen, (1, 2))


def test_a_seed_decides_the_actions_that_are_drawn():
    model = small("memoryless", wandering(1))
    seen = np.zeros((50, 3), np.float32)
    drawn = []
    for seed in (1, 1, 2):
        model.set_random_seed(seed)
        drawn.append(model.predict(seen)[0])
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])
