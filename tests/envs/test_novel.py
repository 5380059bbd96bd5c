"""NoVel: Gymnasium's tasks to the bit, but for the velocities."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from kalmanac._envs.checkpointable import environment_state, restore_environment
from kalmanac._envs.novel import TASKS, novel
from kalmanac._envs.registry import ENVS, make_vector
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.factory import make_model, training_environment

SHOWN = {"CartPole": [0, 2], "Pendulum": [0, 1], "MountainCarContinuous": [0]}


def test_every_task_has_its_row():
    rows = {name: row for name, row in ENVS.items() if name.startswith("novel/")}
    assert rows.keys() == {f"novel/{task}" for task in SHOWN}
    for task, row in zip(TASKS.values(), rows.values(), strict=True):
        assert row.horizon == task.horizon == gymnasium.spec(task.id).max_episode_steps


@pytest.mark.parametrize("task", SHOWN)
def test_gymnasium_finds_nothing_wrong(task, recwarn):
    check_env(novel(task), skip_render_check=True)
    told = [str(w.message) for w in recwarn.list]  # of wrappers, and of actions beyond one
    assert all("unwrapped" in text or "Box action spaces" in text for text in told), told


@pytest.mark.parametrize("task", SHOWN)
def test_episodes_are_those_of_gymnasium_without_velocities(task):
    env, truth = novel(task), gymnasium.make(TASKS[task].id)
    truth.action_space.seed(0)
    (seen, info), (whole, _) = env.reset(seed=5), truth.reset(seed=5)
    ends = 0
    for _ in range(1100):
        np.testing.assert_array_equal(seen, whole[SHOWN[task]])
        np.testing.assert_array_equal(info["privileged"], whole)
        assert seen.dtype == np.float32
        action = truth.action_space.sample()
        seen, reward, *over, info = env.step(action)
        whole, reward_too, *over_too, _ = truth.step(action)
        assert (reward, over) == (reward_too, over_too)
        if any(over):
            ends += 1
            (seen, info), (whole, _) = env.reset(), truth.reset()
    assert ends


@pytest.mark.parametrize("task", SHOWN)
def test_left_and_entered_equals_never_left_at_any_step(task):
    env, other = (make_vector(f"novel/{task}", 2) for _ in range(2))
    env.reset(seed=1)
    env.action_space.seed(0)
    for _ in range(30):  # before an episode's first step, in the middle, and past CartPole's falls
        restore_environment(other, environment_state(env))
        for _ in range(7):
            actions = env.action_space.sample()
            (seen, reward, *over, _), (seen_too, reward_too, *over_too, _) = (
                e.step(actions) for e in (env, other)
            )
            np.testing.assert_array_equal(seen, seen_too)
            np.testing.assert_array_equal(reward, reward_too)
            np.testing.assert_array_equal(over, over_too)


def test_the_time_limit_goes_on_where_it_was():
    env, other = (make_vector("novel/Pendulum", 1) for _ in range(2))
    env.reset(seed=0)
    still = np.zeros((1, 1), np.float32)
    for _ in range(150):
        env.step(still)
    restore_environment(other, environment_state(env))
    assert [bool(other.step(still)[3][0]) for _ in range(50)] == [False] * 49 + [True]


def test_a_state_of_another_task_is_refused():
    env = novel("CartPole")
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"state\['state'\]: got shape \(4,\), expected \(2,\)"):
        restore_environment(novel("Pendulum"), environment_state(env))
    with pytest.raises(ValueError, match="task: got 'Acrobot', expected one of CartPole, Pend"):
        novel("Acrobot")


@pytest.mark.parametrize("task", SHOWN)
def test_agents_train_and_the_oracle_sees_velocities(task):
    few = {"learning_starts": 100, "batch_size": 4, "context_length": 8, "update_to_data": 0.1}
    small = {"actor_hidden": (8,), "critic_hidden": (8,), "num_envs": 2}
    told = Experiment(f"novel/{task}", **few, **small)
    whole = len(SHOWN[task]) + len(TASKS[task].velocities)
    for agent, numbers in (("vssm+kf", len(SHOWN[task])), ("oracle", whole)):
        experiment = told.changed({"encoder": agent})
        model = make_model(experiment, training_environment(experiment), "cpu")
        assert model.observation_space.shape == (numbers,)
        model.learn(300)
        assert (model.num_timesteps, model.num_updates) == (300, 20)
