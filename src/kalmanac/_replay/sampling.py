"""From the rows of a replay to a batch: which windows, where in the batch, and what they hold.

Three rules choose windows, all on tensors of fixed shape and without a host read. With L the
transitions of an episode and T those of a window:

- `episodes`: an episode uniformly; all of it if L ≤ T, else the part inside [o, o + T) with o
  uniform over −(T−1) … L−1. Each step of a long episode, first and last included, is in T of
  those L+T−1 windows.
- `starts`: uniform over all starts 0 … max(L−T, 0) of all episodes.
- `transitions`: uniform over all steps as starts; the window is cut at the episode's end.

A layout places windows one a row, or several to a row one after another. It is index arithmetic
only; padded places point at the storage's zero row.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from kalmanac._observation import Observation
from kalmanac._ops.windows import (
    Places,
    Windows,
    cut_episodes,
    one_a_row,
    place_windows,
    read_windows,
)
from kalmanac._replay.episodes import LENGTH, Table
from kalmanac._replay.storage import Indices, Storage


class Batch(NamedTuple):
    """Windows of T transitions and T+1 tokens (observations), right-padded with zeros.

    A row holds one window (`reset` is None), or, packed, several windows one after another, each
    beginning with `reset` = True. A transition from the last token of one window to the first of
    the next does not exist: it is a pad like those at the row's end.
    """

    observation: Observation[Tensor]  # (B, T+1, …)
    previous_action: Tensor  # (B, T+1, A), zero at the first token of a window unless asked for
    action: Tensor  # (B, T, A), one-hot if discrete
    reward: Tensor  # (B, T)
    terminated: Tensor  # (B, T) bool: True cuts the bootstrap; a truncated episode has no mark
    valid: Tensor  # (B, T) bool: transitions that count in losses
    lengths: Tensor  # (B,) int64: tokens of the row that are not padding
    reset: Tensor | None = None  # (B, T+1) bool
    episode: Tensor | None = None  # (B, T) int64: the number of a step's episode in the replay
    elapsed: Tensor | None = None  # (B, T+1) int64: stored steps of its episode before a token

    def map(self, function: Callable[[Tensor], Tensor]) -> "Batch":
        """Apply `function` to every tensor."""
        others = [None if x is None else function(x) for x in self[1:]]
        return Batch(self.observation.map(function), *others)  # type: ignore[arg-type]

    def counted_actions(self) -> Tensor:
        """Return the actions, zero where no step counts."""
        return self.action.masked_fill(~self.valid[..., None], 0)


# slot, start and stop, (B,) int64 each: transitions start … stop−1 of the episode in the slot
Cut = tuple[Tensor, Tensor, Tensor]


def _episodes(table: Table, batch: int, context: int, generator: torch.Generator) -> Cut:
    return cut_episodes(uniform(table, batch, 2, generator), *table, context)


def _starts(table: Table, batch: int, context: int, generator: torch.Generator) -> Cut:
    length = table.entries[LENGTH]
    starts = ((length - context).clamp(min=0) + 1) * (length > 0)
    return _one_of(starts, table, batch, context, generator)


def _transitions(table: Table, batch: int, context: int, generator: torch.Generator) -> Cut:
    return _one_of(table.entries[LENGTH], table, batch, context, generator)


def _one_of(
    starts: Tensor, table: Table, batch: int, context: int, generator: torch.Generator
) -> Cut:
    """Sample uniformly over the first `starts` (slots,) steps of every episode."""
    ends = starts.cumsum(0)
    (where,) = uniform(table, batch, 1, generator)
    pick = (where * ends[-1]).long()
    slot = torch.searchsorted(ends, pick, right=True)
    start = pick - (ends - starts).index_select(0, slot)
    length = table.entries[LENGTH].index_select(0, slot)
    return slot, start, torch.minimum(start + context, length)


def uniform(table: Table, batch: int, of_each: int, generator: torch.Generator) -> Tensor:
    """Numbers in [0, 1) with 53 random bits: a product with a count below 2⁵³ stays below it."""
    numbers = torch.rand(
        (of_each, batch), generator=generator, device=generator.device, dtype=torch.float64
    )
    return numbers.to(table.entries.device)


RULES: dict[str, Callable[[Table, int, int, torch.Generator], Cut]] = {
    "episodes": _episodes,
    "starts": _starts,
    "transitions": _transitions,
}


class Layout(NamedTuple):
    """The places of a batch, and what tells its windows apart."""

    places: Places  # with several windows a row, `begins` is (windows,)
    reset: Tensor | None  # (B, T+1) bool
    episode: Tensor  # (B, T): the slot of the episode
    elapsed: Tensor | None  # (B, T+1): see `Batch`; None with one window a row, which tells it


def lay_one_a_row(windows: Windows, storage: Storage, width: int) -> Layout:
    """Lay a window a row, `width` tokens wide, with fixed shapes and no host read."""
    rows, nothing = storage.rows, storage.nothing
    return _layout(windows, one_a_row(windows, rows=rows, nothing=nothing, width=width))


def sample_one_a_row(
    table: Table, storage: Storage, batch: int, context: int, *, burn_in: int,
    generator: torch.Generator,
) -> tuple[Windows, Layout]:  # fmt: skip
    """Sample windows by the rule `episodes` and lay them as `lay_one_a_row` does."""
    windows, places = place_windows(
        uniform(table, batch, 2, generator), *table, rows=storage.rows, nothing=storage.nothing,
        context=context, burn_in=burn_in, width=context + burn_in + 1,
    )  # fmt: skip
    return windows, _layout(windows, places)


def _layout(windows: Windows, places: Places) -> Layout:
    return Layout(places, None, windows.slot[:, None].expand_as(places.step), None)


def lay_packed(windows: Windows, storage: Storage, width: int) -> Layout:
    """Pack windows into as few rows as first-fit-decreasing finds, and trim unused columns.

    Shapes depend on what was drawn, so the windows are read on the host.
    """
    stream, first, steps, burn_in, before, slot = (x.cpu().numpy() for x in windows)
    sizes = steps + 1
    row, column, used = first_fit_decreasing(sizes, width)
    width = int(used.max())
    begins = row * width + column

    window = np.repeat(np.arange(sizes.size), sizes)  # (tokens,)
    inside = np.arange(window.size) - np.repeat(sizes.cumsum() - sizes, sizes)
    place = begins[window] + inside
    source = (stream * storage.rows)[window] + (first[window] + inside) % storage.rows

    token = np.full((used.size, width), storage.nothing)
    token.reshape(-1)[place] = source
    step = token.copy()
    step.reshape(-1)[begins + steps] = storage.nothing
    step = step[:, :-1]
    warm = np.zeros(token.shape, np.bool_)
    warm.reshape(-1)[place] = inside < burn_in[window]
    reset = np.zeros(token.shape, np.bool_)
    reset.reshape(-1)[begins] = True
    episode = np.zeros_like(token)
    episode.reshape(-1)[place] = slot[window]
    elapsed = np.zeros_like(token)
    elapsed.reshape(-1)[place] = before[window] + inside
    valid = (step != storage.nothing) & ~warm[:, :-1]
    arrays = (token, step, valid, used, begins, reset, episode[:, :-1], elapsed)
    tensors = [torch.from_numpy(x).to(storage.device) for x in arrays]
    return Layout(Places(*tensors[:5]), *tensors[5:])


def first_fit_decreasing(sizes: Indices, width: int) -> tuple[Indices, Indices, Indices]:
    """Put each of `sizes` (n,), largest first, into the first row of `width` that has the space.

    Returns row (n,), column (n,) and the used part of each row. Ties keep their order. The rows
    needed are at most 11/9 of the fewest possible, plus one.
    """
    order = np.argsort(-sizes, kind="stable").tolist()
    needs = sizes.tolist()
    leaves = 1 << (len(needs) - 1).bit_length()
    # most[i]: the largest free space below node i of a binary tree with the rows as its leaves;
    # going left wherever there is space finds the first row that fits.
    most = [width] * (2 * leaves)
    row, column = [0] * len(needs), [0] * len(needs)
    rows = 0
    for window in order:
        need, node = needs[window], 1
        while node < leaves:
            node *= 2
            if most[node] < need:
                node += 1
        place = node - leaves
        rows = max(rows, place + 1)
        row[window], column[window] = place, width - most[node]
        most[node] -= need
        while node > 1:
            node //= 2
            most[node] = max(most[2 * node], most[2 * node + 1])
    used = width - np.array(most[leaves : leaves + rows], np.int64)
    return np.array(row, np.int64), np.array(column, np.int64), used


def collate(
    layout: Layout, windows: Windows, storage: Storage, *, true_previous_action: bool,
    previous_reward: bool, elapsed: bool,
) -> Batch:  # fmt: skip
    """Read the batch of a layout. Padded places read the zero row, so all pads are zero."""
    places = layout.places
    codes = storage.codes if storage.sizes.discrete else None
    steps = read_windows(
        storage.fields, places.token, places.step, codes, several_a_row=layout.reset is not None
    )
    previous = steps.previous_action
    observation = storage.read_observation(places.token, steps.observation)
    if previous_reward:  # as with actions: that of a token follows its left neighbor
        observation = observation._replace(previous_reward=pad(steps.reward, (1, 0)))
    if true_previous_action:
        before = _row_before(windows, storage)
        last_actions = storage.read_actions(before)
        previous.view(-1, storage.sizes.action).index_copy_(0, places.begins, last_actions)
        if observation.previous_reward is not None:
            rewards = observation.previous_reward.view(-1)
            rewards.index_copy_(0, places.begins, storage.read("reward", before))
    return Batch(
        observation, *steps[1:], places.valid, places.lengths, layout.reset, layout.episode,
        _elapsed(layout, windows) if elapsed else None,
    )  # fmt: skip


def _elapsed(layout: Layout, windows: Windows) -> Tensor:
    """How many stored steps of its episode lie before each token, (B, T+1); 0 at pads."""
    if layout.elapsed is not None:
        return layout.elapsed
    token, lengths = layout.places.token, layout.places.lengths
    column = torch.arange(token.shape[1], device=token.device)
    return (windows.before[:, None] + column).masked_fill(column >= lengths[:, None], 0)


def _row_before(windows: Windows, storage: Storage) -> Tensor:
    """The row before each window's first token; nothing where the stored episode begins there."""
    row = windows.stream * storage.rows + torch.remainder(windows.first - 1, storage.rows)
    return row.masked_fill(windows.before == 0, storage.nothing)
