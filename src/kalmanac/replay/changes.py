"""What a replay has taken in since the last look, and a replay put together from such pieces.

A piece holds the rows that are new or have got their action, and the entries of the episode table
that changed, so that its size follows what happened and not what is held. Later pieces go before
earlier ones; what has left the replay meanwhile is left out.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from kalmanac.replay.books import Books, Piece, agree, expect_books, expect_piece, expect_room
from kalmanac.replay.incoming import Indices
from kalmanac.replay.replay import Replay
from kalmanac.replay.storage import row_bytes


class Changes:
    """Follows one replay. Its first piece holds all that is there."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self._seen = np.zeros(replay.streams, np.int64)  # heads at the last look
        replay._episodes.followed = [np.arange(replay.episodes)]

    def skip(self) -> None:
        """Look, and forget: what is there now is known already."""
        self._seen = self.replay._episodes.head.copy()
        self.replay._episodes.followed = []

    def take(self) -> Piece:
        """The piece since the last look."""
        episodes = self.replay._episodes
        # The last row seen had no action yet, or its episode was forgotten and another began there.
        start = np.maximum(np.maximum(self._seen - 1, 0), episodes.tail)
        stop = np.maximum(episodes.head, start)
        assert episodes.followed is not None
        slots = np.unique(np.concatenate([np.zeros(0, np.int64), *episodes.followed]))
        piece = _piece(self.replay, start, stop, slots[slots < episodes.count])
        self.skip()
        return piece


def pieces(replay: Replay, size: int) -> Iterator[Piece]:
    """All that a replay holds, in at least one piece of about `size` bytes each.

    Whoever follows the replay does not notice.
    """
    head, tail = replay._episodes.head, replay._episodes.tail
    each = max(1, int(size / row_bytes(replay.sizes)) // replay.streams)
    slots = np.arange(replay.episodes)
    for first in range(0, max(1, int((head - tail).max())), each):
        start, stop = (np.minimum(tail + n, head) for n in (first, first + each))
        yield _piece(replay, start, stop, slots)
        slots = slots[:0]


def _piece(replay: Replay, start: Indices, stop: Indices, slots: Indices) -> Piece:
    storage = replay._storage
    at = storage.index(*_places(start, stop))
    return {
        "start": start,
        "stop": stop,
        "rows": {name: storage.read(name, at).cpu() for name in storage.fields},
        "slots": slots,
        "entries": replay._episodes._table[:, slots],
    }


def rebuild(replay: Replay, state: Books, pieces: Iterable[Piece]) -> None:
    """Make an empty replay the one whose `books` and pieces these are; ValueError for others."""
    expect_books(state, replay.streams, replay.capacity)
    expect_room(replay, state)
    head, tail = state["head"].numpy(), state["tail"].numpy()
    count, reached = int(state["episodes"]), tail.copy()
    table = np.zeros((3, count), np.int64)
    episodes, storage = replay._episodes, replay._storage
    held = {name: book for name, book in state.items() if name != "episodes"}
    episodes.load(storage.rows, held | {"table": torch.from_numpy(table[:, :0])})
    replay._make_rows(np.arange(replay.streams))
    for piece in pieces:
        expect_piece(piece, replay, head, reached)
        reached = np.maximum(reached, piece["stop"])
        streams, positions = _places(piece["start"], piece["stop"])
        kept = np.flatnonzero((positions >= tail[streams]) & (positions < head[streams]))
        at = storage.index(streams[kept], positions[kept])
        which = torch.from_numpy(kept)
        for name, rows in piece["rows"].items():
            storage.write(at, **{name: rows.index_select(0, which).to(replay.device)})
        known = piece["slots"] < count
        table[:, piece["slots"][known]] = piece["entries"][:, known]
    if not ((reached >= head).all() and agree(state, table)):
        raise ValueError("replay: got pieces that hold other steps than its books, expected theirs")
    episodes.load(storage.rows, held | {"table": torch.from_numpy(table)})


def _places(start: NDArray[np.int64], stop: NDArray[np.int64]) -> tuple[Indices, Indices]:
    """Streams and positions of the ranges start … stop−1 of all streams, one after another."""
    counts = stop - start
    streams = np.repeat(np.arange(counts.size), counts)
    inside = np.arange(streams.size) - np.repeat(counts.cumsum() - counts, counts)
    return streams, start[streams] + inside
