"""Windows of a replay, drawn and laid out in one launch: index arithmetic on a few thousand places.

As tensor operations it is some forty launches, as many as all losses of an update take.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

FIELDS = 6  # stream, first, steps, burn-in, before, begin


@triton.jit
def place(
    numbers, entries, episodes, windows, token, step, valid, B, SLOTS, ROWS, NOTHING,
    CONTEXT, BURN_IN, WIDTH, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row: which part of which episode, and the storage row of every token and transition."""
    b = tl.program_id(0)
    count = tl.load(episodes).to(tl.float64)
    slot = (tl.load(numbers + b) * count).to(tl.int64)
    stream = tl.load(entries + slot)
    first = tl.load(entries + SLOTS + slot)
    length = tl.load(entries + 2 * SLOTS + slot)
    ways = (length + CONTEXT - 1).to(tl.float64)
    offset = (tl.load(numbers + B + b) * ways).to(tl.int64) - (CONTEXT - 1)
    long = length > CONTEXT
    start = tl.where(long, tl.maximum(offset, 0), 0)
    stop = tl.where(long, tl.minimum(offset + CONTEXT, length), length)
    warm = tl.minimum(start, BURN_IN)
    before = start - warm
    steps = stop - before
    first += before
    tl.store(windows + b, stream)
    tl.store(windows + B + b, first)
    tl.store(windows + 2 * B + b, steps)
    tl.store(windows + 3 * B + b, warm)
    tl.store(windows + 4 * B + b, before)
    tl.store(windows + 5 * B + b, (b * WIDTH).to(tl.int64))
    for begin in range(0, WIDTH, BLOCK):
        t = begin + tl.arange(0, BLOCK)
        row = stream * ROWS + (first + t) % ROWS
        tl.store(token + b * WIDTH + t, tl.where(t <= steps, row, NOTHING), mask=t < WIDTH)
        inside = t < WIDTH - 1
        at = b * (WIDTH - 1) + t
        tl.store(step + at, tl.where(t < steps, row, NOTHING), mask=inside)
        tl.store(valid + at, (t < steps) & (t >= warm), mask=inside)


def place_windows(
    numbers: Tensor, entries: Tensor, episodes: Tensor, *, rows: int, nothing: int, context: int,
    burn_in: int, width: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Windows (6, B), storage rows of tokens (B, W) and of transitions (B, W-1), and `valid`."""
    batch, device = numbers.shape[1], entries.device
    windows = torch.empty(FIELDS, batch, dtype=torch.int64, device=device)
    token = torch.empty(batch, width, dtype=torch.int64, device=device)
    step = torch.empty(batch, width - 1, dtype=torch.int64, device=device)
    valid = torch.empty(batch, width - 1, dtype=torch.bool, device=device)
    place[(batch,)](
        numbers, entries, episodes, windows, token, step, valid, batch, entries.shape[1], rows,
        nothing, context, burn_in, width, BLOCK=128,
    )  # fmt: skip
    return windows, token, step, valid
