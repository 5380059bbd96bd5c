"""Between Gymnasium's spaces and flat arrays: what an agent sees, and what an environment takes."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv, VectorEnv, VectorWrapper
from numpy.typing import NDArray

Space = gymnasium.Space[Any]
Environment = gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any]
_ROUNDING = 1e-5  # how far beyond ±1 an action may be by rounding


class ObservationCodec(ABC):
    """Turns a batch of observations into rows of features."""

    size: int  # O

    @abstractmethod
    def encode(self, batch: Any) -> NDArray[np.float32]:
        """A batch as a vector environment gives it, or a sequence of observations: (n, O)."""


class ActionCodec(ABC):
    """Turns an agent's actions into those of an environment.

    The agent's actions are int64 (n,), 0 … A−1, for a discrete space; float32 (n, A) in [−1, 1]
    for a continuous one.
    """

    size: int  # A
    discrete: bool

    @abstractmethod
    def decode(self, actions: Any) -> NDArray[Any]:
        """What a vector environment's `step` takes, for a batch of the agent's actions."""

    @abstractmethod
    def sample(self, rng: np.random.Generator, n: int) -> NDArray[Any]:
        """`n` actions of the agent, uniformly at random."""


def observation_codec(space: Space) -> ObservationCodec:
    """The codec for observations of one environment's `space`."""
    if isinstance(space, spaces.Box):
        return BoxObservation(space)
    if isinstance(space, spaces.Discrete):
        return DiscreteObservation(space)
    raise TypeError(f"observation space: got {space}, expected Box or Discrete")


def action_codec(space: Space) -> ActionCodec:
    """The codec for actions of one environment's `space`."""
    if isinstance(space, spaces.Discrete):
        return DiscreteAction(space)
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return BoxAction(space)
    raise TypeError(f"action space: got {space}, expected Discrete or a Box of floats")


def privileged_space(env: Environment) -> spaces.Box | None:
    """The space of `info["privileged"]`, an environment's true state; None if it tells none.

    An environment declares it as an attribute `privileged_space`; wrappers and copies in a
    `SyncVectorEnv` are looked through. An `AsyncVectorEnv` hides it in other processes: None.
    """
    layer: Any = env
    while layer is not None:
        space = getattr(layer, "privileged_space", None)
        if space is not None:
            if not isinstance(space, spaces.Box) or len(space.shape) != 1:
                raise TypeError(f"privileged_space: got {space}, expected a Box with one axis")
            return space
        if isinstance(layer, gymnasium.Wrapper | VectorWrapper):
            layer = layer.env
        else:
            layer = layer.envs[0] if isinstance(layer, SyncVectorEnv) else None
    return None


class BoxObservation(ObservationCodec):
    """A Box of any shape, flattened."""

    def __init__(self, space: spaces.Box) -> None:
        self._shape = space.shape
        self.size = int(np.prod(space.shape))

    def encode(self, batch: Any) -> NDArray[np.float32]:
        """(n, *shape) → (n, O)."""
        rows = _rows(batch)
        if rows.shape[1:] != self._shape and len(rows):
            raise ValueError(f"observation: got shape {rows.shape}, expected {('n', *self._shape)}")
        return rows.reshape(len(rows), self.size).astype(np.float32)


class DiscreteObservation(ObservationCodec):
    """A Discrete space, one-hot."""

    def __init__(self, space: spaces.Discrete) -> None:
        self._start = int(space.start)
        self.size = int(space.n)

    def encode(self, batch: Any) -> NDArray[np.float32]:
        """(n,) → (n, O)."""
        index = _integers("observation", _rows(batch), self._start, self.size)
        return np.eye(self.size, dtype=np.float32)[index - self._start]


class DiscreteAction(ActionCodec):
    """Actions 0 … A−1, counted from the space's own start."""

    discrete = True

    def __init__(self, space: spaces.Discrete) -> None:
        self._start = int(space.start)
        self.size = int(space.n)

    def decode(self, actions: Any) -> NDArray[np.int64]:
        """(n,) → (n,)."""
        return _integers("action", np.asarray(actions), 0, self.size) + self._start

    def sample(self, rng: np.random.Generator, n: int) -> NDArray[np.int64]:
        """int64 (n,)."""
        return rng.integers(self.size, size=n)


class BoxAction(ActionCodec):
    """[−1, 1] in every coordinate, mapped affinely to the Box's bounds."""

    discrete = False

    def __init__(self, space: spaces.Box) -> None:
        if not space.is_bounded():
            raise ValueError(f"action space: got {space}, expected finite bounds")
        self._space = space
        # In float64: the distance of large float32 bounds may be no float32.
        self._low, self._high = (x.ravel().astype(np.float64) for x in (space.low, space.high))
        self.size = self._low.size

    def decode(self, actions: Any) -> NDArray[Any]:
        """(n, A) → (n, *shape)."""
        actions = np.asarray(actions)
        if actions.ndim != 2 or actions.shape[1] != self.size:
            raise ValueError(f"action: got shape {actions.shape}, expected ('n', {self.size})")
        if not (np.abs(actions) <= 1 + _ROUNDING).all():
            raise ValueError(
                f"action: got {actions.min()} to {actions.max()}, expected values in [-1, 1]"
            )
        share = (actions.clip(-1, 1) + 1.0) / 2
        values = self._low * (1 - share) + self._high * share
        return values.reshape(len(actions), *self._space.shape).astype(self._space.dtype)

    def sample(self, rng: np.random.Generator, n: int) -> NDArray[np.float32]:
        """float32 (n, A)."""
        return rng.uniform(-1, 1, size=(n, self.size)).astype(np.float32)


def _rows(batch: Any) -> NDArray[Any]:
    """A batch as one array; `final_obs` comes as an array of arrays."""
    if isinstance(batch, np.ndarray) and batch.dtype != object:
        return batch
    if not isinstance(batch, np.ndarray | Sequence):
        raise TypeError(f"observation: got {type(batch).__name__}, expected an array or a sequence")
    missing = sum(row is None for row in batch)
    if missing:
        raise ValueError(f"observation: got {missing} × None, expected an observation in every row")
    return np.asarray(list(batch))


def _integers(name: str, values: NDArray[Any], start: int, n: int) -> NDArray[np.int64]:
    if values.ndim != 1 or (len(values) and not np.issubdtype(values.dtype, np.integer)):
        raise ValueError(
            f"{name}: got {values.dtype} of shape {values.shape}, expected integers of shape ('n',)"
        )
    if len(values) and (values.min() < start or values.max() >= start + n):
        raise ValueError(
            f"{name}: got {values.min()} to {values.max()}, expected {start} to {start + n - 1}"
        )
    return values.astype(np.int64)
