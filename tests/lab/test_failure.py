"""What goes wrong outside stops a run in one line that says what, where, and how to go on."""

import io
import os
import resource
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch
from gymnasium.vector import AsyncVectorEnv

from kalmanac._cli.program import main
from kalmanac._files.run_reader import FAILURE, LOCK, checkpoint_steps, read_summary, resumable
from kalmanac._lab.active_run import StopSignals
from kalmanac._lab.checkpointing import CheckpointFolder
from kalmanac._lab.failure import RunFailedError
from kalmanac._lab.run import resume, run
from kalmanac._sac.environment_failure import EnvironmentFailedError
from kalmanac._sac.progress import Progress
from kalmanac._sac.recurrent_sac import RecurrentSAC
from tests.files.test_lock import HOLD
from tests.lab.failing import workers
from tests.lab.test_resuming import after, same_bytes
from tests.lab.tiny import TINY

FAILING = TINY.changed(
    {"env": "tests.lab.failing:Failing", "evaluations": ("in",), "eval_every": 1000}
)


def failed(experiment, folder, **how):
    with pytest.raises(RunFailedError) as caught:
        run(experiment, folder, events=False, checkpoint_every=20, **how)
    assert "\n" not in str(caught.value)
    assert not (folder / LOCK).exists()
    return str(caught.value)


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("raise", "the environment raised ZeroDivisionError: the motor burnt out"),
        ("nan", "the environment gave a wrong observation: got nan in stream 0, expected finite"),
        ("inf", "the environment gave a wrong reward: got inf in stream 0, expected finite"),
        ("shape", "the environment gave a wrong observation: got shape (4, 2), expected ('n', 1)"),
        ("memory", "the environment raised MemoryError: Unable to allocate"),
    ],
)
def test_an_environment_that_fails_is_named_with_the_step_and_the_last_checkpoint(
    how, cause, tmp_path
):
    folder = tmp_path / "run"
    message = failed(FAILING.changed({"env_settings": {"how": how}}), folder)
    assert message.startswith(f"stopped at step 44: {cause}")
    assert message.endswith(
        f"; the last good checkpoint is step 40; `kalmanac resume {folder}` goes on from it"
    )
    assert read_summary(folder)["status"] == "failed"
    assert checkpoint_steps(folder) == [20, 40]
    assert resumable(folder) == 40


@pytest.mark.parametrize("progress", ["", "--no-progress"])
def test_the_verb_says_it_in_one_line(progress, tmp_path, capsys):
    words = "train tests.lab.failing:Failing --encoder memoryless --device cpu --steps 96"
    words += f" --no-tensorboard --folder {tmp_path / 'run'} {progress}"
    assert main(words.split()) == 1
    message = capsys.readouterr().err
    assert message.startswith("kalmanac train: ")
    assert "the environment raised ZeroDivisionError: the motor burnt out" in message
    assert message.count("\n") == 1


def test_a_run_whose_environment_was_repaired_goes_on(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    failed(FAILING, folder)
    monkeypatch.setattr("tests.lab.failing.Failing.step", lambda env, action: env.good(action))
    monkeypatch.setattr(
        "tests.lab.failing.Failing.good", lambda env, a: super(type(env), env).step(a),
        raising=False,
    )  # fmt: skip
    lines = io.StringIO()
    assert resume(folder, events=False, progress=Progress(96, lines)).status == "finished"
    assert "the episodes under way end as truncated, and new ones begin" in lines.getvalue()
    assert read_summary(folder)["resumed"] == [{"step": 40, "episodes": "new"}]
    assert not (folder / FAILURE).exists()


@pytest.mark.filterwarnings("ignore")  # Gymnasium tells of what it closes
def test_a_worker_that_hangs_is_named_and_ended(tmp_path):
    hanging = FAILING.changed(
        {"env": "tests.lab.failing:workers", "env_settings": {"how": "hang"}, "num_envs": 2}
    )
    line = failed(hanging, tmp_path / "run")
    assert "stopped at step 22: the environment gave no answer: The call to `step_wait` has" in line
    assert "timed out after 0.5 second(s)" in line
    assert "the last good checkpoint is step 20" in line


@pytest.mark.filterwarnings("ignore")
def test_ctrl_c_twice_gets_out_of_a_worker_that_hangs(tmp_path, monkeypatch):
    stop, presses = StopSignals(), []

    def press_twice():
        for heard in (lambda: stop.number is not None, lambda: True):
            os.kill(os.getpid(), signal.SIGINT)
            while not heard():
                time.sleep(0.01)

    def step(env, actions):  # without a limit of time; where it hangs, somebody gets impatient
        env.taken = getattr(env, "taken", 0) + 1
        if env.taken == 12:
            presses.append(threading.Thread(target=press_twice))
            presses[-1].start()
        return AsyncVectorEnv.step(env, actions)

    monkeypatch.setattr("tests.lab.failing.Impatient.step", step)
    hanging = FAILING.changed(
        {"env": "tests.lab.failing:workers", "env_settings": {"how": "hang"}, "num_envs": 2}
    )
    with stop:
        outcome = run(hanging, tmp_path / "run", events=False, checkpoint_every=20, stop=stop)
    assert len(presses) == 1
    assert (outcome.status, outcome.step) == ("interrupted", 22)
    assert resumable(tmp_path / "run") == 20


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("how", "cause"), [("hang", "no answer"), ("raise", "raised ZeroDivisionError: the motor")]
)
def test_workers_that_fail_in_a_library_s_training_are_named(how, cause):
    env = workers(2, how=how, at=3)
    model = RecurrentSAC("memoryless", env, device="cpu")
    with pytest.raises(EnvironmentFailedError, match=cause):
        model.learn(100)
    assert model.num_timesteps == 4
    env.close(terminate=True)


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_memory_that_runs_out_is_named(kind, tmp_path, monkeypatch):
    def hungry(self, model):
        if model.num_timesteps > 40:
            torch.empty(2**50) if kind == "torch" else np.empty(2**50)

    monkeypatch.setattr(Progress, "on_step", hungry)
    message = failed(TINY, tmp_path / "run", progress=Progress(96, io.StringIO()))
    assert message.startswith("stopped at step 44: out of memory (")
    assert "the last good checkpoint is step 40" in message


def test_losses_that_are_no_numbers_leave_the_last_good_checkpoint(tmp_path, capsys):
    folder = tmp_path / "run"
    words = "train best-arm --encoder memoryless --steps 200 --num-envs 4 --learning-starts 40"
    words += " --batch-size 4 --context-length 4 --env-settings horizon=5 --ent-coef 0.1"
    words += " --learning-rate 1e38 --checkpoint-every 20 --no-progress --no-tensorboard"
    assert main([*words.split(), "--device", "cpu", "--folder", str(folder)]) == 1
    *_, status, on = capsys.readouterr().out.splitlines()
    assert "losses or weights are not finite any more" in status
    assert on.startswith(f"the last good checkpoint is step {resumable(folder)}; ")
    state = CheckpointFolder(folder).read(resumable(folder)).run["model"]["learner"]
    for name, x in state.items():
        assert name == "log_alpha" or not x.is_floating_point() or x.isfinite().all(), name


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 160 kB, and a function to remount it."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(options, *what):
        return subprocess.run(
            ["mount", "-o", options, *what, str(place)], capture_output=True, check=False
        ).returncode == 0  # fmt: skip

    if not mount("size=160k", "-t", "tmpfs", "tmpfs"):
        pytest.skip("no file system can be mounted here")
    yield place, mount
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_is_named_and_with_more_space_the_run_ends_the_same(small_disk, tmp_path):
    place, mount = small_disk
    folder = place / "run"
    message = failed(TINY, folder)
    assert ": the disk is full" in message
    assert "No space left on device; the last good checkpoint is step " in message
    assert resumable(folder) > 0
    assert mount("remount,size=8m")
    assert resume(folder, events=False).status == "finished"
    run(TINY, tmp_path / "truth", events=False)
    same_bytes(tmp_path / "truth", folder)


def test_a_file_that_may_not_grow_is_a_full_disk(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, limits[1]))
    try:
        message = failed(TINY.changed({"total_steps": 4_000}), tmp_path / "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert ": the disk is full" in message


def test_a_folder_that_may_not_be_written_to_is_named(small_disk, tmp_path, capsys):
    place, mount = small_disk
    run(TINY, place / "run", events=False, checkpoint_every=1000, stop=after(2))
    assert mount("remount,ro")
    message = failed(TINY, place / "other")
    assert message.startswith("stopped at step 0: the folder may not be written to")
    assert main(["resume", str(place / "run")]) == 1
    assert "the folder may not be written to" in capsys.readouterr().err


def test_a_folder_that_another_process_writes_in_is_refused(tmp_path, capsys):
    folder = tmp_path / "run"
    run(TINY, folder, events=False, stop=after(2))
    before = {path: path.read_bytes() for path in folder.glob("**/*") if path.is_file()}
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder / LOCK)], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:  # fmt: skip
        assert other.stdout.readline() == b"taken\n"
        assert main(["resume", str(folder)]) == 2
        output = capsys.readouterr()
        assert f"in which process {other.pid} is writing" in output.err
        assert (output.err.count("\n"), output.out) == (1, "")
        with pytest.raises(ValueError, match=f"in which process {other.pid} is writing"):
            run(TINY, folder, overwrite=True, events=False)
        other.kill()
    (folder / LOCK).rename(tmp_path / "left")
    assert {path: path.read_bytes() for path in folder.glob("**/*") if path.is_file()} == before
    (tmp_path / "left").rename(folder / LOCK)
    assert resume(folder, events=False).status == "finished", "a stale lock is taken over"
