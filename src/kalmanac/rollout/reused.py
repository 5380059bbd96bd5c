"""Last observations that were lost before they came here, told by what has come instead.

An environment that fills one array again and again loses an episode's last observation when a
vector resets it within the step. Where `CopiesHandedOut` reaches the single environments this
cannot happen; in the processes of an `AsyncVectorEnv`, or in a vector of another library, it can.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

ENOUGH = 10  # episodes in a row


class LastObservations:
    """Watches the ends of episodes until one shows that last observations are what they should be.

    A last observation that equals the next episode's first one is a coincidence or none; ten of
    them, and none that differed, are worth a warning. Where nothing changed in the last step
    either, as where all observations are the same, an end says nothing.
    """

    def __init__(self) -> None:
        self._alike = 0
        self._settled = False

    def look(self, rows: Sequence[int], last: Sequence[Any], now: Any, before: Any) -> None:
        """Ends of the environments `rows`, with the vector's observations now and a step ago."""
        if self._settled:
            return
        for i, ending in zip(rows, last, strict=True):
            if not _equal(ending, _row(now, i)):
                self._settled = True
                return
            self._alike += not _equal(ending, _row(before, i))
        if self._alike >= ENOUGH:
            self._settled = True
            warnings.warn(
                f"env: got the next episode's first observation in place of the last one at each "
                f"of {self._alike} ends. An environment that fills one array again and again must "
                "return copies; in an AsyncVectorEnv, kalmanac.envs.Checkpointable around it does "
                "so",
                stacklevel=2,
            )


def _row(observation: Any, i: int) -> Any:
    """The observation of environment i in a vector's."""
    if isinstance(observation, dict):
        return {key: _row(value, i) for key, value in observation.items()}
    if isinstance(observation, tuple):
        return tuple(_row(value, i) for value in observation)
    return observation[i]


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return all(_equal(value, other[key]) for key, value in one.items())
    if isinstance(one, tuple | list):
        return all(_equal(*pair) for pair in zip(one, other, strict=True))
    return np.array_equal(one, other)
