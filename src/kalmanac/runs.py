"""`kalmanac runs FOLDER`: the runs below a folder, how far each has come, and what can go on.

Needs neither torch nor the experiments' own code: a thousand runs are listed in a second or two.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kalmanac.agent_names import agent_of
from kalmanac.disk import FolderLock
from kalmanac.json_file import expect_whole
from kalmanac.printable import one_line
from kalmanac.runlog import (
    EXPERIMENT,
    LOCK,
    METRICS,
    SUMMARY,
    TIMING,
    duration,
    parts_of_run,
    read_experiment,
    read_last_timing,
    read_summary,
    refuse_links,
    resumable,
)

ORDER = ("running", "killed", "interrupted", "failed", "diverged", "finished", "not begun")
COLOURS = {"running": "cyan", "finished": "green", "failed": "red", "diverged": "red"}
SILENCE = 600.0  # seconds: a run that has written nothing for longer than this,
ROWS = 10  # and for longer than so many rows take, is not running any more
UNFOLDED = 300  # columns where no terminal says how many there are
LONGEST_NAME = 4096  # characters of a path


@dataclass(frozen=True)
class Run:
    """One line of the table."""

    path: Path
    task: str
    agent: str
    seed: int
    status: str  # one of ORDER
    step: int
    total: int
    last: float | None  # normalised return of the last evaluation
    best: float | None
    speed: float | None  # environment steps a second
    resume: int | None  # the step that it could go on from

    @property
    def seconds_left(self) -> float | None:
        """At the present speed; None where nothing runs."""
        if self.status != "running" or not self.speed:
            return None
        return max(self.total - self.step, 0) / self.speed


def main(argv: Sequence[str]) -> int:
    """The verb. Exit status 2 where there is no such folder, 1 where runs cannot be read."""
    parser = argparse.ArgumentParser(
        prog="kalmanac runs",
        description="List the runs below a folder: status, steps, last and best return, speed, "
        "time left, and which of them can be resumed.",
    )
    parser.add_argument(
        "folder", type=Path, nargs="?", default=Path("runs"), metavar="FOLDER",
        help="default: %(default)s",
    )  # fmt: skip
    options = parser.parse_args(argv)
    if not options.folder.is_dir():
        print(f"kalmanac runs: folder: got {options.folder}, expected a folder", file=sys.stderr)
        return 2
    found, broken = find_runs(options.folder, now=time.time())
    show(options.folder, found)
    for path, reason in broken:
        print(f"kalmanac runs: cannot read {one_line(path, LONGEST_NAME)}: {reason}",
              file=sys.stderr)  # fmt: skip
    return 1 if broken else 0


def find_runs(folder: Path, *, now: float) -> tuple[list[Run], list[tuple[Path, str]]]:
    """Every run at or below `folder`, in the table's order, and those that cannot be read."""
    runs: list[Run] = []
    broken: list[tuple[Path, str]] = []
    for path in walk(folder):
        try:
            runs.append(read_run(path, now=now))
        except Exception as error:  # whatever it is, it is this run's alone
            broken.append((path, why(error, path)))
    runs.sort(key=lambda run: (ORDER.index(run.status), run.task, run.agent, run.seed, run.path))
    return runs, broken


def walk(folder: Path) -> Iterator[Path]:
    """Run folders, and folders that hold a run's files but not what was run; none inside a run."""
    if parts_of_run(folder):
        yield folder
        return
    try:
        inside = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:  # not ours to read
        return
    for entry in inside:
        if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
            yield from walk(Path(entry.path))


def read_run(path: Path, *, now: float) -> Run:
    """One run; an error where its files are not a run's."""
    refuse_links(path)
    told, summary = read_experiment(path), read_summary(path)
    for name in ("seed", "log_every", "total_steps"):
        expect_whole(f"{EXPERIMENT}: {name}", told[name])
    place = f"eval/{told['evaluations'][0]}/normalized"
    timing = read_last_timing(path) or {}
    status = summary.get("status", "not begun")
    if status not in ORDER:
        raise ValueError(f"status: got {status!r}, expected one of {', '.join(ORDER)}")
    speed = timing.get("time/fps")
    row = told["log_every"] / speed if speed else 0.0  # seconds
    if status == "running" and not is_written(path, row, now=now):
        status = "killed"
    return Run(
        path=path,
        task=str(told["env"]),
        agent=agent_of(str(told["encoder"]), bool(told["privileged"])),
        seed=told["seed"],
        status=status,
        step=max(summary.get("step", 0), int(timing.get("step") or 0)),
        total=told["total_steps"],
        last=(summary.get("last") or {}).get(place),
        best=(summary.get("best") or {}).get(place),
        speed=speed,
        resume=None if status in ("running", "finished") else resumable(path),
    )


def why(error: Exception, path: Path) -> str:
    """In one line, why the run in `path` cannot be read."""
    if isinstance(error, OSError | ValueError):
        return one_line(str(error).replace(f"{path}{os.sep}", ""))
    what = f"no {error}" if isinstance(error, KeyError) else f"{type(error).__name__}: {error}"
    return one_line(f"not the files of a run ({what})")


def is_written(path: Path, row: float, *, now: float) -> bool:
    """Whether a process still works on the run.

    The lock says so where it was taken on this machine. Elsewhere, a run lives that has written
    something within `SILENCE`, or within the time of a few rows.
    """
    lock = FolderLock(path / LOCK)
    owner = lock.owner()
    if owner is not None and owner.here:
        return lock.held()
    return now - last_sign(path) <= max(SILENCE, ROWS * row)


def last_sign(path: Path) -> float:
    """When the run last wrote anything, in seconds since 1970."""
    files = (path / name for name in (METRICS, TIMING, SUMMARY, EXPERIMENT))
    return max(file.stat().st_mtime for file in files if file.is_file())


def show(folder: Path, runs: Sequence[Run]) -> None:
    """The table, without columns that are empty everywhere, and one line that counts."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not runs:
        print(f"no runs in {folder}; `kalmanac train` makes one")
        return
    columns = {
        "status": [Text(run.status, style=COLOURS.get(run.status, "yellow")) for run in runs],
        "steps": [f"{run.step:,}" for run in runs],
        "done": [f"{run.step / max(run.total, 1):.0%}" for run in runs],
        "last": [number(run.last) for run in runs],
        "best": [number(run.best) for run in runs],
        "steps/s": [speed(run.speed) for run in runs],
        "left": ["" if run.seconds_left is None else duration(run.seconds_left) for run in runs],
        "resume from": ["" if run.resume is None else f"{run.resume:,}" for run in runs],
    }
    columns = {name: cells for name, cells in columns.items() if any(cells)}
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("run", overflow="fold", min_width=20)
    for name in columns:
        table.add_column(name, justify="left" if name == "status" else "right", no_wrap=True)
    for run, *cells in zip(runs, *columns.values(), strict=True):
        place = folder if run.path == folder else run.path.relative_to(folder)
        table.add_row(Text(one_line(place, LONGEST_NAME)), *cells)
    wide = None if sys.stdout.isatty() else UNFOLDED
    Console(highlight=False, width=wide).print(table)
    counts = {name: sum(run.status == name for run in runs) for name in ORDER}
    told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    print(f"{len(runs)} run{'s' * (len(runs) != 1)}: {told}")


def number(value: float | None) -> str:
    """Three digits, or nothing."""
    return "" if value is None else f"{value:.3g}"


def speed(value: float | None) -> str:
    """Whole steps a second, or nothing."""
    return f"{value:,.0f}" if value is not None and abs(value) < 1e9 else number(value)
