"""Which windows a batch takes: three rules, all on tensors of fixed shape and without a host read.

With L the transitions of an episode and T those of a window:

- `episodes`: an episode uniformly; all of it if L ≤ T, else the part inside [o, o + T) with o
  uniform over −(T−1) … L−1. Each step of a long episode, first and last included, is in T of
  those L+T−1 windows.
- `starts`: uniform over all starts 0 … max(L−T, 0) of all episodes.
- `transitions`: uniform over all steps as starts; the window is cut at the episode's end.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from kalmanac.ops.windows import Windows, cut_episodes, windows_of
from kalmanac.replay.episodes import LENGTH, Table


class Cut(NamedTuple):
    """Transitions start … stop−1 of the episode in a slot, each (B,) int64."""

    slot: Tensor
    start: Tensor
    stop: Tensor


def draw(
    table: Table, batch: int, context: int, *, rule: str, burn_in: int, generator: torch.Generator
) -> Windows:
    """Draw B windows of up to T = context transitions with replacement.

    Each is extended to the left by up to `burn_in` stored steps.
    """
    cut = RULES[rule](table, batch, context, generator)
    return windows_of(table.entries, *cut, burn_in)


def _episodes(table: Table, batch: int, context: int, generator: torch.Generator) -> Cut:
    numbers = uniform(table, batch, 2, generator)
    return Cut(*cut_episodes(numbers, *table, context))


def _starts(table: Table, batch: int, context: int, generator: torch.Generator) -> Cut:
    length = table.entries[LENGTH]
    starts = ((length - context).clamp(min=0) + 1) * (length > 0)
    return _one_of(starts, table, batch, context, generator)


def _transitions(table: Table, batch: int, context: int, generator: torch.Generator) -> Cut:
    return _one_of(table.entries[LENGTH], table, batch, context, generator)


def _one_of(
    starts: Tensor, table: Table, batch: int, context: int, generator: torch.Generator
) -> Cut:
    """Uniform over the first `starts` (slots,) steps of every episode."""
    ends = starts.cumsum(0)
    (where,) = uniform(table, batch, 1, generator)
    pick = (where * ends[-1]).long()
    slot = torch.searchsorted(ends, pick, right=True)
    start = pick - (ends - starts).index_select(0, slot)
    length = table.entries[LENGTH].index_select(0, slot)
    return Cut(slot, start, torch.minimum(start + context, length))


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
