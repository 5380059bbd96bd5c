"""`kalmanac suites`: runs are counted once, and hours come from what was measured."""

import pytest

from kalmanac._cli.program import main
from kalmanac._cli.suites import rows, suites
from kalmanac._suites.registry import SUITES
from kalmanac._sweep.speeds import SPEEDS, Speeds, key_of, measure, read_speeds, write_speeds


def test_hours_add_up_over_runs_that_no_suite_above_has():
    runs = {name: list(SUITES[name].runs()) for name in ("best-arm", "best-arm-heatmap")}
    speeds = Speeds("a clock", {key_of(run): 36.0 for run in runs["best-arm"]})
    first, second = rows(runs, speeds)
    assert (first.runs, first.new, first.hours) == (160, 160, pytest.approx(1.6))
    assert (second.runs, second.new, second.hours) == (40, 0, 0.0)


def test_what_was_not_measured_has_no_hours():
    (row,) = rows({"dmc": list(SUITES["dmc"].runs())[:1]}, Speeds("a clock", {}))
    assert row.hours is None


@pytest.mark.slow
def test_measured_times_can_be_kept(tmp_path):
    run = next(run for run in suites("quick")["best-arm"] if run.agent == "memoryless")
    speeds = measure([run, run])
    assert list(speeds.seconds) == [key_of(run)]
    assert speeds.seconds[key_of(run)] > 0
    write_speeds(tmp_path / "speeds.json", speeds)
    assert read_speeds(tmp_path / "speeds.json") == speeds


@pytest.mark.parametrize("preset", ["paper", pytest.param("quick", marks=pytest.mark.slow)])
def test_the_verb_lists_all_suites_with_times_of_every_kind_of_run(preset, capsys):
    assert main(["suites", "--preset", preset]) == 0
    output = capsys.readouterr().out
    assert all(name in output for name in SUITES)
    names = ("best-arm", "dmc", "popgym ")
    papers = [line for line in output.splitlines() if line.startswith(names)]
    assert papers
    assert not any(" ? " in line for line in papers)  # of suites beside the paper, no time is known
    assert f"Measured with {read_speeds(SPEEDS).measured}" in output
    whole = next(line.split() for line in output.splitlines() if line.startswith("all "))
    assert whole[:3] == ["all", *{"paper": ["2,135", "1,885"], "quick": ["828", "728"]}[preset]]


def test_a_file_of_something_else_is_refused(tmp_path, capsys):
    (tmp_path / "wrong.json").write_text("[]")
    assert main(["suites", "--speeds", str(tmp_path / "wrong.json")]) == 2
    assert "expected a file of `--measure`" in capsys.readouterr().err
