"""How far a training is: a bar on a terminal, plain lines into files and pipes."""

import sys
import time
from typing import TYPE_CHECKING, Any, TextIO

from kalmanac.rollout import Episode
from kalmanac.sac.callbacks import Callback
from kalmanac.sac.recent import RecentEpisodes

if TYPE_CHECKING:
    from kalmanac.sac.recurrent_sac import RecurrentSAC


class ProgressBar(Callback):
    """Steps done of `total`, steps per second, and means over the last 100 training episodes.

    Episodes of the warm-up leave the means once learning has begun.

    Args:
        total: environment steps of this training.
        every: environment steps between two plain lines.
        stream: where to write; None is standard error.
    """

    def __init__(self, total: int, *, every: int = 1000, stream: TextIO | None = None) -> None:
        self.total, self.every = total, every
        self.stream = sys.stderr if stream is None else stream
        self._recent = RecentEpisodes()
        self._bar: Any = None
        self._task: Any = None
        self._began, self._first, self._next = 0.0, 0, 0

    def on_start(self, model: "RecurrentSAC") -> None:
        """Draw the empty bar, where one can be drawn."""
        self._began, self._first = time.perf_counter(), model.num_timesteps
        self._next = self.every
        if self.stream.isatty():
            self._bar = _rich_bar(self.stream)
        if self._bar is not None:
            self._task = self._bar.add_task("", total=self.total, figures="")
            self._bar.start()

    def on_episode(self, model: "RecurrentSAC", episode: Episode) -> None:
        """Keep it for the means."""
        self._recent.add(model, episode)

    def on_step(self, model: "RecurrentSAC") -> None:
        """Move the bar, or write a line if it is time."""
        done = model.num_timesteps - self._first
        if self._bar is not None:
            self._bar.update(self._task, completed=done, figures=self._figures(done))
        elif done >= self._next:
            self._next = (done // self.every + 1) * self.every
            self._line(done)

    def on_end(self, model: "RecurrentSAC") -> None:
        """Leave the bar as it is."""
        if self._bar is not None:
            self._bar.stop()

    def _line(self, done: int) -> None:
        print(f"{done:,} of {self.total:,} steps  {self._figures(done)}", file=self.stream)
        self.stream.flush()

    def _figures(self, done: int) -> str:
        seconds = max(time.perf_counter() - self._began, 1e-9)
        return "  ".join([f"{done / seconds:,.0f} steps/s", *self._recent.figures()])


def _rich_bar(stream: TextIO) -> Any:
    """A bar of rich's, or None where rich is not installed."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeRemainingColumn as Remaining
    except ImportError:
        return None
    return Progress(
        BarColumn(), MofNCompleteColumn(), Remaining(), TextColumn("{task.fields[figures]}"),
        console=Console(file=stream),
    )  # fmt: skip
