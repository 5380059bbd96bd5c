"""Whole sweeps in processes of this machine: what fails, crashes or is stopped, and what is not."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from kalmanac._cli.status import states
from kalmanac._files.lock import FolderLock
from kalmanac._files.run_reader import LOCK, MODELS, read_summary, read_timing
from kalmanac._sweep.record import Record
from tests.lab.tiny import TINY
from tests.sweep.halting import two_runs
from tests.sweep.small import FAILING, FLAGS, metrics, planned, sweep_small

ROOT = Path(__file__).parents[2]
LONG = dataclasses.replace(TINY, total_steps=2_000, eval_every=1_000, log_every=50)


def of(root):
    """Status of every planned run, and its error."""
    record = Record(root)
    runs = states(record.planned(), record.failures(), now=time.time())
    return [(state.status, state.error) for state in runs]


def stamps(plan):
    """When each run was begun, and when its model was last written."""
    return [
        [(one.folder / file).stat().st_mtime_ns for file in ("experiment.json", "last.safetensors")]
        for one in plan
    ]


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.05)


def writer(folder):
    with suppress(FileNotFoundError):
        owner = FolderLock(folder / LOCK).owner()
        return None if owner is None else owner.pid
    return None


@pytest.mark.slow
def test_failures_are_recorded_the_others_finish_and_nothing_is_repeated(tmp_path, capsys):
    sound = [dataclasses.replace(TINY, seed=seed) for seed in range(3)]
    plan = planned(tmp_path, sound[0], FAILING, *sound[1:])
    assert sweep_small(plan, tmp_path) == 1
    output = capsys.readouterr().out
    assert "3 of 4 runs are done; 1 failed" in output
    statuses = of(tmp_path)
    assert [status for status, _ in statuses] == ["finished", "failed", "finished", "finished"]
    assert "the motor burnt out" in statuses[1][1]
    (failure,) = Record(tmp_path).failures().values()
    assert "ZeroDivisionError" in failure.details
    before = stamps([plan[0], *plan[2:]])
    assert sweep_small(plan, tmp_path) == 1  # only the failed one is tried again
    assert stamps([plan[0], *plan[2:]]) == before
    assert capsys.readouterr().out.count(" failed after ") == 1
    assert len(read_summary(plan[1].folder)["resumed"]) == 1


@pytest.mark.slow
def test_a_worker_that_is_killed_takes_one_run_with_it_which_goes_on_later(tmp_path, capsys):
    plan = planned(tmp_path / "a", LONG, *(dataclasses.replace(TINY, seed=i) for i in range(3)))
    calm = planned(tmp_path / "b", LONG)

    def kill_the_first(done=[]):  # noqa: B006 (once)
        if not done and len(read_timing(plan[0].folder)) > 4:
            done.append(os.kill(writer(plan[0].folder), signal.SIGKILL))

    with watching(kill_the_first):
        assert sweep_small(plan, tmp_path / "a", checkpoint_every=200) == 1
    (error,) = [error for status, error in of(tmp_path / "a") if status == "failed"]
    assert error == "the worker process was killed by SIGKILL; see .sweep/worker-1.txt"
    assert [one.done for one in plan] == [False, True, True, True]
    before = stamps(plan[1:])
    assert sweep_small(plan, tmp_path / "a") == 0
    assert stamps(plan[1:]) == before
    assert len(read_summary(plan[0].folder)["resumed"]) == 1
    assert sweep_small(calm, tmp_path / "b", jobs=1) == 0
    assert metrics(plan[:1]) == metrics(calm)


class watching:
    """Calls something now and then, in a thread of its own."""

    def __init__(self, look):
        import threading

        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run, args=(look,))

    def run(self, look):
        while not self.over.wait(0.02):
            look()

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


@pytest.mark.slow
def test_ctrl_c_leaves_checkpoints_and_the_same_call_does_the_rest(tmp_path):
    words = [
        "sweep", "latent-rollouts", *FLAGS, "--folder", str(tmp_path), "--jobs=2", "--threads=1",
        "--device=cpu", "--total-steps=2000", "--eval-every=1000", "--seeds=2",
    ]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}

    def call():
        return subprocess.Popen(
            [sys.executable, "-m", "kalmanac", *words], env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    process = call()
    until(lambda: len(list(tmp_path.glob("best-arm/*/timing.jsonl"))) == 2)
    until(lambda: all(file.stat().st_size for file in tmp_path.glob("best-arm/*/timing.jsonl")))
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: all processes hear it
    output, complaint = process.communicate(timeout=60)
    assert process.returncode == 130, complaint
    assert complaint.count("stops after this step with a checkpoint") == 1
    assert "0 of 4 runs are done; the same call goes on" in output
    statuses = [status for status, _ in of(tmp_path)]
    assert sorted(statuses) == ["interrupted", "interrupted", "waiting", "waiting"]
    assert not list((tmp_path / ".sweep").glob("stop-*"))
    process = call()
    output, complaint = process.communicate(timeout=120)
    assert process.returncode == 0, complaint
    assert [status for status, _ in of(tmp_path)] == ["finished"] * 4
    resumed = [read_summary(path.parent).get("resumed", [])
               for path in tmp_path.glob("best-arm/*/summary.json")]  # fmt: skip
    assert sorted(map(len, resumed)) == [0, 0, 1, 1]
    assert all(one["step"] > 0 for some in resumed for one in some)


@pytest.mark.slow
def test_workers_stop_when_the_one_that_drives_them_is_killed(tmp_path):
    words = ["sweep", "latent-rollouts", *FLAGS, "--folder", str(tmp_path), "--jobs=1",
             "--device=cpu", "--agents=vssm+kf", "--total-steps=100000"]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    process = subprocess.Popen([sys.executable, "-m", "kalmanac", *words], env=environment,
                               stdout=subprocess.DEVNULL)  # fmt: skip
    until(lambda: list(tmp_path.glob("best-arm/*/timing.jsonl")))
    (folder,) = [path.parent for path in tmp_path.glob("best-arm/*/timing.jsonl")]
    until(lambda: read_timing(folder))
    worker = writer(folder)
    process.kill()
    process.wait()
    until(lambda: read_summary(folder)["status"] == "interrupted", 30)
    until(lambda: not Path(f"/proc/{worker}").exists(), 30)


@pytest.mark.slow
def test_a_sweep_that_is_killed_twenty_times_ends_the_same(tmp_path):
    """All its processes at once, while both runs wait in a step that a generator chose."""
    halt, rng = tmp_path / "halt", np.random.default_rng(0)
    halt.mkdir()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}

    def start(root):
        return subprocess.Popen(
            [sys.executable, "-m", "tests.sweep.halting", str(root), str(halt)], cwd=ROOT,
            env=environment, stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    calm, stopped = tmp_path / "calm", tmp_path / "stopped"
    assert start(calm).wait() == 0
    for _ in range(20):
        (halt / "at").write_text(str(rng.integers(1, 13)))
        sweep = start(stopped)
        while len(list(halt.glob("halted-*"))) < 2:
            assert sweep.poll() is None, "it has ended"
            time.sleep(0.01)
        os.killpg(sweep.pid, signal.SIGKILL)
        sweep.wait()
        for file in halt.iterdir():
            file.unlink()
    assert start(stopped).wait() == 0
    ends = [two_runs(root, halt) for root in (calm, stopped)]
    assert all(one.done for end in ends for one in end)
    assert metrics(ends[0]) == metrics(ends[1])
    for one, other in zip(*ends, strict=True):
        for model in MODELS.values():
            assert (one.folder / model).read_bytes() == (other.folder / model).read_bytes()
    resumed = [len(read_summary(one.folder)["resumed"]) for one in ends[1]]
    assert min(resumed) > 5, "they were stopped on their way"
