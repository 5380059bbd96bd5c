"""Walkers are those of their makers to the bit, but for the numbers that are hidden."""

import gymnasium
import numpy as np
import pytest

from kalmanac._envs.checkpointable import environment_state, restore_environment
from kalmanac._envs.extras import missing
from kalmanac._envs.registry import ENVS, make_env
from kalmanac._envs.walkers import ENGINES, MUJOCO, TASKS, walker

SIZES = {  # task → how many numbers are positions, and velocities
    "mujoco/Hopper": (5, 6), "mujoco/Walker2d": (8, 9), "mujoco/HalfCheetah": (8, 9),
    "mujoco/Ant": (13, 14), "bullet/Hopper": (9, 6), "bullet/Walker2d": (13, 9),
    "bullet/HalfCheetah": (17, 9), "bullet/Ant": (17, 11),
}  # fmt: skip
HERE = [
    pytest.param(
        task,
        marks=[
            pytest.mark.skipif(bool(missing(task.split("/")[0])), reason="is not installed"),
            *([] if "Hopper" in task or "Ant-P" in task else [pytest.mark.slow]),
        ],
    )
    for task in TASKS
]


def test_every_task_has_its_row():
    rows = {name: row for name, row in ENVS.items() if name.startswith(("mujoco/", "bullet/"))}
    assert tuple(rows) == TASKS
    assert len(TASKS) == 16
    assert {row.extra for row in rows.values()} == {"mujoco", "bullet"}


@pytest.mark.skipif(bool(missing("mujoco")), reason="is not installed")
def test_models_that_are_out_of_fashion_are_loaded_without_a_word(caplog):
    pytest.importorskip("dm_control.mujoco")  # with it, MuJoCo's warnings become log messages
    walker("mujoco/HalfCheetah-P").close()
    assert caplog.text == ""


def test_pybullet_s_masks_are_those_of_pomdp_baselines():
    bullet = ENGINES["bullet"]
    assert bullet["Hopper"].positions == (0, 1, 2, 6, 7, 8, 10, 12, 14)
    assert bullet["Walker2d"].positions == (0, 1, 2, 6, 7, 8, 10, 12, 14, 16, 18, 20, 21)
    hidden = sorted(set(range(28)) - set(bullet["Ant"].positions))
    assert hidden == [3, 4, 5, 9, 11, 13, 15, 17, 19, 21, 23]
    hidden = sorted(set(range(26)) - set(bullet["HalfCheetah"].positions))
    assert hidden == [3, 4, 5, 9, 11, 13, 15, 17, 19]


@pytest.mark.parametrize("task", HERE)
def test_steps_are_the_maker_s_without_what_is_hidden(task):
    engine, _, rest = task.partition("/")
    name, _, what = rest.partition("-")
    machine = ENGINES[engine][name]
    env = walker(task)
    truth = gymnasium.make(machine.id, **machine.settings)
    if engine == "bullet":
        truth.reset()
    truth.action_space.seed(0)
    (seen, info), (whole, _) = env.reset(seed=5), truth.reset(seed=5)
    places = np.array(machine.positions)
    places = places if what == "P" else np.setdiff1d(np.arange(machine.numbers), places)
    assert len(places) == SIZES[f"{engine}/{name}"]["PV".index(what)]
    assert whole.shape == (machine.numbers,)
    for _ in range(150):
        np.testing.assert_array_equal(seen, whole[places].astype(np.float32))
        np.testing.assert_array_equal(info["privileged"], whole.astype(np.float32))
        assert info.keys() == {"privileged"}
        action = truth.action_space.sample()
        seen, reward, *over, info = env.step(action)
        whole, reward_too, *over_too, _ = truth.step(action)
        assert (reward, over) == (reward_too, over_too)
        if any(over):
            (seen, info), (whole, _) = env.reset(), truth.reset()


@pytest.mark.skipif(bool(missing("mujoco")), reason="is not installed")
def test_mujoco_s_positions_end_where_qpos_does():
    for machine in MUJOCO.values():
        env = gymnasium.make(machine.id, **machine.settings).unwrapped
        parts = env.observation_structure
        assert parts["qpos"] == len(machine.positions)
        assert parts["qpos"] + parts["qvel"] == machine.numbers


@pytest.mark.skipif(bool(missing("mujoco")), reason="is not installed")
def test_a_state_of_another_machine_is_refused():
    env = make_env("mujoco/Hopper-P")
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"state\['physics'\]: got shape"):
        restore_environment(make_env("mujoco/Walker2d-P"), environment_state(env))


def test_other_tasks_are_refused():
    with pytest.raises(ValueError, match="task: got 'mujoco/Humanoid-P', expected one of mujoco/H"):
        walker("mujoco/Humanoid-P")
