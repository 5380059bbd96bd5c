"""Replay: steps go in, right-padded batches of sub-trajectories come out."""

from kalmanac.ops.windows import Windows
from kalmanac.replay.batch import Batch, Sizes
from kalmanac.replay.books import Books, Piece, books, expect_books, least_bytes
from kalmanac.replay.changes import Changes, pieces, rebuild
from kalmanac.replay.drawing import RULES
from kalmanac.replay.replay import Replay, bytes_needed

__all__ = [
    "RULES",
    "Batch",
    "Books",
    "Changes",
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
