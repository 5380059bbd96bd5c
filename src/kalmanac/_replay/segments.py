"""The replay on disk: append-only segment files of records, each chained to the one before.

A record is its length in 8 bytes and a document: a piece of `journal.Changes`, and the SHA-256 of
the record before. A checkpoint holds the end of the chain, a few numbers whatever the replay's
length, and that fixes all records before it. What a crash leaves behind is cut off.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kalmanac._files.document import BadFileError, Kind, decode, digest_of, encode
from kalmanac._files.durable import append
from kalmanac._replay.journal import Piece

RECORD = Kind("kalmanac-replay", 1, "a run's checkpoints")
FULL = 8 * 2**20  # bytes from which on a new segment is begun
_LENGTH = struct.Struct("<Q")


class Chain(NamedTuple):
    """Where a chain of records ends, and the first segment that is still needed for it."""

    first: int = 0
    last: int = 0
    length: int = 0  # bytes of the last segment
    digest: str = ""  # of the last record

    @classmethod
    def read(cls, document: dict[str, Any]) -> "Chain":
        """Read it from a document; ValueError or TypeError for what is no place in a folder."""
        chain = cls(**document)
        for number in chain[:3]:
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                raise ValueError(f"{number!r} in a chain")
        if chain.first > chain.last or not isinstance(chain.digest, str):
            raise ValueError(f"a chain from {chain.first} to {chain.last}")
        return chain


class Segments:
    """Writes and reads the records in a folder."""

    def __init__(self, folder: Path, chain: Chain | None = None, *, full: int = FULL) -> None:
        self.folder, self.full = folder, full
        self.chain = Chain() if chain is None else chain
        self._ends: dict[int, NDArray[np.int64]] = {}  # segment → heads of the streams at its end

    def append(self, piece: Piece, tail: NDArray[np.int64]) -> Chain:
        """Append one record. `tail` (streams,): rows before it have left the replay."""
        chain = self.chain
        if chain.length >= self.full:
            chain = chain._replace(last=chain.last + 1, length=0)
        content = encode({"previous": chain.digest, "piece": piece}, RECORD)
        append(self.file(chain.last), chain.length, _LENGTH.pack(len(content)) + content)
        self._ends[chain.last] = piece["stop"]
        first = chain.first
        while first < chain.last and (self._ends[first] <= tail).all():
            first += 1
        self.chain = Chain(
            first, chain.last, chain.length + _LENGTH.size + len(content), digest_of(content)
        )
        return self.chain

    def read(self) -> Iterator[Piece]:
        """Yield all pieces up to the chain's end; BadFileError where the chain is broken."""
        chain, digest = self.chain, ""
        for number in range(chain.first, chain.last + 1):
            file = self.file(number)
            content = file.read_bytes() if file.is_file() else b""
            if number == chain.last:
                content = content[: chain.length]
            if len(content) < (chain.length if number == chain.last else 1):
                raise _broken(file)
            for record in _records(content, file):
                document = decode(record, RECORD, str(file))
                begins = not digest and chain.first > 0  # what was before it is gone
                if not begins and document.get("previous") != digest:
                    raise _broken(file)
                digest = digest_of(record)
                piece = document.get("piece")
                if not isinstance(piece, dict) or "stop" not in piece:
                    raise _broken(file)
                self._ends[number] = piece["stop"]
                yield piece
        if digest != chain.digest:
            raise _broken(self.file(chain.last))

    def drop(self, keep: range) -> None:
        """Remove the segments that are not in `keep`."""
        for file in self.folder.glob("replay-*.segment"):
            number = file.stem[7:]
            ours = number.isdecimal() and file == self.file(int(number))
            if ours and int(number) not in keep:
                file.unlink()

    def file(self, number: int) -> Path:
        """Where a segment lies."""
        return self.folder / f"replay-{number:06d}.segment"


def _records(content: bytes, file: Path) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        if at + _LENGTH.size > len(content):
            raise _broken(file)
        (length,) = _LENGTH.unpack_from(content, at)
        at += _LENGTH.size
        if at + length > len(content):
            raise _broken(file)
        yield content[at : at + length]
        at += length


def _broken(file: Path) -> BadFileError:
    return BadFileError(f"path: got {file}, which is damaged: the chain of its records is broken")
