"""Who writes in a folder: a lock of the operating system, on a small file that names its holder.

A process is named by its number, by when it started, and by where that number counts.
"""

import errno
import fcntl
import json
import os
import socket
import stat
import time
import weakref
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple


class Owner(NamedTuple):
    """A process, as it sees itself; what the system does not provide is 0 or empty.

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
        """The process that calls this."""
        pid = os.getpid()
        return cls(pid, _started(pid), socket.gethostname(), _boot(), _namespace(), flock)

    @property
    def here(self) -> bool:
        """Whether it ran on this machine: under this kernel, or one of this host's name."""
        return self.host == socket.gethostname() or bool(self.boot and self.boot == _boot())

    @property
    def alive(self) -> bool:
        """Whether it still runs, as far as numbers show; one out of sight counts as alive."""
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
    """The kernel's name for this boot; empty where it has none."""
    return _read("/proc/sys/kernel/random/boot_id")


def _namespace() -> str:
    """The namespace that process numbers count in; empty where the system has none."""
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
        return -1  # dead, though its parent has not waited for it yet
    return int(state[19])


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


UNSUPPORTED = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK, errno.EINVAL)
PATIENCE = 0.2  # seconds: somebody who only looks has the lock for an instant
LONGEST = 4096  # bytes of the file that are read


class FolderInUseError(ValueError):
    """Another process writes in the folder.

    Examples:
        >>> from kalmanac import Experiment, FolderInUseError, run
        >>> experiment = Experiment(
        ...     env="track", total_steps=1, eval_every=1, eval_episodes=1, batch_size=1, num_envs=1
        ... )
        >>> try:
        ...     outcome = run(experiment, "runs/shared", events=False)
        ... except FolderInUseError as error:
        ...     print(error)  # whose process it is
    """


class FolderLock:
    """Held from `take` to `release`; of two that want it, one gets a `FolderInUseError`."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._handle: int | None = None

    def take(self) -> None:
        """Make the folder this process's own, unless a living one has it."""
        give_up = time.monotonic() + PATIENCE
        while self._handle is None:
            handle = _opened(self.file, os.O_RDWR | os.O_CREAT)
            try:
                ours = _flock(handle, fcntl.LOCK_EX)
                if not _taken(ours, _owner(handle)):
                    if _is(handle, self.file):
                        self._keep(handle, flock=bool(ours))
                    continue  # else the holder before has just removed its file
                if time.monotonic() >= give_up:
                    self._refuse(_owner(handle))
            finally:
                if self._handle is None:
                    os.close(handle)
            time.sleep(PATIENCE / 20)

    @property
    def mine(self) -> bool:
        """Whether it is held by this object."""
        return self._handle is not None

    def refuse(self) -> None:
        """Raise FolderInUseError if a living process has the folder; nothing changes."""
        if self.held():
            self._refuse(self.owner())

    def held(self) -> bool:
        """Whether a living process has the folder; one of another machine counts as alive."""
        try:
            handle = _opened(self.file, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            return _taken(_flock(handle, fcntl.LOCK_SH), _owner(handle))
        finally:
            os.close(handle)

    def release(self) -> None:
        """Let others in."""
        if self._handle is None:
            return
        handle, self._handle = self._handle, None
        _HELD.discard(self)
        try:
            if _is(handle, self.file):
                self.file.unlink(missing_ok=True)
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_UN)  # for children that have it open, too
        finally:
            os.close(handle)

    def owner(self) -> Owner | None:
        """Whom the file names; None without a file, or with one that names nobody."""
        try:
            handle = _opened(self.file, os.O_RDONLY)
        except (OSError, ValueError):
            return None
        try:
            return _owner(handle)
        finally:
            os.close(handle)

    def forget_after_fork(self) -> None:
        """A child that was forked has no part in the lock, and does not keep it when we die."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _keep(self, handle: int, *, flock: bool) -> None:
        """Write who has the folder, and hold on to the lock."""
        text = json.dumps(Owner.this(flock=flock)._asdict()) + "\n"
        os.ftruncate(handle, 0)
        os.pwrite(handle, text.encode(), 0)
        self._handle = handle
        _HELD.add(self)

    def _refuse(self, owner: Owner | None) -> None:
        gone = "" if owner is None or owner.here else f"; if that is gone, remove {self.file}"
        raise FolderInUseError(
            f"folder: got {self.file.parent}, in which {owner or 'another process'} is writing, "
            f"expected one that nobody writes in{gone}"
        )

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


_HELD: "weakref.WeakSet[FolderLock]" = weakref.WeakSet()  # by this process


def _after_fork() -> None:
    for lock in list(_HELD):
        lock.forget_after_fork()
    _HELD.clear()


os.register_at_fork(after_in_child=_after_fork)


def _opened(file: Path, how: int) -> int:
    """A plain file, with one name, that is no link; ValueError for anything else."""
    try:
        handle = os.open(file, how | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    except IsADirectoryError:
        raise ValueError(f"{file}: got a folder, expected a lock's file") from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise ValueError(f"{file}: got a link or a pipe, expected a lock's file") from None
        raise
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(handle)
        raise ValueError(f"{file}: got no file of its own, expected a lock's")
    return handle


def _flock(handle: int, kind: int) -> bool | None:
    """Take the system's lock; False where somebody has it, None where there are no such locks."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        return None
    return True


def _taken(ours: bool | None, owner: Owner | None) -> bool:
    """Whether somebody else has the folder, by what the lock and the file say."""
    if ours is False:
        return True
    if owner is None or (ours and owner.flock and owner.here):
        return False  # whoever had the system's lock would have it still
    return owner.alive


def _is(handle: int, file: Path) -> bool:
    """Whether the open file is the one that has this name."""
    try:
        named = file.lstat()
    except FileNotFoundError:
        return False
    return os.path.samestat(named, os.fstat(handle))


def _owner(handle: int) -> Owner | None:
    """Whom an open file names."""
    try:
        data = json.loads(os.pread(handle, LONGEST, 0))
        owner = Owner(
            int(data["pid"]), int(data["started"]), str(data["host"]),
            str(data.get("boot", "")), str(data.get("namespace", "")),
            data.get("flock") is True,
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    return owner if 0 < owner.pid < 2**31 else None  # kill(-1) would be everybody
