"""The model file: a document under its name only when it is whole, with spaces as plain JSON."""

import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from numpy.typing import NDArray

from kalmanac._files.document import Kind, decode, encode
from kalmanac._files.durable import write_whole

FOLDER_MODEL = "model.safetensors"  # in a folder for sharing
KINDS = "Box, Discrete, MultiDiscrete, MultiBinary, Tuple or Dict"


def space_to_json(space: gymnasium.Space[Any]) -> dict[str, Any]:
    """A dictionary of JSON's own types."""
    if isinstance(space, Box):
        return {
            "type": "Box",
            "shape": list(space.shape),
            "dtype": str(space.dtype),
            "low": _bound(space.low),
            "high": _bound(space.high),
        }
    if isinstance(space, Discrete):
        return {
            "type": "Discrete",
            "n": int(space.n),
            "start": int(space.start),
            "dtype": str(space.dtype),
        }
    if isinstance(space, MultiDiscrete):
        return {
            "type": "MultiDiscrete",
            "nvec": space.nvec.tolist(),
            "start": space.start.tolist(),
            "dtype": str(space.dtype),
        }
    if isinstance(space, MultiBinary):
        n = space.n  # a number or a shape: Gymnasium tells 4 and (4,) apart
        return {"type": "MultiBinary", "n": int(n) if isinstance(n, int) else [int(m) for m in n]}
    if isinstance(space, Tuple):
        return {"type": "Tuple", "spaces": [space_to_json(inner) for inner in space]}
    if isinstance(space, Dict):
        # pairs, not an object: their order is the order of the features
        return {"type": "Dict", "spaces": [[k, space_to_json(inner)] for k, inner in space.items()]}
    raise TypeError(f"space: got {type(space).__name__}, expected {KINDS}")


def space_from_json(document: dict[str, Any]) -> gymnasium.Space[Any]:
    """The space that `space_to_json` wrote down."""
    kind = document.get("type")
    if kind == "Box":
        dtype = np.dtype(document["dtype"])
        shape = tuple(document["shape"])
        low, high = (_array(document[side], shape, dtype) for side in ("low", "high"))
        return Box(low, high, shape, dtype.type)
    if kind == "Discrete":
        dtype = np.dtype(document["dtype"])
        return Discrete(document["n"], start=document["start"], dtype=dtype.type)
    if kind == "MultiDiscrete":
        dtype = np.dtype(document["dtype"])
        return MultiDiscrete(document["nvec"], dtype=dtype.type, start=document["start"])
    if kind == "MultiBinary":
        return MultiBinary(document["n"])
    if kind == "Tuple":
        return Tuple([space_from_json(inner) for inner in document["spaces"]])
    if kind == "Dict":
        return Dict(OrderedDict((k, space_from_json(inner)) for k, inner in document["spaces"]))
    raise ValueError(f"space: got type {kind!r}, expected {KINDS}")


def _bound(bound: NDArray[Any]) -> str | list[str]:
    """Numbers as text: JSON has no infinities. One number where all are the same."""
    words = [repr(x) for x in bound.ravel().tolist()]
    return words[0] if len(set(words)) == 1 else words


def _array(words: str | list[str], shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    read = int if np.issubdtype(dtype, np.integer) else float
    if isinstance(words, str):
        return np.full(shape, read(words), dtype)
    return np.array([read(word) for word in words], dtype).reshape(shape)


MODEL = Kind("kalmanac-model", 2, "`save`", unsigned=1)


def write_model(path: str | os.PathLike[str], document: dict[str, Any]) -> Path:
    """Write `document`; without a suffix, the name gets `.safetensors`. Returns the path."""
    target = with_suffix(path, ".safetensors")
    content = encode(document, MODEL)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, content)
    return target


def read_model(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The document in a model file, or in a model folder; its tensors on the CPU."""
    source = Path(path) if Path(path).exists() else with_suffix(path, ".safetensors")
    if source.is_dir():
        source /= FOLDER_MODEL
    if not source.exists():
        raise FileNotFoundError(
            f"path: got {os.fspath(path)!r}, expected an existing model file or folder"
        )
    return decode(source.read_bytes(), MODEL, str(source))


def with_suffix(path: str | os.PathLike[str], suffix: str) -> Path:
    """The path, with this suffix where it has none."""
    target = Path(path)
    return target if target.suffix else target.with_suffix(suffix)
