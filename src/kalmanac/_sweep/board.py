"""How a sweep is getting on: bars on a terminal, a line for each run that ends elsewhere.

All of it is read from the run folders, so that it is the same for every kind of executor.
"""

import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TextIO

from kalmanac._bars import Bars
from kalmanac._files.run_reader import Row, read_last_timing, read_summary
from kalmanac._messages import duration
from kalmanac._sweep.plan import Planned, Work
from kalmanac._sweep.work import Done

EVERY = 1.0  # seconds between two looks into the folders
SHOWN = 16  # runs under way that a terminal shows


class Board:
    """Shows `total` runs, of which `before` are done already.

    Args:
        root: the sweep's folder; runs are named by their place in it.
        stream: where to write; None is standard output.
    """

    def __init__(self, root: Path, total: int, before: int, stream: TextIO | None = None) -> None:
        self.root, self.total, self.done = root.resolve(), total, before
        self.stream = sys.stdout if stream is None else stream
        self._bars = Bars(self.stream, counts=True)
        self._all = 0
        self._each: dict[Path, int] = {}
        self._began: dict[Path, float] = {}
        self._start, self._before = time.monotonic(), before
        self._next_look = 0.0

    def __enter__(self) -> "Board":
        self._all = self._bars.add(self.total, "all runs", done=self.done)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for bar in self._each.values():
            self._bars.remove(bar)
        self._bars.stop()

    def began(self, work: Work) -> None:
        """Add a bar for each run."""
        for planned in work:
            self._began[planned.folder] = time.monotonic()
            self._each[planned.folder] = self._bars.add(
                planned.experiment.total_steps, self._name(planned), visible=len(self._each) < SHOWN
            )

    def ended(self, done: Done) -> None:
        """Print a line for each run."""
        for planned, ended in zip(done.work, done.ended, strict=True):
            self.done += ended.status in ("finished", "diverged")
            seconds = time.monotonic() - self._began.pop(planned.folder)
            label = f" ({planned.experiment.label})" if planned.experiment.label else ""
            why = f": {ended.error}" if ended.error else _result(planned)
            self._bars.say(
                f"{self.done}/{self.total} {self._name(planned)}{label} {ended.status} "
                f"after {duration(seconds)}{why}"
            )
            self._bars.remove(self._each.pop(planned.folder))
        self._bars.update(self._all, completed=self.done, figures=self._left())

    def look(self) -> None:
        """Show how far the runs have come, where it is time and somebody sees it."""
        now = time.monotonic()
        if not self._bars.shown or now < self._next_look:
            return
        self._next_look = now + EVERY
        for folder, bar in self._each.items():
            row: Row = {}
            with suppress(OSError, ValueError):  # the run itself says what is amiss
                row = read_last_timing(folder) or {}
            figures = f"{row['time/fps']:,.0f} steps/s" if row.get("time/fps") else ""
            self._bars.update(bar, completed=row.get("step", 0), figures=figures)

    def _name(self, planned: Planned) -> str:
        return planned.folder.relative_to(self.root).as_posix()

    def _left(self) -> str:
        ended = self.done - self._before
        if not ended:
            return ""
        seconds = (time.monotonic() - self._start) / ended * (self.total - self.done)
        return f"about {duration(seconds)} left"


def _result(planned: Planned) -> str:
    """Return the last score in the evaluation that chooses the best model."""
    last = read_summary(planned.folder).get("last") or {}
    value = last.get(f"eval/{planned.experiment.evaluations[0]}/normalized")
    return "" if value is None else f", last {value:.3g}"
