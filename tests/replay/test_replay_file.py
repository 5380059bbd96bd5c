"""A replay in a file of its own: the same comes back, in any number of pieces, or one error."""

import math

import numpy as np
import pytest
import torch

from kalmanac._files.document import BadFileError, digest_of, encode
from kalmanac._observation import Observation, Sizes
from kalmanac._replay import replay_file
from kalmanac._replay.buffer import Replay
from kalmanac._replay.replay_file import read_replay, write_replay

SIZES = Sizes(2, 3, True, privileged=1, observed=True, images=((1, 8, 8),), action_mask=True)


def filled(steps, capacity=None):
    """Episodes of three streams, of lengths 1 … 5, with everything that a step can have."""
    replay, rng, at = Replay(SIZES, 3, capacity=capacity), np.random.default_rng(0), np.arange(3)

    def token(k):
        return Observation(
            vector=rng.standard_normal((k, 2)), privileged=rng.random((k, 1)),
            observed=rng.random(k) < 0.7, action_mask=np.ones((k, 3), bool),
            images=rng.integers(255, size=(k, 64), dtype=np.uint8),
        )  # fmt: skip

    replay.begin(at, token(3))
    for _ in range(steps):
        ends, cut = rng.random((2, 3)) < 0.15
        replay.add(at, rng.integers(3, size=3), rng.random(3), ends, cut, token(3))
        over = np.flatnonzero(ends | cut)
        replay.begin(over, token(over.size))
    return replay


def same(one, other):
    drawn = [x.sample(32, 6, generator=torch.Generator().manual_seed(1)) for x in (one, other)]
    fields = [(*batch.observation, *batch._replace(episode=None)[1:]) for batch in drawn]
    return all(torch.equal(a, b) for a, b in zip(*fields, strict=True) if a is not None)


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
        parts = SIZES.observation_parts.to_stored().items()
        shown = {name: np.ones((1, *part.shape), part.dtype) for name, part in parts}
        one.begin([0], Observation.from_stored(shown))
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


def rewritten(file, change):
    """The file as somebody would write it who knows the format; `change` gets its documents."""
    documents = list(replay_file._records(file))
    for document in documents:
        del document["previous"]
    change(documents)
    parts, digest = [replay_file._LINE], ""
    for document in [*documents, {"last": True}]:
        record = encode({"previous": digest} | document, replay_file.REPLAY)
        digest = digest_of(record)
        parts += [replay_file._LENGTH.pack(len(record)), record]
    file.write_bytes(b"".join(parts))


def with_entry(name, value):
    return lambda documents: documents[0].update({name: value})


def booked(name, value, stream=...):
    """Another number in a book, for one stream or for all."""
    return lambda documents: documents[0]["books"][name].__setitem__(stream, value)


def in_piece(name, value):
    return lambda documents: documents[1]["piece"][name].__setitem__(..., value)


def shifted(documents):
    """As if 10¹² rows had come and gone before."""
    for name in ("head", "tail"):
        documents[0]["books"][name] += 10**12
    documents[1]["piece"]["start"] += 10**12
    documents[1]["piece"]["stop"] += 10**12
    documents[1]["piece"]["entries"][1] += 10**12


def without_rows(documents):
    piece = documents[1]["piece"]
    piece["start"][:] = piece["stop"]
    piece["rows"] = {name: x[:0] for name, x in piece["rows"].items()}


FALSE_BEFORE = {
    "nothing": lambda documents: documents.clear(),
    "many streams": with_entry("streams", 3_000_000),
    "endless streams": with_entry("streams", math.inf),
    "no streams": with_entry("streams", 0),
    "negative streams": with_entry("streams", -1),
    "true streams": with_entry("streams", True),
    "streams of a fraction": with_entry("streams", 3.0),
    "less capacity than streams": with_entry("capacity", 2),
    "capacities": with_entry("capacity", torch.zeros(2)),
    "endless capacity": with_entry("capacity", math.inf),
    "books of words": lambda documents: documents[0]["books"].update(head="000"),
    "books of fractions": lambda documents: documents[0]["books"].update(head=torch.zeros(3)),
    "a longer book": lambda documents: documents[0]["books"].update(open=torch.ones(4).bool()),
    "a missing book": lambda documents: documents[0]["books"].pop("slot"),
    "a tail before the beginning": booked("tail", -1),
    "a tail after the head": booked("tail", 10**6),
    "episodes without steps": booked("episodes", 2**40),
    "fewer episodes than none": booked("episodes", -1),
}
FALSE_AFTER = {
    "head": booked("head", 10**7),
    "one head": booked("head", 10**7, 1),
    "the largest head": booked("head", 2**63 - 1),
    "all closed": booked("open", False),
    "no slots": booked("slot", -1),
    "a slot that is none": booked("slot", 10**7),
    "a slot below": booked("slot", -2),
    "a slot of another": booked("slot", 0),
    "fewer held": booked("held", 1),
    "one episode less": lambda documents: documents[0]["books"]["episodes"].sub_(1),
    "stop": in_piece("stop", 10**6),
    "the last stop": lambda documents: documents[1]["piece"]["stop"].put(-1, 10**6),
    "the largest stop": in_piece("stop", 2**62),
    "start": in_piece("start", -1),
    "a later start": in_piece("start", 3),
    "starts of words": lambda documents: documents[1]["piece"].update(start="000"),
    "slots": in_piece("slots", 10**6),
    "entries": in_piece("entries", 1),
    "streams of entries": lambda documents: documents[1]["piece"]["entries"][0].fill(10**6),
    "no rows": without_rows,
    "no rewards": lambda documents: documents[1]["piece"]["rows"].pop("reward"),
    "fewer rewards": lambda documents: documents[1]["piece"]["rows"].update(reward=torch.ones(2)),
}


@pytest.mark.parametrize("capacity", [None, 30])
@pytest.mark.parametrize("name", FALSE_BEFORE)
def test_a_file_that_contradicts_itself_is_refused_before_a_replay_is_made(
    name, capacity, tmp_path
):
    write_replay(tmp_path / "r", filled(20, capacity), {})
    rewritten(tmp_path / "r", FALSE_BEFORE[name])
    with pytest.raises(BadFileError, match="which is malformed"):
        read_replay(tmp_path / "r")


@pytest.mark.parametrize("capacity", [None, 30])
@pytest.mark.parametrize("name", FALSE_AFTER)
def test_pieces_that_contradict_their_books_are_refused_and_make_no_room(name, capacity, tmp_path):
    write_replay(tmp_path / "r", filled(20, capacity), {})
    rewritten(tmp_path / "r", FALSE_AFTER[name])
    again = Replay(SIZES, 3, capacity=capacity)
    with pytest.raises(BadFileError, match="which is malformed"):
        read_replay(tmp_path / "r").restore(again)
    assert again._storage.rows <= 256


def test_rows_may_have_left_a_bounded_replay_alone(tmp_path):
    for capacity, name in ((None, "whole"), (30, "bounded")):
        write_replay(tmp_path / name, filled(20, capacity), {})
        rewritten(tmp_path / name, shifted)
    with pytest.raises(BadFileError, match="than a capacity of None leaves"):
        read_replay(tmp_path / "whole").restore(Replay(SIZES, 3))
    again = Replay(SIZES, 3, capacity=30)
    read_replay(tmp_path / "bounded").restore(again)
    assert same(filled(20, 30), again)


def test_a_file_that_is_written_again_unchanged_is_read(tmp_path):
    write_replay(tmp_path / "r", filled(20), {})
    before = (tmp_path / "r").read_bytes()
    rewritten(tmp_path / "r", lambda documents: None)
    assert (tmp_path / "r").read_bytes() == before
