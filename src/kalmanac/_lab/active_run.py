"""A run between its start and its end: what it needs, its training loop, and how it is stopped.

Ctrl-C and SIGTERM are a question that the loop asks after every step.
"""

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NamedTuple

import torch
from gymnasium.vector import VectorEnv

from kalmanac._envs.workers import TIMEOUT, describe_exception
from kalmanac._files.document import BadFileError
from kalmanac._files.run_folder import RunFolder
from kalmanac._lab.checkpointing import LOGGER, Checkpoint, Checkpointer
from kalmanac._lab.evaluation import EvaluationStoppedError
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.factory import make_model, training_environment
from kalmanac._lab.failure import RunFailedError, explain, how_to_go_on
from kalmanac._lab.resources import NoRoomError, check_memory
from kalmanac._lab.run_logger import OnEvaluation, OnEvaluationStep, RunLogger
from kalmanac._lab.threads import choose_threads
from kalmanac._sac.callbacks import Callback
from kalmanac._sac.environment_failure import EnvironmentFailedError, close_failed, closed
from kalmanac._sac.loop import Member
from kalmanac._sac.progress import Progress

PATIENCE = 5.0


class StopSignals:
    """While it is entered, the first signal only sets `number`; a second one interrupts at once.

    Those that follow are not heard for `PATIENCE` seconds, in which runs write down how they ended;
    one that comes later ends the process, as it would end any other.

    Signals belong to the process, so that this belongs to a verb and to nothing below it.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.number: int | None = None
        self._interrupted: float | None = None  # when
        self._before: dict[int, Any] = {}
        self._process = os.getpid()

    def __call__(self) -> bool:
        """Whether the training is to stop."""
        return self.number is not None

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            self._before = {which: signal.signal(which, self._on_signal) for which in self.SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for which, handler in self._before.items():
            signal.signal(which, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            # A worker that was forked: a terminal's Ctrl-C is for the parent, SIGTERM for itself.
            if number == signal.SIGTERM:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            return
        if self._interrupted is not None:
            if time.monotonic() > self._interrupted + PATIENCE:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            return
        if self.number is not None:
            self._interrupted = time.monotonic()
            raise KeyboardInterrupt
        self.number = number
        text = "stops after this step with a checkpoint; once more stops at once, without one\n"
        with suppress(OSError, ValueError):  # whoever was listening may be gone
            os.write(sys.__stderr__.fileno() if sys.__stderr__ is not None else 2, text.encode())


CHECKPOINT_EVERY = 10_000
FRESH = (
    "the environments cannot tell their states: the episodes under way end as truncated, and new "
    "ones begin"
)
LOST = "best.safetensors is gone: of the evaluations to come, the best one's model is kept"


class Outcome(NamedTuple):
    """How a run ended, "finished", "interrupted" or "diverged", and where it lies.

    Finished is a run that has taken all its steps and made all its evaluations. `note` is a line
    about what went wrong when that was done.

    Examples:
        >>> from kalmanac import Experiment, run
        >>> small = Experiment(
        ...     env="track", encoder="memoryless", total_steps=40, learning_starts=20, batch_size=4,
        ...     actor_hidden=(8,), critic_hidden=(8,), eval_every=20, eval_episodes=1, num_envs=2,
        ... )
        >>> outcome = run(small, "runs/small", events=False)
        >>> outcome.status, outcome.step, outcome.folder.name
        ('finished', 40, 'small')
    """

    status: str
    folder: Path
    step: int
    note: str = ""


@dataclass(frozen=True)
class Execution:
    """How a run is executed; nothing in it changes what is computed, but for some last digits.

    Args:
        device: "auto" takes a GPU where there is one.
        progress: shows how the run gets on; None is silent.
        on_evaluation: called with step and values of every evaluation.
        on_evaluation_step: called before every step of an evaluation.
        checkpoint_every: environment steps between checkpoints.
        keep_checkpoint: a finished run keeps its last checkpoint, so that it can be extended.
        stop: called after every step, and before every one of an evaluation; True ends the run with
            a checkpoint.
        workers: processes that step the training environments, 0 for this one; "auto" decides by
            the environment and the cores. The results are the same.
        worker_timeout: seconds until one that does not answer counts as hanging.
        together: runs that are about to share the memory, this one included; NoRoomError where
            they do not fit. 0 does not look.
        threads: of PyTorch, for a run that begins; None measures on a CPU how many are fastest. A
            run that goes on keeps those that it began with, and so it does with `eval_beside`.
        eval_beside: a process of its own plays evaluations, on the CPU, while the training goes
            on. A GPU's actions would differ from these in their last digits.
    """

    device: str = "auto"
    progress: Progress | None = None
    on_evaluation: OnEvaluation | None = None
    on_evaluation_step: OnEvaluationStep | None = None
    checkpoint_every: int = CHECKPOINT_EVERY
    keep_checkpoint: bool = True
    stop: Callable[[], bool] | None = None
    workers: int | Literal["auto"] = 0
    worker_timeout: float = TIMEOUT
    together: int = 1
    threads: int | None = None
    eval_beside: bool = False


class ActiveRun:
    """A run that is ready to train: the loop takes `member`, and `end` must follow, whatever
    happened.

    The folder is made, or cleared, only when all that the run needs has been built.
    """

    def __init__(
        self, experiment: Experiment, folder: RunFolder, checkpoint: Checkpoint | None,
        how: Execution,
    ) -> None:  # fmt: skip
        self.experiment, self.folder, self.how = experiment, folder, how
        self._step = 0 if checkpoint is None else checkpoint.step
        self._outcome: Outcome | None = None
        self._error: BaseException | None = None
        self._open = ExitStack()
        self._open.callback(folder.close)  # it may hold its lock already
        self._env: VectorEnv[Any, Any, Any] | None = None
        try:
            self._env = training_environment(
                experiment, workers=how.workers, timeout=how.worker_timeout
            )
            self._build(self._env, checkpoint)
        except (NoRoomError, KeyboardInterrupt):
            self._close()
            raise
        except BaseException as error:
            failure = self._failure(error)
            self._close()
            raise failure  # noqa: B904 (the cause is set)

    def _build(self, env: VectorEnv[Any, Any, Any], checkpoint: Checkpoint | None) -> None:
        progress, how = self.how.progress, self.how
        self.model = make_model(self.experiment, env, how.device)
        if how.together:
            check_memory(self.experiment, self.model.learner, how.together)
        if checkpoint is None:
            self.threads = how.threads or choose_threads(self.experiment, self.model.learner)
            beside = how.eval_beside
        else:
            self.threads, beside = _threads_and_beside(checkpoint)
        self.folder.threads = self.threads
        self.logger = RunLogger(
            self.experiment,
            self.folder,
            on_evaluation=how.on_evaluation,
            on_evaluation_step=how.on_evaluation_step,
            stop=how.stop,
            beside=beside,
        )
        self._open.callback(self.logger.close)
        shown: list[Callback] = [] if progress is None else [progress]
        self.checkpointer = Checkpointer(
            self.logger, shown, every=how.checkpoint_every, keep=how.keep_checkpoint,
            stop=how.stop,
        )  # fmt: skip
        exact = checkpoint is None or self.checkpointer.restore(self.model, checkpoint)
        self._open.enter_context(self.folder)
        if checkpoint is not None:
            self.checkpointer.go_on(self.model, checkpoint)
            lost = self.logger.look_for_best()
            if progress is not None:
                for line in [FRESH] * (not exact) + [LOST] * lost:
                    progress.say(line)
            start = {"step": checkpoint.step, "episodes": "the same" if exact else "new"}
            self.folder.note_resumed(start | ({"best": "lost"} if lost else {}))
        self.member: Member = self.model.member(
            self.experiment.total_steps - self.model.num_timesteps,
            [self.logger, *shown, self.checkpointer],
        )
        self.member.threads = self.threads

    def end(self, error: BaseException | None, *, interrupted: bool = False) -> Outcome:
        """Write how it ended and close everything; what the training raised is raised anew.

        Called again, where an interrupt has cut it short, it does what is left.
        """
        self._step = max(self._step, self.model.num_timesteps)
        self._error = error if self._error is None else self._error
        if self._outcome is None:
            self._outcome = self._finish(interrupted)
        if self._outcome is None:
            assert self._error is not None
            failure = self._failure(self._error)
            self._close()
            raise failure
        return self._outcome._replace(note="; ".join(self._close()))

    def _finish(self, interrupted: bool) -> Outcome | None:
        """Decide and write down how it ended; None where there is an error to raise."""
        error, diverged, status = self._error, self.logger.diverged, "failed"
        stopped = isinstance(error, EvaluationStoppedError)
        if interrupted or isinstance(error, EnvironmentFailedError):
            self.logger.failed = True  # an environment did, or may: nobody waits for it
        if stopped or (isinstance(error, ValueError) and diverged):
            error = None  # as an action that is no number is refused
        if error is None:
            whole = self._step >= self.experiment.total_steps and self.logger.whole
            status = "finished" if whole and not (interrupted or stopped) else "interrupted"
        if diverged:
            status = "diverged"
        if self.how.progress is not None:
            self.how.progress.stop()
        try:
            # on a full disk, the failure itself is what has to be reported
            with suppress(OSError) if status == "failed" else ExitStack():
                self.logger.finish(self.model, status)
        except Exception as later:
            error = later
        self._error = error
        return Outcome(status, self.folder.path, self._step) if error is None else None

    def _close(self) -> list[str]:
        """Close all that is open. Returns what went wrong with it, in words, for a finished run:
        after a failure nothing that fails now matters more."""
        finished = self._outcome is not None and self._outcome.status == "finished"
        notes: list[str | None] = []
        for close in (lambda: self.checkpointer.finish(), self._open.close)[not finished :]:
            try:
                close()
            except Exception as error:
                notes.append(explain(error) or describe_exception(error))
        env, self._env = self._env, None
        if env is not None and finished:
            notes.append(closed(env))
        elif env is not None:
            close_failed(env)
        return list(dict.fromkeys(filter(None, notes))) if finished else []

    def _failure(self, error: BaseException) -> Exception:
        """The error to raise; a cause from outside gets words of its own."""
        cause, on = explain(error), how_to_go_on(self.folder.path)
        if cause is None and isinstance(error, Exception):
            error.add_note(f"step {self._step:,}; {on}")
            return error
        with suppress(OSError):
            self.folder.note_failure("".join(traceback.format_exception(error)))
        failure = RunFailedError(
            f"stopped at step {self._step:,}: {cause or describe_exception(error)}; {on}"
        )
        failure.__cause__ = error
        return failure


def _threads_and_beside(checkpoint: Checkpoint) -> tuple[int, bool]:
    """How the run was executed until the checkpoint; older runs had PyTorch's threads."""
    try:
        threads = checkpoint.run["folder"].get("threads", torch.get_num_threads())
        beside = "beside" in checkpoint.run["callbacks"].get(LOGGER, {})
        if type(threads) is not int or threads < 1:
            raise ValueError(f"threads: got {threads!r}, expected a number from 1 on")
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise BadFileError(
            f"checkpoint {checkpoint.step:,}: got one that does not fit this run ({error!r})"
        ) from error
    return threads, beside
