"""Runs, or their small files, become small run folders that a report reads as any other."""

import json
import shutil

import pytest

from kalmanac._lab.experiment import Experiment
from kalmanac._lab.run import run
from kalmanac._report.groups import make_groups
from kalmanac._report.runs import read_runs
from kalmanac._report.scores import late

OFTEN = {"eval_every": 100, "eval_episodes": 1, "log_every": 50, "total_steps": 200}
FEW = {"num_envs": 4, "learning_starts": 200, "batch_size": 2, "context_length": 8}


@pytest.fixture
def small_runs(bench):
    return bench("small_runs")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs") / "a run"
    told = Experiment("track", encoder="memoryless", seed=3, dropout=0.5, **OFTEN, **FEW)
    run(told, place, events=False)
    return place


def test_a_report_reads_it_as_the_run_itself(small_runs, folder, tmp_path, capsys):
    assert small_runs.main([str(folder), "--out", str(tmp_path / "kept")]) == 0
    kept = tmp_path / "kept/track-memoryless-0.5-told-seed3"
    assert sorted(x.name for x in kept.iterdir()) == [
        "experiment.json", "metrics.jsonl", "provenance.json", "summary.json", "timing.jsonl",
    ]  # fmt: skip
    groups = [make_groups(read_runs(place.parent).runs, []) for place in (folder, kept)]
    truth, found = (float(late(one)[0]) for (one,) in groups)
    assert found == pytest.approx(truth, rel=1e-4)
    assert "1 runs to kept, 0 refused" in capsys.readouterr().out


def test_a_small_file_gives_the_same_folder(bench, small_runs, folder, tmp_path):
    assert bench("learning").main([str(folder), "--out", str(tmp_path / "files")]) == 0
    for source, out in ((folder, "one"), (tmp_path / "files", "other")):
        assert small_runs.main([str(source), "--out", str(tmp_path / out)]) == 0
    one, other = (
        {file.name: file.read_text() for file in (tmp_path / out).rglob("*") if file.is_file()}
        for out in ("one", "other")
    )
    assert one == other


def test_runs_that_differ_have_names_that_differ(small_runs, folder, tmp_path):
    """A label is in the name; of other settings, a part of their hash."""
    told = json.loads((folder / "experiment.json").read_text())
    for number, change in enumerate(({}, {"label": "other"}, {"noise": 0.25}, {"gamma": 0.5})):
        copy = tmp_path / f"copies/{number}"
        shutil.copytree(folder, copy)
        (copy / "experiment.json").write_text(json.dumps(told | change))
    out = tmp_path / "kept"
    assert small_runs.main([str(tmp_path / "copies"), "--out", str(out)]) == 0
    names = sorted(place.name for place in out.iterdir())
    assert {name.removeprefix("track-memoryless-0.5-told-") for name in names} >= {
        "seed3", "other-seed3",
    }  # fmt: skip
    kept = [json.loads((out / name / "experiment.json").read_text()) for name in names]
    assert sorted((x["label"], x["noise"], x["gamma"]) for x in kept) == sorted(
        ((told | x)["label"], (told | x)["noise"], (told | x)["gamma"])
        for x in ({}, {"label": "other"}, {"noise": 0.25}, {"gamma": 0.5})
    )


def test_nothing_is_overwritten_and_what_is_no_run_is_named(small_runs, folder, tmp_path, capsys):
    out = ["--out", str(tmp_path / "kept")]
    assert small_runs.main([str(folder), *out]) == 0
    metrics = tmp_path / "kept/track-memoryless-0.5-told-seed3/metrics.jsonl"
    metrics.write_text("mine\n")
    bad, odd = tmp_path / "bad.jsonl", tmp_path / "odd.jsonl"
    bad.write_text(json.dumps({"experiment": 1}) + "\n")
    few = {"experiment": {"env": "a"}, "status": "finished", "step": 1, "clock": []}
    odd.write_text(json.dumps(few) + "\n")
    assert small_runs.main([str(bad), str(odd), str(folder), *out]) == 1
    assert metrics.read_text() == "mine\n"
    told = capsys.readouterr().err
    assert "got the run of track-memoryless-0.5-told-seed3, expected another one" in told
    assert "bad.jsonl: got what is no run" in told
    assert "odd.jsonl: got what is no run" in told
    with pytest.raises(SystemExit):
        small_runs.main([str(tmp_path / "nowhere"), *out])
    assert "nowhere, expected a run folder or a file" in capsys.readouterr().err
