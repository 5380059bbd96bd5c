"""A run from its description to its folder. The training loop itself is `RecurrentSAC.advance`."""

import os
import traceback
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kalmanac.checkpoint import BadFileError, Checkpoint, CheckpointFolder
from kalmanac.experiment.building import make_model, training_environment
from kalmanac.experiment.description import Experiment
from kalmanac.experiment.failure import RunFailedError, explain, how_to_go_on
from kalmanac.experiment.keeping import Keeper
from kalmanac.experiment.progress import Progress
from kalmanac.experiment.recording import Recorder
from kalmanac.rollout import EnvironmentFailedError, close_failed
from kalmanac.runlog import RunFolder, checkpoint_steps, read_experiment, read_summary
from kalmanac.sac import Callback, RecurrentSAC

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
        checkpoint_every: environment steps between checkpoints.
        stop: asked after every step; True ends the run with a checkpoint.
    """

    device: str = "auto"
    progress: Progress | None = None
    checkpoint_every: int = CHECKPOINT_EVERY
    stop: Callable[[], bool] | None = None


def run(
    experiment: Experiment,
    folder: str | os.PathLike[str],
    *,
    device: str = "auto",
    progress: Progress | None = None,
    overwrite: bool = False,
    events: bool = True,
    checkpoint_every: int = CHECKPOINT_EVERY,
    stop: Callable[[], bool] | None = None,
) -> Outcome:
    """Train, evaluate, record and keep. A run that Ctrl-C ends leaves its last model too.

    The folder is made, or cleared, only when all that the run needs has been built. What stops a
    run from outside is a `RunFailedError` that names the cause and the last good checkpoint.

    Args:
        folder: must not hold a run, or, with `overwrite`, only one of the same experiment.
        events: also write TensorBoard events.
        others: see `Execution`.
    """
    written = RunFolder(folder, experiment.to_data(), overwrite=overwrite, events=events)
    how = Execution(device, progress, checkpoint_every, stop)
    return _explained(experiment, written, None, how)


def resume(
    folder: str | os.PathLike[str],
    *,
    step: int | None = None,
    device: str = "auto",
    progress: Progress | None = None,
    events: bool = True,
    checkpoint_every: int | None = None,
    stop: Callable[[], bool] | None = None,
) -> Outcome:
    """Go on with the run in `folder` from its newest checkpoint, or from that of `step`.

    On the CPU what follows is the same, byte for byte, as if the run had never stopped, where the
    environments can tell their states; others begin new episodes, which summary.json mentions.
    A damaged checkpoint is a `BadFileError` that offers the one before. Checkpoints keep their
    schedule unless `checkpoint_every` gives another.
    """
    path = Path(folder)
    experiment = Experiment.from_data(read_experiment(path))
    steps = checkpoint_steps(path)
    if read_summary(path).get("status") == "finished":
        raise ValueError(f"run: got {path}, which is finished, expected one that was stopped")
    if not steps:
        raise ValueError(f"run: got {path}, which has no checkpoint, expected one to go on from")
    checkpoint = read_checkpoint(path, steps[-1] if step is None else step, experiment)
    marks = checkpoint.run["folder"]
    written = RunFolder(path, experiment.to_data(), events=events, marks=marks)
    every = int(checkpoint.run["every"]) if checkpoint_every is None else checkpoint_every
    how = Execution(device, progress, every, stop)
    return _explained(experiment, written, checkpoint, how)


def read_checkpoint(path: Path, step: int, experiment: Experiment) -> Checkpoint:
    """A checkpoint of this experiment, looked at as a whole; BadFileError offers the one before."""
    try:
        return _whole(path, step, experiment)
    except BadFileError as error:
        others = [other for other in reversed(checkpoint_steps(path)) if other != step]
        told = "no other checkpoint is whole"
        for other in others:
            with suppress(BadFileError):
                _whole(path, other, experiment)
                told = (
                    f"the checkpoint of step {other:,} is whole: "
                    f"`kalmanac resume {path} --step {other}` goes on from it"
                )
                break
        raise BadFileError(f"{error}; {told}") from None


def _whole(path: Path, step: int, experiment: Experiment) -> Checkpoint:
    folder = CheckpointFolder(path)
    checkpoint = folder.read(step)
    for name in ("model", "callbacks", "folder", "experiment", "every"):
        if name not in checkpoint.run:
            raise BadFileError(f"checkpoint {step:,}: got none of {name}, expected it")
    if checkpoint.run["experiment"] != experiment.to_data():
        raise BadFileError(f"checkpoint {step:,}: got one of another experiment, expected {path}'s")
    folder.check(checkpoint)
    return checkpoint


def _explained(
    experiment: Experiment, written: RunFolder, checkpoint: Checkpoint | None, how: Execution
) -> Outcome:
    """`_execute`, with words for what comes from outside."""
    env = training_environment(experiment)
    step, calm = 0 if checkpoint is None else checkpoint.step, False
    try:
        model = make_model(experiment, env, how.device)
        try:
            outcome = _execute(experiment, model, written, checkpoint, how)
        finally:
            step = max(step, model.num_timesteps)
        calm = outcome.status == "finished"
        return outcome
    except Exception as error:
        cause, on = explain(error), how_to_go_on(written.path)
        if cause is None:
            error.add_note(f"step {step:,}; {on}")
            raise
        with suppress(OSError):
            written.note_failure("".join(traceback.format_exception(error)))
        raise RunFailedError(f"stopped at step {step:,}: {cause}; {on}") from error
    finally:
        env.close() if calm else close_failed(env)


def _execute(
    experiment: Experiment,
    model: RecurrentSAC,
    written: RunFolder,
    checkpoint: Checkpoint | None,
    how: Execution,
) -> Outcome:
    progress = how.progress
    told = None if progress is None else progress.evaluated
    with ExitStack() as open_things:
        recorder = Recorder(experiment, written, told)
        open_things.callback(recorder.close)
        shown: list[Callback] = [] if progress is None else [progress]
        keeper = Keeper(recorder, shown, every=how.checkpoint_every, stop=how.stop)
        exact = checkpoint is None or keeper.restore(model, checkpoint)
        open_things.enter_context(written)
        if checkpoint is not None:
            keeper.go_on(model, checkpoint)
            if not exact and progress is not None:
                progress.say(FRESH)
            episodes = "the same" if exact else "new"
            written.note_resumed({"step": checkpoint.step, "episodes": episodes})
        status = "failed"
        try:
            model.learn(
                experiment.total_steps - model.num_timesteps, callback=[recorder, *shown, keeper]
            )
            whole = model.num_timesteps >= experiment.total_steps
            status = "interrupted" if keeper.stopped and not whole else "finished"
        except KeyboardInterrupt:
            status, recorder.failed = "interrupted", True
        except EnvironmentFailedError:
            recorder.failed = True
            raise
        except ValueError:  # as an action that is no number is refused
            if not recorder.diverged:
                raise
        finally:
            if progress is not None:
                progress.stop()
            if recorder.diverged:
                status = "diverged"
            # on a full disk, the failure itself is what has to be told
            with suppress(OSError) if status == "failed" else ExitStack():
                recorder.finish(model, status)
        if status == "finished":
            written.forget_checkpoints()
    return Outcome(status, written.path, model.num_timesteps)
