"""A vector environment as independent streams of episodes, whichever way it resets itself.

Gymnasium's vector environments start a new episode by themselves in one of two ways, or not at all:

- SAME_STEP: the step that ends an episode returns the next one's first observation; the last one
  stands in `infos["final_obs"]`, its info in `infos["final_info"]`.
- NEXT_STEP: that step returns the last observation; the step after it ignores its action, gives
  reward 0 and returns the first observation. It is no transition.
- DISABLED: nothing happens by itself; a reset with the option `reset_mask` begins new episodes.

`EpisodeStreams` hides the difference, so that nobody else has to know of it.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from numpy.typing import NDArray

from kalmanac._envs.checkpointable import environment_state, restore_environment
from kalmanac._envs.registry import make_env
from kalmanac._envs.wrappers import CopiesHandedOut, copied
from kalmanac._sac.environment_failure import environment_at_work

Environment = gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any]
ENOUGH_ENDS = 10  # of episodes in a row, to suspect that last observations are lost


@dataclass(frozen=True)
class Episode:
    """A finished episode: undiscounted return, number of transitions, and the last step's info.

    Examples:
        >>> from kalmanac import Callback, Episode, RecurrentSAC, Track
        >>> class Episodes(Callback):
        ...     def on_episode(self, model, episode: Episode):
        ...         print(episode.length, episode.terminated, sorted(episode.info))
        >>> model = RecurrentSAC("gru", Track(horizon=10), seed=0).learn(10, Episodes())
        10 False ['privileged']
    """

    total_reward: float
    length: int
    terminated: bool  # False: truncated
    stream: int  # which environment
    info: Mapping[str, Any]


class Arrival(NamedTuple):
    """Where a vector step led. Rows are the n environments."""

    stepped: NDArray[np.bool_]  # the action was taken; False on NEXT_STEP's reset step
    reward: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    observation: Any  # to act on next, as the environment gives it
    begun: NDArray[np.bool_]  # `observation` is the first of an episode
    infos: Mapping[str, Any]  # belong to `observation`
    ended_rows: NDArray[np.int64]  # (k,) rows whose last observation is not in `observation`
    ended_observations: list[Any]  # (k) those last observations
    ended_infos: Mapping[str, Any]  # the infos of last steps, indexed by row
    episodes: list[Episode]  # those that this step finished


def as_vector(env: Environment | str) -> VectorEnv[Any, Any, Any]:
    """`env`, or a vector of one (SAME_STEP) where it is a single environment, or its name."""
    if isinstance(env, str):
        env = make_env(env)
    if isinstance(env, VectorEnv):
        autoreset_mode(env)
        return env
    if isinstance(env, gymnasium.Env):
        return SyncVectorEnv([lambda: env], autoreset_mode=AutoresetMode.SAME_STEP)
    raise TypeError(
        f"env: got {type(env).__name__}, "
        "expected a gymnasium.Env, a gymnasium.vector.VectorEnv, or an environment's name"
    )


def share_an_environment(
    one: VectorEnv[Any, Any, Any] | None, other: VectorEnv[Any, Any, Any]
) -> bool:
    """Is any single environment in both? Of vectors that do not show theirs, the vector counts."""

    def inside(env: VectorEnv[Any, Any, Any]) -> set[int]:
        vector = env.unwrapped
        return {id(getattr(e, "unwrapped", e)) for e in getattr(vector, "envs", [vector])}

    return one is not None and bool(inside(one) & inside(other))


def autoreset_mode(env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    """How `env` resets itself, as its metadata say; what they leave unsaid is refused."""
    stated = (env.metadata or {}).get("autoreset_mode")
    if not isinstance(stated, AutoresetMode):
        raise ValueError(
            f'env.metadata["autoreset_mode"]: got {stated}, '
            f"expected {', '.join(map(str, AutoresetMode))}"
        )
    return stated


class EpisodeStreams:
    """Steps a vector environment and keeps account of the n episodes under way."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        self.env = env
        self.mode = autoreset_mode(env)
        self._copies = CopiesHandedOut(env)
        self._last_observations = None if self._copies.reached else LastObservations()
        self._observation: Any = None  # the last observations
        self._over = np.zeros(env.num_envs, dtype=np.bool_)  # NEXT_STEP: will reset
        self._reward = np.zeros(env.num_envs)
        self._length = np.zeros(env.num_envs, dtype=np.int64)

    @property
    def num_envs(self) -> int:
        """n, the number of environments."""
        return self.env.num_envs

    def reset(self, seed: int | None = None) -> tuple[Any, Mapping[str, Any]]:
        """Begin n episodes: their first observations, and infos."""
        with environment_at_work(), self._copies:
            observation, infos = self.env.reset(seed=seed)
        self._over[:] = False
        self._reward[:], self._length[:] = 0.0, 0
        self._observation = observation
        return observation, infos

    def step(self, actions: Any) -> Arrival:
        """Take one vector step with what the environment calls actions."""
        with environment_at_work(), self._copies:
            observation, reward, terminated, truncated, infos = self.env.step(actions)
        stepped = ~self._over
        terminated = np.asarray(terminated, dtype=np.bool_) & stepped
        truncated = np.asarray(truncated, dtype=np.bool_) & stepped
        reward = np.where(stepped, np.asarray(reward, dtype=np.float64), 0.0)
        self._reward += reward
        self._length += stepped

        ended = terminated | truncated
        (rows,) = ended.nonzero()
        if self.mode is AutoresetMode.SAME_STEP:
            begun, moved = ended, rows
            last = self._final_observations(rows, infos) if len(rows) else []
            if last and self._last_observations is not None and self._observation is not None:
                self._last_observations.check(rows.tolist(), last, observation, self._observation)
            last_infos = infos.get("final_info", {})
        elif self.mode is AutoresetMode.DISABLED:
            begun, moved, last_infos = ended, rows, infos
            last = [copied(_row(observation, i)) for i in rows.tolist()]
            if len(rows):
                with environment_at_work(), self._copies:
                    observation, news = self.env.reset(options={"reset_mask": ended.copy()})
                infos = _merged(infos, news, ended)
        else:
            begun, moved, last, last_infos = self._over, rows[:0], [], infos
            self._over = ended
        of_each = zip(
            self._reward[rows].tolist(), self._length[rows].tolist(), terminated[rows].tolist(),
            rows.tolist(), _rows(last_infos, rows.tolist(), self.num_envs), strict=True,
        )  # fmt: skip
        episodes = [Episode(*values) for values in of_each]
        self._reward[rows], self._length[rows] = 0.0, 0
        self._observation = observation
        return Arrival(
            stepped, reward, terminated, truncated, observation, begun, infos, moved, last,
            last_infos, episodes,
        )  # fmt: skip

    def under_way(self, steps: int) -> list[Episode]:
        """Episodes that have taken at least so many steps and are not over, as far as they are."""
        late = np.flatnonzero((self._length >= steps) & ~self._over).tolist()
        return [Episode(float(self._reward[i]), int(self._length[i]), False, i, {}) for i in late]

    def state_dict(self) -> dict[str, Any] | None:
        """The account and the environment's own state; None where it cannot tell that."""
        with environment_at_work():
            state = environment_state(self.env)
        account = {"over": self._over, "reward": self._reward, "length": self._length}
        copies = {name: array.copy() for name, array in account.items()}
        return None if state is None else {"account": copies, "env": state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on exactly where `state_dict` was called."""
        restore_environment(self.env, state["env"])
        account = state["account"]
        self._over, self._reward = account["over"].copy(), account["reward"].copy()
        self._length = account["length"].copy()

    def _final_observations(self, rows: NDArray[np.int64], infos: Mapping[str, Any]) -> list[Any]:
        """The last observations of the episodes that ended."""
        if "final_obs" not in infos:
            raise ValueError(
                'infos["final_obs"]: got none at the end of an episode, expected the last '
                f"observation, as AutoresetMode.SAME_STEP promises ({self.env})"
            )
        return [infos["final_obs"][i] for i in rows]


def _rows(infos: Mapping[str, Any], rows: list[int], n: int) -> list[dict[str, Any]]:
    """The infos of these environments out of those of n; what has no n rows holds for all."""
    row_infos: list[dict[str, Any]] = [{} for _ in rows]
    if not rows:
        return row_infos
    for key, value in infos.items():
        if key.startswith("_") or key in ("final_obs", "final_info"):
            continue
        present: Any = infos.get(f"_{key}")
        has_key = [bool(present[i]) for i in rows] if _has_rows(present, n) else [True] * len(rows)
        if isinstance(value, Mapping):
            values: list[Any] = list(_rows(value, rows, n))
        else:
            values = [value[i] for i in rows] if _has_rows(value, n) else [value] * len(rows)
        for info, there, own in zip(row_infos, has_key, values, strict=True):
            if there:
                info[key] = own
    return row_infos


def _merged(
    infos: Mapping[str, Any], news: Mapping[str, Any], rows: NDArray[np.bool_]
) -> dict[str, Any]:
    """The infos of all environments, with those of `rows`, (n,) bool, from `news`."""
    n, merged = len(rows), {}
    for key in {**infos, **news}:
        if key.startswith("_"):
            continue
        here = [info.get(f"_{key}", np.full(n, key in info)) for info in (infos, news)]
        values = np.full(n, None, dtype=object)
        for info, own in ((infos, here[0] & ~rows), (news, here[1] & rows)):
            for i in np.flatnonzero(own).tolist():
                values[i] = _rows({key: info[key]}, [i], n)[0][key]
        merged[key], merged[f"_{key}"] = values, np.where(rows, here[1], here[0])
    return merged


def _has_rows(value: Any, n: int) -> bool:
    """Whether `value` is a list, a tuple or any library's array of n entries."""
    if isinstance(value, list | tuple):
        return len(value) == n
    return tuple(getattr(value, "shape", ()))[:1] == (n,)


class LastObservations:
    """Watches the ends of episodes until one shows that last observations are what they should be.

    A last observation that equals the next episode's first one is a coincidence or none; ten of
    them, and none that differed, are worth a warning. Where nothing changed in the last step
    either, as where all observations are the same, an end says nothing.
    """

    def __init__(self) -> None:
        self._alike = 0
        self._settled = False

    def check(self, rows: Sequence[int], last: Sequence[Any], now: Any, before: Any) -> None:
        """Ends of the environments `rows`, with the vector's observations now and a step ago."""
        if self._settled:
            return
        for i, ending in zip(rows, last, strict=True):
            if not _equal(ending, _row(now, i)):
                self._settled = True
                return
            self._alike += not _equal(ending, _row(before, i))
        if self._alike >= ENOUGH_ENDS:
            self._settled = True
            warnings.warn(
                f"env: got the next episode's first observation in place of the last one at each "
                f"of {self._alike} ends. An environment that fills one array again and again must "
                "return copies; in an AsyncVectorEnv, kalmanac.Checkpointable around it does "
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
