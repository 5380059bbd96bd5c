"""The adapter gives what dm_control gives: readings, rewards, ends and scaled actions."""

import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from kalmanac._envs.dmc import _MODEL_FIELDS, DMC, NOISE

TASKS = [
    pytest.param(task, marks=() if task == "reacher-easy" else pytest.mark.slow) for task in NOISE
]


def raw(task, seed):
    """dm_control itself, with the random state that the adapter derives from `seed`."""
    from dm_control import suite

    derived = np.random.default_rng(seed).integers(2**32)
    domain, _, name = task.partition("-")
    random = np.random.RandomState(derived)
    return suite.load(domain, name, task_kwargs={"random": random})


@pytest.mark.parametrize("task", TASKS)
def test_a_whole_episode_is_that_of_dm_control(task):
    env, truth = DMC(task), raw(task, 4)
    spec = truth.action_spec()
    observation, info = env.reset(seed=4)
    expected = truth.reset()
    rng = np.random.default_rng(0)
    for step in range(1, 1001):
        flat = np.concatenate([np.ravel(part) for part in expected.observation.values()])
        np.testing.assert_array_equal(observation, flat.astype(np.float32))
        np.testing.assert_array_equal(info["privileged"], observation)
        action = rng.uniform(-1, 1, spec.shape).astype(np.float32)
        middle, half = (spec.maximum + spec.minimum) / 2, (spec.maximum - spec.minimum) / 2
        expected = truth.step(middle + half * action)
        observation, reward, terminated, truncated, info = env.step(action)
        assert reward == expected.reward
        assert (terminated, truncated) == (False, step == 1000)
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset first"):
        env.step(action)


@pytest.mark.parametrize("task", TASKS)
def test_resets_change_nothing_in_the_model_that_a_state_leaves_out(task):
    env = DMC(task)
    model = env._sim.physics.model.ptr
    names = [n for n in dir(model) if isinstance(getattr(model, n, None), np.ndarray)]
    before = {name: getattr(model, name).copy() for name in names}
    for seed in range(3):
        env.reset(seed=seed)
    changed = {n for n in names if not np.array_equal(before[n], getattr(model, n), equal_nan=True)}
    assert changed <= set(_MODEL_FIELDS)


def test_actions_of_the_quadruped_reach_its_own_bounds():
    env = DMC("quadruped-walk")
    env.reset(seed=0)
    spec = env._sim.action_spec()
    for side, bound in ((1.0, spec.maximum), (-1.0, spec.minimum)):
        env.step(np.full(12, side, np.float32))
        np.testing.assert_allclose(env._sim.physics.data.ctrl, bound)
    assert spec.maximum.max() > 1


def test_unknown_tasks_are_refused():
    for task in ("cheetah-fly", "cheetah", ""):
        with pytest.raises(ValueError, match=f"task: got '{task}', expected a task of dm_control"):
            DMC(task)


@pytest.mark.parametrize(("choice", "then"), [(None, "disabled"), ("off", "off")])
def test_no_display_is_needed_and_a_choice_of_the_users_stays(choice, then):
    code = (
        "import os, sys; from kalmanac._envs.dmc import DMC; "
        "assert 'dm_control' not in sys.modules; "
        "DMC('pendulum-swingup').reset(seed=0); print(os.environ['MUJOCO_GL'])"
    )
    environ = {k: v for k, v in os.environ.items() if k not in ("MUJOCO_GL", "DISPLAY")}
    environ |= {} if choice is None else {"MUJOCO_GL": choice}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stdout.strip()) == (0, then), found.stderr
    assert found.stderr == ""
