import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorWrapper

from kalmanac._sac.episode_streams import EpisodeStreams, as_vector, autoreset_mode
from tests.sac.counting import Counting, counting_vector

EACH = pytest.mark.parametrize("mode", AutoresetMode)
ASK = np.array([1])


def test_single_environment_becomes_a_vector_of_one():
    vector = as_vector(Counting((2,)))
    assert isinstance(vector, SyncVectorEnv)
    assert vector.num_envs == 1
    assert autoreset_mode(vector) is AutoresetMode.SAME_STEP


@EACH
def test_vector_stays_as_it_is(mode):
    vector = counting_vector((2,), (3,), mode=mode)
    assert as_vector(vector) is vector


@pytest.mark.parametrize("stated", [None, "whenever"])
def test_other_ways_of_resetting_are_refused(stated):
    vector = counting_vector((2,), mode=AutoresetMode.NEXT_STEP)
    vector.metadata = {"autoreset_mode": stated}
    with pytest.raises(ValueError, match=r"autoreset_mode.*expected AutoresetMode\.NEXT_STEP"):
        as_vector(vector)


def test_what_is_no_environment_is_refused():
    with pytest.raises(TypeError, match=r"env: got int, expected a gymnasium\.Env"):
        as_vector(3)
    with pytest.raises(ValueError, match=r"env: got 'CartPole-v9'.*did you mean 'CartPole-v1'"):
        as_vector("CartPole-v9")


def test_a_name_is_an_environment():
    for name, actions in {"CartPole-v1": 2, "best-arm": 3}.items():
        vector = as_vector(name)
        assert (vector.num_envs, vector.single_action_space.n) == (1, actions)
        assert autoreset_mode(vector) is AutoresetMode.SAME_STEP


@EACH
def test_episodes_of_a_vector_with_different_lengths(mode):
    streams = EpisodeStreams(counting_vector((1,), (3, 1), mode=mode))
    streams.reset(seed=0)
    actual: dict[int, list] = {0: [], 1: []}
    while min(map(len, actual.values())) < 4:
        for episode in streams.step(np.array([1, 2])).episodes:
            actual[episode.stream].append(episode)
    assert [e.length for e in actual[0][:4]] == [1, 1, 1, 1]
    assert [e.length for e in actual[1][:4]] == [3, 1, 3, 1]
    # rewards 10 · episode + time
    assert [e.total_reward for e in actual[1][:4]] == [1 + 2 + 3, 11, 21 + 22 + 23, 31]
    assert [e.terminated for e in actual[1][:4]] == [True, False, True, False]
    assert [e.info["win"] for e in actual[1][:4]] == [True, False, False, True]
    assert all(set(e.info) == {"privileged", "win"} for e in actual[0])
    assert [e.info["privileged"][0] for e in actual[1][:4]] == [3, 1, 3, 1], "the last step's info"


@EACH
def test_infos_without_rows_hold_for_every_environment(mode):
    shared = {
        "speed": 1.5, "name": "ab", "nothing": None, "zero": np.float32(2), "names": {"a", "b"},
        "table": np.arange(3), "_speed": False,
    }  # fmt: skip

    class Telling(VectorWrapper):
        def step(self, actions):
            *outcome, infos = self.env.step(actions)
            extra = shared | {"label": ["left", "right"], "nested": {"speed": 1.5}}
            if "final_info" in infos:
                infos["final_info"] |= extra
            return *outcome, infos | extra

    streams = EpisodeStreams(Telling(counting_vector((1,), (1,), mode=mode)))
    streams.reset()
    episodes = streams.step(np.array([1, 2])).episodes
    assert [episode.info["label"] for episode in episodes] == ["left", "right"]
    for episode in episodes:
        assert episode.info["nested"] == {"speed": 1.5}
        for name in shared.keys() - {"_speed"}:
            assert episode.info[name] is shared[name]


def test_reset_step_is_no_step():
    streams = EpisodeStreams(counting_vector((1,), mode=AutoresetMode.NEXT_STEP))
    streams.reset()
    steps = [streams.step(ASK) for _ in range(4)]
    assert [bool(s.stepped[0]) for s in steps] == [True, False, True, False]
    assert [bool(s.begun[0]) for s in steps] == [False, True, False, True]
    assert [float(s.reward[0]) for s in steps] == [1, 0, 11, 0]


def test_reset_in_the_middle_forgets_the_return_so_far():
    streams = EpisodeStreams(counting_vector((2,), mode=AutoresetMode.SAME_STEP))
    streams.reset()
    streams.step(ASK)
    streams.reset()
    streams.step(ASK)
    (episode,) = streams.step(ASK).episodes
    assert (episode.length, episode.total_reward) == (2, 11 + 12)


def test_same_step_without_its_last_observation_is_refused():
    class Forgetful(VectorWrapper):
        def step(self, actions):
            *outcome, infos = self.env.step(actions)
            infos.pop("final_obs", None)
            return *outcome, infos

    streams = EpisodeStreams(Forgetful(counting_vector((1,), mode=AutoresetMode.SAME_STEP)))
    streams.reset()
    with pytest.raises(ValueError, match=r'infos\["final_obs"\]: got none'):
        streams.step(ASK)


@EACH
def test_gymnasium_environments_run(mode):
    vector = gymnasium.make_vec(
        "CartPole-v1", 3, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}
    )
    streams = EpisodeStreams(as_vector(vector))
    streams.reset(seed=1)
    episodes = [e for _ in range(60) for e in streams.step(np.ones(3, np.int64)).episodes]
    assert len(episodes) > 10
    assert all(e.total_reward == e.length and e.terminated for e in episodes)
