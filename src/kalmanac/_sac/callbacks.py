"""Callbacks: how metrics, evaluations and early ends reach or leave the training loop."""

import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from kalmanac._sac.episode_streams import Environment, Episode, as_vector, share_an_environment
from kalmanac._sac.evaluation import MOST_STEPS, EachStep, Evaluation, evaluate_policy

if TYPE_CHECKING:
    from kalmanac._sac.recurrent_sac import RecurrentSAC

MOST = 100  # as SB3 counts them


class RecentEpisodes:
    """The last 100 episodes. Those of the random warm-up leave when the first one after it ends."""

    def __init__(self) -> None:
        self._episodes: deque[Episode] = deque(maxlen=MOST)
        self._learning = False

    def add(self, model: "RecurrentSAC", episode: Episode) -> None:
        """Add an episode that has just ended."""
        if model.num_updates > 0 and not self._learning:
            self._episodes.clear()
            self._learning = True
        self._episodes.append(episode)

    def figures(self) -> list[str]:
        """Mean return and length in words; nothing before the first episode's end."""
        n = len(self._episodes)
        if n == 0:
            return []
        reward = sum(episode.total_reward for episode in self._episodes) / n
        length = sum(episode.length for episode in self._episodes) / n
        return [f"return {reward:.3g}", f"length {length:.4g}"]

    def state_dict(self) -> dict[str, Any]:
        """What the next means depend on."""
        return {
            "returns": [episode.total_reward for episode in self._episodes],
            "lengths": [episode.length for episode in self._episodes],
            "learning": self._learning,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Means go on where `state_dict` was called."""
        for reward, length in zip(state["returns"], state["lengths"], strict=True):
            self._episodes.append(Episode(reward, length, False, 0, {}))
        self._learning = state.get("learning", False)


class Callback:
    """What a training calls on its way. This one does nothing; override what you need.

    Examples:
        >>> from kalmanac import Callback, RecurrentSAC, Track
        >>> class Lengths(Callback):
        ...     def on_episode(self, model, episode):
        ...         print(model.num_timesteps, episode.length)
        ...     def on_step(self, model):
        ...         return model.num_timesteps < 25  # False ends the training
        >>> model = RecurrentSAC("gru", Track(horizon=10), seed=0).learn(100, Lengths())
        10 10
        20 10
        >>> model.num_timesteps
        25
    """

    def on_start(self, model: "RecurrentSAC") -> None:
        """Before the first step."""

    def on_episode(self, model: "RecurrentSAC", episode: Episode) -> None:
        """After the step that finished this training episode."""

    def on_update(self, model: "RecurrentSAC", metrics: Mapping[str, Tensor]) -> None:
        """After an update. 0-d tensors on the model's device: reading one waits for the device."""

    def on_step(self, model: "RecurrentSAC") -> bool | None:
        """After a vector step and its updates. False ends the training."""

    def on_end(self, model: "RecurrentSAC") -> None:
        """After the last step, also if an error ended the training."""

    def state_dict(self) -> dict[str, Any]:
        """What it must remember when the training is interrupted: arrays, tensors, plain data."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was called; `on_start` comes after it."""


class Callbacks(Callback):
    """Several callbacks, called in order."""

    def __init__(self, callbacks: Callback | Iterable[Callback] | None = None) -> None:
        if isinstance(callbacks, Callback):
            callbacks = [callbacks]
        self.members = list(callbacks or ())
        for member in self.members:
            if not isinstance(member, Callback):
                raise TypeError(f"callback: got {type(member).__name__}, expected a Callback")

    def on_start(self, model: "RecurrentSAC") -> None:
        """See `Callback`."""
        for member in self.members:
            member.on_start(model)

    def on_episode(self, model: "RecurrentSAC", episode: Episode) -> None:
        """See `Callback`."""
        for member in self.members:
            member.on_episode(model, episode)

    def on_update(self, model: "RecurrentSAC", metrics: Mapping[str, Tensor]) -> None:
        """See `Callback`."""
        for member in self.members:
            member.on_update(model, metrics)

    def on_step(self, model: "RecurrentSAC") -> bool:
        """False if any of them says so; all are asked."""
        answers = [member.on_step(model) for member in self.members]
        return False not in answers

    def on_end(self, model: "RecurrentSAC") -> None:
        """See `Callback`."""
        for member in self.members:
            member.on_end(model)


class EvalCallback(Callback):
    """Evaluates whenever another `every` environment steps are done.

    Args:
        env: where to evaluate; not the environment of the training.
        every: environment steps between evaluations.
        episodes: episodes per evaluation.
        deterministic: without exploration.
        seed: of the episodes, together with the evaluation's number; None takes the model's.
        report: called with the step and the evaluation.
        best_path: where the model with the best mean return so far is saved.
        max_steps: an episode that is not over after so many steps is cut (`evaluate_policy`).
        each_step: called before every vector step of an evaluation.

    `evaluations` holds all of them as (step, evaluation).

    Examples:
        >>> from kalmanac import EvalCallback, RecurrentSAC, Track
        >>> watch = EvalCallback(Track(horizon=5), every=20, episodes=2, best_path="best")
        >>> model = RecurrentSAC("gru", Track(), seed=0).learn(40, watch)
        >>> [step for step, evaluation in watch.evaluations]
        [20, 40]
    """

    def __init__(
        self, env: Environment, *, every: int = 10_000, episodes: int = 16,
        deterministic: bool = True, seed: int | None = None,
        report: Callable[[int, Evaluation], None] | None = None,
        best_path: str | os.PathLike[str] | None = None,
        max_steps: int = MOST_STEPS, each_step: EachStep | None = None,
    ) -> None:  # fmt: skip
        if every < 1:
            raise ValueError(f"every: got {every}, expected at least 1")
        if max_steps < 1:
            raise ValueError(f"max_steps: got {max_steps}, expected at least 1")
        self.env = as_vector(env)
        self.every, self.episodes, self.deterministic = every, episodes, deterministic
        self.seed, self.report = seed, report
        # an environment may change the working directory
        self.best_path = None if best_path is None else Path(best_path).absolute()
        self.max_steps, self.each_step = max_steps, each_step
        self.evaluations: list[tuple[int, Evaluation]] = []
        self.best = -np.inf
        self._next = every

    def on_start(self, model: "RecurrentSAC") -> None:
        """Count from where the model stands."""
        if share_an_environment(model.env, self.env):
            raise ValueError("env: got the environment of the training, expected one of its own")
        self._next = (model.num_timesteps // self.every + 1) * self.every

    def on_step(self, model: "RecurrentSAC") -> None:
        """Evaluate if it is time."""
        step = model.num_timesteps
        if step < self._next:
            return
        self._next = (step // self.every + 1) * self.every
        # by number: agents whose steps differ meet the same episodes
        number = step // self.every
        words = np.random.SeedSequence([model.seed if self.seed is None else self.seed, number])
        evaluation = evaluate_policy(
            model, self.env, self.episodes, deterministic=self.deterministic,
            seed=int(words.generate_state(1)[0]) % 2**31, max_steps=self.max_steps,
            each_step=self.each_step,
        )  # fmt: skip
        if evaluation.cut:
            warnings.warn(
                f"{evaluation.cut} of {len(evaluation.returns)} evaluation episodes were cut after "
                f"{self.max_steps:,} steps",
                stacklevel=2,
            )
        self.evaluations.append((step, evaluation))
        if self.report is not None:
            self.report(step, evaluation)
        if evaluation.mean_reward > self.best:
            self.best = evaluation.mean_reward
            if self.best_path is not None:
                model.save(self.best_path)
