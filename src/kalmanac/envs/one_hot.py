"""Values of any space as one row of floats: one-hot where it is discrete, as they are elsewhere."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, final

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Row = spaces.Box[np.float32]
Leaves = Sequence[gymnasium.Space[Any]]

_MOST_ROWS = 4096  # of a table with every value of a space


class Rows(Protocol):
    """The row of each value: a plain list or dictionary where it can be, because they are fast."""

    def __getitem__(self, value: Any, /) -> Floats: ...


def one_hot(space: gymnasium.Space[Any], copy: bool = True) -> tuple[Row, Rows]:
    """A flat Box for the values of `space`, and the rows of these values.

    Groups stand in the order of the space. Every row is new; without `copy`, it may also be one of
    a table, which others see too, and is read-only then.
    """
    leaves = space.spaces if isinstance(space, spaces.Tuple) else (space,)
    rows = _table(space, leaves)
    if rows is not None:
        return _flat_box(leaves), _Copies(rows) if copy else rows
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return _flat_box(leaves), _Converted()
    return _flat_box(leaves), _Filled(leaves, isinstance(space, spaces.Tuple))


def _table(space: gymnasium.Space[Any], leaves: Leaves) -> Rows | None:
    """Every row there is, if they are few."""
    sizes = [n for leaf in leaves for n in _counts(leaf)]
    if not all(sizes) or math.prod(sizes) > _MOST_ROWS:
        return None
    if isinstance(space, spaces.Discrete):
        return [*_every_row(sizes).values()]
    if all(isinstance(leaf, spaces.Discrete) for leaf in leaves):
        return _every_row(sizes)
    if isinstance(space, spaces.MultiDiscrete) and space.shape == (2,):
        return _Pairs(_every_row(sizes), sizes)
    return None


def _every_row(sizes: Sequence[int]) -> dict[tuple[int, ...], Floats]:
    """The row of every value, read-only."""
    first = np.cumsum([0, *sizes[:-1]])
    rows = {}
    for value in np.ndindex(*sizes):
        row = np.zeros(sum(sizes), np.float32)
        row[first + value] = 1.0
        row.flags.writeable = False
        rows[value] = row
    return rows


@final
class _Copies:
    """Copies of the rows of a table."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def __getitem__(self, value: Any, /) -> Floats:
        return self._rows[value].copy()


@final
class _Pairs:
    """The rows of arrays of two numbers."""

    def __init__(self, rows: Mapping[tuple[int, ...], Floats], sizes: Sequence[int]) -> None:
        ones, others = map(range, sizes)
        self._rows = [[rows[one, other] for other in others] for one in ones]

    def __getitem__(self, value: NDArray[Any], /) -> Floats:
        one, other = value.tolist()
        return self._rows[one][other]


@final
class _Converted:
    """Rows of numbers as they are."""

    def __getitem__(self, value: NDArray[Any], /) -> Floats:
        return np.array(value, np.float32)


@final
class _Filled:
    """New rows, filled leaf by leaf."""

    def __init__(self, leaves: Leaves, several: bool) -> None:
        self._several = several
        # of a Box its slice, else first places
        self._places: list[tuple[bool, Any, tuple[int, ...]]] = []
        end = 0
        for leaf in leaves:
            width = _width(leaf)
            if isinstance(leaf, spaces.Box):
                self._places.append((True, slice(end, end + width), (width,)))
            elif isinstance(leaf, spaces.Discrete):
                self._places.append((False, end, ()))
            else:
                first = end + np.cumsum([0, *_counts(leaf)[:-1]])
                self._places.append((False, first.reshape(leaf.shape), ()))
            end += width
        self._size = end

    def __getitem__(self, value: Any, /) -> Floats:
        row = np.zeros(self._size, np.float32)
        parts = value if self._several else (value,)
        for (boxed, place, shape), part in zip(self._places, parts, strict=True):
            if boxed:
                row[place] = part if part.shape == shape else part.reshape(shape)
            else:
                row[place + part] = 1.0
        return row


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
