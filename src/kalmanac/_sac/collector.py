"""Environments × policy → transitions in the replay.

The collector knows neither networks nor normalization: whoever owns the policy asks it for the
actions to take, and carries its state.
"""

from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from kalmanac._envs.action_codecs import ActionCodec
from kalmanac._envs.observation_codecs import ObservationCodec
from kalmanac._observation import Observation
from kalmanac._replay.buffer import Replay
from kalmanac._sac.environment_failure import environment_output_checked
from kalmanac._sac.episode_streams import Episode, EpisodeStreams
from kalmanac._sac.observations import Arrays, ObservationReader, readings

Float32 = NDArray[np.float32]


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

    `parts` says which parts observations have beside the environment's own, as for an
    `ObservationReader`; with `previous_reward`, the policy sees the last step's. Without
    `bootstrap_truncated`, truncated episodes are stored as terminated.
    """

    def __init__(
        self, env: VectorEnv[Any, Any, Any], observations: ObservationCodec, actions: ActionCodec,
        replay: Replay | None = None, *, bootstrap_truncated: bool = True,
        previous_reward: bool = False, **parts: bool,
    ) -> None:  # fmt: skip
        self.streams = EpisodeStreams(env)
        self.actions = actions
        self.reader = ObservationReader(observations, actions, **parts)
        self.replay, self.bootstrap_truncated = replay, bootstrap_truncated
        self.previous_reward = previous_reward
        self.observation: Arrays  # of n environments, to act on next
        self.episode_start: NDArray[np.bool_]  # (n,)

    def reset(self, seed: int | None = None) -> Collected:
        """Begin an episode in every environment."""
        batch, infos = self.streams.reset(seed)
        self.episode_start = np.ones(self.streams.num_envs, dtype=np.bool_)
        with environment_output_checked():
            self.observation = self.reader.read(batch, infos)
            if self.replay is not None:
                self.replay.begin(np.arange(self.streams.num_envs), self.observation)
        nobody = np.zeros(self.streams.num_envs, dtype=np.bool_)
        self._show(np.zeros(len(nobody)))
        return Collected(0, [], readings(self.observation), np.zeros(len(nobody)), nobody, nobody)

    def take(self, action: NDArray[Any]) -> Collected:
        """Take these agent actions, (n,) or (n, A), in the n environments."""
        arrival = self.streams.step(self.actions.decode(action))
        with environment_output_checked():
            rows = arrival.ended_rows
            over = arrival.terminated if not len(rows) else None  # else `current` has new episodes
            current = next_observation = self.reader.read(
                arrival.observation, arrival.infos, over=over
            )
            if len(rows):
                last = self.reader.read(
                    arrival.ended_observations, arrival.ended_infos, rows, arrival.terminated[rows]
                )
                next_observation = current.replace_rows(rows, last)
            (stepped,), (begun,) = arrival.stepped.nonzero(), arrival.begun.nonzero()
            first = current.map(lambda x: x[begun]) if len(begun) else None
            final = arrival.terminated
            if not self.bootstrap_truncated:
                final = final | arrival.truncated
            reward, truncated = arrival.reward, arrival.truncated
            if len(stepped) < len(action):
                next_observation = next_observation.map(lambda x: x[stepped])
                action, reward = action[stepped], reward[stepped]
                final, truncated = final[stepped], truncated[stepped]
            if self.replay is not None:
                if len(stepped):
                    self.replay.add(stepped, action, reward, final, truncated, next_observation)
                if first is not None:
                    self.replay.begin(begun, first)
        self.observation, self.episode_start = current, arrival.begun
        self._show(arrival.reward)
        new = readings(next_observation)
        if first is not None:
            new = np.concatenate([new, readings(first)])
        return Collected(
            len(stepped), arrival.episodes, new, arrival.reward, arrival.stepped,
            arrival.terminated | arrival.truncated,
        )  # fmt: skip

    def _show(self, reward: NDArray[np.float64]) -> None:
        """Put the reward of the last step beside the observation, where the policy sees it."""
        if self.previous_reward:
            shown = np.where(self.episode_start, 0.0, reward).astype(np.float32)
            self.observation = self.observation._replace(previous_reward=shown)

    def state_dict(self) -> dict[str, Any] | None:
        """The episodes under way, once `reset` began them; None where the environment is mute."""
        streams = self.streams.state_dict()
        if streams is None:
            return None
        return {
            "streams": streams,
            "sight": self.observation.map(np.copy).to_stored(),
            "episode_start": self.episode_start.copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on in the same episodes."""
        self.streams.load_state_dict(state["streams"])
        self.observation = Observation.from_stored(state["sight"]).map(np.copy)
        self.episode_start = state["episode_start"].copy()
