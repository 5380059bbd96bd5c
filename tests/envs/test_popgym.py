"""The adapter gives what popgym gives: one-hot readings, flat actions, the hidden state."""

import copy
import random

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence

from kalmanac._envs.extras import missing
from kalmanac._envs.popgym import HORIZONS, PAPER, POPGym, extra, one_hot
from kalmanac._envs.registry import make_vector

LABYRINTHS = [task for task in HORIZONS if extra(task) == "labyrinth"]
TASKS = [
    pytest.param(task, marks=() if task in PAPER else pytest.mark.slow)
    for task in HORIZONS
    if task not in LABYRINTHS
]
EARLY = ("MineSweeper", "NoisyPositionOnlyCart", "PositionOnlyCart", "VelocityOnly")


def flat(space, value):
    """Gymnasium's own flattening, which is one-hot where it is discrete."""
    if isinstance(space, spaces.Tuple):  # popgym has cards as floats there
        value = tuple(np.asarray(x, one.dtype) for one, x in zip(space, value, strict=True))
    return np.asarray(spaces.flatten(space, value), np.float32)


def own_action(task, action):
    if isinstance(task.action_space, spaces.MultiDiscrete):
        return divmod(int(action), task.action_space.nvec[1])
    return 2 * action if isinstance(task.action_space, spaces.Box) else action


@pytest.mark.parametrize("task", TASKS)
def test_episodes_are_those_of_popgym(task):
    import popgym.envs

    env, truth = POPGym(task), getattr(popgym.envs, task)()
    env.action_space.seed(0)
    observation, info = env.reset(seed=8)
    expected, _ = truth.reset(seed=8)
    longest = length = 0
    for _ in range(700):
        np.testing.assert_array_equal(observation, flat(truth.observation_space, expected))
        np.testing.assert_array_equal(
            info["privileged"], flat(truth.state_space, truth.get_state())
        )
        action = env.action_space.sample()
        observation, reward, terminated, truncated, info = env.step(action)
        expected, own, *ends, _ = truth.step(own_action(truth, action))
        assert isinstance(reward, np.float32)
        assert reward == np.float32(own)
        assert [terminated, truncated] == ends
        assert observation.dtype == info["privileged"].dtype == np.float32
        length += 1
        if terminated or truncated:
            longest, length = max(longest, length), 0
            observation, info = env.reset()
            expected, _ = truth.reset()
    assert longest <= HORIZONS[task]
    if not task.startswith(EARLY) and HORIZONS[task] < 700:  # those can be lost early
        assert longest == HORIZONS[task]


@pytest.mark.parametrize("task", TASKS)
def test_the_same_numbers_are_drawn_for_every_seed(task):
    import popgym.envs

    env, truth = POPGym(task, truth=False), getattr(popgym.envs, task)()
    env.action_space.seed(0)
    for seed in range(12):
        observation, _ = env.reset(seed=seed)
        expected, _ = truth.reset(seed=seed)
        for step in range(60):
            np.testing.assert_array_equal(observation, flat(truth.observation_space, expected))
            action = env.action_space.sample()
            observation, reward, terminated, truncated, _ = env.step(action)
            expected, own, *ends, _ = truth.step(own_action(truth, action))
            assert (reward, terminated, truncated) == (np.float32(own), *ends), (seed, step)
            if terminated or truncated:
                observation, _ = env.reset()
                expected, _ = truth.reset()
        now, then = (e.np_random.bit_generator.state for e in (env._task, truth))
        assert now == then


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("truth", [False, True])
def test_nobody_can_change_what_others_see(task, truth):
    game, untouched = POPGym(task, truth), POPGym(task, truth)
    game.action_space.seed(0)
    now, expected = game.reset(seed=3), untouched.reset(seed=3)
    for _ in range(60):
        assert data_equivalence(now, expected, exact=True)
        for row in (now[0], *now[-1].values()):
            row[:] = 7.0
        now[-1]["written"] = 1
        if len(now) == 5 and (now[2] or now[3]):
            now, expected = game.reset(), untouched.reset()
        else:
            action = game.action_space.sample()
            now, expected = game.step(action), untouched.step(action)


@pytest.mark.parametrize("truth", [False, True])
def test_a_copy_plays_its_own_game(truth):
    env, other = (POPGym("MultiarmedBanditEasy", truth=truth) for _ in range(2))
    for game in (env, other):
        game.reset(seed=1)
    copied = copy.deepcopy(env)
    for _ in range(20):
        copied.step(0)
    for action in range(10):
        assert data_equivalence(env.step(action), other.step(action), exact=True)
    assert copied._task.num_steps == 20


def test_a_copied_deck_is_dealt_from_alone():
    env = POPGym("RepeatPreviousEasy")
    env.reset(seed=0)
    left = len(env._task.deck)
    copied = copy.deepcopy(env)
    copied.step(0)
    assert (len(env._task.deck), len(copied._task.deck)) == (left, left - 1)


def test_every_task_that_popgym_registers_is_here():
    import popgym.envs

    registered = {kind.__name__ for kind in popgym.envs.ALL}
    assert registered | set(LABYRINTHS) == set(HORIZONS)
    assert (len(HORIZONS), len(LABYRINTHS)) == (48, 6)


@pytest.mark.filterwarnings("ignore:Maze environments have been shown")
@pytest.mark.skipif(missing("labyrinth") is not None, reason="mazelib is not installed")
@pytest.mark.parametrize("task", LABYRINTHS)
def test_labyrinths_are_those_of_popgym_and_leave_global_generators_alone(task):
    import popgym.envs

    env, truth = POPGym(task), getattr(popgym.envs, task)()
    env.action_space.seed(0)
    for seed in range(5):
        before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
        observation, info = env.reset(seed=seed)
        assert before == (random.getstate(), np.random.get_state()[1].tolist())  # noqa: NPY002
        expected, _ = truth.reset(seed=seed)
        for _ in range(200):
            np.testing.assert_array_equal(observation, flat(truth.observation_space, expected))
            state = flat(truth.state_space, truth.get_state())
            np.testing.assert_array_equal(info["privileged"], state)
            action = env.action_space.sample()
            observation, reward, *ends, info = env.step(action)
            expected, own, *own_ends, _ = truth.step(action)
            assert (reward, ends) == (np.float32(own), own_ends)
            if any(ends):
                break


def test_the_longest_game_of_mines_has_fifteen_steps():
    env = POPGym("MineSweeperEasy")
    env.reset(seed=0)
    safe = int(np.flatnonzero(env._task.hidden_grid.ravel() == 0)[0])
    ends = [env.step(safe)[2:4] for _ in range(15)]
    assert ends == [(False, False)] * 14 + [(False, True)]


def test_the_paper_s_version_has_26_counts_and_16_squares():
    assert POPGym("CountRecallEasy").action_space == spaces.Discrete(26)
    assert POPGym("MineSweeperEasy").action_space == spaces.Discrete(16)
    assert POPGym("NoisyPositionOnlyPendulumHard").action_space == spaces.Box(-1, 1, (1,))


def test_the_state_is_told_where_it_is_wanted():
    env = POPGym("RepeatFirstEasy", truth=False)
    assert env.privileged_space is None
    assert env.reset(seed=0)[1] == env.step(0)[4] == {}
    with pytest.raises(ValueError, match="expected one that declares a privileged_space"):
        make_vector("popgym/RepeatFirstEasy", 1, truth=False, privileged=True)
    seen, _ = make_vector("popgym/RepeatFirstEasy", 1, privileged=True).reset(seed=0)
    assert seen.shape == (1, 8)


@pytest.mark.parametrize("how", [{}, {"workers": 2}, {"privileged": True}])
@pytest.mark.parametrize(
    ("task", "bootstraps"), [("MineSweeperEasy", False), ("NoisyPositionOnlyPendulumHard", True)]
)
def test_the_end_of_a_game_is_no_time_limit(task, bootstraps, how):
    env = make_vector(f"popgym/{task}", 2, **how)
    assert env.metadata["bootstrap_truncated"] is bootstraps
    env.close()


def test_misuse_is_refused():
    with pytest.raises(ValueError, match="task: got 'Repeat', expected a task of popgym"):
        POPGym("Repeat")
    env = POPGym("CountRecallEasy")
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset first"):
        env.step(0)
    env.reset(seed=0)
    state = env.get_checkpoint_state()
    with pytest.raises(ValueError, match=r"state: got \['running'\], expected \['task'"):
        env.set_checkpoint_state({"running": True})
    with pytest.raises(ValueError, match=r"state\['task'\]: got \['query'\]"):
        env.set_checkpoint_state(state | {"task": {"query": 1}})
    with pytest.raises(TypeError, match="expected Box, Discrete or MultiDiscrete from 0 on"):
        one_hot(spaces.Discrete(3, start=1))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(5),
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiDiscrete([[2, 3], [4, 5]]),
        spaces.MultiDiscrete([3] * 52),  # more values than any table holds
        spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3))),
        spaces.Tuple((spaces.Box(-1, 2, (3,)), spaces.Discrete(3), spaces.MultiDiscrete([2, 2]))),
        spaces.Tuple((spaces.MultiBinary(3), spaces.Discrete(2))),
        spaces.Box(-2, 2, (2, 2)),
    ],
)
def test_one_hot_is_gymnasium_s_flattening(space):
    box, encode = one_hot(space)
    space.seed(0)
    for _ in range(20):
        value = space.sample()
        row = encode(value)
        assert row in box
        np.testing.assert_array_equal(row, flat(space, value))
        row += 1  # whoever received it may: the next one is new
