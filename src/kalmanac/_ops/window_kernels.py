"""Windows of a replay: drawn and laid out in one launch, read in another.

As tensor operations that is some fifty launches, for index arithmetic on a few thousand places.
"""

from collections.abc import Mapping

import torch
import triton
import triton.language as tl
from torch import Tensor

FIELDS = 8  # stream, first, steps, burn-in, before, slot, begin, tokens


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
    tl.store(windows + 5 * B + b, slot)
    tl.store(windows + 6 * B + b, (b * WIDTH).to(tl.int64))
    tl.store(windows + 7 * B + b, steps + 1)
    for begin in range(0, WIDTH, BLOCK):
        t = begin + tl.arange(0, BLOCK)
        row = stream * ROWS + (first + t) % ROWS
        tl.store(token + b * WIDTH + t, tl.where(t <= steps, row, NOTHING), mask=t < WIDTH)
        inside = t < WIDTH - 1
        at = b * (WIDTH - 1) + t
        tl.store(step + at, tl.where(t < steps, row, NOTHING), mask=inside)
        tl.store(valid + at, (t < steps) & (t >= warm), mask=inside)


@triton.jit
def read(
    observation, action, reward, terminated, token, step,
    seen, previous, taken, gained, over, tokens, WIDTH, N, A,
    DISCRETE: tl.constexpr, OP: tl.constexpr, AP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """BLOCK tokens: the observation, and what followed it, whose action the next token sees."""
    i = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    inside = i < tokens
    t = i % WIDTH
    c, a = tl.arange(0, OP)[None, :], tl.arange(0, AP)[None, :]
    row = tl.load(token + i, mask=inside, other=0)[:, None]
    here = inside[:, None] & (c < N)
    tl.store(seen + i[:, None] * N + c, tl.load(observation + row * N + c, mask=here), mask=here)

    follows = inside & (t < WIDTH - 1)
    at = i - i // WIDTH  # of (rows, WIDTH - 1)
    row = tl.load(step + at, mask=follows, other=0)
    there = follows[:, None] & (a < A)
    if DISCRETE:
        number = tl.load(action + row, mask=follows, other=0)
        chosen = (number[:, None] == a).to(taken.dtype.element_ty)
    else:
        chosen = tl.load(action + row[:, None] * A + a, mask=there)
    tl.store(taken + at[:, None] * A + a, chosen, mask=there)
    tl.store(previous + (i[:, None] + 1) * A + a, chosen, mask=there)
    first = (inside & (t == 0))[:, None] & (a < A)
    tl.store(previous + i[:, None] * A + a, tl.zeros_like(chosen), mask=first)
    tl.store(gained + at, tl.load(reward + row, mask=follows), mask=follows)
    tl.store(over + at, tl.load(terminated + row, mask=follows), mask=follows)


def read_windows(
    fields: Mapping[str, Tensor], token: Tensor, step: Tensor, actions: int, discrete: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Observations (B, W, O), previous actions (B, W, A), actions (B, W-1, A), rewards (B, W-1) and
    ends (B, W-1) at the storage rows of tokens and transitions; discrete actions as one-hot codes.
    """
    observation, reward, terminated = (fields[n] for n in ("observation", "reward", "terminated"))
    (rows, width), size = token.shape, observation.shape[1]
    found = (
        observation.new_empty(rows, width, size),
        observation.new_empty(rows, width, actions),
        observation.new_empty(rows, width - 1, actions),
        reward.new_empty(rows, width - 1),
        terminated.new_empty(rows, width - 1),
    )
    columns = [max(triton.next_power_of_2(n), 2) for n in (size, actions)]
    block = min(triton.next_power_of_2(max(4096 // max(columns), 1)), 128)  # tokens a program
    read[(triton.cdiv(rows * width, block),)](
        observation, fields["action"], reward, terminated, token, step, *found, rows * width,
        width, size, actions, DISCRETE=discrete, OP=columns[0], AP=columns[1], BLOCK=block,
    )  # fmt: skip
    return found


def place_windows(
    numbers: Tensor, entries: Tensor, episodes: Tensor, *, rows: int, nothing: int, context: int,
    burn_in: int, width: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Windows (8, B), storage rows of tokens (B, W) and of transitions (B, W-1), and `valid`."""
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
