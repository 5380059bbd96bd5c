"""`kalmanac suites`: the paper's experiments, how many runs they are, and how long those take."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from kalmanac._cli.verb import Call, Verb
from kalmanac._lab.experiment import Experiment
from kalmanac._messages import duration
from kalmanac._suites.registry import SUITES
from kalmanac._sweep.plan import Selection, select_runs
from kalmanac._sweep.speeds import SPEEDS, Speeds, measure, read_speeds, write_speeds

PRESETS: tuple[Literal["paper", "quick"], ...] = ("paper", "quick")


class Row(NamedTuple):
    """One suite."""

    name: str
    runs: int
    new: int  # that no suite above has
    hours: float | None  # of these
    summary: str


@dataclass(frozen=True)
class Options:
    """What to list, and whose times."""

    preset: Literal["paper", "quick"] = "paper"
    """quick: two seeds and a few updates of each setting."""
    measure: Path | bool = False
    """Time every kind of run on this machine, a few minutes, and keep it in a file, if named."""
    speeds: Path | None = None
    """Times that --measure has left."""


def list_suites(call: Call) -> int:
    """The verb."""
    options: Options = call.options
    if options.measure is False:
        speeds = read_speeds(options.speeds or SPEEDS)
    else:
        both = (runs for preset in PRESETS for runs in suites(preset).values())
        speeds = measure([run for runs in both for run in runs])
        if isinstance(options.measure, Path):
            write_speeds(options.measure, speeds)
    show(list(rows(suites(options.preset), speeds)), speeds)
    return 0


def suites(preset: Literal["paper", "quick"]) -> dict[str, list[Experiment]]:
    """Return the runs of every suite."""
    selections = {name: Selection([name], preset) for name in SUITES}
    return {name: [run for run, _ in select_runs(of, name)] for name, of in selections.items()}


def rows(experiments: Mapping[str, Sequence[Experiment]], speeds: Speeds) -> Iterator[Row]:
    """Yield rows in order; a run that several suites share counts where it comes first."""
    counted: set[str] = set()
    for name, runs in experiments.items():
        new = [run for run in runs if run.hash not in counted]
        counted |= {run.hash for run in runs}
        yield Row(name, len(runs), len(new), speeds.hours(new), SUITES[name].summary)


def show(entries: Sequence[Row], speeds: Speeds) -> None:
    """Print the table, and what its times are."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("suite", no_wrap=True)
    for name in ("runs", "new", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("what")
    for row in entries:
        table.add_row(row.name, f"{row.runs:,}", f"{row.new:,}", _hours(row.hours), row.summary)
    whole = [row for row in entries if SUITES[row.name].in_all]
    known = [row.hours for row in whole]
    hours = None if any(x is None for x in known) else sum(x for x in known if x is not None)
    runs, new = sum(row.runs for row in whole), sum(row.new for row in whole)
    table.add_row("all", f"{runs:,}", f"{new:,}", _hours(hours), "what kalmanac sweep all runs")
    Console(highlight=False).print(table)
    print(
        "new: runs that no suite above has. time: of these, one after the other; evaluations"
        f" after the training are not in it.\nMeasured with {speeds.measured}"
    )


def _hours(hours: float | None) -> str:
    if hours is None:
        return "?"
    return f"{hours:,.0f} h" if hours >= 10 else duration(3600 * hours)


VERB = Verb(
    list_suites,
    Options,
    "List the paper's experiments with the number of their runs and the hours that they take, one "
    "run at a time.",
)
