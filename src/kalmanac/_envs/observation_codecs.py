"""From observations of an environment's space to the vector and the images of an `Observation`,
and back.

A space is a tree of Tuple and Dict with leaves of other kinds. A leaf becomes features, one-hot
where it counts choices, or stays an image.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv, VectorWrapper
from numpy.typing import NDArray

from kalmanac._envs.action_codecs import ActionCodec
from kalmanac._observation import Observation

Space = gymnasium.Space[Any]
Environment = gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any]
Path = tuple[str | int, ...]  # keys and places from the root to a leaf
SMALLEST_IMAGE = 8  # pixels a side: a smaller uint8 array is a table of numbers


class Part(ABC):
    """A part is one leaf of an observation space."""

    scaled = False  # True: measured numbers, which a normalizer may shift and scale

    def __init__(self, path: Path, shape: tuple[int, ...], width: int) -> None:
        self.path, self.shape, self.width = path, shape, width
        self.name = "observation" + "".join(f"[{key!r}]" for key in path)

    def rows(self, batch: Any) -> NDArray[Any]:
        """Return this leaf of a batch, (n, *shape).

        A batch is what a vector environment gives, or a list of observations; `final_obs` comes
        as an array of those.
        """
        if not self.path:
            return self._checked(self._stacked(batch))
        if isinstance(batch, list) or (isinstance(batch, np.ndarray) and batch.dtype == object):
            return self._checked(self._stacked([self._select(row) for row in batch]))
        return self._checked(self._stacked(self._select(batch)))

    @abstractmethod
    def encode(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Turn rows (n, *shape) into (n, width): float32 features, or uint8 pixels of an image."""

    @abstractmethod
    def decode(self, encoded: NDArray[Any]) -> NDArray[Any]:
        """Reverse `encode`, up to the precision of float32."""

    def is_single(self, observation: Any) -> bool:
        """Return whether this is one observation, and not a batch of them."""
        shape = np.shape(self._select(observation))
        if shape == self.shape:
            return True
        if shape[1:] == self.shape and len(shape) == len(self.shape) + 1 and shape[0]:
            return False
        raise ValueError(
            f"{self.name}: got shape {shape}, expected {self.shape} or {('n', *self.shape)}"
        )

    def _select(self, observation: Any) -> Any:
        for key in self.path:
            try:
                observation = observation[key]
            except (KeyError, IndexError, TypeError):
                received = type(observation).__name__
                raise ValueError(
                    f"{self.name}: got {received} without {key!r}, expected it"
                ) from None
        return observation

    def _stacked(self, batch: Any) -> NDArray[Any]:
        if isinstance(batch, np.ndarray) and batch.dtype != object:
            return batch
        if isinstance(batch, Mapping) or not isinstance(batch, np.ndarray | Sequence):
            raise TypeError(
                f"{self.name}: got {type(batch).__name__}, expected an array or a sequence"
            )
        missing = sum(row is None for row in batch)
        if missing:
            raise ValueError(
                f"{self.name}: got {missing} × None, expected an observation in every row"
            )
        return np.asarray(list(batch))

    def _checked(self, rows: NDArray[Any]) -> NDArray[Any]:
        if len(rows) and rows.shape[1:] != self.shape:
            expected = ("n", *self.shape)
            raise ValueError(f"{self.name}: got shape {rows.shape}, expected {expected}")
        return rows


class Numbers(Part):
    """A Box or a MultiBinary of any shape, flattened."""

    def __init__(self, path: Path, space: Space, *, scaled: bool) -> None:
        shape = space.shape or ()
        super().__init__(path, shape, int(np.prod(shape)))
        self.scaled, self._dtype = scaled, space.dtype

    def encode(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        """See `Part`."""
        return rows.reshape(len(rows), self.width).astype(np.float32)

    def decode(self, encoded: NDArray[Any]) -> NDArray[Any]:
        """See `Part`."""
        return encoded.reshape(len(encoded), *self.shape).astype(self._dtype)


class Choices(Part):
    """A Discrete or MultiDiscrete space, one-hot for each of its numbers."""

    def __init__(self, path: Path, space: spaces.Discrete | spaces.MultiDiscrete) -> None:
        shape = () if isinstance(space, spaces.Discrete) else space.nvec.shape
        counts = np.ravel(space.n if isinstance(space, spaces.Discrete) else space.nvec)
        self.counts, self.start = counts.astype(np.int64), np.ravel(space.start).astype(np.int64)
        self._first, self._dtype = self.counts.cumsum() - self.counts, space.dtype
        super().__init__(path, tuple(int(n) for n in shape), int(self.counts.sum()))

    def encode(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        """See `Part`."""
        if len(rows) and not np.issubdtype(rows.dtype, np.integer):
            expected = f"integers of shape {('n', *self.shape)}"
            raise ValueError(
                f"{self.name}: got {rows.dtype} of shape {rows.shape}, expected {expected}"
            )
        index = rows.reshape(len(rows), len(self.counts)).astype(np.int64) - self.start
        outside = ((index < 0) | (index >= self.counts)).any(0)
        if outside.any():
            at = int(outside.argmax())
            low, values = int(self.start[at]), index[:, at] + self.start[at]
            raise ValueError(
                f"{self.name}: got {values.min()} to {values.max()}, "
                f"expected {low} to {low + int(self.counts[at]) - 1}"
            )
        features = np.zeros((len(rows), self.width), np.float32)
        features[np.arange(len(rows))[:, None], self._first + index] = 1.0
        return features

    def decode(self, encoded: NDArray[Any]) -> NDArray[Any]:
        """See `Part`; a missing reading, all zeros, becomes the first choice."""
        codes = np.split(encoded, self._first[1:], axis=1)
        index = np.stack([code.argmax(1) for code in codes], axis=1) + self.start
        return index.reshape(len(encoded), *self.shape).astype(self._dtype)


class Image(Part):
    """A uint8 Box of 0 … 255 with two or three axes; channels may come first or last."""

    def __init__(self, path: Path, space: spaces.Box) -> None:
        channels, height, width = (1, *space.shape) if len(space.shape) == 2 else space.shape
        self.channels_last = len(space.shape) == 3 and width <= channels
        if self.channels_last:
            channels, height, width = width, channels, height
        self.channels_first = (channels, height, width)
        super().__init__(path, space.shape, int(np.prod(space.shape)))

    def encode(self, rows: NDArray[Any]) -> NDArray[np.uint8]:
        """Return the pixels (n, C · H · W), channel by channel."""
        if len(rows) and rows.dtype != np.uint8:
            raise ValueError(f"{self.name}: got {rows.dtype}, expected uint8")
        if self.channels_last and len(rows):
            rows = np.moveaxis(rows, -1, 1)
        return rows.reshape(len(rows), self.width).astype(np.uint8)

    def decode(self, encoded: NDArray[Any]) -> NDArray[np.uint8]:
        """See `Part`."""
        rows = encoded.reshape(len(encoded), *self.channels_first)
        rows = np.moveaxis(rows, 1, -1) if self.channels_last else rows
        return rows.reshape(len(encoded), *self.shape)


def is_image(space: Space) -> bool:
    """Return whether `space` is a uint8 Box of 0 … 255 with sides of at least 8 pixels.

    With three axes the channels are the first or the last, whichever is shorter.
    """
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8:
        return False
    sides = list(space.shape)
    if len(sides) == 3:
        sides.pop(2 if sides[2] <= sides[0] else 0)
    elif len(sides) != 2:
        return False
    full = bool((space.low == 0).all() and (space.high == 255).all())
    return full and min(sides) >= SMALLEST_IMAGE


def parts(space: Space, path: Path = ()) -> list[Part]:
    """List the leaves of `space` in order; kinds that cannot be read are refused by name."""
    if isinstance(space, spaces.Box):
        return [Image(path, space) if is_image(space) else Numbers(path, space, scaled=True)]
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return [Choices(path, space)]
    if isinstance(space, spaces.MultiBinary):
        return [Numbers(path, space, scaled=False)]
    if isinstance(space, spaces.Dict):
        return [part for key, inner in space.items() for part in parts(inner, (*path, key))]
    if isinstance(space, spaces.Tuple):
        return [part for i, inner in enumerate(space) for part in parts(inner, (*path, i))]
    where = "".join(f"[{key!r}]" for key in path)
    raise TypeError(
        f"observation space: got {space}{where and f' at {where}'}, expected Box, Discrete, "
        "MultiDiscrete, MultiBinary, or a Tuple or Dict of them"
    )


class ObservationCodec:
    """This codec turns a batch of observations into the vector and the images of an `Observation`.

    The features of all parts stand side by side in the order of the space: numbers as they are,
    one-hot codes for choices. Images stay uint8, apart from the features.

    A Dict with a key "action_mask" that fits the actions of `actions` carries a mask: `action_mask`
    reads it, and it is no feature.
    """

    def __init__(self, space: Space, actions: ActionCodec | None = None) -> None:
        leaves, self._space = parts(space), space
        self._mask: Part | None = None
        if isinstance(space, spaces.Dict) and actions is not None and actions.discrete:
            for part in leaves:
                if part.path == ("action_mask",) and np.prod(part.shape) == actions.size:
                    self._mask = part
        self.leaves = [part for part in leaves if part is not self._mask]
        self._features = [part for part in self.leaves if not isinstance(part, Image)]
        self._images = [part for part in self.leaves if isinstance(part, Image)]
        if not any(part.width for part in self.leaves):
            raise ValueError(f"observation space: got {space}, expected at least one part to see")
        self.size = sum(part.width for part in self._features)  # O
        self.images = tuple(part.channels_first for part in self._images)  # (C, H, W) each
        # (O,) bool: numbers that a normalizer may scale; the others are codes
        self.scaled = np.repeat(
            np.array([part.scaled for part in self._features], np.bool_),
            [part.width for part in self._features],
        )
        self.measured: NDArray[np.bool_] | None = None  # (O,); None: sensors read all of them

    @property
    def has_action_mask(self) -> bool:
        """Return whether an action mask comes inside the observation."""
        return self._mask is not None

    def encode(self, batch: Any) -> Observation[NDArray[Any]]:
        """Return the vector (n, O) and the images (n, P) of a batch.

        The batch is what a vector environment gives, or a list of observations.
        """
        features = [part.encode(part.rows(batch)) for part in self._features]
        images = [part.encode(part.rows(batch)) for part in self._images]
        if not features:
            features = [np.zeros((len(images[0]), 0), np.float32)]
        vector = features[0] if len(features) == 1 else np.concatenate(features, axis=1)
        return Observation(vector, np.concatenate(images, axis=1) if images else None)

    def decode(self, observation: Observation[NDArray[Any]]) -> Any:
        """Return a batch as a vector environment gives it; see `Part.decode`."""
        rows: dict[Path, NDArray[Any]] = {}
        encoded = (observation.vector, self._features), (observation.images, self._images)
        for values, leaves in encoded:
            at = 0
            for part in leaves:
                assert values is not None
                rows[part.path] = part.decode(values[:, at : at + part.width])
                at += part.width
        if self._mask is not None:
            assert observation.action_mask is not None
            rows[self._mask.path] = self._mask.decode(observation.action_mask)
        return _tree(self._space, (), rows)

    def action_mask(self, batch: Any) -> NDArray[Any] | None:
        """Return the masks inside the observations, (n, …); None if there are none."""
        return None if self._mask is None else self._mask.rows(batch)

    def set_unmeasured(self, unmeasured: Sequence[int]) -> tuple[int, ...]:
        """Take places of a vector that no sensor reads, which are never missing; see `places`."""
        self.measured, shape = None, self._space.shape
        if not np.size(unmeasured):
            return ()
        if not isinstance(self._space, spaces.Box) or shape is None or len(shape) != 1:
            raise TypeError(f"unmeasured: got places in {self._space}, expected a Box of one axis")
        found = places(unmeasured, shape[0])
        self.measured = np.ones(shape[0], np.bool_)
        self.measured[list(found)] = False
        return found

    def as_batch(self, observation: Any) -> tuple[Any, bool]:
        """Return a batch, and whether the argument was a single observation."""
        first = self.leaves[0]
        if not first.path:
            observation = np.asarray(observation)
        elif isinstance(observation, list):
            return observation, False
        single = first.is_single(observation)
        return ([observation] if single else observation), single


def _tree(space: Space, path: Path, leaves: Mapping[Path, NDArray[Any]]) -> Any:
    """Leaves by their path, in the form of a batch of `space`."""
    if isinstance(space, spaces.Dict):
        return {key: _tree(inner, (*path, key), leaves) for key, inner in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_tree(inner, (*path, i), leaves) for i, inner in enumerate(space))
    return leaves[path]


def observation_codec(space: Space, actions: ActionCodec | None = None) -> ObservationCodec:
    """Make the codec for observations of one environment's `space`."""
    return ObservationCodec(space, actions)


def privileged_space(env: Environment) -> spaces.Box | None:
    """Return the space of `info["privileged"]`, an environment's true state; None: it has none.

    An environment declares it as an attribute `privileged_space`; see `declared`.
    """
    space, _ = declared(env, "privileged_space")
    if space is not None and (not isinstance(space, spaces.Box) or len(space.shape) != 1):
        raise TypeError(f"privileged_space: got {space}, expected a Box with one axis")
    return space


def unmeasured_places(env: Environment) -> tuple[int, ...]:
    """Return the places of an observation, a vector, that no sensor reads, such as a reference.

    An environment declares them as an attribute `unmeasured`; see `declared`. A wrapper that leaves
    numbers out or moves them declares its own: where the length is another one, there are none, and
    a warning says so.
    """
    given, layer = declared(env, "unmeasured")
    if given is None or not np.size(given):
        return ()
    shape, own = (_space_of(x).shape for x in (env, layer))
    if shape != own or own is None or len(own) != 1:
        warnings.warn(
            f"unmeasured: got {given} of an observation of shape {own}, expected places of one of "
            f"shape {shape}, with one axis: a wrapper that changes the shape declares its own, () "
            "if it has none; there are none now, and a missing reading is zeros everywhere",
            stacklevel=2,
        )
        return ()
    return places(given, own[0])


def places(given: Any, size: int) -> tuple[int, ...]:
    """Return places of a vector in order, each once, counted from its beginning."""
    expected = f"expected places of 0 to {size - 1}, such as ({size - 1},)"
    array = np.asarray(given)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise TypeError(f"unmeasured: got {given!r}, {expected}")
    if ((array < -size) | (array >= size)).any():
        raise ValueError(f"unmeasured: got {given!r}, {expected}")
    return tuple(sorted({int(place) % size for place in array}))


def _space_of(env: Any) -> Space:
    return env.single_observation_space if isinstance(env, VectorEnv) else env.observation_space


def declared(env: Environment, name: str) -> tuple[Any, Any]:
    """Return what an environment has as an attribute `name`, None for nothing, and which layer.

    Wrappers and copies in a `SyncVectorEnv` are looked through, and those of an `AsyncVectorEnv`
    are asked.
    """
    layer: Any = env
    while layer is not None:
        value = getattr(layer, name, None)
        if value is None and isinstance(layer, AsyncVectorEnv):
            # first whether there is one: what an environment cannot answer ends all processes
            known = all(layer.call("has_wrapper_attr", name))
            value = layer.get_attr(name)[0] if known else None
        if value is not None:
            return value, layer
        if isinstance(layer, gymnasium.Wrapper | VectorWrapper):
            layer = layer.env
        else:
            layer = layer.envs[0] if isinstance(layer, SyncVectorEnv) else None
    return None, None
