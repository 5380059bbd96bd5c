"""`kalmanac runs FOLDER`: the runs below a folder, how far each has come, and what can go on."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from kalmanac._cli.verb import Call, NoOptions, Verb
from kalmanac._files.run_status import ORDER, RunStatus, find_runs
from kalmanac._messages import LONGEST_PATH, duration, one_line

COLORS = {"running": "cyan", "finished": "green", "failed": "red", "diverged": "red"}
UNFOLDED = 300  # columns where no terminal says how many there are


def list_runs(call: Call) -> int:
    """The verb. Exit status 2 where there is no such folder, 1 where runs cannot be read."""
    folder = Path(*call.words or ["runs"])
    if not folder.is_dir():
        raise ValueError(f"folder: got {folder}, expected a folder")
    runs, broken = find_runs(folder, now=time.time())
    show(folder, runs)
    for path, reason in broken:
        print(f"kalmanac runs: cannot read {one_line(path, LONGEST_PATH)}: {reason}",
              file=sys.stderr)  # fmt: skip
    return 1 if broken else 0


def show(folder: Path, runs: Sequence[RunStatus]) -> None:
    """Print the table, without columns that are empty everywhere, and one line that counts."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not runs:
        print(f"no runs in {folder}; `kalmanac train` makes one")
        return
    columns = {
        "status": [Text(run.status, style=COLORS.get(run.status, "yellow")) for run in runs],
        "steps": [f"{run.step:,}" for run in runs],
        # a vector step may go beyond
        "done": [f"{min(run.step / max(run.total, 1), 1):.0%}" for run in runs],
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
        table.add_row(Text(one_line(place, LONGEST_PATH)), *cells)
    wide = None if sys.stdout.isatty() else UNFOLDED
    Console(highlight=False, width=wide).print(table)
    counts = {name: sum(run.status == name for run in runs) for name in ORDER}
    totals = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    print(f"{len(runs)} run{'s' * (len(runs) != 1)}: {totals}")


def number(value: float | None) -> str:
    """Three digits, or nothing."""
    return "" if value is None else f"{value:.3g}"


def speed(value: float | None) -> str:
    """Whole steps a second, or nothing."""
    return f"{value:,.0f}" if value is not None and abs(value) < 1e9 else number(value)


VERB = Verb(
    list_runs,
    NoOptions,
    "List the runs below a folder: status, steps, last and best return, speed, time left, and "
    "which of them can be resumed. FOLDER is runs unless it is named.",
    words="[FOLDER]",
    most=1,
)
