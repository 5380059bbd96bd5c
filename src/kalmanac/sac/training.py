"""What a training holds beside the agent: environments, replay, random streams, and the account."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from kalmanac.agent import Metrics
from kalmanac.agent.capture import CapturedUpdate
from kalmanac.envs.spaces import ActionCodec, ObservationCodec
from kalmanac.replay import Batch, Replay
from kalmanac.rollout import Collected, Collector, Sight
from kalmanac.sac.acting import Policy, PolicyState
from kalmanac.sac.settings import TrainingSettings


class Training:
    """Collects with the policy, draws batches, and knows how many updates are due.

    `steps_before` is what the agent had seen before this training: beyond `learning_starts`, its
    own policy acts from the first step on.
    """

    def __init__(
        self, policy: Policy, settings: TrainingSettings, env: VectorEnv[Any, Any, Any],
        observations: ObservationCodec, actions: ActionCodec, *, seed: int, steps_before: int = 0,
    ) -> None:  # fmt: skip
        self.policy, self.settings = policy, settings
        self.observations, self.actions = observations, actions
        self.steps_before = steps_before
        self.transitions = 0  # collected in this training
        self.updates = 0
        if settings.buffer_size is not None and settings.buffer_size < env.num_envs:
            raise ValueError(
                f"buffer_size: got {settings.buffer_size}, expected at least one transition for "
                f"each of {env.num_envs} environments"
            )
        self.replay = Replay(
            policy.learner.sizes, env.num_envs, capacity=settings.buffer_size, device=policy.device
        )
        learner = policy.learner
        self.update: Callable[[Batch], Metrics] = (
            CapturedUpdate(learner) if policy.device.type == "cuda" else learner.update
        )
        self._attach(env, seed)

    def change_env(self, env: VectorEnv[Any, Any, Any], seed: int) -> None:
        """Go on in another environment; the episodes under way end as truncated."""
        self.replay.close()
        if env.num_envs > self.replay.streams:
            self.replay = _with_streams(self.replay, env.num_envs)
        self._attach(env, seed)

    def collect(self) -> Collected:
        """One vector step; the first one begins the episodes."""
        normaliser = self.policy.normaliser
        if self._state is None:
            begun = self.collector.reset(self._env_seed)
            if normaliser is not None:
                normaliser.update(begun.observations)
        collected = self.collector.step(self._act)
        if normaliser is not None:
            normaliser.update(collected.observations)
        self.transitions += collected.transitions
        return collected

    def updates_due(self) -> int:
        """Updates that the transitions collected so far call for and that have not been made."""
        return self.settings.updates_after(self.transitions) - self.updates

    def batch(self) -> Batch:
        """A batch for an update."""
        return self._draw(self._drawing)

    def batch_aside(self) -> Batch:
        """A batch for looking at: the updates draw the same ones whether it is asked for or not."""
        return self._draw(self._looking)

    def _attach(self, env: VectorEnv[Any, Any, Any], seed: int) -> None:
        sizes = self.policy.learner.sizes
        self.collector = Collector(
            env, self.observations, self.actions, self.replay, privileged=sizes.privileged > 0,
            observed=sizes.observed, action_mask=sizes.action_mask,
        )  # fmt: skip
        self._state: PolicyState | None = None
        words = np.random.SeedSequence([seed, self.steps_before + self.transitions])
        env_seed, warm_up, drawing, looking = (int(word) for word in words.generate_state(4))
        self._env_seed = env_seed % 2**31  # some environments take no more bits
        self._warm_up = np.random.default_rng(warm_up)
        device = self.policy.device
        self._drawing = torch.Generator(device).manual_seed(drawing)
        self._looking = torch.Generator(device).manual_seed(looking)

    def _act(self, sight: Sight, episode_start: NDArray[np.bool_]) -> NDArray[Any]:
        n = len(episode_start)
        before = self.policy.start(n) if self._state is None else self._state
        action, state = self.policy.act(sight, before, episode_start, explore=True)
        if self.steps_before + self.transitions < self.settings.learning_starts:
            # The policy listens during the warm-up: episodes go on when it takes over.
            action = self.actions.sample(self._warm_up, n, sight.action_mask)
            state = self.policy.instead(action, state)
        self._state = state
        return action

    def _draw(self, generator: torch.Generator) -> Batch:
        settings = self.settings
        batch = self.replay.sample(
            settings.batch_size,
            settings.context_length,
            generator=generator,
            rule=settings.drawing,
            burn_in=settings.burn_in,
            true_previous_action=settings.true_previous_action,
            packed=self.policy.device.type == "cpu",
        )
        normaliser = self.policy.normaliser
        return batch if normaliser is None else normaliser.batch(batch)


def _with_streams(replay: Replay, streams: int) -> Replay:
    """A replay that holds the same and has room for more streams; no episode may be open."""
    if replay.capacity is not None:
        raise ValueError(
            f"env: got {streams} environments, expected at most {replay.streams}: "
            "a bounded replay has its shares for so many"
        )
    missing = streams - replay.streams
    state = replay.state_dict() | {"streams": streams}
    for part in ("storage", "episodes"):
        state[part] = {
            name: x if name == "table" else torch.cat([x, x.new_zeros(missing, *x.shape[1:])])
            for name, x in state[part].items()
        }
    state["episodes"]["slot"].fill_(-1)
    wider = Replay(replay.sizes, streams, device=replay.device)
    wider.load_state_dict(state)
    return wider
