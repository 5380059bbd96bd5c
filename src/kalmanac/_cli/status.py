"""`kalmanac status FOLDER`: what of the sweeps in a folder is done, running, failed or waiting."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kalmanac._cli.verb import Call, NoOptions, Verb
from kalmanac._files.run_reader import parts_of_run, why_unreadable
from kalmanac._files.run_status import RunStatus, read_status
from kalmanac._messages import LONGEST_PATH, duration, one_line
from kalmanac._sweep.record import FAILED, RECORD, Entry, Failure, Record

# in the order of the table; "to evaluate": trained, but files for the report are due
ORDER = (
    "finished", "to evaluate", "running", "interrupted", "killed", "failed", "diverged", "waiting",
)  # fmt: skip
COLORS = {"finished": "green", "running": "cyan", "failed": "red", "diverged": "red"}


class State(NamedTuple):
    """One planned run."""

    entry: Entry
    status: str  # one of ORDER
    run: RunStatus | None = None
    error: str = ""


def status(call: Call) -> int:
    """The verb. Exit status 2 where no sweep has been."""
    folder = Path(*call.words or ["runs"])
    record = Record(folder)
    notices: list[str] = []
    planned = record.read_plan(notices)
    if not planned:
        what = "; ".join(["one of `kalmanac sweep`", *notices[:1]])
        raise ValueError(f"folder: got {folder}, expected {what}")
    failures = record.failures()
    show(folder, states(planned, failures, now=time.time()))
    if failures:
        print(f"tracebacks: {folder / RECORD / FAILED}")
    for text in notices:
        print(text)
    return 0


def states(
    planned: Mapping[str, Entry], failures: Mapping[str, Failure], *, now: float
) -> list[State]:
    """Return every planned run as it stands."""
    return [_state(entry, failures.get(run_hash), now=now) for run_hash, entry in planned.items()]


def _state(entry: Entry, failure: Failure | None, *, now: float) -> State:
    if not parts_of_run(entry.folder):
        if failure is not None:
            return State(entry, "failed", error=failure.error)
        return State(entry, "waiting")
    try:
        run = read_status(entry.folder, now=now)
    except Exception as error:  # whatever it is, it is this run's alone
        reason = why_unreadable(error, entry.folder)
        return State(entry, "failed", error=f"its folder cannot be read: {reason}")
    status = "waiting" if run.status == "not begun" else run.status
    if status == "finished" and not all((entry.folder / x).is_file() for x in entry.evaluations):
        status = "to evaluate"
    if failure is not None and status not in ("finished", "running"):
        return State(entry, "failed", run, failure.error)
    return State(entry, status, run)


def show(root: Path, runs: Sequence[State]) -> None:
    """Print a table of suites, the runs under way, and failures."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    counts: dict[str, Counter[str]] = {}
    for state in runs:
        for suite in state.entry.suites:
            counts.setdefault(suite, Counter())[state.status] += 1
    total = Counter(state.status for state in runs)
    columns = [status for status in ORDER if total[status]]
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("suite")
    for name in ("runs", *columns):
        table.add_column(name, justify="right", style=COLORS.get(name, ""))
    for suite, statuses in counts.items():
        cells = (str(statuses[status]) if statuses[status] else "" for status in columns)
        table.add_row(Text(one_line(suite, 40)), str(statuses.total()), *cells)
    if len(counts) > 1:
        cells = (str(total[status]) for status in columns)
        table.add_row(Text("all, each run once", style="bold"), str(len(runs)), *cells)
    console = Console(highlight=False)
    console.print(table)
    place = root.resolve()
    for state in runs:
        name = one_line(state.entry.folder.relative_to(place).as_posix(), LONGEST_PATH)
        if state.status == "running" and state.run is not None:
            left = state.run.seconds_left
            when = "" if left is None else f", {duration(left)} left"
            print(f"running: {name}: step {state.run.step:,} of {state.run.total:,}{when}")
        elif state.error:
            on = state.run.resume if state.run is not None else None
            again = "" if on is None else f" (goes on from step {on:,})"
            print(f"failed: {name}: {state.error}{again}")


VERB = Verb(
    status,
    NoOptions,
    "Of the sweeps in a folder: how many runs of each suite are done, running, failed or waiting, "
    "which are under way, and why runs failed. FOLDER is runs unless it is named.",
    words="[FOLDER]",
    most=1,
)
