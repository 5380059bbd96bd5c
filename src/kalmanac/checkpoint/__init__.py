"""Checkpoints: documents as checked files, the replay as chained segments, the last two kept."""

from kalmanac.checkpoint.document import MALFORMED, BadFileError, Kind, decode, encode, malformed
from kalmanac.checkpoint.folder import CHECKPOINT, Checkpoint, CheckpointFolder
from kalmanac.checkpoint.replay_file import KeptReplay, read_replay, write_replay
from kalmanac.checkpoint.segments import Chain, Segments

__all__ = [
    "CHECKPOINT",
    "MALFORMED",
    "BadFileError",
    "Chain",
    "Checkpoint",
    "CheckpointFolder",
    "KeptReplay",
    "Kind",
    "Segments",
    "decode",
    "encode",
    "malformed",
    "read_replay",
    "write_replay",
]
