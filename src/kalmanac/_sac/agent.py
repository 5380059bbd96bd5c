"""What an agent holds, and how it acts: `RecurrentSAC` learns with it."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike
from torch import Tensor

from kalmanac._checked_fields import Within, bounded
from kalmanac._ops.device import choose_device
from kalmanac._replay.buffer import Replay
from kalmanac._sac.config import AgentSettings, Arguments, plain_settings, takes
from kalmanac._sac.episode_streams import Environment, as_vector
from kalmanac._sac.learner import Learner, Metrics
from kalmanac._sac.model_check import STATISTICS, learned_tensors, plain, with_parameters
from kalmanac._sac.normalization import ObservationNormalizer, ReturnScale
from kalmanac._sac.observations import InfoKeys, read_rewards
from kalmanac._sac.policy import Policy, PolicyState, Session
from kalmanac._sac.problem import Problem
from kalmanac._sac.training import Training
from kalmanac._sac.training_log import Logger


class Agent:
    """Networks, replay and environment of an agent, and its predictions."""

    @takes(Arguments)
    def __init__(
        self, *, env: Environment | str | None = None, seed: int | None = None,
        device: str | torch.device = "auto", verbose: int = 0,
        tensorboard_log: str | os.PathLike[str] | None = None, **given: Any,
    ) -> None:  # fmt: skip
        settings, self._schedule = plain_settings(given)
        self.settings = AgentSettings(**settings)
        self.tensorboard_log, self._log_name = tensorboard_log, ""
        self._printing = ["stdout"] if verbose else []
        self.logger = Logger(formats=self._printing)
        self.device = choose_device(device)
        self.seed = _seed(seed)
        # of its own, so that looking at the agent does not change its training
        self._predicting = torch.Generator(self.device).manual_seed(self.seed)
        self.num_timesteps = 0  # transitions, of all environments and trainings together
        self.num_updates = 0
        self.normalizer: ObservationNormalizer | None = None
        scaled = self.settings.normalize_rewards
        self.return_scale = ReturnScale(self.settings.gamma) if scaled else None
        self._problem: Problem | None = None
        self._policy: Policy | None = None
        self._training: Training | None = None
        self._data: Replay | None = None  # episodes from elsewhere, before there is an environment
        self._policy_alone = False  # loaded without critic and optimizer
        if env is not None:
            self.set_env(env)

    @property
    def env(self) -> VectorEnv[Any, Any, Any] | None:
        """The vector environment of the training."""
        return None if self._training is None else self._training.collector.streams.env

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """Of one environment."""
        return self._known()[0].observation_space

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """Of one environment."""
        return self._known()[0].action_space

    @property
    def info_keys(self) -> frozenset[str]:
        """Keys of its environment's infos that are to be arguments of `predict`."""
        return self._known()[0].reader.info_keys

    @property
    def previous_reward(self) -> bool:
        """Whether the rewards of the last step are to be an argument of `predict`."""
        return self.settings.previous_reward

    @property
    def learner(self) -> Learner:
        """The networks and their optimizer."""
        return self._known()[1].learner

    @property
    def policy(self) -> Policy:
        """What predicts: the actor with averaged weights, with the normalizer before it."""
        return self._known()[1]

    @property
    def replay(self) -> Replay:
        """The transitions collected, and those of episodes that were added."""
        return self._attached().replay if self._data is None else self._data

    def set_env(self, env: Environment | str) -> None:
        """Train in `env` from now on; its spaces must be those of the environment before.

        Episodes under way end as truncated. The number of environments may change.
        """
        if self._policy_alone:
            raise ValueError(
                "env: got one to train in, expected None: the model's file holds its policy alone"
            )
        vector = as_vector(env)
        if self._problem is None:
            self._build(Problem.of(vector, privileged=self.settings.privileged_critic))
        self._known()[0].require_same(vector)
        if self._training is None:
            self._training, self._data = self._new_training(vector, self._data), None
        else:
            self._training.change_env(vector, self.seed)

    def set_spaces(
        self, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any], *,
        privileged_space: gymnasium.Space[Any] | None = None, observed: bool = False,
        action_mask: bool = False, unmeasured: Sequence[int] = (),
    ) -> None:  # fmt: skip
        """Make the agent for these spaces, without an environment: to learn from data alone.

        Args:
            privileged_space: of the true state, for `privileged_critic`.
            observed, action_mask: whether infos tell of missing readings and forbidden actions.
            unmeasured: places of an observation, a vector, that no sensor reads.
        """
        if self._problem is not None:
            raise ValueError("set_spaces: got spaces, expected none: the agent has its own")
        keys = InfoKeys(observed, action_mask)
        self._build(Problem(observation_space, action_space, privileged_space, keys, unmeasured))

    def predict(
        self, observation: Any, state: PolicyState | None = None,
        episode_start: ArrayLike | None = None, deterministic: bool = False,
        action_masks: ArrayLike | None = None, observed: ArrayLike | None = None,
        previous_reward: ArrayLike | None = None,
    ) -> tuple[Any, PolicyState]:  # fmt: skip
        """The action for an observation, or those for a batch (n, …), and the state behind them.

        Args:
            state: what the last call gave back; None at the start of episodes.
            episode_start: (n,) bool, True where the observation is the first of an episode.
            deterministic: the most likely action, or the mean one; else one drawn.
            action_masks: (n, A), 0 where a discrete action is forbidden; None: all are allowed.
            observed: (n,) bool, False where the reading is missing; None: none is.
            previous_reward: (n,), what the last action has brought, in the environment's own units;
                for agents with that setting, and only they take it. What stands there at the start
                of an episode does not count; where all begin, it may be left out.
        """
        problem, policy = self._known()
        encoded, single = problem.observe(observation, action_masks=action_masks, observed=observed)
        n = len(encoded.vector)
        begins = state is None
        state = policy.start(n) if state is None else state
        if not isinstance(state, PolicyState):
            raise TypeError(f"state: got {type(state).__name__}, expected what predict gave back")
        if state.episodes != n:
            raise ValueError(f"state: got one of {state.episodes} episodes, expected {n}")
        starts = np.zeros(n, dtype=np.bool_)
        if episode_start is not None:
            starts = np.asarray(episode_start, dtype=np.bool_).reshape(-1)
            if len(starts) != n:
                raise ValueError(f"episode_start: got {len(starts)} flags, expected {n}")
        if self.previous_reward:
            reward = read_rewards(previous_reward, starts | begins)
            encoded = encoded._replace(previous_reward=reward)
        elif previous_reward is not None:
            raise ValueError("previous_reward: got one, expected none: the agent does not see it")
        action, state = policy.act(
            encoded, state, starts, explore=not deterministic, generator=self._predicting
        )
        actions = problem.actions.decode(action)
        return (actions[0] if single else actions), state

    @contextmanager
    def eager_acting(self) -> Iterator[None]:
        """Act without CUDA graphs inside: hooks on the actor's modules run at every step."""
        policy = self._known()[1]
        policy.eager = True
        try:
            yield
        finally:
            policy.eager = False

    def set_random_seed(self, seed: int) -> None:
        """Decide the actions that `predict` draws from now on; the training's are its own."""
        self._predicting.manual_seed(_seed(seed))

    def session(self, *, deterministic: bool = True) -> Session:
        """An object that acts and remembers: `session.act(observation)`, `session.reset()`."""
        self._known()
        return Session(self, deterministic=deterministic)

    def diagnostics(self) -> Metrics:
        """A closer look at the agent on a batch of its replay; changes nothing."""
        return self.learner.diagnostics(self._attached().batch_aside())

    def get_parameters(self) -> dict[str, Tensor]:
        """Copies of everything learned, by name: actor.…, critic.…, target.…, log_alpha, Adam's
        averages, adam.…, and the statistics of observations, normalizer.…, and of returns,
        return_scale.…; `predict` acts by averaged.…, unless `average_policy` is False."""
        return learned_tensors({"learner": self.learner.state_dict()}) | self._statistics()

    def set_parameters(
        self, load_path_or_dict: Mapping[str, Tensor], exact_match: bool = True
    ) -> None:
        """Take over what `get_parameters` gave, of this model or of one with the same networks.

        Args:
            load_path_or_dict: tensors by name; `load` is for files.
            exact_match: False leaves what is not named as it is. An actor without averaged weights
                begins its average anew.
        """
        own = self.learner.state_dict() | self._statistics()
        state = with_parameters(own, load_path_or_dict, exact_match, self.settings.ent_coef)
        for kind, scale in self._scales().items():
            gathered = {name: plain(state.pop(f"{kind}.{name}")) for name in STATISTICS}
            scale.load_state_dict(scale.state_dict() | gathered)
        self.learner.load_state_dict(state)

    def _scales(self) -> dict[str, ObservationNormalizer | ReturnScale]:
        scales = {"normalizer": self.normalizer, "return_scale": self.return_scale}
        return {kind: scale for kind, scale in scales.items() if scale is not None}

    def _statistics(self) -> dict[str, Tensor]:
        return {
            f"{kind}.{name}": torch.as_tensor(scale.state_dict()[name], dtype=dtype)
            for kind, scale in self._scales().items()
            for name, dtype in STATISTICS.items()
        }

    def _build(self, problem: Problem) -> None:
        if self.settings.normalize_observations:
            self.normalizer = ObservationNormalizer(
                problem.sizes.observation,
                scaled=problem.observations.scaled,
                measured=problem.observations.measured,
            )
        learner = Learner(self.settings, problem.sizes, device=self.device, seed=self.seed)
        self._problem = problem
        graph = self.settings.graph
        self._policy = Policy(
            learner, self.normalizer, graph=graph, averaged=True, return_scale=self.return_scale
        )

    def _set_unmeasured(self, places: tuple[int, ...]) -> None:
        """A run from before goes on with the places that it had, whatever its environment says."""
        problem = self._known()[0]
        if places != problem.unmeasured:
            problem.set_unmeasured(places)
            if self.normalizer is not None:
                self.normalizer.set_measured(problem.observations.measured)

    def _new_training(
        self, env: VectorEnv[Any, Any, Any], replay: Replay | None = None
    ) -> Training:
        problem, policy = self._known()
        explorer = Policy(
            policy.learner, self.normalizer, graph=self.settings.graph,
            return_scale=self.return_scale,
        )  # fmt: skip
        return Training(
            explorer, self.settings, env, problem, seed=self.seed,
            steps_before=self.num_timesteps, replay=replay,
        )  # fmt: skip

    def _known(self) -> tuple[Problem, Policy]:
        if self._problem is None or self._policy is None:
            raise ValueError("env: got None, expected one; give it to RecurrentSAC or to set_env")
        return self._problem, self._policy

    def _attached(self) -> Training:
        if self._training is None:
            raise ValueError("env: got None, expected one to train in; set_env gives it")
        return self._training


def _seed(seed: int | None) -> int:
    """The seed as a plain number; one drawn from the system for None."""
    if seed is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    return bounded("seed", seed, int, Within(0, 2**64, "[)"))
