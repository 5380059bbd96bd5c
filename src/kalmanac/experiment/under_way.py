"""A run between its start and its end: what it needs, its training loop, and how it is ended."""

import traceback
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from kalmanac.checkpoint import Checkpoint
from kalmanac.envs.workers import TIMEOUT
from kalmanac.experiment.building import make_model, training_environment
from kalmanac.experiment.description import Experiment
from kalmanac.experiment.failure import RunFailedError, explain, how_to_go_on
from kalmanac.experiment.keeping import Keeper
from kalmanac.experiment.progress import Progress
from kalmanac.experiment.recording import Recorder, Told
from kalmanac.experiment.room import NoRoomError, check_room
from kalmanac.rollout import EnvironmentFailedError, close_failed
from kalmanac.rollout.failure import environment_at_work
from kalmanac.runlog import RunFolder
from kalmanac.sac import Callback, TrainingLoop

CHECKPOINT_EVERY = 10_000
FRESH = (
    "the environments cannot tell their states: the episodes under way end as truncated, and new "
    "ones begin"
)


class Outcome(NamedTuple):
    """How a run ended, "finished", "interrupted" or "diverged", and where it lies."""

    status: str
    folder: Path
    step: int


@dataclass(frozen=True)
class Execution:
    """How a run is executed; nothing in it changes what is computed.

    Args:
        device: "auto" takes a GPU where there is one.
        progress: shows how the run gets on; None is silent.
        told: called with step and values of every evaluation.
        checkpoint_every: environment steps between checkpoints.
        keep_checkpoint: a finished run keeps its last checkpoint, so that it can be extended.
        stop: asked after every step; True ends the run with a checkpoint.
        workers: processes that step the training environments, 0 for this one; "auto" decides by
            the environment and the cores. The results are the same.
        worker_timeout: seconds until one that does not answer counts as hanging.
        together: runs that are about to share the memory, this one included; NoRoomError where
            they do not fit. 0 does not look.
    """

    device: str = "auto"
    progress: Progress | None = None
    told: Told | None = None
    checkpoint_every: int = CHECKPOINT_EVERY
    keep_checkpoint: bool = True
    stop: Callable[[], bool] | None = None
    workers: int | Literal["auto"] = 0
    worker_timeout: float = TIMEOUT
    together: int = 1


class RunUnderWay:
    """Made ready, but not begun: `loop` does the work, and `end` must follow, whatever happened.

    The folder is made, or cleared, only when all that the run needs has been built.
    """

    def __init__(
        self, experiment: Experiment, written: RunFolder, checkpoint: Checkpoint | None,
        how: Execution,
    ) -> None:  # fmt: skip
        self.experiment, self.written, self.how = experiment, written, how
        self._step = 0 if checkpoint is None else checkpoint.step
        self._open = ExitStack()
        self._env = training_environment(
            experiment, workers=how.workers, timeout=how.worker_timeout
        )
        try:
            self._build(checkpoint)
        except NoRoomError:
            self._close(calmly=False)
            raise
        except Exception as error:
            self._close(calmly=False)
            raise self._told(error)  # noqa: B904 (the cause is set)

    def _build(self, checkpoint: Checkpoint | None) -> None:
        progress, how = self.how.progress, self.how
        self.model = make_model(self.experiment, self._env, how.device)
        if how.together:
            check_room(self.experiment, self.model.learner, how.together)
        self.recorder = Recorder(self.experiment, self.written, how.told)
        self._open.callback(self.recorder.close)
        shown: list[Callback] = [] if progress is None else [progress]
        self.keeper = Keeper(
            self.recorder, shown, every=how.checkpoint_every, keep=how.keep_checkpoint,
            stop=how.stop,
        )  # fmt: skip
        exact = checkpoint is None or self.keeper.restore(self.model, checkpoint)
        self._open.enter_context(self.written)
        if checkpoint is not None:
            self.keeper.go_on(self.model, checkpoint)
            if not exact and progress is not None:
                progress.say(FRESH)
            episodes = "the same" if exact else "new"
            self.written.note_resumed({"step": checkpoint.step, "episodes": episodes})
        self.loop: TrainingLoop = self.model.loop(
            self.experiment.total_steps - self.model.num_timesteps,
            [self.recorder, *shown, self.keeper],
        )

    def end(self, error: Exception | None, *, interrupted: bool = False) -> Outcome:
        """Write how it ended and close everything; what the training raised is told and raised."""
        self._step = max(self._step, self.model.num_timesteps)
        diverged, status = self.recorder.diverged, "failed"
        if interrupted or isinstance(error, EnvironmentFailedError):
            self.recorder.failed = True  # an environment did, or may: nobody waits for it
        if isinstance(error, ValueError) and diverged:
            error = None  # as an action that is no number is refused
        if error is None:
            whole = self._step >= self.experiment.total_steps
            early = interrupted or (self.keeper.stopped and not whole)
            status = "interrupted" if early else "finished"
        if diverged:
            status = "diverged"
        if self.how.progress is not None:
            self.how.progress.stop()
        try:
            # on a full disk, the failure itself is what has to be told
            with suppress(OSError) if status == "failed" else ExitStack():
                self.recorder.finish(self.model, status)
            if error is None and status == "finished":
                self.keeper.finish()
        except Exception as later:
            error = later
        try:
            self._close(calmly=error is None and status == "finished")
        except Exception as later:
            error = later
        if error is not None:
            raise self._told(error)
        return Outcome(status, self.written.path, self.model.num_timesteps)

    def _close(self, *, calmly: bool) -> None:
        """All that is open; after a failure nothing that fails now is more worth telling."""
        with ExitStack() if calmly else suppress(Exception):
            self._open.close()
        with environment_at_work() if calmly else suppress(Exception):
            self._env.close() if calmly else close_failed(self._env)

    def _told(self, error: Exception) -> Exception:
        """What to raise: with words for what comes from outside."""
        cause, on = explain(error), how_to_go_on(self.written.path)
        if cause is None:
            error.add_note(f"step {self._step:,}; {on}")
            return error
        with suppress(OSError):
            self.written.note_failure("".join(traceback.format_exception(error)))
        told = RunFailedError(f"stopped at step {self._step:,}: {cause}; {on}")
        told.__cause__ = error
        return told
