"""What comes with an observation: images, missing readings, action masks, the true state.

An environment tells the latter three in its info, at every reset and step:

- `info["observed"]`, bool: False where the reading is missing. Without the key it is there.
- `info["action_mask"]`, A numbers: 0 where an action is forbidden. Without the key all are allowed.
  It may stand in a Dict observation instead, under the same name.
- `info["privileged"]`, (S,): the true state, only if the critic is to see it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from kalmanac.envs.codecs import ActionCodec, ObservationCodec

Bools = NDArray[np.bool_]
Rows = NDArray[np.int64]


class BadReadingError(ValueError):
    """A policy was shown an observation that holds no numbers."""


class Sight(NamedTuple):
    """What n environments show at one moment; None where they never show it."""

    observation: NDArray[np.float32]  # (n, O); zeros where the reading is missing
    pixels: NDArray[np.uint8] | None = None  # (n, P)
    observed: Bools | None = None  # (n,)
    action_mask: Bools | None = None  # (n, A)
    privileged: NDArray[np.float32] | None = None  # (n, S)

    def given(self) -> dict[str, NDArray[Any]]:
        """The parts that are there, by name."""
        return {name: x for name, x in zip(self._fields, self, strict=True) if x is not None}

    def at(self, rows: Rows) -> "Sight":
        """The environments `rows` (k,) alone."""
        return Sight(**{name: x[rows] for name, x in self.given().items()})

    def replaced(self, rows: Rows, other: "Sight") -> "Sight":
        """A copy in which `rows` (k,) show what `other` shows."""
        copies = {name: x.copy() for name, x in self.given().items()}
        for name, x in other.given().items():
            copies[name][rows] = x
        return Sight(**copies)


class Senses:
    """From a vector environment's observations and infos to what the agent sees.

    Args:
        observed, action_mask: whether readings can be missing and actions forbidden (`tells`).
        privileged: whether the true state is asked for.
    """

    def __init__(
        self, observations: ObservationCodec, actions: ActionCodec, *, observed: bool = False,
        action_mask: bool = False, privileged: bool = False,
    ) -> None:  # fmt: skip
        self.observations, self.actions = observations, actions
        self.observed, self.privileged = observed, privileged
        self.action_mask = action_mask or observations.tells_action_mask

    def see(
        self, batch: Any, infos: Mapping[str, Any], rows: Rows | None = None,
        over: Bools | None = None,
    ) -> Sight:  # fmt: skip
        """A batch of observations and the infos that belong to it.

        Args:
            rows: (n,) the environments that the observations are of; None: all of them.
            over: (n,) bool: an episode has terminated here, and nothing is left to choose.
        """
        features, pixels = self.observations.encode(batch), self.observations.pixels(batch)
        rows = np.arange(len(features)) if rows is None else rows
        told = self.told(batch, infos, rows, over)
        truth = self._truth(infos, rows) if self.privileged else None
        return _without_missing(features, pixels, **told)._replace(privileged=truth)

    def told(
        self, batch: Any, infos: Mapping[str, Any], rows: Rows, over: Bools | None = None
    ) -> dict[str, Bools]:
        """`observed` and `action_mask`, those of them that the environment can tell; see `see`."""
        found = {}
        if self.observed:
            there, values = _told(infos, "observed", rows)
            found["observed"] = np.ones(len(rows), np.bool_)
            found["observed"][there] = [bool(value) for value in values]
        if self.action_mask:
            mask = np.ones((len(rows), self.actions.size), np.bool_)
            if self.observations.tells_action_mask:
                mask = self.actions.mask(self.observations.action_mask(batch))
            else:
                there, values = _told(infos, "action_mask", rows)
                if there.any():
                    mask[there] = self.actions.mask(values)
            found["action_mask"] = _usable(mask, len(rows), over)
        return found

    def shown(self, batch: Any, *, observed: Any = None, action_mask: Any = None) -> Sight:
        """A batch of observations, and what a caller says of it; None: all seen, all allowed.

        A mask inside the observation holds where `action_mask` is None.
        """
        features, pixels = self.observations.encode(batch), self.observations.pixels(batch)
        n = len(features)
        if observed is not None:
            observed = _flags("observed", observed, n)
        if action_mask is None:
            action_mask = self.observations.action_mask(batch)
        if action_mask is not None:
            action_mask = _usable(self.actions.mask(action_mask), n)
        sight = _without_missing(features, pixels, observed, action_mask)
        if not np.isfinite(sight.observation).all():
            row, feature = np.argwhere(~np.isfinite(sight.observation))[0]
            raise BadReadingError(
                f"observation: got {sight.observation[row, feature]} in row {row}, "
                "expected finite numbers"
            )
        return sight

    def _truth(self, infos: Mapping[str, Any], rows: Rows) -> NDArray[np.float32]:
        there, values = _told(infos, "privileged", rows)
        if not there.all():
            raise ValueError(
                'info["privileged"]: got none from the environment, expected the true state with '
                "every observation, the first and the last of an episode too"
            )
        return np.array(values, dtype=np.float32)


def _without_missing(
    features: NDArray[np.float32], pixels: NDArray[np.uint8] | None, observed: Bools | None = None,
    action_mask: Bools | None = None,
) -> Sight:  # fmt: skip
    """Zeros, in place, where the reading is missing: what stands there may be no number."""
    if observed is not None:
        features[~observed] = 0.0
        if pixels is not None:
            pixels[~observed] = 0
    return Sight(features, pixels, observed, action_mask)


def _usable(mask: Bools, n: int, over: Bools | None = None) -> Bools:
    """The mask (n, A), with an allowed action in every row that is not over."""
    if len(mask) != n:
        raise ValueError(f"action_mask: got {len(mask)} rows, expected {n}")
    empty = ~mask.any(1)
    if over is not None:
        mask = mask | (empty & over)[:, None]
        empty = empty & ~over
    if empty.any():
        raise ValueError(
            f"action_mask: got no allowed action in row {int(empty.argmax())}, "
            "expected at least one"
        )
    return mask


class Tells(NamedTuple):
    """What an environment can tell beside its observations."""

    observed: bool
    action_mask: bool


def tells(env: VectorEnv[Any, Any, Any]) -> Tells:
    """Whether `env` tells of missing readings and of forbidden actions.

    `env.metadata["observed"]` and `["action_mask"]` say it, True or False. What they leave open is
    decided by the infos of one reset, with seed 0: the key is there, or it is not.
    """
    metadata = env.metadata or {}
    answers = {name: metadata.get(name) for name in Tells._fields}
    if None in answers.values():
        _, infos = env.reset(seed=0)
        answers = {n: (n in infos) if told is None else told for n, told in answers.items()}
    for name, told in answers.items():
        if not isinstance(told, bool):
            raise TypeError(f'env.metadata["{name}"]: got {told!r}, expected True or False')
    return Tells(**{name: bool(told) for name, told in answers.items()})


def _told(infos: Mapping[str, Any], key: str, rows: Rows) -> tuple[Bools, Any]:
    """Which of `rows` have the key in their info, (k,) bool, and the values of those."""
    if key not in infos:
        return np.zeros(len(rows), np.bool_), []
    values: Any = infos[key]
    there = np.asarray(infos.get(f"_{key}", np.ones(len(values), np.bool_)))[rows]
    if isinstance(values, np.ndarray) and values.dtype != object:
        return there, values[rows[there]]
    return there, [values[i] for i in rows[there]]  # Gymnasium stacks no lists and no np.bool_


def _flags(name: str, values: Any, n: int) -> Bools:
    flags = np.asarray(values).reshape(-1)
    if flags.dtype != np.bool_ or len(flags) != n:
        raise ValueError(
            f"{name}: got {flags.dtype} of shape {np.shape(values)}, expected bool of shape ({n},)"
        )
    return flags
