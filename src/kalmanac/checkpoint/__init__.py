"""Checkpoints: documents as checked files, the replay as chained segments, the last two kept."""

from kalmanac.checkpoint.document import BadFileError, Kind, decode, encode
from kalmanac.checkpoint.folder import CHECKPOINT, Checkpoint, CheckpointFolder
from kalmanac.checkpoint.replay_file import KeptReplay, read_replay, write_replay
from kalmanac.checkpoint.segments import Chain, Segments

__all__ = [
    "CHECKPOINT",
    "BadFileError",
    "Chain",
    "Checkpoint",
    "CheckpointFolder",
    "KeptReplay",
    "Kind",
    "Segments",
    "decode",
    "encode",
    "read_replay",
    "write_replay",
]
