"""What a worker does with runs, wherever it is: begin, or go on, or nothing; then evaluate.

`Executor` is the contract between a sweep and the machines that its workers run on.
"""

import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from kalmanac._files.document import BadFileError
from kalmanac._files.lock import FolderInUseError, FolderLock
from kalmanac._files.run_folder import FolderTakenError, refuse_in_use
from kalmanac._files.run_reader import LOCK, checkpoint_steps, read_summary
from kalmanac._lab.active_run import CHECKPOINT_EVERY, Outcome
from kalmanac._lab.failure import RunFailedError
from kalmanac._lab.post_training import run_post_training
from kalmanac._lab.run import resume, resume_together, run, run_together
from kalmanac._sweep.plan import Planned, Work

ELSEWHERE = "elsewhere"  # another process is at it
LOOK = 0.2  # seconds between two looks at whether to stop
PATIENCE = 60.0  # seconds that a lost worker may live on


@dataclass(frozen=True)
class How:
    """How runs are executed; nothing in it changes what they compute, except for the threads' sums.

    Args:
        stop_file: stops all workers, with checkpoints, as soon as it is there.
    """

    stop_file: Path
    device: str = "cpu"
    threads: int = 1
    events: bool = True
    checkpoint_every: int = CHECKPOINT_EVERY


class Ended(NamedTuple):
    """How one run of a work ended: "finished", "diverged", "interrupted", "failed", "elsewhere"."""

    status: str
    error: str = ""
    details: str = ""


class Done(NamedTuple):
    """A work, and how each of its runs ended."""

    work: Work
    ended: list[Ended]


class Executor(ABC):
    """Works go in by `begin` and come out of `wait`, each once."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """Return how many works it takes at a time."""

    @abstractmethod
    def begin(self, work: Work) -> None:
        """Take a work."""

    @abstractmethod
    def wait(self, seconds: float) -> Iterator[Done]:
        """Yield works that have ended, after at most so many seconds where none has."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back; works under way are killed, and can be resumed later."""


def crashed(work: Work, error: str) -> Done:
    """Return the end of a work whose worker is gone: what it has finished is finished."""
    return Done(
        work, [Ended("finished") if planned.done else Ended("failed", error) for planned in work]
    )


def do(
    work: Work, how: How, *, abandoned: Callable[[], bool] = lambda: False, lost: bool = False
) -> list[Ended]:
    """Bring the runs of a work to their ends, each as far as it comes; nothing is raised.

    Args:
        abandoned: whether nobody waits for the result any more.
        lost: a worker that had this work is gone, or nearly so, and its locks mean nothing.
    """
    stop = StopFile(how.stop_file, abandoned)
    ended: dict[Path, Ended] = {}
    for planned in work:
        try:
            if lost:
                _wait_for(planned.folder)
            refuse_in_use(planned.folder)
            read_summary(planned.folder)
        except FolderInUseError as error:
            ended[planned.folder] = Ended(ELSEWHERE, str(error))
        except (OSError, ValueError) as error:  # of one run: the others go on
            ended[planned.folder] = _ended(error)
    free = [planned for planned in work if planned.folder not in ended and not planned.done]
    if stop():  # while the work waited for its worker
        ended |= {planned.folder: Ended("interrupted") for planned in free}
        free = []
    untrained = [one for one in free if read_summary(one.folder).get("status") != "finished"]
    old = [one for one in untrained if checkpoint_steps(one.folder)]
    new = [one for one in untrained if one not in old]
    for some, train in ((new, _start), (old, _resume)):
        if some:
            for planned, outcome in zip(some, train(some, how, stop), strict=True):
                ended[planned.folder] = _ended(outcome)
    for planned in work:
        if planned.folder not in ended or ended[planned.folder].status == "finished":
            ended[planned.folder] = _evaluated(planned, stop)
    return [ended[planned.folder] for planned in work]


class StopFile:
    """Whether to stop, asked after every step and answered from a file now and then."""

    def __init__(self, file: Path, abandoned: Callable[[], bool]) -> None:
        self.file, self.abandoned = file, abandoned
        self._stopped, self._next_look = False, 0.0

    def __call__(self) -> bool:
        now = time.monotonic()
        if not self._stopped and now >= self._next_look:
            self._next_look = now + LOOK
            self._stopped = self.file.exists() or self.abandoned()
        return self._stopped


Outcomes = Sequence[Outcome | Exception]


def _start(some: Sequence[Planned], how: How, stop: StopFile) -> Outcomes:
    """Train from the first step; a folder without a checkpoint is started over."""
    execution = _execution(how, stop) | {"checkpoint_every": how.checkpoint_every}
    experiments = [planned.experiment for planned in some]
    folders = [planned.folder for planned in some]
    return _caught(
        len(some), lambda: run_together(experiments, folders, overwrite="unfinished", **execution)
    )


def _resume(some: Sequence[Planned], how: How, stop: StopFile) -> Outcomes:
    """Resume from the newest checkpoints; in lockstep, unless one of several is damaged."""
    execution = _execution(how, stop)
    if len(some) > 1:
        try:
            experiments = [planned.experiment for planned in some]
            folders = [planned.folder for planned in some]
            return resume_together(folders, trust=experiments, **execution)
        except Exception:
            pass  # each on its own then, to see whose fault it is
    return [_caught(1, partial(_resume_alone, one, how, execution))[0] for one in some]


def _resume_alone(planned: Planned, how: How, execution: dict[str, Any]) -> Outcomes:
    """Resume from the newest whole checkpoint, or from the first step where none is whole."""
    for step in reversed(checkpoint_steps(planned.folder)):
        try:
            return [resume(planned.folder, step=step, trust=[planned.experiment], **execution)]
        except BadFileError:
            continue
    outcome = run(
        planned.experiment, planned.folder, overwrite="unfinished",
        checkpoint_every=how.checkpoint_every, **execution,
    )  # fmt: skip
    return [outcome]


def _execution(how: How, stop: StopFile) -> dict[str, Any]:
    # a sweep's runs are as long as its plan says, and their checkpoints would fill a disk
    return {
        "device": how.device, "events": how.events, "stop": stop, "keep_checkpoint": False,
        "threads": how.threads,
    }  # fmt: skip


def _caught(runs: int, train: Callable[[], Outcomes]) -> Outcomes:
    """Train; an error that is raised before any run has begun is every run's end."""
    try:
        return train()
    except Exception as error:
        return [error] * runs


def _evaluated(planned: Planned, stop: StopFile) -> Ended:
    status = str(read_summary(planned.folder).get("status", "failed"))
    if status != "finished":
        return Ended(status)
    if stop():
        return Ended(status if planned.done else "interrupted")
    try:
        run_post_training(planned.folder, planned.post_training, trust=[planned.experiment])
    except Exception as error:
        return _ended(error)
    return Ended(status)


def _ended(outcome: Outcome | Exception) -> Ended:
    if not isinstance(outcome, Exception):
        return Ended(outcome.status)
    if isinstance(outcome, FolderInUseError | FolderTakenError):
        return Ended(ELSEWHERE, str(outcome))
    words = str(outcome)
    if not isinstance(outcome, RunFailedError):
        words = f"{type(outcome).__name__}: {words}"
    details = "".join(traceback.format_exception(outcome))
    return Ended("failed", " ".join(words.split()), details)


def _wait_for(folder: Path) -> None:
    """Wait until a lost worker's lock is stale; one of another machine is gone with its machine."""
    lock = FolderLock(folder / LOCK)
    give_up = time.monotonic() + PATIENCE
    while lock.held() and time.monotonic() < give_up:
        owner = lock.owner()
        if owner is not None and not owner.here:
            lock.file.unlink(missing_ok=True)
            return
        time.sleep(LOOK)
