"""Progress on a terminal as bars, of rich's; elsewhere nothing but lines."""

from types import TracebackType
from typing import Any, TextIO


class Bars:
    """Bars below the lines that are said; on a stream that is no terminal, the lines alone.

    Args:
        stream: where to write.
        counts: beside each bar stands "3/160" instead of "2%".
        transient: nothing of the bars stays when they are stopped.
    """

    def __init__(self, stream: TextIO, *, counts: bool = False, transient: bool = False) -> None:
        self.stream = stream
        self._rich: Any = _bars(stream, counts, transient) if stream.isatty() else None

    @property
    def shown(self) -> bool:
        """Whether there is somebody to see them."""
        return self._rich is not None

    def add(
        self, total: float | None, name: str = "", *, done: float = 0, visible: bool = True
    ) -> int:
        """Add a bar at the bottom; returns its number."""
        if self._rich is None:
            return 0
        bar = self._rich.add_task(name, total=total, completed=done, figures="", visible=visible)
        self._rich.start()
        return bar

    def update(self, bar: int, **changes: Any) -> None:
        """Change `completed`, `total` or `figures`, the words behind a bar."""
        if self._rich is not None:
            self._rich.update(bar, **changes)

    def remove(self, bar: int) -> None:
        """Take a bar away."""
        if self._rich is not None:
            self._rich.remove_task(bar)

    def say(self, text: str) -> None:
        """Print a line, above the bars where there are some."""
        if self._rich is not None:
            self._rich.console.print(text, highlight=False, markup=False, soft_wrap=True)
        else:
            print(text, file=self.stream, flush=True)

    def stop(self) -> None:
        """Give the terminal back; lines can still be said."""
        if self._rich is not None:
            self._rich.stop()
            self._rich = None

    def __enter__(self) -> "Bars":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _bars(stream: TextIO, counts: bool, transient: bool) -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20 if counts else 40),
        MofNCompleteColumn() if counts else TaskProgressColumn(),
        TextColumn("{task.fields[figures]}"),
        console=Console(file=stream),
        transient=transient,
    )
