"""Environments × policy → transitions in the replay.

The collector knows neither networks nor normalisation: a policy is a function from encoded
observations to agent actions, and whoever owns the policy carries its state.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from kalmanac.envs.spaces import ActionCodec, ObservationCodec
from kalmanac.replay import Replay
from kalmanac.rollout.failure import environment_judged
from kalmanac.rollout.vectors import Arrival, Episode, EpisodeStreams

Float32 = NDArray[np.float32]
# encoded observations (n, O) and "an episode starts here" (n,) → agent actions (n,) or (n, A)
Policy = Callable[[Float32, NDArray[np.bool_]], NDArray[Any]]


class Collected(NamedTuple):
    """What one vector step brought."""

    transitions: int  # at most n; NEXT_STEP's reset steps are none
    episodes: list[Episode]  # those that ended
    observations: Float32  # (k, O): every observation that is new in the replay


class Collector:
    """Steps a vector environment with a policy and stores what happened, stream i ↔ environment i.

    With `privileged`, the environment's `info["privileged"]` is stored beside each observation.
    """

    def __init__(
        self, env: VectorEnv[Any, Any, Any], observations: ObservationCodec, actions: ActionCodec,
        replay: Replay | None = None, *, privileged: bool = False,
    ) -> None:  # fmt: skip
        self.streams = EpisodeStreams(env)
        self.observations, self.actions = observations, actions
        self.replay = replay
        self.privileged = privileged
        self.observation: Float32  # (n, O), to act on next
        self.episode_start: NDArray[np.bool_]  # (n,)

    def reset(self, seed: int | None = None) -> Collected:
        """Begin an episode in every environment."""
        observation, infos = self.streams.reset(seed)
        self.episode_start = np.ones(self.streams.num_envs, dtype=np.bool_)
        rows = np.arange(self.streams.num_envs)
        with environment_judged():
            self.observation = self.observations.encode(observation)
            if self.replay is not None:
                self.replay.begin(rows, self.observation, self._truth(infos, rows))
        return Collected(0, [], self.observation)

    def step(self, policy: Policy) -> Collected:
        """Act once in every environment."""
        action = policy(self.observation, self.episode_start)
        arrival = self.streams.step(self.actions.decode(action))
        with environment_judged():
            observation = self.observations.encode(arrival.observation)
            landed = observation
            if len(arrival.ended_rows):
                landed = observation.copy()
                landed[arrival.ended_rows] = self.observations.encode(arrival.ended_observations)

            stepped, begun = np.flatnonzero(arrival.stepped), np.flatnonzero(arrival.begun)
            if self.replay is not None:
                if len(stepped):
                    self.replay.add(
                        stepped, action[stepped], arrival.reward[stepped],
                        arrival.terminated[stepped], arrival.truncated[stepped], landed[stepped],
                        self._landed_truth(arrival, stepped),
                    )  # fmt: skip
                if len(begun):
                    self.replay.begin(begun, observation[begun], self._truth(arrival.infos, begun))
        self.observation, self.episode_start = observation, arrival.begun
        new = np.concatenate([landed[stepped], observation[begun]])
        return Collected(len(stepped), arrival.episodes, new)

    def state_dict(self) -> dict[str, Any] | None:
        """The episodes under way, once `reset` began them; None where the environment is mute."""
        streams = self.streams.state_dict()
        if streams is None:
            return None
        seen = {"observation": self.observation, "episode_start": self.episode_start}
        return {"streams": streams} | {name: array.copy() for name, array in seen.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on in the same episodes."""
        self.streams.load_state_dict(state["streams"])
        self.observation = state["observation"].copy()
        self.episode_start = state["episode_start"].copy()

    def _landed_truth(self, arrival: Arrival, rows: NDArray[np.int64]) -> Float32 | None:
        """(k, S): the true states that the actions of `rows` led to."""
        truth = self._truth(arrival.infos, rows)
        last = self._truth(arrival.ended_infos, arrival.ended_rows)
        if truth is not None and last is not None:
            truth[np.searchsorted(rows, arrival.ended_rows)] = last
        return truth

    def _truth(self, infos: Mapping[str, Any], rows: NDArray[np.int64]) -> Float32 | None:
        """(k, S): the true states of `rows` that came with the observations."""
        if not self.privileged or not len(rows):
            return None
        present = infos.get("_privileged", np.ones(self.streams.num_envs, dtype=np.bool_))
        if "privileged" not in infos or not present[rows].all():
            raise ValueError(
                'info["privileged"]: got none from the environment, expected the true state with '
                "every observation, the first and the last of an episode too"
            )
        return np.asarray(infos["privileged"])[rows].astype(np.float32)
