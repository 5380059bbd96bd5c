"""Environments × policy → transitions in the replay.

The collector knows neither networks nor normalisation: a policy is a function from what is seen to
agent actions, and whoever owns the policy carries its state.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from kalmanac.envs.codecs import ActionCodec, ObservationCodec
from kalmanac.replay import Replay
from kalmanac.rollout.failure import environment_judged
from kalmanac.rollout.senses import Senses, Sight
from kalmanac.rollout.vectors import Episode, EpisodeStreams

Float32 = NDArray[np.float32]
# what n environments show and "an episode starts here" (n,) → agent actions (n,) or (n, A)
Policy = Callable[[Sight, NDArray[np.bool_]], NDArray[Any]]


class Collected(NamedTuple):
    """What one vector step brought."""

    transitions: int  # at most n; NEXT_STEP's reset steps are none
    episodes: list[Episode]  # those that ended
    observations: Float32  # (k, O): every observation that is new in the replay, none missing
    reward: NDArray[np.float64]  # (n,)
    stepped: NDArray[np.bool_]  # (n,): False on NEXT_STEP's reset steps
    ended: NDArray[np.bool_]  # (n,): the episode is over


class Collector:
    """Steps a vector environment with a policy and stores what happened, stream i ↔ environment i.

    With `privileged`, `observed` and `action_mask`, what the environment's infos say under these
    names is stored beside each observation (`Senses`). Without `bootstrap_truncated`, truncated
    episodes are stored as terminated.
    """

    def __init__(
        self, env: VectorEnv[Any, Any, Any], observations: ObservationCodec, actions: ActionCodec,
        replay: Replay | None = None, *, privileged: bool = False, observed: bool = False,
        action_mask: bool = False, bootstrap_truncated: bool = True,
    ) -> None:  # fmt: skip
        self.streams = EpisodeStreams(env)
        self.actions = actions
        self.senses = Senses(
            observations, actions, observed=observed, action_mask=action_mask,
            privileged=privileged,
        )  # fmt: skip
        self.replay, self.bootstrap_truncated = replay, bootstrap_truncated
        self.sight: Sight  # of n environments, to act on next
        self.episode_start: NDArray[np.bool_]  # (n,)

    @property
    def observation(self) -> Float32:
        """(n, O), to act on next."""
        return self.sight.observation

    def reset(self, seed: int | None = None) -> Collected:
        """Begin an episode in every environment."""
        observation, infos = self.streams.reset(seed)
        self.episode_start = np.ones(self.streams.num_envs, dtype=np.bool_)
        with environment_judged():
            self.sight = self.senses.see(observation, infos)
            if self.replay is not None:
                self.replay.begin(np.arange(self.streams.num_envs), **self.sight.given())
        nobody = np.zeros(self.streams.num_envs, dtype=np.bool_)
        return Collected(0, [], _readings(self.sight), np.zeros(len(nobody)), nobody, nobody)

    def step(self, policy: Policy) -> Collected:
        """Act once in every environment."""
        return self.take(policy(self.sight, self.episode_start))

    def take(self, action: NDArray[Any]) -> Collected:
        """Take these agent actions, (n,) or (n, A), in the n environments."""
        arrival = self.streams.step(self.actions.decode(action))
        with environment_judged():
            rows = arrival.ended_rows
            over = arrival.terminated if not len(rows) else None  # else `sight` shows new episodes
            sight = landed = self.senses.see(arrival.observation, arrival.infos, over=over)
            if len(rows):
                last = self.senses.see(
                    arrival.ended_observations, arrival.ended_infos, rows, arrival.terminated[rows]
                )
                landed = sight.replaced(rows, last)
            stepped, begun = np.flatnonzero(arrival.stepped), np.flatnonzero(arrival.begun)
            after, first = landed, sight.at(begun) if len(begun) else None
            final = arrival.terminated
            if not self.bootstrap_truncated:
                final = final | arrival.truncated
            done: tuple[NDArray[Any], ...] = (action, arrival.reward, final, arrival.truncated)
            if len(stepped) < len(action):
                after, done = landed.at(stepped), tuple(x[stepped] for x in done)
            if self.replay is not None:
                if len(stepped):
                    self.replay.add(stepped, *done, **after.given())
                if first is not None:
                    self.replay.begin(begun, **first.given())
        self.sight, self.episode_start = sight, arrival.begun
        new = _readings(after)
        if first is not None:
            new = np.concatenate([new, _readings(first)])
        return Collected(
            len(stepped), arrival.episodes, new, arrival.reward, arrival.stepped,
            arrival.terminated | arrival.truncated,
        )  # fmt: skip

    def state_dict(self) -> dict[str, Any] | None:
        """The episodes under way, once `reset` began them; None where the environment is mute."""
        streams = self.streams.state_dict()
        if streams is None:
            return None
        shown = {name: x.copy() for name, x in self.sight.given().items()}
        return {"streams": streams, "sight": shown, "episode_start": self.episode_start.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on in the same episodes."""
        self.streams.load_state_dict(state["streams"])
        self.sight = Sight(**{name: x.copy() for name, x in state["sight"].items()})
        self.episode_start = state["episode_start"].copy()


def _readings(sight: Sight) -> Float32:
    """(k, O): the observations that are not missing."""
    return sight.observation if sight.observed is None else sight.observation[sight.observed]
