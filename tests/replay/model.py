"""The slow truth: a replay as plain lists of episodes, and a reader that checks a batch by it."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from kalmanac._observation import Observation, Sizes
from kalmanac._replay.buffer import Replay
from kalmanac._replay.sampling import Batch

DISCRETE = Sizes(2, 3, True)
CONTINUOUS = Sizes(2, 3, False, privileged=2, observed=True)


@dataclass
class Episode:
    """L transitions and L+1 tokens."""

    number: list[float] = field(default_factory=list)  # each observation has its own
    seen: list[bool] = field(default_factory=list)
    action: list[list[float]] = field(default_factory=list)
    reward: list[float] = field(default_factory=list)
    terminated: list[bool] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.action)

    def drop_oldest(self) -> None:
        for values in (self.number, self.seen, self.action, self.reward, self.terminated):
            del values[0]


class Window(NamedTuple):
    """What a batch shows of an episode."""

    episode: Episode
    start: int  # of the first token, burn-in included
    steps: int
    burn_in: int


class Twin:
    """A replay and the lists it should agree with, fed with the same steps."""

    def __init__(self, sizes: Sizes, streams: int, capacity: int | None = None) -> None:
        self.replay = Replay(sizes, streams, capacity=capacity)
        self.sizes, self.share = sizes, None if capacity is None else capacity // streams
        self.held: list[list[Episode]] = [[] for _ in range(streams)]
        self.open: list[Episode | None] = [None] * streams
        self.rng = np.random.default_rng(0)
        self.numbers = 0

    @property
    def episodes(self) -> list[Episode]:
        return [episode for stream in self.held for episode in stream if len(episode)]

    @property
    def steps(self) -> int:
        return sum(len(episode) for episode in self.episodes)

    def begin(self, streams: list[int]) -> None:
        numbers, seen = self._tokens(len(streams))
        self.replay.begin(np.array(streams, np.int64), self._observation(numbers, seen))
        for stream, number, was_seen in zip(streams, numbers, seen, strict=True):
            episode = Episode([number], [was_seen])
            self.open[stream] = episode
            self.held[stream].append(episode)

    def add(
        self, streams: list[int], terminated: list[bool] | None = None,
        truncated: list[bool] | None = None,
    ) -> None:  # fmt: skip
        k = len(streams)
        terminated, truncated = terminated or [False] * k, truncated or [False] * k
        numbers, seen = self._tokens(k)
        reward = self.rng.standard_normal(k).astype(np.float32)
        if self.sizes.discrete:
            action = self.rng.integers(0, self.sizes.action, k)
            vectors = np.eye(self.sizes.action, dtype=np.float32)[action]
        else:
            action = vectors = self.rng.uniform(0.1, 1, (k, self.sizes.action)).astype(np.float32)
        self.replay.add(
            np.array(streams, np.int64), action, reward, np.array(terminated, bool),
            np.array(truncated, bool), self._observation(numbers, seen),
        )  # fmt: skip
        for i, stream in enumerate(streams):
            episode = self.open[stream]
            assert episode is not None
            self._make_room(stream)
            episode.number.append(numbers[i])
            episode.seen.append(seen[i])
            episode.action.append(vectors[i].tolist())
            episode.reward.append(float(reward[i]))
            episode.terminated.append(terminated[i])
            if terminated[i] or truncated[i]:
                self.open[stream] = None

    def close(self, streams: list[int] | None = None) -> None:
        self.replay.close(None if streams is None else np.array(streams, np.int64))
        for stream in range(len(self.open)) if streams is None else streams:
            episode = self.open[stream]
            if episode is not None and len(episode) == 0:
                self.held[stream].remove(episode)
            self.open[stream] = None

    def run(self, stream: int, length: int, end: str = "terminated") -> Episode:
        """One whole episode, or an open one with end="open"."""
        self.begin([stream])
        episode = self.held[stream][-1]
        for t in range(length):
            last = t == length - 1
            self.add([stream], [last and end == "terminated"], [last and end == "truncated"])
        return episode

    def sample(
        self, batch: int, context: int, *, seed: int = 0, rule: str = "episodes", burn_in: int = 0,
        true_previous_action: bool = False, packed: bool = False,
    ) -> list[Window]:  # fmt: skip
        """Windows that the replay hands out, each checked against the lists."""
        result = self.replay.sample(
            batch, context, generator=torch.Generator().manual_seed(seed), rule=rule,
            burn_in=burn_in, true_previous_action=true_previous_action, packed=packed,
            elapsed=True,
        )  # fmt: skip
        windows = self.read(result, true_previous_action=true_previous_action)
        assert len(windows) == batch
        for window in windows:
            assert 1 <= window.steps - window.burn_in <= context
            # burn-in stops short only where the stored episode begins
            assert window.burn_in == burn_in or (window.burn_in < burn_in and window.start == 0)
        if packed:
            assert result.observation.vector.shape[1] == int(result.lengths.max())
        else:
            assert result.observation.vector.shape[:2] == (batch, context + burn_in + 1)
        return windows

    def read(self, batch: Batch, *, true_previous_action: bool = False) -> list[Window]:
        """Take a batch apart; what no window accounts for must be zero."""
        check_shapes(batch, self.sizes)
        left = {name: getattr(batch, name).clone() for name in FIELDS}
        left |= batch.observation.map(torch.clone).parts()
        if batch.elapsed is not None:
            left["elapsed"] = batch.elapsed.clone()
        windows, numbers = [], dict[int, int]()
        for row, length in enumerate(batch.lengths.tolist()):
            starts = [0]
            if batch.reset is not None:
                starts = batch.reset[row].nonzero()[:, 0].tolist()
                assert starts[0] == 0
                assert max(starts) < length
            for start, stop in zip(starts, [*starts[1:], length], strict=True):
                (number,) = batch.episode[row, start : stop - 1].unique().tolist()
                key = left["privileged" if self.sizes.privileged else "vector"]
                named = id(self._find(key[row, start, 0].item())[0])
                assert numbers.setdefault(named, number) == number, "one number an episode"
                windows.append(self._read_window(left, row, start, stop, true_previous_action))
        assert len(set(numbers.values())) == len(numbers), "and another one for another"
        for name, rest in left.items():
            assert not rest.any(), f"{name} is not zero on pads"
        return windows

    def _read_window(
        self, left: dict[str, Tensor], row: int, start: int, stop: int, true_previous: bool
    ) -> Window:
        """Compare one window with the episode it shows, and blank it in `left`."""
        key = left["privileged" if self.sizes.privileged else "vector"]
        episode, first = self._find(key[row, start, 0].item())
        steps = stop - start - 1
        assert 1 <= steps <= len(episode) - first
        tokens, moves = slice(first, first + steps + 1), slice(first, first + steps)
        seen = torch.tensor(episode.seen[tokens])
        numbers = torch.tensor(episode.number[tokens])
        actions = torch.tensor(episode.action[moves])
        before = torch.zeros(1, self.sizes.action)
        if true_previous and first > 0:
            before = torch.tensor(episode.action[first - 1])[None]
        expected = {
            "vector": pair(numbers) * seen[:, None],
            "previous_action": torch.cat([before, actions]),
            "privileged": pair(numbers),
            "observed": seen,
            "action": actions,
            "reward": torch.tensor(episode.reward[moves]),
            "terminated": torch.tensor(episode.terminated[moves]),
            "elapsed": torch.arange(first, first + steps + 1),
        }
        for name, value in expected.items():
            if name in left:
                values = left[name][row, start : start + len(value)]
                assert torch.equal(values, value), name
                values.zero_()
        valid = left["valid"][row, start : stop - 1]
        burn_in = int((~valid).sum())
        assert valid[burn_in:].all()
        valid.zero_()
        return Window(episode, first, steps, burn_in)

    def _find(self, number: float) -> tuple[Episode, int]:
        for episode in self.episodes:
            if number in episode.number:
                return episode, episode.number.index(number)
        raise AssertionError(f"observation {number} is not held any more")

    def _make_room(self, stream: int) -> None:
        held = self.held[stream]
        if self.share is not None and sum(len(episode) for episode in held) >= self.share:
            if held[0] is self.open[stream]:
                held[0].drop_oldest()
            else:
                del held[0]

    def _tokens(self, k: int) -> tuple[list[float], list[bool]]:
        numbers = [float(self.numbers + i + 1) for i in range(k)]
        self.numbers += k
        seen = self.rng.random(k) < 0.7 if self.sizes.observed else np.ones(k, bool)
        return numbers, seen.tolist()

    def _observation(self, numbers: list[float], seen: list[bool]) -> Observation[np.ndarray]:
        values = pair(torch.tensor(numbers, dtype=torch.float32)).numpy()
        observation = Observation(values, privileged=values if self.sizes.privileged else None)
        if not self.sizes.observed:
            return observation
        observed = np.array(seen, bool)
        vector = np.where(observed[:, None], values, np.float32(0))
        return observation._replace(vector=vector, observed=observed)


FIELDS = ("previous_action", "action", "reward", "terminated", "valid")


def pair(numbers: Tensor) -> Tensor:
    return torch.stack([numbers, -numbers], -1)


def check_shapes(batch: Batch, sizes: Sizes) -> None:
    b, tokens = batch.observation.vector.shape[:2]
    expected: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
        "previous_action": ((b, tokens, sizes.action), torch.float32),
        "action": ((b, tokens - 1, sizes.action), torch.float32),
        "reward": ((b, tokens - 1), torch.float32),
        "terminated": ((b, tokens - 1), torch.bool),
        "valid": ((b, tokens - 1), torch.bool),
        "lengths": ((b,), torch.int64),
        "reset": ((b, tokens), torch.bool),
        "elapsed": ((b, tokens), torch.int64),
    }
    parts = {
        "vector": ((b, tokens, sizes.observation), torch.float32),
        "observed": ((b, tokens), torch.bool),
        "privileged": ((b, tokens, sizes.privileged), torch.float32),
    }
    there = {"vector": True, "observed": sizes.observed, "privileged": sizes.privileged > 0}
    assert {
        name for name, is_there in there.items() if is_there
    } == batch.observation.parts().keys()
    for name, x in batch.observation.parts().items():
        assert (tuple(x.shape), x.dtype) == parts[name], name
    for name, (shape, dtype) in expected.items():
        value = getattr(batch, name)
        if value is not None:
            assert (tuple(value.shape), value.dtype) == (shape, dtype), name


def assert_same(a: Batch, b: Batch) -> None:
    """Bit for bit."""
    names = (*Observation._fields, *Batch._fields[1:])
    pairs = zip(names, (*a.observation, *a[1:]), (*b.observation, *b[1:]), strict=True)
    for name, x, y in pairs:
        assert (x is None) == (y is None), name
        assert x is None or torch.equal(x, y), name
