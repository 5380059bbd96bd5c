from dataclasses import replace

import numpy as np
import pytest

from kalmanac._files.run_folder import RunFolder
from kalmanac._report.groups import make_groups
from kalmanac._report.published import BEST, popgym_table
from kalmanac._report.runs import read_runs
from kalmanac._report.scores import (
    aggregate,
    best,
    curve,
    last,
    late,
    oracle_scale,
    popgym_scale,
    scaled,
    scaled_curves,
)
from kalmanac._suites import best_arm
from tests.report.synthetic import write_dmc, write_popgym


def write(folder, rows, *, seed=0, total=100, every=25, agent="gru"):
    what = best_arm.paper(agent, seed=seed).changed({"total_steps": total, "eval_every": every})
    with RunFolder(folder / f"{agent}{seed}", what.to_data(), events=False) as run:
        for step, value in rows:
            run.log(step, {"eval/in/mean_reward": value})
        run.summarize(status="finished", step=rows[-1][0])


def group_of(folder):
    (group,) = make_groups(read_runs(folder).runs, [])
    return group


def test_last_and_best_of_every_seed(tmp_path):
    write(tmp_path, [(25, 1.0), (50, 9.0), (75, 3.0)])
    write(tmp_path, [(25, 2.0), (50, 4.0), (75, float("nan"))], seed=1)
    group = group_of(tmp_path)
    assert last(group).tolist() == [3.0, 4.0]
    assert best(group).tolist() == [9.0, 4.0]  # MMER: the largest mean of an evaluation


def test_a_run_that_has_no_number_takes_none_from_the_others(tmp_path):
    write(tmp_path, [(25, 1.0), (50, 2.0)])
    write(tmp_path, [(25, float("nan")), (50, float("inf"))], seed=1)
    points = curve(group_of(tmp_path)).shared()
    assert points.steps.tolist() == [25, 50]
    assert points.values.tolist() == [[1.0, 2.0]]


def test_points_are_as_many_as_evaluations_however_far_apart(tmp_path):
    write(tmp_path, [(1, 1.0), (10**15, 2.0)], total=10**15, every=1)
    points = curve(group_of(tmp_path))
    assert points.steps.tolist() == [1, 10**15]
    assert points.values.tolist() == [[1.0, 2.0]]


def test_evaluations_stand_where_they_were_due(tmp_path):
    write(tmp_path, [(26, 1.0), (51, 2.0), (76, 3.0), (104, 4.0)])
    write(tmp_path, [(25, 5.0), (50, 1.0), (75, 6.0)], seed=1)
    points = curve(group_of(tmp_path))
    assert points.steps.tolist() == [25, 50, 75, 100]
    np.testing.assert_equal(points.values, [[1, 2, 3, 4], [5, 1, 6, np.nan]])
    assert points.shared().steps.tolist() == [25, 50, 75]
    so_far = curve(group_of(tmp_path), best_so_far=True)
    np.testing.assert_equal(so_far.values, [[1, 2, 3, 4], [5, 5, 6, np.nan]])


def test_the_last_evaluation_may_come_early(tmp_path):
    write(tmp_path, [(40, 1.0), (80, 2.0), (100, 3.0)], every=40)
    points = curve(group_of(tmp_path))
    assert points.steps.tolist() == [40, 80, 100]
    assert points.values.tolist() == [[1.0, 2.0, 3.0]]


def test_a_run_that_was_extended_has_an_evaluation_out_of_turn(tmp_path):
    write(tmp_path, [(40, 1.0), (80, 2.0), (100, 9.0), (120, 3.0), (160, 4.0)], total=160, every=40)
    points = curve(group_of(tmp_path))
    assert points.steps.tolist() == [40, 80, 120, 160]
    assert points.values.tolist() == [[1.0, 2.0, 3.0, 4.0]]


def test_control_is_divided_by_oracles_mean_last_return(tmp_path):
    write_dmc(tmp_path, tasks=["walker-run"], agents=["oracle", "gru"], seeds=range(3))
    gru, oracle = make_groups(read_runs(tmp_path).runs, [])
    scale = oracle_scale([gru, oracle])["walker-run"]
    assert scale(last(oracle)).mean() == pytest.approx(1)
    np.testing.assert_allclose(scale(last(gru)), last(gru) / last(oracle).mean())
    scale = oracle_scale([gru, oracle], late)["walker-run"]
    np.testing.assert_allclose(scale(late(gru)), late(gru) / late(oracle).mean())


def test_popgym_is_shifted_before_it_is_divided():
    shifted, plain = popgym_scale(), popgym_scale(shifted=False)
    for task, row in popgym_table().scores.items():
        top = np.array([row[BEST].mean])
        assert shifted[task](top) == plain[task](top) == 1
        assert shifted[task](top - 0.1) < 1  # worse is less, in every task;
    assert plain["AutoencodeEasy"](np.array([-0.9])) > 3  # divided plainly, it is more
    assert shifted["RepeatFirstEasy"](np.array([0.0])) == 0.5


def test_an_agent_that_lacks_a_task_is_left_out_and_named(tmp_path):
    tasks = ["RepeatFirstEasy", "RepeatPreviousEasy"]
    write_popgym(tmp_path, tasks=tasks, agents=["gru", "vssm"], seeds=range(2))
    write_popgym(tmp_path, tasks=tasks[:1], agents=["mamba"], seeds=range(2))
    together = aggregate(make_groups(read_runs(tmp_path).runs, []), popgym_scale())
    assert together.tasks == tasks
    assert set(together.agents) == {"gru", "vssm"}
    assert together.left_out == ["mamba is left out: no runs in RepeatPreviousEasy"]
    assert [len(x) for x in scaled(together.agents["gru"], popgym_scale(), best)] == [2, 2]


def test_where_no_two_agents_have_all_tasks_the_shared_ones_count(tmp_path):
    write_popgym(tmp_path, tasks=["RepeatFirstEasy", "AutoencodeEasy"], agents=["gru"], seeds=[0])
    write_popgym(tmp_path, tasks=["RepeatFirstEasy"], agents=["mamba"], seeds=[0])
    together = aggregate(make_groups(read_runs(tmp_path).runs, []), popgym_scale())
    assert together.tasks == ["RepeatFirstEasy"]
    assert together.left_out == ["without AutoencodeEasy: not all agents have runs there"]
    assert aggregate([], popgym_scale()) is None


def test_curves_of_tasks_meet_at_common_steps(tmp_path):
    write_popgym(tmp_path, tasks=["RepeatFirstEasy"], agents=["gru"], seeds=range(2))
    write_popgym(tmp_path, tasks=["AutoencodeEasy"], agents=["gru"], seeds=range(3), until=0.5)
    groups = make_groups(read_runs(tmp_path).runs, [])
    steps, values = scaled_curves(groups, popgym_scale(), best_so_far=True)
    assert steps[-1] == 500_000
    assert [x.shape for x in values] == [(3, len(steps)), (2, len(steps))]
    assert all((np.diff(x) >= 0).all() for x in values)


def test_where_oracle_has_got_next_to_nothing_there_is_no_scale(tmp_path):
    write_dmc(tmp_path, tasks=["walker-run", "reacher-easy"], agents=["oracle"], seeds=range(2))
    runs = [
        replace(run, values={key: 1e-48 * value for key, value in run.values.items()})
        if run.experiment["env"] == "dmc/reacher-easy"
        else run
        for run in read_runs(tmp_path).runs
    ]  # a quotient by it would be beyond all bounds
    assert list(oracle_scale(make_groups(runs, []))) == ["walker-run"]
