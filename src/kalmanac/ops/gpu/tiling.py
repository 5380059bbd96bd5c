"""How a scan is laid over the device: channels a program, steps a chunk, segments a row."""

from typing import NamedTuple

LANES_ENOUGH = 4096  # B·N from which on the device is busy without cutting the time axis
STEPS_ENOUGH = 512  # shorter rows are not worth three more launches
SEGMENT = 128  # steps a segment: long enough that the chain over segments stays short


class Tiling(NamedTuple):
    """The launch constants of one kernel."""

    block: int  # channels a program
    chunk: int  # steps whose rows are loaded at once
    warps: int


class Segments(NamedTuple):
    """K segments of S steps make a row."""

    steps: int
    parts: int


CHUNK = 16  # steps between saved beliefs; forward and backward must agree on it


def tiling(rows: int, channels: int) -> Tiling:
    """One channel a lane; wider blocks where there are many programs."""
    block = 32
    while block < min(channels, 128) and rows * -(-channels // (2 * block)) >= 2 * 132:
        block *= 2
    return Tiling(block, CHUNK, max(block // 32, 1))


def segments(rows: int, steps: int, channels: int, cut: bool | None = None) -> Segments:
    """Cut the time axis only where batch × channels is small and the sequence long."""
    if cut is None:
        cut = rows * channels <= LANES_ENOUGH and steps >= STEPS_ENOUGH
    if not cut:
        return Segments(-(-steps // CHUNK) * CHUNK, 1)
    return Segments(SEGMENT, -(-steps // SEGMENT))


def saved_shape(rows: int, steps: int, channels: int) -> tuple[int, ...]:
    """The beliefs (m, P) before every chunk, from which the backward replays."""
    return rows, -(-steps // CHUNK), 2, channels
