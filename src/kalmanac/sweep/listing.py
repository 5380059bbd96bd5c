"""`kalmanac suites`: the paper's experiments, how many runs they are, and how long those take.

Times come from measured ones: a training of each agent in a family of tasks was timed for a moment
(`kalmanac.experiment.estimate`). speeds.json holds those that come with the package, and where they
were measured; `--measure` times all of them here.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from kalmanac.experiment import Experiment, estimate
from kalmanac.runlog import duration
from kalmanac.suites import SUITES
from kalmanac.sweep.plan import Selection, chosen

PRESETS: tuple[Literal["paper", "quick"], ...] = ("paper", "quick")
SPEEDS = Path(__file__).parent / "speeds.json"


class Speeds(NamedTuple):
    """Seconds of one run, by what decides them, and with what they were measured."""

    measured: str
    seconds: Mapping[str, float]

    def hours(self, experiments: Sequence[Experiment]) -> float | None:
        """Of all of them on one job after the other; None where one was not measured."""
        keys = [key_of(experiment) for experiment in experiments]
        if any(key not in self.seconds for key in keys):
            return None
        return sum(self.seconds[key] for key in keys) / 3600


class Row(NamedTuple):
    """One suite."""

    name: str
    runs: int
    new: int  # that no suite above has
    hours: float | None  # of these
    summary: str


def main(argv: Sequence[str]) -> int:
    """The verb."""
    parser = argparse.ArgumentParser(
        prog="kalmanac suites",
        description="List the paper's experiments with the number of their runs and the hours that "
        "they take, one run at a time.",
    )
    parser.add_argument("--preset", choices=PRESETS, default="paper")
    parser.add_argument(
        "--measure", metavar="FILE", type=Path, nargs="?", const=Path(),
        help="time every kind of run on this machine, a few minutes, and keep it in FILE",
    )  # fmt: skip
    parser.add_argument("--speeds", metavar="FILE", type=Path, help="times that --measure has left")
    options = parser.parse_args(argv)
    try:
        if options.measure is None:
            speeds = read_speeds(options.speeds or SPEEDS)
        else:
            both = (runs for preset in PRESETS for runs in suites(preset).values())
            speeds = measure([run for runs in both for run in runs])
            if options.measure != Path():
                write_speeds(options.measure, speeds)
    except (OSError, ValueError) as error:
        print(f"kalmanac suites: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    show(list(rows(suites(options.preset), speeds)), speeds)
    return 0


def suites(preset: Literal["paper", "quick"]) -> dict[str, list[Experiment]]:
    """The runs of every suite."""
    return {name: [run for run, _ in chosen(Selection([name], preset), name)] for name in SUITES}


def rows(experiments: Mapping[str, Sequence[Experiment]], speeds: Speeds) -> Iterator[Row]:
    """In the table's order; runs that several suites share count where they come first."""
    seen: set[str] = set()
    for name, runs in experiments.items():
        new = [run for run in runs if run.hash not in seen]
        seen |= {run.hash for run in runs}
        yield Row(name, len(runs), len(new), speeds.hours(new), SUITES[name].summary)


def key_of(experiment: Experiment) -> str:
    """What decides how long a run takes, but for the task within its family."""
    family = experiment.env.partition("/")[0]
    settings = json.dumps(dict(experiment.encoder_settings), sort_keys=True)
    label = f" {experiment.label}" if experiment.label else ""
    return f"{family}{label} {experiment.agent} {settings}"


def measure(experiments: Sequence[Experiment]) -> Speeds:
    """Time one of each kind, twice for about half a second."""
    import torch

    from kalmanac.ops.device import gpus

    kinds = {key_of(experiment): experiment for experiment in reversed(experiments)}
    seconds = {}
    for number, (key, experiment) in enumerate(sorted(kinds.items()), 1):
        # the shorter of two: other work on the machine can only make it longer
        found = min(estimate(experiment, seconds=0.2).seconds for _ in range(2))
        seconds[key] = round(found, 1)
        print(f"{number}/{len(kinds)} {key}: {seconds[key]:,.0f} s", file=sys.stderr, flush=True)
    cards = gpus()
    device = cards[0].name if cards else _processor()
    told = (
        f"{device}, one run at a time with {_threads(torch.get_num_threads())}, torch "
        f"{torch.__version__}, {datetime.now(UTC):%Y-%m-%d}; one task of each family, timed for a "
        "moment"
    )
    return Speeds(told, seconds)


def read_speeds(file: Path) -> Speeds:
    """As `write_speeds` left them."""
    try:
        told: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return Speeds(str(told["measured"]), dict(told["seconds"]))
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"speeds: got {file}, expected a file of `--measure`") from None


def write_speeds(file: Path, speeds: Speeds) -> None:
    """As JSON."""
    file.write_text(json.dumps(speeds._asdict(), indent=1) + "\n", encoding="utf-8")


def show(found: Sequence[Row], speeds: Speeds) -> None:
    """The table, and what its times are."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("suite", no_wrap=True)
    for name in ("runs", "new", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("what")
    for row in found:
        table.add_row(row.name, f"{row.runs:,}", f"{row.new:,}", _hours(row.hours), row.summary)
    known = [row.hours for row in found]
    hours = None if any(x is None for x in known) else sum(x for x in known if x is not None)
    new = sum(row.new for row in found)
    table.add_row("all", f"{sum(row.runs for row in found):,}", f"{new:,}", _hours(hours), "")
    Console(highlight=False).print(table)
    print(
        "new: runs that no suite above has. time: of these, one after the other; evaluations"
        f" after the training are not in it.\nMeasured with {speeds.measured}"
    )


def _hours(hours: float | None) -> str:
    if hours is None:
        return "?"
    return f"{hours:,.0f} h" if hours >= 10 else duration(3600 * hours)


def _threads(number: int) -> str:
    return f"{number} thread{'s' * (number != 1)}"


def _processor() -> str:
    """As the kernel names it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{os.cpu_count()} cores, {name}"
