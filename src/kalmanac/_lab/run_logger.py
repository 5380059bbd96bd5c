"""What a training leaves in its run folder: metrics, evaluations, the best and the last model."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kalmanac._files.durable import write_whole
from kalmanac._files.run_folder import RunFolder
from kalmanac._files.run_reader import MODELS
from kalmanac._lab.evaluation import EvaluationStoppedError, OnDevice, evaluate
from kalmanac._lab.evaluation_process import EvaluationProcess
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.factory import check_environment, evaluation_environment, most_steps
from kalmanac._lab.resources import held_bytes
from kalmanac._ops.device import held_on_gpus
from kalmanac._sac.callbacks import Callback
from kalmanac._sac.environment_failure import EnvironmentFailedError, close_failed, closed
from kalmanac._sac.episode_streams import Episode
from kalmanac._sac.recurrent_sac import RecurrentSAC
from kalmanac._sac.training_log import TrainingMeans

_KEPT = (
    "best", "diverged", "_evaluated_at", "_evaluations", "_next_row", "_row_step", "_waiting",
)  # fmt: skip
_SINCE = ("_waiting",)  # of them, those that older checkpoints do not hold

OnEvaluation = Callable[[int, Mapping[str, float]], None]  # step and metrics
OnEvaluationStep = Callable[[str, int, int, int], None]  # which evaluation, then as `EachStep`


class RunLogger(Callback):
    """Writes a row every `log_every` steps, evaluates every `eval_every`, and keeps two models.

    Rows hold means since the row before; the last one is written where the training ends, however
    it does. Evaluations are deterministic, each with episodes of its own that the seed and the
    evaluation's number decide, so that nothing in metrics.jsonl depends on a clock. `diverged` says
    that a loss or a weight is no finite number any more; such a model is neither evaluated nor
    saved.

    An evaluation that is to stop does so before its next step. Its row waits: the checkpoint
    of that step holds it, and whoever goes on from there evaluates first.

    Args:
        on_evaluation: called with step and values of every evaluation.
        stop: called before every step of an evaluation; True stops it.
        on_evaluation_step: called before every step of an evaluation.
        beside: a process of its own evaluates, while the training goes on.
    """

    def __init__(
        self, experiment: Experiment, folder: RunFolder, *,
        on_evaluation: OnEvaluation | None = None,
        on_evaluation_step: OnEvaluationStep | None = None,
        stop: Callable[[], bool] | None = None, beside: bool = False,
    ) -> None:  # fmt: skip
        if beside and experiment.eval_on_device:
            raise ValueError("eval_beside: got True with eval_on_device, expected one of them")
        self.experiment, self.folder, self.stop = experiment, folder, stop
        self.on_evaluation, self.on_evaluation_step = on_evaluation, on_evaluation_step
        self.return_scale = check_environment(experiment).normalizer
        elsewhere = experiment.eval_on_device or beside
        names = () if elsewhere else experiment.evaluations
        self.places = {name: evaluation_environment(experiment, name) for name in names}
        self._on_device: OnDevice | None = None
        self._beside = EvaluationProcess(experiment) if beside else None
        self.best = -math.inf
        self.diverged = False
        self.failed = False  # an environment did, or may: nobody waits for it at the end
        self._means = TrainingMeans()
        self._evaluated_at = -1
        self._evaluations = 0  # the last one's number
        self._next_row = experiment.log_every
        self._began = self._row_began = time.perf_counter()
        self._evaluating = 0.0
        self._seconds = (0.0, 0.0)  # that the run and its next row had taken in earlier starts
        self._row_step = 0
        # the row of a step whose evaluation was stopped
        self._waiting: dict[str, float] | None = None

    @property
    def whole(self) -> bool:
        """Whether no evaluation is still to be made."""
        return self._waiting is None

    def on_start(self, model: RecurrentSAC) -> None:
        """Start the clock, or let it go on; make an evaluation that was stopped."""
        now = time.perf_counter()
        self._began, self._row_began = now - self._seconds[0], now - self._seconds[1]
        if self._waiting is not None:
            self._settle(model, self._waiting)
            if self._waiting is not None:
                raise EvaluationStoppedError

    def on_episode(self, model: RecurrentSAC, episode: Episode) -> None:
        """Keep the episode for the next row."""
        self._means.add_episode(episode)

    def on_update(self, model: RecurrentSAC, metrics: Mapping[str, Tensor]) -> None:
        """Keep its metrics for the next row."""
        self._means.add_update(metrics)

    def on_step(self, model: RecurrentSAC) -> bool:
        """Write and evaluate where it is time; False ends a training that diverged."""
        step, every = model.num_timesteps, self.experiment
        values: dict[str, float] = {}
        if step >= min(self._next_row, every.total_steps):
            self._next_row = (step // every.log_every + 1) * every.log_every
            values |= self._training(step)
        self._settle(model, values)
        return not self.diverged

    def _settle(self, model: RecurrentSAC, values: dict[str, float]) -> None:
        """Add an evaluation to the row where one is due, and write it."""
        if self._beside is not None:
            self._settle_beside(model, values, self._beside)
            return
        step, before, self._waiting = model.num_timesteps, self._evaluations, None
        due = evaluations_due(self.experiment, step)
        try:
            if due > before and self.sound(model):
                self._evaluations = due
                began = time.perf_counter()
                values = values | self._evaluation(model)
                self._evaluating += time.perf_counter() - began
        except EvaluationStoppedError:
            self._evaluations, self._waiting = before, values
        finally:  # an evaluation that is interrupted takes no row with it
            if values and self._waiting is None:
                self.folder.log(step, values)

    def _settle_beside(
        self, model: RecurrentSAC, values: dict[str, float], beside: EvaluationProcess
    ) -> None:
        """Ask for an evaluation where one is due; take what is answered, and at the end wait."""
        step, self._waiting = model.num_timesteps, None
        number = evaluations_due(self.experiment, step)
        due, last = number > self._evaluations, step >= self.experiment.total_steps
        try:
            if beside.asked is not None and (due or last or beside.ready()):
                self._take(beside)
            if due and self.sound(model):
                self._evaluations, self._evaluated_at = number, step
                self._save(model, "last")
                beside.ask((self.folder.path / MODELS["last"]).read_bytes(), self._seeds())
                looked = {key: x.item() for key, x in model.diagnostics().items()}
                beside.rows, values = [(step, values | looked)], {}
                if last:
                    self._take(beside)
        except EvaluationStoppedError:
            self._waiting = values
            return
        if values and beside.asked is not None:
            beside.rows.append((step, values))
        elif values:
            self.folder.log(step, values)

    def _take(self, beside: EvaluationProcess) -> None:
        """Wait for an evaluation, and write its row and those that waited for it."""
        began = time.perf_counter()
        values = beside.wait(self.stop)
        self._evaluating += time.perf_counter() - began
        assert beside.asked is not None
        (content, _), best = beside.asked, self.folder.path / MODELS["best"]
        self._judge(beside.rows[0][0], values, lambda: write_whole(best, content))
        beside.rows[0][1].update(values)
        for row in beside.rows:
            self.folder.log(*row)
        beside.asked, beside.rows = None, []

    def on_end(self, model: RecurrentSAC) -> None:
        """Write what has happened since the last row, where the end came between two.

        A row that waits is written without its evaluation; who goes on writes it anew.
        """
        step = model.num_timesteps
        for row in () if self._beside is None else self._beside.rows:
            self.folder.log(*row)
        if self._waiting:
            self.folder.log(step, self._waiting)
        if step > self._row_step:
            self.folder.log(step, self._training(step))
        self.sound(model)

    def finish(self, model: RecurrentSAC, status: str) -> None:
        """Save the last model, unless an evaluation has just done so, and how the run ended."""
        step = model.num_timesteps
        if self._evaluated_at < step and self.sound(model):
            self._save(model, "last")
        self.folder.summarize(status=status, step=step, updates=self._means.updates)

    def sound(self, model: RecurrentSAC) -> bool:
        """Whether all parameters, and the losses since the last row, are still finite numbers.

        Reading waits for the device.
        """
        tensors = [model.learner.optimizer.values]
        tensors += [x.to(model.device) for x in self._means.losses]
        finite = torch.stack([x.isfinite().all() for x in tensors]).all().item()
        self.diverged = self.diverged or not finite
        return not self.diverged

    def state_dict(self) -> dict[str, Any]:
        """All that later rows depend on."""
        now = time.perf_counter()
        return {
            **{name: getattr(self, name) for name in _KEPT},
            **self._means.state_dict(),
            "seconds": (now - self._began, now - self._row_began),
            "evaluating": self._evaluating,
            **({} if self._beside is None else {"beside": self._beside.state_dict()}),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was called; the clock goes on with the training."""
        for name in _KEPT:
            setattr(self, name, state.get(name) if name in _SINCE else state[name])
        # an end that is none any more had an evaluation out of turn
        due = evaluations_due(self.experiment, max(self._evaluated_at, 0))
        self._evaluations = min(self._evaluations, due)
        self._means.load_state_dict(state)
        self._seconds = state["seconds"]
        self._evaluating = state.get("evaluating", 0.0)
        if self._beside is not None:
            self._beside.load_state_dict(state["beside"])

    def look_for_best(self) -> bool:
        """Whether the best model's file is lost; then the search for the best starts anew."""
        lost = self.best > -math.inf and not (self.folder.path / MODELS["best"]).is_file()
        if lost:
            self.best = -math.inf
        return lost

    def close(self) -> None:
        """Close the evaluation environments; those that may hang are not waited for."""
        if self._beside is not None:
            self._beside.close()
        failures: list[str | None] = []
        for env in self.places.values():
            close_failed(env) if self.failed else failures.append(closed(env))
        if any(failures):
            raise EnvironmentFailedError("; ".join(dict.fromkeys(filter(None, failures))))

    def _training(self, step: int) -> dict[str, float]:
        """Means over the episodes and the updates since the last row."""
        self._clock(step)
        values = self._means.row()
        losses = [value for name, value in values.items() if name.endswith("_loss")]
        self.diverged = self.diverged or not all(map(math.isfinite, losses))
        return values

    def _evaluation(self, model: RecurrentSAC) -> dict[str, float]:
        """Evaluate everywhere, save the models, and add the agent's diagnostics."""
        step = model.num_timesteps
        values: dict[str, float] = {}
        for name, metrics in self._evaluated(model):
            values |= {f"eval/{name}/{key}": value for key, value in metrics.items()}
        self._save(model, "last")
        self._judge(step, values, lambda: self._save(model, "best"))
        self._evaluated_at = step
        return values | {key: x.item() for key, x in model.diagnostics().items()}

    def _judge(self, step: int, values: dict[str, float], keep: Callable[[], object]) -> None:
        """Sum the evaluation up, and keep the model where it is the best so far."""
        at = {"step": step, **values}
        self.folder.summarize(step=step, last=at)
        first = values[f"eval/{self.experiment.evaluations[0]}/mean_reward"]
        if first > self.best:
            self.best = first
            keep()
            self.folder.summarize(best=at)
        if self.on_evaluation is not None:
            self.on_evaluation(step, values)

    def _evaluated(self, model: RecurrentSAC) -> Iterator[tuple[str, dict[str, float]]]:
        """Every evaluation's name and numbers."""
        names, seeds = self.experiment.evaluations, self._seeds()
        if self.experiment.eval_on_device:
            if self._on_device is None:
                self._on_device = OnDevice(self.experiment, model, self.return_scale)
            metrics = self._on_device(seeds, partial(self._each_step, ", ".join(names)))
            yield from zip(names, metrics, strict=True)
            return
        episodes = self.experiment.eval_episodes
        for (name, env), seed in zip(self.places.items(), seeds, strict=True):
            yield name, evaluate(
                model, env, episodes, seed=seed, return_scale=self.return_scale,
                max_steps=most_steps(self.experiment, name),
                each_step=partial(self._each_step, name),
            )  # fmt: skip

    def _seeds(self) -> list[int]:
        """Return the seed of each of an evaluation's environments."""
        places = range(len(self.experiment.evaluations))
        return [evaluation_seed(self.experiment.seed, self._evaluations, i) for i in places]

    def _each_step(self, name: str, steps: int, done: int, episodes: int) -> None:
        if self.stop is not None and self.stop():
            raise EvaluationStoppedError
        if self.on_evaluation_step is not None:
            self.on_evaluation_step(name, steps, done, episodes)

    def _save(self, model: RecurrentSAC, which: str) -> None:
        model.save(self.folder.path / MODELS[which])

    def _clock(self, step: int) -> None:
        now = time.perf_counter()
        seconds = max(now - self._row_began, 1e-9)
        on_devices = held_on_gpus()
        self.folder.log_time(
            step,
            {
                "time/elapsed": now - self._began,
                "time/evaluating": self._evaluating,  # of it, by this run
                "time/fps": (step - self._row_step) / seconds,
                "time/updates_per_second": self._means.new_updates / seconds,
                "time/memory_gb": held_bytes() / 1e9,  # of all runs in this process
                **({} if on_devices is None else {"time/device_memory_gb": on_devices / 1e9}),
            },
        )
        self._row_began, self._row_step = now, step


def evaluations_due(experiment: Experiment, step: int) -> int:
    """The number of the evaluation that is due by `step`: one every `eval_every`, one at the end.

    Agents reach it at different steps where the resets of an environment are no steps (NEXT_STEP).
    """
    if step >= experiment.total_steps:
        return math.ceil(experiment.total_steps / experiment.eval_every)
    return step // experiment.eval_every


def evaluation_seed(seed: int, number: int, place: int) -> int:
    """The seed of one evaluation's episodes: new ones each time, the same for every agent."""
    return int(np.random.SeedSequence([seed, number, place]).generate_state(1)[0]) % 2**31
