"""A replay in one file: a line that names it, then records, each chained to the one before.

A record is its length in 8 bytes and a document (`kalmanac._files.document`) with the SHA-256
of the record before. The first says what the replay is, then come its pieces, and the last one says
that it is the last. They are written and read one at a time: a large replay is not held twice.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from kalmanac._files.document import (
    MALFORMED,
    BadFileError,
    Kind,
    decode,
    digest_of,
    encode,
    malformed,
)
from kalmanac._files.durable import write_whole
from kalmanac._replay.buffer import Replay
from kalmanac._replay.journal import Books, books, expect_books, least_bytes, pieces, rebuild

REPLAY = Kind("kalmanac-replay-file", 1, "`save_replay_buffer`")
PIECE = 8 * 2**20  # bytes of a piece, about
_LINE = b"kalmanac-replay-file\n"
_LENGTH = struct.Struct("<Q")


class StoredReplay(NamedTuple):
    """What a replay's file says of it before the pieces come."""

    file: Path
    about: dict[str, Any]  # what its owner gave
    streams: int
    capacity: int | None
    books: Books

    def restore(self, replay: Replay) -> None:
        """Fill an empty replay of the same sizes, streams and capacity; BadFileError if damaged."""
        records = _records(self.file)
        next(records, None)  # what is known already
        with understood(self.file):
            if least_bytes(replay, self.books) > self.file.stat().st_size:
                raise ValueError("books of more rows than the file has room for")
            rebuild(replay, self.books, (record["piece"] for record in records))


def write_replay(file: Path, replay: Replay, about: dict[str, Any]) -> None:
    """Write all that the replay holds, and what is to be known `about` it."""
    write_whole(file, _content(replay, about))


def read_replay(file: Path) -> StoredReplay:
    """A replay's file, as far as it can be told before its pieces; BadFileError if it is none."""
    first = next(_records(file), None)
    with understood(file):
        if first is None:
            raise ValueError("nothing but an end")
        stored = StoredReplay(
            file, dict(first["about"]), first["streams"], first["capacity"], dict(first["books"])
        )
        expect_books(stored.books, stored.streams, stored.capacity)
    return stored


@contextmanager
def understood(file: Path) -> Iterator[None]:
    """What goes wrong inside is the fault of a whole file that makes no sense: BadFileError."""
    try:
        yield
    except BadFileError:
        raise
    except MALFORMED as error:
        raise malformed(str(file), error) from None


def _content(replay: Replay, about: dict[str, Any]) -> Iterator[bytes]:
    yield _LINE
    digest = ""
    for document in _documents(replay, about):
        record = encode({"previous": digest} | document, REPLAY)
        digest = digest_of(record)
        yield _LENGTH.pack(len(record))
        yield record


def _documents(replay: Replay, about: dict[str, Any]) -> Iterator[dict[str, Any]]:
    own = {"streams": replay.streams, "capacity": replay.capacity, "books": books(replay)}
    yield {"about": about} | own
    for piece in pieces(replay, PIECE):
        yield {"piece": piece}
    yield {"last": True}


def _records(file: Path) -> Iterator[dict[str, Any]]:
    """All documents but the last; BadFileError where the chain is broken or the end is missing."""
    left, digest = file.stat().st_size - len(_LINE), ""
    with file.open("rb") as opened:
        if opened.read(len(_LINE)) != _LINE:
            raise BadFileError(f"path: got {file}, expected a file written by {REPLAY.writer}")
        while left >= _LENGTH.size:
            (length,) = _LENGTH.unpack(opened.read(_LENGTH.size))
            left -= _LENGTH.size + length
            if left < 0:
                break
            record = opened.read(length)
            document = decode(record, REPLAY, str(file))
            if document.get("previous") != digest:
                break
            digest = digest_of(record)
            if "last" in document and left == 0:
                return
            yield document
    raise BadFileError(f"path: got {file}, which is damaged: its records are cut or not its own")
