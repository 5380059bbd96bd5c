"""The results of the reproduction: which small runs are kept, and what is refused."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kalmanac._files.run_reader import is_run, read_summary
from paper_cells import Cell
from small_runs import DONE, SmallRun, played, read_small, write

CALLS, SPEEDS = "calls.jsonl", "speeds.json"


@dataclass(frozen=True)
class Speeds:
    """Updates a second by kind of task, all runs together, and how many runs that takes."""

    rates: dict[str, float]
    runs_that_fill_it: int

    def seconds(self, cell: Cell) -> float:
        """Of all of a GPU that a whole cell takes."""
        return cell.updates / self.rates[cell.kind]


def read_speeds(results: Path) -> Speeds:
    """As they were measured."""
    told = json.loads((results / SPEEDS).read_text())
    return Speeds(dict(told["updates_per_second"]), told["runs_that_fill_it"])


class Results:
    """The folder of all small runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def place(self, cell: Cell, seed: int | None = None) -> Path:
        """Where a cell's run lies, or that of another of its seeds."""
        number = cell.experiment.seed if seed is None else seed
        return self.folder / cell.suite / f"{cell.what}-seed{number}"

    def run(self, cell: Cell) -> SmallRun | None:
        """What there is of a cell."""
        place = self.place(cell)
        return read_small(place) if is_run(place) else None

    def finished(self, cell: Cell) -> bool:
        """Whether nothing is left to do for it."""
        place = self.place(cell)
        return is_run(place) and read_summary(place)["status"] in DONE

    def take(self, cell: Cell, run: SmallRun) -> bool:
        """Keep it, unless it is there already; ValueError for what must not be kept."""
        there, seed = self.run(cell), cell.experiment.seed
        if run.status == "finished" and run.step < cell.experiment.total_steps:
            raise ValueError(f"{run.source}: got {run.step:,} steps, expected a whole run")
        if not run.rows:
            raise ValueError(f"{run.source}: got no evaluation, expected one at least")
        if seed > 0 and not is_run(self.place(cell, seed - 1)):
            raise ValueError(f"{run.source}: got seed {seed}, expected seed {seed - 1} first")
        if there is not None and not self._is_news(there, run):
            return False
        write(run, self.place(cell))
        return True

    def _is_news(self, there: SmallRun, run: SmallRun) -> bool:
        """Whether it has more than what is there; ValueError beside a finished run for another."""
        if not there.done:
            return run.done or run.step > there.step
        if not run.done or run.rows != there.rows:
            told = "another one" if run.done else f"{run.status}, step {run.step:,}"
            raise ValueError(f"{run.source}: got {told}, expected none: {there.source} is finished")
        have = {file.name for file in played(there)}
        return any(file.name not in have for file in played(run))

    def note_call(self, call: Mapping[str, Any]) -> None:
        """Remember for how long a GPU was held, and for which runs."""
        with (self.folder / CALLS).open("a") as file:
            file.write(json.dumps(call) + "\n")

    def calls(self) -> list[dict[str, Any]]:
        """All that were noted."""
        file = self.folder / CALLS
        return list(map(json.loads, file.read_text().splitlines())) if file.is_file() else []
