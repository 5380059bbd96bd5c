"""Runs on a GPU: killed and resumed they go on, and they hold no more memory late than early."""

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kalmanac._files.run_reader import checkpoint_steps, read_metrics, read_summary, read_timing
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.run import run_together

ROOT = Path(__file__).parents[2]
STEPS, ENVS, STARTS = 4_000, 8, 200
SMALL = (
    f"--steps {STEPS} --num-envs {ENVS} --learning-starts {STARTS} --update-to-data 0.25 "
    "--embedding 4 --encoder-settings d_state=8 --actor-hidden 16 --critic-hidden 16 "
    "--batch-size 8 --context-length 16 --eval-every 2000 --eval-episodes 8 --log-every 200 "
    "--env-settings horizon=50"
)
QUIETLY = "--no-progress --no-tensorboard"
GPU, SLOW = pytest.mark.gpu, pytest.mark.slow
OVERLAP = "--overlap --eval-on-device"


def kalmanac(words: str) -> subprocess.Popen[str]:
    """A process of its own: CUDA does not survive a fork."""
    given = os.environ.get("PYTHONPATH")
    paths = [str(ROOT / "src"), str(ROOT), *([given] if given else [])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "kalmanac", *words.split()]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip


def rows_until(folder: Path, step: int) -> list[dict[str, float]]:
    return [row for row in read_metrics(folder) if row["step"] <= step]


@pytest.mark.parametrize(
    ("device", "how"),
    [
        pytest.param("cuda", "", marks=GPU),
        pytest.param("cuda", OVERLAP, marks=GPU),
        pytest.param("cpu", OVERLAP, marks=SLOW),
    ],
)
def test_killed_and_resumed_two_seeds_go_on_from_their_checkpoints(device, how, tmp_path):
    words = f"train best-arm --encoder vssm+kf --seeds 2 --device {device} {SMALL} {how} {QUIETLY}"
    process = kalmanac(f"{words} --checkpoint-every 1000 --folder {tmp_path}")
    folders = [tmp_path / f"seed{i}" for i in (0, 1)]
    while not all(max(checkpoint_steps(one), default=0) >= 1000 for one in folders):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.005)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    kept = [checkpoint_steps(one)[-1] for one in folders]
    assert all(1000 <= step < STEPS for step in kept)
    before = [rows_until(one, step) for one, step in zip(folders, kept, strict=True)]

    process = kalmanac(f"resume {folders[0]} {folders[1]} --device {device} {QUIETLY}")
    output, _ = process.communicate()
    assert process.returncode == 0, output
    for folder, step, early in zip(folders, kept, before, strict=True):
        assert f"{folder}: from step {step:,} of {STEPS:,}" in output
        summary = read_summary(folder)
        assert summary["resumed"] == [{"step": step, "episodes": "the same"}]
        assert (summary["status"], summary["step"]) == ("finished", STEPS)
        assert summary["updates"] == (STEPS - STARTS) // 4
        rows = read_metrics(folder)
        assert rows[: len(early)] == early
        assert [row["step"] for row in rows] == list(range(200, STEPS + 1, 200))
        first = rows[len(early)]
        assert first["train/updates"] > early[-1]["train/updates"] > 150
        near = first["train/critic_loss"] / early[-1]["train/critic_loss"]
        assert abs(math.log(near)) < math.log(5), "it has not begun anew"


@pytest.mark.gpu
@pytest.mark.parametrize("overlap", [False, True])
def test_memory_does_not_grow_over_thousands_of_updates(overlap, tmp_path):
    experiment = Experiment(
        env="track",
        total_steps=12_000,
        num_envs=8,
        encoder_settings={"d_state": 16},
        actor_hidden=(32,),
        critic_hidden=(32,),
        batch_size=8,
        context_length=16,
        update_to_data=0.5,
        learning_starts=200,
        eval_every=2_000,
        eval_episodes=8,
        log_every=1_000,
        overlap=overlap,
    )
    seeds = [experiment.changed({"seed": seed}) for seed in (0, 1)]
    folders = [tmp_path / str(one.seed) for one in seeds]
    how = {"events": False, "device": "cuda", "checkpoint_every": 2_000}
    assert {one.status for one in run_together(seeds, folders, **how)} == {"finished"}
    for folder in folders:
        assert read_summary(folder)["updates"] == 5_900
        late = [row for row in read_timing(folder) if row["step"] >= 4_000]  # all has happened once
        for name, most in (("time/device_memory_gb", 0.025), ("time/memory_gb", 0.1)):
            held = [row[name] for row in late]
            assert max(held) - held[0] <= most, (name, held)
