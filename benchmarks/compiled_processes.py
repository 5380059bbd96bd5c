"""A process a case: they get ready side by side, and measure one after the other.

A process says in a line of JSON that it is ready, or why not, waits for a word, measures, and says
what it found. Its script is compiled.py, called with `--case`.
"""

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

SCRIPT = Path(__file__).with_name("compiled.py")
TIMED_SHARE = 0.75  # of the budget: then what is ready is timed, and the rest is not waited for


@dataclass
class Case:
    """One way to make the updates of a task, its process, and what came of it."""

    how: str  # ours, a mode, or JAX
    task: str
    what: str  # an encoder, whose whole update it is, or a form
    seeds: int
    found: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.task}, {self.what}, {self.seeds} × {self.how}"

    def words(self) -> list[str]:
        return ["--case", json.dumps([self.how, self.task, self.what, self.seeds])]


@dataclass
class Child:
    """The process of a case: it says when it is ready, and measures when it is told to."""

    case: Case
    process: "subprocess.Popen[str]"
    began: float
    errors: IO[str]
    ready: bool = False

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line:
            return dict(json.loads(line))
        self.process.wait()
        self.errors.seek(0)
        last = [x.strip() for x in self.errors.read().splitlines() if x.strip()][-1:]
        return {"why_not": f"exit status {self.process.returncode}: {''.join(last)[:300]}"}

    def close(self) -> None:
        """End it, if it has not ended, and close what led to it."""
        self.process.kill()
        with suppress(BrokenPipeError), self.process, self.errors:
            pass


def prepared(
    cases: Sequence[Case], options: argparse.Namespace, began: float, keep: Callable[[], None]
) -> list[Child]:
    """Processes that are ready, in the order of their cases; the others have been ended."""
    waiting, children = list(cases), list[Child]()
    limit = began + TIMED_SHARE * options.budget
    while time.perf_counter() < limit:
        busy = [child for child in children if not child.ready and not child.case.found]
        if not waiting and not busy:
            break
        if waiting and len(busy) < options.jobs:
            children.append(started(waiting.pop(0), options))
            continue
        for child in busy:
            if _has_line(child):
                told = child.read()
                child.ready = "why_not" not in told
                child.case.found = told | {"start_up": time.perf_counter() - child.began}
                if not child.ready:
                    print(f"{child.case.name}: {told['why_not']}", flush=True)
                keep()
        time.sleep(0.05)
    for child in children:
        if not child.ready:
            spent = time.perf_counter() - child.began
            child.case.found = child.case.found or {"why_not": f"not ready after {spent:.0f} s"}
            child.close()
    for case in waiting:
        case.found = {"why_not": "not begun within the budget"}
    return sorted((x for x in children if x.ready), key=lambda x: cases.index(x.case))


def started(case: Case, options: argparse.Namespace) -> Child:
    """The case's process, at work."""
    place = os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": str(options.threads)}
    words = [*case.words(), "--device", options.device, "--seconds", str(options.seconds)]
    errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - the process needs it as long as it lives
    process = subprocess.Popen(
        [sys.executable, SCRIPT, *words], text=True, env=place,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
    )  # fmt: skip
    return Child(case, process, time.perf_counter(), errors)


def timed(child: Child) -> dict[str, Any]:
    """Let it measure, while all others wait."""
    assert child.process.stdin is not None
    child.process.stdin.write("go\n")
    child.process.stdin.flush()
    found = child.read()
    child.process.wait()
    return found


def _has_line(child: Child) -> bool:
    """Whether it has said something, or has ended."""
    assert child.process.stdout is not None
    return bool(select.select([child.process.stdout], [], [], 0)[0])
