"""Evaluations during a training, with SB3's names, and an early end at a return that is enough."""

import io
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kalmanac._checked_fields import AtLeast, bounded
from kalmanac._files.durable import make_folder, write_whole
from kalmanac._sac.callbacks import AnyCallback, Callback, as_callback
from kalmanac._sac.episode_streams import Environment, as_vector, share_an_environment
from kalmanac._sac.evaluation import MOST_STEPS, EachStep, Evaluation, evaluate_policy
from kalmanac._sac.sb3_arguments import EVAL_CALLBACK, answering

if TYPE_CHECKING:
    from kalmanac._sac.recurrent_sac import RecurrentSAC


class EvalCallback(Callback):
    """Evaluates whenever another `eval_freq` environment steps are done.

    Args:
        eval_env: where to evaluate; not the environment of the training.
        callback_on_new_best: its `on_step` is called after the best evaluation so far, with this
            one as its `parent`; a function of the model will do.
        callback_after_eval: the same after every evaluation.
        n_eval_episodes: episodes per evaluation.
        eval_freq: environment steps between evaluations, of all environments together.
        log_path: a folder for evaluations.npz with timesteps, results, ep_lengths and, where
            episodes can be won, successes.
        best_model_save_path: a folder for best_model.safetensors, the model with the best mean
            return so far.
        deterministic: without exploration.
        verbose: 1 prints a line for every evaluation.
        seed: of the episodes, together with the evaluation's number; None takes the model's.
        max_steps: an episode that is not over after so many steps is cut (`evaluate_policy`).
        each_step: called before every vector step of an evaluation.

    `evaluations` holds all of them as (step, evaluation); the model's logger gets
    eval/mean_reward, eval/std_reward, eval/mean_ep_length and, where episodes can be won,
    eval/success_rate.

    Examples:
        >>> from kalmanac import EvalCallback, RecurrentSAC, Track
        >>> watch = EvalCallback(
        ...     Track(horizon=5), eval_freq=20, n_eval_episodes=2, best_model_save_path="best"
        ... )
        >>> model = RecurrentSAC("gru", Track(), seed=0).learn(40, watch)
        step 20: return ... ± ..., length 5
        step 40: return ... ± ..., length 5
        >>> [step for step, evaluation in watch.evaluations]
        [20, 40]
        >>> RecurrentSAC.load("best/best_model").num_timesteps in (20, 40)
        True
    """

    @answering(EVAL_CALLBACK)
    def __init__(
        self, eval_env: Environment | str, callback_on_new_best: AnyCallback | None = None,
        callback_after_eval: AnyCallback | None = None, n_eval_episodes: int = 5,
        eval_freq: int = 10_000, log_path: str | os.PathLike[str] | None = None,
        best_model_save_path: str | os.PathLike[str] | None = None, deterministic: bool = True,
        verbose: int = 1, *, seed: int | None = None, max_steps: int = MOST_STEPS,
        each_step: EachStep | None = None,
    ) -> None:  # fmt: skip
        n_eval_episodes = bounded("n_eval_episodes", n_eval_episodes, int, AtLeast(1))
        for name, value in (("eval_freq", eval_freq), ("max_steps", max_steps)):
            if value < 1:
                raise ValueError(f"{name}: got {value}, expected at least 1")
        self.eval_env = as_vector(eval_env)
        self.callback_on_new_best = self._child("callback_on_new_best", callback_on_new_best)
        self.callback_after_eval = self._child("callback_after_eval", callback_after_eval)
        self.n_eval_episodes, self.eval_freq = n_eval_episodes, eval_freq
        # an environment may change the working directory
        self.log_path = None if log_path is None else Path(log_path).absolute()
        best = best_model_save_path
        self.best_model_save_path = None if best is None else Path(best).absolute()
        self.deterministic, self.verbose, self.seed = deterministic, verbose, seed
        self.max_steps, self.each_step = max_steps, each_step
        self.evaluations: list[tuple[int, Evaluation]] = []
        self.best_mean_reward = self.last_mean_reward = -np.inf
        self._next = eval_freq

    def on_start(self, model: "RecurrentSAC") -> None:
        """Count from where the model stands."""
        if share_an_environment(model.env, self.eval_env):
            raise ValueError(
                "eval_env: got the environment of the training, expected one of its own"
            )
        self._next = (model.num_timesteps // self.eval_freq + 1) * self.eval_freq
        for child in self._children():
            child.on_start(model)

    def on_step(self, model: "RecurrentSAC") -> bool:
        """Evaluate if it is time; False where one of its own callbacks says so."""
        step = model.num_timesteps
        if step < self._next:
            return True
        self._next = (step // self.eval_freq + 1) * self.eval_freq
        evaluation = self._evaluate(model)
        self.evaluations.append((step, evaluation))
        self.last_mean_reward = evaluation.mean_reward
        self._log(model, evaluation)
        answers: list[bool | None] = []
        if evaluation.mean_reward > self.best_mean_reward:
            self.best_mean_reward = evaluation.mean_reward
            if self.best_model_save_path is not None:
                make_folder(self.best_model_save_path)
                model.save(self.best_model_save_path / "best_model")
            if self.callback_on_new_best is not None:
                answers.append(self.callback_on_new_best.on_step(model))
        if self.callback_after_eval is not None:
            answers.append(self.callback_after_eval.on_step(model))
        return False not in answers

    def on_end(self, model: "RecurrentSAC") -> None:
        """End its own callbacks."""
        for child in self._children():
            child.on_end(model)

    def _child(self, name: str, given: AnyCallback | None) -> Callback | None:
        if given is None:
            return None
        child = as_callback(name, given)
        child.parent = self
        return child

    def _children(self) -> Iterator[Callback]:
        for child in (self.callback_on_new_best, self.callback_after_eval):
            if child is not None:
                yield child

    def _evaluate(self, model: "RecurrentSAC") -> Evaluation:
        # by number: agents whose steps differ meet the same episodes
        number = model.num_timesteps // self.eval_freq
        words = np.random.SeedSequence([model.seed if self.seed is None else self.seed, number])
        evaluation = evaluate_policy(
            model, self.eval_env, self.n_eval_episodes, deterministic=self.deterministic,
            seed=int(words.generate_state(1)[0]) % 2**31, max_steps=self.max_steps,
            each_step=self.each_step,
        )  # fmt: skip
        if evaluation.cut:
            warnings.warn(
                f"{evaluation.cut} of {len(evaluation.returns)} evaluation episodes were cut after "
                f"{self.max_steps:,} steps",
                stacklevel=3,
            )
        return evaluation

    def _log(self, model: "RecurrentSAC", evaluation: Evaluation) -> None:
        step, (mean, std) = model.num_timesteps, evaluation
        if self.verbose >= 1:
            wins = evaluation.win_rate
            won = "" if wins is None else f", wins {wins:.3g}"
            length = f"length {evaluation.mean_length:.4g}{won}"
            print(f"step {step}: return {mean:.4g} ± {std:.3g}, {length}")
        model.logger.record("eval/mean_reward", mean)
        model.logger.record("eval/std_reward", std)
        model.logger.record("eval/mean_ep_length", evaluation.mean_length)
        if evaluation.win_rate is not None:
            model.logger.record("eval/success_rate", evaluation.win_rate)
        model.logger.dump(step)
        if self.log_path is not None:
            make_folder(self.log_path)
            write_whole(self.log_path / "evaluations.npz", self._archive())

    def _archive(self) -> bytes:
        """All evaluations as SB3 writes them, a row each."""
        each = [evaluation for _, evaluation in self.evaluations]
        arrays: dict[str, Any] = {
            "timesteps": np.array([step for step, _ in self.evaluations]),
            "results": _rows([x.returns for x in each], np.nan),
            "ep_lengths": _rows([x.lengths for x in each], 0),
        }
        wins = [x.wins for x in each if x.wins is not None]
        if len(wins) == len(each):
            arrays["successes"] = _rows(wins, False)
        file = io.BytesIO()
        np.savez(file, **arrays)
        return file.getvalue()


def _rows(rows: list[NDArray[Any]], missing: float) -> NDArray[Any]:
    """Side by side; evaluations whose episodes were cut may have fewer."""
    width = max(map(len, rows))
    padded = [np.pad(row, (0, width - len(row)), constant_values=missing) for row in rows]
    return np.stack(padded)


class StopTrainingOnRewardThreshold(Callback):
    """Ends the training once the best mean return of an evaluation is `reward_threshold`.

    It goes into an `EvalCallback`, as `callback_on_new_best` or `callback_after_eval`.

    Examples:
        >>> from kalmanac import EvalCallback, RecurrentSAC, StopTrainingOnRewardThreshold, Track
        >>> enough = StopTrainingOnRewardThreshold(-1e6, verbose=1)
        >>> watch = EvalCallback(Track(), enough, n_eval_episodes=2, eval_freq=20, verbose=0)
        >>> RecurrentSAC("gru", Track(), seed=0).learn(100, watch).num_timesteps
        step 20: the mean return ... has reached -1e+06, and the training ends
        20
    """

    def __init__(self, reward_threshold: float, verbose: int = 0) -> None:
        self.reward_threshold, self.verbose = reward_threshold, verbose

    def on_start(self, model: "RecurrentSAC") -> None:
        """See whether there will be evaluations."""
        if not isinstance(self.parent, EvalCallback):
            raise TypeError(
                "callback: got StopTrainingOnRewardThreshold, expected it as callback_on_new_best "
                "of an EvalCallback"
            )

    def on_step(self, model: "RecurrentSAC") -> bool:
        """False once it is enough."""
        best = self.parent.best_mean_reward
        if best >= self.reward_threshold and self.verbose >= 1:
            print(
                f"step {model.num_timesteps}: the mean return {best:.4g} has reached "
                f"{self.reward_threshold:.4g}, and the training ends"
            )
        return bool(best < self.reward_threshold)
