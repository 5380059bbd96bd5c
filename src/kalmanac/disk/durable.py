"""Bytes that are on the disk when a call returns, and old ones that stay until they are."""

import os
from collections.abc import Iterable
from pathlib import Path


def write_whole(path: str | os.PathLike[str], content: bytes | Iterable[bytes]) -> None:
    """Write, fsync, rename, fsync of the folder: a crash leaves the old file or the new one.

    Content that comes in parts is never held as a whole.
    """
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.writelines([content] if isinstance(content, bytes) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)  # noqa: PTH105 (the name of the call that tests slow down)
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(target.parent)


def append(path: Path, length: int, content: bytes) -> None:
    """Put `content` behind the first `length` bytes; what a crash left there before is cut off."""
    created = not path.exists()
    with path.open("r+b" if not created else "xb") as file:
        file.truncate(length)
        file.seek(length)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    if created:
        sync_folder(path.parent)


def cut(path: Path, length: int) -> None:
    """Keep the first `length` bytes; ValueError where there are fewer."""
    size = path.stat().st_size if path.exists() else 0
    if size < length:
        raise ValueError(f"{path}: got {size:,} bytes, expected at least {length:,}")
    with path.open("ab") as file:
        file.truncate(length)
        os.fsync(file.fileno())


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
