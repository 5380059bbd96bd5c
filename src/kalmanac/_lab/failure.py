"""Why a run stopped before its end, in one line that says how to go on."""

import errno
from pathlib import Path

import torch

from kalmanac._files.run_reader import resumable
from kalmanac._sac.environment_failure import EnvironmentFailedError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FORBIDDEN = (errno.EROFS, errno.EACCES, errno.EPERM)


class RunFailedError(RuntimeError):
    """A run that something outside the package ended; `__cause__` is what was raised.

    Examples:
        >>> from kalmanac import Experiment, RunFailedError, run
        >>> experiment = Experiment(
        ...     env="track", total_steps=1, eval_every=1, eval_episodes=1, batch_size=1, num_envs=1
        ... )
        >>> try:
        ...     outcome = run(experiment, "runs/short", events=False)
        ... except RunFailedError as error:
        ...     print(error)  # the cause, and how to go on from the last good checkpoint
    """


def explain(error: BaseException) -> str | None:
    """The cause in words; None for an error that is nobody's but ours."""
    if isinstance(error, EnvironmentFailedError):
        return str(error)
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    ):
        return f"out of memory ({' '.join(str(error).split())[:120] or type(error).__name__})"
    if isinstance(error, OSError) and error.errno is not None:
        file = "" if error.filename is None else f" ({error.filename})"
        if error.errno in FULL:
            return f"the disk is full{file}: {error.strerror}"
        if error.errno in FORBIDDEN:
            return f"the folder may not be written to{file}: {error.strerror}"
        return f"the disk failed{file}: {error.strerror}"
    return None


def how_to_go_on(folder: Path) -> str:
    """From the last good checkpoint, where there is one."""
    try:
        step = resumable(folder)
    except OSError:
        step = None
    if step is None:
        return "no checkpoint was written"
    return f"the last good checkpoint is step {step:,}; `kalmanac resume {folder}` goes on from it"
