"""Episodes as arrays in the environment's own units: into a replay and out of it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kalmanac._envs.extras import MissingExtraError
from kalmanac._messages import expect_mapping
from kalmanac._observation import Observation
from kalmanac._replay.buffer import Replay, StoredEpisode
from kalmanac._sac.normalization import ObservationNormalizer, ReturnScale
from kalmanac._sac.observations import ObservationReader, readings
from kalmanac._sac.problem import Problem, Space


@dataclass(frozen=True)
class EpisodeData:
    """An episode of T steps in the environment's own units, with the names that Minari has.

    Examples:
        >>> import numpy as np
        >>> from kalmanac import EpisodeData, RecurrentSAC, Track
        >>> cut = np.array([False, False, True])
        >>> episode = EpisodeData(
        ...     observations=np.zeros((4, 1), np.float32), actions=np.ones((3, 1), np.float32),
        ...     rewards=np.zeros(3), terminations=np.zeros(3, bool), truncations=cut,
        ... )
        >>> model = RecurrentSAC("gru", Track(), seed=0)
        >>> model.add_episodes([episode, episode])
        AddedEpisodes(episodes=2, transitions=6, mean_reward=0.0)
    """

    observations: Any  # (T + 1, …), or a Dict or Tuple of such arrays
    actions: Any  # (T, …)
    rewards: Any  # (T,)
    terminations: Any  # (T,) bool: True at the last step at most
    truncations: Any  # (T,) bool, the same; an episode that ends with neither counts as truncated
    # what infos tell beside observations, (T + 1, …): "observed", "action_mask", "privileged"
    infos: Mapping[str, Any] = field(default_factory=dict)


class AddedEpisodes(NamedTuple):
    """What a replay has taken in."""

    episodes: int
    transitions: int
    mean_reward: float  # mean return


def encode_episodes(
    episodes: Iterable[Any], problem: Problem, *, bootstrap_truncated: bool = True,
    most_steps: int | None = None,
) -> list[StoredEpisode]:  # fmt: skip
    """Episodes as a replay keeps them; ValueError that names the episode and step that is wrong.

    Each has the fields of `EpisodeData`, as attributes or as keys, and up to `most_steps`. What is
    returned no replay with that room refuses.
    """
    if not isinstance(episodes, Iterable):
        raise TypeError(
            f"episodes: got {type(episodes).__name__}, expected several, such as a list of "
            "EpisodeData"
        )
    encoder = _Encoder(problem, bootstrap_truncated, most_steps)
    with np.errstate(over="ignore"):  # what is infinite in float32 is refused
        found = [encoder(f"episodes[{i}]", episode) for i, episode in enumerate(episodes)]
    if not found:
        raise ValueError("episodes: got none, expected at least one")
    return found


def add_episodes(
    replay: Replay, episodes: Sequence[StoredEpisode], normalizer: ObservationNormalizer | None,
    return_scale: ReturnScale | None,
) -> AddedEpisodes:  # fmt: skip
    """Put episodes into a replay without open ones; statistics take them in, too."""
    for episode in episodes:
        replay.add_episode(episode)
        if normalizer is not None:
            normalizer.update(readings(episode.observation))
        if return_scale is not None:
            return_scale.add_episode(episode.reward)
    returns = [float(episode.reward.sum(dtype=np.float64)) for episode in episodes]
    steps = sum(len(episode.reward) for episode in episodes)
    return AddedEpisodes(len(episodes), steps, float(np.mean(returns)))


class _Encoder:
    def __init__(self, problem: Problem, bootstrap_truncated: bool, most_steps: int | None) -> None:
        self.problem, self.bootstrap_truncated = problem, bootstrap_truncated
        self.most_steps = most_steps
        privileged = problem.sizes.privileged > 0
        keys = problem.info_keys._asdict()
        self.reader = ObservationReader(
            problem.observations, problem.actions, privileged=privileged, **keys
        )

    def __call__(self, name: str, episode: Any) -> StoredEpisode:
        rewards = _column(f"{name}.rewards", _field(name, episode, "rewards"), "biuf")
        steps = len(rewards)
        if not steps:
            raise ValueError(f"{name}: got no steps, expected at least one")
        if self.most_steps is not None and steps > self.most_steps:
            raise ValueError(
                f"{name}: got {steps} steps, expected at most {self.most_steps}, the share of one "
                "environment in buffer_size"
            )
        reward = rewards.astype(np.float32)
        _require_finite(f"{name}.rewards", reward, rewards)
        ends = {
            key: self._ends(name, episode, key, steps) for key in ("terminations", "truncations")
        }
        actions = _array(f"{name}.actions", _field(name, episode, "actions"))
        _require_length(f"{name}.actions", actions, steps)
        encode = self.problem.actions.encode
        action = _encoded(f"{name}.actions", actions, encode, lambda x, t: x[t : t + 1])
        over = np.zeros(steps + 1, np.bool_)
        over[-1] = ends["terminations"]
        observation = self._observation(name, episode, over)
        if observation.action_mask is not None:
            allowed = observation.action_mask[np.arange(steps), action]
            if not allowed.all():
                t = int(allowed.argmin())
                raise ValueError(
                    f"{name}.actions[{t}]: got {actions[t]}, which the mask forbids, expected an "
                    "allowed action"
                )
        terminated = ends["terminations"] or (ends["truncations"] and not self.bootstrap_truncated)
        return StoredEpisode(observation, action, reward, terminated)

    def _ends(self, name: str, episode: Any, key: str, steps: int) -> bool:
        flags = _column(f"{name}.{key}", _field(name, episode, key), "b")
        _require_length(f"{name}.{key}", flags, steps)
        if flags[:-1].any():
            t = int(flags.argmax())
            raise ValueError(
                f"{name}.{key}[{t}]: got True before the last of {steps} steps, expected an "
                "episode of its own to end there"
            )
        return bool(flags[-1])

    def _observation(
        self, name: str, episode: Any, over: NDArray[np.bool_]
    ) -> Observation[NDArray[Any]]:
        rows = _field(name, episode, "observations")
        infos = _field(name, episode, "infos", None)
        infos = {} if infos is None else infos
        expect_mapping(f"{name}.infos", infos)
        where, truth = f"{name}.observations", f"{name}.infos['privileged']"
        for key in self.reader.info_keys | ({"privileged"} if self.reader.privileged else set()):
            if key in infos:
                place, dtype = f"{name}.infos[{key!r}]", np.float32 if key == "privileged" else None
                _require_length(place, infos[key], len(over))
                infos = {**infos, key: _array(place, infos[key], dtype)}
        encoded = _encoded(where, rows, self.problem.observations.encode, _row)
        for part in (encoded.vector, encoded.images):
            if part is not None:
                _require_length(where, part, len(over))
        try:
            observation = self.reader.read(rows, infos, over=over)
        except ValueError as error:
            raise ValueError(f"{name}.{error}") from None
        _require_finite(where, observation.vector)
        if observation.privileged is not None:
            shape, wanted = observation.privileged.shape, (len(over), self.problem.sizes.privileged)
            if shape != wanted:
                raise ValueError(f"{truth}: got shape {shape}, expected {wanted}")
            _require_finite(truth, observation.privileged)
        return observation


def spaces_of(episodes: Any) -> tuple[Space, Space] | None:
    """The spaces of observations and actions that a dataset says; None where it says none."""
    observation, action = (
        getattr(episodes, f"{name}_space", None) for name in ("observation", "action")
    )
    return None if observation is None or action is None else (observation, action)


def decode_episodes(replay: Replay, problem: Problem) -> Iterator[EpisodeData]:
    """All episodes of a replay in the environment's own units, each as far as it has come."""
    for stored in replay.stored_episodes():
        observation, steps = stored.observation, len(stored.reward)
        last = np.arange(steps) == steps - 1
        inside = {"vector", "images"}
        if problem.observations.has_action_mask:
            inside.add("action_mask")
        yield EpisodeData(
            observations=problem.observations.decode(observation),
            actions=problem.actions.decode(stored.action),
            rewards=stored.reward.astype(np.float64),
            terminations=last & stored.terminated,
            truncations=last & (not stored.terminated),
            infos={name: x for name, x in observation.parts().items() if name not in inside},
        )


def write_minari(
    dataset_id: str, episodes: Iterable[EpisodeData], problem: Problem, about: Mapping[str, Any]
) -> Any:
    """A new Minari dataset with these episodes; returns it."""
    try:
        from minari import create_dataset_from_buffers
        from minari.data_collector import EpisodeBuffer
    except ImportError as error:
        raise MissingExtraError(
            f'minari cannot be imported ({error}): pip install "kalmanac[minari]"'
        ) from error
    buffer = [
        EpisodeBuffer(
            id=i, observations=one.observations, actions=one.actions, rewards=list(one.rewards),
            terminations=list(one.terminations), truncations=list(one.truncations),
            infos=dict(one.infos),
        )
        for i, one in enumerate(episodes)
    ]  # fmt: skip
    return create_dataset_from_buffers(
        dataset_id, buffer, observation_space=problem.observation_space,
        action_space=problem.action_space, **{"algorithm_name": "kalmanac", **about},
    )  # fmt: skip


def _field(name: str, episode: Any, key: str, *default: Any) -> Any:
    """An attribute of an episode, or what a mapping has under that key."""
    if isinstance(episode, Mapping):
        found = key in episode
        value = episode.get(key)
    else:
        found, value = hasattr(episode, key), getattr(episode, key, None)
    if found:
        return value
    if default:
        return default[0]
    raise ValueError(f"{name}: got {type(episode).__name__} without {key}, expected it")


def _array(name: str, values: Any, dtype: type | None = None) -> NDArray[Any]:
    try:
        return np.asarray(values, dtype)
    except (ValueError, TypeError):
        got = type(values).__name__
        raise ValueError(f"{name}: got {got}, expected an array of numbers") from None


def _column(name: str, values: Any, kinds: str) -> NDArray[Any]:
    array = _array(name, values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in kinds):
        wanted = "flags" if kinds == "b" else "numbers"
        raise ValueError(
            f"{name}: got {array.dtype} of shape {array.shape}, expected {wanted} of shape ('T',)"
        )
    return array


def _require_finite(name: str, x: NDArray[np.float32], given: NDArray[Any] | None = None) -> None:
    """Name the first step of `x` (T, …) with a number that is not finite, as it was `given`."""
    if not np.isfinite(x).all():
        at = tuple(np.argwhere(~np.isfinite(x))[0])
        got = (x if given is None else given)[at]
        raise ValueError(f"{name}[{at[0]}]: got {got}, expected finite numbers of float32")


def _require_length(name: str, values: Any, length: int) -> None:
    try:
        count = len(values)
    except TypeError:
        raise ValueError(f"{name}: got {values!r}, expected {length} entries") from None
    if count != length:
        raise ValueError(f"{name}: got {count} entries, expected {length}")


def _encoded(
    name: str, rows: Any, encode: Callable[[Any], Any], one: Callable[[Any, int], Any]
) -> Any:
    """All rows at once; where that fails, the first row that fails by itself is named."""
    try:
        return encode(rows)
    except (ValueError, TypeError) as error:
        for t in range(_count(rows)):
            try:
                encode(one(rows, t))
            except (ValueError, TypeError) as own:
                raise ValueError(f"{name}[{t}]: {own}") from None
        raise ValueError(f"{name}: {error}") from None


def _count(rows: Any) -> int:
    if isinstance(rows, Mapping):
        return min((_count(x) for x in rows.values()), default=0)
    if isinstance(rows, tuple):
        return min((_count(x) for x in rows), default=0)
    return len(rows) if hasattr(rows, "__len__") else 0


def _row(rows: Any, t: int) -> Any:
    """Row t of a batch, as a batch of one."""
    if isinstance(rows, Mapping):
        return {key: _row(x, t) for key, x in rows.items()}
    if isinstance(rows, tuple):
        return tuple(_row(x, t) for x in rows)
    return rows[t : t + 1]
