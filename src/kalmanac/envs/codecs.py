"""Between Gymnasium's spaces and flat arrays: what an agent sees, and what an environment takes."""

from abc import ABC, abstractmethod
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv, VectorEnv, VectorWrapper
from numpy.typing import NDArray

from kalmanac.envs.observation_parts import Image, Part, parts

Space = gymnasium.Space[Any]
Environment = gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any]
MOST_JOINT_ACTIONS = 4096
_ROUNDING = 1e-5  # how far beyond ±1 an action may be by rounding


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
    def sample(
        self, rng: np.random.Generator, n: int, mask: NDArray[np.bool_] | None = None
    ) -> NDArray[Any]:
        """`n` actions of the agent, uniformly at random among those that `mask` (n, A) allows."""

    def mask(self, values: Any) -> NDArray[np.bool_]:
        """Masks as an environment tells them, (n, …) with A numbers each, as bool (n, A)."""
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


class ObservationCodec:
    """Turns a batch of observations into rows of features, and images into rows of pixels.

    The features of all parts stand side by side in the order of the space: numbers as they are,
    one-hot codes for choices. Images stay uint8, apart from the features.

    A Dict with a key "action_mask" that fits the actions of `actions` carries a mask: it is told
    by `action_mask`, and is no feature.
    """

    def __init__(self, space: Space, actions: "ActionCodec | None" = None) -> None:
        found = parts(space)
        self._mask: Part | None = None
        if isinstance(space, spaces.Dict) and actions is not None and actions.discrete:
            for part in found:
                if part.path == ("action_mask",) and np.prod(part.shape) == actions.size:
                    self._mask = part
        self._parts = [part for part in found if part is not self._mask]
        self._features = [part for part in self._parts if not isinstance(part, Image)]
        self._images = [part for part in self._parts if isinstance(part, Image)]
        if not any(part.width for part in self._parts):
            raise ValueError(f"observation space: got {space}, expected at least one part to see")
        self.size = sum(part.width for part in self._features)  # O
        self.images = tuple(part.channels_first for part in self._images)  # (C, H, W) each
        # (O,) bool: numbers that a normaliser may scale; the others are codes
        self.scaled = np.repeat(
            np.array([part.scaled for part in self._features], np.bool_),
            [part.width for part in self._features],
        )

    @property
    def tells_action_mask(self) -> bool:
        """Whether an action mask comes inside the observation."""
        return self._mask is not None

    def encode(self, batch: Any) -> NDArray[np.float32]:
        """A batch as a vector environment gives it, or a list of observations: (n, O)."""
        found = [part.encode(part.rows(batch)) for part in self._features]
        if not found:
            return np.zeros((len(self._images[0].rows(batch)), 0), np.float32)
        return found[0] if len(found) == 1 else np.concatenate(found, axis=1)

    def pixels(self, batch: Any) -> NDArray[np.uint8] | None:
        """The images of the same batch, (n, P) one after another; None without images."""
        if not self._images:
            return None
        return np.concatenate([part.encode(part.rows(batch)) for part in self._images], axis=1)

    def action_mask(self, batch: Any) -> NDArray[Any] | None:
        """The masks inside the observations, (n, …); None if there are none."""
        return None if self._mask is None else self._mask.rows(batch)

    def as_batch(self, observation: Any) -> tuple[Any, bool]:
        """A batch, and whether a single observation was given instead."""
        first = self._parts[0]
        if not first.path:
            observation = np.asarray(observation)
        elif isinstance(observation, list):
            return observation, False
        single = first.is_single(observation)
        return ([observation] if single else observation), single


def observation_codec(space: Space, actions: ActionCodec | None = None) -> ObservationCodec:
    """The codec for observations of one environment's `space`."""
    return ObservationCodec(space, actions)


def action_codec(space: Space) -> ActionCodec:
    """The codec for actions of one environment's `space`."""
    if isinstance(space, spaces.Discrete):
        return DiscreteAction(space)
    if isinstance(space, spaces.MultiDiscrete):
        return JointAction(space)
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return BoxAction(space)
    raise TypeError(
        f"action space: got {space}, expected Discrete, MultiDiscrete or a Box of floats"
    )


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


class DiscreteAction(ActionCodec):
    """Actions 0 … A−1, counted from the space's own start."""

    discrete = True

    def __init__(self, space: spaces.Discrete) -> None:
        self._start = int(space.start)
        self.size = int(space.n)

    def decode(self, actions: Any) -> NDArray[np.int64]:
        """(n,) → (n,)."""
        return _integers("action", np.asarray(actions), 0, self.size) + self._start

    def sample(
        self, rng: np.random.Generator, n: int, mask: NDArray[np.bool_] | None = None
    ) -> NDArray[np.int64]:
        """int64 (n,)."""
        return _sample(rng, n, self.size, mask)


class JointAction(ActionCodec):
    """Several choices at once as one of their A combinations, the last choice counting fastest."""

    discrete = True

    def __init__(self, space: spaces.MultiDiscrete) -> None:
        self._counts = tuple(int(n) for n in space.nvec.ravel())
        self._shape, self._dtype = space.nvec.shape, space.dtype
        self._start = np.ravel(space.start)
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

    def sample(
        self, rng: np.random.Generator, n: int, mask: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float32]:
        """float32 (n, A)."""
        return rng.uniform(-1, 1, size=(n, self.size)).astype(np.float32)


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
