"""Which runs a sweep stands for, and where each lies."""

import pytest

from kalmanac._files.run_folder import RunFolder
from kalmanac._lab.post_training import ExampleEpisodes, GridOfBandits
from kalmanac._suites.registry import SUITES
from kalmanac._sweep.plan import Selection, batches, existing_runs, make_plan, setting_of


def test_all_of_the_paper_is_every_run_of_every_suite_once(tmp_path):
    plan = make_plan(Selection(["all"]), tmp_path)
    every = [run.hash for suite in SUITES.values() if suite.in_all for run in suite.runs()]
    assert {name for name, suite in SUITES.items() if not suite.in_all} == {
        "popgym-all", "walkers", "motor", "dropout",
    }  # fmt: skip
    assert sorted(one.experiment.hash for one in plan) == sorted(set(every))
    assert len({one.folder for one in plan}) == len(plan) < len(every)
    assert all(one.folder.is_relative_to(tmp_path.resolve()) for one in plan)


def test_a_run_of_two_suites_leaves_what_both_want(tmp_path):
    plan = make_plan(Selection(["best-arm", "best-arm-heatmap"]), tmp_path)
    free = [one for one in plan if one.experiment.env_settings["cost"] == 0]
    assert {one.suites for one in free} == {("best-arm", "best-arm-heatmap")}
    assert {one.post_training for one in free} == {(ExampleEpisodes(), GridOfBandits())}
    assert {one.post_training for one in plan if one not in free} == {()}


def test_agents_tasks_seeds_and_settings_are_chosen(tmp_path):
    selection = Selection(
        ["dmc"], "quick", agents=["gru", "oracle"], tasks=["walker-run"], seeds=1,
        changes={"gamma": 0.5},
    )  # fmt: skip
    runs = [one.experiment for one in make_plan(selection, tmp_path)]
    assert {(run.env, run.agent, run.seed) for run in runs} == {
        ("dmc/walker-run", "gru", 0), ("dmc/walker-run", "oracle", 0),
    }  # fmt: skip
    assert {(run.gamma, run.label) for run in runs} == {(0.5, "quick")}


def test_quick_suites_have_two_seeds(tmp_path):
    runs = [one.experiment for one in make_plan(Selection(["dmc-noise"], "quick"), tmp_path)]
    assert {run.seed for run in runs} == {0, 1}
    assert len(runs) == 2 * len({setting_of(run) for run in runs})


def test_a_run_that_is_there_already_keeps_its_folder(tmp_path):
    run = next(SUITES["popgym"].runs())
    with RunFolder(tmp_path / "mine" / "whatever", run.to_data(), events=False) as folder:
        folder.summarize(status="finished")
    (other := tmp_path / "broken").mkdir()
    (other / "experiment.json").write_text("{")
    assert existing_runs(tmp_path) == {run.hash: tmp_path / "mine" / "whatever"}
    plan = make_plan(Selection(["popgym"]), tmp_path)
    (mine,) = [one for one in plan if one.experiment == run]
    assert mine.folder == tmp_path / "mine" / "whatever"
    assert mine.done
    assert sum(one.done for one in plan) == 1


def test_seeds_of_a_setting_are_one_work_on_a_gpu(tmp_path):
    plan = make_plan(Selection(["latent-rollouts"]), tmp_path)
    works = list(batches(plan, together=True))
    assert [[one.experiment.seed for one in work] for work in works] == [[0, 1, 2, 3, 4]] * 2
    assert all(len({setting_of(one.experiment) for one in work}) == 1 for work in works)
    assert [len(work) for work in batches(plan, together=False)] == [1] * 10


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"suites": ["best-am"]}, "suite: got 'best-am'"),
        ({"suites": []}, "suite: got none, expected some of best-arm"),
        ({"suites": ["dmc"], "agents": ["gruu"]}, "agents: got 'gruu'"),
        ({"suites": ["dmc"], "seeds": 0}, "seeds: got 0, expected at least 1"),
        ({"suites": ["dmc"], "changes": {"seed": 3}}, "seed: got it for a whole sweep"),
        ({"suites": ["dmc"], "tasks": ["walker-rn"]}, "agents, tasks: got walker-rn, expected"),
    ],
)
def test_a_wrong_choice_is_refused_in_one_line(tmp_path, choice, message):
    with pytest.raises(ValueError, match=message) as error:
        make_plan(Selection(**choice), tmp_path)
    assert "\n" not in str(error.value)
