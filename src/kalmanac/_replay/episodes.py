"""Which rows are which episode: a dense table that is kept up to date in place.

An episode of L transitions fills L+1 positions of its stream. It enters the table with its first
transition and grows there, so that unfinished episodes are drawn like all others. The bookkeeping
is done on the host; on another device the table has a copy, brought up to date before a draw.
"""

import copy
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from kalmanac._ops.transfer import is_host, sent
from kalmanac._replay.storage import Indices

STREAM, FIRST, LENGTH = 0, 1, 2  # rows of the table


class Table(NamedTuple):
    """The episodes that can be sampled, as tensors of fixed shape."""

    entries: Tensor  # (3, slots) int64: stream, first position, length; length 0 in free slots
    episodes: Tensor  # (1,) int64: how many; they have the first slots


class Episodes:
    """The episodes held, stream by stream. Positions count from a stream's first row ever."""

    def __init__(self, streams: int, share: int | None, rows: int, device: torch.device) -> None:
        self.share = share  # most transitions a stream may hold
        self.head = np.zeros(streams, np.int64)  # the position after the last row
        self.tail = np.zeros(streams, np.int64)  # the position of the oldest row
        self.transitions = np.zeros(streams, np.int64)  # held
        self.open = np.zeros(streams, np.bool_)
        self.slot = np.full(streams, -1, np.int64)  # of the open episode, once it has a transition
        self.followed: list[Indices] | None = None  # slots that changed, where somebody asks for it
        self.device = device
        self._copied = not is_host(device)  # else the tensors are the bookkeeping's own memory
        self._set_table(np.zeros((3, 64), np.int64), 0)
        self.index_rows(rows)

    @property
    def count(self) -> int:
        """Episodes with at least one transition, finished or not."""
        return int(self._count[0])

    @property
    def longest(self) -> int:
        """Transitions of the longest episode."""
        return int(self._table[LENGTH, : self.count].max(initial=0))

    def table(self) -> Table:
        """Return the table on the device, up to date."""
        self.take_in(sent(self.news(), self.device))
        return Table(self.entries, self._episode_count)

    def news(self) -> list[Tensor]:
        """Return what the table on the device does not know yet, for `take_in`; [] is nothing."""
        if not self._changed:
            return []
        first, *more = self._changed  # none of them has a slot twice
        slots = np.unique(np.concatenate(self._changed)) if more else first
        self._changed.clear()
        return [torch.from_numpy(x) for x in (slots, self._table[:, slots], self._count)]

    def take_in(self, news: list[Tensor]) -> None:
        """Bring the table up to date with `news` that have arrived on the device."""
        if news:
            slots, entries, count = news
            self.entries.index_copy_(1, slots, entries)
            self._episode_count.copy_(count)

    def index_rows(self, rows: int) -> None:
        """Find episodes by their first row, in rings of `rows`. Only eviction asks for it."""
        self._rows = rows
        if self.share is not None:
            self._slot_at = np.zeros((self.head.size, rows), np.int64)
            self._place(np.arange(self.count))

    def reserve(self, episodes: int) -> None:
        """Make room in the table for so many episodes in all."""
        missing = episodes - self._table.shape[1]
        if missing > 0:
            self._set_table(np.pad(self._table, ((0, 0), (0, missing))), self.count)

    def begin(self, streams: Indices) -> None:
        """The next position of each stream holds the first observation of an episode."""
        self.open[streams] = True
        self.head[streams] += 1

    def make_room(self, streams: Indices, steps: int = 1) -> None:
        """Let whole oldest episodes leave where so many transitions more would exceed the share.

        An open episode that fills the share on its own loses its oldest step instead.
        """
        if self.share is None:
            return
        while (full := streams[self.transitions[streams] + steps > self.share]).size:
            self._make_room(full)

    def _make_room(self, full: Indices) -> None:
        """Let the oldest episode of each of these streams leave."""
        oldest = self._slot_at[full, self.tail[full] % self._rows]
        alone = oldest == self.slot[full]
        slots, shortened = oldest[~alone], full[alone]
        left, lengths = full[~alone], self._table[LENGTH, slots]
        self.tail[left] += lengths + 1
        self.transitions[left] -= lengths
        self.tail[shortened] += 1
        self.transitions[shortened] -= 1
        self._table[FIRST, oldest[alone]] += 1
        self._table[LENGTH, oldest[alone]] -= 1
        self._place(oldest[alone])
        self._remove(slots)

    def extend(self, streams: Indices, steps: int = 1) -> None:
        """Count so many transitions and observations more in each stream."""
        fresh = streams[self.slot[streams] < 0]
        if fresh.size:
            count, slots = self.count, np.arange(self.count, self.count + fresh.size)
            if slots[-1] >= self._table.shape[1]:
                self._set_table(np.pad(self._table, ((0, 0), (0, int(slots[-1])))), count)
            self._count[0] = count + fresh.size
            self.slot[fresh] = slots
            self._table[STREAM, slots] = fresh
            self._table[FIRST, slots] = self.head[fresh] - 1
            self._place(slots)
        self.head[streams] += steps
        self.transitions[streams] += steps
        self._table[LENGTH, self.slot[streams]] += steps
        self._note(self.slot[streams])

    def close(self, streams: Indices) -> None:
        """End open episodes. One without a transition is forgotten."""
        self.head[streams[self.open[streams] & (self.slot[streams] < 0)]] -= 1
        self.open[streams] = False
        self.slot[streams] = -1

    def state(self, *, with_table: bool = True) -> dict[str, Tensor]:
        """Copy the bookkeeping."""
        arrays = {"head": self.head, "tail": self.tail, "held": self.transitions, "open": self.open}
        arrays |= {"slot": self.slot}
        if with_table:
            arrays["table"] = self._table[:, : self.count]
        return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}

    def load(self, rows: int, state: dict[str, Tensor]) -> None:
        """Take over what `state` handed out."""
        arrays = {name: tensor.cpu().numpy().copy() for name, tensor in state.items()}
        self.head, self.tail, self.transitions = arrays["head"], arrays["tail"], arrays["held"]
        self.open, self.slot = arrays["open"], arrays["slot"]
        self._set_table(np.pad(arrays["table"], ((0, 0), (0, 64))), arrays["table"].shape[1])
        self.index_rows(rows)

    def __deepcopy__(self, memo: dict[int, object]) -> "Episodes":
        """Episodes of its own: tensors that are the bookkeeping's memory are so in a copy, too."""
        copied = copy.copy(self)
        vars(copied).update(copy.deepcopy(vars(self), memo))
        copied._set_table(copied._table, copied.count)
        return copied

    def _remove(self, slots: Indices) -> None:
        """Take episodes out; those in the last slots move into the gaps."""
        if slots.size == 0:
            return
        count = self.count
        left = count - slots.size
        stays = np.ones(slots.size, np.bool_)
        stays[slots[slots >= left] - left] = False
        movers, gaps = left + np.flatnonzero(stays), slots[slots < left]
        self._table[:, gaps] = self._table[:, movers]
        self._place(gaps)
        owners = self._table[STREAM, gaps]
        moved_open = self.slot[owners] == movers
        self.slot[owners[moved_open]] = gaps[moved_open]
        self._table[LENGTH, left:count] = 0
        self._count[0] = left
        self._note(gaps)
        self._note(np.arange(left, count))

    def _place(self, slots: Indices) -> None:
        if self.share is not None:
            first = self._table[FIRST, slots] % self._rows
            self._slot_at[self._table[STREAM, slots], first] = slots

    def _note(self, slots: Indices) -> None:
        if self._copied:
            self._changed.append(slots)
        if self.followed is not None:
            self.followed.append(slots)

    def _set_table(self, table: Indices, count: int) -> None:
        self._table, self._count = table, np.array([count])
        # on the device, as far as it is up to date
        self.entries = torch.from_numpy(table).to(self.device, copy=self._copied)
        self._episode_count = torch.from_numpy(self._count).to(self.device, copy=self._copied)
        self._changed: list[Indices] = []
