"""The model file: a document of `kalmanac.checkpoint`, under its name only when it is whole."""

import os
from pathlib import Path
from typing import Any

from kalmanac.checkpoint import Kind, decode, encode
from kalmanac.disk import write_whole

MODEL = Kind("kalmanac-model", 2, "`save`", unsigned=1)


def write_model(path: str | os.PathLike[str], document: dict[str, Any]) -> Path:
    """Write `document`; without a suffix, the name gets `.safetensors`. Returns the path."""
    target = _named(path)
    content = encode(document, MODEL)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, content)
    return target


def read_model(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The document in a model file, its tensors on the CPU."""
    source = Path(path) if Path(path).exists() else _named(path)
    if not source.exists():
        raise FileNotFoundError(f"path: got {os.fspath(path)!r}, expected an existing model file")
    return decode(source.read_bytes(), MODEL, str(source))


def _named(path: str | os.PathLike[str]) -> Path:
    target = Path(path)
    return target if target.suffix else target.with_suffix(".safetensors")
