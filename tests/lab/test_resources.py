"""A run that does not fit says so before it starts, and with what it would."""

import re

import numpy as np
import pytest
import torch

from kalmanac._cli.program import main
from kalmanac._files.run_reader import read_timing
from kalmanac._lab import resources as memory_module
from kalmanac._lab import resources as module
from kalmanac._lab.factory import make_model, training_environment
from kalmanac._lab.resources import (
    NoRoomError,
    check_memory,
    free_bytes,
    held_bytes,
    memory_needed,
    update_bytes,
)
from kalmanac._lab.run import run, run_together
from kalmanac._observation import Observation, Sizes
from kalmanac._ops.device import held_on_gpus
from kalmanac._replay.buffer import Replay, bytes_needed
from tests.lab.tiny import TINY

LONG = TINY.changed({"total_steps": 10**6})
PIXELS = LONG.changed(
    {
        "env": "tests.envs.kinds:Everything",
        "env_settings": {},
        "evaluations": ("in",),
        "image_channels": (2,),
        "image_features": 3,
    }
)
CPU = torch.device("cpu")


def learner(experiment):
    return make_model(experiment, training_environment(experiment), "cpu").learner


def proposed(error, flag):
    match = re.search(rf"--{flag} (\d+)", str(error))
    return None if match is None else int(match[1])


@pytest.mark.parametrize("experiment", [LONG, PIXELS], ids=["numbers", "pixels"])
@pytest.mark.parametrize("runs", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_what_is_proposed_fits_and_a_little_more_does_not(experiment, runs):
    agent = learner(experiment)
    need = memory_needed(experiment, agent)
    check_memory(experiment, agent, runs, free=1.06 * runs * need.total)
    free = 0.5 * runs * need.total
    with pytest.raises(NoRoomError, match=r"memory: got a run that needs .* GB.*on cpu") as refusal:
        check_memory(experiment, agent, runs, free=free)
    size, seeds = proposed(refusal.value, "buffer-size"), proposed(refusal.value, "seeds")
    assert size > 10_000
    assert seeds == (None if runs == 1 else 2)
    smaller = experiment.changed({"buffer_size": size})
    check_memory(smaller, agent, runs, free=free)
    with pytest.raises(NoRoomError):
        check_memory(experiment.changed({"buffer_size": int(1.3 * size)}), agent, runs, free=free)
    if seeds:
        check_memory(experiment, agent, seeds, free=free)
        with pytest.raises(NoRoomError):
            check_memory(experiment, agent, seeds + 1, free=free)


def test_images_take_their_room():
    numbers, pixels = (memory_needed(one, learner(one)) for one in (LONG, PIXELS))
    assert pixels.replay > 5 * numbers.replay
    assert pixels.update > numbers.update


def test_where_an_update_does_not_fit_batches_must_be_smaller():
    wide = TINY.changed({"batch_size": 10_000})
    agent, free = learner(wide), 5e6
    with pytest.raises(NoRoomError, match=r"GB on cpu; --batch-size \d+ would fit$") as refusal:
        check_memory(wide, agent, free=free)
    rows = proposed(refusal.value, "batch-size")
    check_memory(wide.changed({"batch_size": rows}), agent, free=free)
    with pytest.raises(NoRoomError):
        check_memory(wide.changed({"batch_size": int(1.2 * rows)}), agent, free=free)
    with pytest.raises(NoRoomError, match=r"; no smaller replay or batch alone would$"):
        check_memory(wide, agent, free=1_000.0)
    endless = TINY.changed({"context_length": 10**12, "env_settings": {"horizon": 10**12}})
    with pytest.raises(NoRoomError, match="got windows of which 4 do not fit on cpu"):
        check_memory(endless, agent)


def test_an_update_needs_what_its_batch_says():
    agent = learner(TINY)
    small, wide = (update_bytes(TINY.changed({"batch_size": n}), agent) for n in (8, 80))
    assert 5 * small < wide < 12 * small


def test_nothing_of_the_learner_changes():
    agent = learner(LONG)
    before = agent.state_dict()
    memory_needed(LONG, agent)
    for name, x in agent.state_dict().items():
        assert torch.equal(x, before[name]), name


@pytest.mark.parametrize("capacity", [None, 600])
@pytest.mark.parametrize("reserved", [False, True])
@pytest.mark.parametrize("images", [(), ((1, 8, 8),)])
def test_a_replay_holds_what_was_foretold(images, capacity, reserved):
    sizes = Sizes(3, 2, False, images=images, observed=True)
    replay, steps = filled(sizes, capacity, reserved, 10**9), 2_000
    expected = bytes_needed(sizes, 4, steps, capacity=capacity, reserved=reserved)
    assert expected == held(replay) + 24 * (capacity or steps)


@pytest.mark.parametrize("length", [1, 2, 20])
def test_what_was_reserved_does_for_short_episodes(length):
    sizes = Sizes(3, 2, False, observed=True)
    replay = filled(sizes, None, True, length)
    assert held(replay) + 24 * 2_000 == bytes_needed(sizes, 4, 2_000, reserved=True)


def held(replay):
    return sum(x.nbytes for x in replay._storage.fields.values())


def filled(sizes, capacity, reserved, length):
    """2,000 steps of four streams, in episodes of this length."""
    replay, steps = Replay(sizes, 4, capacity=capacity), 2_000
    if reserved:
        replay.reserve(steps)
    at = np.arange(4)
    images = np.zeros((4, 64), np.uint8) if sizes.images else None
    shown = Observation(np.zeros((4, 3)), images, observed=at >= 0)
    for step in range(steps // 4):
        if step % length == 0:
            replay.begin(at, shown)
        ends = np.full(4, step % length == length - 1)
        replay.add(at, np.zeros((4, 2)), np.zeros(4), ends, at < 0, shown)
    return replay


def test_no_folder_is_made_for_runs_that_do_not_fit(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "free_bytes", lambda device: 2 * 10**6)
    for start in (
        lambda: run(LONG, tmp_path / "a", events=False),
        lambda: run_together([LONG, LONG.changed({"seed": 1})], [tmp_path / "b", tmp_path / "c"]),
    ):
        with pytest.raises(NoRoomError, match="--buffer-size"):
            start()
    assert not list(tmp_path.iterdir())


def test_the_command_says_it_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "free_bytes", lambda device: 400 * 10**6)
    words = f"train best-arm --steps 9000000 --seeds 3 --device cpu --folder {tmp_path / 'a'}"
    assert main(words.split()) == 2
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("kalmanac train: memory: got a run that needs")
    assert "for each of 3 seeds" in printed.err
    assert not (tmp_path / "a").exists()


def test_memory_is_what_is_held_now():
    before = held_bytes()
    block = np.ones(40_000_000)
    assert 0.3e9 < held_bytes() - before < 0.4e9
    del block
    assert held_bytes() - before < 0.1e9


def test_a_container_s_limit_counts(tmp_path, monkeypatch):
    assert free_bytes(CPU) > 10**8
    monkeypatch.setattr(memory_module, "CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("2000\n")
    (tmp_path / "memory.stat").write_text("anon 1200\ninactive_file 500\nslab_reclaimable 100\n")
    assert free_bytes(CPU) == 3600
    (tmp_path / "memory.max").write_text("max\n")
    assert free_bytes(CPU) > 10**8
    monkeypatch.setattr(memory_module, "PROC", tmp_path)
    assert free_bytes(CPU) is None
    assert held_bytes() > 10**7


@pytest.mark.gpu
def test_on_a_gpu_what_was_foretold_is_what_is_taken(tmp_path):
    changes = {"total_steps": 40_000, "batch_size": 256, "eval_every": 40_000, "log_every": 10_000}
    experiment = TINY.changed(changes | {"encoder": "vssm+kf", "context_length": 64})
    agent = make_model(experiment, training_environment(experiment), "cuda").learner
    expected = memory_needed(experiment, agent).total
    before = held_on_gpus()
    run(experiment, tmp_path / "a", events=False, device="cuda")
    measured = held_on_gpus() - before
    assert measured < 1.5 * expected
    assert expected < 3 * measured + 256e6
    assert read_timing(tmp_path / "a")[-1]["time/device_memory_gb"] < 4
    with pytest.raises(NoRoomError, match="on cuda"):
        check_memory(experiment, agent, free=expected / 2)
