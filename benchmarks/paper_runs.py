"""Runs of the reproduction as small run folders: what is kept of them, and what is refused."""

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kalmanac._files.run_reader import (
    EVALUATIONS,
    EXPERIMENT,
    METRICS,
    PROVENANCE,
    SUMMARY,
    TIMING,
    is_run,
    read_experiment,
    read_metrics,
    read_provenance,
    read_summary,
    read_timing,
)
from learning import read as read_folder
from learning import rounded
from paper_cells import Cell

CALLS, SPEEDS = "calls.jsonl", "speeds.json"
DONE = ("finished", "diverged")
KEPT = (
    "step", "train/updates", "train/entropy", "train/q_mean", "train/critic_loss",
    "train/gain_mean", "train/posterior_variance_mean",
)  # fmt: skip


@dataclass(frozen=True)
class SmallRun:
    """One run, without its models."""

    source: Path
    experiment: Mapping[str, Any]
    status: str
    step: int
    clock: Sequence[Mapping[str, Any]]
    rows: Sequence[Mapping[str, Any]]
    provenance: Mapping[str, Any]

    @property
    def done(self) -> bool:
        """Whether it came to its end; one that diverged did."""
        return self.status in DONE

    @property
    def seconds(self) -> float:
        """On its clock, beside other runs."""
        return float(self.clock[-1]["time/elapsed"]) if self.clock else 0.0

    @property
    def updates(self) -> int:
        """Made when it was last evaluated."""
        return int(self.rows[-1].get("train/updates", 0)) if self.rows else 0


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


def sources(paths: Iterable[Path]) -> Iterator[Path]:
    """Run folders and files of `learning.py`, in these places and below."""
    for path in paths:
        if path.is_file() or is_run(path):
            yield path
        elif path.is_dir():
            yield from sources(sorted(x for x in path.iterdir() if x.is_dir() or is_small(x)))
        else:
            raise ValueError(f"run: got {path}, expected a run folder or a file")


def is_small(path: Path) -> bool:
    """Whether a file may be one that `learning.py` left."""
    return path.suffix == ".jsonl"


def read(source: Path) -> SmallRun:
    """A run folder, or the file that `learning.py` made of one."""
    try:
        if source.is_dir():
            found = read_folder(source)
            first, rows = {**found, **found["summary"]}, found["rows"]
        else:
            first, *rows = map(json.loads, source.read_text().splitlines())
        return SmallRun(
            source, first["experiment"], first["status"], first["step"], first["clock"],
            [kept(row) for row in rows], first.get("provenance", {}),
        )  # fmt: skip
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{source}: got what is no run, or none yet: {error!r}") from None


def kept(row: Mapping[str, Any]) -> dict[str, Any]:
    """Of an evaluation's row, what was evaluated; of shares of actions, time-outs in Best Arm."""
    told = {
        key: value
        for key, value in row.items()
        if key in KEPT
        or key.endswith("/last_action_0")
        or (key.startswith("eval/") and "action_" not in key)
    }
    return rounded(told)


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
        if not is_run(place):
            return None
        found = read_summary(place)
        return SmallRun(
            place, read_experiment(place), found["status"], found["step"], read_timing(place),
            read_metrics(place), read_provenance(place),
        )  # fmt: skip

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
        self._write(self.place(cell), run)
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

    def _write(self, place: Path, run: SmallRun) -> None:
        place.mkdir(parents=True, exist_ok=True)
        _write_json(place / EXPERIMENT, run.experiment)
        _write_json(place / SUMMARY, {"status": run.status, "step": run.step})
        _write_json(place / PROVENANCE, run.provenance)
        _write_rows(place / METRICS, run.rows)
        _write_rows(place / TIMING, [rounded(row) for row in run.clock])
        for file in played(run):
            (place / EVALUATIONS).mkdir(exist_ok=True)
            shutil.copyfile(file, place / EVALUATIONS / file.name)

    def note_call(self, call: Mapping[str, Any]) -> None:
        """Remember for how long a GPU was held, and for which runs."""
        with (self.folder / CALLS).open("a") as file:
            file.write(json.dumps(call) + "\n")

    def calls(self) -> list[dict[str, Any]]:
        """All that were noted."""
        file = self.folder / CALLS
        return list(map(json.loads, file.read_text().splitlines())) if file.is_file() else []


def played(run: SmallRun) -> list[Path]:
    """Files of what was played after a run: heat maps, and episodes of the first seed alone.

    A report draws one episode of an agent, and every step of it takes 1.5 kB.
    """
    files = sorted((run.source / EVALUATIONS).glob("*")) if run.source.is_dir() else []
    return [file for file in files if file.suffix == ".json" or run.experiment["seed"] == 0]


def _write_json(file: Path, content: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n")


def _write_rows(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
