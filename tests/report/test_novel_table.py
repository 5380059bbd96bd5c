"""Runs of NoVel stand beside the published numbers; other runs have no such table."""

import pytest

pytest.importorskip("matplotlib")

from kalmanac._report.groups import make_groups
from kalmanac._report.published import novel_scores
from kalmanac._report.runs import read_runs
from kalmanac._report.scores import last
from kalmanac._report.statistics import mean_and_error
from kalmanac._report.tables import make_tables, novel_table
from kalmanac._suites.novel import STEPS, settings
from tests.report.synthetic import write_popgym, write_run


def test_printed_numbers():
    scores = novel_scores().scores
    assert scores["novel/CartPole"][:3] == (500.0, 0.0, 100_000)
    assert scores["novel/Pendulum"][:3] == (-217.933, 140.094, 100_000)
    assert scores["novel/MountainCarContinuous"][:3] == (91.469, 1.776, 300_000)
    assert {f"novel/{task}": steps for task, steps in STEPS.items()} == {
        env: score.steps for env, score in scores.items()
    }
    assert "rl-baselines3-zoo" in novel_scores().source


def test_each_agent_in_each_task_has_a_row(tmp_path):
    for task, agent, seed in (
        ("Pendulum", "gru", 0),
        ("Pendulum", "gru", 1),
        ("CartPole", "vssm+kf", 0),
    ):
        run = settings(agent, task=task, seed=seed)
        write_run(tmp_path / f"{task}-{agent}-{seed}", run, low=-1000.0, high=0.0, until=0.5)
    write_popgym(tmp_path, tasks=["RepeatFirstEasy"], agents=["gru"], seeds=[0])
    groups = make_groups(read_runs(tmp_path).runs, [])
    table = {table.name: table for table in make_tables(groups)}["novel-scores"]
    first, second = (dict(zip(table.head, row, strict=True)) for row in table.rows)
    assert (first["task"], first["agent"], first["seeds"]) == ("novel/CartPole", "vSSM+KF", "1")
    assert first["ppo_lstm's return"] == "500.0 ± 0.0"
    mean, error = mean_and_error(last(next(g for g in groups if g.task == "novel/Pendulum")))
    assert second == {
        "task": "novel/Pendulum", "agent": "GRU", "seeds": "2", "steps": "50,000",
        "last return": f"{mean:.1f} ± {error:.1f}", "best return": second["best return"],
        "ppo_lstm's return": "-217.9 ± 140.1", "ppo_lstm's steps": "100,000",
    }  # fmt: skip
    assert any("over the episodes of one trained agent" in note for note in table.notes)


def test_without_such_runs_there_is_no_table(tmp_path):
    write_popgym(tmp_path, tasks=["RepeatFirstEasy"], agents=["gru"], seeds=[0])
    assert novel_table(make_groups(read_runs(tmp_path).runs, [])) is None
