import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, VectorWrapper
from hypothesis import given
from hypothesis import strategies as st

from kalmanac._envs.action_codecs import action_codec
from kalmanac._envs.observation_codecs import observation_codec
from kalmanac._observation import Sizes
from kalmanac._replay.buffer import Replay
from kalmanac._sac.collector import Collector
from kalmanac._sac.environment_failure import EnvironmentFailedError
from tests.sac.counting import Notebook, acted, by_time, counting_vector

SAME, NEXT = AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP


def collector(vector, replay=None, **settings):
    observations = observation_codec(vector.single_observation_space)
    actions = action_codec(vector.single_action_space)
    return Collector(vector, observations, actions, replay, **settings)


def written(lengths, mode, transitions, *, privileged=True):
    """What each stream is told until it has so many transitions."""
    vector = counting_vector(*lengths, mode=mode)
    notebook = Notebook(len(lengths))
    collecting = collector(vector, notebook, privileged=privileged)
    collecting.reset(seed=0)

    def steps(page):
        return sum(entry[0] == "add" for entry in page)

    while min(map(steps, notebook.pages)) < transitions:
        acted(collecting, by_time)
    return [
        page[: [i for i, e in enumerate(page) if e[0] == "add"][transitions - 1] + 1]
        for page in notebook.pages
    ]


some_lengths = st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=3), min_size=1, max_size=4)


@given(some_lengths, st.booleans())
def test_both_ways_of_resetting_store_the_same(lengths, privileged):
    lengths = [tuple(mine) for mine in lengths]
    same, following = (written(lengths, m, 12, privileged=privileged) for m in (SAME, NEXT))
    assert same == following


def test_what_is_stored_of_an_episode():
    (page,) = written([(2, 1)], SAME, 5)
    # begin: episode, time, last action, truth; add: action, reward, ends, then the same
    assert page == [
        ("begin", 0, 0, -1, 0, 100),
        ("add", 0, 1, False, False, 0, 1, 1, 1, 100),
        ("add", 2, 2, True, False, 0, 2, 3, 2, 100),
        ("begin", 1, 0, -1, 0, 101),
        ("add", 1, 11, False, True, 1, 1, 2, 1, 101),
        ("begin", 2, 0, -1, 0, 102),
        ("add", 2, 21, False, False, 2, 1, 3, 1, 102),
        ("add", 1, 22, True, False, 2, 2, 2, 2, 102),
    ]


@pytest.mark.parametrize("mode", [SAME, NEXT])
@pytest.mark.parametrize("bootstraps", [True, False])
def test_truncation_is_stored_as_the_end_of_the_task_where_it_is_one(mode, bootstraps):
    vector, notebook = counting_vector((2, 1), mode=mode), Notebook(1)
    collecting = collector(vector, notebook, privileged=True, bootstrap_truncated=bootstraps)
    collecting.reset(seed=0)
    ended = [e for _ in range(12) for e in acted(collecting, by_time).episodes]
    stored = [entry[3:5] for entry in notebook.pages[0] if entry[0] == "add"]
    finals = [terminated for terminated, truncated in stored if terminated or truncated]
    # of episodes in turn, every second one is truncated
    assert finals == [(i % 2 == 0) or not bootstraps for i in range(len(finals))]
    assert len(finals) >= 4
    assert [e.terminated for e in ended] == [i % 2 == 0 for i in range(len(ended))], "told as it is"


@pytest.mark.parametrize("mode", [SAME, NEXT])
def test_transitions_reach_a_real_replay(mode):
    vector = counting_vector((1,), (4,), (2, 3), mode=mode)
    replay = Replay(Sizes(3, 3, True, privileged=2), 3)
    collecting = collector(vector, replay, privileged=True)
    collecting.reset(seed=0)
    collected = [acted(collecting, by_time) for _ in range(30)]
    assert replay.steps == sum(c.transitions for c in collected)
    assert replay.steps == 90 - (
        0 if mode is SAME else sum(len(c.episodes) for c in collected[:-1])
    )
    batch = replay.sample(64, 6, generator=torch.Generator().manual_seed(0))
    now, then = (
        batch.observation.vector[:, :-1][batch.valid],
        batch.observation.vector[:, 1:][batch.valid],
    )
    assert (then[:, 0] == now[:, 0]).all(), "a transition stays in its episode"
    assert (then[:, 1] == now[:, 1] + 1).all()
    assert (then[:, 2] - 1 == batch.action[batch.valid].argmax(-1)).all(), "decoded from 0 … A-1"
    assert (batch.reward[batch.valid] == 10 * now[:, 0] + then[:, 1]).all()
    assert (batch.observation.privileged[:, 1:][batch.valid][:, 0] == then[:, 1]).all()
    assert (batch.observation.privileged[:, :-1][batch.valid][:, 1] == 100 + now[:, 0]).all()
    assert not batch.terminated[batch.valid][now[:, 0] % 2 == 1].any(), "truncation is no end"


@pytest.mark.parametrize("mode", [SAME, NEXT])
def test_new_observations_are_those_stored(mode):
    notebook = Notebook(2)
    collecting = collector(counting_vector((1,), (3,), mode=mode), notebook)
    seen = [collecting.reset(seed=0).observations]
    seen += [acted(collecting, by_time).observations for _ in range(9)]
    stored = [entry[-3:] for page in notebook.pages for entry in page]
    assert sorted(map(tuple, np.concatenate(seen).tolist())) == sorted(stored)


def test_episode_start_marks_first_observations():
    for mode in (SAME, NEXT):
        collecting = collector(counting_vector((1,), (3,), mode=mode))
        collecting.reset()
        for _ in range(9):
            first = collecting.observation.vector[:, 1] == 0
            assert (collecting.episode_start == first).all()
            acted(collecting, by_time)


def test_missing_truth_is_refused():
    class Silent(VectorWrapper):
        def reset(self, **kwargs):
            observation, infos = self.env.reset(**kwargs)
            infos.pop("privileged")
            return observation, infos

    collecting = collector(Silent(counting_vector((2,), mode=SAME)), Notebook(1), privileged=True)
    with pytest.raises(EnvironmentFailedError, match=r'wrong info\["privileged"\]: got none'):
        collecting.reset()
