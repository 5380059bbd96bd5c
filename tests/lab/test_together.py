"""Several seeds in one process leave the bytes that each leaves alone."""

import io

import pytest

from kalmanac._files.run_reader import read_summary, resumable
from kalmanac._lab.active_run import Outcome
from kalmanac._lab.failure import RunFailedError
from kalmanac._lab.run import resume_together, run, run_together
from kalmanac._sac.progress import Progress
from kalmanac._sac.training import Training
from tests.lab.test_resuming import DISCRETE, after, same_bytes
from tests.lab.tiny import Counts

SEEDS = [DISCRETE.changed({"seed": seed}) for seed in (1, 2, 3)]


class Breaks(Counts):
    """Raises in its twentieth step."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def step(self, action):
        self.calls += 1
        if self.calls == 20:
            raise OSError("the cable is out")
        return super().step(action)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folders = [tmp_path_factory.mktemp("alone") / str(one.seed) for one in SEEDS]
    for one, folder in zip(SEEDS, folders, strict=True):
        run(one, folder, events=False)
    return folders


def test_each_leaves_what_it_leaves_alone(alone, tmp_path):
    shown = io.StringIO()
    folders = [tmp_path / str(one.seed) for one in SEEDS]
    outcomes = run_together(SEEDS, folders, events=False, progress=Progress(120, shown))
    assert outcomes == [Outcome("finished", folder, 120) for folder in folders]
    for one, folder in zip(alone, folders, strict=True):
        same_bytes(one, folder)
    output = shown.getvalue()
    assert all(f"seed {one.seed}, step 120: in " in output for one in SEEDS)


def test_they_are_stopped_and_resumed_together(alone, tmp_path):
    folders = [tmp_path / str(one.seed) for one in SEEDS]
    outcomes = run_together(SEEDS, folders, events=False, checkpoint_every=24, stop=after(30))
    assert {one.status for one in outcomes} == {"interrupted"}
    assert all(resumable(folder) for folder in folders)
    outcomes = resume_together(folders, events=False)
    assert {one.status for one in outcomes} == {"finished"}
    for one, folder in zip(alone, folders, strict=True):
        same_bytes(one, folder)


def test_one_that_fails_leaves_the_others_alone(alone, tmp_path):
    broken = SEEDS[0].changed({"env": "tests.lab.test_together:Breaks", "evaluations": ("in",)})
    folders = [tmp_path / name for name in "abc"]
    outcomes = run_together([SEEDS[0], broken, SEEDS[2]], folders, events=False)
    assert [getattr(one, "status", None) for one in outcomes] == ["finished", None, "finished"]
    assert isinstance(outcomes[1], RunFailedError)
    assert "the cable is out" in str(outcomes[1])
    assert read_summary(folders[1])["status"] == "failed"
    same_bytes(alone[0], folders[0])
    same_bytes(alone[2], folders[2])


def test_each_run_is_ended_as_soon_as_it_is_over(tmp_path):
    """The shorter run is finished, and free, while the longer one goes on."""
    short = SEEDS[0].changed({"total_steps": 48})
    folders = [tmp_path / name for name in "ab"]
    states = []

    def look():
        if (folders[0] / "summary.json").is_file():
            states.append((read_summary(folders[0])["status"], (folders[0] / "lock.json").exists()))
        return False

    outcomes = run_together([short, SEEDS[1]], folders, events=False, stop=look)
    assert [one.status for one in outcomes] == ["finished", "finished"]
    assert states[0] == ("running", True)
    assert states[-1] == ("finished", False)


def test_updates_that_run_out_of_memory_are_told_for_each(tmp_path, monkeypatch):
    def out_of_memory(self):
        raise MemoryError("no room")

    folders = [tmp_path / name for name in "ab"]
    monkeypatch.setattr(Training, "update", out_of_memory)
    outcomes = run_together(SEEDS[:2], folders, events=False)
    assert all(isinstance(one, RunFailedError) for one in outcomes)
    assert all(read_summary(folder)["status"] == "failed" for folder in folders)
    assert not any((folder / "lock.json").exists() for folder in folders)


def test_an_interrupt_leaves_all_of_them_resumable(tmp_path):
    def interrupt():
        raise KeyboardInterrupt

    calls = after(60)
    folders = [tmp_path / name for name in "ab"]
    outcomes = run_together(
        SEEDS[:2], folders, events=False, checkpoint_every=8, stop=lambda: calls() and interrupt()
    )
    assert {one.status for one in outcomes} == {"interrupted"}
    assert all(resumable(folder) for folder in folders)
