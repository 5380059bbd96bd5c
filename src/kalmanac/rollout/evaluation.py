"""Evaluation episodes: an unbiased sample of a policy's returns, whatever the episodes' lengths."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from kalmanac.envs.spaces import action_codec, observation_codec
from kalmanac.rollout.failure import EnvironmentFailedError
from kalmanac.rollout.senses import BadReadingError, Senses
from kalmanac.rollout.vectors import (
    Environment,
    Episode,
    EpisodeStreams,
    as_vector,
    share_an_environment,
)


class PredictingModel(Protocol):
    """Anything with SB3's `predict`.

    A model with an attribute `hears` is told more: those of `action_masks` and `observed` that it
    names there are arguments of its `predict` too.
    """

    def predict(
        self, observation: Any, state: Any = None,
        episode_start: NDArray[np.bool_] | None = None, deterministic: bool = False,
    ) -> tuple[Any, Any]:  # fmt: skip
        """Actions for a batch of observations, and the state to pass in next time."""


@dataclass(frozen=True)
class Evaluation:
    """The episodes of an evaluation, environment by environment in order of time."""

    returns: NDArray[np.float64]  # (k,), undiscounted
    lengths: NDArray[np.int64]  # (k,)
    wins: NDArray[np.bool_] | None = None  # (k,); None where the environment's info has no "win"

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


def evaluate_policy(
    model: PredictingModel, env: Environment, n_eval_episodes: int = 10, *,
    deterministic: bool = True, seed: int | None = None,
) -> Evaluation:  # fmt: skip
    """Run `n_eval_episodes` episodes of `model` in `env`, from a reset with `seed`.

    Each environment of a vector plays a number of episodes fixed beforehand. Taking the first that
    finish instead would favour short episodes. `env` must not be the one that `model` trains in:
    its episode under way would go on in another one.
    """
    if n_eval_episodes < 1:
        raise ValueError(f"n_eval_episodes: got {n_eval_episodes}, expected at least 1")
    vector = as_vector(env)
    if share_an_environment(getattr(model, "env", None), vector):
        raise ValueError("env: got the environment of the training, expected one of its own")
    streams = EpisodeStreams(vector)
    n = streams.num_envs
    quota = [(n_eval_episodes + n - 1 - i) // n for i in range(n)]
    played: list[list[Episode]] = [[] for _ in range(n)]
    senses = _senses(model, vector)
    observation, infos = streams.reset(seed)
    over = np.zeros(n, dtype=np.bool_)
    starts, state = np.ones(n, dtype=np.bool_), None
    predict = _judging(model.predict)
    while any(len(mine) < due for mine, due in zip(played, quota, strict=True)):
        actions, state = predict(
            observation, state=state, episode_start=starts, deterministic=deterministic,
            **_told(senses, observation, infos, over),
        )  # fmt: skip
        arrival = streams.step(actions)
        if not np.isfinite(arrival.reward).all():
            wrong = arrival.reward[~np.isfinite(arrival.reward)][0]
            raise EnvironmentFailedError(
                f"the environment gave a wrong reward: got {wrong}, expected finite numbers"
            )
        observation, infos, starts = arrival.observation, arrival.infos, arrival.begun
        over = arrival.terminated & ~starts  # NEXT_STEP: nothing is chosen before the reset
        for episode in arrival.episodes:
            if len(played[episode.stream]) < quota[episode.stream]:
                played[episode.stream].append(episode)
    episodes = [episode for mine in played for episode in mine]
    won = [episode.info.get("win") for episode in episodes]
    return Evaluation(
        np.array([episode.total_reward for episode in episodes]),
        np.array([episode.length for episode in episodes]),
        None if any(win is None for win in won) else np.array(won, dtype=np.bool_),
    )


def _judging(predict: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[Any, Any]]:
    """`predict`, which is shown what an environment gave."""

    def judging(*shown: Any, **how: Any) -> tuple[Any, Any]:
        try:
            return predict(*shown, **how)
        except BadReadingError as error:
            raise EnvironmentFailedError(f"the environment gave a wrong {error}") from error

    return judging


def _senses(model: PredictingModel, env: VectorEnv[Any, Any, Any]) -> Senses | None:
    """What the model wants to be told of; None: of observations only."""
    hears: Collection[str] = getattr(model, "hears", ())
    if not hears:
        return None
    actions = action_codec(env.single_action_space)
    return Senses(
        observation_codec(env.single_observation_space, actions), actions,
        observed="observed" in hears, action_mask="action_masks" in hears,
    )  # fmt: skip


def _told(
    senses: Senses | None, observation: Any, infos: Mapping[str, Any], over: NDArray[np.bool_]
) -> dict[str, NDArray[np.bool_]]:
    """As arguments of `predict`."""
    if senses is None:
        return {}
    found = senses.told(observation, infos, np.arange(len(over)), over)
    if "action_mask" in found:
        found["action_masks"] = found.pop("action_mask")
    return found
