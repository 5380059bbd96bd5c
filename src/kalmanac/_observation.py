"""What an agent observes at a step, in parts, and the sizes that fix their shapes.

One `Observation` travels from the codec of an environment through the policy, the replay and its
batches to the networks: first with arrays of n environments, then with tensors of tokens. To add a
part, add it to `Observation` and to `Sizes.observation_parts`; storage, checks and batches follow.
"""

import math
from collections.abc import Callable, Mapping
from operator import methodcaller
from typing import Any, Generic, NamedTuple, TypeVar

Array = TypeVar("Array", covariant=True)
Other = TypeVar("Other")

# Files that were written before a part had its name have it under another one.
STORED_NAMES = {"vector": "observation", "images": "pixels"}


class Observation(NamedTuple, Generic[Array]):
    """The parts of observations (…), arrays or tensors; None where an environment has no such part.

    A missing reading, where `observed` is False, has zeros in `images`, and in `vector` but for
    places that no sensor reads.
    """

    vector: Array  # (…, O) float32: numbers as they are, one-hot codes of choices
    images: Array | None = None  # (…, P) uint8: one image after another, each (C, H, W)
    observed: Array | None = None  # (…) bool: False where the reading is missing
    action_mask: Array | None = None  # (…, A) bool: False where an action is forbidden
    privileged: Array | None = None  # (…, S) float32: the true state, which only a critic may see
    # (…) float32: what the step before has brought, where the agent is to see it. Replays do not
    # store it: they have the rewards.
    previous_reward: Array | None = None

    def parts(self) -> dict[str, Array]:
        """Return the parts that are there, by name."""
        return {name: x for name, x in zip(self._fields, self, strict=True) if x is not None}

    def map(self, function: Callable[[Array], Other]) -> "Observation[Other]":
        """Apply `function` to every part that is there."""
        return Observation(*[None if x is None else function(x) for x in self])  # type: ignore[arg-type]

    def replace_rows(self, rows: Any, other: "Observation[Any]") -> "Observation[Array]":
        """Return a copy in which the rows `rows` (k,) of arrays are those of `other`."""
        copied: Observation[Any] = self.map(methodcaller("copy"))
        for name, x in other.parts().items():
            getattr(copied, name)[rows] = x
        return copied

    def to_stored(self) -> dict[str, Array]:
        """Return the parts that are there, by their names in files."""
        return {STORED_NAMES.get(name, name): x for name, x in self.parts().items()}

    @staticmethod
    def from_stored(parts: Mapping[str, Other]) -> "Observation[Other]":
        """Reverse `to_stored`."""
        names = {STORED_NAMES.get(name, name): name for name in Observation._fields}
        return Observation(**{names[stored]: x for stored, x in parts.items()})


class PartSize(NamedTuple):
    """The shape of one row of a part, and its dtype as NumPy and PyTorch call it."""

    shape: tuple[int, ...]
    dtype: str


class Sizes(NamedTuple):
    """The shape of one step: O, A, whether actions are numbers 0 … A−1, and what else there is."""

    observation: int
    action: int
    discrete: bool
    privileged: int = 0  # S; 0: no privileged observation
    observed: bool = False  # True: readings can be missing, and the agent is told
    images: tuple[tuple[int, int, int], ...] = ()  # (C, H, W) of each image beside the vector
    action_mask: bool = False  # True: actions can be forbidden

    @property
    def pixels(self) -> int:
        """P, the bytes of all images."""
        return sum(math.prod(shape) for shape in self.images)

    @property
    def observation_parts(self) -> Observation[PartSize]:
        """Which parts an observation has, and how large they are."""
        return Observation(
            vector=PartSize((self.observation,), "float32"),
            images=PartSize((self.pixels,), "uint8") if self.images else None,
            observed=PartSize((), "bool") if self.observed else None,
            action_mask=PartSize((self.action,), "bool") if self.action_mask else None,
            privileged=PartSize((self.privileged,), "float32") if self.privileged else None,
        )
