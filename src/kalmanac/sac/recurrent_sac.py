"""RecurrentSAC: soft actor-critic for partial observability, used like an algorithm of SB3."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike

from kalmanac.agent import AgentSettings, Learner, Metrics
from kalmanac.agent.settings import ActorObjective
from kalmanac.agent.snapshot import load_generator
from kalmanac.replay import Replay
from kalmanac.rollout import as_vector
from kalmanac.rollout.vectors import Environment
from kalmanac.sac.acting import Policy, PolicyState
from kalmanac.sac.callbacks import Callback, Callbacks
from kalmanac.sac.loaded_settings import changed_config, with_temperature
from kalmanac.sac.loop import TrainingLoop
from kalmanac.sac.model_check import check_learnt, check_model, config_of, reading
from kalmanac.sac.model_file import read_model, write_model
from kalmanac.sac.normaliser import Normaliser
from kalmanac.sac.problem import Problem
from kalmanac.sac.progress import ProgressBar
from kalmanac.sac.replay_buffer import read_buffer, write_buffer
from kalmanac.sac.return_scale import ReturnScale
from kalmanac.sac.session import Session
from kalmanac.sac.settings import Drawing, TrainingSettings, choose_device
from kalmanac.sac.training import Training


class RecurrentSAC:
    """An agent that remembers, for discrete and continuous actions.

    Args:
        encoder: how the agent remembers, a name of `ENCODERS`.
        env: a Gymnasium environment, or a vector of them. Without one, the agent comes to be with
            the first `set_env`.
        seed: decides all randomness; None draws one, which `seed` then holds.
        device: where the networks and the replay live; "auto" is CUDA where it is available.

    The other arguments are settings of the networks and of the training.

    Examples:
        >>> from kalmanac import RecurrentSAC, Track
        >>> model = RecurrentSAC("vssm+kf", Track(), learning_starts=32, batch_size=4, seed=0)
        >>> model.learn(48).num_updates
        16
        >>> observation, info = Track().reset(seed=1)
        >>> action, state = model.predict(observation, deterministic=True)
        >>> action, state = model.predict(observation, state, deterministic=True)
        >>> action.shape
        (1,)
        >>> model.save("track.safetensors")
        >>> RecurrentSAC.load("track.safetensors").num_timesteps
        48
    """

    def __init__(
        self, encoder: str = "vssm+kf", env: Environment | None = None, *,
        learning_rate: float = 3e-4, buffer_size: int | None = None, learning_starts: int = 1000,
        batch_size: int = 32, context_length: int = 64, tau: float = 0.005, gamma: float = 0.99,
        adam_betas: tuple[float, ...] = (0.9, 0.999),
        ent_coef: float | Literal["auto"] = "auto",
        target_entropy: float | Literal["auto"] = "auto", update_to_data: float = 1.0,
        drawing: Drawing = "episodes", burn_in: int = 0,
        actor_hidden: tuple[int, ...] = (256, 256), critic_hidden: tuple[int, ...] = (256, 256),
        embedding: int = 16, encoder_settings: Mapping[str, Any] | None = None,
        normalize_observations: bool = False, normalize_rewards: bool = False,
        privileged_critic: bool = False,
        actor_objective: ActorObjective = "auto", entropy_in_target: bool = True,
        average_policy: bool = True,
        bootstrap_truncated: bool | Literal["auto"] = "auto",
        true_previous_action: bool = True, previous_action: bool = True,
        initial_ent_coef: float = 1.0, target_entropy_scale: float = 0.7, head_gain: float = 1.0,
        log_std_range: tuple[float, float] = (-20.0, 2.0), max_grad_norm: float | None = None,
        image_channels: tuple[int, ...] = (16, 32, 32), image_features: int = 64,
        overlap: bool = False, tf32: bool = True, bfloat16_heads: bool = False, graph: bool = True,
        seed: int | None = None, device: str | torch.device = "auto",
    ) -> None:  # fmt: skip
        self.settings = TrainingSettings(
            buffer_size=buffer_size, learning_starts=learning_starts, batch_size=batch_size,
            context_length=context_length, update_to_data=update_to_data, drawing=drawing,
            burn_in=burn_in, true_previous_action=true_previous_action,
            bootstrap_truncated=bootstrap_truncated,
            normalize_observations=normalize_observations, normalize_rewards=normalize_rewards,
            overlap=overlap, tf32=tf32, bfloat16_heads=bfloat16_heads, graph=graph,
        )  # fmt: skip
        self.agent_settings = AgentSettings(
            encoder=encoder, encoder_settings=dict(encoder_settings or {}), embedding=embedding,
            context=context_length + burn_in, actor_hidden=tuple(actor_hidden),
            critic_hidden=tuple(critic_hidden), head_gain=head_gain, learning_rate=learning_rate,
            adam_betas=tuple(adam_betas),
            gamma=gamma, tau=tau, ent_coef=ent_coef, initial_ent_coef=initial_ent_coef,
            target_entropy=target_entropy, target_entropy_scale=target_entropy_scale,
            privileged_critic=privileged_critic, max_grad_norm=max_grad_norm,
            log_std_range=log_std_range, previous_action=previous_action,
            actor_objective=actor_objective, entropy_in_target=entropy_in_target,
            average_policy=average_policy,
            image_channels=tuple(image_channels), image_features=image_features,
        )  # fmt: skip
        self.device = choose_device(device)
        self.seed = _seed(seed)
        # of its own, so that looking at the agent does not change its training
        self._predicting = torch.Generator(self.device).manual_seed(self.seed)
        self.num_timesteps = 0  # transitions, of all environments and trainings together
        self.num_updates = 0
        self.normaliser: Normaliser | None = None
        self.return_scale = ReturnScale(gamma) if normalize_rewards else None
        self._problem: Problem | None = None
        self._policy: Policy | None = None
        self._training: Training | None = None
        self._policy_alone = False  # loaded without critic and optimiser
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
    def hears(self) -> frozenset[str]:
        """Those arguments of `predict` that the infos of its environment feed."""
        senses = self._known()[0].senses
        named = {"action_masks": senses.action_mask, "observed": senses.observed}
        return frozenset(name for name, used in named.items() if used)

    @property
    def learner(self) -> Learner:
        """The networks and their optimiser."""
        return self._known()[1].learner

    @property
    def policy(self) -> Policy:
        """What predicts: the actor with averaged weights, with the normaliser before it."""
        return self._known()[1]

    @property
    def replay(self) -> Replay:
        """The transitions collected."""
        return self._attached().replay

    def set_env(self, env: Environment) -> None:
        """Train in `env` from now on; its spaces must be those of the environment before.

        Episodes under way end as truncated. The number of environments may change.
        """
        if self._policy_alone:
            raise ValueError(
                "env: got one to train in, expected None: the model's file holds its policy alone"
            )
        vector = as_vector(env)
        if self._problem is None:
            self._build(Problem.of(vector, privileged=self.agent_settings.privileged_critic))
        self._known()[0].require_same(vector)
        if self._training is None:
            self._training = self._new_training(vector)
        else:
            self._training.change_env(vector, self.seed)

    def learn(
        self, total_timesteps: int, callback: Callback | Iterable[Callback] | None = None, *,
        progress_bar: bool = False, log_interval: int = 1000,
    ) -> "RecurrentSAC":  # fmt: skip
        """Train for `total_timesteps` more environment steps, up to a whole vector step.

        With `progress_bar`, a terminal shows a bar; elsewhere a line is written every
        `log_interval` steps.
        """
        members = Callbacks(callback).members
        if progress_bar:
            members.append(ProgressBar(total_timesteps, every=log_interval))
        for _ in self.advance(total_timesteps, members):
            pass
        return self

    def advance(
        self, total_timesteps: int, callback: Callback | Iterable[Callback] | None = None
    ) -> Iterator["RecurrentSAC"]:
        """The training loop, one vector step and its updates at a time."""
        loop = self.loop(total_timesteps, callback)
        loop.begin()
        try:
            while loop.unfinished:
                for move in (loop.ask, loop.collect):
                    for _ in range(move()):
                        loop.updated(loop.training.update())
                loop.settle()
                yield self
        finally:
            loop.end()

    def loop(
        self, total_timesteps: int, callback: Callback | Iterable[Callback] | None = None
    ) -> TrainingLoop:
        """The training in its single moves, for `Lockstep`."""
        return TrainingLoop(self, self._attached(), total_timesteps, callback)

    def predict(
        self, observation: Any, state: PolicyState | None = None,
        episode_start: ArrayLike | None = None, deterministic: bool = False,
        action_masks: ArrayLike | None = None, observed: ArrayLike | None = None,
    ) -> tuple[Any, PolicyState]:  # fmt: skip
        """The action for an observation, or those for a batch (n, …), and the state behind them.

        Args:
            state: what the last call gave back; None at the start of episodes.
            episode_start: (n,) bool, True where the observation is the first of an episode.
            deterministic: the most likely action, or the mean one; else one drawn.
            action_masks: (n, A), 0 where a discrete action is forbidden; None: all are allowed.
            observed: (n,) bool, False where the reading is missing; None: none is.
        """
        problem, policy = self._known()
        sight, single = problem.shown(observation, action_masks=action_masks, observed=observed)
        n = len(sight.observation)
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
        action, state = policy.act(
            sight, state, starts, explore=not deterministic, generator=self._predicting
        )
        actions = problem.actions.decode(action)
        return (actions[0] if single else actions), state

    @contextmanager
    def overheard(self) -> Iterator[None]:
        """While it is entered, hooks on the actor's modules hear every step, on a GPU too."""
        policy = self._known()[1]
        policy.watched = True
        try:
            yield
        finally:
            policy.watched = False

    def set_random_seed(self, seed: int) -> None:
        """Decide the actions that `predict` draws from now on; the training's are its own."""
        self._predicting.manual_seed(seed)

    def session(self, *, deterministic: bool = True) -> Session:
        """An object that acts and remembers: `session.act(observation)`, `session.reset()`."""
        self._known()
        return Session(self, deterministic=deterministic)

    def diagnostics(self) -> Metrics:
        """A closer look at the agent on a batch of its replay; changes nothing."""
        return self.learner.diagnostics(self._attached().batch_aside())

    def save(self, path: str | os.PathLike[str], *, policy_alone: bool = False) -> None:
        """Write everything but the replay into one .safetensors file, without pickle.

        With `policy_alone`, a tenth of it: the model that is loaded acts, but cannot learn on.
        The replay has a file of its own: `save_replay_buffer`.
        """
        document = self._document()
        if policy_alone:
            policy = dict(self.learner.averaged.state_dict())
            document = document | {"learner": None, "policy": policy}
        write_model(path, document)

    def save_replay_buffer(self, path: str | os.PathLike[str]) -> None:
        """Write the replay into one file, without pickle; `.replay` where the name has no suffix.

        Episodes under way are in it as far as they have come.
        """
        write_buffer(path, self.replay, self._known()[0])

    def load_replay_buffer(self, path: str | os.PathLike[str]) -> None:
        """Go on with the replay in a file in place of what was collected here.

        Before `learn`, not during it. It needs an `env`, with the spaces of the one that the replay
        comes from; episodes under way end as truncated, here and there. What the replay holds
        counts as warm-up.
        """
        env = self._attached().collector.streams.env
        replay = read_buffer(
            path, self._known()[0], capacity=self.settings.buffer_size, device=self.device
        )
        self._training = self._new_training(env, replay)

    def checkpoint_state(self) -> dict[str, Any]:
        """Everything but the replay, so that training goes on exactly: what `save` writes, and the
        training's counters, generators and open episodes."""
        training = self._attached().state_dict()
        return self._document() | {
            "training": training, "predicting": self._predicting.get_state()
        }  # fmt: skip

    def load_checkpoint_state(self, state: dict[str, Any]) -> bool:
        """Go on where `checkpoint_state` was called; the replay must be that of the same moment.

        Returns False where the environments could not tell their state and begin new episodes.
        """
        self._load_document(state)
        load_generator(self._predicting, state["predicting"])
        return self._attached().load_state_dict(state["training"], self.seed)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], env: Environment | None = None, *,
        device: str | torch.device = "auto", **changes: Any,
    ) -> "RecurrentSAC":  # fmt: skip
        """The model in a file. It predicts as it is; to go on learning it needs an `env`.

        A file that is damaged, or that asks for more than it holds, is a `BadFileError`.

        Args:
            changes: settings other than the saved ones, such as `learning_rate`, `update_to_data`
                or `ent_coef`; those that decide its networks are refused.
        """
        document = read_model(path)
        device = choose_device(device)
        torch.Generator(device)  # a device that is not there is no fault of the file
        with reading(path):
            config = config_of(document)
            model = cls(**config, device=device)
            problem = check_model(document, model.agent_settings)
        if changes:
            model = cls(**changed_config(config, changes), device=device)
        with reading(path):
            model._build(problem)
            if document["learner"] is not None and {"ent_coef", "initial_ent_coef"} & set(changes):
                document["learner"] = with_temperature(document["learner"], model.learner, changes)
            model._load_document(document)
        if env is not None:
            model.set_env(env)
        return model

    def _document(self) -> dict[str, Any]:
        problem, policy = self._known()
        config = asdict(self.agent_settings) | asdict(self.settings) | {"seed": self.seed}
        config.pop("context")
        return {
            "config": config,
            "spaces": problem.to_json(),
            "num_timesteps": self.num_timesteps,
            "num_updates": self.num_updates,
            "normaliser": None if self.normaliser is None else self.normaliser.state_dict(),
            "return_scale": None if self.return_scale is None else self.return_scale.state_dict(),
            "learner": policy.learner.state_dict(),
        }

    def _load_document(self, document: dict[str, Any]) -> None:
        self._policy_alone = document["learner"] is None
        own = self.learner.actor if self._policy_alone else self.learner
        check_learnt(document, {name: tuple(x.shape) for name, x in own.state_dict().items()})
        if self._policy_alone:
            self.learner.load_actor(document["policy"])
        else:
            self.learner.load_state_dict(document["learner"])
        if self.normaliser is not None:
            self.normaliser.load_state_dict(document["normaliser"])
        if self.return_scale is not None:
            self.return_scale.load_state_dict(document["return_scale"])
        self.num_timesteps = document["num_timesteps"]
        self.num_updates = document["num_updates"]

    def _build(self, problem: Problem) -> None:
        if self.settings.normalize_observations:
            self.normaliser = Normaliser(
                problem.sizes.observation, scaled=problem.observations.scaled
            )
        learner = Learner(
            self.agent_settings, problem.sizes, device=self.device, seed=self.seed,
            bfloat16_heads=self.settings.bfloat16_heads,
        )  # fmt: skip
        self._problem = problem
        graph = self.settings.graph
        self._policy = Policy(learner, self.normaliser, graph=graph, averaged=True)

    def _new_training(
        self, env: VectorEnv[Any, Any, Any], replay: Replay | None = None
    ) -> Training:
        problem, policy = self._known()
        explorer = Policy(policy.learner, self.normaliser, graph=self.settings.graph)
        return Training(
            explorer, self.settings, env, problem.observations, problem.actions, seed=self.seed,
            steps_before=self.num_timesteps, replay=replay, return_scale=self.return_scale,
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
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed: got {seed!r}, expected an integer of at least 0, or None")
    return int(seed)
