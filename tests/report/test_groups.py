import json
import re

import pytest

from kalmanac._files.run_reader import EXPERIMENT
from kalmanac._lab.experiment import Experiment
from kalmanac._report.groups import (
    BEST_ARM,
    DMC,
    OTHER,
    PAPERS,
    POPGYM,
    family_and_task,
    make_groups,
)
from kalmanac._report.runs import read_runs
from kalmanac._suites import best_arm, popgym
from tests.report.synthetic import write_best_arm, write_dmc, write_popgym, write_run

FEW = {"eval_every": 250_000}


def groups_in(folder, notices=None):
    return make_groups(read_runs(folder).runs, [] if notices is None else notices)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ("best-arm", (BEST_ARM, "best-arm")),
        ("popgym/RepeatFirstMedium", (POPGYM, "RepeatFirstMedium")),
        ("popgym-RepeatFirstEasy-v0", (POPGYM, "RepeatFirstEasy")),
        ("dmc/ball_in_cup-catch", (DMC, "ball_in_cup-catch")),
        ("dmc/walker-walk", (DMC, "walker-walk")),
        ("CartPole-v1", (OTHER, "CartPole-v1")),
        ("mine:RepeatFirst", (OTHER, "mine:RepeatFirst")),
    ],
)
def test_environments_find_their_family(env, expected):
    assert family_and_task({"env": env, "env_settings": {}}) == expected


def test_seeds_go_together_and_nothing_else(tmp_path):
    write_best_arm(
        tmp_path, agents=["oracle", "memoryless"], costs=[0.0, 0.5], seeds=range(3), changes=FEW
    )
    groups = groups_in(tmp_path)
    assert [(g.agent, g.condition("cost"), len(g.runs)) for g in groups] == [
        ("oracle", 0.0, 3), ("memoryless", 0.0, 3), ("oracle", 0.5, 3), ("memoryless", 0.5, 3),
    ]  # fmt: skip
    assert [run.seed for run in groups[0].runs] == [0, 1, 2]
    assert all(group.main for group in groups)


def test_a_cost_that_is_not_said_is_none(tmp_path):
    for i, settings in enumerate(({}, {"cost": 0.0})):
        what = Experiment(env="best-arm", env_settings=settings, seed=i, eval_every=500_000)
        write_run(tmp_path / str(i), what)
    assert {group.task_title for group in groups_in(tmp_path)} == {"best-arm, cost 0"}


def test_encoder_settings_are_named_only_where_they_differ(tmp_path):
    write_dmc(tmp_path / "a", tasks=["walker-run"], agents=["vssm+kf", "gru"], seeds=[0],
              encoder_settings={"d_state": 64})  # fmt: skip
    assert [g.agent_title for g in groups_in(tmp_path)] == ["vSSM+KF", "GRU"]
    write_dmc(tmp_path / "b", tasks=["walker-run"], agents=["vssm+kf"], seeds=[0],
              encoder_settings={"d_state": 64, "norm": True})  # fmt: skip
    groups = {g.agent_title: g.main for g in groups_in(tmp_path)}
    assert groups == {"vSSM+KF": True, "vSSM+KF (norm)": False, "GRU": True}


def test_a_transformer_without_the_paper_s_dropout_says_so(tmp_path):
    write_popgym(tmp_path / "now", tasks=["RepeatFirstEasy"], agents=["transformer"], seeds=[0, 1])
    older = write_popgym(
        tmp_path / "before", tasks=["RepeatFirstEasy"], agents=["transformer"], seeds=[0],
        encoder_settings={"dropout": 0.0},
    )  # fmt: skip
    data = json.loads((older[0] / EXPERIMENT).read_text())
    (older[0] / EXPERIMENT).write_text(json.dumps(data | {"encoder_settings": {}}))
    notices = []
    groups = {g.agent_title: (g.main, len(g.runs)) for g in groups_in(tmp_path, notices)}
    assert groups == {"vTransformer": (True, 2), "vTransformer (dropout=0)": (False, 1)}
    (notice,) = notices
    assert "1 run of vTransformer with dropout=0 kept apart from the paper's: on the page" in notice
    (alone,) = groups_in(tmp_path / "before")
    assert alone.agent_title == "vTransformer (dropout=0)"
    assert PAPERS["transformer"].items() <= popgym.paper("transformer").encoder_settings.items()


def test_elsewhere_than_in_the_paper_s_tasks_a_transformer_is_plain(tmp_path):
    what = Experiment(env="CartPole-v1", encoder="transformer", eval_every=500_000)
    write_run(tmp_path / "own", what)
    (group,) = groups_in(tmp_path)
    assert group.main
    assert group.encoder_settings == {"dropout": 0.0}


def test_runs_trained_otherwise_are_kept_apart_and_named(tmp_path):
    write_best_arm(tmp_path, agents=["vssm+kf"], costs=[0.0], seeds=range(2), changes=FEW)
    write_best_arm(tmp_path, agents=["vssm+kf"], costs=[0.0], seeds=[7],
                   changes=FEW | {"actor_objective": "cross-entropy"})  # fmt: skip
    notices = []
    usual, other = groups_in(tmp_path, notices)
    assert (usual.variant, len(usual.runs)) == ("", 2)
    assert (other.variant, len(other.runs)) == ("actor_objective=cross-entropy", 1)
    assert not other.main
    (notice,) = notices
    assert (
        "1 run of vSSM+KF with actor_objective=cross-entropy kept apart from the usual 2 runs"
        in notice
    )


def test_a_setting_that_another_version_does_not_say_parts_runs(tmp_path):
    runs = write_best_arm(tmp_path, agents=["gru"], costs=[0.0], seeds=range(3), changes=FEW)
    data = json.loads((runs[2] / EXPERIMENT).read_text())
    del data["tau"]
    (runs[2] / EXPERIMENT).write_text(json.dumps(data))
    usual, other = groups_in(tmp_path)
    assert (usual.variant, len(usual.runs)) == ("", 2)
    assert (other.variant, len(other.runs)) == ("tau=not said", 1)


def test_what_is_written_does_not_part_runs(tmp_path):
    write_best_arm(tmp_path, agents=["gru"], costs=[0.0], seeds=[0], changes=FEW)
    write_best_arm(tmp_path, agents=["gru"], costs=[0.0], seeds=[1],
                   changes=FEW | {"log_every": 7, "evaluations": ("in",)})  # fmt: skip
    (group,) = groups_in(tmp_path)
    assert len(group.runs) == 2


def test_labels_stand_in_every_title_and_part_groups(tmp_path):
    what = best_arm.shortened("oracle").changed({"eval_every": 20_000})
    write_run(tmp_path / "short", what)
    write_run(tmp_path / "plain", what.changed({"label": ""}))
    plain, short = groups_in(tmp_path)
    assert plain.task_title == "best-arm, cost 0.02, horizon 100"
    assert short.task_title == "best-arm, cost 0.02, horizon 100 (shortened)"
    assert short.agent_title == "Oracle (shortened)"


def test_noise_is_a_condition(tmp_path):
    for level in (0.0, 1.0):
        write_dmc(tmp_path, tasks=["pendulum-swingup"], agents=["gru"], seeds=[0], level=level)
    assert [g.condition("noise") for g in groups_in(tmp_path)] == [0.0, 0.1]


def test_the_papers_order(tmp_path):
    write_popgym(tmp_path, tasks=["RepeatFirstEasy", "AutoencodeEasy"], agents=["gru", "vssm"],
                 seeds=[0], eval_every=500_000)  # fmt: skip
    write_best_arm(tmp_path, agents=["oracle"], costs=[0.0], seeds=[0], changes=FEW)
    assert [(g.task, g.agent) for g in groups_in(tmp_path)] == [
        ("best-arm", "oracle"), ("AutoencodeEasy", "vssm"), ("AutoencodeEasy", "gru"),
        ("RepeatFirstEasy", "vssm"), ("RepeatFirstEasy", "gru"),
    ]  # fmt: skip


def test_settings_within_settings_are_a_condition(tmp_path):
    inside = {"reward": {"goal": 1.0, "path": [1, {"bonus": None}]}}
    for seed, settings in ((0, inside), (1, inside), (2, {"reward": {"goal": 2.0}})):
        what = Experiment(env="CartPole-v1", env_settings=settings, seed=seed, eval_every=500_000)
        write_run(tmp_path / str(seed), what, height=0.5)
    first, second = groups_in(tmp_path)
    assert len(first.runs) == 2
    assert len({first.conditions, second.conditions}) == 2
    assert second.task_title == 'CartPole-v1, reward {"goal": 2.0}'


@pytest.mark.parametrize(
    ("env", "settings", "reason"),
    [
        ("best-arm", {"cost": "low"}, "cost: got 'low', expected a number"),
        ("best-arm", {"cost": {"a": 1}}, "cost: got .*, expected a number"),
        ("best-arm", {"cost": float("nan")}, "cost: got nan, expected less in size"),
        ("dmc/walker-run", {"noise": None}, "noise: got None, expected a number"),
    ],
)
def test_a_level_that_is_no_number_leaves_the_run_out(tmp_path, env, settings, reason):
    write_best_arm(tmp_path, agents=["gru"], costs=[0.0], seeds=[0], changes=FEW)
    what = Experiment(env=env, env_settings=settings, encoder="gru", seed=1, eval_every=250_000)
    write_run(tmp_path / "odd", what)
    notices = []
    (group,) = groups_in(tmp_path, notices)
    assert [run.seed for run in group.runs] == [0]
    assert len(notices) == 1
    assert re.fullmatch(rf"odd: left out: experiment.json: {reason}", notices[0])


def test_names_of_any_length_are_short_and_stay_apart(tmp_path):
    for i, end in enumerate("ab"):
        what = Experiment(env="m:" + "x" * 10**6 + end, label="y" * 10**6 + end, eval_every=500_000)
        write_run(tmp_path / str(i), what, height=0.5)
    first, second = groups_in(tmp_path)
    assert len({first.task_title, second.task_title}) == 2
    assert len({first.agent_title, second.agent_title}) == 2
    assert len(first.task_title + first.agent_title) < 300
