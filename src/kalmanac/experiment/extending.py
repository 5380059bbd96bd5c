"""Where a run that was left goes on, and another end for it.

A run's end decides nothing of what comes before it, so a checkpoint is one of the experiment with
any `total_steps`. A run that is given another end is from then on the experiment with that end:
experiment.json says so, and with it all that reads a run's settings or their hash.
"""

from pathlib import Path
from typing import Any, NamedTuple

from kalmanac.experiment.description import Experiment
from kalmanac.run_folder import FolderTakenError
from kalmanac.run_reader import checkpoint_steps, read_summary


class WayOn(NamedTuple):
    """What is run from now on, and the checkpoint that it goes on from."""

    experiment: Experiment
    step: int


def way_on(
    path: Path, experiment: Experiment, step: int | None = None, total_steps: int | None = None
) -> WayOn:
    """How the run in `path` goes on; ValueError where it cannot.

    Args:
        experiment: what its experiment.json says.
        step: of the checkpoint; None is the newest.
        total_steps: another end for the run; a finished one needs it.
    """
    finished = read_summary(path).get("status") == "finished"
    if finished and total_steps is None:
        raise FolderTakenError(
            f"run: got {path}, which is finished, expected one that was stopped, or more steps for "
            f"it: `kalmanac resume {path} --steps N` with N above {experiment.total_steps:,}"
        )
    if not (steps := checkpoint_steps(path)):
        told = "is finished and kept no checkpoint" if finished else "has no checkpoint"
        raise ValueError(f"run: got {path}, which {told}, expected one to go on from")
    step = steps[-1] if step is None else step
    if total_steps is not None:
        if total_steps <= step:
            raise ValueError(
                f"total_steps: got {total_steps:,}, expected more than the {step:,} of its "
                "checkpoint"
            )
        experiment = experiment.changed({"total_steps": total_steps})
    return WayOn(experiment, step)


def same_but_for_the_end(data: Any, experiment: Experiment) -> bool:
    """Whether data describe this experiment, wherever they end.

    Settings that came later have there what runs did before.
    """
    try:
        return Experiment.from_data(data | {"total_steps": experiment.total_steps}) == experiment
    except (TypeError, ValueError):
        return False
