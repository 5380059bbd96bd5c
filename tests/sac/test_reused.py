"""What environments that fill one array again and again show is stored as it was."""

import warnings

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from kalmanac._envs.action_codecs import action_codec
from kalmanac._envs.observation_codecs import observation_codec
from kalmanac._observation import Sizes
from kalmanac._replay.buffer import Replay
from kalmanac._sac.collector import Collector
from kalmanac._sac.episode_streams import EpisodeStreams, as_vector
from kalmanac._sac.evaluation import evaluate_policy
from tests.sac.reusing import SPACES, Closed, Reusing, vector

MODES = [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP]
BOTH = pytest.mark.parametrize("mode", MODES, ids=["same step", "next step"])
every_kind = pytest.mark.parametrize("kind", SPACES)


def stored(env, steps=40, with_infos=True):
    """All that a replay holds after so many vector steps, by field."""
    actions = action_codec(env.single_action_space)
    observations = observation_codec(env.single_observation_space, actions)
    sizes = Sizes(
        observations.size, actions.size, discrete=True, privileged=2 if with_infos else 0,
        observed=with_infos, images=observations.images,
        action_mask=with_infos or observations.has_action_mask,
    )  # fmt: skip
    replay = Replay(sizes, env.num_envs)
    collector = Collector(
        env,
        observations,
        actions,
        replay,
        privileged=with_infos,
        observed=with_infos,
        action_mask=with_infos,
    )
    collector.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(steps):
        collector.take(rng.integers(3, size=env.num_envs))
    return replay.state_dict()["storage"]


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, x in one.items():
        assert torch.equal(x, other[name]), name


@BOTH
@every_kind
def test_a_vector_that_reuses_its_arrays_is_stored_as_one_that_does_not(kind, mode):
    actual, true = (stored(vector(kind, 2, mode, reuses=reuses)) for reuses in (True, False))
    assert_same(actual, true)
    rows = true["pixels" if kind == "image" else "observation"]
    assert len(rows[0].unique(dim=0)) > 2


@every_kind
def test_a_single_environment_that_reuses_its_arrays(kind):
    assert_same(
        stored(as_vector(Reusing(kind))),
        stored(as_vector(Reusing(kind, reuses=False))),
    )


@BOTH
def test_lists_in_infos_may_be_reused(mode):
    actual, true = (
        stored(vector("numbers", 2, mode, reuses=reuses, listed=True)) for reuses in (True, False)
    )
    assert_same(actual, true)


def test_last_observation_is_not_the_next_first_one():
    streams = EpisodeStreams(as_vector(Reusing()))
    streams.reset()
    arrival = streams.step(np.zeros(1, np.int64))  # the first episode lasts one step
    (last,) = arrival.ended_observations
    assert last.tolist() == [2, 3, 4]
    assert arrival.observation.tolist() == [[3, 4, 5]]
    assert arrival.ended_infos["privileged"].tolist() == [[2, 0]]


@BOTH
def test_one_array_for_all_environments_of_a_vector(mode):
    class Shared(Reusing):
        room = np.zeros(3, np.float32)

        def __init__(self, number: int) -> None:
            super().__init__()
            self._seen, self._count = self.room, 100 * number

    env = SyncVectorEnv([lambda i=i: Shared(i) for i in range(3)], autoreset_mode=mode)
    streams = EpisodeStreams(env)
    first, _ = streams.reset()
    assert first[:, 0].tolist() == [1, 101, 201]
    assert streams.step(np.zeros(3, np.int64)).observation[:, 0].tolist() == (
        [3, 103, 203] if mode is AutoresetMode.SAME_STEP else [2, 102, 202]
    )


@BOTH
def test_the_vector_keeps_its_own_environments(mode):
    env = vector("numbers", 2, mode, reuses=True)
    own = env.envs
    streams = EpisodeStreams(env)
    streams.reset()
    streams.step(np.zeros(2, np.int64))
    assert env.envs is own
    assert all(type(one) is Reusing for one in own)
    own[1]._episode = "broken"
    with pytest.raises(RuntimeError, match="the environment raised TypeError"):
        streams.step(np.zeros(2, np.int64))
    assert env.envs is own


class Summing:
    """A policy that acts on all that it has been shown."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        shown = np.where(episode_start, 0.0, 0.0 if state is None else state)
        shown = shown + observation[:, 0]
        return shown.astype(np.int64) % 3, shown


class Naming(Reusing):
    """Pays the action, so that the return tells what the policy saw."""

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, float(action), *rest


@BOTH
@pytest.mark.parametrize("copy", [True, False])
def test_evaluation_sees_what_was_shown(mode, copy):
    def played(reuses):
        env = SyncVectorEnv(
            [lambda: Naming(reuses=reuses)] * 2, copy=copy if reuses else True, autoreset_mode=mode
        )
        return evaluate_policy(Summing(), env, 12).returns.tolist()

    assert played(True) == played(False)
    assert len(set(played(False))) > 3


@pytest.mark.parametrize("kind", ["numbers", "dictionary", "nest"])
def test_observations_lost_where_nobody_can_copy_them_are_told(kind):
    env = Closed(vector(kind, 2, MODES[0], reuses=True))
    with pytest.warns(UserWarning, match=r"first observation in place of the last.*Checkpointable"):
        stored(env, with_infos=False)


@BOTH
@every_kind
def test_nothing_is_told_of_environments_that_hand_out_new_arrays(kind, mode):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stored(Closed(vector(kind, 2, mode, reuses=False)), with_infos=False)


def test_nothing_is_told_where_all_observations_are_the_same():
    class Blank(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
        action_space = gymnasium.spaces.Discrete(3)

        def reset(self, *, seed=None, options=None):
            return np.zeros(1, np.float32), {}

        def step(self, action):
            return np.zeros(1, np.float32), 1.0, True, False, {}

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stored(Closed(SyncVectorEnv([Blank] * 2, autoreset_mode=MODES[0])), with_infos=False)
