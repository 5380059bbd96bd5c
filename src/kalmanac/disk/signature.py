"""Which bytes this user wrote on this machine: HMAC-SHA256 with a secret that only the user reads.

The secret is made when something is signed for the first time. Where it cannot be kept, nothing is
signed and nothing counts as signed; nobody is stopped by that.
"""

import fcntl
import hmac
import os
import secrets
import stat
from pathlib import Path

from kalmanac.disk.durable import write_whole

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
    told = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (told if told.is_absolute() else Path.home() / ".config") / "kalmanac" / "secret"


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
        if (found := _read()) is None:
            if target.exists() and target.stat().st_uid != os.getuid():
                raise PermissionError(f"{target}: got a file of another user")  # and theirs to keep
            found = secrets.token_bytes(BYTES)
            write_whole(target, found, mode=0o600)
    finally:
        os.close(folder)
    return found
