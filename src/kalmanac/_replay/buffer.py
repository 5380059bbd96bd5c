"""The replay: takes single steps of many streams, hands out batches of windows.

Sub-trajectories are right-padded and hold T+1 observations. Windows begin with the initial belief
and a zero previous action; the true previous action, rewards as inputs and burn-in are options.
"""

from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kalmanac._observation import Observation, Sizes
from kalmanac._ops.graphed_call import GraphedCall, can_record
from kalmanac._ops.transfer import is_host, packed, sent, unpacked
from kalmanac._ops.windows import Windows, windows_of
from kalmanac._replay.episodes import Episodes
from kalmanac._replay.sampling import (
    RULES,
    Batch,
    collate,
    lay_one_a_row,
    lay_packed,
    sample_one_a_row,
)
from kalmanac._replay.storage import (
    Indices,
    Storage,
    Values,
    check_actions,
    check_flags,
    check_observations,
    check_rewards,
    check_sizes,
    check_streams,
    check_whole_number,
    require,
    row_bytes,
)

FIRST_ROWS = 256  # of each stream; doubled when needed
MOST_RECORDINGS = 16  # of writes of different shapes; further ones stay eager


class StoredEpisode(NamedTuple):
    """An episode of L transitions, on the host."""

    observation: Observation[NDArray[Any]]  # (L + 1, …)
    action: NDArray[Any]  # (L,) numbers, or (L, A)
    reward: NDArray[np.float32]  # (L,)
    terminated: bool  # else it was truncated, or is under way


class Replay:
    """Steps of `streams` environments, the unfinished episodes included.

    `capacity` bounds the transitions held (None: no bound), in equal shares for the streams. Where
    a stream's next transition would exceed its share, its oldest episode leaves as a whole. An
    open episode longer than the share keeps its newest transitions, and is from then on an
    episode that begins where they begin: its first token has no previous action.

    On a GPU, `add` is replayed from a CUDA graph, unless `graph` says no.
    """

    def __init__(
        self, sizes: Sizes, streams: int, *, capacity: int | None = None,
        device: torch.device | str = "cpu",
    ) -> None:  # fmt: skip
        check_sizes(sizes)
        check_whole_number("streams", streams, 1)
        if capacity is not None:
            check_whole_number("capacity", capacity, streams)
        self.sizes, self.streams, self.capacity = sizes, streams, capacity
        self.device = torch.device(device)
        share = None if capacity is None else capacity // streams
        self._most_rows = _most_rows(capacity, streams)
        rows = FIRST_ROWS if self._most_rows is None else min(FIRST_ROWS, self._most_rows)
        self._storage = Storage(sizes, streams, rows, self.device)
        self._episodes = Episodes(streams, share, rows, self.device)
        self.graph = True
        self._recorded_places: tuple[object, ...] = ()  # what the recorded writes write to
        self._recordings: dict[Hashable, GraphedCall] = {}

    def __getstate__(self) -> dict[str, Any]:
        """All but recordings: a copy's would write into the original."""
        return self.__dict__ | {"_recorded_places": (), "_recordings": {}}

    @property
    def steps(self) -> int:
        """Transitions held."""
        return int(self._episodes.transitions.sum())

    @property
    def episodes(self) -> int:
        """Episodes held; an open one counts from its first transition on."""
        return self._episodes.count

    @property
    def longest(self) -> int:
        """Transitions of the longest episode held."""
        return self._episodes.longest

    def reserve(self, steps: int) -> None:
        """Make room for so many more transitions at once: until they have come, nothing moves.

        Images are an exception: with episodes of a few steps they need up to twice the room, and
        get it when they do.
        """
        each = -(-steps // self.streams)
        self._grow(int(self._episodes.head.max()) + _reserved_rows(self.sizes, each))
        self._episodes.reserve(self.episodes + steps if self.capacity is None else self.capacity)

    def places(self) -> tuple[int, ...]:
        """Where the tensors lie that `sample` reads; other numbers after they had to move.

        The table of episodes on the device is brought up to date, as `sample` would.
        """
        table = self._episodes.table()
        tensors = (*self._storage.fields.values(), *table)
        return (self._storage.rows, *table.entries.shape, *(x.data_ptr() for x in tensors))

    def begin(self, streams: Values, observation: Observation[Values]) -> None:
        """Begin episodes in the streams (k,) with their first observations (k, …)."""
        at = check_streams(streams, self.streams)
        require("begin", ~self._episodes.open[at], at, "no open episode there: close() it")
        token = check_observations(observation, at, self._storage.parts)
        self._make_rows(at)
        rows = self._storage.rows_at(at, self._episodes.head[at])
        self._write((rows, token))
        self._episodes.begin(at)

    def add(
        self, streams: Values, action: Values, reward: Values, terminated: Values,
        truncated: Values, observation: Observation[Values],
    ) -> None:  # fmt: skip
        """Add one transition to each of the streams (k,), with the observation it led to.

        The episode ends where `terminated` or `truncated`: the observation is then its last.
        """
        at = check_streams(streams, self.streams)
        require("add", self._episodes.open[at], at, "an open episode there: begin() one")
        ends = check_flags("terminated", terminated, at)
        stops = check_flags("truncated", truncated, at)
        done = {
            "action": check_actions(action, at, self.sizes),
            "reward": check_rewards(reward, at),
            "terminated": torch.from_numpy(ends),
        }
        token = check_observations(observation, at, self._storage.parts)
        self._episodes.make_room(at)
        self._make_rows(at)
        head = self._episodes.head[at]
        then, now = self._storage.rows_at(at, head - 1), self._storage.rows_at(at, head)
        self._episodes.extend(at)
        self._write((then, done), (now, token), every_step=True)
        if (over := ends | stops).any():
            self._episodes.close(at[over])

    def add_episode(self, episode: StoredEpisode) -> None:
        """Add a whole episode to the stream without an open one that holds the fewest steps."""
        free = np.flatnonzero(~self._episodes.open)
        steps, share = len(episode.reward), self._episodes.share
        if not free.size:
            raise ValueError("add_episode: got open episodes in all streams, expected one without")
        if steps < 1 or (share is not None and steps > share):
            most = "" if share is None else f" and at most {share}, a stream's share"
            raise ValueError(f"add_episode: got {steps} steps, expected at least 1{most}")
        stream = free[self._episodes.transitions[free].argmin()][None]
        each = np.repeat(stream, steps)
        ends = np.zeros(steps, np.bool_)
        ends[-1] = episode.terminated
        done = {
            "action": check_actions(episode.action, each, self.sizes),
            "reward": check_rewards(episode.reward, each),
            "terminated": torch.from_numpy(ends),
        }
        parts = self._storage.parts
        token = check_observations(episode.observation, np.repeat(stream, steps + 1), parts)
        self._episodes.make_room(stream, steps)
        self._make_rows(stream, steps + 1)
        positions = self._episodes.head[stream] + np.arange(steps + 1)
        rows = self._storage.rows_at(stream, positions)
        self._write((rows[:-1], done), (rows, token))
        self._episodes.begin(stream)
        self._episodes.extend(stream, steps)
        self._episodes.close(stream)

    def stored_episodes(self) -> Iterator[StoredEpisode]:
        """All episodes held, each as far as it has come."""
        for entry in self._episodes.table().entries[:, : self.episodes].T.tolist():
            stream, first, steps = entry
            positions = first + np.arange(steps + 1)
            at = self._storage.index(np.full_like(positions, stream), positions)
            observation = self._storage.read_observation(at).map(lambda x: x.cpu().numpy())
            action, reward, ends = (
                self._storage.read(name, at[:-1]).cpu().numpy()
                for name in ("action", "reward", "terminated")
            )
            yield StoredEpisode(observation, action, reward, bool(ends[-1]))

    def close(self, streams: Values | None = None) -> None:
        """End the open episodes of these streams, or of all, as truncated.

        For those whose environment was lost. Streams without an open episode stay as they are.
        """
        if streams is None:
            streams = np.flatnonzero(self._episodes.open)
        self._episodes.close(check_streams(streams, self.streams))

    def sample(
        self, batch: int, context: int, *, generator: torch.Generator, rule: str = "episodes",
        burn_in: int = 0, true_previous_action: bool = False, previous_reward: bool = False,
        elapsed: bool = False, packed: bool = False,
    ) -> Batch:  # fmt: skip
        """Sample `batch` windows of up to `context` transitions by a rule of `RULES`.

        Each window is extended to the left by up to `burn_in` stored steps, which are not `valid`.
        Rows have context + burn_in + 1 tokens, one window each; packed, they hold as many windows
        as fit, there are as few of them as needed, and columns that none uses are left out.
        With `true_previous_action`, windows begin with what was done (and gained) before them;
        with `previous_reward`, observations have that part, and with `elapsed` the batch has its.
        """
        if rule == "episodes" and not packed:
            self._check_sampling(batch, context, burn_in, rule)
            windows, places = sample_one_a_row(
                self._episodes.table(), self._storage, batch, context, burn_in=burn_in,
                generator=generator,
            )  # fmt: skip
        else:
            windows = self.sample_windows(
                batch, context, generator=generator, rule=rule, burn_in=burn_in
            )
            lay = lay_packed if packed else lay_one_a_row  # only the former needs the host
            places = lay(windows, self._storage, context + burn_in + 1)
        return collate(
            places, windows, self._storage, true_previous_action=true_previous_action,
            previous_reward=previous_reward, elapsed=elapsed,
        )  # fmt: skip

    def sample_windows(
        self, batch: int, context: int, *, generator: torch.Generator, rule: str = "episodes",
        burn_in: int = 0,
    ) -> Windows:  # fmt: skip
        """Sample windows with replacement. They are good until the next `add` or `close`."""
        self._check_sampling(batch, context, burn_in, rule)
        table = self._episodes.table()
        return windows_of(table.entries, *RULES[rule](table, batch, context, generator), burn_in)

    def _check_sampling(self, batch: int, context: int, burn_in: int, rule: str) -> None:
        check_whole_number("batch", batch, 1)
        check_whole_number("context", context, 1)
        check_whole_number("burn_in", burn_in, 0)
        if rule not in RULES:
            raise ValueError(f"rule: got {rule!r}, expected one of {', '.join(RULES)}")
        if self._episodes.count == 0:
            raise ValueError("replay: got no transitions yet, expected at least one to draw from")

    def state_dict(self) -> dict[str, Any]:
        """Copy all steps and the bookkeeping to the host, as tensors and plain data."""
        used = min(self._storage.rows, int(self._episodes.head.max()))
        return {
            "sizes": self.sizes._asdict(),
            "streams": self.streams,
            "capacity": self.capacity,
            "rows": self._storage.rows,
            "storage": self._storage.state(used),
            "episodes": self._episodes.state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become the replay that `state` was taken from; what comes next comes bit for bit."""
        shapes = tuple(tuple(shape) for shape in state["sizes"].get("images", ()))
        for name, got, own in (
            ("sizes", state["sizes"] | {"images": shapes}, self.sizes._asdict()),
            ("streams", state["streams"], self.streams),
            ("capacity", state["capacity"], self.capacity),
        ):
            if got != own:
                raise ValueError(f"{name}: got {got}, expected {own}")
        self._forget_recordings()
        self._storage.load(state["rows"], state["storage"])
        self._episodes.load(state["rows"], state["episodes"])

    def _write(self, *writes: tuple[Tensor, dict[str, Tensor]], every_step: bool = False) -> None:
        """Store fields at rows, one value each, and the table's news with them in one copy.

        What is written at every step is worth recording.
        """
        names = tuple(tuple(fields) for _, fields in writes)
        values = [x for rows, fields in writes for x in (rows, *fields.values())]
        values += self._episodes.news()
        recording = self._recording(names, values) if every_step and self.graph else None
        if recording is None:
            arrived = sent(values, self.device)
            _take_in(names, arrived, self._storage.fields, self._episodes)
            return
        try:
            recording([packed(values, self.device)])
        finally:
            if recording.failed:  # one warning is enough
                self.graph = False
                self._forget_recordings()

    def _recording(
        self, names: tuple[tuple[str, ...], ...], values: list[Tensor]
    ) -> GraphedCall | None:
        """The recorded write of such values, where there can be one."""
        if not (can_record(self.device) and all(is_host(x.device) for x in values)):
            return None
        places = self._storage.fields, self._episodes.entries
        if any(x is not y for x, y in zip(places, self._recorded_places, strict=False)):
            self._forget_recordings()
        self._recorded_places = places
        key = (names, *((x.shape, x.dtype) for x in values))
        if key not in self._recordings and len(self._recordings) < MOST_RECORDINGS:
            fields, episodes, device = self._storage.fields, self._episodes, self.device
            shapes = [x.to("meta") for x in values]

            def write(inputs: list[Tensor]) -> list[Tensor]:
                arrived = inputs[0].to(device, non_blocking=True)
                _take_in(names, unpacked(arrived, shapes), fields, episodes)
                return []

            self._recordings[key] = GraphedCall(write, [], device, what="storing")
        return self._recordings.get(key)

    def _forget_recordings(self) -> None:
        """Let go of recorded writes, and of what they write to."""
        self._recorded_places, self._recordings = (), {}

    def _make_rows(self, streams: Indices, more: int = 1) -> None:
        """Make room for so many observations more in each of these streams."""
        episodes, rows = self._episodes, self._storage.rows
        needed = int((episodes.head[streams] - episodes.tail[streams]).max(initial=0)) + more
        while rows < needed:
            rows *= 2
        self._grow(rows)

    def _grow(self, rows: int) -> None:
        """Give each stream at least so many rows, as far as it may have them."""
        rows = rows if self._most_rows is None else min(rows, self._most_rows)
        if rows > self._storage.rows:
            self._forget_recordings()
            self._storage.grow(rows, self._episodes.head)
            self._episodes.index_rows(rows)


def _take_in(
    names: tuple[tuple[str, ...], ...], arrived: list[Tensor], fields: dict[str, Tensor],
    episodes: Episodes,
) -> None:  # fmt: skip
    """Put what has arrived on the device in its place: rows and named fields, then news."""
    tensors = iter(arrived)
    for written in names:
        rows = next(tensors)
        for name in written:
            fields[name].index_copy_(0, rows, next(tensors))
    episodes.take_in(list(tensors))


def bytes_needed(
    sizes: Sizes, streams: int, steps: int, *, capacity: int | None = None, reserved: bool = False
) -> int:
    """What a replay holds after so many steps: as reserved for them, or doubled as they came.

    Where it doubles, the old half goes when the new one is half full, and episodes of a few steps
    take up to twice as many rows.
    """
    each = -(-steps // streams)
    rows = _reserved_rows(sizes, each) if reserved else FIRST_ROWS
    while rows < 1 + min(each, each if capacity is None else capacity // streams):
        rows *= 2
    most = _most_rows(capacity, streams)
    rows = rows if most is None else min(rows, most)
    episodes = steps if capacity is None else capacity
    return int((streams * rows + 1) * row_bytes(sizes)) + 3 * 8 * episodes


def _reserved_rows(sizes: Sizes, steps: int) -> int:
    """A stream's rows for so many steps: an episode has one observation more than steps."""
    return steps + FIRST_ROWS if sizes.images else 2 * steps + 1


def _most_rows(capacity: int | None, streams: int) -> int | None:
    """Bound a stream's rows: length-1 episodes fill two a transition, and an open one its first."""
    return None if capacity is None else 2 * (capacity // streams) + 1
