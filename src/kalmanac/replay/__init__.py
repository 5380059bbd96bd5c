"""Replay: steps go in, right-padded batches of sub-trajectories come out."""

from kalmanac.observation import Observation, Sizes
from kalmanac.ops.windows import Windows
from kalmanac.replay.buffer import Replay, bytes_needed
from kalmanac.replay.journal import (
    Books,
    Changes,
    Piece,
    books,
    expect_books,
    least_bytes,
    pieces,
    rebuild,
)
from kalmanac.replay.sampling import RULES, Batch

__all__ = [
    "RULES",
    "Batch",
    "Books",
    "Changes",
    "Observation",
    "Piece",
    "Replay",
    "Sizes",
    "Windows",
    "books",
    "bytes_needed",
    "expect_books",
    "least_bytes",
    "pieces",
    "rebuild",
]
