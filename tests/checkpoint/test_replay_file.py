"""A replay in a file of its own: the same comes back, in any number of pieces, or one error."""

import numpy as np
import pytest
import torch

from kalmanac.checkpoint import BadFileError, read_replay, replay_file, write_replay
from kalmanac.replay import Replay, Sizes

SIZES = Sizes(2, 3, True, privileged=1, observed=True, images=((1, 8, 8),), action_mask=True)


def filled(steps, capacity=None):
    """Episodes of three streams, of lengths 1 … 5, with everything that a step can have."""
    replay, rng, at = Replay(SIZES, 3, capacity=capacity), np.random.default_rng(0), np.arange(3)

    def token(k):
        return {
            "observation": rng.standard_normal((k, 2)), "privileged": rng.random((k, 1)),
            "observed": rng.random(k) < 0.7, "action_mask": np.ones((k, 3), bool),
            "pixels": rng.integers(255, size=(k, 64), dtype=np.uint8),
        }  # fmt: skip

    replay.begin(at, **token(3))
    for _ in range(steps):
        ends, cut = rng.random((2, 3)) < 0.15
        replay.add(at, rng.integers(3, size=3), rng.random(3), ends, cut, **token(3))
        over = np.flatnonzero(ends | cut)
        replay.begin(over, **token(over.size))
    return replay


def same(one, other):
    drawn = [x.sample(32, 6, generator=torch.Generator().manual_seed(1)) for x in (one, other)]
    return all(torch.equal(a, b) for a, b in zip(*drawn, strict=True) if a is not None)


@pytest.mark.parametrize("capacity", [None, 30])
@pytest.mark.parametrize("size", [1, 1500, 10**6])
def test_a_replay_comes_back_and_goes_on(capacity, size, tmp_path, monkeypatch):
    monkeypatch.setattr(replay_file, "PIECE", size)
    replay = filled(40, capacity)
    write_replay(tmp_path / "r", replay, {"what": [1, None]})
    kept = read_replay(tmp_path / "r")
    assert (kept.about, kept.streams, kept.capacity) == ({"what": [1, None]}, 3, capacity)
    again = Replay(SIZES, 3, capacity=capacity)
    kept.restore(again)
    assert same(replay, again)
    for one in (replay, again):
        one.close()
        one.begin([0], np.zeros((1, 2)), np.zeros((1, 1)), np.ones(1, bool),
                  np.zeros((1, 64), np.uint8), np.ones((1, 3), bool))  # fmt: skip
    assert same(replay, again)
    assert [file.name for file in tmp_path.iterdir()] == ["r"]


def test_an_empty_replay_is_a_file_too(tmp_path):
    write_replay(tmp_path / "r", Replay(SIZES, 3), {})
    again = Replay(SIZES, 3)
    read_replay(tmp_path / "r").restore(again)
    assert again.steps == 0


def test_records_that_are_whole_but_not_in_their_place_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(replay_file, "PIECE", 1500)
    replay = filled(40)
    parts = list(replay_file._content(replay, {}))
    line, *records = parts
    pairs = [records[i : i + 2] for i in range(0, len(records), 2)]
    assert len(pairs) > 4
    for wrong in (pairs[:-1], pairs[:2] + pairs[3:], [*pairs, pairs[-1]], [pairs[0], *pairs]):
        (tmp_path / "r").write_bytes(b"".join([line, *(part for pair in wrong for part in pair)]))
        kept = read_replay(tmp_path / "r")
        with pytest.raises(BadFileError, match=r"which is (damaged|malformed)"):
            kept.restore(Replay(SIZES, 3))


def test_episodes_that_lie_outside_of_their_streams_are_refused(tmp_path):
    replay = filled(20)
    replay._episodes._table[1, 0] += 1000
    write_replay(tmp_path / "r", replay, {})
    with pytest.raises(BadFileError, match=r"malformed.*hold other steps than its books"):
        read_replay(tmp_path / "r").restore(Replay(SIZES, 3))
