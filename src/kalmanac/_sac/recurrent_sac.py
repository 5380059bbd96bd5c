"""RecurrentSAC: soft actor-critic for partial observability, used like an algorithm of SB3."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike
from torch import Tensor

from kalmanac._ops.device import choose_device
from kalmanac._replay.buffer import Replay
from kalmanac._sac.callbacks import AnyCallbacks, Callbacks
from kalmanac._sac.config import AgentSettings, Arguments, plain_settings, takes
from kalmanac._sac.episode_data import (
    AddedEpisodes,
    EpisodeData,
    add_episodes,
    decode_episodes,
    encode_episodes,
    spaces_of,
    write_minari,
)
from kalmanac._sac.episode_streams import Environment, as_vector
from kalmanac._sac.evaluation import Evaluation
from kalmanac._sac.export import export_step
from kalmanac._sac.exported_step import ExportedStep
from kalmanac._sac.generators import load_generator
from kalmanac._sac.learner import Learner, Metrics
from kalmanac._sac.loop import Member, TrainingLoop
from kalmanac._sac.model_check import (
    changed_config,
    check_learned,
    check_model,
    config_of,
    learned_tensors,
    reading,
    with_parameters,
    with_temperature,
)
from kalmanac._sac.model_file import read_model, write_model
from kalmanac._sac.model_folder import write_model_folder
from kalmanac._sac.normalization import ObservationNormalizer, ReturnScale
from kalmanac._sac.observations import InfoKeys, read_rewards
from kalmanac._sac.policy import Policy, PolicyState, Session
from kalmanac._sac.pretraining import Pretraining
from kalmanac._sac.problem import Problem
from kalmanac._sac.progress import Progress
from kalmanac._sac.replay_buffer import read_buffer, write_buffer
from kalmanac._sac.sb3_arguments import LEARN, LOAD, answering
from kalmanac._sac.training import Training
from kalmanac._sac.training_log import Logger, LogRows, next_folder


class RecurrentSAC:
    """An agent that remembers, for discrete and continuous actions.

    Args:
        encoder: how the agent remembers, a name of `ENCODERS`.
        env: a Gymnasium environment, a vector of them, or a name for `make_env`. Without one, the
            agent comes to be with the first `set_env`.
        learning_rate: a number, or a function of the remaining progress, which falls from 1 to 0
            over the steps of `learn`. Files hold the rate that it begins with: give the function
            to `load` again.
        ent_coef: a number, "auto", or "auto_0.1" for `initial_ent_coef=0.1`.
        seed: decides all randomness; None draws one, which `seed` then holds.
        device: where the networks and the replay live; "auto" is CUDA where it is available.
        verbose: 1 prints a table of metrics every `log_interval` steps of `learn`.
        tensorboard_log: a folder for TensorBoard, with a folder below it for each model's training.
        **settings: every field of `SACSettings`.

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

    def set_logger(self, logger: Logger) -> None:
        """Write the metrics of `learn` there, in place of what `verbose` and `tensorboard_log`
        say."""
        self.logger, self.tensorboard_log = logger, None

    def set_spaces(
        self, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any], *,
        privileged_space: gymnasium.Space[Any] | None = None, observed: bool = False,
        action_mask: bool = False,
    ) -> None:  # fmt: skip
        """Make the agent for these spaces, without an environment: to learn from data alone.

        Args:
            privileged_space: of the true state, for `privileged_critic`.
            observed, action_mask: whether infos tell of missing readings and forbidden actions.
        """
        if self._problem is not None:
            raise ValueError("set_spaces: got spaces, expected none: the agent has its own")
        keys = InfoKeys(observed, action_mask)
        self._build(Problem(observation_space, action_space, privileged_space, keys))

    def add_episodes(self, episodes: Iterable[Any]) -> AddedEpisodes:
        """Put episodes in the environment's own units into the replay, and count them.

        They are `EpisodeData`, or anything with its fields as attributes or keys, such as the
        episodes of a Minari dataset (without an environment, its spaces are taken over) or those of
        `run_episodes`. What is wrong in one of them is a ValueError that names it, and then none
        is taken. Statistics of `normalize_observations` and `normalize_rewards` count them. In an
        environment, episodes under way end as truncated, and what was added counts as warm-up.
        """
        if self._problem is None and (spaces := spaces_of(episodes)) is not None:
            self.set_spaces(*spaces)
        problem = self._known()[0]
        training, bootstraps = self._training, self.settings.bootstrap_truncated
        if training is not None:
            bootstraps = training.collector.bootstrap_truncated
        found = encode_episodes(episodes, problem, bootstrap_truncated=bool(bootstraps))
        if training is None and self._data is None:
            size = self.settings.buffer_size
            self._data = Replay(problem.sizes, 1, capacity=size, device=self.device)
        replay = self.replay
        replay.close()
        added = add_episodes(replay, found, self.normalizer, self.return_scale)
        if training is not None:
            self._training = self._new_training(training.collector.streams.env, replay)
        return added

    def episodes(self) -> Iterator[EpisodeData]:
        """The replay's episodes in the environment's own units, each as far as it has come."""
        return decode_episodes(self.replay, self._known()[0])

    def write_minari(self, dataset_id: str, **about: Any) -> Any:
        """Write the replay as a new Minari dataset; `about` goes to Minari as it is."""
        return write_minari(dataset_id, self.episodes(), self._known()[0], about)

    def pretrain(
        self, updates: int, *, near_data: float = 0.5,
        callback: AnyCallbacks = None, progress_bar: bool = False,
        log_interval: int = 1000,
    ) -> "RecurrentSAC":  # fmt: skip
        """Make so many updates from the replay as it is, without an environment's steps.

        Args:
            near_data: the weight of staying near the replay's actions: 1 is behavior cloning alone,
                0 the usual updates, which nothing keeps from actions that the data never tried.
            callback: `on_update` and `on_step` are called after every update.
            progress_bar: a terminal shows a bar; elsewhere a line comes every `log_interval`.
        """
        if not 0 <= near_data <= 1:
            raise ValueError(f"near_data: got {near_data!r}, expected a number in [0, 1]")
        if self._policy_alone:
            raise ValueError(
                "pretrain: got a model of a policy alone, expected one with its critic"
            )
        policy, start = self._known()[1], self.num_updates
        work = Pretraining(
            policy, self.settings, self.replay, self.return_scale, near=near_data,
            seed=[self.seed, self.num_timesteps, start],
        )  # fmt: skip
        callbacks = Callbacks(callback)
        if progress_bar:
            bar = Progress(updates, sys.stderr, every=log_interval, start=start, unit="updates")
            callbacks.members.append(bar)
        work.make(updates, self, callbacks)
        return self

    @answering(LEARN)
    def learn(
        self, total_timesteps: int, callback: AnyCallbacks = None, log_interval: int = 1000,
        tb_log_name: str = "RecurrentSAC", *, progress_bar: bool = False,
    ) -> "RecurrentSAC":  # fmt: skip
        """Train for `total_timesteps` more environment steps, up to a whole vector step.

        Args:
            callback: one `Callback` or several; a function is called with the model after every
                vector step. False ends the training.
            log_interval: environment steps between two rows of metrics, where they are written.
            tb_log_name: of the folder below `tensorboard_log`; a number follows it.
            progress_bar: a terminal shows a bar; elsewhere a line is written every `log_interval`
                steps.
        """
        members = Callbacks(callback).members
        if self.tensorboard_log is not None and self._log_name != tb_log_name:
            self._log_name, folder = tb_log_name, next_folder(self.tensorboard_log, tb_log_name)
            self.logger = Logger(folder, [*self._printing, "tensorboard"])
        if self.logger.writes:
            members.append(LogRows(log_interval))
        if progress_bar:
            start_step = self.num_timesteps
            members.append(
                Progress(total_timesteps, sys.stderr, every=log_interval, start=start_step)
            )
        for _ in self.advance(total_timesteps, members):
            pass
        return self

    def advance(
        self, total_timesteps: int, callback: AnyCallbacks = None
    ) -> Iterator["RecurrentSAC"]:
        """Train as `learn` does, with a pause after every vector step and its updates."""
        loop = TrainingLoop([self.member(total_timesteps, callback)])
        try:
            with closing(loop.steps()) as steps:
                for _ in steps:
                    yield self
        finally:
            for error in loop.failures.values():
                raise error

    def member(self, total_timesteps: int, callback: AnyCallbacks = None) -> Member:
        """This agent's part in a `TrainingLoop`, which may have others beside it."""
        return Member(self, self._attached(), total_timesteps, callback, self._schedule)

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
        self._predicting.manual_seed(seed)

    def session(self, *, deterministic: bool = True) -> Session:
        """An object that acts and remembers: `session.act(observation)`, `session.reset()`."""
        self._known()
        return Session(self, deterministic=deterministic)

    def diagnostics(self) -> Metrics:
        """A closer look at the agent on a batch of its replay; changes nothing."""
        return self.learner.diagnostics(self._attached().batch_aside())

    def get_parameters(self) -> dict[str, Tensor]:
        """Copies of everything learned, by name: actor.…, critic.…, target.…, log_alpha, and Adam's
        averages, adam.…; `predict` acts by averaged.…, unless `average_policy` is False."""
        return learned_tensors({"learner": self.learner.state_dict()})

    def set_parameters(
        self, load_path_or_dict: Mapping[str, Tensor], exact_match: bool = True
    ) -> None:
        """Take over what `get_parameters` gave, of this model or of one with the same networks.

        Args:
            load_path_or_dict: tensors by name; `load` is for files.
            exact_match: False leaves what is not named as it is. An actor without averaged weights
                begins its average anew.
        """
        own = self.learner.state_dict()
        self.learner.load_state_dict(with_parameters(own, load_path_or_dict, exact_match))

    def save(self, path: str | os.PathLike[str], *, policy_alone: bool = False) -> None:
        """Write everything but the replay into one .safetensors file, without pickle.

        With `policy_alone`, a tenth of it: the model that is loaded acts, but cannot learn on.
        The replay has a file of its own: `save_replay_buffer`.
        """
        write_model(path, self._document(policy_alone))

    def push_to_folder(
        self, folder: str | os.PathLike[str], *, task: str = "",
        evaluation: Evaluation | None = None, about: str = "", policy_alone: bool = False,
    ) -> Path:  # fmt: skip
        """Write a folder as the Hugging Face Hub wants it: model, configuration and a card.

        `load` takes the folder; `hf upload USER/NAME FOLDER` (huggingface-cli before) publishes it.

        Args:
            task: the environment's name.
            evaluation: what `evaluate_policy` gave, for the card.
            about: more of the card, as Markdown.
            policy_alone: as in `save`.
        """
        document = self._document(policy_alone)
        return write_model_folder(folder, document, task=task, evaluation=evaluation, about=about)

    def export(self, path: str | os.PathLike[str], *, distribution: bool = False) -> Path:
        """Write the policy's single step for use without kalmanac: `.onnx`, or PyTorch's `.pt2`.

        With `distribution`, the parameters of the distribution of actions are outputs too.
        """
        problem, policy = self._known()
        step = ExportedStep(
            problem, policy.learner, self.normalizer, policy.return_scale, distribution=distribution
        )
        about = {"encoder": self.settings.encoder, "num_timesteps": self.num_timesteps}
        return export_step(step, path, **about)

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
    @answering(LOAD)
    def load(
        cls, path: str | os.PathLike[str], env: Environment | str | None = None, *,
        device: str | torch.device = "auto", verbose: int = 0,
        tensorboard_log: str | os.PathLike[str] | None = None, **changes: Any,
    ) -> "RecurrentSAC":  # fmt: skip
        """The model in a file, or in a folder that `push_to_folder` wrote.

        It predicts as it is; to go on learning it needs an `env`.

        A file that is damaged, or that asks for more than it holds, is a `BadFileError`.

        Args:
            verbose, tensorboard_log: as of a new model; files do not hold them.
            changes: settings other than the saved ones, such as `learning_rate`, `update_to_data`
                or `ent_coef`; those that decide its networks are refused.
        """
        document = read_model(path)
        device = choose_device(device)
        torch.Generator(device)  # a device that is not there is no fault of the file
        with reading(path):
            config = config_of(document)
            problem = check_model(document, cls(**config, device=device).settings)
        changes, schedule = plain_settings(changes)
        model = cls(
            **changed_config(config, changes), device=device, verbose=verbose,
            tensorboard_log=tensorboard_log,
        )  # fmt: skip
        model._schedule = schedule
        with reading(path):
            model._build(problem)
            if document["learner"] is not None and {"ent_coef", "initial_ent_coef"} & set(changes):
                document["learner"] = with_temperature(document["learner"], model.learner, changes)
            model._load_document(document)
        if env is not None:
            model.set_env(env)
        return model

    def _document(self, policy_alone: bool = False) -> dict[str, Any]:
        problem, policy = self._known()
        learned = policy.learner.averaged if policy_alone else policy.learner
        state = dict(learned.state_dict())
        return {
            "config": asdict(self.settings) | {"seed": self.seed},
            "spaces": problem.to_json(),
            "num_timesteps": self.num_timesteps,
            "num_updates": self.num_updates,
            "normaliser": None if self.normalizer is None else self.normalizer.state_dict(),
            "return_scale": None if self.return_scale is None else self.return_scale.state_dict(),
            **({"learner": None, "policy": state} if policy_alone else {"learner": state}),
        }

    def _load_document(self, document: dict[str, Any]) -> None:
        self._policy_alone = document["learner"] is None
        own = self.learner.actor if self._policy_alone else self.learner
        check_learned(document, {name: tuple(x.shape) for name, x in own.state_dict().items()})
        if self._policy_alone:
            self.learner.load_actor(document["policy"])
        else:
            self.learner.load_state_dict(document["learner"])
        if self.normalizer is not None:
            self.normalizer.load_state_dict(document["normaliser"])
        if self.return_scale is not None:
            self.return_scale.load_state_dict(document["return_scale"])
        self.num_timesteps = document["num_timesteps"]
        self.num_updates = document["num_updates"]

    def _build(self, problem: Problem) -> None:
        if self.settings.normalize_observations:
            self.normalizer = ObservationNormalizer(
                problem.sizes.observation, scaled=problem.observations.scaled
            )
        learner = Learner(
            self.settings, problem.sizes, device=self.device, seed=self.seed,
            bfloat16_heads=self.settings.bfloat16_heads,
        )  # fmt: skip
        self._problem = problem
        graph = self.settings.graph
        self._policy = Policy(
            learner, self.normalizer, graph=graph, averaged=True, return_scale=self.return_scale
        )

    def _new_training(
        self, env: VectorEnv[Any, Any, Any], replay: Replay | None = None
    ) -> Training:
        problem, policy = self._known()
        explorer = Policy(
            policy.learner, self.normalizer, graph=self.settings.graph,
            return_scale=self.return_scale,
        )  # fmt: skip
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
