"""`kalmanac report FOLDER`: figures, tables and one page from the run folders below FOLDER."""

import sys
from dataclasses import dataclass
from pathlib import Path

from kalmanac._cli.verb import Call, RefusedError, Verb, need

LIBRARIES = ("matplotlib", "plotly", "rliable")


@dataclass(frozen=True)
class Options:
    """Where to write."""

    out: Path | None = None
    """A folder for the report; None is FOLDER/report."""


def report(call: Call) -> int:
    """The verb. 2: a call that cannot be understood; 1: nothing to report on."""
    folder = Path(call.words[0])
    out = call.options.out or folder / "report"
    need(*LIBRARIES)
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
        print(f"not drawn: {one.number} {one.title}: needs {one.needs}")
    if not contents.runs:
        raise RefusedError(f"found no run with an evaluation in {folder}", 1)
    marks = f" ({', '.join(contents.labels)} runs among them)" if contents.labels else ""
    print(
        f"{contents.runs:,} runs{marks}, {len(contents.figures)} figures, "
        f"{len(contents.tables)} tables: {out / build.PAGE}"
    )
    return 0


def _say(text: str) -> None:
    """Tell whoever waits at a terminal."""
    if sys.stderr.isatty():
        print(f"{text} …", file=sys.stderr, flush=True)


VERB = Verb(
    report,
    Options,
    "Draw every figure and table of the paper that the runs below FOLDER allow, and bind them in "
    "one HTML page with curves to explore. Needs no torch. What cannot be read or drawn is named, "
    "in one line each.",
    words="FOLDER",
    least=1,
    most=1,
)
