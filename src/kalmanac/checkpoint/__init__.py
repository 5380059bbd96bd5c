"""Checkpoints: documents as checked files, the replay as chained segments, the last two kept."""

from kalmanac.checkpoint.document import BadFileError, Kind, decode, encode
from kalmanac.checkpoint.folder import CHECKPOINT, Checkpoint, CheckpointFolder
from kalmanac.checkpoint.segments import Chain, Segments

__all__ = [
    "CHECKPOINT",
    "BadFileError",
    "Chain",
    "Checkpoint",
    "CheckpointFolder",
    "Kind",
    "Segments",
    "decode",
    "encode",
]
