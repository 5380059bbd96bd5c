"""How a training is getting on: a bar on a terminal, plain lines into files and pipes."""

import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TextIO

from torch import Tensor

from kalmanac._bars import Bars
from kalmanac._messages import duration
from kalmanac._sac.callbacks import Callback, RecentEpisodes
from kalmanac._sac.episode_streams import Episode

if TYPE_CHECKING:
    from kalmanac._sac.recurrent_sac import RecurrentSAC

WINDOW = 20.0  # seconds behind the rates: the warm-up's speed says nothing about the training's
SECONDS_A_LINE = 10.0
SECONDS_A_LOOK = 0.2  # at a bar


class Progress(Callback):
    """Steps of `total`, mean return and length of recent episodes, updates a second, time left.

    Episodes of the warm-up leave the means once learning has begun.

    Args:
        total: environment steps of the training.
        stream: where to write; None is standard output.
        every: environment steps between two lines; None is `SECONDS_A_LINE`.
        start: environment steps that the agent has behind it and that do not count.
        unit: "updates" counts those instead of environment steps.
    """

    def __init__(
        self, total: int, stream: TextIO | None = None, *, every: int | None = None, start: int = 0,
        unit: Literal["steps", "updates"] = "steps",
    ) -> None:  # fmt: skip
        self.total, self.every, self.start, self.unit = total, every, start, unit
        self.stream = sys.stdout if stream is None else stream
        self._recent = RecentEpisodes()
        self._past: deque[tuple[float, int, int]] = deque()  # (seconds, steps, updates)
        self._updates = 0
        self._next_look = time.perf_counter() + SECONDS_A_LINE
        self._next_line = 0 if every is None else every  # steps
        self._bars: Bars | None = None
        self._bar = 0

    def on_start(self, model: "RecurrentSAC") -> None:
        """Start the clock."""
        self._past.append((time.perf_counter(), self._done(model), 0))
        self._bars = Bars(self.stream)
        self._bar = self._bars.add(self.total)
        self._due()

    def on_episode(self, model: "RecurrentSAC", episode: Episode) -> None:
        """Keep it for the means."""
        self._recent.add(model, episode)

    def on_update(self, model: "RecurrentSAC", metrics: Mapping[str, Tensor]) -> None:
        """Count it."""
        self._updates += 1

    def on_step(self, model: "RecurrentSAC") -> None:
        """Show it where it is time."""
        done = self._done(model)
        if self.every is None or self._on_terminal:
            if time.perf_counter() < self._next_look:
                return
        elif done < self._next_line:
            return
        else:
            self._next_line = (done // self.every + 1) * self.every
        self._advance(done)
        self._due()
        if not self._on_terminal:
            self.say(f"{done:,} of {self.total:,} {self.unit}  {self.figures()}")

    def on_end(self, model: "RecurrentSAC") -> None:
        """Leave the bar as it is."""
        self._advance(self._done(model))
        self.stop()

    def state_dict(self) -> dict[str, Any]:
        """The episodes behind the means."""
        return self._recent.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Means go on where `state_dict` was called."""
        self._recent.load_state_dict(state)

    def stop(self) -> None:
        """Give the terminal back; lines can still be said."""
        if self._bars is not None:
            self._bars.stop()

    def evaluating(
        self, name: str, steps: int, done: int, episodes: int, seed: int | None = None
    ) -> None:
        """Show how far an evaluation is, where it is time."""
        if time.perf_counter() < self._next_look:
            return
        whose = "" if seed is None else f"seed {seed}, "
        text = f"{whose}evaluating {name}: {done} of {episodes} episodes, {steps:,} steps"
        self._due()
        if self._bars is not None and self._on_terminal:
            self._bars.update(self._bar, figures=text)
        else:
            self.say(text)

    def say(self, text: str) -> None:
        """Print a line, above the bar where there is one."""
        if self._bars is None:
            print(text, file=self.stream, flush=True)
        else:
            self._bars.say(text)

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

    def _done(self, model: "RecurrentSAC") -> int:
        done = model.num_updates if self.unit == "updates" else model.num_timesteps
        return done - self.start

    @property
    def _on_terminal(self) -> bool:
        return self._bars is not None and self._bars.shown

    def _due(self) -> None:
        """Set the time of the next display."""
        wait = SECONDS_A_LOOK if self._on_terminal else SECONDS_A_LINE
        self._next_look = time.perf_counter() + wait

    def _advance(self, done: int) -> None:
        """Remember how far it is, and move the bar."""
        now = time.perf_counter()
        self._past.append((now, done, self._updates))
        while len(self._past) > 2 and now - self._past[1][0] > WINDOW:
            self._past.popleft()
        if self._bars is not None:
            self._bars.update(self._bar, completed=done, figures=self.figures())
