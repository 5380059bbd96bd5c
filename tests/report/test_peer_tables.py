"""Tables beside others' numbers: walkers, and all of POPGym."""

import pytest

pytest.importorskip("matplotlib")

from kalmanac._report.groups import make_groups
from kalmanac._report.peer_tables import masked_table, popgym_own_table
from kalmanac._report.published import BEST, bullet_scores, popgym_own_scores, popgym_table
from kalmanac._report.runs import read_runs
from kalmanac._report.scores import late
from kalmanac._report.tables import make_tables
from kalmanac._suites.popgym import paper
from kalmanac._suites.walkers import settings
from tests.report.synthetic import write_run


def rows_of(table):
    return [dict(zip(table.head, row, strict=True)) for row in table.rows]


def test_printed_numbers():
    bullet = bullet_scores().scores
    assert (len(bullet), {len(row) for row in bullet.values()}) == (8, {6})
    assert bullet["Hopper-V"]["MF-RNN"] == (1003, 426)
    assert bullet["HalfCheetah-V"]["SAC-Transformer"] == (-449, 723)
    assert {len(pair) for row in bullet.values() for pair in row.values()} == {2}
    own = popgym_own_scores().scores
    assert len(own) == 24
    assert own["RepeatPreviousHard"] == ((-0.428, 0.002), 0.191, "LMU")
    for scores in (bullet_scores(), popgym_own_scores()):
        assert "https://" in scores.source


def test_the_two_tables_of_popgym_agree_on_the_best():
    paper_s, own = popgym_table().scores, popgym_own_scores().scores
    shared = paper_s.keys() & own.keys()
    assert len(shared) == 10
    assert all(paper_s[task][BEST].mean == own[task].best for task in shared)


def test_walkers_have_their_share_of_the_full_agent_s_return(tmp_path):
    for task, agent, high in (
        ("mujoco/Hopper-P", "oracle", 3000.0),
        ("mujoco/Hopper-P", "gru", 1500.0),
        ("mujoco/Hopper-V", "gru", 600.0),
        ("mujoco/Walker2d-P", "gru", 600.0),
        ("bullet/Hopper-P", "gru", 2000.0),
    ):
        write_run(tmp_path / f"{task}-{agent}".replace("/", "-"), settings(agent, task=task),
                  low=0.0, high=high)  # fmt: skip
    groups = make_groups(read_runs(tmp_path).runs, [])
    table = {table.name: table for table in make_tables(groups)}["masked-scores"]
    rows = {(row["task"], row["agent"]): row for row in rows_of(table)}
    mean = {(g.task, g.agent): late(g).mean() for g in groups}
    share = mean["mujoco/Hopper-P", "gru"] / mean["mujoco/Hopper-P", "oracle"]
    assert rows["mujoco/Hopper-P", "GRU"]["share of Oracle's"] == f"{share:.0%}"
    share = mean["mujoco/Hopper-V", "gru"] / mean["mujoco/Hopper-P", "oracle"]
    assert rows["mujoco/Hopper-V", "GRU"]["share of Oracle's"] == f"{share:.0%}", "the same machine"
    assert rows["mujoco/Walker2d-P", "GRU"]["share of Oracle's"] == ""
    assert rows["mujoco/Hopper-P", "GRU"]["MF-RNN"] == ""
    assert rows["bullet/Hopper-P", "GRU"]["RESeL-Mamba"] == "2769 ± 85"
    assert rows["bullet/Hopper-P", "GRU"]["share of Oracle's"] == ""


def test_every_task_of_popgym_stands_beside_its_authors_number(tmp_path):
    for task in ("RepeatPreviousHard", "BattleshipEasy", "RepeatFirstEasy"):
        write_run(tmp_path / task, paper("gru", task=task), low=-1.0, high=0.5)
    groups = make_groups(read_runs(tmp_path).runs, [])
    rows = {row["task"]: row for row in rows_of(popgym_own_table(groups))}
    assert rows.keys() == {"RepeatPreviousHard", "BattleshipEasy", "RepeatFirstEasy"}
    assert rows["RepeatPreviousHard"]["their best"] == "0.191 (LMU)"
    assert rows["BattleshipEasy"]["their best"] == ""
    assert rows["RepeatFirstEasy"]["their GRU"] == "1.000 ± 0.000"


def test_without_such_runs_there_are_no_such_tables(tmp_path):
    write_run(tmp_path / "x", settings("gru").changed({"env": "track"}), low=0.0, high=1.0)
    groups = make_groups(read_runs(tmp_path).runs, [])
    assert masked_table(groups) is None
    assert popgym_own_table(groups) is None
