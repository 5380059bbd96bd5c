from copy import deepcopy
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from kalmanac._envs.sensors import ObservationDelay, ObservationDropout
from kalmanac._envs.workers import Workers
from kalmanac._envs.wrappers import Checkpointable, CopiesHandedOut, copied, copied_step
from tests.sac.reusing import Reusing

SAME_STEP = AutoresetMode.SAME_STEP


def test_every_array_of_a_tree_is_copied_and_nothing_else_changes():
    parts = np.empty(2, dtype=object)
    parts[:] = np.arange(2), np.arange(3)
    tree = {"a": np.arange(4), "b": ([np.zeros(2), 3], (np.ones(1),)), "c": parts, "d": None}
    found = copied(tree)
    assert data_equivalence(found, {**tree, "c": found["c"]}, exact=True)
    np.testing.assert_equal(list(found["c"]), list(parts))
    tree["a"][0] = tree["b"][0][0][0] = tree["b"][1][0][0] = parts[1][0] = 9
    assert 9 not in found["a"]
    assert found["b"][0][0].tolist() == [0, 0]
    assert found["b"][1][0].tolist() == [1]
    assert found["c"][1].tolist() == [0, 1, 2]


def test_what_an_info_holds_beside_data_stays_the_same_object():
    engine, room = object(), np.zeros(2)
    step = copied_step((room, 1.0, False, True, {"engine": engine, "state": [room]}))
    room[:] = 1
    assert step[0].tolist() == [0, 0]
    assert step[4]["state"][0].tolist() == [0, 0]
    assert step[4]["engine"] is engine


def test_an_info_is_copied_at_the_end_only():
    room, info = np.zeros(2), {}
    step = copied_step((room, 1.0, False, False, info))
    assert step[0] is not room
    assert step[4] is info


def test_a_vector_that_hides_its_environments_is_left_alone():
    class Hidden:
        unwrapped = None

    hidden = CopiesHandedOut(Hidden())
    assert not hidden.reached
    with hidden:
        pass


@pytest.mark.parametrize("whole", [False, True])
def test_a_vector_whose_environments_have_handed_out_copies_can_be_copied(whole):
    class Own(Reusing):
        def __deepcopy__(self, memo):
            return Own()

    vector = SyncVectorEnv([Own if whole else Reusing] * 2, autoreset_mode=SAME_STEP)
    copying = CopiesHandedOut(vector)
    with copying:
        vector.reset(seed=0)
    other_copying, other = deepcopy((copying, vector))
    with copying, other_copying:
        for env, one in zip(vector.envs, other.envs, strict=True):
            assert type(one) is type(env)
            assert type(one.unwrapped) is type(env.unwrapped)
            assert one.unwrapped is not env.unwrapped
        assert not hasattr(other.envs[0], "what it has not")


def played(env, steps=30):
    env.reset(seed=0)
    found = []
    for _ in range(steps):
        observation, reward, terminated, truncated, infos = env.step(np.zeros(2, np.int64))
        told = {key: infos[key] for key in ("privileged", "action_mask", "observed")}
        last = infos.get("final_obs", np.array([None, None]))
        final = infos.get("final_info", {})
        found.append((observation, reward, terminated, truncated, told, list(last), final))
    env.close()
    return found


# Python warns of a fork where other tests have left threads
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("where", ["workers", "async"])
def test_environments_in_processes_may_reuse_their_arrays(where):
    make = partial(Reusing, "dictionary")
    if where == "workers":
        env = Workers([make] * 2)
    else:
        env = AsyncVectorEnv([lambda: Checkpointable(make())] * 2, autoreset_mode=SAME_STEP)
    new = SyncVectorEnv([lambda: Reusing("dictionary", reuses=False)] * 2, autoreset_mode=SAME_STEP)
    for mine, true in zip(played(env), played(new), strict=True):
        np.testing.assert_equal(mine, true)


class Silent(gymnasium.Env):
    """Has one info for its whole life, and writes nothing there."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.info = {}

    def reset(self, *, seed=None, options=None):
        return np.ones(1, np.float32), self.info

    def step(self, action):
        return np.ones(1, np.float32), 0.0, False, False, self.info


def test_a_reading_that_went_missing_leaves_no_trace_in_the_environments_info():
    env = ObservationDropout(Silent(), 0.5)
    told = [env.reset(seed=0)[1]["observed"]]
    told += [env.step(0)[-1]["observed"] for _ in range(40)]
    assert 0.2 < np.mean(told) < 0.8
    assert env.unwrapped.info == {}


def test_a_late_word_leaves_no_trace_either():
    env = ObservationDelay(Reusing(), 1)
    told = [env.reset(seed=0)[1]["observed"]]
    told += [env.step(0)[-1]["observed"] for _ in range(20)]
    assert told == [True] + [t % 5 != 0 for t in range(1, 21)]
