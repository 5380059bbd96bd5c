"""Bytes that are on the disk when a call returns, and signatures that say who wrote them.

Old bytes stay until the new ones are there, and no link is followed. A signature is HMAC-SHA256
with a secret that only this user reads.
"""

import fcntl
import hmac
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import IO


class LinkError(ValueError):
    """A link, or something else that is no file or folder of its own, where one is expected."""


def refuse_link(path: Path) -> None:
    """Raise LinkError unless `path` is a file or a folder of its own, or is not there."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        kind = "a link" if stat.S_ISLNK(mode) else "neither a file nor a folder"
        raise LinkError(
            f"path: got {path}, which is {kind}, expected a file or a folder of its own"
        )


def write_whole(
    path: str | os.PathLike[str], content: bytes | Iterable[bytes], *, mode: int = 0o666
) -> None:
    """Write, fsync, rename, fsync of the folder: a crash leaves the old file or the new one.

    Content that comes in parts is never held as a whole. A link of that name is replaced, not
    followed. `mode` is what the umask is taken from.
    """
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    partial.unlink(missing_ok=True)  # of a process that had this number before
    try:
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "wb") as file:
            file.writelines([content] if isinstance(content, bytes) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)  # noqa: PTH105 (the name of the call that tests slow down)
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(target.parent)


def append(path: Path, length: int, content: bytes) -> None:
    """Put `content` behind the first `length` bytes; what a crash left there before is cut off."""
    refuse_link(path)
    created = not path.exists()
    with _opened(path, length) as file:
        file.truncate(length)
        file.seek(length)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    if created:
        sync_folder(path.parent)


def cut(path: Path, length: int) -> None:
    """Keep the first `length` bytes; ValueError where there are fewer."""
    refuse_link(path)
    size = path.stat().st_size if path.exists() else 0
    if size < length:
        raise ValueError(f"{path}: got {size:,} bytes, expected at least {length:,}")
    with _opened(path, length) as file:
        file.truncate(length)
        os.fsync(file.fileno())


def open_rows(path: Path) -> IO[str]:
    """A file for lines of text, from its end on; made where it is missing."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    return os.fdopen(os.open(path, flags, 0o666), "a", encoding="utf-8")


def _opened(path: Path, length: int) -> IO[bytes]:
    """Open for changes; a file with a second name becomes one of its own, `length` bytes long.

    Whoever has the other name (a copy of the folder made of hard links) keeps what it holds.
    """
    if path.exists() and path.stat().st_nlink > 1:
        with path.open("rb") as file:
            content = file.read(length)
        write_whole(path, content)
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666), "r+b")


def make_folder(folder: Path) -> None:
    """A folder that is there, and stays there."""
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Names in a folder reach the disk."""
    if os.name != "posix":
        return  # elsewhere a folder cannot be opened
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


BYTES = 32


def sign(content: bytes) -> str | None:
    """The signature in hexadecimal digits; None where no secret can be kept."""
    try:
        secret = _read() or _make()
    except (OSError, RuntimeError):  # read-only, full, or no home
        return None
    return hmac.digest(secret, content, "sha256").hex()


def signed(content: bytes, signature: str) -> bool:
    """Whether `signature` is what `sign` gave for these very bytes."""
    try:
        secret = _read()
    except (OSError, RuntimeError):
        return False
    if secret is None or not signature.isascii():
        return False
    return hmac.compare_digest(hmac.digest(secret, content, "sha256").hex(), signature)


def secret_file() -> Path:
    """Where the secret lies: below XDG_CONFIG_HOME, or ~/.config."""
    config = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (config if config.is_absolute() else Path.home() / ".config") / "kalmanac" / "secret"


def _read() -> bytes | None:
    """None where there is none, or one that others may know or have made."""
    try:
        with secret_file().open("rb") as file:
            about = os.fstat(file.fileno())
            own = about.st_uid == os.getuid() and not stat.S_IMODE(about.st_mode) & 0o077
            content = file.read(BYTES + 1)
    except FileNotFoundError:
        return None
    return content if own and len(content) == BYTES else None


def _make() -> bytes:
    """A new secret, unless another process has just made one."""
    target = secret_file()
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        if (secret := _read()) is None:
            if target.exists() and target.stat().st_uid != os.getuid():
                raise PermissionError(f"{target}: got a file of another user")  # and theirs to keep
            secret = secrets.token_bytes(BYTES)
            write_whole(target, secret, mode=0o600)
    finally:
        os.close(folder)
    return secret
