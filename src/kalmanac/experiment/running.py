"""A run from its description to its folder. The training loop itself is `RecurrentSAC.advance`."""

import os
from contextlib import closing
from pathlib import Path
from typing import Literal, NamedTuple

from kalmanac.envs.workers import TIMEOUT
from kalmanac.experiment.building import make_model, training_environment
from kalmanac.experiment.description import Experiment
from kalmanac.experiment.progress import Progress
from kalmanac.experiment.recording import Recorder
from kalmanac.runlog import RunFolder
from kalmanac.sac import Callback


class Outcome(NamedTuple):
    """How a run ended: "finished", "interrupted" (Ctrl-C) or "diverged", and where it lies."""

    status: str
    folder: Path
    step: int


def run(
    experiment: Experiment,
    folder: str | os.PathLike[str],
    *,
    device: str = "auto",
    progress: Progress | None = None,
    overwrite: bool = False,
    events: bool = True,
    workers: int | Literal["auto"] = 0,
    worker_timeout: float = TIMEOUT,
) -> Outcome:
    """Train, evaluate and record. A run that Ctrl-C ends leaves its last model too.

    The folder is made, or cleared, only when all that the run needs has been built.

    Args:
        folder: must not hold a run, or, with `overwrite`, only one of the same experiment.
        device: "auto" takes a GPU where there is one.
        progress: shows how the run gets on; None is silent.
        events: also write TensorBoard events.
        workers: processes that step the training environments, 0 for this one; "auto" decides by
            the environment and the cores. The results are the same.
        worker_timeout: seconds until one that does not answer counts as hanging.
    """
    told = None if progress is None else progress.evaluated
    written = RunFolder(folder, experiment.to_data(), overwrite=overwrite, events=events)
    training = training_environment(experiment, workers=workers, timeout=worker_timeout)
    with closing(training) as env:
        model = make_model(experiment, env, device)
        with closing(Recorder(experiment, written, told)) as recorder, written:
            watching: list[Callback] = [recorder, *([] if progress is None else [progress])]
            status = "failed"
            try:
                model.learn(experiment.total_steps, callback=watching)
                status = "finished"
            except KeyboardInterrupt:
                status = "interrupted"
            except ValueError:  # as an action that is no number is refused
                if not recorder.diverged:
                    raise
            finally:
                if progress is not None:
                    progress.stop()
                if recorder.diverged:
                    status = "diverged"
                recorder.finish(model, status)
    return Outcome(status, Path(folder), model.num_timesteps)
