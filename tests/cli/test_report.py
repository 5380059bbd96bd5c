"""`kalmanac report` from the call to the files."""

import subprocess
import sys

import pytest

from kalmanac._cli.program import main
from kalmanac._files.run_reader import METRICS
from tests.report.synthetic import write_best_arm


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    changes = {"label": "shortened", "evaluations": ("in",)}
    write_best_arm(folder, agents=["gru", "oracle"], costs=[0.02], seeds=[0], changes=changes)
    return folder


def test_figures_tables_and_page_are_written(runs, capsys):
    assert main(["report", str(runs)]) == 0
    output = capsys.readouterr().out.splitlines()
    assert output[-1] == (
        f"2 runs (shortened runs among them), 3 figures, 2 tables: {runs}/report/index.html"
    )
    assert all(line.startswith("not drawn: ") for line in output[:-1])
    assert not any("POPGym" in line for line in output)
    names = {
        file.relative_to(runs / "report").as_posix() for file in (runs / "report").rglob("*.*")
    }
    name = "best-arm-returns-lengths-shortened"
    assert {"index.html", f"figures/{name}.png", f"figures/{name}.pdf"} <= names
    assert {"tables/scores.csv", "tables/scores.md"} <= names
    # Oracle reads normalized observations, and gru does not
    assert "normalize_observations" in (runs / "report" / "tables" / "settings.md").read_text()


def test_what_is_amiss_is_said_in_one_line_each(tmp_path, capsys):
    (run,) = write_best_arm(tmp_path, agents=["gru"], costs=[0.0], seeds=[0])
    (run / METRICS).write_bytes((run / METRICS).read_bytes()[:-9])
    (tmp_path / "notes.txt").touch()
    assert main(["report", str(tmp_path)]) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")]
    assert len(notes) == 2
    assert "metrics.jsonl ends in the middle of a line" in notes[0]
    assert notes[1] == "note: notes.txt: not part of a run, not read"


def test_a_folder_without_runs_is_said_so(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 1
    assert f"found no run with numbers in {tmp_path}" in capsys.readouterr().err
    assert not (tmp_path / "report").exists()


def test_wrong_calls_get_one_line(tmp_path, runs, capsys):
    assert main(["report", str(tmp_path / "nowhere")]) == 2
    assert "folder: got " in capsys.readouterr().err
    (tmp_path / "taken").touch()
    assert main(["report", str(runs), "--out", str(tmp_path / "taken")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("kalmanac report: --out ")
    assert error.count("\n") == 1


def report_without(library, *words):
    """`kalmanac report WORDS` in a process where `library` cannot be imported."""
    code = f"""
import sys
import importlib.machinery
original = importlib.machinery.PathFinder.find_spec
def find_spec(name, *rest):
    return None if name.split(".")[0] == {library!r} else original(name, *rest)
importlib.machinery.PathFinder.find_spec = find_spec
from kalmanac._cli.program import main
sys.exit(main(["report", *{[str(word) for word in words]!r}]))"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_no_torch_is_needed_and_the_same_runs_give_the_same_files(runs, tmp_path):
    assert main(["report", str(runs), "--out", str(tmp_path / "here")]) == 0
    done = report_without("torch", runs, "--out", tmp_path / "there")
    assert done.returncode == 0, done.stderr
    files = [file for file in (tmp_path / "here").rglob("*") if file.is_file()]
    assert len(files) > 8
    for file in files:
        again = tmp_path / "there" / file.relative_to(tmp_path / "here")
        assert again.read_bytes() == file.read_bytes(), file.name


def test_a_missing_library_is_said_in_one_line(runs):
    done = report_without("plotly", runs)
    assert done.returncode == 2
    assert done.stderr == (
        'kalmanac report: plotly is not installed: pip install "kalmanac[report]"\n'
    )
