"""What a training holds beside the agent: environments, replay, random streams, and the account."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from kalmanac._ops.graphed_call import can_record
from kalmanac._replay.buffer import Replay
from kalmanac._replay.sampling import Batch
from kalmanac._sac.collector import Collected, Collector
from kalmanac._sac.config import AgentSettings
from kalmanac._sac.cuda_graph import GraphedUpdates, Work
from kalmanac._sac.exploration import ExplorationNoise
from kalmanac._sac.generators import load_generator
from kalmanac._sac.learner import Metrics
from kalmanac._sac.policy import Asking, PendingActions, Policy, PolicyState, Question
from kalmanac._sac.pretraining import sample_batch
from kalmanac._sac.problem import Problem


class Training(Work):
    """Collects with the policy, samples batches, and knows how many updates are due.

    `steps_before` is what the agent had seen before this training: beyond `learning_starts`, its
    own policy acts from the first step on, and learns as soon as a batch can be drawn. What a
    `replay` holds that is given counts as seen, too; its open episodes end as truncated.
    """

    def __init__(
        self, policy: Policy, settings: AgentSettings, env: VectorEnv[Any, Any, Any],
        problem: Problem, *, seed: int, steps_before: int = 0, replay: Replay | None = None,
    ) -> None:  # fmt: skip
        self.policy, self.settings, self.return_scale = policy, settings, policy.return_scale
        self.tf32 = settings.tf32
        self.problem, self.steps_before = problem, steps_before
        self.transitions = 0  # collected in this training
        self.updates = 0
        if settings.buffer_size is not None and settings.buffer_size < env.num_envs:
            raise ValueError(
                f"buffer_size: got {settings.buffer_size}, expected at least one transition for "
                f"each of {env.num_envs} environments"
            )
        if replay is None:
            sizes, capacity = policy.learner.sizes, settings.buffer_size
            replay = Replay(sizes, env.num_envs, capacity=capacity, device=policy.device)
        self.replay = replay
        self.replay.graph = settings.graph
        self._stored_before = self.replay.steps
        self._make_streams(env.num_envs)
        self._state: PolicyState | None = None  # before the first vector step
        self.pending: PendingActions | None = None  # actions that are chosen and not taken
        self._asking = Asking(carried=True)
        self._attach(env, seed)
        self._graphed_updates: GraphedUpdates | None = None
        self._near = torch.zeros((), device=policy.device)  # where recorded updates read it

    def change_env(self, env: VectorEnv[Any, Any, Any], seed: int) -> None:
        """Go on in another environment; the episodes under way end as truncated."""
        self._graphed_updates = None  # it draws from the generator of before
        self._make_streams(env.num_envs)
        self._attach(env, seed)

    def ask(self) -> None:
        """Let the policy choose the next actions, unless it has; `collect` waits for them."""
        if (question := self.question()) is not None:
            (self.pending,) = self._asking([question])

    def question(self) -> Question | None:
        """What the policy is to be asked, unless it was; the first time, episodes begin."""
        if self.pending is not None:
            return None
        if self._state is None:
            collected = self.collector.reset(self._env_seed)
            if self.policy.normalizer is not None:
                self.policy.normalizer.update(collected.observations)
            self._state = self.policy.start(self.collector.streams.num_envs)
        seen = self.collector.observation._replace(privileged=None)
        start, rng = self.collector.episode_start, self.policy.learner.acting
        noise = None if self._noise is None else self._noise.step(start)
        return Question(self.policy, seen, start, self._state, rng, noise)

    def collect(self) -> Collected:
        """Make one vector step, with the pending actions or new ones."""
        self.ask()
        collected = self.collector.take(self._chosen())
        if self.policy.normalizer is not None:
            self.policy.normalizer.update(collected.observations)
        if self.return_scale is not None:
            self.return_scale.update(collected.reward, collected.stepped, collected.ended)
        self.transitions += collected.transitions
        return collected

    @property
    def reward_factor(self) -> float:
        """What rewards are multiplied by before the critic sees them."""
        return 1.0 if self.return_scale is None else self.return_scale.factor

    def updates_due(self) -> int:
        """Updates that the transitions collected so far call for and that have not been made."""
        warm_up = self.settings.warm_up(self._warm_up_before, self._stored_before)
        return self.settings.updates_after(self.transitions, warm_up) - self.updates

    def update(self) -> Metrics:
        """Sample a batch and learn from it; on CUDA, as a replayed graph unless settings say no."""
        if not can_record(self.policy.device):
            self.prepare()
            return self.run()
        if self._graphed_updates is None:
            self._graphed_updates = GraphedUpdates(
                [self], self.policy.device, record=self.settings.graph
            )
        return self._graphed_updates()[0]

    def run(self) -> Metrics:
        """Sample a batch and learn from it, eagerly."""
        batch = self._sample(self._sampling)
        metrics = dict(self.policy.learner.update(batch, near=self._near_data, online=self._near))
        metrics.pop("train/cloning_loss", None)  # means are of what every update has
        return metrics

    def prepare(self) -> Hashable:
        """Bring what batches are sampled from up to date on the device.

        Returns the places of the replay, and how near an update stays to its actions.
        """
        self.policy.settle()
        if share := self._share_of_data:
            self._near.fill_(share)
        return self.replay.places(), self._near_data

    def generators(self) -> Sequence[torch.Generator]:
        """Return those of sampling and of learning."""
        return [self._sampling, self.policy.learner.learning]

    def batch_aside(self) -> Batch:
        """Sample a batch for diagnostics, which does not change the batches of updates."""
        return self._sample(self._diagnosing)

    @property
    def _near_data(self) -> float | None:
        """The weight of staying near the replay's actions, as long as that has a share."""
        return self.policy.learner.pretrained.near_data if self._share_of_data else None

    @property
    def _share_of_data(self) -> float:
        """The share of staying near the replay's actions in the actor's loss."""
        steps = self.steps_before + self.transitions
        return self.settings.near_online(self.policy.learner.pretrained, steps)

    @property
    def _warm_up_before(self) -> int:
        return max(self.steps_before, self._stored_before)

    def _make_streams(self, streams: int) -> None:
        """Make room for so many environments; the episodes under way end as truncated."""
        more, room = streams > self.replay.streams, self.replay.capacity
        if more and room is not None and self.replay.longest > room // streams:
            raise ValueError(
                f"env: got {streams} environments, expected at most {room // self.replay.longest}: "
                f"each has its share of buffer_size, {room}, and an episode of "
                f"{self.replay.longest} steps is stored"
            )
        self.replay.close()
        if more:
            self.replay = _with_streams(self.replay, streams)

    def _attach(self, env: VectorEnv[Any, Any, Any], seed: int) -> None:
        sizes = self.policy.learner.sizes
        self.collector = Collector(
            env, self.problem.observations, self.problem.actions, self.replay,
            privileged=sizes.privileged > 0, observed=sizes.observed,
            action_mask=sizes.action_mask, bootstrap_truncated=self._bootstraps(env),
            previous_reward=self.settings.previous_reward,
        )  # fmt: skip
        if self.return_scale is not None:
            self.return_scale.attach(env.num_envs)
        self._state = self.pending = None
        self._env_seed, warm_up, sampling, diagnosing, exploring = self._seeds(seed)
        self._warm_up = np.random.default_rng(warm_up)
        self._noise: ExplorationNoise | None = None  # with a memory
        if correlation := self.settings.exploration_correlation:
            self._noise = ExplorationNoise(correlation, env.num_envs, sizes.action, exploring)
        device = self.policy.device
        self._sampling = torch.Generator(device).manual_seed(sampling)
        self._diagnosing = torch.Generator(device).manual_seed(diagnosing)

    def _bootstraps(self, env: VectorEnv[Any, Any, Any]) -> bool:
        """Whether an episode that `env` truncates is one that might have gone on."""
        if self.settings.bootstrap_truncated != "auto":
            return self.settings.bootstrap_truncated
        stated = (env.metadata or {}).get("bootstrap_truncated", True)
        if not isinstance(stated, bool):
            raise TypeError(
                f'env.metadata["bootstrap_truncated"]: got {stated!r}, expected True or False'
            )
        return stated

    def _seeds(self, seed: int) -> tuple[int, int, int, int, int]:
        """Seeds of the environment, warm-up, sampling, diagnostics and exploration, from here."""
        sequence = np.random.SeedSequence([seed, self.steps_before + self.transitions])
        env_seed, warm_up, sampling, diagnosing, exploring = sequence.generate_state(5).tolist()
        return env_seed % 2**31, warm_up, sampling, diagnosing, exploring  # some take no more bits

    def _chosen(self) -> NDArray[Any]:
        """The actions to take, and the memory behind them."""
        assert self.pending is not None
        action, state = self.pending.action.array(), self.pending.state
        if self._warm_up_before + self.transitions < self.settings.learning_starts:
            # The policy listens during the warm-up: episodes go on when it takes over.
            if self._noise is not None:
                action = self._noise.uniform()
            else:
                mask = self.collector.observation.action_mask
                action = self.problem.actions.sample(self._warm_up, len(action), mask)
            state = self.policy.replace_action(action, state)
        self._state, self.pending = state, None
        return action

    def _sample(self, generator: torch.Generator) -> Batch:
        return sample_batch(self.replay, self.settings, self.policy, generator)

    def state_dict(self) -> dict[str, Any]:
        """All but the replay and the learner, as arrays and plain data.

        "episodes" is None before the first step, and False where the environment cannot tell its
        state: those under way are then lost. Actions that are chosen and not taken are no state.
        """
        if self.pending is not None:
            raise ValueError(
                "checkpoint: got one between the choice of actions and their step, expected one "
                "after a step, as in `on_step`"
            )
        episodes: dict[str, Any] | bool | None = None
        if self._state is not None:
            under_way = self.collector.state_dict()
            memory = {
                "memory": tuple(x.clone() for x in self._state.encoder),  # the next step changes it
                "previous_action": self._state.previous_action.clone(),
            }
            episodes = False if under_way is None else under_way | memory
        return {
            "transitions": self.transitions,
            "updates": self.updates,
            "steps_before": self.steps_before,
            "held_before": self._stored_before,
            "env_seed": self._env_seed,
            "warm_up": self._warm_up.bit_generator.state,
            "exploration": None if self._noise is None else self._noise.state_dict(),
            "drawing": self._sampling.get_state(),
            "looking": self._diagnosing.get_state(),
            "episodes": episodes,
        }

    def load_state_dict(self, state: dict[str, Any], seed: int) -> bool:
        """Go on where `state_dict` was called, with the replay of that time already in place.

        Returns False where the environment could not tell its state: its episodes have ended as
        truncated, and others begin, as `seed` and the steps done decide.
        """
        self.transitions, self.updates = state["transitions"], state["updates"]
        self.steps_before, self._env_seed = state["steps_before"], state["env_seed"]
        self._stored_before = state.get("held_before", 0)
        self._state = self.pending = None  # what was chosen belongs to other episodes
        self._warm_up.bit_generator.state = state["warm_up"]
        load_generator(self._sampling, state["drawing"])
        load_generator(self._diagnosing, state["looking"])
        if self._noise is not None:
            self._noise.load_state_dict(state["exploration"])
        episodes = state["episodes"]
        if episodes is False:
            if self.return_scale is not None:
                self.return_scale.attach(self.collector.streams.num_envs)
            self.replay.close()
            self._env_seed = self._seeds(seed)[0]
        elif episodes is not None:
            self.collector.load_state_dict(episodes)
            like = self.policy.start(self.collector.streams.num_envs)
            memory = (x.to(self.policy.device) for x in episodes["memory"])
            self._state = PolicyState(
                type(like.encoder)(*memory), episodes["previous_action"].to(self.policy.device)
            )
        return episodes is not False


def _with_streams(replay: Replay, streams: int) -> Replay:
    """A replay that holds the same and has room for more streams; no episode may be open."""
    wider = Replay(replay.sizes, streams, capacity=replay.capacity, device=replay.device)
    wider.graph = replay.graph
    if replay.capacity is not None:  # shares become smaller
        for episode in replay.stored_episodes():
            wider.add_episode(episode)
        return wider
    missing = streams - replay.streams
    state = replay.state_dict() | {"streams": streams}
    for part in ("storage", "episodes"):
        state[part] = {
            name: x if name == "table" else torch.cat([x, x.new_zeros(missing, *x.shape[1:])])
            for name, x in state[part].items()
        }
    state["episodes"]["slot"].fill_(-1)
    wider.load_state_dict(state)
    return wider
