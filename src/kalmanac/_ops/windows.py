"""Windows of stored episodes as rows of a batch: which steps, where they lie, what stands there.

All of it is index arithmetic on tensors of fixed shape, without a host read. As plain operations
that is some fifty launches on a GPU, for a few thousand places; as kernels of ours it is two.

A table of episodes has `entries` (3, slots): stream, position of the first token, and transitions
of each; the first `episodes` of them can be drawn. Positions of a stream lie in a ring of `rows`
storage rows, and behind the last stream the row `nothing` stays zero, which pads read.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from kalmanac._ops.dispatch import fused

LENGTH = 2  # the row of a table's entries


class Windows(NamedTuple):
    """Stretches of stored episodes, each (B,) int64. Burn-in steps are the first `burn_in` of
    `steps`."""

    stream: Tensor
    first: Tensor  # the position of the first token, burn-in included
    steps: Tensor  # transitions, burn-in included: steps + 1 tokens
    burn_in: Tensor  # transitions that only warm the encoder up
    before: Tensor  # stored transitions of the episode before the first token
    slot: Tensor  # of the episode in the table


class Places(NamedTuple):
    """For each place of a batch with one window a row, the storage row that it shows."""

    token: Tensor  # (B, T+1)
    step: Tensor  # (B, T): as `token`, but nothing after the last token of a window
    valid: Tensor  # (B, T) bool
    lengths: Tensor  # (B,) tokens
    begins: Tensor  # (B,) the flat place of each window's first token


class Read(NamedTuple):
    """These are the values at the places of a batch."""

    observation: Tensor  # (B, T+1, O)
    previous_action: Tensor  # (B, T+1, A)
    action: Tensor  # (B, T, A), one-hot if discrete
    reward: Tensor  # (B, T)
    terminated: Tensor  # (B, T)


def place_windows(
    numbers: Tensor, entries: Tensor, episodes: Tensor, *, rows: int, nothing: int, context: int,
    burn_in: int, width: int,
) -> tuple[Windows, Places]:  # fmt: skip
    """Cut a window from an episode by each pair of `numbers` (2, B), and lay it in a row.

    `width` is context + burn_in + 1, the tokens of a row.
    """
    if fused(entries):
        from kalmanac._ops.window_kernels import place_windows as place

        columns, token, step, valid = place(
            numbers, entries, episodes, rows=rows, nothing=nothing, context=context,
            burn_in=burn_in, width=width,
        )  # fmt: skip
        *fields, begins, tokens = columns.unbind()
        return Windows(*fields), Places(token, step, valid, tokens, begins)
    slot, start, stop = cut_episodes(numbers, entries, episodes, context)
    windows = windows_of(entries, slot, start, stop, burn_in)
    return windows, one_a_row(windows, rows=rows, nothing=nothing, width=width)


def cut_episodes(
    numbers: Tensor, entries: Tensor, episodes: Tensor, context: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw an episode uniformly; all of it if L ≤ T, else the part in [o, o + T), o uniform.

    Returns its slot, and its transitions start … stop-1.
    """
    which, where = numbers
    slot = (which * episodes).long()
    length = entries[LENGTH].index_select(0, slot)
    long = length > context
    offset = (where * (length + (context - 1))).long() - (context - 1)
    start = (offset * long).clamp(min=0)
    return slot, start, torch.where(long, torch.minimum(offset + context, length), length)


def windows_of(entries: Tensor, slot: Tensor, start: Tensor, stop: Tensor, burn_in: int) -> Windows:
    """Return transitions start … stop-1 of episodes, extended to the left by up to `burn_in`."""
    stream, first, _ = entries.index_select(1, slot)
    warm = start.clamp(max=burn_in)
    before = start - warm
    return Windows(stream, first + before, stop - before, warm, before, slot)


def one_a_row(windows: Windows, *, rows: int, nothing: int, width: int) -> Places:
    """Place a window a row, `width` tokens wide."""
    place = torch.arange(width, device=windows.first.device)
    first = (windows.first % rows)[:, None] + place
    ring = first - (first >= rows) * rows  # cheaper than a remainder a place
    last = windows.steps[:, None]
    # masked_fill, not where: on CUDA, where would copy its scalar from the host, and no graph
    # could capture that.
    token = (windows.stream[:, None] * rows + ring).masked_fill_(place > last, nothing)
    follows = place[:-1] < last
    return Places(
        token=token,
        step=token[:, :-1].masked_fill(~follows, nothing),
        valid=follows & (place[:-1] >= windows.burn_in[:, None]),
        lengths=windows.steps + 1,
        begins=torch.arange(len(last), device=last.device) * width,
    )


def read_windows(
    fields: Mapping[str, Tensor], token: Tensor, step: Tensor, codes: Tensor | None, *,
    several_a_row: bool,
) -> Read:  # fmt: skip
    """Read storage rows at tokens (B, T+1) and transitions (B, T); pads are zero.

    Args:
        fields: observation (rows, O), action (rows, A) or numbers (rows,), reward and terminated.
        codes: the vectors (numbers, A) of discrete actions; None where actions are vectors.
        several_a_row: rows may hold several windows, one after another.
    """
    if fused(token) and not several_a_row:
        from kalmanac._ops.window_kernels import read_windows as read

        size = fields["action"].shape[1] if codes is None else codes.shape[1]
        return Read(*read(fields, token, step, size, codes is not None))
    action = read_rows(fields["action"], step)
    if codes is not None:
        action = read_rows(codes, action)
    # The action before a token is the one after its left neighbor, and nothing follows the last
    # token of a window: the first token of the next one sees zero.
    return Read(
        observation=read_rows(fields["observation"], token),
        previous_action=pad(action, (0, 0, 1, 0)),
        action=action,
        reward=read_rows(fields["reward"], step),
        terminated=read_rows(fields["terminated"], step),
    )


def token_pads(tokens: Tensor, lengths: Tensor) -> Tensor:
    """Return (B, W) bool for tokens (B, W, …): True behind `lengths` (B,)."""
    return torch.arange(tokens.shape[1], device=lengths.device) >= lengths[:, None]


def read_rows(field: Tensor, at: Tensor) -> Tensor:
    """Read a field at rows `at` of any shape, in that shape."""
    return field.index_select(0, at.reshape(-1)).view(*at.shape, *field.shape[1:])
