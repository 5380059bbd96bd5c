"""Runs from their descriptions to their folders, alone or several seeds together.

The training loop itself is `kalmanac._sac.loop.TrainingLoop`.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from kalmanac._files.document import BadFileError
from kalmanac._files.lock import FolderLock
from kalmanac._files.run_folder import Overwrite, RunFolder, expect_marks
from kalmanac._files.run_reader import LOCK, checkpoint_steps, refuse_no_run
from kalmanac._lab.active_run import ActiveRun, Execution, Outcome
from kalmanac._lab.checkpointing import Checkpoint, CheckpointFolder, same_but_for_the_end, way_on
from kalmanac._lab.evaluation import evaluation_line
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.failure import RunFailedError, explain, how_to_go_on
from kalmanac._lab.resources import NoRoomError
from kalmanac._lab.threads import threads_restored
from kalmanac._lab.trust import Trust, read_trusted
from kalmanac._sac.loop import TrainingLoop
from kalmanac._sac.progress import Progress

AnyPath = str | os.PathLike[str]
# what a run is built from: its experiment, its folder, and where it goes on from
Job = tuple[Experiment, RunFolder, Checkpoint | None]


def run(
    experiment: Experiment, folder: AnyPath, *, overwrite: Overwrite = False, events: bool = True,
    **execution: Any,
) -> Outcome:  # fmt: skip
    """Train, evaluate, record and keep. A run that Ctrl-C ends leaves its last model too.

    The folder is made, or cleared, only when all that the run needs has been built. What stops a
    run from outside is a `RunFailedError` that names the cause and the last good checkpoint.

    Args:
        experiment: what is run.
        folder: must not hold a run, or, with `overwrite`, only one of the same experiment; with
            "unfinished", only one that is not finished.
        overwrite: see `folder`.
        events: also write TensorBoard events.
        **execution: device, checkpoint_every, workers and others, which change nothing that is
            computed, but for `threads` (on a CPU) in the last digits of sums.

    Examples:
        >>> from kalmanac import Experiment, run
        >>> small = Experiment(
        ...     env="track", encoder="memoryless", total_steps=40, learning_starts=20, batch_size=4,
        ...     actor_hidden=(8,), critic_hidden=(8,), eval_every=20, eval_episodes=1, num_envs=2,
        ... )
        >>> run(small, "runs/small", events=False).status
        'finished'
        >>> from pathlib import Path
        >>> sorted(file.name for file in Path("runs/small").glob("*.safetensors"))
        ['best.safetensors', 'last.safetensors']
    """
    run_folder = RunFolder(folder, experiment.to_data(), overwrite=overwrite, events=events)
    return _alone((experiment, run_folder, None), Execution(**execution))


def run_together(
    experiments: Sequence[Experiment], folders: Sequence[AnyPath], *, overwrite: Overwrite = False,
    events: bool = True, **execution: Any,
) -> list[Outcome | Exception]:  # fmt: skip
    """Several runs in lockstep, each as `run` would do it alone; on a GPU they share its time.

    A run that fails leaves the others alone: its place in the result holds what it raised. The
    progress shown is that of the first run, with the evaluations of all.

    Examples:
        >>> from kalmanac import Experiment, run_together
        >>> small = Experiment(
        ...     env="track", encoder="memoryless", total_steps=40, learning_starts=20, batch_size=4,
        ...     actor_hidden=(8,), critic_hidden=(8,), eval_every=20, eval_episodes=1, num_envs=2,
        ... )
        >>> seeds = [small.changed({"seed": seed}) for seed in (0, 1)]
        >>> folders = [f"runs/seed{experiment.seed}" for experiment in seeds]
        >>> [outcome.status for outcome in run_together(seeds, folders, events=False)]
        ['finished', 'finished']
    """
    pairs = zip(experiments, folders, strict=True)
    jobs: list[Job] = [
        (e, RunFolder(folder, e.to_data(), overwrite=overwrite, events=events), None)
        for e, folder in pairs
    ]
    return _together(jobs, [Execution(**execution)] * len(jobs))


def resume(
    folder: AnyPath, *, step: int | None = None, total_steps: int | None = None,
    events: bool = True, checkpoint_every: int | None = None, trust: Trust = False,
    **execution: Any,
) -> Outcome:  # fmt: skip
    """Go on with the run in `folder` from its newest checkpoint, or from that of `step`.

    With `total_steps` the run ends there instead, and a finished one goes on; it is then a run of
    the experiment with that end.

    On the CPU what follows is the same, byte for byte, as if the run had never stopped, where the
    environments can save their states; others begin new episodes, which summary.json mentions.
    A damaged checkpoint is a `BadFileError` that offers the one before. Checkpoints keep their
    schedule unless `checkpoint_every` gives another; for the rest see `Execution`.

    A folder of somebody else that names code of its own is an `UntrustedError` unless `trust` is
    True, or holds the experiment that the folder is expected to have.

    Examples:
        >>> from kalmanac import Experiment, resume, run
        >>> small = Experiment(
        ...     env="track", encoder="memoryless", total_steps=40, learning_starts=20, batch_size=4,
        ...     actor_hidden=(8,), critic_hidden=(8,), eval_every=20, eval_episodes=1, num_envs=2,
        ... )
        >>> run(small, "runs/small", events=False).step
        40
        >>> resume("runs/small", total_steps=60, events=False).step
        60
    """
    job = _stopped(Path(folder).absolute(), step, events, trust, total_steps)
    return _alone(job, _going_on(job, Execution(**execution), checkpoint_every))


def resume_together(
    folders: Sequence[AnyPath], *, total_steps: int | None = None, events: bool = True,
    checkpoint_every: int | None = None, trust: Trust = False, **execution: Any,
) -> list[Outcome | Exception]:  # fmt: skip
    """Go on with several runs in lockstep, each from its newest checkpoint; see `run_together`.

    Examples:
        >>> from kalmanac import Experiment, resume_together, run_together
        >>> small = Experiment(
        ...     env="track", encoder="memoryless", total_steps=40, learning_starts=20, batch_size=4,
        ...     actor_hidden=(8,), critic_hidden=(8,), eval_every=20, eval_episodes=1, num_envs=2,
        ... )
        >>> seeds = [small.changed({"seed": seed}) for seed in (0, 1)]
        >>> folders = ["runs/seed0", "runs/seed1"]
        >>> outcomes = run_together(seeds, folders, events=False)
        >>> [o.step for o in resume_together(folders, total_steps=60, events=False)]
        [60, 60]
    """
    jobs = _all_stopped(folders, events, trust, total_steps)
    how = Execution(**execution)
    return _together(jobs, [_going_on(job, how, checkpoint_every) for job in jobs])


def _stopped(
    path: Path, step: int | None, events: bool, trust: Trust, total_steps: int | None
) -> Job:
    """Read a run that can be resumed; its folder is locked before anything in it is read."""
    refuse_no_run(path)
    lock = FolderLock(path / LOCK)
    try:
        lock.take()
    except OSError as error:
        failure = RunFailedError(f"not resumed: {explain(error)}; {how_to_go_on(path)}")
        raise failure from error
    try:
        experiment = read_trusted(path, trust)
        experiment, step = way_on(path, experiment, step, total_steps)
        checkpoint = read_checkpoint(path, step, experiment)
        marks = checkpoint.run["folder"]
        data = experiment.to_data()
        run_folder = RunFolder(path, data, events=events, marks=marks, lock=lock)
    except BaseException:
        lock.release()
        raise
    return experiment, run_folder, checkpoint


def _all_stopped(
    paths: Sequence[AnyPath], events: bool, trust: Trust, total_steps: int | None
) -> list[Job]:
    """Do the same for several runs; where one cannot be resumed, none stays locked."""
    jobs: list[Job] = []
    try:
        for path in paths:
            jobs.append(_stopped(Path(path).absolute(), None, events, trust, total_steps))
    except BaseException:
        for _, run_folder, _ in jobs:
            run_folder.close()
        raise
    return jobs


def _going_on(job: Job, how: Execution, every: int | None) -> Execution:
    """Keep the checkpoint's schedule unless `every` gives another."""
    checkpoint = job[2]
    assert checkpoint is not None
    return replace(how, checkpoint_every=checkpoint.run["every"] if every is None else every)


def read_checkpoint(path: Path, step: int, experiment: Experiment) -> Checkpoint:
    """A checkpoint of this experiment, looked at as a whole; BadFileError offers the one before."""
    try:
        return _whole(path, step, experiment)
    except BadFileError as error:
        others = [other for other in reversed(checkpoint_steps(path)) if other != step]
        advice = "no other checkpoint is whole"
        for other in others:
            with suppress(BadFileError):
                _whole(path, other, experiment)
                advice = (
                    f"the checkpoint of step {other:,} is whole: "
                    f"`kalmanac resume {path} --step {other}` goes on from it"
                )
                break
        raise BadFileError(f"{error}; {advice}") from None


def _whole(path: Path, step: int, experiment: Experiment) -> Checkpoint:
    folder = CheckpointFolder(path)
    checkpoint = folder.read(step)
    for name in ("model", "callbacks", "folder", "experiment", "every"):
        if name not in checkpoint.run:
            raise BadFileError(f"checkpoint {step:,}: got none of {name}, expected it")
    if not same_but_for_the_end(checkpoint.run["experiment"], experiment):
        raise BadFileError(f"checkpoint {step:,}: got one of another experiment, expected {path}'s")
    try:
        expect_marks(checkpoint.run["folder"])
    except ValueError as error:
        raise BadFileError(f"checkpoint {step:,}: got a malformed one ({error})") from None
    every = checkpoint.run["every"]
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise BadFileError(f"checkpoint {step:,}: got every {every!r}, expected at least 1")
    folder.check(checkpoint)
    return checkpoint


def _alone(job: Job, how: Execution) -> Outcome:
    (outcome,) = _together([job], [how])
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _together(jobs: Sequence[Job], hows: Sequence[Execution]) -> list[Outcome | Exception]:
    """Run them in lockstep to their ends; NoRoomError where they do not fit into memory."""
    outcomes: dict[int, Outcome | Exception] = {}
    active: dict[int, ActiveRun] = {}

    def end(i: int, error: BaseException | None, interrupted: bool) -> None:
        try:
            outcomes[i] = active[i].end(error, interrupted=interrupted)
        except Exception as failure:
            outcomes[i] = failure

    try:
        _begin(jobs, hows, active, outcomes)
        numbers = list(active)
        loop = TrainingLoop(
            [one.member for one in active.values()],
            lambda number, error, interrupted: end(numbers[number], error, interrupted),
        )
        with threads_restored():
            loop.run()
    except KeyboardInterrupt:  # each run writes that down
        for i in active:
            if i not in outcomes:
                end(i, None, interrupted=True)
        for i, (_, run_folder, checkpoint) in enumerate(jobs):
            step = 0 if checkpoint is None else checkpoint.step
            outcomes.setdefault(i, Outcome("interrupted", run_folder.path, step))
    finally:
        for _, run_folder, _ in jobs:
            run_folder.close()
    return [outcomes[i] for i in range(len(jobs))]


def _begin(
    jobs: Sequence[Job], hows: Sequence[Execution], active: dict[int, ActiveRun],
    outcomes: dict[int, Outcome | Exception],
) -> None:  # fmt: skip
    """Build every run into `active`; the error of one that cannot be built goes into `outcomes`."""
    for i, (job, how) in enumerate(zip(jobs, hows, strict=True)):
        try:
            shown = _showing(how, job[0], i, len(jobs))
            together = len(jobs) if how.together and i == 0 else 0
            threads = active[0].threads if 0 in active else how.threads  # measured once
            active[i] = ActiveRun(*job, replace(shown, together=together, threads=threads))
        except NoRoomError:  # none has begun
            raise
        except Exception as error:
            outcomes[i] = error


def _showing(how: Execution, experiment: Experiment, number: int, runs: int) -> Execution:
    """The first of several runs has the progress bar; all print their evaluations."""
    progress = how.progress
    if progress is None:
        return how
    seed = None if runs == 1 else experiment.seed
    on_evaluation = partial(_say_evaluation, progress, seed)
    on_evaluation_step = partial(progress.evaluating, seed=seed)
    shown = progress if number == 0 else None
    return replace(
        how, progress=shown, on_evaluation=on_evaluation, on_evaluation_step=on_evaluation_step
    )


def _say_evaluation(
    progress: Progress, seed: int | None, step: int, values: dict[str, float]
) -> None:
    whose = "" if seed is None else f"seed {seed}, "
    progress.say(f"{whose}step {step:,}: {evaluation_line(values)}")
