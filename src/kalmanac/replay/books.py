"""A replay's books, some numbers for each stream, and whether all else agrees with them.

What is read from a file is checked here before room is made for it.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kalmanac.replay.episodes import FIRST, LENGTH, STREAM
from kalmanac.replay.incoming import Indices, whole_number
from kalmanac.replay.replay import Replay
from kalmanac.replay.storage import row_bytes

Piece = dict[str, Any]
Books = dict[str, Tensor]
_KINDS = dict.fromkeys(("head", "tail", "held", "slot"), torch.int64) | {"open": torch.bool}


def books(replay: Replay) -> Books:
    """The replay's state beside rows and table: some numbers for each stream."""
    state = replay._episodes.state(with_table=False)
    return state | {"episodes": torch.tensor(replay.episodes)}


def expect_books(state: Books, streams: int, capacity: int | None) -> None:
    """ValueError unless such a replay may have these books; KeyError where one is missing.

    What passes bounds what a replay needs: no more episodes than steps, no more steps than rows.
    """
    whole_number("streams", streams, 1)
    if capacity is not None:
        whole_number("capacity", capacity, streams)
    for name, dtype in ({"episodes": torch.int64} | _KINDS).items():
        book, shape = state[name], (() if name == "episodes" else (streams,))
        if not isinstance(book, Tensor) or (tuple(book.shape), book.dtype) != (shape, dtype):
            raise ValueError(f"replay: got other books of {name}, expected {dtype} of {shape}")
    head, tail, held = (state[name].numpy() for name in ("head", "tail", "held"))
    sound = (tail >= 0) & (tail <= head) & (held >= 0) & (held <= head - tail)
    if not (sound.all() and 0 <= int(state["episodes"]) <= held.sum(dtype=np.float64)):
        raise ValueError("replay: got books that contradict each other, expected those of a replay")


def least_bytes(replay: Replay, state: Books) -> float:
    """What the rows in the books take, in a file or anywhere else."""
    rows = state["head"].double() - state["tail"].double()
    return float(rows.sum()) * row_bytes(replay.sizes)


def expect_room(replay: Replay, state: Books) -> None:
    """ValueError where the books hold more than the replay's capacity lets it hold."""
    head, tail, held = (state[name].numpy() for name in ("head", "tail", "held"))
    share, most = replay._episodes.share, replay._most_rows
    if share is None or most is None:  # then nothing ever leaves
        fits = not tail.any()
    else:
        fits = bool((held <= share).all() and (head - tail <= most).all())
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
    head, tail, held, slot = (state[name].numpy() for name in ("head", "tail", "held", "slot"))
    opened: NDArray[np.bool_] = state["open"].numpy()
    stream, first, length = table[STREAM], table[FIRST], table[LENGTH]
    if not ((stream >= 0) & (stream < head.size)).all():
        return False
    if not ((length > 0) & (length <= held[stream])).all():
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
    if not np.array_equal(held, rows - episodes):
        return False
    at = np.flatnonzero(slot != -1)
    slots = slot[at]
    if not (opened[at] & (slots >= 0) & (slots < stream.size)).all():
        return False
    ends_last = first[slots] + length[slots] + 1 == head[at]
    return bool(((stream[slots] == at) & ends_last).all())
