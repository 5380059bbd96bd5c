"""What a replay has taken in since the last look, and a replay put together from such pieces.

A piece holds the rows that are new or have got their action, and the entries of the episode table
that changed, so that its size follows what happened and not what is held. Later pieces go before
earlier ones; what has left the replay meanwhile is left out.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kalmanac._replay.buffer import Replay
from kalmanac._replay.episodes import FIRST, LENGTH, STREAM
from kalmanac._replay.storage import Indices, check_whole_number, row_bytes

Piece = dict[str, Any]
Books = dict[str, Tensor]
_KINDS = dict.fromkeys(("head", "tail", "held", "slot"), torch.int64) | {"open": torch.bool}


class Changes:
    """Follows one replay. The first piece holds all that is there."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self._heads = np.zeros(replay.streams, np.int64)  # heads at the last look
        replay._episodes.followed = [np.arange(replay.episodes)]

    def skip(self) -> None:
        """Begin anew from here: what is there now is known already."""
        self._heads = self.replay._episodes.head.copy()
        self.replay._episodes.followed = []

    def take(self) -> Piece:
        """Return the piece since the last one."""
        episodes = self.replay._episodes
        # The last row seen had no action yet, or its episode was forgotten and another began there.
        start = np.maximum(np.maximum(self._heads - 1, 0), episodes.tail)
        stop = np.maximum(episodes.head, start)
        assert episodes.followed is not None
        slots = np.unique(np.concatenate([np.zeros(0, np.int64), *episodes.followed]))
        piece = _piece(self.replay, start, stop, slots[slots < episodes.count])
        self.skip()
        return piece


def pieces(replay: Replay, size: int) -> Iterator[Piece]:
    """Yield all that a replay holds, in at least one piece of about `size` bytes each.

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
    counters = {name: book for name, book in state.items() if name != "episodes"}
    episodes.load(storage.rows, counters | {"table": torch.from_numpy(table[:, :0])})
    replay._make_rows(np.arange(replay.streams))
    for piece in pieces:
        expect_piece(piece, replay, head, reached)
        reached = np.maximum(reached, piece["stop"])
        streams, positions = _places(piece["start"], piece["stop"])
        wanted = np.flatnonzero((positions >= tail[streams]) & (positions < head[streams]))
        at = storage.index(streams[wanted], positions[wanted])
        which = torch.from_numpy(wanted)
        for name, rows in piece["rows"].items():
            storage.fields[name].index_copy_(0, at, rows.index_select(0, which).to(replay.device))
        known = piece["slots"] < count
        table[:, piece["slots"][known]] = piece["entries"][:, known]
    if not ((reached >= head).all() and agree(state, table)):
        raise ValueError("replay: got pieces that hold other steps than its books, expected theirs")
    episodes.load(storage.rows, counters | {"table": torch.from_numpy(table)})


def _places(start: NDArray[np.int64], stop: NDArray[np.int64]) -> tuple[Indices, Indices]:
    """Streams and positions of the ranges start … stop−1 of all streams, one after another."""
    counts = stop - start
    streams = np.repeat(np.arange(counts.size), counts)
    inside = np.arange(streams.size) - np.repeat(counts.cumsum() - counts, counts)
    return streams, start[streams] + inside


def books(replay: Replay) -> Books:
    """The replay's state beside rows and table: some numbers for each stream."""
    state = replay._episodes.state(with_table=False)
    return state | {"episodes": torch.tensor(replay.episodes)}


def expect_books(state: Books, streams: int, capacity: int | None) -> None:
    """ValueError unless such a replay may have these books; KeyError where one is missing.

    What passes bounds what a replay needs: no more episodes than steps, no more steps than rows.
    """
    check_whole_number("streams", streams, 1)
    if capacity is not None:
        check_whole_number("capacity", capacity, streams)
    for name, dtype in ({"episodes": torch.int64} | _KINDS).items():
        book, shape = state[name], (() if name == "episodes" else (streams,))
        if not isinstance(book, Tensor) or (tuple(book.shape), book.dtype) != (shape, dtype):
            raise ValueError(f"replay: got other books of {name}, expected {dtype} of {shape}")
    head, tail, transitions = (state[name].numpy() for name in ("head", "tail", "held"))
    sound = (tail >= 0) & (tail <= head) & (transitions >= 0) & (transitions <= head - tail)
    if not (sound.all() and 0 <= int(state["episodes"]) <= transitions.sum(dtype=np.float64)):
        raise ValueError("replay: got books that contradict each other, expected those of a replay")


def least_bytes(replay: Replay, state: Books) -> float:
    """What the rows in the books take, in a file or anywhere else."""
    rows = state["head"].double() - state["tail"].double()
    return float(rows.sum()) * row_bytes(replay.sizes)


def expect_room(replay: Replay, state: Books) -> None:
    """ValueError where the books hold more than the replay's capacity lets it hold."""
    head, tail, transitions = (state[name].numpy() for name in ("head", "tail", "held"))
    share, most = replay._episodes.share, replay._most_rows
    if share is None or most is None:  # then nothing ever leaves
        fits = not tail.any()
    else:
        fits = bool((transitions <= share).all() and (head - tail <= most).all())
    if not fits:
        raise ValueError(f"replay: got other books than a capacity of {replay.capacity} leaves")


def expect_piece(piece: Piece, replay: Replay, head: Indices, reached: Indices) -> None:
    """ValueError unless a piece has the rows that it names, and none is left out before them.

    Args:
        head: of the streams, in their books. An earlier piece may hold one row more: the first
            observation of an episode that was forgotten.
        reached: the position after the rows that came before, or that are not needed.
    """
    start, stop, rows = piece["start"], piece["stop"], piece["rows"]
    for name, x in (("start", start), ("stop", stop)):
        if not isinstance(x, np.ndarray) or (x.shape, x.dtype) != (head.shape, head.dtype):
            raise ValueError(f"replay: got a piece's {name} of another kind, expected integers")
    counts, lengths = stop - start, {len(x) for x in rows.values()}
    ranges = (start >= 0) & (start <= reached) & (start <= stop) & (stop <= head + 1)
    ranges &= counts <= max(lengths, default=0)  # so that their sum is below 2⁶³
    if set(rows) != set(replay._storage.fields) or not ranges.all() or lengths != {counts.sum()}:
        raise ValueError("replay: got a piece with other rows than it names, expected these")


def agree(state: Books, table: Indices) -> bool:
    """Whether the episodes fill each stream from its tail to its head, one after another.

    An open episode is its stream's last. Until it has a transition, it is one row and no entry.
    """
    head, tail, transitions, slot = (
        state[name].numpy() for name in ("head", "tail", "held", "slot")
    )
    opened: NDArray[np.bool_] = state["open"].numpy()
    stream, first, length = table[STREAM], table[FIRST], table[LENGTH]
    if not ((stream >= 0) & (stream < head.size)).all():
        return False
    if not ((length > 0) & (length <= transitions[stream])).all():
        return False
    order = np.lexsort((first, stream))
    ends = (length[order] + 1).cumsum()
    begins = np.concatenate([[0], ends])
    episodes = np.bincount(stream, minlength=head.size)
    before = begins[episodes.cumsum() - episodes]  # rows of all streams before each
    rows = begins[episodes.cumsum()] - before
    owners = stream[order]
    if not np.array_equal(first[order], tail[owners] + begins[:-1] - before[owners]):
        return False
    unfinished = opened & (slot == -1)
    if not np.array_equal(head, tail + rows + unfinished):
        return False
    if not np.array_equal(transitions, rows - episodes):
        return False
    at = np.flatnonzero(slot != -1)
    slots = slot[at]
    if not (opened[at] & (slots >= 0) & (slots < stream.size)).all():
        return False
    ends_last = first[slots] + length[slots] + 1 == head[at]
    return bool(((stream[slots] == at) & ends_last).all())
