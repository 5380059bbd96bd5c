import csv
import io
import re

import pytest

pytest.importorskip("matplotlib")

from kalmanac._report.groups import make_groups
from kalmanac._report.published import MAMBA
from kalmanac._report.runs import read_runs
from kalmanac._report.scores import best, last
from kalmanac._report.statistics import mean_and_error
from kalmanac._report.table import Table
from kalmanac._report.tables import make_tables
from tests.report.synthetic import write_best_arm, write_popgym


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    write_popgym(folder, tasks=["RepeatFirstEasy", "RepeatFirstMedium"], agents=["gru", "vssm+kf"],
                 seeds=range(3), height=0.9)  # fmt: skip
    write_best_arm(folder, agents=["oracle"], costs=[0.02], seeds=[0], until=0.5,
                   changes={"label": "shortened"})  # fmt: skip
    return make_groups(read_runs(folder).runs, [])


@pytest.fixture(scope="module")
def tables(groups):
    return {table.name: table for table in make_tables(groups)}


def rows_of(table):
    return list(csv.DictReader(io.StringIO(table.csv())))


def test_all_tables_are_there(tables):
    assert list(tables) == [
        "scores", "popgym-sums", "popgym-sums-improvement", "popgym-sums-plain",
        "popgym-sums-plain-improvement", "popgym-table", "popgym-scores", "popgym-own-scores",
    ]  # fmt: skip


def test_scores_hold_mean_and_error_of_last_and_best(tables, groups):
    group = next(g for g in groups if g.agent == "vssm+kf" and g.task == "RepeatFirstMedium")
    (row,) = (
        row
        for row in rows_of(tables["scores"])
        if (row["task"], row["agent"]) == ("RepeatFirstMedium", "vSSM+KF")
    )
    for column, values in (("last return", last(group)), ("best return (MMER)", best(group))):
        mean, error = mean_and_error(values)
        assert row[column] == f"{mean:.3f} ± {error:.3f}"
    assert (row["seeds"], row["unfinished"]) == ("3", "")


def test_labels_and_unfinished_runs_are_marked(tables):
    row = rows_of(tables["scores"])[0]
    assert row["task"] == "best-arm, cost 0.02 (shortened)"
    assert row["agent"] == "Oracle (shortened)"
    assert (row["seeds"], row["unfinished"], row["steps"]) == ("1", "1", "250,000")


def test_popgym_stands_beside_the_papers_numbers(tables, groups):
    rows = {(row["task"], row["agent"]): row for row in rows_of(tables["popgym-scores"])}
    assert len(rows) == 12 * 8
    row = rows["RepeatFirstMedium", "vSSM+KF"]
    group = next(g for g in groups if g.agent == "vssm+kf" and g.task == "RepeatFirstMedium")
    assert row["paper's MMER"] == "0.726 ± 0.127"
    assert row["difference"] == f"{best(group).mean() - 0.726:+.3f}"
    assert row["best POPGym"] == "1.000"
    assert rows["AutoencodeEasy", "GRU"]["MMER"] == ""


def test_the_matrix_says_what_the_scores_do_not_support(tables):
    table = tables["popgym-table"]
    assert MAMBA in table.notes
    assert len(table.rows) == 9
    assert all(len(row) == 13 for row in table.rows)
    column = {row[0]: row[table.head.index("RepeatFirstMedium")] for row in table.rows}
    assert "paper 1.000 ± 0.000\ndifference" in column["GRU"]
    marked = [agent for agent, cell in column.items() if "★" in cell]
    means = {agent: float(cell.split()[0]) for agent, cell in column.items() if "diff" in cell}
    assert marked == [agent for agent in means if means[agent] == max(means.values())]


def test_without_runs_of_popgym_its_tables_are_not_there(groups):
    rest = [group for group in groups if group.family != "popgym"]
    assert [table.name for table in make_tables(rest)] == ["scores"]


def test_improvement_of_row_and_column_add_up(tables):
    table = tables["popgym-sums-improvement"]
    forth, back = (float(table.rows[i][2 - i].split()[0]) for i in (0, 1))
    assert forth + back == pytest.approx(1, abs=0.011)


def test_markdown_has_one_line_a_row_and_the_notes(tables):
    for table in tables.values():
        lines = table.markdown().splitlines()
        bars = [line.count("|") for line in lines if line.startswith("|")]
        assert bars == [len(table.head) + 1] * (len(table.rows) + 2)
        assert all(note in lines for note in table.notes)


ODD = ("=1+1", "+1-1", "-2+3", "@SUM(A1)", "-1+cmd|' /C calc'!A0", "\t=1")


def test_no_cell_is_a_formula_and_numbers_stay_numbers():
    numbers = ("-0.5", "-0.500 ± 0.100", "+0.123", "-3.5e+20 ± 1e+20", "-inf", "-0.1 ★\npaper 1.0")
    table = Table("a", "A", ("=head", *"bcdef"), [ODD, numbers])
    head, odd, kept = csv.reader(io.StringIO(table.csv()))
    assert head[0] == "'=head"
    assert odd == [f"'{cell}" for cell in ODD]
    assert tuple(kept) == numbers


def test_a_bar_in_a_cell_is_no_border():
    cells = ("a|b", "a\\|b\\", "<b>")
    table = Table("a", "A", ("x", "y", "z"), [cells])
    row = table.markdown().splitlines()[4]
    inside = re.split(r"(?<!\\)(?:\\\\)*\|", row)  # bars that no backslash stands before
    assert row == "| a\\|b | a\\\\\\|b\\\\ | \\<b> |"
    assert len(inside) == 5
