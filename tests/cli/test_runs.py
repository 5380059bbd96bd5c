"""The verb `runs`: every kind of run folder, and what is none."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from kalmanac._cli.program import main
from kalmanac._files.lock import FolderLock
from kalmanac._files.run_status import ROWS, SILENCE, RunStatus, find_runs, read_status
from kalmanac._lab.run import run as train
from tests.lab.tiny import TINY

NOW = 1_000_000.0


def leave(
    path, *, status="finished", age=0.0, timing='{"step": 50, "time/fps": 20.0}\n', **settings
):
    """A run folder by hand: for what real runs leave, see the first test."""
    path.mkdir(parents=True)
    experiment = TINY.changed({"total_steps": 100, "log_every": 1000, **settings}).to_data()
    (path / "experiment.json").write_text(json.dumps(experiment))
    values = {"eval/in/normalized": 0.25, "eval/in/mean_reward": 2.5}
    summary = {"status": status, "step": 40, "last": values, "best": None}
    (path / "summary.json").write_text(json.dumps(summary))
    (path / "timing.jsonl").write_text(timing)
    for file in path.iterdir():
        os.utime(file, (NOW - age, NOW - age))
    return path


def listed(folder, capsys):
    status = main(["runs", str(folder)])
    output = capsys.readouterr()
    return status, output.out.splitlines(), output.err.splitlines()


def test_a_real_run_is_listed(tmp_path, capsys):
    train(TINY, tmp_path / "best-arm" / "one", device="cpu", events=False)
    runs, broken = find_runs(tmp_path, now=time.time())
    assert broken == []
    (one,) = runs
    assert (one.task, one.agent, one.seed) == ("best-arm", "memoryless", 0)
    assert (one.status, one.step, one.total) == ("finished", 96, 96)
    assert -1 <= one.last <= one.best <= 1
    assert one.speed > 0
    assert one.seconds_left is None
    assert one.resume is None
    status, lines, errors = listed(tmp_path, capsys)
    assert (status, errors) == (0, [])
    assert lines[0].split() == ["run", "status", "steps", "done", "last", "best", "steps/s"]
    assert lines[1].split()[:4] == ["best-arm/one", "finished", "96", "100%"]
    assert lines[2] == "1 run: 1 finished"


def test_running_ones_come_first_and_broken_ones_are_named(tmp_path, capsys):
    leave(tmp_path / "a" / "done", encoder="gru", seed=1)
    leave(tmp_path / "a" / "oracle", encoder="oracle")
    leave(tmp_path / "b" / "killed", status="running", age=10 * 24 * 3600)
    leave(tmp_path / "stopped", status="interrupted")
    leave(tmp_path / "now", status="running", timing="")
    (tmp_path / "now" / "timing.jsonl").touch()
    for file in (tmp_path / "now").iterdir():
        os.utime(file)
    (leave(tmp_path / "torn") / "experiment.json").write_text('{"env": "best-')
    (leave(tmp_path / "odd") / "experiment.json").write_text("[1]")
    (leave(tmp_path / "lost") / "experiment.json").unlink()
    (leave(tmp_path / "strange") / "summary.json").write_text('{"status": "dancing"}')
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("not a run")
    (tmp_path / "file.json").write_text("{}")

    status, lines, errors = listed(tmp_path, capsys)
    assert status == 1
    assert [line.split()[:2] for line in lines[1:-1]] == [
        ["now", "running"], ["b/killed", "killed"], ["stopped", "interrupted"],
        ["a/done", "finished"], ["a/oracle", "finished"],
    ]  # fmt: skip
    assert lines[0].split()[5:] == ["steps/s"], "columns without a value are left out"
    assert lines[-1] == "5 runs: 1 running, 1 killed, 1 interrupted, 2 finished"
    named = [line.removeprefix(f"kalmanac runs: cannot read {tmp_path}/") for line in errors]
    assert [line.split(":")[0] for line in named] == ["lost", "odd", "strange", "torn"]
    assert "expected one with experiment.json" in named[0]
    assert "status: got 'dancing', expected one of running" in named[2]
    assert "got no JSON" in named[3]
    assert not any("mine" in line or "file.json" in line for line in lines + errors)


def test_what_went_beyond_its_end_by_a_vector_step_is_done(tmp_path, capsys):
    leave(tmp_path / "a", status="running", timing='{"step": 101, "time/fps": 20.0}\n')
    _, lines, _ = listed(tmp_path, capsys)
    assert lines[1].split()[2:4] == ["101", "100%"]


@pytest.mark.parametrize(
    ("age", "fps", "status"),
    [
        (SILENCE - 1, 1e9, "running"),
        (SILENCE + 1, 1e9, "killed"),
        (SILENCE + 1, 1.0, "running"),  # a row takes 1000 s here
        (ROWS * 1000 + 1, 1.0, "killed"),
    ],
)
def test_a_run_that_has_long_been_silent_was_killed(tmp_path, age, fps, status):
    timing = json.dumps({"step": 60, "time/fps": fps}) + '\n{"step": 6'  # and a torn row
    run = read_status(leave(tmp_path / "a", status="running", age=age, timing=timing), now=NOW)
    assert (run.status, run.step) == (status, 60)
    assert run.seconds_left == (40 / fps if status == "running" else None)


def test_a_lock_of_this_machine_knows_at_once(tmp_path):
    path = leave(tmp_path / "a", status="running", age=10 * SILENCE)
    with FolderLock(path / "lock.json"):
        assert read_status(path, now=NOW).status == "running"
        owner = json.loads((path / "lock.json").read_text())
    (path / "lock.json").write_text(json.dumps(owner | {"started": 1}))  # another process's number
    os.utime(path / "summary.json", (NOW, NOW))
    assert read_status(path, now=NOW).status == "killed"
    (path / "lock.json").write_text(json.dumps(owner | {"host": "elsewhere", "boot": "b"}))
    assert read_status(path, now=NOW).status == "running"
    assert read_status(path, now=NOW + 2 * SILENCE).status == "killed"


def test_what_has_a_checkpoint_and_is_not_over_can_go_on(tmp_path):
    for status, step in (("interrupted", 3000), ("failed", 3000), ("finished", None)):
        path = leave(tmp_path / status, status=status)
        assert read_status(path, now=NOW).resume is None
        (path / "checkpoints").mkdir()
        for name in ("step-000000003000", "step-000000001000", "step-x"):
            (path / "checkpoints" / f"{name}.safetensors").touch()
        assert read_status(path, now=NOW).resume == step


def test_no_folder_and_no_runs_are_said(tmp_path, capsys):
    assert main(["runs", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.endswith("none, expected a folder\n")
    assert main(["runs", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"no runs in {tmp_path}; `kalmanac train` makes one\n"


def test_a_run_folder_itself_is_a_list_of_one(tmp_path, capsys):
    path = leave(tmp_path / "a")
    status, lines, _ = listed(path, capsys)
    assert status == 0
    assert lines[-1] == "1 run: 1 finished"


def test_a_thousand_runs_take_seconds_and_no_torch(tmp_path):
    first = leave(tmp_path / "many" / "0", timing='{"step": 1, "time/fps": 2.0}\n' * 50)
    settings = json.loads((first / "experiment.json").read_text())
    for i in range(1, 1000):
        path = shutil.copytree(first, tmp_path / "many" / str(i))
        (path / "experiment.json").write_text(json.dumps(settings | {"seed": i}))
    began = time.perf_counter()
    runs, _ = find_runs(tmp_path, now=NOW)
    assert time.perf_counter() - began < 5
    assert [one.seed for one in runs] == list(range(1000))
    assert isinstance(runs[0], RunStatus)
    code = "import sys, kalmanac._cli.runs; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
