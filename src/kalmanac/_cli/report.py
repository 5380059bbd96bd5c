"""`kalmanac report FOLDER`: figures, tables and one page from the run folders below FOLDER."""

import sys
import time
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from kalmanac._cli.verb import Call, RefusedError, Verb, need
from kalmanac._files.run_status import find_runs

LIBRARIES = ("matplotlib", "plotly", "rliable")
PAUSE = 30.0  # seconds between two reports that follow a training


@dataclass(frozen=True)
class Options:
    """Where to write, and how often."""

    out: Path | None = None
    """A folder for the report; None is FOLDER/report."""
    follow: bool = False
    """Write it anew every half minute while a run below FOLDER is under way; reload the page."""


def report(call: Call) -> int:
    """The verb. 2: a call that cannot be understood; 1: nothing to report on."""
    folder = Path(call.words[0])
    out = call.options.out or folder / "report"
    need(*LIBRARIES)
    _report(folder, out)
    while call.options.follow and _under_way(folder):
        time.sleep(PAUSE)
        with redirect_stdout(None):  # all has been said
            _report(folder, out)
    return 0


def _under_way(folder: Path) -> bool:
    runs, _ = find_runs(folder, now=time.time())
    return any(run.status == "running" for run in runs)


def _report(folder: Path, out: Path) -> None:
    from kalmanac._report import build

    try:
        contents = build.make_report(folder, out, say=_say)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise RefusedError(f"--out {out}: {error.strerror}", 2) from None
    for text in contents.notices:
        print(f"note: {text}")
    for one in contents.missing:
        print(f"not drawn: {one.number}, {one.title}: needs {one.needs}")
    if not contents.runs:
        raise RefusedError(f"found no run with numbers in {folder}", 1)
    marks = f" ({', '.join(contents.labels)} runs among them)" if contents.labels else ""
    print(
        f"{contents.runs:,} runs{marks}, {len(contents.figures)} figures, "
        f"{len(contents.tables)} tables: {out / build.PAGE}",
        flush=True,
    )


def _say(text: str) -> None:
    """Tell whoever waits at a terminal."""
    if sys.stderr.isatty():
        print(f"{text} …", file=sys.stderr, flush=True)


VERB = Verb(
    report,
    Options,
    "One HTML page about the runs below FOLDER: curves, losses and diagnostics to choose from, "
    "agents compared with intervals, settings that differ, episodes that `watch` has drawn, and of "
    "the paper's figures and tables those of its tasks. Needs no torch. What cannot be read or "
    "drawn is named, in one line each.",
    words="FOLDER",
    least=1,
    most=1,
)
