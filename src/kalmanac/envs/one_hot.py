"""Values of any space as one row of floats: one-hot where it is discrete, as they are elsewhere."""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Row = spaces.Box[np.float32]
Leaves = Sequence[gymnasium.Space[Any]]

_MOST_ROWS = 4096  # of a table with every value of a space


def one_hot(space: gymnasium.Space[Any]) -> tuple[Row, Callable[[Any], Floats]]:
    """A flat Box for the values of `space`, and the function from a value to its row.

    Groups stand in the order of the space. Rows may come from a table: copy them before they are
    changed or handed out.
    """
    leaves = space.spaces if isinstance(space, spaces.Tuple) else (space,)
    box, sizes = _flat_box(leaves), [n for leaf in leaves for n in _counts(leaf)]
    if all(sizes) and np.prod(sizes) <= _MOST_ROWS:
        return box, _table(space, sizes)
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return box, lambda value: np.asarray(value, np.float32)
    fill = _filler(leaves)
    return box, fill if isinstance(space, spaces.Tuple) else lambda value: fill((value,))


def _table(space: gymnasium.Space[Any], sizes: Sequence[int]) -> Callable[[Any], Floats]:
    """Looks rows up, in the container that is fastest for such a value."""
    first = np.cumsum([0, *sizes[:-1]])
    rows: dict[tuple[int, ...], Floats] = {}
    for value in np.ndindex(*sizes):
        rows[value] = np.zeros(sum(sizes), np.float32)
        rows[value][first + value] = 1.0
    if isinstance(space, spaces.Discrete):
        return [*rows.values()].__getitem__
    if isinstance(space, spaces.Tuple):
        return rows.__getitem__
    packed = {np.array(value, np.int64).tobytes(): row for value, row in rows.items()}
    return lambda value: packed[np.asarray(value, np.int64).tobytes()]


def _filler(leaves: Leaves) -> Callable[[Any], Floats]:
    """Fills a new row, leaf by leaf."""
    places: list[tuple[bool, Any, tuple[int, ...]]] = []  # of a Box its slice, else first places
    end = 0
    for leaf in leaves:
        width = _width(leaf)
        if isinstance(leaf, spaces.Box):
            places.append((True, slice(end, end + width), (width,)))
        elif isinstance(leaf, spaces.Discrete):
            places.append((False, end, ()))
        else:
            places.append((False, end + np.cumsum([0, *_counts(leaf)[:-1]]), ()))
        end += width

    def fill(value: Any) -> Floats:
        row = np.zeros(end, np.float32)
        for (boxed, place, shape), part in zip(places, value, strict=True):
            if boxed:
                row[place] = part if part.shape == shape else part.reshape(shape)
            else:
                row[place + part] = 1.0
        return row

    return fill


def _counts(leaf: gymnasium.Space[Any]) -> list[int]:
    """How many values each discrete number of a space can have; a zero for a Box."""
    if isinstance(leaf, spaces.Discrete) and leaf.start == 0:
        return [int(leaf.n)]
    if isinstance(leaf, spaces.MultiDiscrete) and not leaf.start.any():
        return [int(n) for n in leaf.nvec.ravel()]
    if isinstance(leaf, spaces.Box):
        return [0]
    raise TypeError(f"space: got {leaf}, expected Box, Discrete or MultiDiscrete from 0 on")


def _width(leaf: gymnasium.Space[Any]) -> int:
    return int(np.prod(leaf.shape)) if isinstance(leaf, spaces.Box) else sum(_counts(leaf))


def _flat_box(leaves: Leaves) -> Row:
    largest = np.finfo(np.float32).max  # finite, because Gymnasium's checker asks for it
    low, high = [], []
    for leaf in leaves:
        width = _width(leaf)
        low.append(leaf.low.ravel() if isinstance(leaf, spaces.Box) else np.zeros(width))
        high.append(leaf.high.ravel() if isinstance(leaf, spaces.Box) else np.ones(width))
    least, most = (np.concatenate(side).clip(-largest, largest) for side in (low, high))
    return spaces.Box(least.astype(np.float32), most.astype(np.float32), dtype=np.float32)
