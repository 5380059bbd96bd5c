"""How far a training is: a bar on a terminal, plain lines into files and pipes."""

import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any, TextIO

from kalmanac.rollout import Episode
from kalmanac.sac.callbacks import Callback

if TYPE_CHECKING:
    from kalmanac.sac.recurrent_sac import RecurrentSAC

RECENT = 100  # episodes in the means, as SB3 counts them


class ProgressBar(Callback):
    """Steps done of `total`, steps per second, and means over the last 100 training episodes.

    Args:
        total: environment steps of this training.
        every: environment steps between two plain lines.
        stream: where to write; None is standard error.
    """

    def __init__(self, total: int, *, every: int = 1000, stream: TextIO | None = None) -> None:
        self.total, self.every = total, every
        self.stream = sys.stderr if stream is None else stream
        self._recent: deque[Episode] = deque(maxlen=RECENT)
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
        self._recent.append(episode)

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
        figures = f"{done / seconds:,.0f} steps/s"
        if self._recent:
            n = len(self._recent)
            reward = sum(episode.total_reward for episode in self._recent) / n
            length = sum(episode.length for episode in self._recent) / n
            figures += f"  return {reward:.3g}  length {length:.4g}"
        return figures


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
