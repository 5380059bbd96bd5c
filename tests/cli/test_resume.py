"""`kalmanac resume`: whatever stops a run, and however often, its end is the same."""

import os
import signal

import numpy as np
import pytest

from kalmanac._files.run_reader import read_summary, resumable
from tests.lab.starter import Starter

TINY = (
    "--embedding 4 --encoder-settings d_state=4 --actor-hidden 8 --critic-hidden 8 --batch-size 4 "
    "--context-length 4 --update-to-data 0.25 --learning-starts 16 --eval-every 100 "
    "--eval-episodes 2 --log-every 24 --num-envs 2"
)
TASKS = {
    "discrete": "best-arm --env-settings horizon=5 --evaluations in",
    "continuous": "tests.lab.drifting:Drifting",
}
HOW = "--device cpu --no-progress --no-tensorboard"
# where a run is held, and the latest of its events that is chosen: some steps on, at the most
EVENTS = {
    "step": 6, "update": 3, "fsync before": 8, "fsync after": 8, "replace before": 3,
    "replace after": 3,
}  # fmt: skip


@pytest.fixture(scope="module")
def starter():
    starter = Starter()
    yield starter
    starter.close()


class Runs:
    """Runs of the command line, of one seed or several at once, that are stopped at every turn."""

    def __init__(self, starter, folder, task, encoder, steps, seeds=1):
        self.starter, self.folder = starter, folder
        self.words = f"{TASKS[task]} --encoder {encoder} --steps {steps} {TINY} {HOW}"
        self.seeds, self.stops = seeds, 0

    def folders(self, root):
        return [root / f"seed{seed}" for seed in range(self.seeds)] if self.seeds > 1 else [root]

    def whole(self):
        """Never stopped, in a folder of its own."""
        folder = self.folder.with_name("whole")
        words = f"train {self.words} --folder {folder} --checkpoint-every 1000000"
        words += f" --seeds {self.seeds}"
        assert self.starter.wait(self.starter.start(words, self.log)) == 0, self.log.read_text()
        return self.folders(folder)

    @property
    def log(self):
        return self.folder.with_name("log")

    def start(self, hold=None):
        """Go on where something is to go on from, else start, as a user would."""
        mine = self.folders(self.folder)
        left = [one for one in mine if read_summary(one).get("status") != "finished"]
        stopped = [one for one in left if resumable(one) is not None]
        train = f"train {self.words.removesuffix(HOW)} --overwrite"
        if stopped:
            verb = f"resume {' '.join(map(str, stopped))}"
        elif len(left) == len(mine):
            verb = f"{train} --folder {self.folder} --seeds {self.seeds}"
        else:  # killed before the second one had anything to go on from
            verb = f"{train} --folder {left[0]} --seed {mine.index(left[0])}"
        return self.starter.start(f"{verb} {HOW} --checkpoint-every 4", self.log, hold)

    def stop(self, which, rng):
        """A signal at an event that the generator chooses; returns the status that it led to."""
        event = str(rng.choice(list(EVENTS)))
        marker, go = (self.folder.with_name(f"{name}{self.stops}") for name in ("marker", "go"))
        number = self.start([event, int(rng.integers(1, EVENTS[event] + 1)), str(marker), str(go)])
        self.starter.until(number, marker)
        os.kill(number, which)
        go.touch()
        self.stops += 1
        return self.starter.wait(number)


def check(starter, tmp_path, task, encoder, *, steps, signals, seed=0, seeds=1):
    runs = Runs(starter, tmp_path / "run", task, encoder, steps, seeds)
    rng, whole = np.random.default_rng(seed), runs.whole()
    for which in signals:
        status = runs.stop(which, rng)
        assert status == (-9 if which == signal.SIGKILL else 128 + which), runs.log.read_text()
    while any(read_summary(one).get("status") != "finished" for one in runs.folders(runs.folder)):
        assert starter.wait(runs.start()) == 0, runs.log.read_text()
    for one, truth in zip(runs.folders(runs.folder), whole, strict=True):
        for name in ("metrics.jsonl", "last.safetensors", "best.safetensors"):
            assert (one / name).read_bytes() == (truth / name).read_bytes(), name
        assert not list(one.glob("**/*.partial"))
        assert not (one / "lock.json").exists()
    assert runs.stops == len(signals)


KILL, TERM, CTRL_C = signal.SIGKILL, signal.SIGTERM, signal.SIGINT
EVERY = [("vssm+kf", "discrete"), ("vssm+kf", "continuous"), ("gru", "discrete"),
         ("gru", "continuous")]  # fmt: skip


def test_killed_and_stopped_a_run_ends_the_same(starter, tmp_path):
    check(starter, tmp_path, "continuous", "vssm+kf", steps=96, signals=[KILL, CTRL_C, TERM])


@pytest.mark.slow
@pytest.mark.parametrize(("encoder", "task"), EVERY)
def test_killed_twenty_times_a_run_ends_the_same(starter, tmp_path, encoder, task):
    check(starter, tmp_path, task, encoder, steps=400, signals=[KILL] * 20)


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_two_seeds_together_killed_twenty_times_end_the_same(starter, tmp_path, task):
    check(starter, tmp_path, task, "vssm+kf", steps=400, signals=[KILL] * 20, seeds=2)


@pytest.mark.slow
@pytest.mark.parametrize(("encoder", "task"), EVERY)
def test_stopped_six_times_a_run_ends_the_same(starter, tmp_path, encoder, task):
    check(starter, tmp_path, task, encoder, steps=200, signals=[CTRL_C, TERM] * 3)
