"""What environments tell beside their observations, on its way into the replay."""

from functools import partial

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

from kalmanac.envs import PrivilegedObservation, make_vector
from kalmanac.envs.codecs import action_codec, observation_codec
from kalmanac.envs.sensors import Corruption
from kalmanac.replay import Replay, Sizes
from kalmanac.rollout import Collector, EnvironmentFailedError, Senses, tells
from tests.envs.kinds import Everything, Forbidden, ImageIdentity, LastReading, copies

MODES = [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP]
every_mode = pytest.mark.parametrize("mode", MODES)
MASK = spaces.Discrete(3)


def collected(env, steps, **settings):
    """A replay of random steps that keep to the mask, and the collector."""
    actions = action_codec(env.single_action_space)
    observations = observation_codec(env.single_observation_space, actions)
    told = tells(env)
    sizes = Sizes(
        observations.size, actions.size, actions.discrete, observed=told.observed,
        images=observations.images,
        action_mask=told.action_mask or observations.tells_action_mask,
    )  # fmt: skip
    replay = Replay(sizes, env.num_envs)
    collector = Collector(env, observations, actions, replay, **told._asdict(), **settings)
    rng = np.random.default_rng(0)
    collector.reset(seed=1)
    news = [
        collector.step(lambda sight, _: actions.sample(rng, env.num_envs, sight.action_mask))
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
    token = torch.arange(batch.observation.shape[1]) < batch.lengths[:, None]
    pose = slice(5, 7)  # behind the cards' codes
    # "pose" tells (time, 5): zeros where the reading is missing, at every third step
    assert torch.equal(batch.observation[..., pose][..., 1] == 5, batch.observed)
    assert (batch.observation[~batch.observed] == 0).all()
    assert (batch.pixels[~batch.observed] == 0).all()
    assert (batch.pixels[batch.observed] != 0).float().mean() > 0.9
    assert batch.pixels.dtype == torch.uint8
    time = torch.where(batch.observed, batch.observation[..., 5], 0).long()
    step = torch.arange(time.shape[1]).expand_as(time)
    assert torch.equal(time[batch.observed], step[batch.observed]), "windows here are episodes"
    assert torch.equal(batch.observed[token], step[token] % 3 != 2)
    forbidden = torch.nn.functional.one_hot(step % 6, 6).bool()
    assert torch.equal(batch.action_mask[token], ~forbidden[token])
    assert not batch.action_mask[~token].any(), "pads are zero"
    readings = np.concatenate([new.observations for new in news])
    assert (readings[:, 6] == 5).all(), "missing readings are no news for a normaliser"


@every_mode
@pytest.mark.parametrize("inside", [False, True])
def test_a_terminated_episode_may_end_with_nothing_to_choose(mode, inside):
    replay, collector, _ = collected(copies(partial(Forbidden, inside=inside), 3, mode), 40)
    batch = drawn(replay)
    token = torch.arange(batch.observation.shape[1]) < batch.lengths[:, None]
    allowed = batch.action_mask.sum(-1)
    last = torch.zeros_like(token).scatter(1, batch.lengths[:, None] - 1, True)
    ended = last & (batch.lengths == 7)[:, None]
    assert (allowed[ended] == 4).all()
    assert ((allowed[token & ~ended] >= 1) & (allowed[token & ~ended] <= 3)).all()
    taken = batch.action.bool() & batch.valid[..., None]
    assert (batch.action_mask[:, :-1] | ~taken).all()
    assert collector.sight.action_mask.any(1).all()


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


def senses(**settings):
    actions = action_codec(MASK)
    return Senses(observation_codec(spaces.Box(-1, 1, (1,))), actions, **settings)


def test_a_key_that_is_missing_means_seen_and_allowed():
    ours = senses(observed=True, action_mask=True)
    seen = np.ones((3, 1), np.float32)
    sight = ours.see(seen, {})
    assert sight.observed.all()
    assert sight.action_mask.all()
    infos = {
        "observed": np.array([False, False, False]), "_observed": np.array([True, False, False]),
        "action_mask": np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0]]),
        "_action_mask": np.array([False, True, False]),
    }  # fmt: skip
    sight = ours.see(seen, infos)
    assert sight.observed.tolist() == [False, True, True]
    assert sight.observation.tolist() == [[0], [1], [1]]
    assert sight.action_mask.tolist() == [[True] * 3, [False, True, False], [True] * 3]
    two = ours.see(seen[:2], infos, np.array([2, 1]))
    assert two.observed.tolist() == [True, True]
    assert two.action_mask.tolist() == [[True] * 3, [False, True, False]]


def test_what_gymnasium_cannot_stack_is_read_too():
    flags, masks = np.full((2, 2), None, dtype=object)
    flags[0], masks[0] = np.bool_(False), [True, False, True]
    there = np.array([True, False])
    infos = {"observed": flags, "_observed": there, "action_mask": masks, "_action_mask": there}
    sight = senses(observed=True, action_mask=True).see(np.ones((2, 1), np.float32), infos)
    assert sight.observed.tolist() == [False, True]
    assert sight.action_mask.tolist() == [[True, False, True], [True] * 3]


def test_a_reading_that_is_missing_may_be_no_number():
    infos = {"observed": np.array([True, False])}
    seen = np.array([[1.0], [np.nan]], np.float32)
    assert senses(observed=True).see(seen, infos).observation.tolist() == [[1], [0]]
    assert np.isnan(seen[1, 0]), "the environment's array is its own"


def test_an_agent_that_is_not_told_sees_the_zeros_only():
    sight = senses().see(np.ones((2, 1), np.float32), {"observed": np.array([True, False])})
    assert (sight.observed, sight.action_mask) == (None, None)
    assert sight.observation.tolist() == [[1], [1]], "what stands there is the environment's word"


def test_what_an_environment_tells_is_known_before_the_first_step():
    assert tells(copies(LastReading, 2)) == (True, False)
    assert tells(copies(partial(LastReading, told=False), 2)) == (False, False)
    assert tells(copies(Forbidden, 2)) == (False, True)
    assert tells(copies(ImageIdentity, 2)) == (False, False)


def test_metadata_answer_without_a_reset():
    class Declared(LastReading):
        metadata = {"render_modes": [], "observed": True, "action_mask": False}  # noqa: RUF012

        def reset(self, **kwargs):
            raise AssertionError("no need to ask")

    assert tells(copies(Declared, 2)) == (True, False)
    Declared.metadata["observed"] = 1
    with pytest.raises(TypeError, match=r'env.metadata\["observed"\]: got 1, expected True or Fa'):
        tells(copies(Declared, 2))


def test_other_processes_tell_too():
    env = AsyncVectorEnv([LastReading] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    try:
        assert tells(env) == (True, False)
        replay, *_ = collected(env, 5)
        assert not drawn(replay).observed.all()
    finally:
        env.close()


def test_the_oracles_reading_is_never_missing():
    env = PrivilegedObservation(copies(partial(Everything, missing=True), 2))
    assert tells(env) == (False, False)


@pytest.mark.parametrize("told", [True, False])
def test_dropped_readings_of_a_task_in_the_table_are_told(told):
    env = make_vector("track", 3, corruption=Corruption(dropout=0.5, dropout_told=told))
    assert tells(env) == (True, False)
    replay, _, news = collected(env, 40)
    batch = drawn(replay)
    held = torch.arange(batch.observation.shape[1]) < batch.lengths[:, None]
    zero = (batch.observation == 0).all(-1)
    assert 0.3 < zero[held].float().mean() < 0.7
    if told:
        assert torch.equal(batch.observed[held], ~zero[held])
    else:
        assert batch.observed[held].all(), "zeros like any other reading"
    readings = np.concatenate([new.observations for new in news])
    assert bool((readings == 0).any()) is not told, "a normaliser hears of what is there"
