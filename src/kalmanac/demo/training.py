"""One agent of the demo: trained, unless its folder holds the very run already."""

from pathlib import Path
from typing import NamedTuple

from kalmanac.experiment import Experiment, run
from kalmanac.run_reader import is_run, read_summary
from kalmanac.sac import Progress


class Trained(NamedTuple):
    """A run: "finished" (now or earlier), "interrupted" or "diverged"."""

    experiment: Experiment
    place: Path
    status: str


def train(experiment: Experiment, folder: Path) -> Trained:
    """Train, unless the folder holds this very run and it is finished."""
    place = folder / f"{experiment.env}-{experiment.agent}-{experiment.hash}"
    task = f"{experiment.label} {experiment.env}".strip()
    name = f"{experiment.agent} ({task}, seed {experiment.seed})"
    if is_run(place) and read_summary(place).get("status") == "finished":
        print(f"{name}: trained already, {place}", flush=True)
        return Trained(experiment, place, "finished")
    print(f"{name}: {experiment.total_steps:,} steps", flush=True)
    bar = Progress(experiment.total_steps)
    outcome = run(experiment, place, device="cpu", progress=bar, overwrite=True)
    return Trained(experiment, place, outcome.status)
