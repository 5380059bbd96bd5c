"""The replay on disk: what was in it comes back, and what is not needed goes away."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kalmanac._files.document import BadFileError
from kalmanac._files.run_reader import CHECKPOINTS, checkpoint_file, checkpoint_steps
from kalmanac._lab.checkpointing import CheckpointFolder
from kalmanac._lab.run import run
from kalmanac._observation import Observation
from kalmanac._replay.buffer import Replay
from kalmanac._replay.journal import Changes, books, rebuild
from kalmanac._replay.segments import Chain, Segments
from tests.lab.tiny import TINY
from tests.replay.model import CONTINUOUS, DISCRETE
from tests.replay.test_state import STREAMS, assert_alike, every_capacity, every_kind, feed


def fed(sizes, capacity):
    return Replay(sizes, STREAMS, capacity=capacity), np.zeros(STREAMS, bool)


@every_kind
@every_capacity
def test_a_rebuilt_replay_goes_on_bit_for_bit(sizes, capacity):
    first, opened = fed(sizes, capacity)
    changes, pieces = Changes(first), []
    for seed in range(12):
        feed(first, opened, (3, 40, 0, 1)[seed % 4], seed)
        if seed % 5 == 4:
            first.close()
            opened[:] = False
        pieces.append(changes.take())
        second = Replay(sizes, STREAMS, capacity=capacity)
        rebuild(second, books(first), pieces)
        assert_alike(first, second)
    assert first.steps > 100 or capacity
    for replay in (first, second):
        feed(replay, opened.copy(), 90, seed=99)
    assert_alike(first, second)


@settings(max_examples=25)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.sampled_from([None, 20, 60]))
def test_pieces_of_any_size_make_the_same_replay(cuts, capacity):
    first, opened = fed(DISCRETE, capacity)
    changes, pieces = Changes(first), []
    for seed, steps in enumerate(cuts):
        feed(first, opened, steps, seed)
        pieces.append(changes.take())
    if first.steps:
        second = Replay(DISCRETE, STREAMS, capacity=capacity)
        rebuild(second, books(first), pieces)
        assert_alike(first, second)


def test_an_episode_that_was_forgotten_may_be_in_an_earlier_piece():
    first, opened = fed(DISCRETE, None)
    changes = Changes(first)
    feed(first, opened, 30, 0)
    first.close()
    first.begin(np.arange(STREAMS), Observation(np.ones((STREAMS, 2))))
    pieces = [changes.take()]
    first.close()
    pieces.append(changes.take())
    assert (pieces[0]["stop"] > books(first)["head"].numpy()).all()
    second = Replay(DISCRETE, STREAMS)
    rebuild(second, books(first), pieces)
    assert_alike(first, second)


def test_a_piece_holds_what_is_new_only():
    replay, opened = fed(CONTINUOUS, None)
    changes = Changes(replay)
    sizes = []
    for seed in range(30):
        before = replay.steps
        feed(replay, opened, 10, seed)
        piece = changes.take()
        rows = len(piece["rows"]["reward"])
        assert rows <= 2 * (replay.steps - before) + STREAMS
        sizes.append(rows + piece["slots"].size)
    assert max(sizes[20:]) < 1.5 * max(sizes[:10])


@pytest.mark.parametrize("capacity", [None, 60])
def test_the_last_two_checkpoints_can_be_read(tmp_path, capacity):
    replay, opened = fed(DISCRETE, capacity)
    folder = CheckpointFolder(tmp_path)
    folder._segments.full = 4000
    states = {}
    for step in range(1, 15):
        feed(replay, opened, 20, step)
        folder.write(step, {"step": step}, replay)
        states[step] = replay.state_dict()
        assert checkpoint_steps(tmp_path) == [x for x in (step - 1, step) if x > 0]
        for known in checkpoint_steps(tmp_path):
            reader = CheckpointFolder(tmp_path)
            restored = Replay(DISCRETE, STREAMS, capacity=capacity)
            checkpoint = reader.read(known)
            assert checkpoint.run == {"step": known}
            reader.restore(checkpoint, restored)
            truth = Replay(DISCRETE, STREAMS, capacity=capacity)
            truth.load_state_dict(states[known])
            assert_alike(truth, restored)
    segments = sorted(file.name for file in (tmp_path / CHECKPOINTS).glob("*.segment"))
    if capacity is None:
        assert segments[0] == "replay-000000.segment"
        assert len(segments) > 4
    else:
        assert int(segments[0][7:-8]) > 0
        assert len(segments) < 5


@pytest.mark.parametrize("capacity", [None, 60])
def test_going_on_undoes_what_came_later(tmp_path, capacity):
    replay, opened = fed(DISCRETE, capacity)
    folder = CheckpointFolder(tmp_path)
    folder._segments.full = 3000
    for step in range(1, 9):
        feed(replay, opened, 20, step)
        folder.write(step, {}, replay)
        if step == 7:
            then = opened.copy()
    for _ in range(3):
        again, restored = CheckpointFolder(tmp_path), Replay(DISCRETE, STREAMS, capacity=capacity)
        again._segments.full = 3000
        checkpoint = again.read(7)
        again.restore(checkpoint, restored)
        again.go_on(checkpoint, restored)
        assert checkpoint_steps(tmp_path)[-1] == 7
        feed(restored, then.copy(), 20, 8)
        again.write(8, {}, restored)
        assert_alike(replay, restored)
    last, restored = CheckpointFolder(tmp_path), Replay(DISCRETE, STREAMS, capacity=capacity)
    last.restore(last.read(8), restored)
    assert_alike(replay, restored)


def records(tmp_path):
    segments = Segments(tmp_path, full=300)
    tail = np.zeros(2, np.int64)
    for number in range(6):
        piece = {"stop": np.full(2, number + 1), "x": torch.full((20,), float(number))}
        segments.append(piece, tail)
    return segments.chain


def test_records_come_back_in_order_up_to_the_end_of_a_chain(tmp_path):
    chain = records(tmp_path)
    assert chain.last > 1
    pieces = [piece["x"][0].item() for piece in Segments(tmp_path, chain).read()]
    assert pieces == [0, 1, 2, 3, 4, 5]
    with (tmp_path / f"replay-{chain.last:06d}.segment").open("ab") as file:
        file.write(b"what a crash left")
    assert len(list(Segments(tmp_path, chain).read())) == 6


def test_damage_in_any_segment_breaks_the_chain(tmp_path):
    chain, rng = records(tmp_path), np.random.default_rng(0)
    for file in sorted(tmp_path.glob("*.segment")):
        whole = file.read_bytes()
        for bad in (
            b"", whole[:-1], whole[:20], whole + whole, *(flipped(whole, rng) for _ in range(20))
        ):  # fmt: skip
            file.write_bytes(bad)
            if chain.last == int(file.stem[7:]) and bad[: chain.length] == whole:
                continue
            with pytest.raises(BadFileError, match=r"path: got .*replay-00000\d\.segment"):
                list(Segments(tmp_path, chain).read())
        file.write_bytes(whole)
    (tmp_path / "replay-000001.segment").unlink()
    with pytest.raises(BadFileError, match="chain of its records is broken"):
        list(Segments(tmp_path, chain).read())


def test_a_segment_of_another_run_does_not_fit(tmp_path):
    chain = records(tmp_path)
    other = Segments(tmp_path / "other")
    other.folder.mkdir()
    theirs = other.append({"stop": np.zeros(2, np.int64)}, np.zeros(2, np.int64))
    other.file(0).replace(tmp_path / "replay-000000.segment")
    with pytest.raises(BadFileError, match="chain of its records is broken"):
        list(Segments(tmp_path, chain).read())
    assert len(list(Segments(tmp_path, Chain(0, 0, theirs.length, theirs.digest)).read())) == 1


def test_a_step_without_a_checkpoint_is_refused(tmp_path):
    replay, _ = fed(DISCRETE, None)
    CheckpointFolder(tmp_path).write(3, {}, replay)
    with pytest.raises(BadFileError, match=r"step: got 4, expected one with a checkpoint \(3\)"):
        CheckpointFolder(tmp_path).read(4)
    assert checkpoint_file(tmp_path, 3).is_file()


def flipped(content, rng):
    bad = bytearray(content)
    bad[rng.integers(len(bad))] ^= 1 << rng.integers(8)
    return bytes(bad)


def test_the_logger_s_state_has_the_key_of_older_checkpoints(tmp_path):
    run(TINY, tmp_path, events=False)
    (step,) = checkpoint_steps(tmp_path)
    assert CheckpointFolder(tmp_path).read(step).run["callbacks"].keys() == {"Recorder"}


@pytest.mark.gpu
@every_capacity
def test_a_replay_on_the_gpu_comes_back(tmp_path, capacity):
    replay, opened = Replay(DISCRETE, STREAMS, capacity=capacity, device="cuda"), np.zeros(5, bool)
    folder = CheckpointFolder(tmp_path)
    for step in range(1, 6):
        feed(replay, opened, 40, step)
        folder.write(step, {}, replay)
    restored = Replay(DISCRETE, STREAMS, capacity=capacity, device="cuda")
    folder.restore(folder.read(5), restored)
    assert_alike(replay, restored)
