"""How long runs take: a training of each agent in a family of tasks, timed for a moment.

speeds.json holds the times that come with the package, and where they were measured.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import torch

from kalmanac._files.durable import write_whole
from kalmanac._installation import cpu_model
from kalmanac._lab.experiment import Experiment
from kalmanac._lab.resources import estimate
from kalmanac._ops.device import gpus

SPEEDS = Path(__file__).parent / "speeds.json"


class Speeds(NamedTuple):
    """Seconds of one run, by what decides them, and with what they were measured."""

    measured: str
    seconds: Mapping[str, float]

    def hours(self, experiments: Sequence[Experiment]) -> float | None:
        """Sum the hours of all of them, one after the other; None where one was not measured."""
        keys = [key_of(experiment) for experiment in experiments]
        if any(key not in self.seconds for key in keys):
            return None
        return sum(self.seconds[key] for key in keys) / 3600


def key_of(experiment: Experiment) -> str:
    """Name what decides how long a run takes, but for the task within its family."""
    family = experiment.env.partition("/")[0]
    settings = json.dumps(dict(experiment.encoder_settings), sort_keys=True)
    label = f" {experiment.label}" if experiment.label else ""
    return f"{family}{label} {experiment.agent} {settings}"


def measure(experiments: Sequence[Experiment]) -> Speeds:
    """Time one of each kind, twice for about half a second."""
    kinds = {key_of(experiment): experiment for experiment in reversed(experiments)}
    seconds = {}
    for number, (key, experiment) in enumerate(sorted(kinds.items()), 1):
        # the shorter of two: other work on the machine can only make it longer
        shortest = min(estimate(experiment, seconds=0.2).seconds for _ in range(2))
        seconds[key] = round(shortest, 1)
        print(f"{number}/{len(kinds)} {key}: {seconds[key]:,.0f} s", file=sys.stderr, flush=True)
    cards = gpus()
    device = cards[0].name if cards else f"{os.cpu_count()} cores, {cpu_model()}"
    measured = (
        f"{device}, one run at a time with {_threads(torch.get_num_threads())}, torch "
        f"{torch.__version__}, {datetime.now(UTC):%Y-%m-%d}; one task of each family, timed for a "
        "moment"
    )
    return Speeds(measured, seconds)


def read_speeds(file: Path) -> Speeds:
    """Read the file that `write_speeds` has left."""
    try:
        data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return Speeds(str(data["measured"]), dict(data["seconds"]))
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"speeds: got {file}, expected a file of `--measure`") from None


def write_speeds(file: Path, speeds: Speeds) -> None:
    """Write the times as JSON."""
    write_whole(file, (json.dumps(speeds._asdict(), indent=1) + "\n").encode())


def _threads(number: int) -> str:
    return f"{number} thread{'s' * (number != 1)}"
