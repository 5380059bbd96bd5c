"""How a run is getting on: a bar on a terminal, plain lines into files and pipes."""

import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, TextIO

from torch import Tensor

from kalmanac.printable import duration
from kalmanac.rollout import Episode
from kalmanac.sac import Callback, RecentEpisodes, RecurrentSAC

WINDOW = 20.0  # seconds behind the rates: the warm-up's speed says nothing about the training's
SECONDS_A_LINE = 10.0


class Progress(Callback):
    """Steps of `total`, mean return and length of recent episodes, updates a second, time left.

    Args:
        total: environment steps of the run.
        stream: where to write; None is standard output.
    """

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self.total = total
        self.stream = sys.stdout if stream is None else stream
        self._recent = RecentEpisodes()
        self._past: deque[tuple[float, int, int]] = deque()  # (seconds, steps, updates)
        self._updates = 0
        self._next_look = time.perf_counter() + SECONDS_A_LINE
        self._bar: Any = None

    def on_start(self, model: RecurrentSAC) -> None:
        """The clock starts."""
        now = time.perf_counter()
        self._past.append((now, model.num_timesteps, 0))
        self._bar = _bar(self.stream, self.total)
        self._next_look = now + (0.2 if self._bar is not None else SECONDS_A_LINE)

    def on_episode(self, model: RecurrentSAC, episode: Episode) -> None:
        """Keep it for the means."""
        self._recent.add(model, episode)

    def on_update(self, model: RecurrentSAC, metrics: Mapping[str, Tensor]) -> None:
        """Count it."""
        self._updates += 1

    def on_step(self, model: RecurrentSAC) -> None:
        """Show it where it is time."""
        now = time.perf_counter()
        if now < self._next_look:
            return
        self._past.append((now, model.num_timesteps, self._updates))
        while len(self._past) > 2 and now - self._past[1][0] > WINDOW:
            self._past.popleft()
        if self._bar is not None:
            self._next_look = now + 0.2
            self._bar.update(0, completed=model.num_timesteps, figures=self.figures())
        else:
            self._next_look = now + SECONDS_A_LINE
            self.say(f"{model.num_timesteps:,} of {self.total:,} steps  {self.figures()}")

    def on_end(self, model: RecurrentSAC) -> None:
        """Leave the bar as it is."""
        self._past.append((time.perf_counter(), model.num_timesteps, self._updates))
        if self._bar is not None:
            self._bar.update(0, completed=model.num_timesteps, figures=self.figures())
        self.stop()

    def state_dict(self) -> dict[str, Any]:
        """The episodes behind the means."""
        return self._recent.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Means go on where `state_dict` was called."""
        self._recent.load_state_dict(state)

    def stop(self) -> None:
        """Give the terminal back; lines can still be said."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def evaluated(self, step: int, values: Mapping[str, float]) -> None:
        """One line for an evaluation."""
        self.say(f"step {step:,}: {evaluation_line(values)}")

    def evaluating(
        self, name: str, steps: int, done: int, episodes: int, seed: int | None = None
    ) -> None:
        """Where it is time, how far an evaluation is."""
        now = time.perf_counter()
        if now < self._next_look:
            return
        whose = "" if seed is None else f"seed {seed}, "
        text = f"{whose}evaluating {name}: {done} of {episodes} episodes, {steps:,} steps"
        if self._bar is not None:
            self._next_look = now + 0.2
            self._bar.update(0, figures=text)
        else:
            self._next_look = now + SECONDS_A_LINE
            self.say(text)

    def say(self, text: str) -> None:
        """A line, above the bar where there is one."""
        if self._bar is not None:
            self._bar.console.print(text, highlight=False, markup=False)
        else:
            print(text, file=self.stream, flush=True)

    def figures(self) -> str:
        """Return, length, speed and time left in words."""
        parts = self._recent.figures()
        (then, steps, updates), (now, steps_now, updates_now) = self._past[0], self._past[-1]
        seconds = now - then
        if seconds > 0 and steps_now > steps:
            parts.append(f"{(updates_now - updates) / seconds:,.0f} updates/s")
            left = max(self.total - steps_now, 0) * seconds / (steps_now - steps)
            parts.append(f"{duration(left)} left")
        return "  ".join(parts)


def evaluation_line(values: Mapping[str, float]) -> str:
    """Normalised return, length and win rate of each evaluation, in one line."""
    places: dict[str, dict[str, float]] = {}
    for key, value in values.items():
        _, place, name = key.split("/")
        places.setdefault(place, {})[name] = value
    told = []
    for place, found in places.items():
        wins = f", wins {found['win_rate']:.2f}" if "win_rate" in found else ""
        cut = f", {found['cut']:.0f} cut" if found.get("cut") else ""
        told.append(f"{place} {found['normalized']:.3g} (length {found['length']:.3g}{wins}{cut})")
    return "  ".join(told)


def _bar(stream: TextIO, total: int) -> Any:
    """A bar of rich's; None where the stream is no terminal or rich is not installed."""
    if not stream.isatty():
        return None
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
    except ModuleNotFoundError:
        return None
    bar = Progress(
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[figures]}"),
        console=Console(file=stream),
    )
    bar.add_task("", total=total, figures="")
    bar.start()
    return bar
