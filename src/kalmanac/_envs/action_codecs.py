"""From an agent's actions, numbers or vectors, to those of an environment's space, and back."""

import functools
from abc import ABC, abstractmethod
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Space = gymnasium.Space[Any]
MOST_JOINT_ACTIONS = 4096
_ROUNDING = 1e-5  # how far beyond ±1 an action may be by rounding


class ActionCodec(ABC):
    """An action codec turns an agent's actions into those of an environment.

    The agent's actions are int64 (n,), 0 … A−1, for a discrete space; float32 (n, A) in [−1, 1]
    for a continuous one.
    """

    size: int  # A
    discrete: bool

    @abstractmethod
    def decode(self, actions: Any) -> NDArray[Any]:
        """Return what a vector environment's `step` takes, for a batch of the agent's actions."""

    @abstractmethod
    def encode(self, actions: Any) -> NDArray[Any]:
        """Reverse `decode`; ValueError for what is no action of the space."""

    @abstractmethod
    def sample(
        self, rng: np.random.Generator, n: int, mask: NDArray[np.bool_] | None = None
    ) -> NDArray[Any]:
        """Draw `n` actions of the agent uniformly among those that `mask` (n, A) allows."""

    def mask(self, values: Any) -> NDArray[np.bool_]:
        """Return masks as an environment gives them, (n, …) with A numbers each, as bool (n, A)."""
        if not self.discrete:
            raise ValueError("action_mask: got one, expected none for continuous actions")
        array = np.asarray(values)
        if array.ndim < 2 or int(np.prod(array.shape[1:])) != self.size:
            raise ValueError(
                f"action_mask: got shape {array.shape}, expected ('n', {self.size}): "
                "one flag for each action"
            )
        flags = array.reshape(len(array), self.size)
        if flags.dtype != np.bool_ and not np.isin(flags, (0, 1)).all():
            wrong = flags[~np.isin(flags, (0, 1))][0]
            raise ValueError(
                f"action_mask: got {wrong}, expected 1 where an action is allowed, else 0"
            )
        return flags.astype(np.bool_)


def action_codec(space: Space) -> ActionCodec:
    """Make the codec for actions of one environment's `space`."""
    if isinstance(space, spaces.Discrete):
        return DiscreteAction(space)
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        return JointAction(space)
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return BoxAction(space)
    raise TypeError(
        f"action space: got {space}, "
        "expected Discrete, MultiDiscrete, MultiBinary or a Box of floats"
    )


def mask_of_choices(space: Space, flags: Any) -> NDArray[np.bool_]:
    """Return sb3-contrib's mask, a flag for each choice, as one for each action, (A,).

    MultiDiscrete and MultiBinary spaces have the flags of their choices one after another; a
    combination is allowed where all of its choices are.
    """
    given = np.asarray(flags).ravel()
    if isinstance(space, spaces.Discrete):
        return given
    counts = _counts(space)
    if len(given) != sum(counts):
        raise ValueError(f"action_masks: got {len(given)} flags, expected {sum(counts)}")
    each = np.split(given.astype(np.bool_), np.cumsum(counts)[:-1])
    return functools.reduce(np.logical_and.outer, each).ravel()


def _counts(space: Any) -> tuple[int, ...]:
    """How many answers each choice of a MultiDiscrete or MultiBinary space has."""
    if isinstance(space, spaces.MultiBinary):
        return (2,) * int(np.prod(space.shape))
    return tuple(int(n) for n in space.nvec.ravel())


class DiscreteAction(ActionCodec):
    """Actions 0 … A−1, counted from the space's own start."""

    discrete = True

    def __init__(self, space: spaces.Discrete) -> None:
        self._start = int(space.start)
        self.size = int(space.n)

    def decode(self, actions: Any) -> NDArray[np.int64]:
        """(n,) → (n,)."""
        return _integers("action", np.asarray(actions), 0, self.size) + self._start

    def encode(self, actions: Any) -> NDArray[np.int64]:
        """(n,) → (n,)."""
        return _integers("action", np.asarray(actions), self._start, self.size) - self._start

    def sample(
        self, rng: np.random.Generator, n: int, mask: NDArray[np.bool_] | None = None
    ) -> NDArray[np.int64]:
        """int64 (n,)."""
        return _sample(rng, n, self.size, mask)


class JointAction(ActionCodec):
    """Several choices at once as one of their A combinations, the last choice counting fastest."""

    discrete = True

    def __init__(self, space: spaces.MultiDiscrete | spaces.MultiBinary) -> None:
        self._counts = _counts(space)
        self._shape, self._dtype = space.shape, space.dtype
        counts_from = (
            space.start if isinstance(space, spaces.MultiDiscrete) else np.zeros(space.shape)
        )
        self._start = np.ravel(counts_from).astype(np.int64)
        self.size = int(np.prod(np.array(self._counts, dtype=object)))
        if self.size > MOST_JOINT_ACTIONS:
            raise ValueError(
                f"action space: got {space} with {self.size} joint actions, expected at most "
                f"{MOST_JOINT_ACTIONS}: the agent values every combination on its own"
            )

    def decode(self, actions: Any) -> NDArray[Any]:
        """(n,) → (n, *shape)."""
        joint = _integers("action", np.asarray(actions), 0, self.size)
        choices = np.stack(np.unravel_index(joint, self._counts), axis=1) + self._start
        return choices.reshape(len(joint), *self._shape).astype(self._dtype)

    def encode(self, actions: Any) -> NDArray[np.int64]:
        """(n, *shape) → (n,)."""
        rows = _rows(np.asarray(actions), self._shape)
        columns = zip(rows.reshape(len(rows), -1).T, self._start, self._counts, strict=True)
        choices = [_integers("action", x, int(at), n) - at for x, at, n in columns]
        return np.ravel_multi_index(choices, self._counts).astype(np.int64)

    def sample(
        self, rng: np.random.Generator, n: int, mask: NDArray[np.bool_] | None = None
    ) -> NDArray[np.int64]:
        """int64 (n,)."""
        return _sample(rng, n, self.size, mask)


class BoxAction(ActionCodec):
    """[−1, 1] in every coordinate, mapped affinely to the Box's bounds."""

    discrete = False

    def __init__(self, space: spaces.Box) -> None:
        if not space.is_bounded():
            raise ValueError(f"action space: got {space}, expected finite bounds")
        if 0 in space.shape:
            raise ValueError(f"action space: got {space}, expected at least one number")
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

    def encode(self, actions: Any) -> NDArray[np.float32]:
        """(n, *shape) → (n, A)."""
        rows = _rows(np.asarray(actions), self._space.shape)
        values = rows.reshape(len(rows), self.size).astype(np.float64)
        width = self._high - self._low
        inner = 2.0 * (values - self._low) / np.where(width > 0, width, 1.0) - 1.0
        inner[:, width == 0] = 0.0
        if not (np.abs(inner) <= 1 + _ROUNDING).all():
            raise ValueError(
                f"action: got {values.min()} to {values.max()}, expected values within the bounds "
                f"of {self._space}"
            )
        return inner.clip(-1, 1).astype(np.float32)

    def sample(
        self, rng: np.random.Generator, n: int, mask: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float32]:
        """float32 (n, A)."""
        return rng.uniform(-1, 1, size=(n, self.size)).astype(np.float32)


def _rows(actions: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    if actions.shape[1:] != shape or not actions.ndim:
        raise ValueError(f"action: got shape {actions.shape}, expected {('n', *shape)}")
    return actions


def _sample(
    rng: np.random.Generator, n: int, size: int, mask: NDArray[np.bool_] | None
) -> NDArray[np.int64]:
    if mask is None:
        return rng.integers(size, size=n)
    lots = 1.0 - rng.random((n, size))  # above 0: a forbidden action never wins
    return (lots * mask).argmax(1)


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
