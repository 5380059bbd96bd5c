"""RecurrentSAC: soft actor-critic for partial observability, used like an algorithm of SB3."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from kalmanac._checked_fields import AtLeast, Within, bounded
from kalmanac._ops.device import choose_device
from kalmanac._replay.buffer import Replay
from kalmanac._sac.agent import Agent
from kalmanac._sac.callbacks import AnyCallbacks, Callbacks
from kalmanac._sac.config import Pretrained, plain_settings
from kalmanac._sac.episode_data import (
    AddedEpisodes,
    EpisodeData,
    add_episodes,
    decode_episodes,
    encode_episodes,
    spaces_of,
    write_minari,
)
from kalmanac._sac.episode_streams import Environment
from kalmanac._sac.evaluation import Evaluation
from kalmanac._sac.export import export_step
from kalmanac._sac.exported_step import ExportedStep
from kalmanac._sac.generators import load_generator
from kalmanac._sac.loop import Member, TrainingLoop
from kalmanac._sac.model_check import (
    changed_config,
    check_learned,
    check_model,
    config_of,
    reading,
    with_temperature,
)
from kalmanac._sac.model_file import read_model, write_model
from kalmanac._sac.model_folder import write_model_folder
from kalmanac._sac.observations import readings
from kalmanac._sac.pretraining import Pretraining
from kalmanac._sac.problem import Problem
from kalmanac._sac.progress import Progress
from kalmanac._sac.replay_buffer import read_buffer, write_buffer
from kalmanac._sac.sb3_arguments import LEARN, LOAD, answering
from kalmanac._sac.training_log import Logger, LogRows, next_folder


class RecurrentSAC(Agent):
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

    def set_logger(self, logger: Logger) -> None:
        """Write the metrics of `learn` there, in place of what `verbose` and `tensorboard_log`
        say."""
        self.logger, self.tensorboard_log = logger, None

    def add_episodes(self, episodes: Iterable[Any]) -> AddedEpisodes:
        """Put episodes in the environment's own units into the replay, and count them.

        They are `EpisodeData`, or anything with its fields as attributes or keys, such as the
        episodes of a Minari dataset (without an environment, its spaces are taken over) or those of
        `run_episodes`. What is wrong in one of them is a ValueError that names it, and then none
        is taken. Statistics of `normalize_observations` and `normalize_rewards` count them. In an
        environment, episodes under way end as truncated, and what was added counts as warm-up.
        """
        spaces = spaces_of(episodes) if self._problem is None else None
        problem = self._known()[0] if spaces is None else Problem(*spaces)
        training, bootstraps = self._training, self.settings.bootstrap_truncated
        if training is not None:
            bootstraps = training.collector.bootstrap_truncated
        if training is None and self._data is None:
            size = self.settings.buffer_size
            replay = Replay(problem.sizes, 1, capacity=size, device=self.device)
        else:
            replay = self.replay
        found = encode_episodes(
            episodes, problem, bootstrap_truncated=bool(bootstraps),
            most_steps=replay.capacity and replay.capacity // replay.streams,
        )  # fmt: skip
        if spaces is not None:
            self.set_spaces(*spaces)
        if training is None:
            self._data = replay
        replay.close()
        try:
            return add_episodes(replay, found, self.normalizer, self.return_scale)
        finally:  # also of an interruption: the episodes that the training had open have ended
            if training is not None:
                self._training = self._new_training(training.collector.streams.env, replay)

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
            near_data: the weight of staying near the replay's actions: 1 is behavior cloning alone;
                below, better actions are copied in the second half of all updates from data, the
                further from the data's the smaller it is, and no further than values come true; 0
                are the usual updates, which nothing keeps from actions that the data never tried.
                In an environment this goes on, with a share of data / (data + 5 · steps there).
            callback: `on_update` and `on_step` are called after every update.
            progress_bar: a terminal shows a bar; elsewhere a line comes every `log_interval`.
        """
        updates = bounded("updates", updates, int, AtLeast(0))
        near_data = bounded("near_data", near_data, float, Within(0, 1))
        log_interval = bounded("log_interval", log_interval, int, AtLeast(1))
        callbacks = Callbacks(callback)
        if self._policy_alone:
            raise ValueError(
                "pretrain: got a model of a policy alone, expected one with its critic"
            )
        policy, start = self._known()[1], self.num_updates
        work = Pretraining(
            policy, self.settings, self.replay, near=near_data,
            seed=[self.seed, self.num_timesteps, start],
        )  # fmt: skip
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
        total_timesteps = bounded("total_timesteps", total_timesteps, int, AtLeast(0))
        log_interval = bounded("log_interval", log_interval, int, AtLeast(1))
        members = Callbacks(callback).members
        if self.tensorboard_log is not None and self._log_name != tb_log_name:
            self._log_name, folder = tb_log_name, next_folder(self.tensorboard_log, tb_log_name)
            self.logger = Logger(folder, [*self._printing, "tensorboard"])
        if self.logger.writes:
            members.append(LogRows(log_interval))
        if progress_bar:
            start = self.num_timesteps
            members.append(Progress(total_timesteps, sys.stderr, every=log_interval, start=start))
        for _ in self.advance(total_timesteps, members):
            pass
        return self

    def advance(
        self, total_timesteps: int, callback: AnyCallbacks = None
    ) -> Iterator["RecurrentSAC"]:
        """Train as `learn` does, with a pause after every vector step and its updates."""
        total_timesteps = bounded("total_timesteps", total_timesteps, int, AtLeast(0))
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
        counts as warm-up, and for the statistics of observations, if there are none yet.
        """
        env = self._attached().collector.streams.env
        replay = read_buffer(
            path, self._known()[0], capacity=self.settings.buffer_size, device=self.device
        )
        self._training = self._new_training(env, replay)
        if self.normalizer is not None and not self.normalizer.count:
            for episode in replay.stored_episodes():
                self.normalizer.update(readings(episode.observation))

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
        device = choose_device(device)  # one that is not there is no fault of the file
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
                document["config"] = {**document["config"], "ent_coef": model.settings.ent_coef}
            model._load_document(document)
        if env is not None:
            model.set_env(env)
        return model

    def _document(self, policy_alone: bool = False) -> dict[str, Any]:
        problem, policy = self._known()
        learned = policy.learner.averaged if policy_alone else policy.learner
        state = dict(learned.state_dict())
        before = policy.learner.pretrained
        if before.near_data:
            before = before._replace(trust=float(policy.learner.trust))
        return {
            "config": asdict(self.settings) | {"seed": self.seed},
            "spaces": problem.to_json(),
            "num_timesteps": self.num_timesteps,
            "num_updates": self.num_updates,
            "normaliser": None if self.normalizer is None else self.normalizer.state_dict(),
            "return_scale": None if self.return_scale is None else self.return_scale.state_dict(),
            **({"pretrained": list(before)} if before.near_data else {}),
            **({"learner": None, "policy": state} if policy_alone else {"learner": state}),
        }

    def _load_document(self, document: dict[str, Any]) -> None:
        self._set_unmeasured(tuple(document["spaces"].get("unmeasured", ())))
        self._policy_alone = document["learner"] is None
        own = self.learner.actor if self._policy_alone else self.learner
        check_learned(document, {name: tuple(x.shape) for name, x in own.state_dict().items()})
        if self._policy_alone:
            self.learner.load_actor(document["policy"])
        else:
            self.learner.load_state_dict(document["learner"])
        self.learner.pretrained = before = Pretrained(*document.get("pretrained", ()))
        self.learner.trust.fill_(before.trust)
        if self.normalizer is not None:
            self.normalizer.load_state_dict(document["normaliser"])
        if self.return_scale is not None:
            self.return_scale.load_state_dict(document["return_scale"])
        self.num_timesteps = document["num_timesteps"]
        self.num_updates = document["num_updates"]
