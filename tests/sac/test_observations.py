"""What environments tell beside their observations, on its way into the replay."""

import re
from functools import partial

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

from kalmanac._envs.action_codecs import action_codec
from kalmanac._envs.observation_codecs import observation_codec
from kalmanac._envs.registry import make_vector
from kalmanac._envs.sensors import Corruption
from kalmanac._envs.wrappers import PrivilegedObservation
from kalmanac._observation import Sizes
from kalmanac._replay.buffer import Replay
from kalmanac._sac.collector import Collector
from kalmanac._sac.environment_failure import EnvironmentFailedError
from kalmanac._sac.observations import ObservationReader, info_keys
from tests.envs.kinds import Everything, Forbidden, ImageIdentity, LastReading, copies

MODES = [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP]
every_mode = pytest.mark.parametrize("mode", MODES)
MASK = spaces.Discrete(3)


def collected(env, steps, **settings):
    """A replay of random steps that keep to the mask, and the collector."""
    actions = action_codec(env.single_action_space)
    observations = observation_codec(env.single_observation_space, actions)
    keys = info_keys(env)
    sizes = Sizes(
        observations.size, actions.size, actions.discrete, observed=keys.observed,
        images=observations.images,
        action_mask=keys.action_mask or observations.has_action_mask,
    )  # fmt: skip
    replay = Replay(sizes, env.num_envs)
    collector = Collector(env, observations, actions, replay, **keys._asdict(), **settings)
    rng = np.random.default_rng(0)
    collector.reset(seed=1)
    news = [
        collector.take(actions.sample(rng, env.num_envs, collector.observation.action_mask))
        for _ in range(steps)
    ]
    return replay, collector, news


def drawn(replay):
    return replay.sample(200, 8, generator=torch.Generator().manual_seed(0))


@every_mode
def test_masks_and_flags_lie_beside_their_observations(mode):
    env = copies(partial(Everything, missing=True, masked=True), 3, mode)
    replay, _, news = collected(env, 60)
    batch = drawn(replay)
    token = torch.arange(batch.observation.vector.shape[1]) < batch.lengths[:, None]
    pose = slice(5, 7)  # behind the cards' codes
    # "pose" tells (time, 5): zeros where the reading is missing, at every third step
    assert torch.equal(batch.observation.vector[..., pose][..., 1] == 5, batch.observation.observed)
    assert (batch.observation.vector[~batch.observation.observed] == 0).all()
    assert (batch.observation.images[~batch.observation.observed] == 0).all()
    assert (batch.observation.images[batch.observation.observed] != 0).float().mean() > 0.9
    assert batch.observation.images.dtype == torch.uint8
    time = torch.where(batch.observation.observed, batch.observation.vector[..., 5], 0).long()
    step = torch.arange(time.shape[1]).expand_as(time)
    assert torch.equal(time[batch.observation.observed], step[batch.observation.observed]), (
        "windows here are episodes"
    )
    assert torch.equal(batch.observation.observed[token], step[token] % 3 != 2)
    forbidden = torch.nn.functional.one_hot(step % 6, 6).bool()
    assert torch.equal(batch.observation.action_mask[token], ~forbidden[token])
    assert not batch.observation.action_mask[~token].any(), "pads are zero"
    readings = np.concatenate([new.observations for new in news])
    assert (readings[:, 6] == 5).all(), "missing readings are no news for a normalizer"


@every_mode
@pytest.mark.parametrize("inside", [False, True])
def test_a_terminated_episode_may_end_with_nothing_to_choose(mode, inside):
    replay, collector, _ = collected(copies(partial(Forbidden, inside=inside), 3, mode), 40)
    batch = drawn(replay)
    token = torch.arange(batch.observation.vector.shape[1]) < batch.lengths[:, None]
    allowed = batch.observation.action_mask.sum(-1)
    last = torch.zeros_like(token).scatter(1, batch.lengths[:, None] - 1, True)
    ended = last & (batch.lengths == 7)[:, None]
    assert (allowed[ended] == 4).all()
    assert ((allowed[token & ~ended] >= 1) & (allowed[token & ~ended] <= 3)).all()
    taken = batch.action.bool() & batch.valid[..., None]
    assert (batch.observation.action_mask[:, :-1] | ~taken).all()
    assert collector.observation.action_mask.any(1).all()


def test_a_mask_without_an_allowed_action_is_refused():
    class Stuck(Forbidden):
        def _draw(self, rng):
            return np.zeros(self.actions, np.int8)

    refused = "action_mask: got no allowed action in row 0, expected"
    with pytest.raises(EnvironmentFailedError, match=refused):
        collected(copies(Stuck, 2), 1)

    class Cut(Forbidden):
        def step(self, action):
            observation, reward, over, _, info = super().step(action)
            return observation, reward, False, over, info

    with pytest.raises(EnvironmentFailedError, match="action_mask: got no allowed action in row 0"):
        collected(copies(Cut, 1), 10)


def reader(**settings):
    actions = action_codec(MASK)
    return ObservationReader(observation_codec(spaces.Box(-1, 1, (1,))), actions, **settings)


def test_a_key_that_is_missing_means_seen_and_allowed():
    ours = reader(observed=True, action_mask=True)
    seen = np.ones((3, 1), np.float32)
    observation = ours.read(seen, {})
    assert observation.observed.all()
    assert observation.action_mask.all()
    infos = {
        "observed": np.array([False, False, False]), "_observed": np.array([True, False, False]),
        "action_mask": np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0]]),
        "_action_mask": np.array([False, True, False]),
    }  # fmt: skip
    observation = ours.read(seen, infos)
    assert observation.observed.tolist() == [False, True, True]
    assert observation.vector.tolist() == [[0], [1], [1]]
    assert observation.action_mask.tolist() == [[True] * 3, [False, True, False], [True] * 3]
    two = ours.read(seen[:2], infos, np.array([2, 1]))
    assert two.observed.tolist() == [True, True]
    assert two.action_mask.tolist() == [[True] * 3, [False, True, False]]


def test_what_gymnasium_cannot_stack_is_read_too():
    flags, masks = np.full((2, 2), None, dtype=object)
    flags[0], masks[0] = np.bool_(False), [True, False, True]
    there = np.array([True, False])
    infos = {"observed": flags, "_observed": there, "action_mask": masks, "_action_mask": there}
    observation = reader(observed=True, action_mask=True).read(np.ones((2, 1), np.float32), infos)
    assert observation.observed.tolist() == [False, True]
    assert observation.action_mask.tolist() == [[True, False, True], [True] * 3]


@pytest.mark.parametrize("word", [True, np.bool_(True), np.array(True), np.array([True])])
def test_a_word_that_a_reading_is_there_is_a_bool(word):
    infos = {"observed": [word, False]}
    observation = reader(observed=True).read(np.ones((2, 1), np.float32), infos)
    assert observation.observed.tolist() == [True, False]


@pytest.mark.parametrize("word", ["no", "False", np.nan, 0.3, None, 1, [], [True, True]])
def test_a_word_that_is_no_bool_is_refused(word):
    named = re.escape(f'info["observed"]: got {word!r}, expected True or False')
    with pytest.raises(ValueError, match=named):
        reader(observed=True).read(np.ones((2, 1), np.float32), {"observed": [True, word]})
    alone = np.array([None, None])
    alone[0] = word
    infos = {"observed": alone, "_observed": np.array([True, False])}
    with pytest.raises(ValueError, match=named):
        reader(observed=True).read(np.ones((2, 1), np.float32), infos)


def test_a_reading_that_is_missing_may_be_no_number():
    infos = {"observed": np.array([True, False])}
    seen = np.array([[1.0], [np.nan]], np.float32)
    assert reader(observed=True).read(seen, infos).vector.tolist() == [[1], [0]]
    assert np.isnan(seen[1, 0]), "the environment's array is its own"


def test_an_agent_that_is_not_told_sees_the_zeros_only():
    observation = reader().read(np.ones((2, 1), np.float32), {"observed": np.array([True, False])})
    assert (observation.observed, observation.action_mask) == (None, None)
    assert observation.vector.tolist() == [[1], [1]], "what stands there is the environment's word"


def test_what_an_environment_tells_is_known_before_the_first_step():
    assert info_keys(copies(LastReading, 2)) == (True, False)
    assert info_keys(copies(partial(LastReading, told=False), 2)) == (False, False)
    assert info_keys(copies(Forbidden, 2)) == (False, True)
    assert info_keys(copies(ImageIdentity, 2)) == (False, False)


def test_metadata_answer_without_a_reset():
    class Declared(LastReading):
        metadata = {"render_modes": [], "observed": True, "action_mask": False}  # noqa: RUF012

        def reset(self, **kwargs):
            raise AssertionError("no need to ask")

    assert info_keys(copies(Declared, 2)) == (True, False)
    Declared.metadata["observed"] = 1
    with pytest.raises(TypeError, match=r'env.metadata\["observed"\]: got 1, expected True or Fa'):
        info_keys(copies(Declared, 2))


def test_other_processes_tell_too():
    env = AsyncVectorEnv([LastReading] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    try:
        assert info_keys(env) == (True, False)
        replay, *_ = collected(env, 5)
        assert not drawn(replay).observation.observed.all()
    finally:
        env.close()


def test_the_oracles_reading_is_never_missing():
    env = PrivilegedObservation(copies(partial(Everything, missing=True), 2))
    assert info_keys(env) == (False, False)


@pytest.mark.parametrize("observed", [True, False])
def test_dropped_readings_of_a_task_in_the_table_are_told(observed):
    env = make_vector("track", 3, corruption=Corruption(dropout=0.5, dropout_told=observed))
    assert info_keys(env) == (True, False)
    replay, _, news = collected(env, 40)
    batch = drawn(replay)
    held = torch.arange(batch.observation.vector.shape[1]) < batch.lengths[:, None]
    zero = (batch.observation.vector == 0).all(-1)
    assert 0.3 < zero[held].float().mean() < 0.7
    if observed:
        assert torch.equal(batch.observation.observed[held], ~zero[held])
    else:
        assert batch.observation.observed[held].all(), "zeros like any other reading"
    readings = np.concatenate([new.observations for new in news])
    assert bool((readings == 0).any()) is not observed, "a normalizer hears of what is there"
