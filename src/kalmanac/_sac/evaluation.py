"""Evaluation episodes: an unbiased sample of a policy's returns, whatever the episodes' lengths."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from kalmanac._checked_fields import AtLeast, bounded
from kalmanac._envs.action_codecs import action_codec
from kalmanac._envs.observation_codecs import observation_codec
from kalmanac._sac.environment_failure import EnvironmentFailedError
from kalmanac._sac.episode_streams import (
    Environment,
    Episode,
    EpisodeStreams,
    as_vector,
    share_an_environment,
)
from kalmanac._sac.observations import BadReadingError, InfoKeys, ObservationReader
from kalmanac._sac.sb3_arguments import EVALUATE, answering

MOST_STEPS = 100_000  # of an episode, where nobody knows its horizon
# vector steps taken, episodes over, episodes to play
EachStep = Callable[[int, int, int], None]


class PredictingModel(Protocol):
    """Anything with SB3's `predict`.

    A model with an attribute `info_keys` is given more: `predict` gets `info["observed"]` as its
    argument `observed` and `info["action_mask"]` as `action_masks`, where these keys are named.
    One with a true attribute `previous_reward` is given the rewards of the last step, (n,), under
    that name, 0 at an episode's start.
    """

    def predict(
        self, observation: Any, state: Any = None,
        episode_start: NDArray[np.bool_] | None = None, deterministic: bool = False,
    ) -> tuple[Any, Any]:  # fmt: skip
        """Actions for a batch of observations, and the state to pass in next time."""


@dataclass(frozen=True)
class Evaluation:
    """The episodes of an evaluation, environment by environment in order of time.

    It unpacks to mean and standard deviation of the returns, as SB3's does.

    Examples:
        >>> import numpy as np
        >>> from kalmanac import Evaluation
        >>> result = Evaluation(returns=np.array([1.0, 3.0]), lengths=np.array([5, 7]))
        >>> result.mean_reward, result.std_reward, result.mean_length, result.win_rate
        (2.0, 1.0, 6.0, None)
        >>> mean, std = result
        >>> mean, std
        (2.0, 1.0)
    """

    returns: NDArray[np.float64]  # (k,), undiscounted
    lengths: NDArray[np.int64]  # (k,)
    wins: NDArray[np.bool_] | None = None  # (k,); None where no info has "win" or "is_success"
    cut: int = 0  # episodes among them that were not over after the most steps allowed

    def __iter__(self) -> Iterator[float]:
        """Mean and standard deviation of the returns."""
        yield from (self.mean_reward, self.std_reward)

    @property
    def mean_reward(self) -> float:
        """Mean return."""
        return float(self.returns.mean())

    @property
    def std_reward(self) -> float:
        """Standard deviation of the returns over episodes."""
        return float(self.returns.std())

    @property
    def mean_length(self) -> float:
        """Mean number of steps."""
        return float(self.lengths.mean())

    @property
    def win_rate(self) -> float | None:
        """Share of episodes won; None where winning is not defined."""
        return None if self.wins is None else float(self.wins.mean())


@answering(EVALUATE)
def evaluate_policy(
    model: PredictingModel, env: Environment | str, n_eval_episodes: int = 10, *,
    deterministic: bool = True, seed: int | None = None, max_steps: int = MOST_STEPS,
    each_step: EachStep | None = None,
) -> Evaluation:  # fmt: skip
    """Run `n_eval_episodes` episodes of `model` in `env`, from a reset with `seed`.

    Each environment of a vector plays a number of episodes fixed beforehand. Taking the first that
    finish instead would favor short episodes. `env` must not be the one that `model` trains in:
    its episode under way would go on in another one.

    Args:
        model: anything with SB3's `predict`.
        env: a Gymnasium environment, a vector of them, or a name for `make_env`.
        n_eval_episodes: how many episodes.
        deterministic: the policy does not explore.
        seed: of the first reset; None leaves it to the environment.
        max_steps: an episode that is not over after so many steps is cut there: what it has brought
            so far counts, a win does not. Its environment plays no more, so that the evaluation
            may hold fewer episodes.
        each_step: called before every vector step; what it raises ends the evaluation.

    Examples:
        >>> from kalmanac import RecurrentSAC, Track, evaluate_policy
        >>> model = RecurrentSAC("vssm+kf", Track(), seed=0)
        >>> result = evaluate_policy(model, Track(horizon=10), 3, seed=0)
        >>> result.lengths
        array([10, 10, 10])
        >>> mean, std = result
        >>> mean < 0
        True
    """
    n_eval_episodes = bounded("n_eval_episodes", n_eval_episodes, int, AtLeast(1))
    if max_steps < 1:
        raise ValueError(f"max_steps: got {max_steps}, expected at least 1")
    vector = as_vector(env)
    if share_an_environment(getattr(model, "env", None), vector):
        raise ValueError("env: got the environment of the training, expected one of its own")
    streams = EpisodeStreams(vector)
    n = streams.num_envs
    quota = [(n_eval_episodes + n - 1 - i) // n for i in range(n)]
    played: list[list[tuple[Episode, bool]]] = [[] for _ in range(n)]  # and whether it was cut
    reader = _reader(model, vector)
    observation, infos = streams.reset(seed)
    over = np.zeros(n, dtype=np.bool_)
    starts, state = np.ones(n, dtype=np.bool_), None
    shown = {"previous_reward": np.zeros(n)} if getattr(model, "previous_reward", False) else {}
    predict: Callable[..., tuple[Any, Any]] = model.predict
    steps, done = 0, 0
    while done < sum(quota):
        if each_step is not None:
            each_step(steps, done, sum(quota))
        arguments = _arguments(reader, observation, infos, over) | shown
        try:
            actions, state = predict(
                observation, state=state, episode_start=starts, deterministic=deterministic,
                **arguments,
            )  # fmt: skip
        except BadReadingError as error:
            raise EnvironmentFailedError(f"the environment gave a wrong {error}") from error
        arrival = streams.step(actions)
        if not np.isfinite(arrival.reward).all():
            wrong = arrival.reward[~np.isfinite(arrival.reward)][0]
            raise EnvironmentFailedError(
                f"the environment gave a wrong reward: got {wrong}, expected finite numbers"
            )
        observation, infos, starts = arrival.observation, arrival.infos, arrival.begun
        shown = {name: np.where(starts, 0.0, arrival.reward) for name in shown}
        over = arrival.terminated & ~starts  # NEXT_STEP: nothing is chosen before the reset
        steps += 1
        ended = [(episode, False) for episode in arrival.episodes]
        if steps >= max_steps:
            ended += [(episode, True) for episode in streams.under_way(max_steps)]
        for episode, cut in ended:
            own_episodes = played[episode.stream]
            if len(own_episodes) < quota[episode.stream]:
                own_episodes.append((episode, cut))
                done += 1
                quota[episode.stream] = len(own_episodes) if cut else quota[episode.stream]
    return _evaluation([one for own_episodes in played for one in own_episodes])


def _evaluation(played: Sequence[tuple[Episode, bool]]) -> Evaluation:
    """Of episodes, and whether each was cut. Those that were have not been won."""
    told = [episode.info.get("win", episode.info.get("is_success")) for episode, _ in played]
    wins = [win for win, (_, cut) in zip(told, played, strict=True) if not cut]
    won = np.array([bool(win) for win in told])
    return Evaluation(
        np.array([episode.total_reward for episode, _ in played]),
        np.array([episode.length for episode, _ in played]),
        won if wins and all(win is not None for win in wins) else None,
        sum(cut for _, cut in played),
    )


def _reader(model: PredictingModel, env: VectorEnv[Any, Any, Any]) -> ObservationReader | None:
    """Reads what the model wants to know of infos; None: nothing."""
    keys: Collection[str] = getattr(model, "info_keys", ())
    if not keys:
        return None
    actions = action_codec(env.single_action_space)
    observations = observation_codec(env.single_observation_space, actions)
    wanted = {key: key in keys for key in InfoKeys._fields}
    return ObservationReader(observations, actions, **wanted)


def _arguments(
    reader: ObservationReader | None, batch: Any, infos: Mapping[str, Any],
    over: NDArray[np.bool_],
) -> dict[str, NDArray[Any]]:  # fmt: skip
    """What infos say as arguments of `predict`, which has the mask under sb3-contrib's name."""
    if reader is None:
        return {}
    parts = reader.read_infos(batch, infos, np.arange(len(over)), over)
    return {"action_masks" if key == "action_mask" else key: x for key, x in parts.items()}
