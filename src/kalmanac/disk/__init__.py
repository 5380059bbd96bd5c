"""Files that survive a crash: replaced as a whole, appended to the disk, and locked."""

from kalmanac.disk.durable import (
    LinkError,
    append,
    cut,
    make_folder,
    open_rows,
    refuse_link,
    write_whole,
)
from kalmanac.disk.lock import FolderInUseError, FolderLock
from kalmanac.disk.owner import Owner
from kalmanac.disk.signature import sign, signed

__all__ = [
    "FolderInUseError",
    "FolderLock",
    "LinkError",
    "Owner",
    "append",
    "cut",
    "make_folder",
    "open_rows",
    "refuse_link",
    "sign",
    "signed",
    "write_whole",
]
