"""Gymnasium's spaces as plain JSON, so that a saved policy acts without its environment."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray


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
    raise TypeError(f"space: got {type(space).__name__}, expected Box or Discrete")


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
    raise ValueError(f"space: got type {kind!r}, expected 'Box' or 'Discrete'")


def _bound(bound: NDArray[Any]) -> str | list[str]:
    """Numbers as text: JSON has no infinities. One number where all are the same."""
    words = [repr(x) for x in bound.ravel().tolist()]
    return words[0] if len(set(words)) == 1 else words


def _array(words: str | list[str], shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    read = int if np.issubdtype(dtype, np.integer) else float
    if isinstance(words, str):
        return np.full(shape, read(words), dtype)
    return np.array([read(word) for word in words], dtype).reshape(shape)
