"""Ctrl-C and SIGTERM as a question that a training loop asks after every step."""

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

PATIENCE = 5.0


class StopSignals:
    """While it is entered, the first signal only sets `number`; a second one interrupts at once.

    Those that follow are not heard for `PATIENCE` seconds, in which runs write down how they ended;
    one that comes later ends the process, as it would end any other.

    Signals belong to the process, so that this belongs to a verb and to nothing below it.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.number: int | None = None
        self._interrupted: float | None = None  # when
        self._before: dict[int, Any] = {}
        self._process = os.getpid()

    def __call__(self) -> bool:
        """Whether the training is to stop."""
        return self.number is not None

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            self._before = {which: signal.signal(which, self._heard) for which in self.SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for which, handler in self._before.items():
            signal.signal(which, handler)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            # A worker that was forked: a terminal's Ctrl-C is for the parent, SIGTERM for itself.
            if number == signal.SIGTERM:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            return
        if self._interrupted is not None:
            if time.monotonic() > self._interrupted + PATIENCE:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            return
        if self.number is not None:
            self._interrupted = time.monotonic()
            raise KeyboardInterrupt
        self.number = number
        text = "stops after this step with a checkpoint; once more stops at once, without one\n"
        with suppress(OSError, ValueError):  # whoever was listening may be gone
            os.write(sys.__stderr__.fileno() if sys.__stderr__ is not None else 2, text.encode())
