"""A process as others know it: its number, when it started, and where that number counts."""

import os
import socket
from pathlib import Path
from typing import NamedTuple


class Owner(NamedTuple):
    """A process, as it sees itself; what the system does not tell is 0 or empty.

    `started` is in the kernel's ticks since boot, `boot` names the start of the kernel and
    `namespace` the one that `pid` counts in. `flock` says whether the holder has the system's lock.
    """

    pid: int
    started: int
    host: str
    boot: str = ""
    namespace: str = ""
    flock: bool = False

    @classmethod
    def this(cls, *, flock: bool = True) -> "Owner":
        """The process that asks."""
        pid = os.getpid()
        return cls(pid, _started(pid), socket.gethostname(), _boot(), _namespace(), flock)

    @property
    def here(self) -> bool:
        """Whether it ran on this machine: under this kernel, or one of this host's name."""
        return self.host == socket.gethostname() or bool(self.boot and self.boot == _boot())

    @property
    def alive(self) -> bool:
        """Whether it still runs, as far as numbers tell; one out of sight counts as alive."""
        if not self.here:
            return True
        if self.boot and _boot() and self.boot != _boot():
            return False  # the machine has been started anew since
        if self.namespace and self.namespace != _namespace():
            return True
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # it runs, as somebody else's
        return _started(self.pid) == self.started

    def __str__(self) -> str:
        if not self.here:
            return f"process {self.pid} on {self.host}"
        if self.namespace and self.namespace != _namespace():
            return f"process {self.pid} of another container ({self.host}, {self.namespace})"
        return f"process {self.pid}"


def _boot() -> str:
    """The start of the kernel has a name of its own; empty where the system does not tell."""
    return _read("/proc/sys/kernel/random/boot_id")


def _namespace() -> str:
    """That process numbers count in; empty where the system does not tell."""
    try:
        return os.readlink("/proc/self/ns/pid")  # noqa: PTH115 (the text is no path)
    except OSError:
        return ""


def _started(pid: int) -> int:
    """Field 22 of /proc/PID/stat; 0 where the system has no such file."""
    state = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if not state:
        return 0
    if state[0] in ("Z", "X"):
        return -1  # dead, though nobody has asked for it yet
    return int(state[19])


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
