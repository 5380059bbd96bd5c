"""A run from its description to its folder. The training loop itself is `RecurrentSAC.advance`."""

import os
from pathlib import Path
from typing import NamedTuple

from kalmanac.experiment.building import make_model, training_environment
from kalmanac.experiment.description import Experiment
from kalmanac.experiment.progress import Progress
from kalmanac.experiment.recording import Recorder
from kalmanac.runlog import RunFolder, read_summary
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
) -> Outcome:
    """Train, evaluate and record. A run that Ctrl-C ends leaves its last model too.

    Args:
        folder: must not hold a run, or, with `overwrite`, only one of the same experiment.
        device: "auto" takes a GPU where there is one.
        progress: shows how the run gets on; None is silent.
        events: also write TensorBoard events.
    """
    env = training_environment(experiment)
    model = make_model(experiment, env, device)
    told = None if progress is None else progress.evaluated
    with RunFolder(folder, experiment.to_data(), overwrite=overwrite, events=events) as written:
        recorder = Recorder(experiment, written, told)
        watching: list[Callback] = [recorder, *([] if progress is None else [progress])]
        status = "failed"
        try:
            model.learn(experiment.total_steps, callback=watching)
            status = "diverged" if recorder.diverged else "finished"
        except KeyboardInterrupt:
            status = "interrupted"
        finally:
            if progress is not None:
                progress.stop()
            recorder.finish(model, status)
            recorder.close()
            env.close()
    return Outcome(status, Path(folder), int(read_summary(folder)["step"]))
