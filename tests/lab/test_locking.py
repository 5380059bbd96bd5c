"""Of two that want to go on with a run, one is refused, whenever and wherever they look."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kalmanac._files.lock import FolderInUseError, FolderLock
from kalmanac._files.run_folder import FolderTakenError, RunFolder
from kalmanac._files.run_reader import LOCK, read_summary, resumable
from kalmanac._lab.run import resume, resume_together, run, run_together
from tests.files.test_lock import CONTAINER, contained
from tests.lab.test_resuming import after, same_bytes
from tests.lab.tiny import TINY

ROOT = Path(__file__).parents[2]
SMALL = TINY.changed({"total_steps": 48})


@pytest.fixture
def stopped(tmp_path):
    folder = tmp_path / "run"
    run(SMALL, folder, events=False, checkpoint_every=8, stop=after(6))
    assert resumable(folder) == 24
    return folder


def once(call):
    """Does it the first time, and nothing afterwards."""
    calls = []

    def first():
        if not calls:
            calls.append(None)
            call()

    return first


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.glob("**/*") if file.is_file()}


def test_nobody_finishes_a_run_between_the_reading_of_its_checkpoint_and_its_lock(
    stopped, tmp_path, monkeypatch
):
    """The window between reading and writing, widened."""
    enter, refused = RunFolder.__enter__, []

    def other():
        with pytest.raises(FolderInUseError, match=f"process {os.getpid()} is writing"):
            resume(stopped, events=False)
        refused.append(True)

    before = once(other)
    monkeypatch.setattr(RunFolder, "__enter__", lambda self: before() or enter(self))
    assert resume(stopped, events=False).status == "finished"
    assert refused
    run(SMALL, tmp_path / "truth", events=False)
    same_bytes(tmp_path / "truth", stopped)
    assert read_summary(stopped)["status"] == "finished"


@pytest.mark.parametrize("together", [False, True])
def test_a_run_that_was_finished_before_the_lock_was_taken_is_left_as_it_is(
    together, stopped, monkeypatch
):
    """The window before the lock, widened."""
    take, after_it = FolderLock.take, []

    def other():
        assert resume(stopped, events=False).status == "finished"
        after_it.append(contents(stopped))

    before = once(other)
    monkeypatch.setattr(FolderLock, "take", lambda self: before() or take(self))
    with pytest.raises(FolderTakenError, match="which is finished, expected one that was stopped"):
        resume_together([stopped], events=False) if together else resume(stopped, events=False)
    assert contents(stopped) == after_it[0]
    assert not (stopped / LOCK).exists()


def test_a_run_that_was_begun_and_finished_before_the_lock_was_taken_is_not_cleared(
    tmp_path, monkeypatch
):
    take, after_it, folder = FolderLock.take, [], tmp_path / "run"

    def other():
        assert run(SMALL, folder, events=False).status == "finished"
        after_it.append(contents(folder))

    before = once(other)
    monkeypatch.setattr(FolderLock, "take", lambda self: before() or take(self))
    with pytest.raises(FolderTakenError, match="holds this experiment already"):
        run(SMALL, folder, events=False)
    assert contents(folder) == after_it[0]


def test_what_cannot_go_on_keeps_no_lock(stopped, tmp_path, monkeypatch):
    other = tmp_path / "other"
    run_together([SMALL.changed({"seed": 1})], [other], events=False)
    with pytest.raises(ValueError, match="finished"):
        resume_together([stopped, other], events=False)
    monkeypatch.setattr("kalmanac._lab.active_run.RunLogger", None)
    with pytest.raises(TypeError):
        resume(stopped, events=False)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="expected one with a checkpoint"):
        resume(stopped, step=7, events=False)
    assert resume(stopped, events=False).status == "finished"


def start(folder, *before):
    words = f"resume {folder} --device cpu --no-progress --no-tensorboard"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    return subprocess.Popen(
        [*before, sys.executable, "-m", "kalmanac", *words.split()], env=environment, text=True,
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.mark.slow
def test_of_two_resumes_in_different_containers_one_is_refused(tmp_path):
    if not contained():
        pytest.skip("no namespace can be made here")
    gate, folder = tmp_path / "gate", tmp_path / "run"
    gated = SMALL.changed(
        {"env": "tests.lab.failing:Gated", "env_settings": {"gate": str(gate)}}
        | {"evaluations": ("in",)}
    )
    gate.touch()
    run(gated, folder, events=False, checkpoint_every=8, stop=after(6))
    gate.unlink()
    both = [start(folder, *CONTAINER), start(folder, *CONTAINER)]
    while all(one.poll() is None for one in both):  # the other one waits at the gate
        for one in both:
            try:
                one.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
    (refused,) = [one for one in both if one.poll() is not None]
    (other,) = [one for one in both if one.poll() is None]
    assert refused.returncode == 2
    message = refused.communicate()[1]
    # the second: it came before the first had left its name
    named, unnamed = "of another container", "in which another process is writing"
    assert named in message or unnamed in message
    assert message.count("\n") == 1
    gate.touch()
    assert other.wait() == 0, other.communicate()
    other.communicate()
    assert read_summary(folder)["status"] == "finished"
    assert b"\0" not in (folder / "metrics.jsonl").read_bytes()
    assert len(read_summary(folder)["resumed"]) == 1
