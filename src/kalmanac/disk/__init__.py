"""Files that survive a crash: replaced as a whole, appended to the disk, and locked."""

from kalmanac.disk.durable import append, cut, make_folder, write_whole
from kalmanac.disk.lock import FolderInUseError, FolderLock
from kalmanac.disk.owner import Owner

__all__ = [
    "FolderInUseError",
    "FolderLock",
    "Owner",
    "append",
    "cut",
    "make_folder",
    "write_whole",
]
