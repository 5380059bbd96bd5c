"""How a scan is laid over the device: channels a program, steps a chunk, segments a row."""

from itertools import pairwise
from typing import NamedTuple

LANES_ENOUGH = 4096  # B·N from which on the device is busy without cutting the time axis
STEPS_ENOUGH = 512  # shorter rows are not worth three more launches
LANES_OF_THE_DEVICE = 16896  # 132 multiprocessors, four warps each: below, memory waits on them
WHOLE = 16, 13  # steps of a chunk, where these make up a row: 13 for the 65 tokens of 64 steps
SEGMENT = 128  # steps a segment: long enough that the chain over segments stays short


class Tiling(NamedTuple):
    """The launch constants of one kernel."""

    block: int  # channels a program
    warps: int
    prefetch: int  # chunks, beyond the one loaded ahead, that are brought into the cache


class Segments(NamedTuple):
    """K segments of S steps make a row."""

    steps: int
    parts: int


class Span(NamedTuple):
    """Steps begin … end-1 of all rows, and where their beliefs are saved."""

    begin: int
    end: int
    saved: slice


def cut_in_time(rows: int, steps: int, channels: int) -> bool:
    """Segments pay only where batch × channels is small and the sequence long."""
    return rows * channels <= LANES_ENOUGH and steps >= STEPS_ENOUGH


def kalman_chunk(
    rows: int, steps: int, channels: int, padded: bool, flagged: bool, most: int = 16
) -> int:
    """Steps a chunk of the Kalman scan, which is also the distance between saved beliefs.

    Longer chunks keep more loads in flight, but Triton's compile time grows with the cube of the
    loads in a kernel: seconds at 8, most of a minute at 16. So the plain case gets 16 or 13, and
    one with flags or time-varying process noise, whose kernels are the largest, gets 4.
    """
    if flagged or steps <= 4:
        return 4
    odd = padded or channels % 32 or cut_in_time(rows, steps, channels)
    return min(next((size for size in WHOLE if steps % size == 0 and not odd), 8), most)


def linear_chunk(rows: int, steps: int, channels: int) -> int:
    """Steps a chunk of the linear scan."""
    return 8 if steps % 16 or channels % 32 or cut_in_time(rows, steps, channels) else 16


def tiling(rows: int, steps: int, channels: int) -> Tiling:
    """One channel a lane, two warps a program. Where the device has less than one warp for each of
    its schedulers, long sequences are also brought into the cache one chunk earlier than loaded.
    """
    prefetch = int(rows * channels <= LANES_OF_THE_DEVICE and steps >= 2048)
    return Tiling(*((64, 2) if channels % 64 == 0 else (32, 1)), prefetch)


def segments(rows: int, steps: int, channels: int, chunk: int) -> Segments:
    """How many segments make a row, and of how many steps."""
    if cut_in_time(rows, steps, channels):
        return Segments(SEGMENT, -(-steps // SEGMENT))
    return Segments(-(-steps // chunk) * chunk, 1)


def spans(
    rows: int, steps: int, channels: int, padded: bool, flagged: bool, most: int = 16
) -> list[Span]:
    """The parts of a row that go to the device one after the other.

    Where only the last few steps do not fill a chunk, as the last of T + 1 tokens, the others take
    the kernel that is made for whole chunks, in half the time, and these follow on their own.
    """
    whole = steps - steps % 16
    plain = not padded and not flagged and not cut_in_time(rows, steps, channels)
    left = steps % kalman_chunk(rows, steps, channels, padded, flagged, most)
    ends = [0, whole, steps] if plain and channels % 32 == 0 and whole and left else [0, steps]
    found, at = [], 0
    for begin, end in pairwise(ends):
        chunk = kalman_chunk(rows, end - begin, channels, padded, flagged, most)
        size = rows * -(-(end - begin) // chunk) * 2 * channels
        found.append(Span(begin, end, slice(at, at + size)))
        at += size
    return found


def saved_shape(
    rows: int, steps: int, channels: int, padded: bool, flagged: bool
) -> tuple[int, ...]:
    """The beliefs (m, P) before every chunk, from which the backward replays."""
    return (spans(rows, steps, channels, padded, flagged)[-1].saved.stop,)
