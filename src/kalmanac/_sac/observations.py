"""From what an environment returns to the `Observation` that an agent has of it.

An environment says in its info, at every reset and step:

- `info["observed"]`, bool: False where the reading is missing. Without the key it is there.
- `info["action_mask"]`, A numbers: 0 where an action is forbidden. Without the key all are allowed.
  It may stand in a Dict observation instead, under the same name, or be what the environment's
  method `action_masks` says, as for sb3-contrib.
- `info["privileged"]`, (S,): the true state, only if the critic is to see it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from kalmanac._envs.action_codecs import ActionCodec
from kalmanac._envs.observation_codecs import ObservationCodec
from kalmanac._envs.wrappers import CopiesHandedOut, told_observed
from kalmanac._observation import Observation

Bools = NDArray[np.bool_]
Rows = NDArray[np.int64]
Arrays = Observation[NDArray[Any]]  # of n environments


class BadReadingError(ValueError):
    """A policy was shown an observation that holds no numbers."""


class ObservationReader:
    """Reads observations from a vector environment's observations and infos.

    Args:
        observed, action_mask: whether readings can be missing and actions forbidden (`info_keys`).
        privileged: whether the true state is asked for.
    """

    def __init__(
        self, observations: ObservationCodec, actions: ActionCodec, *, observed: bool = False,
        action_mask: bool = False, privileged: bool = False,
    ) -> None:  # fmt: skip
        self.observations, self.actions = observations, actions
        self.observed, self.privileged = observed, privileged
        self.action_mask = action_mask or observations.has_action_mask

    @property
    def info_keys(self) -> frozenset[str]:
        """The keys of infos that an agent has to be told beside the observations."""
        keys = {"observed": self.observed, "action_mask": self.action_mask}
        return frozenset(key for key, used in keys.items() if used)

    def read(
        self, batch: Any, infos: Mapping[str, Any], rows: Rows | None = None,
        over: Bools | None = None,
    ) -> Arrays:  # fmt: skip
        """The observation of a batch and of the infos that belong to it.

        Args:
            rows: (n,) the environments that the observations are of; None: all of them.
            over: (n,) bool: an episode has terminated here, and nothing is left to choose.
        """
        observation = self.observations.encode(batch)
        rows = np.arange(len(observation.vector)) if rows is None else rows
        parts = self.read_infos(batch, infos, rows, over)
        if self.privileged:
            parts["privileged"] = self._read_privileged(infos, rows)
        return self._without_missing(observation._replace(**parts))

    def read_infos(
        self, batch: Any, infos: Mapping[str, Any], rows: Rows, over: Bools | None = None
    ) -> dict[str, NDArray[Any]]:
        """The parts `observed` and `action_mask`, where the environment has them; see `read`."""
        parts: dict[str, NDArray[Any]] = {}
        if self.observed:
            present, values = _of_rows(infos, "observed", rows)
            parts["observed"] = np.ones(len(rows), np.bool_)
            parts["observed"][present] = [told_observed(value) for value in values]
        if self.action_mask:
            mask = np.ones((len(rows), self.actions.size), np.bool_)
            if self.observations.has_action_mask:
                mask = self.actions.mask(self.observations.action_mask(batch))
            else:
                present, values = _of_rows(infos, "action_mask", rows)
                if present.any():
                    mask[present] = self.actions.mask(values)
            parts["action_mask"] = _usable(mask, len(rows), over)
        return parts

    def read_arguments(
        self, batch: Any, *, observed: Any = None, action_mask: Any = None
    ) -> Arrays:
        """The observation of a batch and of what a caller says; None: all seen, all allowed.

        A mask inside the observation holds where `action_mask` is None.
        """
        observation = self.observations.encode(batch)
        n = len(observation.vector)
        if observed is not None:
            observed = _flags("observed", observed, n)
        if action_mask is None:
            action_mask = self.observations.action_mask(batch)
        if action_mask is not None:
            action_mask = _usable(self.actions.mask(action_mask), n)
        observation = self._without_missing(
            observation._replace(observed=observed, action_mask=action_mask)
        )
        vector = observation.vector
        if not np.isfinite(vector).all():
            row, feature = np.argwhere(~np.isfinite(vector))[0]
            raise BadReadingError(
                f"observation: got {vector[row, feature]} in row {row}, expected finite numbers"
            )
        return observation

    def _without_missing(self, observation: Arrays) -> Arrays:
        """Zeros, in place, where the reading is missing: what stands there may be no number."""
        if observation.observed is not None:
            missing, measured = ~observation.observed, self.observations.measured
            places = missing if measured is None else np.ix_(missing, measured)
            observation.vector[places] = 0.0
            if observation.images is not None:
                observation.images[missing] = 0
        return observation

    def _read_privileged(self, infos: Mapping[str, Any], rows: Rows) -> NDArray[np.float32]:
        present, values = _of_rows(infos, "privileged", rows)
        if not present.all():
            raise ValueError(
                'info["privileged"]: got none from the environment, expected the true state with '
                "every observation, the first and the last of an episode too"
            )
        return np.array(values, dtype=np.float32)


def readings(observation: Arrays) -> NDArray[np.float32]:
    """(k, O): the vectors that are not missing."""
    vector, observed = observation.vector, observation.observed
    return vector if observed is None else vector[observed]


def read_rewards(given: Any, starts: Bools) -> NDArray[np.float32]:
    """The rewards of the last step (n,) as a caller gives them, 0 where episodes start."""
    if given is None and not starts.all():
        raise ValueError(
            "previous_reward: got none, expected the reward of the last step: the agent was made "
            "with previous_reward=True"
        )
    try:
        told = np.asarray(np.zeros(len(starts)) if given is None else given, np.float64).reshape(-1)
    except (TypeError, ValueError):
        raise ValueError(f"previous_reward: got {given!r}, expected numbers") from None
    if len(told) != len(starts):
        raise ValueError(f"previous_reward: got {len(told)} numbers, expected {len(starts)}")
    told = np.where(starts, 0.0, told)
    with np.errstate(over="ignore"):
        rewards = told.astype(np.float32)
    if not np.isfinite(rewards).all():
        row = int(np.isfinite(rewards).argmin())
        raise ValueError(
            f"previous_reward: got {told[row]} in row {row}, expected finite numbers in float32"
        )
    return rewards


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


class InfoKeys(NamedTuple):
    """Which keys an environment's infos have."""

    observed: bool = False
    action_mask: bool = False


def info_keys(env: VectorEnv[Any, Any, Any]) -> InfoKeys:
    """Whether `env` says in its infos which readings are missing and which actions are forbidden.

    `env.metadata["observed"]` and `["action_mask"]` say it, True or False. What they leave open is
    decided by the infos of one reset, with seed 0: the key is there, or it is not.
    """
    metadata = env.metadata or {}
    answers = {key: metadata.get(key) for key in InfoKeys._fields}
    if None in answers.values():
        with CopiesHandedOut(env):
            _, infos = env.reset(seed=0)
        answers = {key: key in infos if has is None else has for key, has in answers.items()}
    for key, has in answers.items():
        if not isinstance(has, bool):
            raise TypeError(f'env.metadata["{key}"]: got {has!r}, expected True or False')
    return InfoKeys(**{key: bool(has) for key, has in answers.items()})


def _of_rows(infos: Mapping[str, Any], key: str, rows: Rows) -> tuple[Bools, Any]:
    """Which of `rows` have the key in their info, (k,) bool, and the values of those."""
    if key not in infos:
        return np.zeros(len(rows), np.bool_), []
    values: Any = infos[key]
    present = np.asarray(infos.get(f"_{key}", np.ones(len(values), np.bool_)))[rows]
    if isinstance(values, np.ndarray) and values.dtype != object:
        return present, values[rows[present]]
    return present, [values[i] for i in rows[present]]  # Gymnasium stacks no lists and no np.bool_


def _flags(name: str, values: Any, n: int) -> Bools:
    flags = np.asarray(values).reshape(-1)
    if flags.dtype != np.bool_ or len(flags) != n:
        raise ValueError(
            f"{name}: got {flags.dtype} of shape {np.shape(values)}, expected bool of shape ({n},)"
        )
    return flags
