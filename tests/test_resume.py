"""`kalmanac resume`: whatever stops a run, and however often, its end is the same."""

import os
import signal
import time

import numpy as np
import pytest

from kalmanac.runlog import checkpoint_steps, read_summary, resumable
from tests.experiment.starter import Starter

TINY = (
    "--embedding 4 --encoder-settings d_state=4 --actor-hidden 8 --critic-hidden 8 --batch-size 4 "
    "--context-length 4 --update-to-data 0.25 --learning-starts 16 --eval-every 100 "
    "--eval-episodes 2 --log-every 24 --num-envs 2"
)
TASKS = {
    "discrete": "best-arm --env-settings horizon=5 --evaluations in",
    "continuous": "tests.experiment.drifting:Drifting",
}
HOW = "--device cpu --no-progress --no-tensorboard"
SLOW_CALLS = ("fsync", "replace", "fsync")


@pytest.fixture(scope="module")
def starter():
    starter = Starter()
    yield starter
    starter.close()


class Run:
    """A run of the command line that is stopped again and again."""

    def __init__(self, starter, folder, task, encoder, steps):
        self.starter, self.folder = starter, folder
        self.words = f"{TASKS[task]} --encoder {encoder} --steps {steps} {TINY} {HOW}"
        self.stops = 0

    def whole(self):
        """Never stopped, in a folder of its own."""
        folder = self.folder.with_name("whole")
        words = f"train {self.words} --folder {folder} --checkpoint-every 1000000"
        assert self.starter.wait(self.starter.start(words, self.folder.with_name("log"))) == 0
        return folder

    def start(self, slow=None):
        """Go on where something is to go on from, else start, as a user would."""
        verb = f"resume {self.folder}"
        if resumable(self.folder) is None:
            verb = f"train {self.words.removesuffix(HOW)} --folder {self.folder} --overwrite"
        words = f"{verb} {HOW} --checkpoint-every 4"
        return self.starter.start(words, self.folder.with_name("log"), slow)

    def stop(self, number, which, rng, *, slow=None):
        """A signal at a random moment, of which some are inside a slow call of a checkpoint."""
        steps = checkpoint_steps(self.folder)
        newest, further = steps[-1] if steps else -1, int(rng.integers(3))
        while max(checkpoint_steps(self.folder), default=-1) < newest + 4 * further:
            time.sleep(0.002)
        if slow is not None:
            while not slow.exists():
                time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.2))
        os.kill(number, which)
        self.stops += 1
        return self.starter.wait(number)


def check(starter, tmp_path, task, encoder, *, steps, signals, seed=0):
    run, rng = Run(starter, tmp_path / "run", task, encoder, steps), np.random.default_rng(seed)
    whole = run.whole()
    for i, which in enumerate(signals):
        marker = tmp_path / f"marker{i}"
        slow = [SLOW_CALLS[i % 3], str(marker)] if i % 4 == 3 else None
        number = run.start(slow)
        status = run.stop(number, which, rng, slow=marker if slow else None)
        log = (tmp_path / "log").read_text()
        assert status == (-9 if which == signal.SIGKILL else 128 + which), log
    assert starter.wait(run.start()) == 0, (tmp_path / "log").read_text()
    for name in ("metrics.jsonl", "last.safetensors", "best.safetensors"):
        assert (run.folder / name).read_bytes() == (whole / name).read_bytes(), name
    assert read_summary(run.folder)["status"] == "finished"
    assert not list(run.folder.glob("**/*.partial"))
    assert run.stops == len(signals)


KILL, TERM, CTRL_C = signal.SIGKILL, signal.SIGTERM, signal.SIGINT
EVERY = [("vssm+kf", "discrete"), ("vssm+kf", "continuous"), ("gru", "discrete"),
         ("gru", "continuous")]  # fmt: skip


def test_killed_three_times_a_run_ends_the_same(starter, tmp_path):
    check(starter, tmp_path, "continuous", "vssm+kf", steps=64, signals=[KILL] * 3 + [KILL])


def test_ctrl_c_and_sigterm_leave_a_run_that_ends_the_same(starter, tmp_path):
    check(starter, tmp_path, "discrete", "gru", steps=64, signals=[CTRL_C, TERM])


@pytest.mark.slow
@pytest.mark.parametrize(("encoder", "task"), EVERY)
def test_killed_twenty_times_a_run_ends_the_same(starter, tmp_path, encoder, task):
    check(starter, tmp_path, task, encoder, steps=400, signals=[KILL] * 20)


@pytest.mark.slow
@pytest.mark.parametrize(("encoder", "task"), EVERY)
def test_stopped_six_times_a_run_ends_the_same(starter, tmp_path, encoder, task):
    check(starter, tmp_path, task, encoder, steps=200, signals=[CTRL_C, TERM] * 3)
