"""Who writes in a folder: a small file with a process and when it started.

A process that was killed leaves its file behind. Its number, or a process of that number with
another start, says so: such a lock is stale and is taken over.
"""

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from kalmanac.disk.durable import write_whole


class FolderInUseError(ValueError):
    """Another process writes in the folder."""


class Owner(NamedTuple):
    """A process: its number, its start in the kernel's ticks since boot (0: unknown), its host."""

    pid: int
    started: int
    host: str

    @classmethod
    def this(cls) -> "Owner":
        """The process that asks."""
        return cls(os.getpid(), _started(os.getpid()), socket.gethostname())

    @property
    def alive(self) -> bool:
        """Whether it still runs; a process of another host counts as alive."""
        if self.host != socket.gethostname():
            return True
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # it runs, as somebody else's
        return _started(self.pid) == self.started


class FolderLock:
    """Held from `take` to `release`; of two that want it, one gets a `FolderInUseError`."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._held = False

    def take(self) -> None:
        """Make the folder this process's own, unless a living one has it."""
        with _alone(self.file.parent):
            self.refuse()
            write_whole(self.file, (json.dumps(Owner.this()._asdict()) + "\n").encode())
        self._held = True

    def refuse(self) -> None:
        """FolderInUseError if a living process has the folder."""
        owner = self.owner()
        if owner is None or not owner.alive:
            return
        where, gone = "", ""
        if owner.host != socket.gethostname():
            where, gone = f" on {owner.host}", f"; if that is gone, remove {self.file}"
        raise FolderInUseError(
            f"folder: got {self.file.parent}, in which process {owner.pid}{where} is writing, "
            f"expected one that nobody writes in{gone}"
        )

    def release(self) -> None:
        """Let others in."""
        if self._held:
            self.file.unlink(missing_ok=True)
            self._held = False

    def owner(self) -> Owner | None:
        """Whom the file names; None without a file, or with one that names nobody."""
        try:
            found = json.loads(self.file.read_text(encoding="utf-8"))
            return Owner(int(found["pid"]), int(found["started"]), str(found["host"]))
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def __enter__(self) -> "FolderLock":
        self.take()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time looks at a lock and takes it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _started(pid: int) -> int:
    """Field 22 of /proc/PID/stat; 0 where the system has no such file."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    if stat.rpartition(")")[2].split()[0] in ("Z", "X"):
        return -1  # dead, though nobody has asked for it yet
    return int(stat.rpartition(")")[2].split()[19])
